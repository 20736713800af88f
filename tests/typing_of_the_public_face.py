"""What type checkers make of the public face: mypy reads this file, nothing runs it."""

from __future__ import annotations

from typing import assert_type

import fairway
from fairway.channel.statistics import ChannelStatistics
from fairway.encryption import AesGcm, ChaCha20Poly1305, Encryption, generate_key
from fairway.events import Limit, LimitReached, LossReason
from fairway.nodes import LightOptions, RestNodeOptions


async def a_node_is_awaited_or_entered() -> None:
    assert_type(await fairway.connect("local:", name="alice"), fairway.WakuNode)
    async with fairway.connect("/ip4/127.0.0.1/tcp/1", options=LightOptions(peers_to_use=1)) as node:
        assert_type(node, fairway.WakuNode)
    fairway.connect("http://127.0.0.1:1", options=RestNodeOptions(), connect_timeout_s=None)
    fairway.connect("local:", options="fast")  # type: ignore[arg-type]
    fairway.connect("local:", colour="blue")  # type: ignore[call-arg]


async def a_channel_is_awaited_or_entered(node: fairway.WakuNode) -> None:
    topic = "/fairway/1/team/proto"
    assert_type(await fairway.create_reliable_channel(node, "team", "alice", topic), fairway.ReliableChannel)
    async with fairway.create_reliable_channel(node, "team", "alice", topic, store="alice.db") as channel:
        assert_type(channel, fairway.ReliableChannel)
        assert_type(channel.status, fairway.ChannelStatus)
        assert_type(channel.statistics(), ChannelStatistics)


async def many_channels_have_the_arguments_of_one(node: fairway.WakuNode) -> None:
    topic = "/fairway/1/{channel}/proto"
    async with fairway.Channels(node, store="a.db", sender_id="alice", content_topic=topic, members={}) as channels:
        assert_type(await channels.open("team", encryption=None), fairway.ReliableChannel)
        assert_type(channels["team"], fairway.ReliableChannel)
        async for message in channels:
            assert_type(message, fairway.MessageReceived)
        await channels.open("team", colour="blue")  # type: ignore[call-arg]


async def a_send_has_a_receipt(channel: fairway.ReliableChannel) -> None:
    receipt = await channel.send(b"x", by={"bob"}, count=2, request_id="mine")
    assert_type(receipt, fairway.Receipt)
    assert_type(await receipt.sent(), None)
    assert_type(await receipt.delivered(), fairway.Acknowledgement)
    assert_type((await receipt.delivered()).delivered_to, tuple[str, ...])
    async for progress in receipt.updates():
        assert_type(progress, fairway.Progress)
    assert_type(await channel.send_ephemeral(b"x"), fairway.EphemeralReceipt)
    await channel.send("text")  # type: ignore[arg-type]


async def messages_and_events_have_types(channel: fairway.ReliableChannel) -> None:
    async for message in channel:
        assert_type(message, fairway.MessageReceived)
        assert_type(bytes(message), bytes)
        channel.finish(message)
    async for event in channel.events():
        assert_type(event, fairway.Event)
        match event:
            case fairway.MessageDelivered(delivered_to=names):
                assert_type(names, tuple[str, ...])
            case LimitReached(limit=limit):
                assert_type(limit, Limit)
            case _:
                pass


def handlers_have_types(channel: fairway.ReliableChannel) -> None:
    def on_lost(event: fairway.IrretrievableMessage) -> None:
        assert_type(event.reason, LossReason)

    channel.on(fairway.IrretrievableMessage, on_lost)
    channel.on("irretrievable-message", on_lost)
    channel.on(fairway.MessageReceived, on_lost)  # type: ignore[arg-type]


def ciphers_are_encryption() -> None:
    key = generate_key()
    assert_type(key, bytes)
    ciphers: list[Encryption] = [AesGcm(key), ChaCha20Poly1305(key)]
    assert_type(ciphers[0], Encryption)
