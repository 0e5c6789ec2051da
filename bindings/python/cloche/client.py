"""One `cloche serve` per process, and the frames that are exchanged with it (docs/PROTOCOL.md).

A thread of the client's own reads, so that no signal handler and no exception of the caller can cut a frame in two. For the same reason a caller
writes only what a pipe takes whole or not at all, and never waits for it; the rest is written by a second thread. A request has a mailbox, into
which the reading thread puts what answers it; live output is acknowledged when its reader took it, so that a slow one holds up its own call
alone, and nothing is buffered without bound. A forked child forgets its parent's client and starts its own.
"""
from __future__ import annotations

import asyncio
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
import time
import weakref
from collections import deque
from typing import Any, List, Mapping, NamedTuple, Optional, Union, cast

from .errors import Closed, OptionError, ProtocolError, SandboxError, SystemFault, TooLarge, Unsupported, error_of
from .types import Json, any_of, get, items

version = "0.1.0"
OLDEST = "0.1.0"  # the first program whose `serve` has all that this package asks for
PROTOCOL = 1
LINE = 65536  # bytes of a frame's line, with its newline
PAYLOAD = 1 << 20
WINDOW = 1 << 20  # live output of a call on its way to whoever takes it
TEXT = 256 << 20  # of all lines that answer one request
encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Frame(NamedTuple):
    head: Json
    payload: bytes


def plain(value: Any, name: str, depth: int = 0) -> Any:
    """`value` as JSON can say it: paths become strings, tuples lists. What can't be said would end the session for everybody."""
    if depth > 12:
        raise OptionError(f"{name}: nested too deeply", "option", name)
    if isinstance(value, os.PathLike):
        value = os.fspath(cast("os.PathLike[str]", value))
    if isinstance(value, str):
        if "\0" in value:
            raise OptionError(f"{name}: a NUL byte is in it", "option", name)
        try:
            value.encode()
        except UnicodeError:
            raise OptionError(f"{name}: {value!r} is no UTF-8", "option", name) from None
    elif isinstance(value, Mapping):
        return {plain(k, name): plain(v, name, depth + 1) for k, v in cast("Mapping[Any, Any]", value).items()}
    elif isinstance(value, (list, tuple)):
        return [plain(v, name, depth + 1) for v in cast("List[Any]", value)]
    elif isinstance(value, (int, float)):
        if not abs(value) < 1 << 63:
            raise OptionError(f"{name}: {value} is no number that can be sent", "option", name)
    elif value is not None:
        raise OptionError(f"{name}: a {type(value).__name__} can't be sent", "option", name)
    return value


class Mailbox:
    """What answers one request. With a loop, `get` waits as coroutines do; without, it holds up the thread."""

    def __init__(self, loop: Optional[asyncio.AbstractEventLoop], room: int = 0, lives_on: bool = False) -> None:
        self.id, self.loop, self.lives_on = 0, loop, lives_on
        self.room, self.text = room, TEXT  # how much more may come, in payloads and in lines
        self.received = self.taken = self.acked = 0  # of live output
        self._queue: Any = asyncio.Queue() if loop else queue.SimpleQueue()

    def put(self, item: Union[Frame, BaseException]) -> None:
        """Of any thread."""
        if self.loop is None:
            self._queue.put(item)
        else:
            try:
                self.loop.call_soon_threadsafe(self._queue.put_nowait, item)
            except RuntimeError:
                pass  # the loop is closed: nobody waits any more

    async def get(self, timeout: Optional[float] = None) -> Frame:
        try:
            if self.loop is None:
                item = self._queue.get(timeout=timeout)
            else:
                item = await (self._queue.get() if timeout is None else asyncio.wait_for(self._queue.get(), timeout))
        except (queue.Empty, asyncio.TimeoutError):
            raise TimeoutError("it has not ended yet") from None
        if isinstance(item, BaseException):
            self.put(item)  # for whoever asks again
            raise item
        return item


