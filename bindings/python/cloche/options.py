"""What a sandbox and a call may be told. What it means, and which values there are, the program knows."""
from __future__ import annotations

import os
from typing import Any, AsyncIterable, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypedDict, Union

Callback = Callable[[bytes], Any]
Path = Union[str, "os.PathLike[str]"]
Stdin = Union[None, bool, bytes, bytearray, memoryview, str, Iterable[Any], AsyncIterable[Any], Any]
Mount = Union[str, Tuple[str, str], List[str]]


class Options(TypedDict, total=False):
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
    track_files: Optional[bool]
    mounts: Optional[Mapping[Any, Mount]]
    tmpfs: Optional[Mapping[str, str]]
    memory_mb: Optional[int]
    cpus: Optional[float]
    pids: Optional[int]
    timeout_s: Optional[float]
    max_output_bytes: Optional[int]
    shm_mb: Optional[int]
    rlimits: Optional[Mapping[str, int]]
    enforce_limits: Optional[bool]
    require_limits: Optional[bool]
    network: Optional[bool]
    egress_allow: Optional[Sequence[str]]
    user: Union[str, int, None]
    uid_range: Optional[bool]
    env: Optional[Mapping[str, str]]
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
    on_stdout: Optional[Callback]
    on_stderr: Optional[Callback]
    on_progress: Optional[Callable[[Dict[str, Any]], None]]


class CallOptions(TypedDict, total=False):
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
    timeout_s: Optional[float]
    env: Optional[Mapping[str, str]]
    cwd: Optional[str]
    stdin: Stdin
    pty: Union[bool, Tuple[int, int]]
    on_stdout: Optional[Callback]
    on_stderr: Optional[Callback]
    track_files: Optional[bool]


class OneShot(Options, total=False):
    """Options of a sandbox and of its only call."""
    language: str
    cwd: Optional[str]
    stdin: Stdin
    pty: Union[bool, Tuple[int, int]]


ONLY_CALLS = ("cwd", "stdin", "pty")
