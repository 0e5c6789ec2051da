"""A kernel without Landlock: cloche runs from a sealed copy of itself, so that its own file is nowhere in reach of a box."""
import os
import pathlib
import subprocess

import boxlib
from outer_filter import ENOSYS, filter_calls

LANDLOCK_CREATE_RULESET = 444
without_landlock = filter_calls([LANDLOCK_CREATE_RULESET], ENOSYS)


def exe_of_running(**kw):
    with subprocess.Popen([boxlib.CLOCHE, "run", "-q", "-i", "--", "sh", "-c", "echo up; read x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=boxlib.base_env(), **kw) as p:
        assert p.stdout.readline() == b"up\n"
        exe = os.readlink(f"/proc/{p.pid}/exe")
        seals = None
        if "memfd:" in exe:
            try:
                os.open(f"/proc/{p.pid}/exe", os.O_WRONLY)
                seals = "writable"
            except OSError as why:
                seals = why.errno
        p.communicate(b"\n", timeout=boxlib.HANG)
    assert p.returncode == 0
    return exe, seals


def test_control():
    exe, _ = exe_of_running()
    assert exe == str(pathlib.Path(boxlib.CLOCHE).resolve())


def test_runs_from_sealed_memory():
    exe, refused = exe_of_running(preexec_fn=without_landlock)
    assert exe.startswith("/memfd:cloche"), exe
    assert refused not in (None, "writable")


def test_the_box_holds_as_before():
    r = subprocess.run([boxlib.CLOCHE, "run", "-q", "--", "sh", "-c", "id -u; mount -t tmpfs x /tmp"], preexec_fn=without_landlock,
                       stdin=subprocess.DEVNULL, capture_output=True, env=boxlib.base_env(), timeout=boxlib.HANG)
    assert r.returncode == 159 and r.stdout == b"1000\n", r
