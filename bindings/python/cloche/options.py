"""What a sandbox and a call may be told. What it means, and which values there are, the program knows."""
from __future__ import annotations

import os
from typing import Any, AsyncIterable, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypedDict, Union

Bytes = Union[bytes, bytearray, memoryview, str]
Callback = Callable[[bytes], Any]
Path = Union[str, "os.PathLike[str]"]
Mount = Union[str, Tuple[str, str], List[str]]


class Live(TypedDict, total=False):
    """Who gets what is printed, as it comes."""
    on_stdout: Optional[Callback]
    on_stderr: Optional[Callback]


class Both(Live, total=False):
    """Options of a sandbox that hold for its calls, unless a call has its own."""
    timeout_s: Optional[float]
    env: Optional[Mapping[str, str]]
    track_files: Optional[bool]


class Callbacks(Live, total=False):
    """Callbacks of a set-up; one that is left out is the sandbox's, None is none.

    - `on_stdout`, `on_stderr`: called with what its command prints, as it comes, like a call's (`CallOptions`). One that is found made
      prints nothing.
    - `on_progress`: called with a dict of what is going on: its `phase` and, where there is more to tell, `text`, `size` and `total`.
    """
    on_progress: Optional[Callable[[Dict[str, Any]], Any]]


class OfCalls(TypedDict, total=False):
    """Options that a call alone has."""
    cwd: Optional[str]
    stdin: Union[None, bool, Bytes, Iterable[Any], AsyncIterable[Any], Any]
    pty: Union[bool, Tuple[int, int]]


class Options(Both, Callbacks, total=False):
    """The options of a sandbox. docs/OPTIONS.md has them all, with what each means; one that is left out, or None, has its default."""
    image: Optional[str]
    pull: Optional[str]
    platform: Optional[str]
    image_timeout_s: Optional[float]
    pyc_cache: Optional[bool]
    setup: Optional[str]
    setup_memory_mb: Optional[int]
    setup_timeout_s: Optional[float]
    deps_readonly: Optional[bool]
    workspace: Optional[Path]
    workspace_max_bytes: Optional[int]
    git: Optional[bool]
    mounts: Optional[Mapping[Any, Mount]]
    tmpfs: Optional[Mapping[str, str]]
    memory_mb: Optional[int]
    cpus: Optional[float]
    pids: Optional[int]
    max_output_bytes: Optional[int]
    shm_mb: Optional[int]
    rlimits: Optional[Mapping[str, int]]
    enforce_limits: Optional[bool]
    require_limits: Optional[bool]
    network: Optional[bool]
    egress_allow: Optional[Sequence[str]]
    user: Union[str, int, None]
    uid_range: Optional[bool]
    cap_drop: Optional[Sequence[str]]
    cap_add: Optional[Sequence[str]]
    security_profile: Optional[str]
    read_only: Optional[bool]
    seccomp_rules: Optional[Sequence[str]]
    apparmor: Optional[str]
    devices: Optional[Sequence[str]]
    profiles: Optional[Sequence[str]]
    name: Optional[str]
    prewarm: Any
    persist: Any
    persist_ttl_s: Any


class CallOptions(Both, OfCalls, total=False):
    """The options of a call.

    - `timeout_s`: its deadline in seconds; else the sandbox's.
    - `env`: variables on top of the sandbox's. `cwd`: its directory, else /workspace.
    - `stdin`: bytes or str; a file, or an iterable of either, read while the command runs; for AsyncSandbox also an async iterable. Without it
      the command reads an end of file.
    - `pty`: a terminal of 24 x 80, or of (rows, columns); all output is then in stdout.
    - `on_stdout`, `on_stderr`: called with bytes as they come. None of it is dropped: a slow one holds up the command, whose deadline goes
      on. What it raises is raised when the call has ended. Left out: the sandbox's; None: none.
    - `track_files`: tell which files changed.
    """


class OneShot(Options, OfCalls, total=False):
    """Options of a sandbox and of its only call."""
    language: str


ONLY_CALLS = ("language", *OfCalls.__annotations__)
