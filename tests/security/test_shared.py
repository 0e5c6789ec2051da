"""What a box shares with the machine whatever its namespaces are: counters that there are one of, files that others open too, the memory
of sockets. docs/ATTACKS.md tells how each of these was found.
"""
import ctypes
import fcntl
import os
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading

import pytest

from . import attack
from .attack import boxlib

KERNEL_RUNGS = {"cgroup2", "scope", "cgroup1"}
# Attack -> what a program in the box must be told. Each succeeds outside.
REFUSED = {
    "aio": "ENOSYS",  # fs.aio-max-nr is one number for the machine
    "lease-read": "EPERM", "lease-write": "EPERM",  # the host's next open(2) would wait
    "whiteout": "EPERM",  # a device node in the shared directory
    "huge-mmap": "EPERM", "huge-memfd": "EPERM",  # pages that no memory limit counts
    "filter": "EPERM", "filter-reuseport": "EPERM",  # memory that no group is charged for
    "pressure": "ENOENT",  # work for the kernel, not bounded
    "projects": "refused",  # quotas are the host's
    "netlink-to-another": "EPERM",
}
WORKS = ("lock", "noreplace", "small-mmap", "buffer")
KINDS = {"default": (), "uid0": ("--user", "0"), "untrusted": ("--security-profile", "untrusted"), "host-net": ("--network", "host")}


@pytest.fixture(scope="module")
def outside(probe):
    where = attack.public_dir()
    yield probe.outside("shared", unshare="n", cwd=where)
    shutil.rmtree(where)


@pytest.fixture(scope="module", params=sorted(KINDS))
def inside(request, probe):
    """The answers of one kind of box, and what it left in the shared directory."""
    where = attack.public_dir()
    yield probe.inside("shared", opts=(*KINDS[request.param], "--workspace", where)), where
    shutil.rmtree(where)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused(name, outside, inside):
    answers, where = inside
    control, got = outside[name], answers[name]
    if name == "huge-mmap":
        assert control in ("ok", "ENOMEM", "E?"), control  # as the machine's pool has it; not refused
    elif name == "pressure" and not os.path.exists("/proc/pressure/cpu"):
        assert got == "ENOENT"
        return
    elif name == "projects" and (control != "ok" or not boxlib.IS_ROOT):
        assert got != "ok"  # not every file system has projects, and they are root's outside too
        return
    else:
        assert control == "ok", f"no control: outside, {name} is {control}"
    if REFUSED[name] == "refused":
        assert got != "ok"
    elif name == "huge-memfd":
        assert got in ("EPERM", "ENOSYS")  # supervised limits have no memfd at all
    else:
        assert got == REFUSED[name]
    if name == "whiteout":  # asked of the host's file system
        assert not [n for n in os.listdir(where) if not stat.S_ISREG(os.lstat(where / n).st_mode)]


@pytest.mark.parametrize("name", WORKS)
def test_works(name, outside, inside):
    assert (outside[name], inside[0][name]) == ("ok", "ok")


def queued(out):
    return int((out if isinstance(out, str) else out.decode()).split()[1])


def test_memory_of_sockets_is_bounded(probe):
    """Datagrams over a box's own loopback are memory, which cgroup v1 counts on request only. What could be queued is read back."""
    if boxlib.box("true").o["limits"]["memory"]["rung"] not in KERNEL_RUNGS:
        pytest.skip("no kernel rung for memory here")
    control = subprocess.run([str(probe.path), "queue", "48"], capture_output=True, timeout=120, check=True).stdout
    assert queued(control) > 40 << 20
    r = probe.run("queue", 48, opts=("--memory", "64m", "--open-files", "1024"))
    if r.o.fault is None:  # cgroup v2 may end the box instead
        assert 0 < queued(r.o.out) <= 24 << 20, r