class Source:
    """Lines and payloads from a descriptor. It has no lock, so that a fork can't leave one behind."""

    def __init__(self, fd: int) -> None:
        self._fd, self._buffer = fd, bytearray()

    def _more(self) -> None:
        got = os.read(self._fd, LINE)
        if not got:
            raise EOFError
        self._buffer += got

    def frame(self) -> "tuple[Frame, int]":
        seen = 0
        while (end := self._buffer.find(b"\n", seen)) < 0 and len(self._buffer) < LINE:
            seen = len(self._buffer)
            self._more()
        if not 0 <= end < LINE:
            raise ProtocolError("cloche serve sent a line that is too long")
        line = bytes(self._buffer[:end])
        del self._buffer[:end + 1]
        try:
            head: Any = decode(line.decode())
        except (ValueError, RecursionError):
            raise ProtocolError("cloche serve sent a line that is no JSON") from None
        if not isinstance(head, dict):
            raise ProtocolError("cloche serve sent a line that is no object")
        size = any_of(head, "bytes") or 0
        if type(size) is not int or not 0 <= size <= PAYLOAD:
            raise ProtocolError("cloche serve sent a payload of a size that can't be")
        while len(self._buffer) < size:
            self._more()
        payload = bytes(self._buffer[:size])
        del self._buffer[:size]
        return Frame(cast("Json", head), payload), len(line)


def _object(pairs: "list[tuple[str, Any]]") -> Json:
    o = dict(pairs)
    if len(o) != len(pairs):
        raise ValueError("a key twice")
    return o


def _refuse(word: str) -> Any:
    raise ValueError(word)


decode = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse).decode


