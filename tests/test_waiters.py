"""Waiting for the next change of an object."""

from __future__ import annotations

import asyncio

import pytest

from fairway.testing import run
from fairway.waiters import Waiters


def test_a_wake_wakes_the_tasks_that_wait_and_none_that_waits_later():
    async def story():
        waiters = Waiters()
        waiters.wake()
        present = [asyncio.ensure_future(waiters.wait()) for _ in range(2)]
        await asyncio.sleep(0.001)
        waiters.wake()
        await asyncio.wait_for(asyncio.gather(*present), 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiters.wait(), 1)

    run(story())


@pytest.mark.parametrize("wakes_first", [True, False])
def test_a_cancelled_wait_ends_and_the_others_are_woken(wakes_first):
    async def story():
        waiters = Waiters()
        cancelled, other = (asyncio.ensure_future(waiters.wait()) for _ in range(2))
        await asyncio.sleep(0.001)
        cancelled.cancel()
        if not wakes_first:
            await asyncio.sleep(0.001)
        waiters.wake()
        await asyncio.wait_for(other, 1)
        assert cancelled.cancelled()

    run(story())
