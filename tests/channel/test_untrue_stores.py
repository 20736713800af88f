"""A store that returns wrong answers or is behind delays messages, and loses none."""

from __future__ import annotations

import asyncio
import random

import pytest

from fairway.nodes import StoreQuery
from fairway.nodes.local import LocalNetwork, NetworkFaults
from fairway.nodes.local.lies import Lie, false_page
from fairway.testing import virtual_time
from listening import heard_by, join

HOUR_S = 3_600
PAYLOADS = [b"message %d" % number for number in range(250)]
"""Three pages, and more."""
ALL = StoreQuery()


class ChosenLies(LocalNetwork):
    """A network whose store lies in one way, as often as it is told to, and then no more."""

    def __init__(self, lie, answers):
        super().__init__()
        self._lie, self._false = lie, set(answers)
        self.asked = 0

    def answer(self, asker, query, cursor):
        page = super().answer(asker, query, cursor)
        self.asked += 1
        if self.asked not in self._false:
            return page
        lie, dice = self._lie, random.Random(self.asked)
        setattr(dice, "choice", lambda _: lie)  # noqa: B010 - a method, which no assignment may replace
        return false_page(
            page, query, cursor, anything=lambda: super(ChosenLies, self).answer(asker, ALL, None).messages, dice=dice
        )


async def heard_within(channel, seconds):
    """Return the payloads of all that a channel delivers in a while."""
    heard = heard_by(channel)
    await asyncio.sleep(seconds)
    return heard


async def say_and_leave(network, name, payloads):
    async with join(network, name) as channel:
        receipts = [await channel.send(payload) for payload in payloads]
        for receipt in receipts:
            await receipt.sent()


@pytest.mark.parametrize("answers", [(1, 3, 5), pytest.param((2, 4, 6), marks=pytest.mark.full)], ids=str)
@pytest.mark.parametrize("lie", [Lie.ENDS_EARLY, Lie.REPEATS, Lie.ADDS, Lie.FORGES])
@virtual_time()
async def test_messages_of_the_time_offline_arrive_from_a_store_that_lied_at_first(lie, answers):
    with ChosenLies(lie, answers) as network:
        await say_and_leave(network, "alice", PAYLOADS)
        # Nobody is left who could cite what is missing.
        async with join(network, "bob") as bob:
            assert await heard_within(bob, HOUR_S) == PAYLOADS
        assert network.asked < 30


@pytest.mark.parametrize("lag_s", [30, 150, 550])
@virtual_time()
async def test_a_message_that_entered_the_store_late_arrives_in_the_end(lag_s):
    with LocalNetwork(NetworkFaults(min_delay_ms=0, max_delay_ms=0, store_lag_ms=lag_s * 1_000)) as network:
        await say_and_leave(network, "alice", PAYLOADS[:30])
        async with join(network, "bob") as bob:
            assert await heard_within(bob, HOUR_S) == PAYLOADS[:30]
