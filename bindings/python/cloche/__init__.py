"""Runs code that nobody has read in a throwaway box on this machine.

    import cloche
    result = cloche.run_code("print(1)")
    with cloche.Sandbox(memory_mb=256) as sbx:
        sbx.write_file("data.csv", "a,b\\n")
        result = sbx.run(["wc", "-l", "data.csv"])
"""
from .client import shutdown, version
from .errors import (AlreadyExists, Busy, Cancelled, Closed, FaultError, MountRefused, NotFound, OptionError, PathRefused, ProtocolError,
                     SandboxError, SystemFault, TooLarge, Unsupported)
from .options import Callbacks, CallOptions, Options
from .sandbox import AsyncProcess, AsyncSandbox, Process, Sandbox, run, run_code
from .types import Address, Cut, Denial, ExecutionResult, FileInfo, Limit, Result, SandboxFault, SetupResult, Snapshot, Usage

DEFAULT_TMPFS_MB = 64
"""The size of /tmp when the option `tmpfs` is not given, at most half of the memory."""

__version__ = version
__all__ = [
    "Address", "AlreadyExists", "AsyncProcess", "AsyncSandbox", "Busy", "CallOptions", "Callbacks", "Cancelled", "Closed", "Cut", "DEFAULT_TMPFS_MB",
    "Denial", "ExecutionResult", "FaultError", "FileInfo", "Limit", "MountRefused", "NotFound", "OptionError", "Options", "PathRefused", "Process",
    "ProtocolError", "Result", "Sandbox", "SandboxError", "SandboxFault", "SetupResult", "Snapshot", "SystemFault", "TooLarge", "Unsupported", "Usage",
    "run", "run_code", "shutdown", "version",
]