class Client:
    """A session with a `cloche serve` at the other end of two descriptors."""

    def __init__(self, reading: int, writing: int, child: "Optional[subprocess.Popen[bytes]]" = None, name: str = "cloche") -> None:
        self.error: Optional[SandboxError] = None  # why there is no session any more
        self.program, self.version, self.features = name, "", frozenset[str]()
        self._in, self._out, self._child = reading, writing, child
        self._ids, self._boxes = itertools.count(1), dict[int, Mailbox]()
        self._late = deque[bytes]()  # frames that wait for the writing thread, which gets a word for each
        self._queue, self._turn = queue.SimpleQueue["Optional[bool]"](), threading.RLock()
        os.set_blocking(writing, False)
        self._threads = [threading.Thread(target=t, name="cloche", daemon=True) for t in (self._read, self._write)]
        _clients.add(self)
        for t in self._threads:
            t.start()

    @classmethod
    def start(cls, program: str) -> Client:
        try:
            # A session of its own: a Ctrl-C at the terminal is for the caller, who ends its boxes.
            child = subprocess.Popen([program, "serve"], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        except OSError as why:
            raise SystemFault(f"can't start {program}: {why.strerror}", "system") from why
        assert child.stdin and child.stdout
        self = cls(os.dup(child.stdout.fileno()), os.dup(child.stdin.fileno()), child, program)
        child.stdin.close()
        child.stdout.close()
        try:
            self.greet()
        except BaseException:
            self.close(0)
            raise
        return self

    def greet(self, timeout: float = 60) -> None:
        box = Mailbox(None)
        name = f"cloche-python/{version}"
        needs = f"cloche for Python {version} needs cloche {OLDEST} or newer: update it, or set CLOCHE_BIN to one"
        try:
            self.request(box, {"op": "hello", "protocol": PROTOCOL, "client": name, "ack": True})
            head = now(self.answer(box, timeout)).head
            spoken, self.version = get(head, "protocol", int), get(head, "version", str)
            self.features = frozenset(x for x in items(head, "features") if isinstance(x, str))
        except TimeoutError:
            raise ProtocolError(f"{self.program} does not answer `cloche serve`; {needs}", "protocol") from None
        except Closed:
            raise ProtocolError(f"{self.program} ({_says(self.program)}) has no `cloche serve` that works here; {needs}", "protocol") from None
        if spoken != PROTOCOL or _parts(self.version) < _parts(OLDEST):
            raise ProtocolError(f"{self.program} is cloche {self.version} and speaks protocol {spoken}; {needs}", "protocol")

    # Frames out.

    def post(self, head: Json, payload: Union[bytes, memoryview, None] = None) -> int:
        """Sends a request whose answer nobody waits for. It takes no lock: a finalizer may call it anywhere."""
        view = memoryview(payload or b"")
        number = head["id"] = head.get("id") or next(self._ids)
        parts = [view[i:i + PAYLOAD] for i in range(0, len(view), PAYLOAD)] or [view]
        frames: List[bytes] = []
        for part in parts:
            more = part is not parts[-1]
            line = encode({**head, **({"bytes": len(part)} if payload is not None else {}), **({"more": True} if more else {})}).encode() + b"\n"
            if len(line) > LINE:
                raise TooLarge(f"what {head['op']} is asked with does not fit into {LINE} bytes", "too_large")
            frames.append(line)
            head = {"id": number, "op": "more"}
        for line, part in zip(frames, parts):
            self._send(line + part if part else line)
        return number

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

    def request(self, box: Mailbox, head: Json, payload: Union[bytes, memoryview, None] = None) -> int:
        """Sends a request whose answers go to `box`; the first one a box gets is its own id. Returns the request's id."""
        number = head["id"] = next(self._ids)
        box.id = box.id or number
        self._boxes[number] = box
        if self.error is not None:
            self.forget(number)
            _stay()
            raise self.error
        try:
            return self.post(head, payload)
        except BaseException:
            self.forget(number)
            raise

    async def answer(self, box: Mailbox, timeout: Optional[float] = None) -> Frame:
        """The `done` of a request that has no other events; its error raises."""
        while True:
            frame = await box.get(timeout)
            if "error" in frame.head:
                raise error_of(frame.head["error"])
            if frame.head.get("event") == "done":
                return frame

    def took(self, box: Mailbox, size: int) -> None:
        """Whoever reads live output took so much of it."""
        box.taken += size
        if box.taken - box.acked >= WINDOW // 8 and self.error is None:
            size, box.acked = box.taken - box.acked, box.taken
            self.post({"op": "ack", "call": box.id, "size": size})

    def forget(self, number: int) -> bool:
        """Drops what still comes for a request. False: nothing comes, it was answered."""
        return self._boxes.pop(number, None) is not None

    def _write(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        room = select.poll()
        room.register(self._out, select.POLLOUT)
        try:
            while self._queue.get():
                with self._turn:
                    while self._late:
                        view = memoryview(self._late[0])
                        while view:
                            room.poll()
                            view = view[os.write(self._out, view):]
                        self._late.popleft()
        except OSError:
            pass  # it is gone: the reading thread will see that, too
        self._out = _close(self._out)

    # Frames in.

    def _read(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        source = Source(self._in)
        error: SandboxError = Closed("cloche serve has ended", "closed")
        try:
            while True:
                self._deliver(*source.frame())
        except (EOFError, OSError):
            error = Closed(f"cloche serve has ended{self._how()}", "closed")
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
        if self._child is None or self.error is not None:
            return ""
        try:
            code = self._child.wait(1)
        except subprocess.TimeoutExpired:
            return ""
        return f" by signal {-code}" if code < 0 else f" with code {code}"

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
        if event in ("stdout", "stderr"):
            box.received += len(payload)
        else:
            box.room -= len(payload)
            box.text -= line
        if box.received - box.acked > WINDOW or box.room < 0 or box.text < 0:
            raise ProtocolError(f"cloche serve sent more than was asked for ({event})")
        if event == "ended" or (event == "done" and not (box.lives_on and number == box.id and "error" not in head)):
            self.forget(number)
        box.put(frame)

    # The end.

    def close(self, timeout: float = 30) -> None:
        """Ends the session: every box dies. Returns when the program is gone."""
        self.error = self.error or Closed("the session was closed", "closed")
        self._queue.put(None)
        if self._child is not None:
            try:
                self._child.wait(timeout)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        for t in self._threads:
            t.join(1)

    def abandon(self) -> None:
        """In a forked child: the session is the parent's."""
        self._in, self._out = _close(self._in), _close(self._out)
        self.error = Closed("the session belongs to the process that this one was forked from", "closed")
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
    packaged = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "cloche")
    if os.environ.get("CLOCHE_BIN"):
        return os.environ["CLOCHE_BIN"]
    for path in (packaged, *(os.path.join(d, "cloche") for d in os.get_exec_path())):
        try:
            with open(path, "rb") as f:
                if f.read(4) == b"\x7fELF" and os.access(path, os.X_OK):  # a package's command of that name is a script, which looks here
                    return path
        except OSError:
            continue
    raise SystemFault("there is no `cloche` on PATH: install it, or set CLOCHE_BIN to its path", "system")


_lock = threading.Lock()
_client: Optional[Client] = None
_ending = False  # the interpreter
_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def client() -> Client:
    """This process's client; a new one when there is none, or when its program has ended."""
    global _client
    _stay()
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
    _ending = True
    shutdown()


def _stay() -> None:
    """Keeps a daemon thread where it is when the interpreter ends, as Python itself does then: there is nobody to whom a call could still be of use."""
    while _ending and threading.current_thread().daemon:
        time.sleep(3600)


def _forked() -> None:
    global _client, _lock
    _client, _lock = None, threading.Lock()
    for c in list(_clients):
        c.abandon()
    _clients.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
