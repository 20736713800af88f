"""Messages of the time offline, and the queries to the store for them (RELIABLE-CHANNEL-API, "Query on connect")."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairway.channel.creation import create_reliable_channel
from fairway.events import Limit, LimitReached
from fairway.nodes.node import RoutedMessage
from fairway.options import Advanced
from fairway.testing import DiskFaults, SimulatedDisk
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage
from groups import in_group
from slow_cipher import SlowCipher

TOPIC = "/fairway/1/harbour/proto"
NO_RETRIES = {"retry_interval_ms": 0, "sync_min_interval_ms": 0}


async def _miss(group, count):
    """Let alice and bob meet, then let alice send so many messages that bob, who is offline, does not hear."""
    alice, bob = await group.channel("alice"), await group.channel("bob")
    stream = aiter(bob)
    await alice.send(b"you are here")
    await anext(stream)
    await group.until(lambda: bob.statistics().store_queries >= 1)
    group.nodes["bob"].go_offline()
    await asyncio.sleep(0.01)
    for number in range(count):
        await (await alice.send(str(number).encode())).sent()
    return alice, bob, stream


@in_group(**NO_RETRIES, retrieve_frequency_ms=0)
async def test_a_long_time_offline_is_read_whole_and_delivered_in_order(group):
    _, bob, stream = await _miss(group, 350)
    before = bob.statistics().store_queries
    group.nodes["bob"].go_online()
    assert await group.take(stream, 350) == [str(number).encode() for number in range(350)]
    assert bob.statistics().store_queries - before <= 10, "by pages, not by single hashes"


@in_group(**NO_RETRIES, retrieve_frequency_ms=0)
async def test_reading_the_time_offline_stops_when_no_message_is_missing(group):
    alice, bob, stream = await _miss(group, 20)
    for number in range(300):
        # Older than the gap in nothing but time: of another channel on the same topic.
        message = WakuMessage(payload=b"\x00%d" % number, content_topic=TOPIC, timestamp_ns=1_000 + number)
        routed = RoutedMessage.of(autoshard(TOPIC, 1, 8), message)
        await group.nodes["alice"].send(routed)
    before = bob.statistics().store_queries
    group.nodes["bob"].go_online()
    assert len(await group.take(stream, 20)) == 20
    await asyncio.sleep(0.05)
    # The page, the same again to be sure that it was the last, and what a store that is behind lacked before.
    assert bob.statistics().store_queries - before == 3
    assert alice.is_started()


@in_group(**NO_RETRIES)
async def test_a_missing_message_is_fetched_by_its_hint(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    stream = aiter(bob)
    group.network.partition({"alice"}, {"bob"})
    await (await alice.send(b"missed")).sent()
    group.network.heal()
    await alice.send(b"after it")
    assert await group.take(stream, 2) == [b"missed", b"after it"]
    assert bob.statistics().retrieved >= 1


# A message in 20 ms, and a write takes 100 ms: at no time is nothing under way.
@in_group(**NO_RETRIES, retrieve_frequency_ms=0)
async def test_the_time_offline_is_read_while_messages_arrive_faster_than_the_disk_writes(group):
    with SimulatedDisk() as disk:
        disk.faults = DiskFaults(latency_ms=(50.0, 50.0), answer_ms=(50.0, 50.0))
        alice, bob = await group.channel("alice"), await group.channel("bob", store=disk.store("bob"))
        await group.until(lambda: bob.statistics().store_queries >= 1)
        group.nodes["bob"].go_offline()
        for number in range(250):
            await (await alice.send(str(number).encode())).sent()
        group.nodes["bob"].go_online()

        async def talk():
            while True:
                await alice.send(b"and on")
                await asyncio.sleep(0.02)

        talking = asyncio.create_task(talk())
        stream = aiter(bob)
        heard = []
        async with asyncio.timeout(60):
            while b"249" not in heard:
                heard += await group.take(stream, 1)
        assert [each for each in heard if each != b"and on"] == [str(number).encode() for number in range(250)]
        talking.cancel()
        await bob.close()


@in_group(advanced=Advanced(max_store_queries_per_minute=2))
async def test_store_queries_have_a_limit_and_reaching_it_is_an_event(group):
    bob = await group.channel("bob")
    told = []
    bob.on(LimitReached, told.append)
    for _ in range(3):
        await group.until(lambda: not told or True)
        group.nodes["bob"].go_offline()
        await asyncio.sleep(0.02)
        group.nodes["bob"].go_online()
        await asyncio.sleep(0.02)
    await group.until(lambda: bool(told))
    assert told == [LimitReached(limit=Limit.STORE_QUERIES, bound=2)]
    assert bob.statistics().store_queries == 2


@in_group()
async def test_a_slow_reader_stops_the_channel_from_receiving_and_loses_nothing(group):
    alice = await group.channel("alice")
    bob = await create_reliable_channel(
        group.network.node("bob"), "harbour", "bob", TOPIC, options=replace(group.options, max_unread_messages=5)
    )
    async with bob:
        told = []
        bob.on(LimitReached, told.append)
        for number in range(40):
            await (await alice.send(str(number).encode())).sent()
        await group.until(lambda: bool(told))
        assert told[0] == LimitReached(limit=Limit.UNREAD_MESSAGES, bound=5)
        assert bob.statistics().unfinished == 5
        assert await group.take(aiter(bob), 40) == [str(number).encode() for number in range(40)]


@pytest.mark.parametrize("cipher", [None, SlowCipher()], ids=["no cipher", "awaited cipher"])
@in_group()
async def test_messages_from_a_store_wait_for_a_slow_reader(group, cipher):
    alice = await group.channel("alice", encryption=cipher)
    for number in range(250):
        await (await alice.send(str(number).encode())).sent()
    options = replace(group.options, max_unread_messages=5)
    bob = await group.channel("bob", encryption=cipher, options=options)
    most = 0
    for _ in range(100):
        await asyncio.sleep(0.02)
        most = max(most, bob.statistics().unfinished)
    assert most == 5
    stream = aiter(bob)
    for number in range(250):
        assert (await anext(stream)).payload == str(number).encode()
        most = max(most, bob.statistics().unfinished)
    assert most == 5


@in_group(sync_min_interval_ms=3_600_000)
async def test_an_acknowledgement_that_got_lost_is_found_in_the_store_when_its_author_is_gone(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    receipt = await alice.send(b"read me and go")
    await group.take(aiter(bob), 1)
    group.network.partition({"alice"}, {"bob"})
    await bob.close()
    group.network.heal()
    assert (await receipt.delivered()).delivered_to == ("bob",)
