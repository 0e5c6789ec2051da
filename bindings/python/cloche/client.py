"""One `cloche serve` per process, and the frames that are exchanged with it (docs/PROTOCOL.md).

A thread of the client's own reads, so that no signal handler and no exception of the caller can cut a frame in two. For the same reason a caller
writes only what a pipe takes whole or not at all, and never waits for it; the rest is written by a second thread. A request has a mailbox, into
which the reading thread puts what answers it; live output is acknowledged when its reader took it, so that a slow one holds up its own call
alone, and nothing is buffered without bound. A forked child forgets its parent's client and starts its own.
"""
from __future__ import annotations

import atexit
import itertools
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO, Callable, List, NamedTuple, Optional, Union, cast

from . import aio as asyncio
from .errors import Closed, ProtocolError, SandboxError, SystemFault, TooLarge, Unsupported, error_of
from .types import Json, read

version = "0.1.0"
OLDEST = "0.1.0"  # the first program whose `serve` has all that this package asks for
PROTOCOL = 1
LINE = 65536  # bytes of a frame's line, with its newline
PAYLOAD = 1 << 20
WINDOW = 1 << 20  # live output of a call on its way to whoever takes it
LIVE = ("stdout", "stderr")
TEXT = 256 << 20  # of all lines that answer one request


class Frame(NamedTuple):
    head: Json
    payload: bytes


