"""Creating, starting, stopping and closing channels, and restarts with the same store."""

from __future__ import annotations

import asyncio

import pytest

from fairway.channel.creation import create_reliable_channel
from fairway.errors import (
    ChannelClosedError,
    ConfigurationError,
)
from fairway.events import ChannelStatus, StatusChanged
from fairway.nodes.local import LocalNetwork
from fairway.protocol.encryption import Decoder, Encoder
from fairway.storage.memory_store import MemoryStore
from fairway.testing import run
from groups import in_group

TOPIC = "/fairway/1/harbour/proto"


@in_group()
async def test_a_closed_channel_says_so_and_stays_closed(group):
    alice = await group.channel("alice")
    await alice.close()
    await alice.close()
    for refused in (alice.send(b"x"), alice.send_ephemeral(b"x"), alice.start()):
        with pytest.raises(ChannelClosedError, match="closed"):
            await refused
    for refused in (alice.events, lambda: aiter(alice), alice.statistics):
        with pytest.raises(ChannelClosedError, match="create a new one"):
            refused()


def test_an_encoder_of_ephemeral_messages_is_refused_for_a_reliable_channel():
    async def work():
        with LocalNetwork() as network:
            encoder = Encoder(content_topic=TOPIC, ephemeral=True)
            with pytest.raises(ConfigurationError, match="use send_ephemeral"):
                await create_reliable_channel(
                    network.node("alice"), "harbour", "alice", encoder=encoder, decoder=Decoder(content_topic=TOPIC)
                )

    run(work())


@in_group()
async def test_iterations_end_when_the_channel_closes(group):
    alice = await group.channel("alice")
    await group.until(lambda: alice.status is ChannelStatus.SYNCED)

    async def read(stream):
        return [item async for item in stream]

    readers = [asyncio.ensure_future(read(stream)) for stream in (aiter(alice), alice.events())]
    await asyncio.sleep(0.01)
    await alice.close()
    messages, events = await asyncio.gather(*readers)
    assert messages == []
    assert {type(event) for event in events} == {StatusChanged}


@in_group()
async def test_a_stopped_channel_continues_after_a_start(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    stream = aiter(bob)
    await bob.stop()
    receipt = await alice.send(b"while you slept")
    await asyncio.sleep(0.05)
    await bob.start()
    assert await group.take(stream, 1) == [b"while you slept"]
    await receipt.delivered()
    await alice.stop()
    await alice.start()
    await (await alice.send(b"awake again")).delivered()
    assert await group.take(stream, 1) == [b"awake again"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@in_group(on_disk=True)
async def test_an_accepted_message_is_sent_after_a_restart(group, tmp_path, kind):
    store = MemoryStore() if kind == "memory" else tmp_path / "alice.db"
    alice = await group.channel("alice", store=store)
    group.nodes["alice"].go_offline()
    await asyncio.sleep(0)
    first = await alice.send(b"one")
    await alice.send(b"2" * 250_000)
    await alice.close()
    group.nodes["alice"].go_online()

    bob = await group.channel("bob")
    again = await group.channel("alice", store=store)
    assert [len(payload) for payload in await group.take(aiter(bob), 2)] == [3, 250_000]
    receipt = again.receipt(first.request_id)
    assert (await receipt.delivered()).delivered_to == ("bob",)


@in_group(on_disk=True)
async def test_a_backup_has_the_messages_accepted_before_it(group, tmp_path):
    alice = await group.channel("alice", store=tmp_path / "alice.db")
    receipt = await alice.send(b"before")
    await alice.backup(tmp_path / "copy.db")
    with pytest.raises(ConfigurationError, match=r"copy\.db exists"):
        await alice.backup(tmp_path / "copy.db")
    await alice.close()
    again = await group.channel("alice", store=tmp_path / "copy.db")
    bob = await group.channel("bob")
    assert await group.take(aiter(bob), 1) == [b"before"]
    await again.receipt(receipt.request_id).delivered()
    with pytest.raises(ConfigurationError, match="store=PATH"):
        await bob.backup(tmp_path / "bob.db")


def test_seed_001_s_encoder_and_decoder_make_a_encrypted_channel():
    key = bytes(range(32))

    async def scenario():
        with LocalNetwork() as network:
            pair = {"encoder": Encoder.symmetric(TOPIC, key), "decoder": Decoder.symmetric(TOPIC, key)}
            alice = await create_reliable_channel(network.node(), "harbour", "alice", **pair)
            bob = await create_reliable_channel(network.node(), "harbour", "bob", **pair)
            eve = await create_reliable_channel(network.node(), "harbour", "eve", TOPIC)
            async with alice, bob, eve:
                await alice.send(b"secret")
                assert (await anext(aiter(bob))).payload == b"secret"
                await asyncio.sleep(1)
                assert eve.statistics().protocol.undecryptable >= 1

    run(scenario())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"node": None}, "WakuNode"),
        ({"content_topic": None}, "content_topic must be text"),
        ({"content_topic": "no topic"}, "topic"),
        ({"channel_id": ""}, "channel"),
        ({"sender_id": ""}, "sender"),
        ({"sender_id": "x" * 300}, "256"),
        ({"encoder": Encoder.symmetric(TOPIC, bytes(32))}, "together"),
        ({"options": {"retry_interval": 5}}, "retry_interval_ms"),
        (
            {"encoder": Encoder.symmetric(TOPIC, bytes(32)), "decoder": Decoder.symmetric(TOPIC, bytes(32))},
            "not both",
        ),
        (
            {
                "content_topic": None,
                "encoder": Encoder.symmetric(TOPIC, bytes(32)),
                "decoder": Decoder.symmetric("/fairway/1/other/proto", bytes(32)),
            },
            "one content topic",
        ),
    ],
)
def test_a_channel_that_cannot_work_is_refused_when_it_is_made(arguments, text):
    async def scenario():
        with LocalNetwork() as network:
            wanted = {"node": network.node(), "channel_id": "harbour", "sender_id": "alice", "content_topic": TOPIC}
            with pytest.raises(ConfigurationError, match=text):
                await create_reliable_channel(**{**wanted, **arguments})

    run(scenario())


@in_group(sync_min_interval_ms=3_600_000, retry_interval_ms=0)
async def test_a_closing_channel_acknowledges_received_messages(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    receipt = await alice.send(b"before you go")
    await group.take(aiter(bob), 1)
    await bob.close()
    assert (await receipt.delivered()).delivered_to == ("bob",)
