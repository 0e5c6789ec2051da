"""What calls are made of: requests that somebody waits for, what is asked with them, and two faces over one implementation."""
from __future__ import annotations

import functools
import inspect
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Generic, Iterable, List, Optional, TypeVar, cast, overload

from . import aio as asyncio
from .client import PAYLOAD, Client, Frame, Mailbox, now
from .errors import NotFound, OptionError, SandboxError
from .types import ExecutionResult, Json, read
from .values import CONTENT, octets, wrong

T = TypeVar("T")


class Blocking:
    """Of a class with this face, `both` methods hold up the thread; it is closed at the end of a `with`."""
    _leave: Any

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *exc: Any) -> None:
        self._leave()


class Async:
    """Of a class with this face, `both` methods are coroutines; it is closed at the end of an `async with`."""
    _leave: Any

    async def __aenter__(self: T) -> T:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._leave()


if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec
    P = ParamSpec("P")

    class both(Generic[P, T]):
        def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None: ...
        @overload
        def __get__(self, it: Blocking, owner: Any) -> Callable[P, T]: ...
        @overload
        def __get__(self, it: Async, owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
        @overload
        def __get__(self, it: None, owner: Any) -> Any: ...
        def __get__(self, it: Any, owner: Any) -> Any: ...
else:
    class both:
        """An `async def` method of what two faces share. The blocking one runs it to its end, since its mailboxes hold up the thread."""

        def __init__(self, method):
            self.method = method
            self.blocking = functools.wraps(method)(lambda *args, **options: now(method(*args, **options)))

        def __get__(self, it, owner):
            return (self.blocking if issubclass(owner, Blocking) else self.method).__get__(it, owner)


def chunks(source: Any) -> Iterable[Any]:
    """What a file or an iterable gives, as it gives it."""
    read = getattr(source, "read1", getattr(source, "read", None))
    return source if read is None else iter(lambda: read(65536) or b"", b"")


def beside(loop: Optional[asyncio.AbstractEventLoop], coroutine: Coroutine[Any, Any, None]) -> Any:
    """Runs it in a task of the loop; or, without one, in a thread."""
    if loop is not None:
        return loop.create_task(coroutine)
    thread = threading.Thread(target=now, args=(coroutine,), name="cloche", daemon=True)
    thread.start()
    return thread


class Events:
    """What the events of a call bring: live output and progress go to their callbacks, the rest is kept for its result."""

    def __init__(self, on_stdout: Any, on_stderr: Any, on_progress: Any = None) -> None:
        self.to = {"stdout": on_stdout, "stderr": on_stderr, "progress": on_progress}
        for name, given in self.to.items():
            if given is not None and not callable(given):
                raise wrong(f"on_{name}", "a function, or None", given)
        self.wanted = bool(on_stdout or on_stderr) or None
        self.failed: Optional[BaseException] = None  # the first that a callback raised
        self.output = {"stdout": bytearray(), "stderr": bytearray()}
        self.told: "dict[str, list[Any]]" = {"files": [], "denied": [], "notes": []}

    async def add(self, frame: Frame) -> None:
        head, event = frame.head, frame.head["event"]
        if event in self.to and self.to[event] is not None and self.failed is None:
            try:
                done = self.to[event]({k: v for k, v in head.items() if k not in ("id", "event")} if event == "progress" else frame.payload)
                if inspect.isawaitable(done):
                    await done
            except Exception as why:
                self.failed = why
        elif event == "output":
            self.output.get(read(str, head, "stream"), bytearray()).extend(frame.payload)
        elif event == "files":
            self.told["files"] += cast("List[Any]", read(list, head, "files"))
        elif event in ("denied", "note"):
            self.told["denied" if event == "denied" else "notes"].append(head.get("denied" if event == "denied" else "text"))

    def result(self, head: Json) -> ExecutionResult:
        out, err = (bytes(b) for b in self.output.values())
        kept = {"stdout": out.decode("utf-8", "replace"), "stderr": err.decode("utf-8", "replace"), "stdout_bytes": out, "stderr_bytes": err}
        return read(ExecutionResult, {"duration_ms": 0, **read(dict, head, "outcome"), **kept, **self.told})

    def checked(self, result: T) -> T:
        if self.failed is not None:
            raise self.failed
        return result


class Work:
    """Requests of one sandbox: waiting, and what happens when somebody does not want to wait any more."""

    def __init__(self, to: Client, loop: Optional[asyncio.AbstractEventLoop]) -> None:
        self.client, self.loop = to, loop
        self._cancelled: Any = (asyncio.CancelledError,) if loop else ()  # no thread is

    def mailbox(self, room: int = 0, lives_on: bool = False) -> Mailbox:
        return Mailbox(self.client, self.loop, room, lives_on)

    async def ask(self, op: str, fields: Json, payload: Optional[bytes] = None, each: Optional[Callable[[Frame], Any]] = None,
                  box: Optional[Mailbox] = None, stdin: Any = None) -> Json:
        """The head of the `done` that a request gets; `each` sees its other frames. When it raises, nothing of the request runs any more."""
        feeding: Any = None
        box = box or self.mailbox()
        try:
            self.client.request(box, {"op": op, **fields}, payload)
            if stdin is not None:
                feeding = self.feed(box.id, stdin, box.put)
            return await box.done(each)
        except BaseException as why:
            if self.client.forget(box.id) and self.client.error is None:
                await self._cancel(box.id, why)
            raise
        finally:
            if hasattr(feeding, "cancel"):  # a task
                feeding.cancel()

    async def _cancel(self, call: int, why: BaseException) -> None:
        """Waits for the end of a call; also when whoever does so is cancelled once more."""
        if isinstance(why, GeneratorExit):
            return self.client.post({"op": "cancel", "call": call})  # nobody may wait here
        box = self.mailbox()
        with suppress(SandboxError):  # it had ended, or the session has
            self.client.request(box, {"op": "cancel", "call": call})
            while True:
                with suppress(*self._cancelled):
                    await box.done()
                    return

    async def end(self, call: int) -> None:
        with suppress(NotFound):
            await self.ask("cancel", {"call": call})

    async def stdin(self, call: int, data: Any, eof: bool = False) -> None:
        """Returns when the command's stdin took it all, or nobody reads there any more."""
        view = memoryview(octets(data, "stdin"))
        for at in range(0, len(view) or eof, PAYLOAD):
            last = eof and at + PAYLOAD >= len(view)
            await self.ask("stdin", {"call": call, "eof": last}, bytes(view[at:at + PAYLOAD]))

    def source(self, stdin: Any, may_write: bool) -> Any:
        """What `feed` reads a call's stdin from; True, if that may be, when its process is written to."""
        if stdin is None or stdin is False or (stdin is True and may_write):
            return stdin or None
        if isinstance(stdin, (str, bytes, bytearray, memoryview)):
            return octets(stdin, "stdin")
        if not any(hasattr(stdin, a) for a in ("read", "__iter__", *(("__aiter__",) if self.loop else ()))):
            raise wrong("stdin", f"{CONTENT}, a file, or an iterable of those", stdin)
        return stdin

    def feed(self, call: int, source: Any, failed: Callable[[BaseException], None]) -> Any:
        """Gives it to a call's stdin. What may keep us waiting is read in a thread or a task of its own."""
        if isinstance(source, bytes) and len(source) <= PAYLOAD:
            return self.client.post({"op": "stdin", "call": call, "eof": True}, source)
        loop = self.loop if hasattr(source, "__aiter__") else None
        return beside(loop, Work(self.client, loop)._feed(call, [source] if isinstance(source, bytes) else source, failed))

    async def _feed(self, call: int, source: Any, failed: Callable[[BaseException], None]) -> None:
        try:
            if self.loop is not None:
                async for chunk in source:
                    await self.stdin(call, chunk)
            else:
                for chunk in chunks(source):
                    await self.stdin(call, chunk)
            await self.stdin(call, b"", True)
        except BaseException as why:
            if isinstance(why, OptionError) or not isinstance(why, (SandboxError, *self._cancelled)):  # as when the call has ended
                failed(why)
