"""Tasks that belong to somebody: started, looked after, and ended with their owner.

Invariants: the event loop forgets a task that nobody holds, so each is held until it ends; what a task raises is told
when it ends, not when it happens to be collected; after `OwnedTasks.close` none is left, not even one that another one
started while it was being cancelled. They are cancelled in the order in which they were started, for a run to be the
same when it is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final


class OwnedTasks:
    """The tasks of one owner."""

    def __init__(self, *, failed: Callable[[BaseException], None] | None = None) -> None:
        """``failed`` is told what a task raises, in place of the event loop's exception handler."""
        self._failed: Final = report if failed is None else failed
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __len__(self) -> int:
        """Return how many have not ended."""
        return len(self._tasks)

    def __contains__(self, task: object) -> bool:
        """Return whether a task is one of them, and has not ended."""
        return task in self._tasks

    def spawn(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        """Run something until it ends or is cancelled, at the latest by `close`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def wait(self) -> None:
        """Wait until all have ended by themselves."""
        while others := self._others():
            await asyncio.wait(others)

    async def close(self) -> None:
        """Cancel all and wait for their end. May be called twice, and by a task of its own, which then goes on."""
        while others := self._others():
            for task in others:
                task.cancel()
            await asyncio.wait(others)

    def _others(self) -> list[asyncio.Task[Any]]:
        current = asyncio.current_task()
        return [task for task in self._tasks if task is not current]

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)


def report(error: BaseException) -> None:
    """Have the running event loop's exception handler tell of an error that nobody waits for."""
    asyncio.get_running_loop().call_exception_handler({"message": "a task failed unforeseen", "exception": error})
