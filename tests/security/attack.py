"""What the attacks share: the probe program, running it outside and inside a box, and the host's traps that it must not reach.

The rule of this folder: every attack has its control. The same probe is run without the lock (as the caller, or in namespaces made by unshare)
and must get through there; then it is run in a box, and the kernel is asked what happened: the errno the probe got, the file's mode on the host,
the socket's accept queue, the process's own /proc. What cloche prints about itself is checked last, and never alone.
"""
import os
import pathlib
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import boxlib  # noqa: E402

PROBE = "/probe/probe"
IN_BOX_UID = 1000


def build(into):
    """Compiles probes/*.c into one static program."""
    here = pathlib.Path(__file__).resolve().parent / "probes"
    out = pathlib.Path(into) / "probe"
    if boxlib.ready_probe(out):
        return out
    cmd = ["gcc"]
    if shutil.which("musl-gcc"):
        uapi = pathlib.Path(into) / "uapi"
        subprocess.run([str(boxlib.ROOT / "tools" / "uapi-links"), str(uapi)], check=True, timeout=60)
        cmd = ["musl-gcc", "-isystem", str(uapi)]
    cmd += ["-std=gnu17", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-static", "-o", str(out)]
    r = subprocess.run([*cmd, *map(str, sorted(here.glob("*.c"))), "-pthread"], capture_output=True, text=True, timeout=180)
    assert r.returncode == 0, f"the probe does not compile: {r.stderr}"
    shutil.rmtree(pathlib.Path(into) / "uapi", ignore_errors=True)
    out.chmod(0o755)
    return out


def answers(text):
    """The probe's lines as {name: result}."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    found = {}
    for line in text.splitlines():
        words = line.rsplit(" ", 2)
        if len(words) == 3:
            found[words[0]] = words[1]
    return found


class Probe:
    """The program in its directory: `outside(...)` runs it on the host, `inside(...)` in a box."""

    def __init__(self, directory):
        self.dir = pathlib.Path(directory)
        self.path = build(directory)
        self.mount = ("-v", f"{self.dir}:/probe:ro")

    def outside(self, *args, unshare=None, timeout=60, **kw):
        """As the caller. `unshare` names namespaces of its own ("m", "mp"...), so that a success stays there; an ordinary user needs a user
        namespace for them, root does not."""
        argv = [str(self.path), *map(str, args)]
        if unshare is not None:
            flags = ["-" + unshare] if unshare else []
            if not boxlib.IS_ROOT:
                flags += ["-U", "-r"]
            if "p" in unshare:
                flags += ["-f", "--mount-proc"]
            argv = ["unshare", *flags, *argv]
        r = subprocess.run(argv, capture_output=True, timeout=timeout, **kw)
        return answers(r.stdout)

    def run(self, *args, opts=(), **kw):
        """In a box; the Result."""
        return boxlib.box(*self.mount, *opts, "--", PROBE, *args, **kw)

    def inside(self, *args, opts=(), **kw):
        """In a box that must end well; the answers."""
        r = self.run(*args, opts=opts, **kw)
        assert r.o.fault is None, r
        assert r.rc == 0, r
        return answers(r.o.out)


class Traps:
    """Unix sockets of both types, a FIFO and an abstract socket of the host, each with somebody listening. `hits` names those that something
    reached since the last look."""

    def __init__(self, directory, mode=0o777):
        self.dir = pathlib.Path(directory)
        self.abstract = f"cloche-trap-{os.getpid()}-{id(self)}"
        self.socks = {}
        for name, kind in (("stream", socket.SOCK_STREAM), ("dgram", socket.SOCK_DGRAM), ("seqpacket", socket.SOCK_SEQPACKET)):
            s = socket.socket(socket.AF_UNIX, kind)
            s.bind(str(self.dir / name))
            os.chmod(self.dir / name, mode)
            self.socks[name] = s
        for name, kind in (("abstract", socket.SOCK_STREAM), ("abstract-dgram", socket.SOCK_DGRAM)):
            s = socket.socket(socket.AF_UNIX, kind)
            s.bind("\0" + self.abstract + ("" if kind == socket.SOCK_STREAM else "-d"))
            self.socks[name] = s
        for s in self.socks.values():
            if s.type != socket.SOCK_DGRAM:
                s.listen(128)
            s.setblocking(False)
        os.mkfifo(self.dir / "fifo")
        os.chmod(self.dir / "fifo", mode)
        self.fifo = os.open(self.dir / "fifo", os.O_RDONLY | os.O_NONBLOCK)

    def hits(self):
        found = []
        for name, s in self.socks.items():
            while True:
                try:
                    if s.type == socket.SOCK_DGRAM:
                        s.recv(64)
                    else:
                        s.accept()[0].close()
                    found.append(name)
                except BlockingIOError:
                    break
        try:
            while os.read(self.fifo, 64):
                found.append("fifo")
        except BlockingIOError:
            pass
        return found

    def close(self):
        for s in self.socks.values():
            s.close()
        os.close(self.fifo)


class Counter:
    """A listener on a path that takes every connection at once and counts them."""

    def __init__(self, path):
        self.count = 0
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.bind(str(path))
        os.chmod(path, 0o777)
        self.sock.listen(512)
        self.stop_r, self.stop_w = os.pipe()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            ready, _, _ = select.select([self.sock, self.stop_r], [], [])
            if self.sock in ready:
                self.sock.accept()[0].close()
                self.count += 1
            elif self.stop_r in ready:
                return

    def close(self):
        """Every connection made before this call is counted."""
        os.close(self.stop_w)
        self.thread.join(30)
        self.sock.close()
        os.close(self.stop_r)
        return self.count


def complaints(err):
    """cloche's lines on stderr but for its notes."""
    return [line for line in err.splitlines() if not line.startswith(b"cloche: note:")]


def snapshot(top):
    """Everything that can be known of a tree: for a comparison before and after."""
    rows = {}
    for base, dirs, files in os.walk(top):
        for n in [".", *dirs, *files]:
            path = os.path.join(base, n)
            st = os.lstat(path)
            text = ""
            if os.path.islink(path):
                text = os.readlink(path)
            elif os.path.isfile(path) and st.st_size < 1 << 20:
                text = pathlib.Path(path).read_bytes()
            rows[os.path.normpath(path)] = (st.st_mode, st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns, st.st_ctime_ns, text)
    return rows


def public_dir(prefix="ct-sec-"):
    """A directory that every uid may search: a box of another uid must be stopped by its locks, not by a mode."""
    path = tempfile.mkdtemp(prefix=prefix, dir="/tmp")
    os.chmod(path, 0o755)
    return pathlib.Path(path)


def status_of(pid):
    """/proc/PID/status as {key: value}."""
    rows = {}
    for line in pathlib.Path("/proc", str(pid), "status").read_text().splitlines():
        key, _, value = line.partition(":")
        rows[key] = value.strip()
    return rows


def init_of(pid):
    """The process 1 of the box that this process of the host lives in, found by its parents. Never the host's own."""
    while True:
        status = status_of(pid)
        inner = status["NSpid"].split()
        assert len(inner) > 1, "not in a box"
        if inner[-1] == "1":
            return pid
        pid = int(status["PPid"])


def wait_marked(mark, n=1):
    """The pids of the processes on the host whose command line holds the mark, once there are n."""
    return boxlib.wait_for(lambda: (lambda p: p if len(p) >= n else None)(boxlib.find_marked(mark)))


def no_marked(mark):
    return boxlib.wait_for(lambda: not boxlib.find_marked(mark)) is not None
