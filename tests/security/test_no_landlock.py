"""A kernel without Landlock: cloche runs from a sealed copy of itself, so that its own file is nowhere in reach of a box."""
import ctypes
import os
import pathlib
import struct
import subprocess

import boxlib

LANDLOCK_CREATE_RULESET = 444
ALLOW, ENOSYS = 0x7FFF0000, 0x00050026


def without_landlock():
    """For preexec_fn: landlock_create_ruleset answers as on a kernel that lacks it."""
    libc = ctypes.CDLL(None, use_errno=True)
    rows = [(0x20, 0, 0, 0), (0x15, 0, 1, LANDLOCK_CREATE_RULESET), (0x06, 0, 0, ENOSYS), (0x06, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
    prog = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(rows), ctypes.addressof(code)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, prog, 0, 0) == 0


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
