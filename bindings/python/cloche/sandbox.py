"""`Sandbox`: the blocking face. Each method runs what stands in aio.py with a mailbox that holds up the thread."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from .aio import AsyncProcess, AsyncSandbox
from .calls import Work
from .client import client, now
from .options import ONLY_CALLS, CallOptions, OneShot, Options, Path
from .types import Address, ExecutionResult, FileInfo, SandboxFault, SetupResult

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Sandbox:
    """A place for calls: options, and a directory (`/workspace`) that its calls share. Each call has a fresh box: files stay, processes don't.

        with cloche.Sandbox(image="python:3.12-slim", memory_mb=256) as sbx:
            result = sbx.run_code("print(1)")

    It may be used by many threads at once. It ends with the block, with `close`, when nothing refers to it, or with the process. Interrupted
    calls (Ctrl-C) raise when their box is dead. In a forked child it is closed; a new one works there.

    Raises OptionError, MountRefused and Unsupported for options that are wrong, SystemFault when there is no program. What keeps it from
    running anything else (no image, `setup` failed, no limits) is its `fault`, and that of each call.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        self._it = AsyncSandbox(**options)
        now(self._it._open(Work(client(), None)))  # pyright: ignore[reportPrivateUsage]

    @property
    def workspace(self) -> Optional[str]:
        """The workspace's directory on this machine, if there is one."""
        return self._it.workspace

    @property
    def fault(self) -> Optional[SandboxFault]:
        """Why it can't run anything; every call has this as its fault."""
        return self._it.fault

    @property
    def image(self) -> Optional[Dict[str, Any]]:
        """name, id and manifest of the image; None for the host's own programs."""
        return self._it.image

    @property
    def notes(self) -> List[str]:
        """What cloche has to say to people about how it was opened."""
        return self._it.notes

    def run_code(self, code: str, language: str = "python", **options: Unpack[CallOptions]) -> ExecutionResult:
        """Runs code of a `language`: python, bash, sh or node. An interpreter that the image lacks is the fault exec_failed.

        What the code does is data on the result; raises only what was asked wrongly (OptionError), Busy, Closed, or what a callback raised.
        """
        return now(self._it.run_code(code, language, **options))

    def run(self, argv: Sequence[Any], **options: Unpack[CallOptions]) -> ExecutionResult:
        """Runs a command: a list of words, never a line for a shell. A program that is not there is the fault exec_failed."""
        return now(self._it.run(argv, **options))

    def start(self, argv: Sequence[Any], stream: bool = False, **options: Unpack[CallOptions]) -> Process:
        """Starts a command and returns when it runs. It has no deadline but `timeout_s`, and ends with the sandbox at the latest.

        With `stream` its output is for `Process.output`, and waits there to be taken; callbacks run in a thread of their own. `stdin=True`
        leaves its stdin open for `Process.write_stdin`. A command that can't be started is a process that has ended: see its `wait`.
        """
        return Process(now(self._it.start(argv, stream, **options)))

    def cancel(self) -> None:
        """Ends all calls that run in it, whoever waits for them: their results have the fault `cancelled`. It stays open."""
        now(self._it.cancel())

    def write_file(self, path: Path, data: Union[bytes, bytearray, memoryview, str], mode: Optional[int] = None) -> int:
        """Writes a file of the workspace, whole or not at all, and makes directories that are missing. str is written as UTF-8; `mode` 0o644.

        Paths of all file methods are relative to the workspace. One that leaves it, passes a symbolic link or names no regular file raises
        PathRefused. Returns the size in bytes."""
        return now(self._it.write_file(path, data, mode))

    def read_file(self, path: Path, offset: Optional[int] = None, length: Optional[int] = None, max_bytes: Optional[int] = None) -> bytes:
        """Reads a file of the workspace, or `length` bytes of it from `offset`. More than `max_bytes` (64 MiB) raises TooLarge; it is never
        cut silently. Raises NotFound, PathRefused."""
        return now(self._it.read_file(path, offset, length, max_bytes))

    def list_files(self, path: Path = "", recursive: bool = True) -> List[FileInfo]:
        """What there is below a directory of the workspace, sorted by path. Symbolic links are shown, not followed. More than 100,000 raises
        TooLarge."""
        return now(self._it.list_files(path, recursive))

    def stat(self, path: Path) -> FileInfo:
        """What a path of the workspace is. Raises NotFound."""
        return now(self._it.stat(path))

    def remove(self, path: Path, recursive: bool = False) -> None:
        """Removes a file, a link, an empty directory; with `recursive` what is in it, too. Raises NotFound."""
        now(self._it.remove(path, recursive))

    def make_dir(self, path: Path, parents: bool = True) -> None:
        """Makes a directory, and those above it unless `parents` is False. Raises AlreadyExists."""
        now(self._it.make_dir(path, parents))

    def rename(self, path: Path, to: Path, replace: bool = True) -> None:
        """Renames within the workspace. Without `replace` a target that is there raises AlreadyExists."""
        now(self._it.rename(path, to, replace))

    def snapshot(self, file: Path, format: Optional[str] = None) -> int:
        """Writes all of the workspace into an archive of this machine, made anew: .tar.gz, .tgz or .tar.zst by its name, or `format`. Returns
        its size in bytes."""
        return now(self._it.snapshot(file, format))

    def restore(self, file: Path) -> None:
        """Replaces what is in the workspace by what is in an archive; all of it is verified before."""
        now(self._it.restore(file))

    def fork(self) -> Sandbox:
        """Another sandbox with the same options and a copy of the workspace."""
        other = Sandbox.__new__(Sandbox)
        other._it = now(self._it.fork())
        return other

    def setup(self, command: str, timeout_s: Optional[float] = None) -> SetupResult:
        """Runs a shell command that installs something, with the network, once: later calls have what it left, and a later sandbox with the
        same image and command finds it made. The same as the option `setup`; what it printed is in the `fault` of one that failed."""
        return now(self._it.setup(command, timeout_s))

    def info(self) -> Dict[str, Any]:
        """`options` as they hold, `image`, `limits`, and what else the program tells of it."""
        return now(self._it.info())

    def close(self) -> None:
        """Ends every call, removes what the sandbox had on the disk but a `workspace` that was given. Again: does nothing."""
        now(self._it.close())

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


