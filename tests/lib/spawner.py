"""Drives `cloche spawn` as the loop of a session does (src/session/spawn.h): sealed memory files, descriptors, one packet a message."""
import array
import errno
import fcntl
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import time

import boxlib

READY, FAILED, CALL, STARTED, CONNECTED, OUTCOME, CANCEL, SIGNAL, RESIZE, CONNECT = range(1, 11)
STDIN, PTY, CODE, TRACK = 1, 2, 4, 8
LANGUAGES = ("python", "bash", "sh", "node")
OWN_TIMEOUT = 2**64 - 1
ERR_USAGE, ERR_REFUSED = 1, 2
ADD_SEALS, ALL_SEALS = 1033, 15
HOLDER = "cloche: mounts"


def memfd(data, sealed=True):
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    while data:
        data = data[os.write(fd, data):]
    if sealed:
        fcntl.fcntl(fd, ADD_SEALS, ALL_SEALS)
    return fd


def words(argv, env=None, cwd=None):
    pairs = [f"{k}={v}" for k, v in (env or {}).items()]
    text = [*map(os.fspath, argv), *pairs, *([cwd] if cwd else [])]
    return struct.pack("III", len(argv), len(pairs), cwd is not None) + b"".join(os.fsencode(w) + b"\0" for w in text)


def take(sock):
    """One packet and its descriptors; (b"", []) at the end."""
    try:
        data, control, _, _ = sock.recvmsg(4096, socket.CMSG_SPACE(8 * 4), socket.MSG_CMSG_CLOEXEC)
    except OSError as why:
        if why.errno != errno.ECONNRESET:
            raise
        return b"", []
    fds = array.array("i")
    for level, kind, got in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(got[:len(got) - len(got) % 4])
    return data, list(fds)


def read_json(fd):
    with os.fdopen(fd, "rb") as f:
        return json.loads(os.pread(f.fileno(), os.fstat(f.fileno()).st_size, 0))


class Call:
    """One call: what came of it is in `events`, `outcome`, `files`, `out` and `err`, once it is over."""

    def __init__(self, spawner, argv=(), code=None, language="python", stdin=None, pty=None, track=False, timeout=None, env=None, cwd=None,
                 queued_us=0, raw_words=None, unsealed=False):
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.outcome = self.files = self.input = None
        self.text_of = {"out": bytearray(), "err": bytearray()}
        self.streams, self.events = {}, []  # the open ends
        flags, rows, cols = 0, *(pty or (0, 0))
        send = [memfd(words(argv, env, cwd) if raw_words is None else raw_words, not unsealed), theirs.fileno()]
        if stdin is not None or pty:
            flags |= STDIN
            theirs_in, self.input = os.pipe()
            send.append(theirs_in)
        for name in ("out",) if pty else ("out", "err"):
            ours, end = os.pipe()
            self.streams[ours] = name
            send.append(end)
        if code is not None:
            flags |= CODE
            send.append(memfd(code))
        flags |= (PTY if pty else 0) | (TRACK if track else 0)
        micro = OWN_TIMEOUT if timeout is None else int(timeout * 1e6)
        socket.send_fds(spawner.sock, [struct.pack("IIIHHQQ", CALL, flags, LANGUAGES.index(language), rows, cols, micro, queued_us)], send)
        theirs.detach()
        for fd in send:
            os.close(fd)
        if stdin:
            os.write(self.input, stdin)
        if stdin is not None:
            self.close_input()

    def close_input(self):
        if self.input is not None:
            os.close(self.input)
        self.input = None

    def order(self, kind, sig=0, rows=0, cols=0, port=0, tag=0):
        self.control.send(struct.pack("IiHHHQ", kind, sig, rows, cols, port, tag))

    def cancel(self):
        self.order(CANCEL)

    def signal(self, sig):
        self.order(SIGNAL, sig=sig)

    def resize(self, rows, cols):
        self.order(RESIZE, rows=rows, cols=cols)

    def connect(self, port):
        """A connected socket, or the number of the error."""
        self.order(CONNECT, port=port, tag=port + 5)
        assert self.until(lambda: any(e[0] == CONNECTED for e in self.events)), self
        kind, num, tag, fds = next(e for e in self.events if e[0] == CONNECTED)
        self.events = [e for e in self.events if e[0] != CONNECTED]
        assert tag == port + 5 and bool(num) != bool(fds)
        return num or socket.socket(fileno=fds[0])

    @property
    def out(self):
        return self.text_of["out"].decode()

    @property
    def err(self):
        return self.text_of["err"].decode()

    @property
    def over(self):
        return self.control.fileno() < 0

    @property
    def started(self):
        return any(e[0] == STARTED for e in self.events)

    @property
    def fault(self):
        return self.outcome["fault"]["type"] if self.outcome["fault"] else None

    def until(self, what, timeout=boxlib.HANG):
        """Takes what comes until what() is true; the value of it."""
        end = time.monotonic() + timeout
        while not what() and not self.over and time.monotonic() < end:
            ready, _, _ = select.select([self.control, *self.streams], [], [], 0.1)
            for fd in ready:
                if fd is self.control:
                    self._event()
                elif fd in self.streams:
                    self._read(fd)
        return what()

    def _read(self, fd):
        data = os.read(fd, 1 << 16)
        self.text_of[self.streams[fd]].extend(data)
        if not data:
            self._shut(fd)
        return data

    def _shut(self, fd):
        del self.streams[fd]
        os.close(fd)

    def _event(self):
        data, fds = take(self.control)
        if not data:
            self._end()
            return
        kind, num, tag = struct.unpack("IiQ", data)
        self.events.append((kind, num, tag, fds))
        if kind == OUTCOME:
            self.outcome = read_json(fds[0])
            self.files = read_json(fds[1]) if len(fds) > 1 else None

    def _end(self):
        """Whatever was printed is in the pipes by now; nobody waits for their end."""
        self.control.close()
        self.close_input()
        for fd in list(self.streams):
            os.set_blocking(fd, False)
            try:
                while self._read(fd):
                    pass
            except BlockingIOError:
                self._shut(fd)

    def wait(self):
        """To its end; this call."""
        assert self.until(lambda: self.over), f"hang guard: {self.events}"
        return self

    def drop(self):
        """The loop is gone, as far as this call can tell."""
        self._end()