def pass_one(limit, uid):
    """One descriptor through a socket, as `uid` with this soft limit: "ok" or the error."""
    code = ("import array, errno, os, resource, socket\n"
            f"os.setgroups([]) if os.getuid() == 0 else 0\nos.setresuid({uid}, {uid}, {uid})\n"
            f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\n"
            "a, b = socket.socketpair()\n"
            "try:\n    a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [1]))])\n    print('ok')\n"
            "except OSError as e:\n    print(errno.errorcode[e.errno])\n")
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def test_descriptors_on_their_way_stop_no_other_box(probe, box):
    """The kernel counts descriptors that are on their way through sockets for each user, all boxes together."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096 + 512:
        pytest.skip("the caller's own limit of descriptors is not above a box's")
    with boxlib.running(*probe.mount, "--", attack.PROBE, "passing") as p:
        words = p.stdout.readline().split()
        assert words[0] == b"passing" and int(words[1]) > 1000 and words[2] == b"ETOOMANYREFS", words
        inner = next(pid for pid in boxlib.children_of(p.pid) if attack.status_of(pid)["Name"] == "probe")
        uid = attack.status_of(inner)["Uid"].split()[0]
        assert pass_one(1000, uid) == "ETOOMANYREFS"  # the control: this is what a process of that user meets
        for opts in ((), ("--workspace", probe.dir)):
            r = box(*opts, "--", "sh", "-c", "ulimit -Sn; ulimit -Hn")
            assert r.rc == 0, r
            assert r.o.out.split()[0] == "1024"
        assert r.o["limits"]["open_files"]["effective"] == int(r.o.out.split()[1])
        p.terminate()
        p.wait(boxlib.HANG)


def test_timers_of_the_user_are_not_used_up(probe, box):
    """Timers and queued signals are counted for the user outside; the caller's limit is for all that he runs."""
    limit = resource.getrlimit(resource.RLIMIT_SIGPENDING)[0]
    control = subprocess.run([str(probe.path), "timers"], capture_output=True, timeout=60, check=True).stdout.split()
    assert int(control[1]) > min(limit, 20000) // 2
    r = probe.run("timers")
    assert r.rc == 0 and 0 < int(r.o.out.split()[1]) <= 4096, r
    r = box("--", "sh", "-c", "cat /proc/self/limits")
    for name in ("Max realtime priority", "Max nice priority"):
        line = next(row for row in r.o.out.splitlines() if row.startswith(name))
        assert line[len(name):].split()[:2] == ["0", "0"], line


READS = """
import os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(%r)
_, (there, *_), _, _ = socket.recv_fds(s, 9, 9)
def told(what):
    try:
        return repr(what())
    except OSError as e:
        return e.strerror
print(told(lambda: os.stat(there).st_ino > 0))
print(told(lambda: "beside" in os.listdir(os.open("..", os.O_RDONLY, dir_fd=there))))
print(told(lambda: os.read(os.open("../beside", os.O_RDONLY, dir_fd=there), 9)))
print(told(lambda: os.read(os.open("/proc/self/fd/%%d/../beside" %% there, os.O_RDONLY), 9)))
print(told(lambda: os.close(os.open("../beside", os.O_WRONLY, dir_fd=there))))
"""


def test_a_directory_that_a_server_hands_over_leads_nowhere(box, public):
    """Whoever listens in a shared directory may hand the box a descriptor. What is open is open; what lies around it stays shut."""
    os.mkdir(public / "ws")
    os.mkdir(public / "given")
    (public / "beside").write_text("secret")
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(public / "ws" / "s"))
    s.listen(2)

    def serve():
        for _ in range(2):
            c, _ = s.accept()
            with c:
                fd = os.open(public / "given", os.O_RDONLY)
                socket.send_fds(c, [b"x"], [fd])
                os.close(fd)

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    control = subprocess.run([sys.executable, "-c", READS % str(public / "ws" / "s")], capture_output=True, text=True, timeout=60,
                             check=True).stdout.splitlines()
    assert control == ["True", "True", "b'secret'", "b'secret'", "None"]
    r = box("--workspace", public / "ws", "--", "python3", "-c", READS % "/workspace/s")
    server.join(60)
    s.close()
    assert r.rc == 0, r
    assert r.o.out.splitlines() == ["True"] + ["Permission denied"] * 4