class Process:
    """A command that runs in the background. With `with` it is killed at the end of the block."""

    def __init__(self, it: AsyncProcess) -> None:
        self._it = it

    @property
    def id(self) -> int:
        """The number of the call."""
        return self._it.id

    def wait(self, timeout_s: Optional[float] = None) -> ExecutionResult:
        """Its result, when it has ended. Raises TimeoutError after `timeout_s` seconds, and then, as when interrupted, it runs on. Raises what a
        callback, or reading its stdin, raised."""
        return now(self._it.wait(timeout_s))

    def output(self) -> Iterator[Tuple[str, bytes]]:
        """Its live output as (stream, bytes), until it ends. For a process that was started with `stream=True`."""
        while (part := now(self._it.next_output())) is not None:
            yield part

    def kill(self) -> None:
        """Ends it, and all that it started; returns when they are gone. Its result has the fault `cancelled`."""
        now(self._it.kill())

    def signal(self, signal: Union[str, int]) -> None:
        """Sends a signal ("TERM", 15, signal.SIGTERM) to its process group. Raises NotFound when it has ended."""
        now(self._it.signal(signal))

    def write_stdin(self, data: Union[bytes, bytearray, memoryview, str]) -> None:
        """Writes to a process that was started with `stdin=True`; returns when its pipe took the bytes. Raises NotFound when it has ended."""
        now(self._it.write_stdin(data))

    def close_stdin(self) -> None:
        """Lets it read an end of file."""
        now(self._it.close_stdin())

    def resize(self, rows: int, cols: int) -> None:
        """The size of its terminal."""
        now(self._it.resize(rows, cols))

    def port(self, port: int) -> Address:
        """An address on this machine's loopback that leads to a port of the box, while the process lives."""
        return now(self._it.port(port))

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.kill()


def run_code(code: str, **options: Unpack[OneShot]) -> ExecutionResult:
    """`Sandbox.run_code` in a sandbox of its own. Options are those of a sandbox, `language`, and those of a call."""
    given: Dict[str, Any] = dict(options)
    call = {k: given.pop(k) for k in (*ONLY_CALLS, "language") if k in given}
    with Sandbox(**given) as sandbox:
        return sandbox.run_code(code, **call)


def run(argv: Sequence[Any], **options: Unpack[OneShot]) -> ExecutionResult:
    """`Sandbox.run` in a sandbox of its own. Options are those of a sandbox, and those of a call."""
    given: Dict[str, Any] = dict(options)
    call = {k: given.pop(k) for k in ONLY_CALLS if k in given}
    with Sandbox(**given) as sandbox:
        return sandbox.run(argv, **call)
