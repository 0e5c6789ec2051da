"""What calls raise.

One rule: what the code did, and what the sandbox did to it, is data on the result; what was asked wrongly, or what this machine could not do,
raises. All are below `SandboxError`.
"""
from __future__ import annotations

from typing import Any, Mapping, Optional, cast


class SandboxError(Exception):
    """Base of all errors of this package. `str(e)` is one line for people.

    `type` is the protocol's name of it, `option` the option or argument that was wrong, `allowed` which values there are, `rule` why a
    mount is refused; each is None where it says nothing.
    """

    def __init__(self, message: str, type: Optional[str] = None, option: Optional[str] = None, allowed: Optional[str] = None,
                 rule: Optional[str] = None) -> None:
        super().__init__(message)
        self.type, self.option, self.allowed, self.rule = type, option, allowed, rule


class ProtocolError(SandboxError):
    """The program and this package do not understand each other: other versions, or a program that is broken."""


class OptionError(SandboxError):
    """An option or an argument is wrong: `option` names it, `allowed` says which values there are."""


class MountRefused(SandboxError):
    """A mount, workspace or device that is not given to boxes: `rule` says why."""


class PathRefused(SandboxError):
    """A path that leaves the workspace, passes a symbolic link, or names what is no regular file."""


class NotFound(SandboxError):
    """There is no such file, or no such process any more."""


class AlreadyExists(SandboxError):
    """The target is there already."""


class TooLarge(SandboxError):
    """More than was allowed to be read, listed or sent."""


class Unsupported(SandboxError):
    """This program or this machine can't do that."""


class Busy(SandboxError):
    """The queue of calls is full."""


class Cancelled(SandboxError):
    """The request was cancelled before it began."""


class Closed(SandboxError):
    """The sandbox, or the program behind it, is closed."""


class SystemFault(SandboxError):
    """The machine: no space, no descriptor, no permission."""


class FaultError(SandboxError):
    """`ExecutionResult.raise_for_fault` raises it: `fault` is what happened, `result` all of it."""

    def __init__(self, message: str, fault: Any = None, result: Any = None) -> None:
        super().__init__(message, type="fault")
        self.fault, self.result = fault, result


CLASSES = {
    "protocol": ProtocolError, "option": OptionError, "mount_refused": MountRefused, "path": PathRefused, "not_found": NotFound,
    "exists": AlreadyExists, "too_large": TooLarge, "unsupported": Unsupported, "busy": Busy, "cancelled": Cancelled, "closed": Closed,
    "system": SystemFault,
}


def error_of(error: Any) -> SandboxError:
    """The exception for the `error` of a frame, whatever it holds."""
    if not isinstance(error, dict):
        return ProtocolError("an error that is no object")
    given = cast("Mapping[str, Any]", error)

    def text(name: str) -> Optional[str]:
        value = given.get(name)
        return value if isinstance(value, str) else None

    kind = text("type") or ""
    return CLASSES.get(kind, SandboxError)(text("message") or "an error without a message", kind, text("option"), text("allowed"), text("rule"))
