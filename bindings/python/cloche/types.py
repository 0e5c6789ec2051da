"""What calls return. Everything here was made from what the program sent; nothing of it is decided in this package."""
from __future__ import annotations

import base64
import functools
import inspect
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Generic, List, NamedTuple, Optional, Type, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import FaultError, ProtocolError

Json = Dict[str, Any]
T = TypeVar("T")
PLAIN: Dict[Any, Any] = {Any: object, str: str, bytes: bytes, bool: bool, int: int, float: (int, float), list: list, dict: dict}


def _only(value: Any, kind: Any) -> Any:
    """A value of a type. true and false are no numbers, and what needs more than 64 bits is none either."""
    if isinstance(value, PLAIN[kind]) and (type(value) is not bool or kind in (bool, Any)) and not (type(value) is int and abs(value) >> 64):
        return value
    raise TypeError


@functools.lru_cache(maxsize=None)
def _reader(kind: Any) -> Callable[[Any], Any]:
    """What turns a value of JSON into one of that type, or raises TypeError."""
    of, args = get_origin(kind), get_args(kind)
    one: Any = _reader(args[0 if of is Union else -1]) if args else None
    if of is Union:
        return lambda value: None if value is None else one(value)
    if of is list:
        return lambda value: [one(v) for v in _only(value, list)]
    if of is dict:
        return lambda value: {k: one(v) for k, v in _only(value, dict).items()}
    if kind is Result:
        return lambda value: Result(_only(value, dict))
    if kind in PLAIN:
        return lambda value: _only(value, kind)
    hints = get_type_hints(kind)
    fields = [(n, "from" if n == "previous" else n, p.default is p.empty, _reader(hints[n])) for n, p in inspect.signature(kind).parameters.items()]

    def made(o: Any) -> Any:
        given: Json = {}
        o = _only(o, dict)
        for name, key, needed, take in fields:
            if (value := o.get(key)) is not None or needed:
                try:
                    given[name] = take(value)
                except TypeError:
                    raise ProtocolError(f"cloche serve sent a wrong {key!r}") from None
        return kind(**given)
    return made


def read(kind: Type[T], o: Any, name: str = "") -> T:
    """`o`, or its field `name`, as that type. A class is made of the fields that have its names: each is of the type that it has there, has its
    default when it is null or left out, and what the class does not know is passed over."""
    try:
        return _reader(kind)(o.get(name) if name else o)
    except TypeError:
        raise ProtocolError(f"cloche serve sent a wrong {name or kind.__name__!r}") from None


@dataclass(frozen=True)
class SandboxFault:
    """Why the sandbox, not the code, ended a call. `type` is one of timeout, oom, workspace_full, escape_blocked, killed, init_lost,
    exec_failed, startup_failed, cancelled. `message` is one line for people. The others are None where they say nothing: `stage` of a
    start that failed, `output`, the end of what a `setup` that failed had printed, `syscall` and `comm` of an escape, `limit` that was
    hit, `filled_by` (anonymous, tmpfs, shm) of an oom."""
    type: str
    message: str
    stage: Optional[str] = None
    syscall: Optional[str] = None
    comm: Optional[str] = None
    limit: Optional[str] = None
    filled_by: Optional[str] = None
    output: Optional[str] = None


@dataclass(frozen=True)
class FileInfo:
    """A file of the workspace. `path` is relative to it, `size` in bytes. Of `ExecutionResult.files`: `change` is created, modified, deleted
    or renamed, then `previous` is the old path. Of `list_files` and `stat`: `type` is file, directory, symlink, fifo, socket or device,
    `mode` the permission bits, `mtime_ns` nanoseconds since 1970, `target` where a symbolic link leads."""
    path: str
    size: int = 0
    change: Optional[str] = None
    previous: Optional[str] = None
    type: Optional[str] = None
    mode: Optional[int] = None
    mtime_ns: Optional[int] = None
    target: Optional[str] = None


@dataclass(frozen=True)
class Usage:
    """What a call used. Times in microseconds (`wall_us`: start to end; `start_us`: until the command ran; `queued_us`: waiting for
    others), sizes in bytes. None where it is not known."""
    cpu_user_us: Optional[int] = None
    cpu_sys_us: Optional[int] = None
    memory_peak_bytes: Optional[int] = None
    pids_peak: Optional[int] = None
    read_bytes: Optional[int] = None
    written_bytes: Optional[int] = None
    wall_us: Optional[int] = None
    start_us: Optional[int] = None
    queued_us: Optional[int] = None


@dataclass(frozen=True)
class Limit:
    """A limit: what was `requested` (None: nothing), what is `effective`, which `rung` holds it (cgroup2, scope, cgroup1, supervised, ...), and
    whether it is `enforced`. Bytes, counts, or microseconds (`timeout`)."""
    requested: Optional[float] = None
    effective: Optional[float] = None
    rung: Optional[str] = None
    enforced: bool = False