def comm(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return None


class Spawner:
    """`with Spawner("--memory", "64m") as s: s.run("true")`."""

    def __init__(self, *options, ready=True, progress=None, stderr=None, before=lambda: None, wrap=(), **popen):
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        keep = {3: theirs.fileno(), **({4: progress} if progress is not None else {})}

        def place():
            before()
            # Above all that is wanted first, since one of them may stand where another goes.
            moved = {to: fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for to, fd in keep.items()}
            for to, fd in moved.items():
                os.dup2(fd, to)
                os.close(fd)
        self.p = subprocess.Popen([*wrap, boxlib.CLOCHE, "spawn", *map(os.fspath, options)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=stderr, env=boxlib.base_env(), pass_fds=tuple(keep), preexec_fn=place, **popen)
        boxlib.STARTED.add(self.p.pid)
        theirs.close()
        self.calls = []
        data, fds = take(self.sock)
        self.hello, self.brought = None, fds[1:]
        if data:
            self.kind, kind, stage, num, msg, option, rule = struct.unpack("IIIi500s32s96s", data)
            self.hello = {"err": kind, "msg": msg.split(b"\0")[0].decode(), "option": option.split(b"\0")[0].decode(),
                          "rule": rule.split(b"\0")[0].decode(), "facts": read_json(fds[0]) if fds else None}
        if ready:
            assert data and self.kind == READY, self.hello

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
        try:
            self.p.wait(boxlib.HANG)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
            raise
        for c in self.calls:
            if not c.over:
                c.drop()

    def close(self):
        self.sock.close()

    def call(self, *argv, **kw):
        c = Call(self, argv, **kw)
        self.calls.append(c)
        return c

    def run(self, *argv, **kw):
        return self.call(*argv, **kw).wait()

    def code(self, text, language="python", **kw):
        return self.run(code=text.encode(), language=language, **kw)

    def busy(self):
        """The keepers whose box has a command; the others have been built ahead."""
        return {pid for pid in self.keepers() if len(boxlib.children_of(pid)) > 1}

    def children(self):
        """Their pids; they are known to boxlib from then on."""
        try:
            with open(f"/proc/{self.p.pid}/task/{self.p.pid}/children", encoding="ascii") as f:
                found = set(map(int, f.read().split()))
        except OSError:
            found = set()
        boxlib.STARTED |= found
        return found

    def keepers(self):
        return {pid for pid in self.children() if comm(pid) != HOLDER}

    def holder(self):
        """The process that holds what its boxes share."""
        return next((pid for pid in self.children() if comm(pid) == HOLDER), None)

    def kill(self):
        self.keepers()
        self.p.send_signal(signal.SIGKILL)
        self.p.wait(boxlib.HANG)