def test_a_filter_of_its_own_hides_the_record_and_not_the_refusal(probe):
    """A program may answer before our filter does (SECCOMP.md); then the box goes on, and nothing was mounted."""
    got = probe.inside("own-filter")
    assert got == {"own-filter": "EXDEV"}
    assert probe.run("end", "mount").o.fault_type == "escape_blocked"


class Opens:
    """Counts who opens a path (inotify)."""

    def __init__(self, path):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK)
        assert self.fd >= 0 and self.libc.inotify_add_watch(self.fd, os.fsencode(path), 0x20) >= 0  # IN_OPEN

    def count(self):
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return 0
        return len(data) // struct.calcsize("iIII")

    def close(self):
        os.close(self.fd)


def test_the_trees_list_of_users_is_opened_only_if_it_is_a_file(cloche, ws):
    """To open a device may do something by itself: a --rootfs that is an unpacked archive may have one in that place."""
    (ws / "etc").mkdir()
    path = ws / "etc" / "passwd"
    for node in (False, True):
        if node:
            path.unlink()
            os.mkfifo(path)
        else:
            path.write_text("someone:x:7:7::/:/bin/sh\n")
        seen = Opens(path)
        r = cloche("run", "--rootfs", ws, "--user", "someone", "--", "/none")
        assert r.rc == (2 if node else 127), r
        assert (seen.count() > 0) is not node
        seen.close()


def test_a_lease_is_what_would_hold_up_the_host(ws):
    """The control of the leases: one outside does stop an open(2) for writing, which is why boxes get none."""
    (ws / "f").write_text("x")
    fd = os.open(ws / "f", os.O_RDONLY)
    old = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        with pytest.raises(BlockingIOError):
            os.open(ws / "f", os.O_WRONLY | os.O_NONBLOCK)
    finally:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        signal.signal(signal.SIGIO, old)
        os.close(fd)


def test_locks_through_a_read_only_directory_are_the_boxes_own(box, ws):
    """A lock needs no right but to open the file. Through an overlay it is another file; a single file is the file itself (MOUNTS.md)."""
    (ws / "f").write_text("x")
    code = "import fcntl, sys\nfcntl.flock(f := open('/s/f'), fcntl.LOCK_EX)\nprint('locked', flush=True)\nsys.stdin.read()\n"

    def host_may_lock(*opts):
        with boxlib.running(*opts, "-i", "--", "python3", "-c", code, stdin=subprocess.PIPE) as p:
            assert p.stdout.readline() == b"locked\n"
            with open(ws / "f", encoding="utf-8") as f:
                try:
                    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    free = True
                except BlockingIOError:
                    free = False
            p.stdin.close()
            p.wait(boxlib.HANG)
            return free

    assert host_may_lock("-v", f"{ws}:/s:ro")
    assert not host_may_lock("-v", f"{ws / 'f'}:/s/f:ro")  # the control, as documented


def test_another_user_who_locks_our_groups_stops_no_start(box):
    """A cgroup's directory may be opened by everybody, and so locked: a start takes the next name then."""
    if not boxlib.IS_ROOT:
        pytest.skip("needs a group of root's and another user")
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresuid(54321, 54321, 54321)
        held, end = [], os.times().elapsed + 20
        while os.times().elapsed < end:
            for d in boxlib.own_groups():
                try:
                    for n in os.listdir(d):
                        if n.startswith("cloche-"):
                            held.append(os.open(os.path.join(d, n), os.O_RDONLY))
                            fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    pass
        os._exit(0)
    try:
        for _ in range(8):
            assert box("true").rc == 0
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
