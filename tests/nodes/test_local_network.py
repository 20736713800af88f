"""A network inside one process: relay, store, health, and every fault on request."""

from __future__ import annotations

import asyncio

import pytest

from fairway.errors import ConfigurationError, NodeUnavailableError, StoreQueryError
from fairway.nodes import NodeHealth, NodeQuota, SendResult, StoreQuery
from fairway.nodes.local import NO_FAULTS, LocalNetwork, NetworkFaults
from fairway.testing import run


def story_of(story, *args, **options):
    """Run a story in a network of its own, under virtual time, and return what it returns."""

    async def whole():
        with LocalNetwork(*args, **options) as network:
            return await story(network)

    return run(whole())


def test_without_faults_a_message_is_there_when_send_returns(say):
    async def story(network):
        alice, bob = network.node("alice"), network.node("bob")
        heard = await say.listen(bob)
        turns = []
        asyncio.get_running_loop().call_soon(turns.append, "another turn")
        result = await alice.send(say.message(1))
        assert result == SendResult(accepted=True)
        assert say.payloads(heard.take()) == [b"message 1"]
        assert turns == []

    story_of(story)


def test_everybody_else_who_asked_for_it_hears_a_message_and_nobody_else(say):
    async def story(network):
        alice, bob, carol = network.node("alice"), network.node("bob"), network.node("carol")
        own, other = await say.listen(alice), await say.listen(bob)
        elsewhere = await say.listen(carol, "/other/1/topic/proto")
        another_shard = await carol.subscribe("/waku/2/rs/1/1", [say.topic])
        await alice.send(say.message(1))
        assert [len(each) for each in (own, other, elsewhere, another_shard)] == [0, 1, 0, 0]

    story_of(story)


def test_loss_and_duplication_are_counted_and_repeat_with_the_seed(say):
    async def story(network):
        alice = network.node("alice")
        heard = [await say.listen(network.node()) for _ in range(3)]
        for number in range(300):
            await alice.send(say.message(number))
        return network.statistics(), [say.payloads(each.take()) for each in heard]

    faults = NetworkFaults(loss=0.3, duplication=0.2, min_delay_ms=0, max_delay_ms=0)
    statistics, heard = story_of(story, faults, seed=5)
    assert statistics.published == 300
    assert statistics.delivered == sum(len(each) for each in heard)
    assert statistics.delivered + statistics.lost == 900 + statistics.duplicated
    assert statistics.lost / (900 + statistics.duplicated) == pytest.approx(0.3, abs=0.06)
    assert statistics.duplicated / 900 == pytest.approx(0.2, abs=0.06)
    assert (statistics, heard) == story_of(story, faults, seed=5)
    assert heard != story_of(story, faults, seed=6)[1]


def test_delays_hold_messages_back_and_reorder_them(say):
    async def story(network):
        alice, bob = network.node("alice"), network.node("bob")
        heard = await say.listen(bob)
        async with asyncio.TaskGroup() as sends:
            for number in range(50):
                sends.create_task(alice.send(say.message(number)))
            await asyncio.sleep(0.005)
            assert len(heard) == 0
        got = await say.next_of(heard, 50)
        expected = [b"message %d" % number for number in range(50)]
        assert sorted(got) == sorted(expected)
        assert got != expected

    story_of(story, NetworkFaults(min_delay_ms=10, max_delay_ms=60), seed=1)


def test_a_partition_keeps_sides_apart_also_at_the_store_until_it_heals(say):
    async def story(network):
        nodes = {name: network.node(name) for name in "abcd"}
        heard = {name: await say.listen(node) for name, node in nodes.items()}
        await nodes["a"].send(say.message(1))
        assert [len(each.take()) for each in heard.values()] == [0, 1, 1, 1]
        network.partition({"a", "b"}, {"c"})
        for number, name in enumerate("acd", 2):
            await nodes[name].send(say.message(number))
        assert [say.payloads(each.take()) for each in heard.values()] == [[], [b"message 2"], [], []]
        seen = {name: (await say.all_pages(node, say.query()))[0] for name, node in nodes.items()}
        assert seen == {
            "a": [b"message 1", b"message 2"],
            "b": [b"message 1", b"message 2"],
            "c": [b"message 1", b"message 3"],
            "d": [b"message 1", b"message 4"],
        }
        network.heal()
        assert [len((await node.query(say.query())).messages) for node in nodes.values()] == [4] * 4
        await nodes["c"].send(say.message(5))
        assert len(heard["a"]) == 1

    story_of(story)


@pytest.mark.parametrize("sides", [({"a", "b"}, {"b"}), ("ab",)])
def test_a_partition_that_cannot_be_is_refused(sides):
    with LocalNetwork() as network, pytest.raises(ConfigurationError, match="side"):
        network.partition(*sides)


