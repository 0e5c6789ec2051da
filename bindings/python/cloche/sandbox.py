"""Sandboxes and their processes, for threads and for asyncio (see `both`)."""
from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from typing import (TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar, cast,
                    Union)

from . import aio as asyncio
from .calls import Async, Blocking, Events, Work, beside, both, now
from .client import LIVE, Frame, Mailbox, client
from .errors import Closed, NotFound, OptionError, ProtocolError, SandboxError
from .options import ONLY_CALLS, Bytes, CallOptions, Callbacks, OneShot, Options, Path
from .types import Address, ExecutionResult, FileInfo, Json, SandboxFault, SetupResult, Snapshot, read
from .values import absolute, fields, named, octets, plain, seconds, terminal, words

if TYPE_CHECKING:
    from typing_extensions import Unpack

READ = 64 << 20  # what `read_file` takes when nothing is said


class Opened(NamedTuple):
    sandbox: int
    fault: Optional[SandboxFault] = None
    image: Optional[Dict[str, Any]] = None
    workspace: Optional[str] = None
    notes: List[str] = []
    max_output_bytes: int = READ


class SandboxCore:
    """What both faces of a sandbox share."""

    def __init__(self, **options: Unpack[Options]) -> None:
        given: Json = dict(options)
        self._callbacks = {k: given.pop(k, None) for k in ("on_stdout", "on_stderr", "on_progress")}
        Events(**self._callbacks)  # refuses what is none
        self._given = {k: plain(v, k) for k, v in given.items() if v is not None or k == "timeout_s"}
        self._work: Optional[Work] = None
        self._number, self._output, self._calls = 0, READ, set[int]()
        self._end: Any = None
        self.workspace: Optional[str] = None
        """The workspace's directory on this machine, if there is one."""
        self.fault: Optional[SandboxFault] = None
        """Why it can't run anything (image, setup, limits): every call has this as its fault."""
        self.image: Optional[Dict[str, Any]] = None
        """name, id and manifest of the image; None for the host's own programs."""
        self.notes: List[str] = []
        """What cloche has to say to people about how it was opened."""

    async def _open(self, work: Work) -> None:
        if self._work is not None:
            raise Closed("it was opened before: make another one")
        events = Events(**self._callbacks)
        self._opened(work, await work.ask("open", {"options": self._given, **fields({"stream": events.wanted})}, each=events.add))
        if events.failed is not None:
            self._end()  # nobody has it
            raise events.failed

    def _opened(self, work: Work, head: Json) -> None:
        opened = read(Opened, head)
        self._work, self._number, self._output = work, opened.sandbox, opened.max_output_bytes
        self.fault, self.image, self.workspace, self.notes = opened.fault, opened.image, opened.workspace, opened.notes
        self._end = weakref.finalize(self, work.client.post, {"op": "close", "sandbox": self._number})
        self._end.atexit = False

    def _at(self) -> Work:
        if self._work is None or not self._end.alive:
            raise Closed("the sandbox is closed" if self._work else "the sandbox is not open: `async with`, or `await sbx.open()`")
        return self._work

    async def _ask(self, op: str, payload: Optional[bytes] = None, each: Optional[Callable[[Frame], Any]] = None, room: int = 0,
                   **given: Any) -> Json:
        work = self._at()
        return await work.ask(op, {"sandbox": self._number, **named(given)}, payload, each, work.mailbox(room))

    @both
    async def run_code(self, code: str, language: str = "python", **options: Unpack[CallOptions]) -> ExecutionResult:
        """Runs code of a `language`: python, bash, sh or node. An interpreter that the image lacks is the fault exec_failed.

        What the code does is data on the result; raises only what was asked wrongly (OptionError), Busy, Closed, or what a callback raised.
        """
        return await self._call("run_code", octets(code, "code"), options, language=language)

    @both
    async def run(self, argv: Sequence[Any], **options: Unpack[CallOptions]) -> ExecutionResult:
        """Runs a command: a list of words, never a line for a shell. A program that is not there is the fault exec_failed."""
        return await self._call("run", words(argv), options)

    def _asked(self, work: Work, options: CallOptions, stream: bool = False, may_write: bool = False, **more: Any) -> Tuple[Events, Any, Json]:
        """Where the events of a call go, its stdin, and what it is asked with."""
        given, known = cast("Json", {**options}), CallOptions.__annotations__
        for name in given.keys() - known.keys():
            raise OptionError(f"a call has no option {name}", option=name, allowed=", ".join(known))
        events = Events(*(given.pop(k, self._callbacks[k]) for k in ("on_stdout", "on_stderr")))
        stdin, pty = work.source(given.pop("stdin", None), may_write), terminal(given.pop("pty", None))
        given.update(more, sandbox=self._number, stream=stream or events.wanted, pty=pty, stdin=stdin is not None or None)
        return events, stdin, fields(given)

    async def _call(self, op: str, payload: bytes, options: CallOptions, **more: Any) -> ExecutionResult:
        work = self._at()
        (events, stdin, asked), box = self._asked(work, options, **more), work.mailbox(2 * self._output)
        self._calls.add(box.id)
        try:
            return events.checked(events.result(await work.ask(op, asked, payload, events.add, box, stdin)))
        finally:
            self._calls.discard(box.id)

    async def _start(self, kind: Type[Started], argv: Sequence[Any], stream: bool, options: CallOptions) -> Started:
        work = self._at()
        (events, stdin, asked), box = self._asked(work, options, stream, True), work.mailbox(lives_on=True)
        await work.ask("start", asked, words(argv), box=box)
        return kind(self, work, box, events, stdin, stream, 2 * self._output)

    @both
    async def cancel(self) -> None:
        """Ends all calls that run in it, whoever waits for them: their results have the fault `cancelled`. It stays open."""
        for number in list(self._calls):
            await self._at().end(number)

    @both
    async def write_file(self, path: Path, data: Bytes, mode: Optional[int] = None) -> int:
        """Writes a file of the workspace, whole or not at all, and makes directories that are missing. str is written as UTF-8; `mode` 0o644.

        Paths of all file methods are relative to the workspace. One that leaves it, passes a symbolic link or names no regular file raises
        PathRefused. Returns the size in bytes."""
        return read(int, await self._ask("write_file", octets(data, "data"), path=path, mode=mode), "size")

    @both
    async def read_file(self, path: Path, offset: Optional[int] = None, length: Optional[int] = None, max_bytes: Optional[int] = None) -> bytes:
        """Reads a file of the workspace, or `length` bytes of it from `offset`. More than `max_bytes` (64 MiB) raises TooLarge; it is never
        cut silently. Raises NotFound, PathRefused."""
        found = bytearray()
        most = min((n for n in (length, READ if max_bytes is None else max_bytes) if isinstance(n, int)), default=READ)
        head = await self._ask("read_file", None, lambda frame: found.extend(frame.payload), max(most, 0),
                               path=path, offset=offset, length=length, max_bytes=max_bytes)
        if read(int, head, "size") < len(found):
            raise ProtocolError("cloche serve sent more of a file than there is")
        return bytes(found)

    @both
    async def list_files(self, path: Path = "", recursive: bool = True) -> List[FileInfo]:
        """What there is below a directory of the workspace, sorted by path. Symbolic links are shown, not followed. More than 100,000 raises
        TooLarge."""
        found: List[FileInfo] = []
        each: Callable[[Frame], None] = lambda frame: found.extend(read(List[FileInfo], frame.head, "files"))
        await self._ask("list_files", each=each, path=None if path == "" else path, recursive=recursive)
        return found

    @both
    async def stat(self, path: Path) -> FileInfo:
        """What a path of the workspace is. Raises NotFound."""
        return read(FileInfo, await self._ask("stat", path=path), "file")

    @both
    async def remove(self, path: Path, recursive: bool = False) -> None:
        """Removes a file, a link, an empty directory; with `recursive` what is in it, too. Raises NotFound."""
        await self._ask("remove", path=path, recursive=recursive)

    @both
    async def make_dir(self, path: Path, parents: bool = True) -> None:
        """Makes a directory, and those above it unless `parents` is False. Raises AlreadyExists."""
        await self._ask("make_dir", path=path, parents=parents)

    @both
    async def rename(self, path: Path, to: Path, replace: bool = True) -> None:
        """Renames within the workspace. Without `replace` a target that is there raises AlreadyExists."""
        await self._ask("rename", path=path, to=to, replace=replace)

    @both
    async def snapshot(self, file: Path, format: Optional[str] = None) -> Snapshot:
        """Writes all of the workspace into an archive of this machine, made anew: .tar.gz, .tgz or .tar.zst by its name, or `format`."""
        return read(Snapshot, await self._ask("snapshot", file=absolute(file), format=format))

    @both
    async def restore(self, file: Path) -> None:
        """Replaces what is in the workspace by what is in an archive; all of it is verified before."""
        await self._ask("restore", file=absolute(file))

    async def _fork(self, other: SandboxCore) -> None:
        SandboxCore.__init__(other)
        head = await self._ask("fork")
        other._callbacks, other._given = self._callbacks, self._given
        other._opened(self._at(), {"image": self.image, "max_output_bytes": self._output, **head})

    @both
    async def setup(self, command: str, timeout_s: Optional[float] = None, **callbacks: Unpack[Callbacks]) -> SetupResult:
        """Runs a shell command that installs something, with the network, once: later calls have what it left, and a later sandbox with the
        same image and command finds it made. The same as the option `setup`; what it printed is in the `fault` of one that failed.

        Raises what a callback raised, when it has ended."""
        events = Events(**{**self._callbacks, **callbacks})
        head = await self._ask("setup", each=events.add, command=command, timeout_s=timeout_s, stream=events.wanted)
        return events.checked(read(SetupResult, head))

    @both
    async def info(self) -> Dict[str, Any]:
        """`options` as they hold, `image`, `limits`, and what else the program tells of it."""
        return {k: v for k, v in (await self._ask("info")).items() if k not in ("id", "event")}

    @both
    async def close(self) -> None:
        """Ends every call, removes what the sandbox had on the disk but a `workspace` that was given. Again: does nothing."""
        if self._work is not None and self._end.detach() and self._work.client.error is None:
            with suppress(Closed, NotFound):
                await self._work.ask("close", {"sandbox": self._number})

    _leave = close


