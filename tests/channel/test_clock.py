"""The clock of a live channel follows the wall clock, but not a single wrong reading."""

from __future__ import annotations

import asyncio

import pytest

from fairway.channel import clock
from fairway.channel.creation import create_reliable_channel
from fairway.environment import Environment, set_environment
from fairway.events import MessageSending
from fairway.nodes.local import LocalNetwork
from fairway.testing import Machine, Process, run

SECOND = 1_000_000_000


class Clocks(Environment):
    """A wall clock and a monotonic clock in the test's hands."""

    def __init__(self):
        self.passed_ns = 0
        self.wall_ahead_ns = 1_760_000_000 * SECOND

    def time_ns(self):
        return self.passed_ns + self.wall_ahead_ns

    def monotonic_ns(self):
        return self.passed_ns


@pytest.fixture
def clocks():
    clocks = Clocks()
    set_environment(clocks)
    yield clocks
    set_environment(Environment())


def off_by_ms(now_ms, clocks):
    return now_ms() - clocks.time_ns() // 1_000_000


def test_a_wall_clock_that_is_ahead_for_a_moment_leaves_no_trace(clocks):
    now_ms = clock.steady_clock()
    before = now_ms()
    clocks.wall_ahead_ns += 86_400 * SECOND
    assert now_ms() == before
    clocks.wall_ahead_ns -= 86_400 * SECOND
    clocks.passed_ns += 3_600 * SECOND
    assert off_by_ms(now_ms, clocks) == 0


def test_a_wall_clock_that_was_set_forward_is_followed_once_it_has_lasted(clocks):
    now_ms = clock.steady_clock()
    clocks.wall_ahead_ns += 60 * SECOND
    assert off_by_ms(now_ms, clocks) == -60_000
    clocks.passed_ns += 10 * SECOND
    assert off_by_ms(now_ms, clocks) == 0


def test_a_wall_clock_that_is_behind_for_a_moment_is_right_again_at_once(clocks):
    now_ms = clock.steady_clock()
    clocks.wall_ahead_ns -= 60 * SECOND
    assert off_by_ms(now_ms, clocks) == 0
    clocks.passed_ns += SECOND
    clocks.wall_ahead_ns += 60 * SECOND
    assert off_by_ms(now_ms, clocks) == 0


def test_a_retry_that_was_planned_with_a_wrong_clock_is_sent_when_the_clock_is_right(seed):
    async def alone():
        machine = Machine(asyncio.get_running_loop(), skew_ms=3_600_000)
        tries = []

        async def speak():
            with LocalNetwork() as network:
                async with create_reliable_channel(network.node(), "quay", "alice", "/fairway/1/quay/proto") as alice:
                    alice.on(MessageSending, tries.append)
                    await asyncio.sleep(20)
                    await alice.send(b"is anybody there?")
                    await asyncio.sleep(1)
                    machine.skew_ms = 0
                    await asyncio.sleep(120)

        await Process("alice", machine).spawn(speak())
        return tries

    assert len(run(alone(), seed=seed)) > 1
