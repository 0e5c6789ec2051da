"""What users give, as requests can have it. Nothing is judged here: only what no message can say, or would say as something else, is refused."""
from __future__ import annotations

import json
import math
import os
import threading
from contextlib import suppress
from typing import Any, Iterable, List, Mapping, cast

from .errors import OptionError
from .types import Json

TEXT = "a string of Unicode without NUL"
CONTENT = "bytes or a string of Unicode"
DEEPEST = 12  # of what is in an option


def wrong(name: str, allowed: str, given: Any) -> OptionError:
    """In the program's own words, for what would never come to it."""
    if isinstance(given, str):
        shown = f"the string {json.dumps(given[:80])}"
    elif isinstance(given, int) and given.bit_length() > 64:
        shown = hex(given)[:80]
    else:
        shown = str(given) if isinstance(given, (int, float, type(None))) else type(given).__name__
    return OptionError(f"{name}: {allowed} is wanted, not {shown}", option=name, allowed=allowed)


def plain(value: Any, name: str, depth: int = 0) -> Any:
    """`value` as JSON can say it: paths become strings, tuples lists. What can't be said would end the session for everybody."""
    if isinstance(value, (str, os.PathLike)):
        return text(cast(Any, value), name)
    if isinstance(value, (Mapping, list, tuple)) and depth == DEEPEST:
        raise wrong(name, f"arrays and objects at most {DEEPEST} deep", cast(Any, value))
    if isinstance(value, Mapping):
        return {text(k, name): plain(v, name, depth + 1) for k, v in cast("Json", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(v, name, depth + 1) for v in cast("List[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise wrong(name, "a finite number", value)
    if isinstance(value, int) and not -1 << 63 <= value < 1 << 63:
        raise wrong(name, "an integer from -2^63 to 2^63 - 1", value)
    if not isinstance(value, (int, float, type(None))):
        raise wrong(name, "null, true, false, a number, a string, an array or an object", value)
    return value


def text(given: Any, name: str) -> str:
    value = os.fspath(cast("os.PathLike[Any]", given)) if isinstance(given, os.PathLike) else given
    if not isinstance(value, str) or "\0" in value or value.encode(errors="ignore").decode() != value:
        raise wrong(name, TEXT, value)
    return value


def seconds(given: Any, name: str) -> float:
    """What this process can wait for."""
    if not isinstance(given, (int, float)) or not 0 <= given <= threading.TIMEOUT_MAX:
        raise wrong(name, f"a number of seconds from 0 to {threading.TIMEOUT_MAX:.0f}", given)
    return given


def named(given: Mapping[str, Any]) -> Json:
    """Fields of a request."""
    return {k: plain(v, k) for k, v in given.items()}


def fields(given: Mapping[str, Any]) -> Json:
    """Those that were given."""
    return named({k: v for k, v in given.items() if v is not None})


def terminal(pty: Any) -> Any:
    """The size of one, as requests have it."""
    pair = (24, 80) if pty is True else cast("List[Any]", pty) if isinstance(pty, (tuple, list)) else ()
    return dict(zip(("rows", "cols"), pair)) if len(pair) == 2 else cast(Any, pty) or None


def absolute(file: Any) -> Any:
    """Relative to where this process is: the program may be elsewhere."""
    return os.path.abspath(cast("str", file)) if isinstance(file, (str, os.PathLike)) else file


def words(argv: Any) -> bytes:
    """A command as the protocol wants it: each word ended by NUL."""
    if isinstance(argv, (str, bytes)) or not isinstance(argv, Iterable) or not (listed := list(cast("Iterable[Any]", argv))):
        raise wrong("argv", 'a list of words, such as ["sh", "-c", "ls | wc -l"]', argv)
    return b"".join(map(word, listed))


def word(given: Any) -> bytes:
    with suppress(TypeError, UnicodeError):
        if b"\0" not in (coded := os.fsencode(given)):
            return coded + b"\0"
    raise wrong("argv", "a list of bytes, paths and strings of Unicode without NUL", given)


def octets(data: Any, name: str) -> bytes:
    """Bytes of what a user calls data."""
    with suppress(UnicodeError):
        if isinstance(data, str):
            return data.encode()
        if isinstance(data, (bytes, bytearray, memoryview)):
            return bytes(cast("bytes", data))
    raise wrong(name, CONTENT, data)
