"""What the tests of the asyncio drivers share: a bounded run that leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc

import pytest

from patience import PATIENCE_S


@pytest.fixture(scope="package")
def _without_garbage():
    """Leave to no test here what those of other folders left behind."""
    gc.collect()


@pytest.fixture
def run(_without_garbage):
    """Run a coroutine to its end in bounded time; every task and socket of it must be gone by then."""
    # The search for garbage at the end is for that of this test: a process has a million other objects by then, which
    # took more time than the tests themselves.
    gc.freeze()

    async def bounded(work):
        async with asyncio.timeout(4 * PATIENCE_S):  # the waits within say what hangs
            result = await work
        # Transports that were closed are taken apart in the next turns of the event loop.
        for _ in range(3):
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"
        return result

    def run_to_the_end(work):
        result = asyncio.run(bounded(work))
        # A socket or transport that nobody closed warns when it is collected, and warnings are errors here.
        gc.collect()
        return result

    return run_to_the_end