class Mailbox:
    """What answers one request. With a loop, `get` waits as coroutines do; without, it holds up the thread."""

    def __init__(self, to: Client, loop: Optional[asyncio.AbstractEventLoop] = None, room: int = 0, lives_on: bool = False) -> None:
        self.id, self.client, self.loop, self.lives_on = next(to.ids), to, loop, lives_on
        self.room, self.text = room, TEXT  # how much more may come, in payloads and in lines
        self.received = self.acked = self.due = 0  # of live output; what is due was given to its reader
        self._queue: Any = asyncio.Queue() if loop else queue.SimpleQueue()
        self._empty: Any = asyncio.TimeoutError if loop else queue.Empty
        self._put: Any = partial(loop.call_soon_threadsafe, self._queue.put_nowait) if loop else self._queue.put

    def put(self, item: Union[Frame, BaseException]) -> None:
        """Of any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._put(item)

    async def get(self, timeout: Optional[float] = None) -> Frame:
        """The next frame; what is an error raises. Who asks for it has done with the one before."""
        if self.due >= WINDOW // 8 and self.client.error is None:
            size, self.acked, self.due = self.due, self.acked + self.due, 0  # before more can come
            self.client.post({"op": "ack", "call": self.id, "size": size})
        try:
            item = await asyncio.wait_for(self._queue.get(), timeout) if self.loop else self._queue.get(timeout=timeout)
        except self._empty:
            raise TimeoutError("it has not ended yet") from None
        if isinstance(item, BaseException):
            self.put(item)  # for whoever asks again
            raise item
        if item.head.get("error") is not None:
            raise error_of(item.head["error"])
        if item.head["event"] in LIVE:
            self.due += len(item.payload)
        return item

    async def done(self, each: Optional[Callable[[Frame], Any]] = None, timeout: Optional[float] = None) -> Json:
        """The head of the `done` that ends the answer; `each`, which may be a coroutine, gets the frames before it."""
        while (frame := await self.get(timeout)).head["event"] != "done":
            waits = each(frame) if each else None
            if waits is not None:
                await waits
        return frame.head


def _object(pairs: "list[tuple[str, Any]]") -> Json:
    o = dict(pairs)
    if len(o) != len(pairs):
        raise ValueError("a key twice")
    return o


encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
decode = json.JSONDecoder(object_pairs_hook=_object, parse_constant=int).decode  # int("NaN") is an error, too


def _frame(stream: BinaryIO) -> "tuple[Frame, int]":
    """The next frame, and how long its line is."""
    line = stream.readline(LINE)
    if not line.endswith(b"\n"):
        raise ProtocolError("cloche serve sent a line that is too long") if len(line) == LINE else EOFError
    try:
        head = cast("Json", read(dict, decode(line.decode())))
    except (ValueError, RecursionError):
        raise ProtocolError("cloche serve sent a line that is no JSON") from None
    size: Any = head.get("bytes", 0)
    if type(size) is not int or not 0 <= size <= PAYLOAD:
        raise ProtocolError("cloche serve sent a payload of a size that can't be")
    payload = stream.read(size)
    if len(payload) < size:
        raise EOFError
    return Frame(head, payload), len(line)


class Client:
    """A session with a `cloche serve` at the other end of two descriptors."""

    def __init__(self, reading: int, writing: int, child: "Optional[subprocess.Popen[bytes]]" = None, name: str = "cloche") -> None:
        self.error: Optional[SandboxError] = None  # why there is no session any more
        self.ids, self._boxes = itertools.count(1), dict[int, Mailbox]()
        self._name, self._in, self._out, self._child = name, reading, writing, child
        self._late = deque[bytes]()  # frames that wait for the writing thread, which gets a word for each
        self._queue, self._turn = queue.SimpleQueue["Optional[bool]"](), threading.RLock()
        os.set_blocking(writing, False)
        self._threads = [threading.Thread(target=t, name="cloche", daemon=True) for t in (self._read, self._write)]
        for t in self._threads:
            t.start()

    @classmethod
    def start(cls, program: str) -> Client:
        try:
            # A session of its own: a Ctrl-C at the terminal is for the caller, who ends its boxes.
            child = subprocess.Popen([program, "serve"], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        except OSError as why:
            raise SystemFault(f"can't start {program}: {why.strerror}") from why
        with cast(BinaryIO, child.stdin) as writing, cast(BinaryIO, child.stdout) as reading:
            self = cls(os.dup(reading.fileno()), os.dup(writing.fileno()), child, program)
        try:
            self._greet()
        except BaseException:
            self.close(0)
            raise
        return self

    def _greet(self) -> None:
        needs, box = f"cloche for Python {version} needs cloche {OLDEST} or newer: update it, or set CLOCHE_BIN to one", Mailbox(self)
        try:
            self.request(box, {"op": "hello", "protocol": PROTOCOL, "client": f"cloche-python/{version}", "ack": True})
            hello = now(box.get(60)).head
            protocol, peer = read(int, hello, "protocol"), read(str, hello, "version")
        except (TimeoutError, Closed):
            raise ProtocolError(f"{self._name} ({_says(self._name)}) has no `cloche serve` that works here; {needs}") from None
        if protocol != PROTOCOL or _parts(peer) < _parts(OLDEST):
            raise ProtocolError(f"{self._name} is cloche {peer} and speaks protocol {protocol}; {needs}")

    # Frames out.

    def request(self, box: Mailbox, head: Json, payload: Optional[bytes] = None) -> None:
        """Sends a request whose answers go to `box`."""
        self._boxes[box.id] = box
        try:
            if self.error is not None:
                stay()
                raise self.error
            self.post({"id": box.id, **head}, payload)
        except BaseException:
            self.forget(box.id)
            raise

    def post(self, head: Json, payload: Optional[bytes] = None) -> None:
        """Sends a request whose answer nobody waits for. It waits for no lock: a finalizer may call it anywhere."""
        head, view = {"id": head.get("id") or next(self.ids), **head}, memoryview(payload or b"")
        for at in range(0, len(view) or 1, PAYLOAD):
            part = view[at:at + PAYLOAD]
            more: Json = {"bytes": len(part)} if payload is not None else {}
            if at + PAYLOAD < len(view):
                more["more"] = True
            line = encode({**head, **more}).encode() + b"\n"
            if len(line) > LINE:
                asked: Json = head.get("options", head)  # of `open` alone
                largest = max(asked, key=lambda name: len(encode(asked[name])))
                raise TooLarge(f"{largest}: too large a part of the {len(line)} bytes of this request", option=largest,
                               allowed=f"{LINE} bytes of JSON at most, all options and arguments together")
            self._send(line + part)
            head = {"id": head["id"], "op": "more"}

    def _send(self, frame: bytes) -> None:
        """Writes what goes into the pipe in one piece, unless somebody writes or waits to; the thread does that for the others.

        A finalizer may come here in the middle of itself: the lock lets the same thread in again, and is not waited for. Where SIGPIPE is not
        ignored, as it is in Python, it would reach the caller."""
        if len(frame) <= select.PIPE_BUF and signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN and self._turn.acquire(blocking=False):
            try:
                if not self._late:
                    os.write(self._out, frame)
                    return
            except OSError:
                pass  # no room; or nobody reads any more, which the thread will see
            finally:
                self._turn.release()
        self._late.append(frame)
        self._queue.put(True)

    def _write(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        room = select.poll()
        room.register(self._out, select.POLLOUT)
        with suppress(OSError):  # it is gone: the reading thread will see that, too
            while self._queue.get():
                with self._turn:
                    while self._late:
                        view = memoryview(self._late[0])
                        while view:
                            room.poll()
                            view = view[os.write(self._out, view):]
                        self._late.popleft()
        with self._turn:
            self._out = _close(self._out)

    # Frames in.

    def _read(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        stream = os.fdopen(self._in, "rb", LINE, closefd=False)
        error: SandboxError = Closed("cloche serve has ended")
        try:
            while True:
                self._deliver(*_frame(stream))
        except (EOFError, OSError):
            error = Closed(f"cloche serve has ended{self._how()}")
        except SandboxError as why:
            error = why
        finally:
            self.error = self.error or error
            self._queue.put(None)
            for box in list(self._boxes.values()) if not _ending else ():
                box.put(self.error)
            self._in = _close(self._in)

    def _how(self) -> str:
        """How the program ended, when nobody asked it to."""
        with suppress(subprocess.TimeoutExpired):
            if self._child is not None and self.error is None:
                return f" with code {self._child.wait(1)}"
        return ""

    def _deliver(self, frame: Frame, line: int) -> None:
        head, payload = frame
        event, number = head.get("event"), head.get("id", head.get("call"))
        if event in ("fatal", "error"):
            raise error_of(head.get("error"))
        if type(number) is not int or not isinstance(event, str):
            raise ProtocolError("cloche serve sent a frame that answers nothing")
        box = self._boxes.get(number)
        if box is None or event == "started" or _ending:
            return  # nobody waits for it (any more)
        if event in LIVE:
            box.received += len(payload)
        else:
            box.room -= len(payload)
            box.text -= line
        if box.received - box.acked > WINDOW or box.room < 0 or box.text < 0:
            raise ProtocolError(f"cloche serve sent more than was asked for ({event})")
        if event == "ended" or (event == "done" and (not box.lives_on or head.get("error") is not None)):
            self.forget(number)
        box.put(frame)

    def forget(self, number: int) -> bool:
        """Drops what still comes for a request. False: nothing comes, it was answered."""
        return self._boxes.pop(number, None) is not None

    # The end.

    def close(self, timeout: float = 30) -> None:
        """Ends the session: every box dies. Returns when the program is gone."""
        self.error = self.error or Closed("the session was closed")
        self._queue.put(None)
        if self._child is not None:
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout)
            self._child.kill()  # unless it has ended
            self._child.wait()
        for t in self._threads:
            t.join(1)

    def abandon(self) -> None:
        """In a forked child: the session is the parent's."""
        self._in, self._out = _close(self._in), _close(self._out)
        self.error = Closed("the session belongs to the process that this one was forked from")
        if self._child is not None:
            self._child.returncode = 0
        for box in self._boxes.values():
            box.put(self.error)


