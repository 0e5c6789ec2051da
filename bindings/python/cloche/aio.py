"""What this package uses of asyncio. To import that takes longer than all the rest: only who has a loop does, and has done so before."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop as AbstractEventLoop
    from asyncio import CancelledError as CancelledError
    from asyncio import Lock as Lock
    from asyncio import Queue as Queue
    from asyncio import TimeoutError as TimeoutError
    from asyncio import get_running_loop as get_running_loop
    from asyncio import wait_for as wait_for
else:
    def __getattr__(name: str) -> Any:  # PEP 562
        import asyncio
        return getattr(asyncio, name)
