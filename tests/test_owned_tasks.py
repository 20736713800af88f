"""Tasks with an owner: none is lost, none outlives it, and what they raise is told."""

from __future__ import annotations

import asyncio

import pytest

from fairway.errors import ForeignCodeError
from fairway.owned_tasks import OwnedTasks
from patience import PATIENCE_S, until


async def for_ever():
    await asyncio.Event().wait()


async def fail(error):
    raise error


def run(story):
    async def alone():
        async with asyncio.timeout(PATIENCE_S):
            await story
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(alone())


def test_tasks_are_cancelled_in_the_order_in_which_they_were_started():
    async def story():
        ended = []

        async def note(number):
            try:
                await for_ever()
            finally:
                ended.append(number)

        tasks = OwnedTasks()
        for number in range(50):
            tasks.spawn(note(number))
        await asyncio.sleep(0)
        await tasks.close()
        assert ended == list(range(50))

    run(story())


def test_a_task_started_during_a_cancellation_is_cancelled_too():
    async def story():
        tasks = OwnedTasks()

        async def parent():
            try:
                await for_ever()
            finally:
                tasks.spawn(for_ever())

        tasks.spawn(parent())
        await asyncio.sleep(0)
        await tasks.close()
        assert len(tasks) == 0

    run(story())


def test_an_error_of_a_task_is_reported_once_and_a_cancellation_is_not():
    async def story():
        told = []
        tasks = OwnedTasks(failed=told.append)
        error = ValueError("unforeseen")
        tasks.spawn(fail(error))
        tasks.spawn(for_ever())
        await until(lambda: told)
        assert told == [error]
        await tasks.close()
        assert told == [error]

    run(story())


def test_only_a_cancellation_by_others_than_the_owner_is_reported():
    async def story():
        told = []
        tasks = OwnedTasks(failed=told.append)
        own, cancelled, shared = tasks.spawn(for_ever()), tasks.spawn(for_ever()), asyncio.ensure_future(for_ever())

        async def share():
            await shared

        sharing = tasks.spawn(share())
        await asyncio.sleep(0)
        tasks.cancel(own)
        cancelled.cancel()
        shared.cancel()
        await asyncio.wait([own, cancelled, sharing])
        assert [type(error) for error in told] == [ForeignCodeError, ForeignCodeError]
        assert "for_ever has ended: other code cancelled its task" in str(told[0])

    run(story())


def test_the_end_of_asyncio_run_is_not_reported():
    told = []

    async def story():
        tasks = OwnedTasks(failed=told.append)
        for _ in range(3):
            tasks.spawn(for_ever())
        await asyncio.sleep(0)

    asyncio.run(story())
    assert told == []


def test_a_task_that_closes_its_owner_is_not_cancelled():
    async def story():
        tasks, went_on = OwnedTasks(), []

        async def closing():
            await tasks.close()
            went_on.append(len(tasks))

        other = tasks.spawn(for_ever())
        await tasks.spawn(closing())
        assert other.cancelled()
        assert went_on == [1]

    run(story())


def test_a_cancelled_close_raises_and_the_tasks_still_end():
    async def story():
        release = asyncio.Event()

        async def stubborn():
            try:
                await for_ever()
            finally:
                await release.wait()

        tasks = OwnedTasks()
        tasks.spawn(stubborn())
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tasks.close(), 0.02)
        release.set()
        await tasks.wait()
        assert len(tasks) == 0

    run(story())