class ProcessCore:
    """What both faces of a process share."""

    def __init__(self, sandbox: SandboxCore, work: Work, box: Mailbox, events: Events, stdin: Any, stream: bool, room: int) -> None:
        self._sandbox, self._work, self._box, self._events = sandbox, work, box, events
        self._answer, self._asked, self._stream, self._flows = work.mailbox(room), False, stream, stream or events.wanted
        self._result: Optional[ExecutionResult] = None
        self._turn: Any = threading.Lock() if work.loop is None else asyncio.Lock()
        self._pump = beside(work.loop, self._pour()) if events.wanted and not stream else None
        self.id: int = box.id
        """The number of the call."""
        if stdin is not None and stdin is not True:
            work.feed(self.id, stdin, self._failed)

    def _failed(self, why: BaseException) -> None:
        """Reading its stdin failed: the process goes, and `wait` says so."""
        self._events.failed = self._events.failed or why
        self._work.client.post({"op": "cancel", "call": self.id})

    async def _pour(self) -> None:
        with suppress(SandboxError):  # the session has ended: `wait` says so
            while (piece := await self._next()) is not None:
                await self._events.add(piece)

    async def _next(self) -> Optional[Frame]:
        while self._flows:
            frame = await self._box.get()
            if frame.head["event"] in LIVE:
                return frame
            self._flows = frame.head["event"] != "ended"
        return None

    @both
    async def next_output(self) -> Optional[Tuple[str, bytes]]:
        """The next piece of live output, as (stream, bytes); None at the end. For a process that was started with `stream=True`."""
        if not self._stream:
            raise OptionError("its output is not read live: start it with stream=True", option="stream", allowed="True")
        piece = await self._next()
        return None if piece is None else (piece.head["event"], piece.payload)

    @both
    async def wait(self, timeout_s: Optional[float] = None) -> ExecutionResult:
        """Its result, when it has ended. Raises TimeoutError after `timeout_s` seconds, and then, as when interrupted, it runs on. Raises what a
        callback, or reading its stdin, raised."""
        if timeout_s is not None:
            seconds(timeout_s, "timeout_s")
        if self._work.loop is None:
            with self._turn:
                return await self._wait(timeout_s)
        async with self._turn:
            return await self._wait(timeout_s)

    async def _wait(self, timeout_s: Optional[float]) -> ExecutionResult:
        if not self._asked:
            self._work.client.request(self._answer, {"op": "wait", "call": self.id})
            self._asked = True
        if self._result is None:
            self._result = self._events.result(await self._answer.done(self._events.add, timeout_s))
        if isinstance(self._pump, threading.Thread):
            self._pump.join()
        elif self._pump is not None:
            await self._pump
        return self._events.checked(self._result)

    async def _ask(self, op: str, **given: Any) -> Json:
        return await self._work.ask(op, {"call": self.id, **named(given)})

    @both
    async def kill(self) -> None:
        """Ends it, and all that it started; returns when they are gone. Its result has the fault `cancelled`."""
        await self._work.end(self.id)

    _leave = kill

    @both
    async def signal(self, signal: Union[str, int]) -> None:
        """Sends a signal ("TERM", 15, signal.SIGTERM) to its process group. Raises NotFound when it has ended."""
        await self._ask("signal", signal=signal)

    @both
    async def write_stdin(self, data: Bytes) -> None:
        """Writes to a process that was started with `stdin=True`; returns when its pipe took the bytes. Raises NotFound when it has ended."""
        await self._work.stdin(self.id, data)

    @both
    async def close_stdin(self) -> None:
        """Lets it read an end of file. Raises OptionError when it was started without `stdin`, as `write_stdin` does."""
        await self._work.stdin(self.id, b"", True)

    @both
    async def resize(self, rows: int, cols: int) -> None:
        """The size of its terminal. Raises OptionError when it was started without `pty`."""
        await self._ask("resize", rows=rows, cols=cols)

    @both
    async def port(self, port: int) -> Address:
        """An address on this machine's loopback that leads to a port of the box, while the process lives."""
        return read(Address, await self._ask("port", port=port))


