"""`OwnedTasks`: tasks that end with their owner.

asyncio may drop a task without references, so each is held until it ends. An exception is reported when its task ends,
not when the task is collected as garbage. After `OwnedTasks.close` no task is left, not even one that another started
while it was being cancelled. Tasks are cancelled in the order of their start, so that a repeated run is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final


class OwnedTasks:
    """The tasks of one owner."""

    def __init__(self, *, failed: Callable[[BaseException], None] | None = None) -> None:
        """``failed`` is called with what a task raises, by default the exception handler of the event loop."""
        self._failed: Final = report if failed is None else failed
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __len__(self) -> int:
        """Return how many tasks have not ended."""
        return len(self._tasks)

    def __contains__(self, task: object) -> bool:
        """Return whether a task belongs to this owner and has not ended."""
        return task in self._tasks

    def spawn(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        """Start a task; `close` cancels it."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def wait(self) -> None:
        """Wait until all tasks have ended by themselves."""
        while others := self._others():
            await asyncio.wait(others)

    async def close(self) -> None:
        """Cancel all tasks and wait for their end. Can be called twice; a task that calls it is not cancelled."""
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
    """Pass an error to the exception handler of the running event loop."""
    asyncio.get_running_loop().call_exception_handler({"message": "a task failed", "exception": error})
