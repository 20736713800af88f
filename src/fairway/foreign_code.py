"""`ForeignCode`: whatever foreign code raises is an ordinary exception.

Foreign code is what an application, a node or a store brings: handlers, ciphers, proof providers, callbacks. asyncio
raises `CancelledError` in a task that is cancelled. The same exception comes out of foreign code that awaits something
that was cancelled for its own reasons, and would end the task that called it. No `except Exception` catches it.

Three exceptions keep their meaning: a cancellation of the calling task itself, and `KeyboardInterrupt` and
`SystemExit`, which end the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from types import TracebackType
from typing import ParamSpec, TypeVar

from fairway.errors import ForeignCodeError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class ForeignCode:
    """A context manager around a call or an ``await`` of foreign code.

    It raises `ForeignCodeError` in place of a `CancelledError` that is no cancellation of this task, of any other
    exception that is no `Exception`, and of `StopIteration` and `StopAsyncIteration`, which would end a loop.
    """

    __slots__ = ("_cancellations", "_name", "_task")

    def __init__(self, name: str) -> None:
        """``name`` stands in the text of the error, such as ``the node's query``."""
        self._name = name

    def __enter__(self) -> None:
        self._task = _current_task()
        self._cancellations = 0 if self._task is None else self._task.cancelling()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        match error:
            case None | KeyboardInterrupt() | SystemExit():
                return
            case StopIteration() | StopAsyncIteration():
                pass
            case Exception():
                return
            case asyncio.CancelledError():
                if self._task is not None and self._task.cancelling() > self._cancellations:
                    return
            case GeneratorExit():
                # Python raises it in a coroutine that ends unfinished, which then is not what runs.
                if _current_task() is not self._task:
                    return
        raise ForeignCodeError(f"{self._name} raised {error!r}") from error


async def call_in_thread(
    thread: Executor | None,
    name: str,
    function: Callable[_Arguments, _Result],
    *arguments: _Arguments.args,
    **named: _Arguments.kwargs,
) -> _Result:
    """Call foreign code in a thread, by default one of the event loop, inside `ForeignCode`.

    asyncio cannot pass a `StopIteration` on from a thread: a task that awaits such a call waits without end.
    """

    def called() -> _Result:
        with ForeignCode(name):
            return function(*arguments, **named)

    context = copy_context()
    with ForeignCode(name):
        return await asyncio.get_running_loop().run_in_executor(thread, lambda: context.run(called))


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
