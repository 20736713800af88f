"""`ForeignCode` and `as_exception`: convert unusual exceptions of foreign code to `ForeignCodeError`.

Foreign code is code of an application, a node or a store: handlers, ciphers, proof providers, callbacks. asyncio raises
`CancelledError` in a cancelled task. Foreign code raises the same exception if it awaits another task that was
cancelled. `except Exception` does not catch it, so it would end the calling task.

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

    It raises `ForeignCodeError` for three kinds of exceptions: a `CancelledError` without a cancellation of this task,
    any other exception outside `Exception`, and `StopIteration` or `StopAsyncIteration`, which would end a loop.
    """

    __slots__ = ("_cancellations", "_name", "_task")

    def __init__(self, name: str) -> None:
        """``name`` is the name of the code in the error text, such as ``the node's query``."""
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
                # Python raises it to close an unfinished coroutine; another task, or none, is then running.
                if _current_task() is not self._task:
                    return
        raise ForeignCodeError(f"{self._name} raised {error!r}") from error


def as_exception(name: str, error: BaseException) -> Exception:
    """Return what foreign code raised in a call without ``await``: an unusual exception as `ForeignCodeError`.

    Raises `KeyboardInterrupt` and `SystemExit` again. `ForeignCode` does the same around an ``await``.
    """
    match error:
        case KeyboardInterrupt() | SystemExit():
            raise error
        case Exception() if not isinstance(error, StopIteration | StopAsyncIteration):
            return error
    unusual = ForeignCodeError(f"{name} raised {error!r}")
    unusual.__cause__ = error
    return unusual


async def call_in_thread(
    thread: Executor | None,
    name: str,
    function: Callable[_Arguments, _Result],
    *arguments: _Arguments.args,
    **named: _Arguments.kwargs,
) -> _Result:
    """Call foreign code in a thread, by default one of the event loop, inside `ForeignCode`.

    asyncio cannot transfer a `StopIteration` from a thread: a task that awaits such a call waits forever.
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