def test_an_offline_node_neither_sends_nor_hears_nor_asks_and_says_so(say):
    async def story(network):
        alice, bob = network.node("alice"), network.node("bob")
        heard, changes = await say.listen(bob), bob.status_changes()
        bob.go_offline()
        result = await bob.send(say.message(1))
        assert (result.accepted, result.permanent) == (False, False)
        assert "offline" in result.detail
        with pytest.raises(StoreQueryError, match="offline"):
            await bob.query(say.query())
        await alice.send(say.message(2))
        bob.go_online(NodeHealth.MINIMALLY_HEALTHY)
        bob.store_available = False
        await alice.send(say.message(3))
        assert say.payloads(heard.take()) == [b"message 3"]
        seen = [(status.health.value, status.store) for status in changes.take()]
        assert seen == [
            ("sufficiently-healthy", True),
            ("unhealthy", False),
            ("minimally-healthy", True),
            ("minimally-healthy", False),
        ]
        with pytest.raises(StoreQueryError, match="no store node"):
            await bob.query(say.query())

    story_of(story)


def test_a_message_on_its_way_to_a_node_that_goes_offline_is_lost(say):
    async def story(network):
        alice, bob = network.node("alice"), network.node("bob")
        heard = await say.listen(bob)
        await alice.send(say.message(1))
        network.faults = NetworkFaults(min_delay_ms=20, max_delay_ms=20)
        sending = asyncio.create_task(alice.send(say.message(2)))
        await asyncio.sleep(0.01)
        bob.go_offline()
        await sending
        await say.until(lambda: network.statistics().lost == 1)
        assert say.payloads(heard.take()) == [b"message 1"]

    story_of(story)


def test_too_large_messages_are_refused_for_good(say):
    async def story(network):
        alice = network.node("alice")
        result = await alice.send(say.message(payload=bytes(200)))
        assert (result.accepted, result.permanent) == (False, True)
        assert "the network takes 150" in result.detail
        assert (await alice.send(say.message(payload=bytes(50)))).accepted
        assert (network.statistics().refused, network.statistics().published) == (1, 1)

    story_of(story, NetworkFaults(max_message_bytes=150, min_delay_ms=0, max_delay_ms=0))


def test_the_rate_limit_holds_per_node_and_epoch_and_is_known_to_the_node(say):
    now_ms = [10_000_000]

    async def story(network):
        alice, bob = network.node("alice"), network.node("bob")
        assert alice.quota == NodeQuota(limit=2, epoch_ms=1_000, remaining=2)
        results = [await alice.send(say.message(number)) for number in range(3)]
        assert [result.accepted for result in results] == [True, True, False]
        assert (results[2].permanent, alice.quota.remaining) == (False, 0)
        assert (await bob.send(say.message(3))).accepted
        now_ms[0] += 1_000
        assert (await alice.send(say.message(4))).accepted
        network.faults = NO_FAULTS
        assert alice.quota is None

    faults = NetworkFaults(messages_per_epoch=2, epoch_ms=1_000, min_delay_ms=0, max_delay_ms=0)
    story_of(story, faults, clock_ns=lambda: now_ms[0] * 1_000_000)


def test_store_gaps_and_lost_queries(say):
    async def story(network):
        alice = network.node("alice")
        await alice.send(say.message(1))
        network.faults = NO_FAULTS
        assert not (await alice.query(say.query())).messages
        network.faults = NetworkFaults(query_loss=1.0, min_delay_ms=0, max_delay_ms=0)
        with pytest.raises(StoreQueryError, match="lost"):
            await alice.query(say.query())
        statistics = network.statistics()
        assert (statistics.store_missed, statistics.queries, statistics.queries_failed) == (1, 2, 1)

    story_of(story, NetworkFaults(store_loss=1.0, min_delay_ms=0, max_delay_ms=0))


def test_ephemeral_messages_are_heard_and_not_stored(say):
    async def story(network):
        alice, bob = network.node("alice"), network.node("bob")
        heard = await say.listen(bob)
        await alice.send(say.message(1, ephemeral=True))
        assert len(heard) == 1
        assert not (await bob.query(say.query())).messages
        assert network.statistics().stored == 0

    story_of(story)


def test_a_closed_node_sends_nothing_hears_nothing_and_ends_its_readers(say):
    async def story(network):
        async with network.node("alice") as alice:
            heard, changes = await say.listen(alice), alice.status_changes()
        await alice.close()
        assert not (await alice.send(say.message(1))).accepted
        assert await heard.next_batch() == []
        assert [status.connected async for status in changes] == [True, False]
        with pytest.raises(NodeUnavailableError, match="closed"):
            await say.listen(alice)
        with pytest.raises(StoreQueryError, match="closed"):
            await alice.query(StoreQuery())
        assert network.nodes == ()
        assert network.node("alice") in network.nodes

    story_of(story)


def test_a_network_outlives_event_loops_and_forgets_the_nodes_of_those_that_ended(say):
    network = LocalNetwork()

    async def leave_without_closing():
        network.faults = NetworkFaults(min_delay_ms=60_000, max_delay_ms=60_000)
        node, watched = network.node("alice"), network.node("bob")
        await say.listen(watched)
        sending = asyncio.create_task(node.send(say.message(1)))
        await asyncio.sleep(0)
        sending.cancel()

    async def come_again():
        network.faults = NO_FAULTS
        alice, bob = network.node("alice"), network.node("bob")
        heard = await say.listen(bob)
        await alice.send(say.message(2))
        return say.payloads(heard.take())

    asyncio.run(leave_without_closing())
    for _ in range(3):
        assert asyncio.run(come_again()) == [b"message 2"]
    assert network.nodes == ()
    network.close()
    network.close()