def _close(fd: int) -> int:
    if fd >= 0:
        os.close(fd)
    return -1


def now(coroutine: Any) -> Any:
    """Runs a coroutine none of whose steps waits: that of a mailbox without a loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a step of a blocking call did not block")


def _parts(text: str) -> List[int]:
    return [int(p) if p.isdigit() else 0 for p in text.split("-")[0].split(".")]


def _says(program: str) -> str:
    try:
        done = subprocess.run([program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=10)
        return done.stdout[:80].decode("utf-8", "replace").strip() or "which has no --version"
    except (OSError, subprocess.TimeoutExpired):
        return "which can't be run"


def find_program() -> str:
    """$CLOCHE_BIN, else the one in this package, else `cloche` on PATH. Raises an error whose text says what to do when there is none."""
    if not sys.platform.startswith("linux"):
        raise Unsupported(f"cloche runs on Linux alone: on {sys.platform} use it in a Linux virtual machine (WSL2, Lima, colima, OrbStack)")
    if os.environ.get("CLOCHE_BIN"):
        return os.environ["CLOCHE_BIN"]
    for directory in (os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin"), *os.get_exec_path()):
        path = os.path.join(directory, "cloche")
        with suppress(OSError), open(path, "rb") as f:
            if f.read(4) == b"\x7fELF" and os.access(path, os.X_OK):  # a package's command of that name is a script, which looks here
                return path
    raise SystemFault("there is no `cloche` on PATH: install it, or set CLOCHE_BIN to its path")


_lock = threading.RLock()  # also held while this process forks: a program that is being started would be nobody's in the child
_client: Optional[Client] = None
_ending = False  # the interpreter


def client() -> Client:
    """This process's client; a new one when there is none, or when its program has ended."""
    global _client
    stay()
    with _lock:
        if _client is None or _client.error is not None:
            if _client is not None:
                _client.close(1)
            _client = Client.start(find_program())
        return _client


def shutdown() -> None:
    """Ends this process's session and everything in it, as the end of the process does."""
    global _client
    with _lock:
        ended, _client = _client, None
    if ended is not None:
        ended.close()


@atexit.register
def _end() -> None:
    global _ending
    with _lock:  # a program that is being started has to answer first
        _ending = True
    shutdown()


def stay() -> None:
    """Keeps a daemon thread where it is when the interpreter ends, as Python itself does: nobody is there to whom a call could be of use."""
    if _ending and threading.current_thread().daemon:
        threading.Event().wait()


def _forked() -> None:
    global _client
    if _client is not None:
        _client.abandon()
    _client = None
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forked)
