"""Waits for conditions, with one bound for all tests that is long enough for a slow machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

PATIENCE_S = 120.0
"""Time after which a step counts as hung, even on a slow machine."""


async def until(condition: Callable[..., object], what: Callable[[], object] | str = "a condition") -> None:
    """Wait until a condition holds; raise `AssertionError` with ``what`` after `PATIENCE_S`."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - states of several parts that have no event in common
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"waited {PATIENCE_S} s in vain for {what() if callable(what) else what}") from None


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a test's coroutine; the bound is four times that of `until`, whose error names the condition."""
    return asyncio.run(asyncio.wait_for(work, 4 * PATIENCE_S))
