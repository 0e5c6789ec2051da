"""`AsyncSandbox`: sandboxes for asyncio. `cloche.Sandbox` is the same with blocking calls, and runs what stands here (see `now`)."""
from __future__ import annotations

import asyncio
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, List, Optional, Sequence, Tuple, Union

from .calls import Live, Output, Work, octets, words
from .client import PAYLOAD, Client, Frame, Mailbox, client, plain
from .errors import Closed, NotFound, OptionError, ProtocolError, error_of
from .options import CallOptions, Options, Path
from .types import Address, ExecutionResult, FileInfo, Gathering, Json, SandboxFault, SetupResult, get, items, maybe, part, rows

if TYPE_CHECKING:
    from typing_extensions import Unpack

READ = 64 << 20  # what `read_file` takes when nothing is said


def _shut(to: Client, number: int) -> None:
    """A sandbox that nobody holds any more."""
    if to.error is None:
        to.post({"op": "close", "sandbox": number})


class AsyncSandbox:
    """`cloche.Sandbox` for asyncio: the same options and methods, as coroutines. `async with AsyncSandbox(...) as sbx:`, or `open` and `close`.

    A cancelled task leaves a call only when its box is dead."""

    def __init__(self, **options: Unpack[Options]) -> None:
        given: Dict[str, Any] = dict(options)
        self._callbacks = {k: given.pop(k, None) for k in ("on_stdout", "on_stderr", "on_progress")}
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

    async def open(self) -> AsyncSandbox:
        """Opens it: fetches the image, runs `setup`. Done by `async with`. Raises OptionError, MountRefused, Unsupported."""
        loop = asyncio.get_running_loop()
        await self._open(Work(await loop.run_in_executor(None, client), loop))
        return self

    async def _open(self, work: Work) -> None:
        if self._work is not None:
            raise Closed("it was opened before: make another one", "closed")
        self._opened(work, await work.ask({"op": "open", "options": self._given}, each=self._progress))

    def _progress(self, frame: Frame) -> None:
        told = self._callbacks["on_progress"]
        if told is not None and frame.head.get("event") == "progress":
            told({k: v for k, v in frame.head.items() if k not in ("id", "event")})

    def _opened(self, work: Work, head: Json) -> None:
        self._work, self._number = work, get(head, "sandbox", int)
        self._end = weakref.finalize(self, _shut, work.client, self._number)
        self._end.atexit = False
        fault = part(head, "fault")
        self.fault = SandboxFault.read(fault) if fault is not None else None
        self.workspace, self.image = maybe(head, "workspace", str), part(head, "image")
        self.notes = [n for n in items(head, "notes") if isinstance(n, str)]
        given = self._given.get("max_output_bytes")
        self._output = maybe(head, "max_output_bytes", int) or (given if isinstance(given, int) else READ)

    def _at(self) -> Work:
        if self._work is None or not self._end.alive:
            raise Closed("the sandbox is closed" if self._work else "the sandbox is not open: `async with`, or `await sbx.open()`", "closed")
        return self._work

    async def _ask(self, op: str, payload: Union[bytes, memoryview, None] = None, room: int = 0, each: Optional[Callable[[Frame], None]] = None,
                   **fields: Any) -> Json:
        given = {k: plain(v, k) for k, v in fields.items() if v is not None}
        return await self._at().ask({"op": op, "sandbox": self._number, **given}, payload, room, each)

    async def close(self) -> None:
        """Ends every call, removes what the sandbox had on the disk but a `workspace` that was given. Again: does nothing."""
        if self._work is not None and self._end.detach() and self._work.client.error is None:
            try:
                await self._work.ask({"op": "close", "sandbox": self._number})
            except (Closed, NotFound):
                pass

    async def __aenter__(self) -> AsyncSandbox:
        return await self.open()

    async def __aexit__(self, *exc: Any) -> None:
        await self.close()

    # Calls.

    async def run_code(self, code: str, language: str = "python", **options: Unpack[CallOptions]) -> ExecutionResult:
        """See `Sandbox.run_code`."""
        return await self._call({"op": "run_code", "language": plain(language, "language")}, octets(code, "code"), dict(options))

    async def run(self, argv: Sequence[Any], **options: Unpack[CallOptions]) -> ExecutionResult:
        """See `Sandbox.run`."""
        return await self._call({"op": "run"}, words(argv), dict(options))

    def _fields(self, options: Dict[str, Any]) -> Tuple[Json, Live, Any]:
        """What a call is asked with, its callbacks, and its stdin."""
        given = dict(options)
        live = Live(*(given.pop(k, self._callbacks[k]) for k in ("on_stdout", "on_stderr")))
        stdin, pty = given.pop("stdin", None), given.pop("pty", False)
        if isinstance(pty, (tuple, list)):
            pty = plain(dict(zip(("rows", "cols"), pty)), "pty")  # pyright: ignore[reportUnknownArgumentType]
        fields = {k: plain(v, k) for k, v in given.items() if v is not None}
        if pty:
            fields["pty"] = {"rows": 24, "cols": 80} if pty is True else pty
        if stdin is not None and stdin is not False:
            fields["stdin"] = True
        if live.wanted:
            fields["stream"] = True
        return fields, live, stdin

    async def _call(self, head: Json, payload: Union[bytes, memoryview], options: Dict[str, Any]) -> ExecutionResult:
        work = self._at()
        fields, live, stdin = self._fields(options)
        if stdin is True:
            raise OptionError("stdin: True is for start(), whose process is written to", "option", "stdin", "bytes, str, a file, an iterable")
        box, gathering, feeding = work.mailbox(2 * self._output), Gathering(), None
        data = memoryview(octets(stdin, "stdin")) if isinstance(stdin, (str, bytes, bytearray, memoryview)) else None
        try:
            work.client.request(box, {**head, "sandbox": self._number, **fields}, payload)
            self._calls.add(box.id)
            if data is not None:
                data = self._more_stdin(work, box, data)
            elif stdin is not None and stdin is not False:
                feeding = work.feed(box.id, stdin, box.put)
            while True:
                frame = await box.get()
                event = frame.head.get("event")
                if frame.head.get("id") != box.id:  # an answer to the stdin that was sent
                    if data is not None and "error" not in frame.head:
                        data = self._more_stdin(work, box, data)
                elif "error" in frame.head:
                    raise error_of(frame.head["error"])
                elif event in ("stdout", "stderr"):
                    await live.give(event, frame.payload)
                    work.client.took(box, len(frame.payload))
                elif event == "done":
                    result = gathering.result(frame.head)
                    break
                else:
                    gathering.add(frame.head, frame.payload)
        except BaseException as why:
            await work.cancel(box, why)
            raise
        finally:
            self._calls.discard(box.id)
            if feeding is not None:
                feeding.cancel()
        if live.failed is not None:
            raise live.failed
        return result

    @staticmethod
    def _more_stdin(work: Work, box: Mailbox, data: memoryview) -> Optional[memoryview]:
        """Sends a part of `data`, whose answer comes to the call's own box. Returns what is left for when it has come."""
        part, rest = data[:PAYLOAD], data[PAYLOAD:]
        work.client.request(box, {"op": "stdin", "call": box.id, **({} if rest else {"eof": True})}, part)
        return rest if rest else None

    async def start(self, argv: Sequence[Any], stream: bool = False, **options: Unpack[CallOptions]) -> AsyncProcess:
        """See `Sandbox.start`."""
        work = self._at()
        fields, live, stdin = self._fields(dict(options))
        if stream:
            fields["stream"] = True
        box, early = work.mailbox(0, lives_on=True), list[Frame]()
        try:
            work.client.request(box, {"op": "start", "sandbox": self._number, **fields}, words(argv))
            while (frame := await box.get()).head.get("event") != "done":
                early.append(frame)
            if "error" in frame.head:
                raise error_of(frame.head["error"])
        except BaseException as why:
            await work.cancel(box, why)
            raise
        return AsyncProcess(self, work, Output(work, box, live, bool(fields.get("stream")), early), stdin)

    async def cancel(self) -> None:
        """Ends all calls that run in it, whoever waits for them: their results have the fault `cancelled`. It stays open."""
        for number in list(self._calls):
            try:
                await self._at().ask({"op": "cancel", "call": number})
            except NotFound:
                pass

    # Files.

    async def write_file(self, path: Path, data: Union[bytes, bytearray, memoryview, str], mode: Optional[int] = None) -> int:
        """See `Sandbox.write_file`."""
        return get(await self._ask("write_file", octets(data, "data"), path=path, mode=mode), "size", int)

    async def read_file(self, path: Path, offset: Optional[int] = None, length: Optional[int] = None, max_bytes: Optional[int] = None) -> bytes:
        """See `Sandbox.read_file`."""
        found = bytearray()
        most = min((n for n in (length, READ if max_bytes is None else max_bytes) if isinstance(n, int)), default=READ)
        head = await self._ask("read_file", room=max(most, 0), each=lambda f: found.extend(f.payload), path=path, offset=offset, length=length,
                               max_bytes=max_bytes)
        if get(head, "size", int) < len(found):
            raise ProtocolError("cloche serve sent more of a file than there is")
        return bytes(found)

    async def list_files(self, path: Path = "", recursive: bool = True) -> List[FileInfo]:
        """See `Sandbox.list_files`."""
        found: List[FileInfo] = []
        await self._ask("list_files", each=lambda f: found.extend(map(FileInfo.read, rows(f.head, "files"))), path=path or None,
                        recursive=recursive)
        return found

    async def stat(self, path: Path) -> FileInfo:
        """See `Sandbox.stat`."""
        return FileInfo.read((await self._ask("stat", path=path)).get("file"))

    async def remove(self, path: Path, recursive: bool = False) -> None:
        """See `Sandbox.remove`."""
        await self._ask("remove", path=path, recursive=recursive)

    async def make_dir(self, path: Path, parents: bool = True) -> None:
        """See `Sandbox.make_dir`."""
        await self._ask("make_dir", path=path, parents=parents)

    async def rename(self, path: Path, to: Path, replace: bool = True) -> None:
        """See `Sandbox.rename`."""
        await self._ask("rename", path=path, to=to, replace=replace)

    async def snapshot(self, file: Path, format: Optional[str] = None) -> int:
        """See `Sandbox.snapshot`."""
        return maybe(await self._ask("snapshot", file=os.path.abspath(file), format=format), "size", int) or 0

    async def restore(self, file: Path) -> None:
        """See `Sandbox.restore`."""
        await self._ask("restore", file=os.path.abspath(file))

    async def fork(self) -> AsyncSandbox:
        """See `Sandbox.fork`."""
        return await self._fork(AsyncSandbox())

    async def _fork(self, other: AsyncSandbox) -> AsyncSandbox:
        head = await self._ask("fork")
        other._callbacks, other._given = self._callbacks, self._given
        other._opened(self._at(), {"image": self.image, "max_output_bytes": self._output, **head})
        return other

    # The rest.

    async def setup(self, command: str, timeout_s: Optional[float] = None) -> SetupResult:
        """See `Sandbox.setup`."""
        head = await self._ask("setup", each=self._progress, command=command, timeout_s=timeout_s)
        fault = part(head, "fault")
        return SetupResult(maybe(head, "layer", str), bool(maybe(head, "found", bool)), SandboxFault.read(fault) if fault is not None else None)

    async def info(self) -> Dict[str, Any]:
        """See `Sandbox.info`."""
        head = await self._ask("info")
        return {k: v for k, v in head.items() if k not in ("id", "event")}


