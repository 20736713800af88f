"""`Waiters`: the tasks that wait for the next change of an object."""

from __future__ import annotations

import asyncio


class Waiters:
    """Tasks that `wake` wakes. A wake without waiting tasks has no effect, and costs almost nothing."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        except BaseException:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            raise

    def wake(self) -> None:
        """Wake the tasks that wait now."""
        if not self._waiting:
            return
        woken, self._waiting = self._waiting, []
        for waiting in woken:
            if not waiting.done():
                waiting.set_result(None)
