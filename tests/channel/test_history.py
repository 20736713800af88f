"""The past of a channel: received and own messages, in one order for all, over restarts."""

from __future__ import annotations

import asyncio

import pytest

from fairway.errors import ChannelClosedError, ConfigurationError
from fairway.events import OrderKey
from fairway.nodes.local import NetworkFaults
from fairway.options import SegmentationConfig
from fairway.storage.channel_store import SendOutcome
from fairway.storage.memory_store import MemoryStore
from groups import in_group
from listening import listen


def said(messages):
    return [(message.sender_id, bytes(message)) for message in messages]


async def talk(group, *turns):
    """Let participants speak in turn, each when all have the message before."""
    for speaker, payload in turns:
        receipt = await speaker.send(payload)
        await receipt.delivered()


@in_group()
async def test_all_participants_have_the_same_history_with_their_own_messages_in_it(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    await talk(group, (alice, b"one"), (bob, b"two"), (alice, b"three"))
    of_alice, of_bob = await alice.history(), await bob.history()
    assert said(of_alice) == said(of_bob) == [("alice", b"one"), ("bob", b"two"), ("alice", b"three")]
    assert [each.order_key for each in of_alice] == [each.order_key for each in of_bob]
    assert [each.position for each in of_alice] == [0, 1, 2]
    assert [each.is_own for each in of_alice] == [True, False, True]
    assert [each.message_id for each in of_alice] == [alice.get_message_id(each.payload) for each in of_alice]


@pytest.mark.parametrize("kind", ["memory", "file"])
@in_group(on_disk=True)
async def test_the_history_survives_a_restart_and_grows(group, tmp_path, kind):
    store = MemoryStore() if kind == "memory" else tmp_path / "alice.db"
    alice, bob = await group.channel("alice", store=store), await group.channel("bob")
    await talk(group, (alice, b"one"), (bob, b"two"))
    before = await alice.history()
    await alice.close()
    with pytest.raises(ChannelClosedError):
        await alice.history()
    alice = await group.channel("alice", store=store)
    assert await alice.history() == before
    await talk(group, (alice, b"three"))
    assert said(await alice.history()) == [("alice", b"one"), ("bob", b"two"), ("alice", b"three")]


@in_group()
async def test_pages_go_back_from_the_newest_message(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    received = []
    listen(bob, received.append)
    for number in range(25):
        await alice.send(b"%d" % number)
    await group.until(lambda: len(received) == 25)
    newest = await bob.history(10)
    middle = await bob.history(10, before=newest[0])
    oldest = await bob.history(10, before=middle[0].order_key)
    assert [int(bytes(each)) for each in oldest + middle + newest] == list(range(25))
    assert [each.position for each in oldest + middle + newest] == list(range(25))
    assert await bob.history(10, before=oldest[0]) == []
    # A received message says where it stands.
    assert (await bob.history(1, before=received[7]))[0].order_key == received[6].order_key
    assert sorted(received, key=lambda message: message.order_key) == received


@in_group()
async def test_an_own_message_has_the_outcome_of_its_send(group):
    alice = await group.channel("alice")
    receipt = await alice.send(b"hello")
    [message] = await alice.history()
    assert (message.request_id, message.outcome) == (receipt.request_id, SendOutcome.OPEN)
    await group.channel("bob")
    await receipt.delivered()
    [message] = await alice.history()
    assert message.outcome is SendOutcome.DELIVERED


@in_group()
async def test_a_message_that_waits_for_the_node_moves_to_the_end_when_it_leaves(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    await talk(group, (alice, b"one"))
    group.nodes["alice"].go_offline()
    await asyncio.sleep(0.05)
    waiting = await alice.send(b"waits")
    await (await bob.send(b"meanwhile")).sent()
    assert said(await alice.history()) == [("alice", b"one"), ("alice", b"waits")]
    group.nodes["alice"].go_online()
    await waiting.delivered()
    await group.until(lambda: alice.statistics().unfinished == 1)
    order = said(await bob.history())
    assert sorted(order) == [("alice", b"one"), ("alice", b"waits"), ("bob", b"meanwhile")]
    assert said(await alice.history()) == order


@in_group()
async def test_a_message_that_comes_late_is_inserted_at_its_place(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    carol = await group.channel("carol")
    await talk(group, (alice, b"one"))
    group.network.partition({"alice", "bob"}, {"carol"})
    await (await carol.send(b"apart")).sent()
    await asyncio.sleep(1)
    await talk(group, (alice, b"two"))
    assert said(await bob.history()) == [("alice", b"one"), ("alice", b"two")]
    group.network.heal()
    await group.until(lambda: bob.statistics().unfinished == 3)
    assert said(await bob.history()) == [("alice", b"one"), ("carol", b"apart"), ("alice", b"two")]


@in_group(faults=NetworkFaults(loss=0.1), segmentation=SegmentationConfig(segment_size_bytes=400, parity_rate=0.2))
async def test_messages_in_segments_and_repeated_payloads_are_whole_and_ephemeral_ones_are_left_out(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    large = bytes(range(256)) * 20
    await talk(group, (alice, large), (bob, b"ok"), (alice, b"ok"))
    await alice.send_ephemeral(b"typing")
    await asyncio.sleep(1)
    wanted = [("alice", large), ("bob", b"ok"), ("alice", b"ok")]
    for each in (alice, bob):
        assert said(await each.history()) == wanted
    assert [m.order_key for m in await alice.history()] == [m.order_key for m in await bob.history()]


@in_group()
async def test_wrong_arguments_of_history_are_refused(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    received = []
    listen(bob, received.append)
    with pytest.raises(ConfigurationError, match="limit must be at least 1, not 0"):
        await alice.history(0)
    await alice.send_ephemeral(b"typing")
    await group.until(lambda: received)
    with pytest.raises(ConfigurationError, match="no place"):
        await bob.history(before=received[0])
    for wrong in ("yesterday", 5, (1, "a")):
        with pytest.raises(ConfigurationError, match="before is"):
            await bob.history(before=wrong)
    assert await bob.history(before=OrderKey(5, "a")) == []
