"""When a process is told to stop: by a signal, or because nobody holds the other end of its standard input."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from fairway.cli._until_stopped import stop_event
from patience import PATIENCE_S


async def stopped(*, until_stdin_closes, act=lambda: None):
    async with stop_event(until_stdin_closes=until_stdin_closes) as event, asyncio.timeout(PATIENCE_S):
        act()
        await event.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops(number):
    asyncio.run(stopped(until_stdin_closes=False, act=lambda: os.kill(os.getpid(), number)))


def test_the_end_of_standard_input_stops(monkeypatch):
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        os.write(writing, b"not the end")
        asyncio.run(stopped(until_stdin_closes=True, act=lambda: os.close(writing)))


@pytest.mark.parametrize("how", ["none", "closed"])
def test_a_process_without_standard_input_that_waits_for_its_end_stops(monkeypatch, how):
    stdin = None
    if how == "closed":
        reading, writing = os.pipe()
        os.close(writing)
        stdin = os.fdopen(reading)
        stdin.close()
    monkeypatch.setattr(sys, "stdin", stdin)
    asyncio.run(stopped(until_stdin_closes=True))


def test_a_process_without_standard_input_that_does_not_ask_for_it_goes_on(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)

    async def work():
        async with stop_event() as event:
            for _ in range(100):
                await asyncio.sleep(0)
            assert not event.is_set()

    asyncio.run(work())
