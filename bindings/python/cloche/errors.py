"""What calls raise.

One rule: what the code did, and what the sandbox did to it, is data on the result; what was asked wrongly, or what this machine could not do,
raises. All are below `SandboxError`.
"""
from __future__ import annotations

from typing import Any, Dict, Optional, Type, cast

CLASSES: Dict[str, Type[SandboxError]] = {}  # by the protocol's names


class SandboxError(Exception):
    """Base of all errors of this package. `str(e)` is one line for people.

    `type` is the protocol's name of it, `option` the option or argument that was wrong, `allowed` which values there are, `rule` why a
    mount is refused; each is None where it says nothing.
    """
    _type: Optional[str] = None

    def __init_subclass__(cls, type: Optional[str] = None) -> None:
        if type is not None:
            cls._type, CLASSES[type] = type, cls

    def __init__(self, message: str, type: Optional[str] = None, option: Optional[str] = None, allowed: Optional[str] = None,
                 rule: Optional[str] = None) -> None:
        super().__init__(message)
        self.type, self.option, self.allowed, self.rule = type or self._type, option, allowed, rule


class ProtocolError(SandboxError, type="protocol"):
    """The program and this package do not understand each other: other versions, or a program that is broken."""


class OptionError(SandboxError, type="option"):
    """An option or an argument is wrong: `option` names it, `allowed` says which values there are."""


class MountRefused(SandboxError, type="mount_refused"):
    """A mount, workspace or device that is not given to boxes: `rule` says why."""


class PathRefused(SandboxError, type="path"):
    """A path that leaves the workspace, passes a symbolic link, or names what is no regular file."""


class NotFound(SandboxError, type="not_found"):
    """There is no such file, or no such process any more."""


class AlreadyExists(SandboxError, type="exists"):
    """The target is there already."""


class TooLarge(SandboxError, type="too_large"):
    """More than was allowed to be read, listed or sent."""


class Unsupported(SandboxError, type="unsupported"):
    """This program or this machine can't do that."""


class Busy(SandboxError, type="busy"):
    """The queue of calls is full."""


class Cancelled(SandboxError, type="cancelled"):
    """The request was cancelled before it began."""


class Closed(SandboxError, type="closed"):
    """The sandbox, or the program behind it, is closed."""


class SystemFault(SandboxError, type="system"):
    """The machine: no space, no descriptor, no permission."""


class FaultError(SandboxError):
    """`ExecutionResult.raise_for_fault` raises it: `fault` is what happened, `result` all of it."""

    def __init__(self, message: str, fault: Any = None, result: Any = None) -> None:
        super().__init__(message, "fault")
        self.fault, self.result = fault, result


def error_of(error: Any) -> SandboxError:
    """The exception for the `error` of a frame, whatever it holds."""
    given = cast("Dict[str, Any]", error if isinstance(error, dict) else {"type": "protocol", "message": "an error that is no object"})
    message, *rest = (v if isinstance(v := given.get(k), str) else None for k in ("message", "type", "option", "allowed", "rule"))
    return CLASSES.get(rest[0] or "", SandboxError)(message or "an error without a message", *rest)