@dataclass(frozen=True)
class Denial:
    """One thing that was refused. `kind` is syscall, mount, read or egress, `policy` who refused it, `what` the call, option, file or
    address. `allow_with` is the very option of `cloche run` that would allow it, or None, and `reason` says why there is none."""
    kind: str
    what: Optional[str] = None
    policy: Optional[str] = None
    path: Optional[str] = None
    host: Optional[str] = None
    port: Optional[int] = None
    pid: Optional[int] = None
    comm: Optional[str] = None
    count: Optional[int] = None
    allow_with: Optional[str] = None
    reason: Optional[str] = None


def _decoded(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise ProtocolError("cloche serve sent an image that is none") from None


class Format(Generic[T]):
    """A value in one format; None when it has no such."""

    def __init__(self, mime: str, made: Callable[[Any], T]) -> None:
        self.mime, self.made = mime, made

    def __get__(self, it: Optional[Result], owner: Any) -> Optional[T]:
        value = it.data.get(self.mime) if it else None
        return None if value is None else self.made(value)


@dataclass(frozen=True)
class Result:
    """A value that code displayed, in one or more formats: `data` maps a MIME type to its text, or to base64 for images."""
    data: Json = field(default_factory=dict[str, Any])

    def formats(self) -> List[str]:
        """The MIME types that there are."""
        return list(self.data)

    text = Format("text/plain", str)
    html = Format("text/html", str)
    markdown = Format("text/markdown", str)
    svg = Format("image/svg+xml", str)
    json = Format[Any]("application/json", lambda value: value)
    png = Format("image/png", _decoded)
    """The image's bytes."""
    jpeg = Format("image/jpeg", _decoded)


class Address(NamedTuple):
    """Where a port of a box can be reached on this machine."""
    host: str
    port: int


class Cut(NamedTuple):
    """Of a stream that is cut: `bytes` are left out after the first `at`."""
    at: int
    bytes: int


@dataclass
class SetupResult:
    """What `setup` came to: the `layer` that later calls have, whether it was `found` ready made, and the `fault` if it failed."""
    layer: Optional[str] = None
    found: bool = False
    fault: Optional[SandboxFault] = None


class Snapshot(NamedTuple):
    """An archive that `snapshot` has made: its `size` in bytes, how many `files` are in it, and how many sockets, FIFOs and devices were
    `left_out`."""
    size: int
    files: int = 0
    left_out: int = 0


@dataclass
class ExecutionResult:
    """What a call came to. True when it went well: exit code 0 and no fault."""
    stdout: str
    """What was printed, as UTF-8; a byte that is none is U+FFFD. At most `max_output_bytes` of it: the first and the last half."""
    stderr: str
    """The same of stderr. cloche never writes into it."""
    exit_code: Optional[int]
    """The exit code; 128 + N when signal N ended it; None when nothing ran."""
    duration_ms: float
    """From the start of the command to its end, in milliseconds."""
    fault: Optional[SandboxFault] = None
    """Set only when the sandbox acted. An exception in the code, or a non-zero exit code, is none."""
    files: List[FileInfo] = field(default_factory=list[FileInfo])
    """Which files of the workspace were created, modified, deleted, renamed; empty without `track_files`."""
    results: List[Result] = field(default_factory=list[Result])
    """Displayed values; always empty so far."""
    truncated: bool = False
    """Is one of the streams cut?"""
    signal: Optional[int] = None
    """The signal that ended the command."""
    stdout_cut: Optional[Cut] = None
    """Which part of stdout is not there."""
    stderr_cut: Optional[Cut] = None
    usage: Usage = Usage()
    limits: Dict[str, Limit] = field(default_factory=dict[str, Limit])
    """By name: memory, pids, cpus, timeout, output, file_size, open_files, workspace_max, io_weight."""
    denied: List[Denial] = field(default_factory=list[Denial])
    """What was refused, each with the option that would allow it."""
    notes: List[str] = field(default_factory=list[str])
    """What cloche has to say to people."""
    events: Dict[str, Any] = field(default_factory=dict[str, Any])
    """Counters: pids_max, oom_kills, lost_denials, unlisted_denials."""
    image: Optional[Dict[str, Any]] = None
    """name, id and manifest of the image; None for the host's own programs."""
    files_cut: int = 0
    """How many changes are not listed in `files`."""
    stdout_bytes: bytes = b""
    """The exact bytes of `stdout`."""
    stderr_bytes: bytes = b""

    @property
    def success(self) -> bool:
        """exit_code == 0 and no fault."""
        return self.exit_code == 0 and self.fault is None

    def __bool__(self) -> bool:
        return self.success

    @property
    def code_stderr(self) -> str:
        """What the code wrote to stderr. The same as `stderr`, since nobody else writes there."""
        return self.stderr

    @property
    def runtime_notes(self) -> List[str]:
        """The same as `notes`."""
        return self.notes

    def raise_for_fault(self) -> ExecutionResult:
        """Raises FaultError when there is a fault; else returns the result itself."""
        if self.fault is not None:
            raise FaultError(f"{self.fault.type}: {self.fault.message}", self.fault, self)
        return self
