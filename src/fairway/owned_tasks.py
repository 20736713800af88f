"""`OwnedTasks`: tasks that end with their owner.

asyncio may drop a task without references, so `OwnedTasks` references each until it ends. It reports an exception when
the task ends, not when the task is garbage-collected. It also reports a cancellation that the owner did not request, of
the task or of an awaited one. `OwnedTasks.close` ends all tasks, including those that a task starts while it is being
cancelled. Tasks are cancelled in the order of their start, so runs are reproducible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fairway.errors import ForeignCodeError

Failed = Callable[[BaseException], None]


class OwnedTasks:
    """The tasks of one owner."""

    def __init__(self, *, failed: Failed | None = None) -> None:
        """``failed`` receives each exception of a task; the default is the exception handler of the event loop."""
        self._failed: Final = report if failed is None else failed
        self._tasks: dict[asyncio.Task[Any], Failed] = {}
        """The function to call on failure, by task."""
        self._cancelled: set[asyncio.Task[Any]] = set()
        """Tasks that the owner has cancelled."""

    def __len__(self) -> int:
        """Return the number of tasks that have not ended."""
        return len(self._tasks)

    def __contains__(self, task: object) -> bool:
        """Return whether a task belongs to this owner and has not ended."""
        return task in self._tasks

    def spawn(
        self, work: Coroutine[Any, Any, None], name: str | None = None, *, failed: Failed | None = None
    ) -> asyncio.Task[None]:
        """Start a task; `cancel` and `close` cancel it. ``failed`` replaces the owner's function for this task."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = failed or self._failed
        task.add_done_callback(self._ended)
        return task

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task, unless it has ended."""
        if task in self._tasks:
            self._cancelled.add(task)
            task.cancel()

    async def wait(self) -> None:
        """Wait until all tasks have ended."""
        while others := self._others():
            await asyncio.wait(others)

    async def close(self) -> None:
        """Cancel all tasks and wait for their end; repeated calls are allowed. The calling task is not cancelled."""
        while others := self._others():
            for task in others:
                self.cancel(task)
            await asyncio.wait(others)

    def _others(self) -> list[asyncio.Task[Any]]:
        current = asyncio.current_task()
        return [task for task in self._tasks if task is not current]

    def _ended(self, task: asyncio.Task[Any]) -> None:
        failed = self._tasks.pop(task)
        was_cancelled = task in self._cancelled
        self._cancelled.discard(task)
        if not task.cancelled():
            error = task.exception()
        elif was_cancelled or _ended_with_its_loop(task):
            error = None
        else:
            work = getattr(task.get_coro(), "__qualname__", task.get_name())
            error = ForeignCodeError(f"{work} has ended: other code cancelled its task, or something that it awaited")
        if error is not None:
            failed(error)


def report(error: BaseException) -> None:
    """Pass an error to the exception handler of the running event loop."""
    asyncio.get_running_loop().call_exception_handler({"message": "a task failed", "exception": error})


def _ended_with_its_loop(task: asyncio.Task[Any]) -> bool:
    """Return whether all tasks are being cancelled, as at the end of `asyncio.run`."""
    return bool(task.cancelling()) and all(other.cancelling() for other in asyncio.all_tasks(task.get_loop()))
