"""Waiting without a clock: for conditions, with one bound for all tests that only tells a hang from a slow machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

PATIENCE_S = 120.0
"""How long one step may take before it counts as hung, however slow the machine is."""


async def until(condition: Callable[..., object], what: Callable[[], object] | str = "a condition") -> None:
    """Wait until something is so; fails, with what was waited for, if it never is."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - states of several parts that have no event in common
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"waited {PATIENCE_S} s in vain for {what() if callable(what) else what}") from None


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a test's coroutine; the bound leaves it to the waits within to say what hangs."""
    return asyncio.run(asyncio.wait_for(work, 4 * PATIENCE_S))