class AsyncProcess:
    """`cloche.Process` for asyncio. `async with` kills it at the end."""

    def __init__(self, sandbox: AsyncSandbox, work: Work, output: Output, stdin: Any) -> None:
        self._sandbox, self._work, self._output, self._live = sandbox, work, output, output.live
        self._gathering, self._answer, self._result = Gathering(), work.mailbox(2 * sandbox._output), None  # pyright: ignore[reportPrivateUsage]
        self._turn: Any = threading.Lock() if work.loop is None else asyncio.Lock()
        self._trouble: Optional[BaseException] = None
        self.id = output.box.id
        """The number of the call."""
        if isinstance(stdin, (str, bytes, bytearray, memoryview)):
            stdin = [octets(stdin, "stdin")]
        if stdin is not None and not isinstance(stdin, bool):
            self._feeding = work.feed(self.id, stdin, self._failed)

    def _failed(self, why: BaseException) -> None:
        """Reading its stdin failed: the process goes, and `wait` says so."""
        self._trouble = why
        self._work.client.post({"op": "cancel", "call": self.id})

    async def next_output(self) -> Optional[Tuple[str, bytes]]:
        """The next piece of live output, as (stream, bytes); None at the end. For a process that was started with `stream=True`."""
        return await self._output.next()

    async def output(self) -> AsyncIterator[Tuple[str, bytes]]:
        """Its live output: `async for stream, data in process.output()`. For a process that was started with `stream=True`."""
        while (part := await self.next_output()) is not None:
            yield part

    async def wait(self, timeout_s: Optional[float] = None) -> ExecutionResult:
        """See `Process.wait`. Cancelling it leaves the process alone."""
        if self._work.loop is None:
            with self._turn:
                return await self._wait(timeout_s)
        async with self._turn:
            return await self._wait(timeout_s)

    async def _wait(self, timeout_s: Optional[float]) -> ExecutionResult:
        if self._answer.id == 0:
            self._work.client.request(self._answer, {"op": "wait", "call": self.id})
        while self._result is None:
            frame = await self._answer.get(timeout_s)
            if "error" in frame.head:
                raise error_of(frame.head["error"])
            if frame.head.get("event") == "done":
                self._result = self._gathering.result(frame.head)
            else:
                self._gathering.add(frame.head, frame.payload)
        await self._output.poured()
        for failed in (self._trouble, self._live.failed):
            if failed is not None:
                raise failed
        return self._result

    async def _ask(self, op: str, **fields: Any) -> Json:
        return await self._work.ask({"op": op, "call": self.id, **{k: plain(v, k) for k, v in fields.items()}})

    async def kill(self) -> None:
        """See `Process.kill`."""
        try:
            await self._ask("cancel")
        except NotFound:
            pass

    async def signal(self, signal: Union[str, int]) -> None:
        """See `Process.signal`."""
        await self._ask("signal", signal=signal)

    async def write_stdin(self, data: Union[bytes, bytearray, memoryview, str]) -> None:
        """See `Process.write_stdin`."""
        await self._work.stdin(self.id, data)

    async def close_stdin(self) -> None:
        """See `Process.close_stdin`."""
        await self._work.stdin(self.id, b"", True)

    async def resize(self, rows: int, cols: int) -> None:
        """See `Process.resize`."""
        await self._ask("resize", rows=rows, cols=cols)

    async def port(self, port: int) -> Address:
        """See `Process.port`."""
        head = await self._ask("port", port=port)
        return Address(get(head, "host", str), get(head, "port", int))

    async def __aenter__(self) -> AsyncProcess:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.kill()


