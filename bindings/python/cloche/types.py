"""What calls return. Everything here was made from what the program sent; nothing of it is decided in this package."""
from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any, Dict, List, NamedTuple, Optional, Type, TypeVar, cast

from .errors import FaultError, ProtocolError

Json = Dict[str, Any]
T = TypeVar("T")


def any_of(o: Any, name: str) -> Any:
    """A field of what should be an object."""
    return cast("Json", o).get(name) if isinstance(o, dict) else None


def get(o: Any, name: str, kind: Type[T]) -> T:
    """The field `name` of a frame, which must be there and of that kind."""
    value = maybe(o, name, kind)
    if value is None:
        raise ProtocolError(f"cloche serve sent no {name!r} where one belongs")
    return value


def maybe(o: Any, name: str, kind: Type[T]) -> Optional[T]:
    """The same, or None when it is null or not there. A whole number is a float, too; true and false are no numbers."""
    value = any_of(o, name)
    if kind is float and type(value) is int and abs(value) < 1 << 64:
        value = float(value)
    if value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return cast("Optional[T]", value)
    raise ProtocolError(f"cloche serve sent a wrong {name!r}")


def part(o: Any, name: str) -> Optional[Json]:
    """The same for an object."""
    return cast("Optional[Json]", maybe(o, name, dict))


def rows(o: Any, name: str) -> List[Json]:
    """A list of objects; none when it is not there."""
    found = items(o, name)
    if not all(isinstance(x, dict) for x in found):
        raise ProtocolError(f"cloche serve sent a wrong {name!r}")
    return found


def items(o: Any, name: str) -> List[Any]:
    """A list of whatever; none when it is not there."""
    return cast("Optional[List[Any]]", maybe(o, name, list)) or []


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

    @classmethod
    def read(cls, o: Any) -> SandboxFault:
        rest = (maybe(o, k, str) for k in ("stage", "syscall", "comm", "limit", "filled_by", "output"))
        return cls(get(o, "type", str), get(o, "message", str), *rest)


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

    @classmethod
    def read(cls, o: Any) -> FileInfo:
        return cls(get(o, "path", str), maybe(o, "size", int) or 0, maybe(o, "change", str), maybe(o, "from", str), maybe(o, "type", str),
                   maybe(o, "mode", int), maybe(o, "mtime_ns", int), maybe(o, "target", str))


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

    @classmethod
    def read(cls, o: Any) -> Usage:
        return cls(**{k: maybe(o, k, int) for k in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Limit:
    """A limit: what was `requested` (None: nothing), what is `effective`, which `rung` holds it (cgroup2, scope, cgroup1, supervised, ...), and
    whether it is `enforced`. Bytes, counts, or microseconds (`timeout`)."""
    requested: Optional[float] = None
    effective: Optional[float] = None
    rung: Optional[str] = None
    enforced: bool = False

    @classmethod
    def read(cls, o: Any) -> Limit:
        return cls(_number(o, "requested"), _number(o, "effective"), maybe(o, "rung", str), bool(maybe(o, "enforced", bool)))


def _number(o: Any, name: str) -> Optional[float]:
    """As it was sent: a count stays a whole number."""
    value = any_of(o, name)
    return value if type(value) is int else maybe(o, name, float)


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

    @classmethod
    def read(cls, o: Any) -> Denial:
        texts: Json = {k: maybe(o, k, str) for k in ("what", "policy", "path", "host", "comm", "allow_with", "reason")}
        numbers: Json = {k: maybe(o, k, int) for k in ("port", "pid", "count")}
        return cls(get(o, "kind", str), **texts, **numbers)


@dataclass(frozen=True)
class Result:
    """A value that code displayed, in one or more formats: `data` maps a MIME type to its text, or to base64 for images."""
    data: Json = field(default_factory=dict[str, Any])

    def formats(self) -> List[str]:
        """The MIME types that there are."""
        return list(self.data)

    def _text(self, mime: str) -> Optional[str]:
        value = self.data.get(mime)
        return value if isinstance(value, str) else None

    def _image(self, mime: str) -> Optional[bytes]:
        try:
            return base64.b64decode(self._text(mime) or "", validate=True) or None
        except binascii.Error as why:
            raise ProtocolError(f"cloche serve sent a wrong {mime}") from why

    @property
    def text(self) -> Optional[str]:
        """text/plain"""
        return self._text("text/plain")

    @property
    def html(self) -> Optional[str]:
        """text/html"""
        return self._text("text/html")

    @property
    def markdown(self) -> Optional[str]:
        """text/markdown"""
        return self._text("text/markdown")

    @property
    def svg(self) -> Optional[str]:
        """image/svg+xml"""
        return self._text("image/svg+xml")

    @property
    def json(self) -> Any:
        """application/json"""
        return self.data.get("application/json")

    @property
    def png(self) -> Optional[bytes]:
        """image/png, decoded"""
        return self._image("image/png")

    @property
    def jpeg(self) -> Optional[bytes]:
        """image/jpeg, decoded"""
        return self._image("image/jpeg")


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
    layer: Optional[str]
    found: bool
    fault: Optional[SandboxFault]


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


def _cut(o: Any, name: str) -> Optional[Cut]:
    cut = part(o, name)
    return None if cut is None else Cut(get(cut, "at", int), get(cut, "bytes", int))


class Gathering:
    """Gathers the events that a call's outcome comes in."""

    def __init__(self) -> None:
        self.streams = {"stdout": bytearray(), "stderr": bytearray()}
        self.files: List[FileInfo] = []
        self.denied: List[Denial] = []
        self.notes: List[str] = []

    def add(self, head: Json, payload: bytes) -> None:
        event = head.get("event")
        if event == "output":
            stream = get(head, "stream", str)
            if stream not in self.streams:
                raise ProtocolError("cloche serve sent output of no stream")
            self.streams[stream] += payload
        elif event == "files":
            self.files += map(FileInfo.read, rows(head, "files"))
        elif event == "denied":
            self.denied.append(Denial.read(head.get("denied")))
        elif event == "note":
            self.notes.append(get(head, "text", str))

    def result(self, head: Json) -> ExecutionResult:
        o = part(head, "outcome")
        if o is None:
            raise ProtocolError("cloche serve sent no outcome")
        fault = part(o, "fault")
        limits = part(o, "limits") or {}
        out, err = bytes(self.streams["stdout"]), bytes(self.streams["stderr"])
        return ExecutionResult(
            out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), maybe(o, "exit_code", int), maybe(o, "duration_ms", float) or 0,
            SandboxFault.read(fault) if fault is not None else None, self.files, [Result(r) for r in rows(o, "results")],
            bool(maybe(o, "truncated", bool)), maybe(o, "signal", int), _cut(o, "stdout_cut"), _cut(o, "stderr_cut"),
            Usage.read(part(o, "usage") or {}), {k: Limit.read(v) for k, v in limits.items()}, self.denied, self.notes,
            part(o, "events") or {}, part(o, "image"), maybe(o, "files_cut", int) or 0, out, err)

