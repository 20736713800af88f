"""Stores that refuse long times, as newer versions of nwaku do, and stores that refuse some times for good."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairway.errors import StoreRefusedError
from fairway.events import ChannelStatus, StoreRefused
from fairway.nodes.local import LocalNetwork
from fairway.nodes.node import StorePage
from fairway.options import Advanced, Delivery, ReliableChannelOptions
from fairway.testing import virtual_time
from fairway.units import NS_PER_MS
from listening import heard_by, join, listen

DAY_S, HOUR_S = 86_400, 3_600
HOUR_NS = 3_600_000_000_000
QUIET = ReliableChannelOptions(retry_interval_ms=0, sync_min_interval_ms=0)
"""Each message is sent once, and nothing else is."""


class Refusing(LocalNetwork):
    """A network whose store refuses ranges longer than it allows; messages of some times are too long to read."""

    def __init__(self, *, longest_ns=24 * HOUR_NS):
        super().__init__()
        self.longest_ns = longest_ns
        self.too_long_ns = set()
        self.refuses_all = False
        self.asked = []

    def answer(self, asker, query, cursor):
        self.asked.append(query)
        start_ns, end_ns = query.start_ns, query.end_ns
        if start_ns is not None and end_ns is not None and end_ns - start_ns > self.longest_ns:
            raise StoreRefusedError("400 time range exceeds 24h")
        if self.refuses_all and not query.message_hashes:
            raise StoreRefusedError("400 no")
        page = super().answer(asker, query, cursor)
        return page if query.message_hashes else self._before_too_long(page, newest_first=query.newest_first)

    def _before_too_long(self, page, *, newest_first):
        """Return what is on a page before a message that cannot be read."""
        ordered = page.messages[::-1] if newest_first else page.messages
        places = [place for place, one in enumerate(ordered) if one.message.timestamp_ns in self.too_long_ns]
        if not places:
            return page
        if not places[0]:
            raise StoreRefusedError("one message is longer than 16777216 bytes")
        some = ordered[: places[0]]
        return StorePage(messages=some[::-1] if newest_first else some, cursor=some[-1].message_hash)


async def say_something_each(network, name, interval_s, count):
    """Let a participant say something at intervals, alone, and leave."""
    async with join(network, name, options=QUIET) as channel:
        for number in range(count):
            await (await channel.send(b"%d" % number)).sent()
            await asyncio.sleep(interval_s)


async def newcomer(network, *, seconds, options=QUIET):
    """Return what a newcomer hears in a while, the times that its store refused, and its status in the end."""
    refused = []
    async with join(network, "bob", options=options) as channel:
        heard = heard_by(channel)
        channel.on(StoreRefused, refused.append)
        await asyncio.sleep(seconds)
        return heard, refused, channel.status


@pytest.mark.parametrize("longest_h", [24, 6, 1])
@virtual_time()
async def test_a_newcomer_reads_thirty_days_from_a_store_that_refuses_long_times(longest_h):
    with Refusing(longest_ns=longest_h * HOUR_NS) as network:
        await say_something_each(network, "alice", 7 * HOUR_S, 60)
        network.asked.clear()
        heard, refused, status = await newcomer(network, seconds=4 * HOUR_S)
        assert heard == [b"%d" % number for number in range(60)]
        assert (refused, status) == ([], ChannelStatus.SYNCED)
        lengths = [query.end_ns - query.start_ns for query in network.asked if query.end_ns is not None]
        assert max(lengths) <= 24 * HOUR_NS


@virtual_time()
async def test_with_delivery_on_arrival_the_newest_day_does_not_wait_for_the_days_before_and_all_is_read():
    with Refusing() as network:
        await say_something_each(network, "alice", 7 * HOUR_S, 60)
        network.asked.clear()
        options = replace(QUIET, delivery=Delivery.ARRIVAL)
        heard, refused, status = await newcomer(network, seconds=4 * HOUR_S, options=options)
        assert {b"57", b"58", b"59"} < set(heard[:4])
        assert sorted(map(int, heard)) == list(range(60))
        assert (refused, status) == ([], ChannelStatus.SYNCED)
        assert all(query.end_ns - query.start_ns <= 24 * HOUR_NS for query in network.asked if query.end_ns is not None)


@virtual_time()
async def test_a_restarted_participant_continues_to_read_where_it_stopped(tmp_path):
    with Refusing() as network:
        await say_something_each(network, "alice", 5 * HOUR_S, 40)
        heard = []
        options = replace(QUIET, advanced=Advanced(max_store_queries_per_minute=2))
        asked = []
        for life_s in (300, HOUR_S):
            network.asked.clear()
            async with join(network, "bob", options=options, store=tmp_path / "bob") as channel:
                listen(channel, lambda event: heard.append(event.payload))
                await asyncio.sleep(life_s)
            asked.append([query.start_ns for query in network.asked if query.start_ns is not None])
            assert heard
        assert heard == [b"%d" % number for number in range(40)]
        # A minute before what was read, since clocks differ.
        assert asked[1][0] >= max(asked[0]) - 24 * HOUR_NS - 60_000 * NS_PER_MS


@virtual_time()
async def test_a_time_that_a_store_always_refuses_is_an_event_and_the_rest_is_read():
    with Refusing() as network:
        await say_something_each(network, "alice", 7 * HOUR_S, 20)
        times_ns = sorted(message.message.timestamp_ns or 0 for message in network.stored())
        network.too_long_ns = {times_ns[3], times_ns[-1]}
        heard, refused, status = await newcomer(network, seconds=2 * HOUR_S)
        # The fourth message is found by its hash, because the fifth one cites it. The last one is missing.
        assert heard == [b"%d" % number for number in range(19)]
        assert len(refused) == 2
        for event, at_ns in zip(refused, sorted(network.too_long_ns), strict=True):
            assert event.is_left_out
            assert event.start_ms <= at_ns // NS_PER_MS < event.end_ms <= event.start_ms + 1_001
            assert "longer than 16777216 bytes" in event.detail
        assert status is ChannelStatus.SYNCED


@virtual_time()
async def test_a_store_that_refuses_everything_is_queried_until_it_answers():
    with Refusing() as network:
        await say_something_each(network, "alice", 7 * HOUR_S, 20)
        network.refuses_all = True
        async with join(network, "bob", options=QUIET) as bob:
            heard, refused = heard_by(bob), []
            bob.on(StoreRefused, refused.append)
            await asyncio.sleep(HOUR_S)
            assert [event.is_left_out for event in refused] == [True, False]
            assert (heard, bob.status) == ([], ChannelStatus.SYNCING)
            network.refuses_all = False
            await asyncio.sleep(HOUR_S)
            assert heard == [b"%d" % number for number in range(20)]
            assert bob.status is ChannelStatus.SYNCED
