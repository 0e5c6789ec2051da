"""What calls are made of: their words and bytes, requests that somebody waits for, callbacks, live output."""
from __future__ import annotations

import asyncio
import inspect
import os
import threading
from typing import Any, Callable, Iterable, List, Optional, Tuple, Union, cast

from .client import PAYLOAD, Client, Frame, Mailbox, now
from .errors import OptionError, SandboxError, error_of
from .options import Callback
from .types import Json


def words(argv: Any) -> bytes:
    """A command as the protocol wants it: each word ended by NUL."""
    try:
        if isinstance(argv, (str, bytes)) or not argv:
            raise TypeError('a list of words, such as ["sh", "-c", "echo hello"]')
        listed = [os.fsencode(w) for w in argv]
    except TypeError as why:
        raise OptionError(f"argv: {why}", "option", "argv", "a list of words") from None
    if any(b"\0" in w for w in listed):
        raise OptionError("argv: a NUL byte is in it", "option", "argv")
    return b"".join(w + b"\0" for w in listed)


def octets(data: Any, name: str) -> bytes:
    """Bytes of what a user calls data."""
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeError:
            raise OptionError(f"{name}: it is no UTF-8", "option", name) from None
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(cast("bytearray", data))
    raise OptionError(f"{name}: bytes or str, not a {type(data).__name__}", "option", name, "bytes, str")


def chunks(source: Any) -> Iterable[Any]:
    """What a file or an iterable gives, as it gives it."""
    if hasattr(source, "read"):
        read = getattr(source, "read1", source.read)
        return iter(lambda: read(65536) or b"", b"")
    return source


class Work:
    """Requests of one sandbox: waiting, and what happens when somebody does not want to wait any more."""

    def __init__(self, to: Client, loop: Optional[asyncio.AbstractEventLoop]) -> None:
        self.client, self.loop = to, loop

    def mailbox(self, room: int = 0, lives_on: bool = False) -> Mailbox:
        return Mailbox(self.loop, room, lives_on)

    async def ask(self, head: Json, payload: Union[bytes, memoryview, None] = None, room: int = 0,
                  each: Optional[Callable[[Frame], None]] = None) -> Json:
        """The head of the `done` that a request gets; `each` sees its other frames."""
        box = self.mailbox(room)
        try:
            self.client.request(box, head, payload)
            while True:
                frame = await box.get()
                if "error" in frame.head:
                    raise error_of(frame.head["error"])
                if frame.head.get("event") == "done":
                    return frame.head
                if frame.head.get("event") in ("stdout", "stderr"):
                    self.client.took(box, len(frame.payload))
                if each:
                    each(frame)
        except BaseException as why:
            await self.cancel(box, why)
            raise

    async def cancel(self, of: Mailbox, why: Optional[BaseException] = None) -> None:
        """When this returns, nothing of that request runs any more: also when whoever waits is cancelled once more."""
        number = of.id
        if not self.client.forget(number) or self.client.error is not None:
            return
        if isinstance(why, GeneratorExit):
            self.client.post({"op": "cancel", "call": number})  # nobody may wait here
            return
        box = self.mailbox()
        try:
            self.client.request(box, {"op": "cancel", "call": number})
            while True:
                try:
                    await self.client.answer(box)
                    return
                except asyncio.CancelledError:
                    pass
        except SandboxError:
            pass  # it had ended, or the session has

    def feed(self, call: int, source: Any, failed: Callable[[BaseException], None]) -> Any:
        """Gives a file or an iterable to a call's stdin, in a thread or a task of its own, since it may keep us waiting. Returns the task."""
        async def async_feed() -> None:
            try:
                async for chunk in source:
                    await self.stdin(call, chunk)
                await self.stdin(call, b"", True)
            except SandboxError as why:
                if isinstance(why, OptionError):
                    failed(why)
            except Exception as why:
                failed(why)

        def thread_feed() -> None:
            blocking = Work(self.client, None)
            try:
                for chunk in chunks(source):
                    now(blocking.stdin(call, chunk))
                now(blocking.stdin(call, b"", True))
            except SandboxError as why:  # the call has ended, as a rule
                if isinstance(why, OptionError):
                    failed(why)
            except BaseException as why:
                failed(why)

        if hasattr(source, "__aiter__"):
            if self.loop is None:
                raise OptionError("stdin: an async iterable is for AsyncSandbox", "option", "stdin", "bytes, str, a file, an iterable")
            return self.loop.create_task(async_feed())
        if not hasattr(source, "read") and not hasattr(source, "__iter__"):
            raise OptionError(f"stdin: a {type(source).__name__} can't be read", "option", "stdin", "bytes, str, a file, an iterable")
        threading.Thread(target=thread_feed, name="cloche-stdin", daemon=True).start()
        return None

    async def stdin(self, call: int, data: Any, eof: bool = False) -> None:
        """Returns when the command's stdin took it all. A part that could not be taken ends it quietly: nobody reads there any more."""
        view = memoryview(octets(data, "stdin"))
        parts = [view[i:i + PAYLOAD] for i in range(0, len(view), PAYLOAD)] or ([view] if eof else [])
        for i, part in enumerate(parts):
            await self.ask({"op": "stdin", "call": call, **({"eof": True} if eof and i == len(parts) - 1 else {})}, part)


class Live:
    """Callbacks of a call, and the first exception of one."""

    def __init__(self, out: Optional[Callback], err: Optional[Callback]) -> None:
        self.to = {"stdout": out, "stderr": err}
        self.wanted = bool(out or err)
        self.failed: Optional[Exception] = None

    async def give(self, stream: str, data: bytes) -> None:
        call = self.to[stream]
        if call is None or self.failed is not None:
            return
        try:
            done = call(data)
            if inspect.isawaitable(done):
                await done
        except Exception as why:
            self.failed = why


class Output:
    """Live output of a process that runs in the background."""

    def __init__(self, work: Work, box: Mailbox, live: Live, stream: bool, early: List[Frame]) -> None:
        self.work, self.box, self.live, self.ended = work, box, live, not stream
        self.early = early  # what came before it was known to run
        self.pump: Any = None
        if live.wanted and work.loop is not None:
            self.pump = work.loop.create_task(self.pour())
        elif live.wanted:
            self.pump = threading.Thread(target=lambda: now(self.pour()), name="cloche-output", daemon=True)
            self.pump.start()

    async def next(self) -> Optional[Tuple[str, bytes]]:
        while not self.ended:
            frame = self.early.pop(0) if self.early else await self.box.get()
            event = frame.head.get("event")
            if event in ("stdout", "stderr"):
                self.work.client.took(self.box, len(frame.payload))
                return event, frame.payload
            self.ended = event == "ended"
        return None

    async def pour(self) -> None:
        try:
            while (part := await self.next()) is not None:
                await self.live.give(*part)
        except SandboxError:
            pass  # the session has ended: `wait` says so

    async def poured(self) -> None:
        """Returns when the callbacks have it all."""
        if isinstance(self.pump, threading.Thread):
            self.pump.join()
        elif self.pump is not None:
            await self.pump
