"""`LoopBinding`: binds an object to one event loop and raises an error on any other.

asyncio is not safe to use from other threads, and its tasks and futures end with their event loop. A call on another
loop would wait forever, or change the object while its own loop runs.
"""

from __future__ import annotations

import asyncio
import os

from fairway.errors import EventLoopError


class LoopBinding:
    """The event loop on which an object was created, or first used if no loop was running then."""

    __slots__ = ("_loop", "_owner", "_process")

    def __init__(self, owner: str) -> None:
        """``owner`` is the name of the object in error texts, such as ``the receipt``."""
        self._owner = owner
        self._process = os.getpid()
        self._loop = _running_loop()

    @property
    def has_ended(self) -> bool:
        """Whether the event loop was closed, as at the end of `asyncio.run`."""
        return self._loop is not None and self._loop.is_closed()

    @property
    def runs_elsewhere(self) -> bool:
        """Whether the event loop is running in another thread."""
        if self._loop is None or self._loop is _running_loop() or self._process != os.getpid():
            return False
        return self._loop.is_running()

    def check(self) -> asyncio.AbstractEventLoop:
        """Return the event loop; raise `EventLoopError` if another one is running, or it is running in another thread.

        A loop that is not running can be used, because it runs no code at the same time.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        loop = self._loop
        if loop is None:
            loop = self._loop = running
        if loop is None:
            raise EventLoopError(f"{self._owner} needs a running event loop: use it in a coroutine")
        if loop is running:
            return loop
        if loop.is_closed():
            raise EventLoopError(
                f"{self._owner} belongs to an event loop that has ended, as at the end of asyncio.run: "
                "make another one on this event loop, or do all in one asyncio.run"
            )
        if running is None and not loop.is_running():
            return loop
        raise EventLoopError(
            f"{self._owner} belongs to another event loop: call coroutines there with "
            "asyncio.run_coroutine_threadsafe(coroutine, loop), and functions with loop.call_soon_threadsafe"
        )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
