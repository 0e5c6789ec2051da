"""The rung of scopes where the manager is not there, or is somebody bad: the next rung is taken, and --require-limits says why.

The real manager is met in the guest (tests/guest/test_scope.py).
"""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

import boxlib
import test_cgroup2

USER = 12345

# Plays a manager: `mode` says how badly. It prints a line when it listens.
MANAGER = r"""
import os, socket, struct, sys
path, mode = sys.argv[1:]
os.umask(0o077)
s = socket.socket(socket.AF_UNIX)
s.bind(path)
s.listen(4)
print("listening", flush=True)

def align(b, n):
    return b + b"\0" * (-len(b) % n)

def text(t):
    return struct.pack("<I", len(t)) + t + b"\0"

def error(serial):
    fields = b"\x05\x01u\0" + struct.pack("<I", serial)
    fields = align(fields, 8) + b"\x04\x01s\0" + text(b"org.freedesktop.DBus.Error.AccessDenied")
    fields = align(fields, 8) + b"\x08\x01g\0\x01s\0"
    body = text(b"not \x1b[31mfor\nyou")
    return align(b"l\x03\x01\x01" + struct.pack("<III", len(body), 7, len(fields)) + fields, 8) + body

def done(serial):
    fields = b"\x05\x01u\0" + struct.pack("<I", serial)
    return align(b"l\x02\x01\x01" + struct.pack("<III", 0, 7, len(fields)) + fields, 8)

while True:
    c = s.accept()[0]
    got = c.recv(4096)
    if mode == "rejects":
        c.sendall(b"REJECTED EXTERNAL\r\n")
    if mode in ("garbage", "leaves", "error", "lies"):
        c.sendall(b"OK 1234deadbeef\r\n")
    if mode == "garbage":
        c.recv(4096)
        c.sendall(os.urandom(64) * 64)
    if mode == "leaves":
        c.recv(4096)
    while mode == "lies":
        call = c.recv(4096)
        if not call:
            break
        c.sendall(done(struct.unpack("<I", call[8:12])[0]))
    if mode == "error":
        call = c.recv(4096)
        c.sendall(error(struct.unpack("<I", call[8:12])[0]))
        c.recv(4096)
    c.close()
"""


def own_v2_group():
    """The directory of this process's own cgroup v2 group, or None."""
    group = [line[3:] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::/")]
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        root, point = left.split()[3:5]
        if right.startswith("cgroup2 ") and group and (group[0] + "/").startswith(root.rstrip("/") + "/"):
            return pathlib.Path(point + "/" + group[0][len(root.rstrip("/")):].lstrip("/"))
    return None


@contextlib.contextmanager
def manager(mode, group):
    """The runtime directory of a bad manager that stands in `group`, owned by USER."""
    with contextlib.ExitStack() as stack:
        place = pathlib.Path(f"/tmp/ct-manager-{os.getpid()}-{mode}")
        (place / "systemd").mkdir(parents=True)
        os.chown(place, USER, USER)
        os.chown(place / "systemd", USER, USER)
        os.chmod(place, 0o700)
        stack.callback(subprocess.run, ["rm", "-rf", str(place)], check=True)

        def enter():
            pathlib.Path(group, "cgroup.procs").write_text("0")
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)

        p = subprocess.Popen([sys.executable, "-c", MANAGER, str(place / "systemd" / "private"), mode], stdout=subprocess.PIPE,
                             preexec_fn=enter)
        stack.callback(p.stdout.close)
        stack.callback(p.wait)
        stack.callback(p.send_signal, signal.SIGKILL)
        assert p.stdout.readline() == b"listening\n"
        yield place


@pytest.fixture
def group():
    """A group like a manager's: its own init.scope in it."""
    base = own_v2_group()
    if base is None or not os.access(base, os.W_OK):
        pytest.skip("no cgroup v2 group of our own")
    top = base / f"ct-scope-{os.getpid()}"
    (top / "init.scope").mkdir(parents=True)
    yield top / "init.scope"
    for d in (top / "init.scope", top):
        for _ in range(100):
            try:
                d.rmdir()
                break
            except OSError:
                time.sleep(0.05)