Started = TypeVar("Started", bound=ProcessCore)


class Process(ProcessCore, Blocking):
    """A command that runs in the background. With `with` it is killed at the end of the block."""

    def output(self) -> Iterator[Tuple[str, bytes]]:
        """Its live output as (stream, bytes), until it ends. For a process that was started with `stream=True`."""
        while (piece := self.next_output()) is not None:
            yield piece


class AsyncProcess(ProcessCore, Async):
    """`Process` for asyncio. `async with` kills it at the end; cancelling `wait` leaves it alone."""

    async def output(self) -> AsyncIterator[Tuple[str, bytes]]:
        """Its live output: `async for stream, data in process.output()`. For a process that was started with `stream=True`."""
        while (piece := await self.next_output()) is not None:
            yield piece


class Sandbox(SandboxCore, Blocking):
    """A place for calls: options, and a directory (`/workspace`) that its calls share. Each call has a fresh box: files stay, processes don't.

        import cloche
        with cloche.Sandbox(image="python:3.12-slim", memory_mb=256) as sbx:
            result = sbx.run_code("print(1)")

    It may be used by many threads at once. It ends with the block, with `close`, when nothing refers to it, or with the process. Interrupted
    calls (Ctrl-C) raise when their box is dead. In a forked child it is closed; a new one works there.

    Raises OptionError, MountRefused and Unsupported for options that are wrong, SystemFault when there is no program. What keeps it from
    running anything else (no image, `setup` failed, no limits) is its `fault`, and that of each call.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        now(self._open(Work(client(), None)))

    def start(self, argv: Sequence[Any], stream: bool = False, **options: Unpack[CallOptions]) -> Process:
        """Starts a command and returns when it runs. It has no deadline but `timeout_s`, and ends with the sandbox at the latest.

        With `stream` its output is for `Process.output` alone, and waits there to be taken; else callbacks get it, in a thread of their own.
        `stdin=True` leaves its stdin open for `Process.write_stdin`. A command that can't be started is a process that has ended: see its `wait`.
        """
        return now(self._start(Process, argv, stream, options))

    def fork(self) -> Sandbox:
        """Another sandbox with the same options and a copy of the workspace."""
        other = Sandbox.__new__(Sandbox)
        now(self._fork(other))
        return other


class AsyncSandbox(SandboxCore, Async):
    """`Sandbox` for asyncio: the same options and methods, as coroutines. `async with AsyncSandbox(...) as sbx:`, or `open` and `close`.

    A cancelled task leaves a call only when its box is dead."""

    async def open(self) -> AsyncSandbox:
        """Opens it: fetches the image, runs `setup`. Done by `async with`. Raises OptionError, MountRefused, Unsupported."""
        loop = asyncio.get_running_loop()
        await self._open(Work(await loop.run_in_executor(None, client), loop))
        return self

    async def __aenter__(self) -> AsyncSandbox:
        return await self.open()

    async def start(self, argv: Sequence[Any], stream: bool = False, **options: Unpack[CallOptions]) -> AsyncProcess:
        """See `Sandbox.start`."""
        return await self._start(AsyncProcess, argv, stream, options)

    async def fork(self) -> AsyncSandbox:
        """See `Sandbox.fork`."""
        await self._fork(other := AsyncSandbox())
        return other


def run_code(code: str, **options: Unpack[OneShot]) -> ExecutionResult:
    """`Sandbox.run_code` in a sandbox of its own. Options are those of a sandbox, `language`, and those of a call."""
    return _once("run_code", code, dict(options))


def run(argv: Sequence[Any], **options: Unpack[OneShot]) -> ExecutionResult:
    """`Sandbox.run` in a sandbox of its own. Options are those of a sandbox, and those of a call."""
    return _once("run", argv, dict(options))


def _once(method: str, what: Any, options: Json) -> ExecutionResult:
    call = {k: options.pop(k) for k in ONLY_CALLS if k in options}
    with Sandbox(**options) as sandbox:
        return getattr(sandbox, method)(what, **call)
