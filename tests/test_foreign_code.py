"""`ForeignCode`: which exceptions keep their meaning around code of an application."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from fairway.errors import ForeignCodeError
from fairway.foreign_code import ForeignCode, call_in_thread
from fairway.testing import virtual_time


async def for_ever():
    await asyncio.Event().wait()


def raise_it(error):
    raise error


async def guarded(work):
    with ForeignCode("the hook"):
        return await work


@virtual_time()
async def test_a_cancellation_of_the_task_itself_passes():
    task = asyncio.ensure_future(guarded(for_ever()))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


@virtual_time()
async def test_a_time_limit_around_foreign_code_ends_it():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await guarded(for_ever())


@virtual_time()
async def test_a_cancellation_of_something_that_foreign_code_awaits_is_an_error_with_its_cause():
    shared = asyncio.ensure_future(for_ever())
    task = asyncio.ensure_future(guarded(shared))
    await asyncio.sleep(1)
    shared.cancel()
    with pytest.raises(ForeignCodeError, match=r"^the hook raised CancelledError\(\)$") as caught:
        await task
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), ValueError("x"), KeyError("y")], ids=repr)
def test_ordinary_errors_and_exits_pass_unchanged(error):
    with pytest.raises(type(error)) as caught, ForeignCode("the hook"):
        raise error
    assert caught.value is error


def test_a_garbage_collected_coroutine_reports_nothing():
    async def leave_behind():
        asyncio.ensure_future(guarded(asyncio.get_running_loop().create_future()))  # noqa: RUF006 - it is left behind
        await asyncio.sleep(0)

    ignored = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.run_until_complete(leave_behind())
    loop.close()
    with warnings.catch_warnings(record=True, action="always"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", ignored.append)
        del loop
        gc.collect()
    assert ignored == []


@pytest.mark.parametrize(
    "error", [StopIteration(), asyncio.CancelledError(), GeneratorExit(), ValueError("x")], ids=repr
)
def test_an_error_in_a_thread_reaches_the_caller(error):
    async def work():
        with ThreadPoolExecutor(1) as thread:
            async with asyncio.timeout(30):
                assert await call_in_thread(thread, "the prover", threading.get_ident) != threading.get_ident()
                with pytest.raises((ForeignCodeError, ValueError), match=r"x|the prover raised"):
                    await call_in_thread(thread, "the prover", raise_it, error)

    asyncio.run(work())