def refusal(env, other_rung=True):
    """What --require-limits says to an ordinary user; the control is that the box runs without it. Where it does not refuse, another rung may
    hold the limits here."""
    copy = pathlib.Path(f"/tmp/ct-scope-home-{os.getpid()}")
    copy.mkdir(mode=0o755, exist_ok=True)
    program = copy / "cloche"
    try:
        program.write_bytes(pathlib.Path(boxlib.CLOCHE).read_bytes())
        program.chmod(0o755)

        def run(*args):
            full = {**boxlib.base_env(), "HOME": "/nonexistent", **env}
            return subprocess.run([str(program), "run", *args, "--", "echo", "ran"], env=full, capture_output=True, timeout=boxlib.HANG,
                                  cwd="/", user=USER if boxlib.IS_ROOT else None, group=USER if boxlib.IS_ROOT else None,
                                  extra_groups=[] if boxlib.IS_ROOT else None, check=False)
        r = run("--require-limits")
        if r.returncode == 0 and other_rung:
            pytest.skip("the kernel holds limits here on another rung")
        control = run("-q")
        assert control.returncode == 0 and control.stdout == b"ran\n", control
        assert r.returncode == 125 and b"scope: " in r.stderr, r
        assert r.stderr.count(b"\n") == 1 and b"\x1b" not in r.stderr
        return r.stderr.decode().split("scope: ", 1)[1]
    finally:
        program.unlink(missing_ok=True)
        copy.rmdir()


@pytest.mark.skipif(os.path.exists("/run/systemd/system"), reason="systemd runs here")
def test_no_manager_is_named():
    assert refusal({"XDG_RUNTIME_DIR": "/nonexistent"}).startswith("no systemd runs here;")


@pytest.mark.root
@pytest.mark.parametrize("mode, says", [
    ("garbage", "the user manager: a D-Bus message that makes no sense"),
    ("leaves", "the user manager: D-Bus: hung up before the answer"),
    ("rejects", "the user manager: D-Bus: refused to talk to uid 12345"),
    ("error", "the user manager: StartTransientUnit: not ?[31mfor?you"),
], ids=["garbage", "leaves", "rejects", "error"])
def test_a_bad_manager_costs_the_rung_and_no_more(group, mode, says):
    with manager(mode, group) as place:
        assert refusal({"XDG_RUNTIME_DIR": str(place)}).startswith(says)


@pytest.mark.root
def test_one_outside_of_a_managers_group_is_not_believed(group):
    """The kernel says where the manager stands; it is not asked itself."""
    with manager("error", group.parent) as place:
        assert refusal({"XDG_RUNTIME_DIR": str(place)}).startswith("the user manager has no cgroup v2 groups")


@pytest.mark.root
def test_one_that_moves_nobody_is_not_believed():
    """It has a group for us and says that all is done. Whether the box is in there is asked of the kernel."""
    parent = test_cgroup2.parent_with({"memory", "pids"})
    if not parent:
        pytest.skip("no cgroup v2 place with memory and pids here")
    with test_cgroup2.group(parent, "memory", "pids") as top:
        unit = top / "app.slice" / "cloche-boxes.service"
        unit.mkdir(parents=True)
        (top / "app.slice" / "cgroup.subtree_control").write_text("+memory +pids")
        for f in (unit, unit / "cgroup.procs", unit / "cgroup.subtree_control"):
            os.chown(f, USER, USER)
        (top / "init.scope").mkdir()
        with manager("lies", top / "init.scope") as place:
            said = refusal({"XDG_RUNTIME_DIR": str(place)}, other_rung=False)
        assert said.startswith("the user manager: AttachProcessesToUnit: done, it says, and it is not"), said
        assert (unit / "cgroup.subtree_control").read_text().split() == ["memory", "pids"], "no control: it was not tried"
        assert not test_cgroup2.left_in(unit)


@pytest.mark.root
def test_a_strangers_socket_is_not_talked_to(tmp_path):
    os.chmod(tmp_path, 0o755)
    for d in (tmp_path.parent, tmp_path.parent.parent):
        os.chmod(d, 0o755)
    (tmp_path / "systemd").mkdir()
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "systemd" / "private"))
        os.chmod(tmp_path / "systemd" / "private", 0o666)
        os.seteuid(54321)
        try:
            s.listen(1)
        finally:
            os.seteuid(0)
        assert "belongs to uid 54321" in refusal({"XDG_RUNTIME_DIR": str(tmp_path)})
