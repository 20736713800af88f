"""`run` and `virtual_time`: run a coroutine under virtual time, as `asyncio.run` does under real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from fairway.environment import set_environment
from fairway.testing.loop import Machine, VirtualLoop

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result], *, seed: int = 0) -> Result:
    """Run a coroutine to its end under virtual time and return its result.

    ``asyncio.sleep(3600)`` takes no time. ``seed`` draws the order of tasks and all random bytes: a run that fails
    with a seed fails with it again. Raises what the coroutine raises, `RuntimeError` for an error that no code awaited,
    `Deadlock` if all tasks wait and no timer is set, and `ForeignThread` if another thread calls the loop.
    """
    loop = VirtualLoop(seed)

    def on_a_machine() -> Result:
        set_environment(Machine(loop))
        try:
            result: Result = loop.run_until_complete(main)
            _cancel_others(loop)
        finally:
            # Closed first, so that no clean-up code of the coroutine hides its error.
            loop.close()
            main.close()
        for context in loop.errors:
            raise RuntimeError(str(context.get("message"))) from context.get("exception")
        return result

    return copy_context().run(on_a_machine)


def virtual_time(
    *, seed: int = 0
) -> Callable[[Callable[Arguments, Coroutine[Any, Any, Result]]], Callable[Arguments, Result]]:
    """Decorate an ``async def`` test: a test runner calls it like a function, and `run` runs it."""

    def decorate(test: Callable[Arguments, Coroutine[Any, Any, Result]]) -> Callable[Arguments, Result]:
        @wraps(test)
        def under_virtual_time(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            return run(test(*arguments, **named), seed=seed)

        return under_virtual_time

    return decorate


def _cancel_others(loop: VirtualLoop) -> None:
    """Cancel the tasks that the main coroutine left running, as `asyncio.run` does."""
    others = loop.tasks
    for task in others:
        task.cancel()
    if others:
        # Not `asyncio.wait`, because no other task may run meanwhile, as in `asyncio.run`.
        loop.run_until_complete(asyncio.gather(*others, return_exceptions=True))
