"""Channels of one node: what one of them sends does not use up a limit that only another one has."""

from __future__ import annotations

import asyncio

import fairway
from fairway.protocol.effects import Purpose
from fairway.testing import LocalNetwork, virtual_time
from listening import listen


@virtual_time()
async def test_a_channel_with_a_limit_is_not_held_up_by_channels_without_one_at_the_same_node():
    limit = {"rate_limit": {"enabled": True, "epoch_ms": 10_000, "messages_per_epoch": 10}}
    with LocalNetwork() as network:
        node = network.node()
        limited = await fairway.create_reliable_channel(node, "limited", "alice", "/a/1/limited/proto", options=limit)
        others = [
            await fairway.create_reliable_channel(node, f"free-{each}", "alice", f"/a/1/free-{each}/proto")
            for each in range(5)
        ]
        for number in range(30):
            for channel in (limited, *others):
                await channel.send(b"%d" % number)
            await asyncio.sleep(1)
        assert limited.statistics().protocol.transmissions[Purpose.CONTENT] == 30
        for channel in (limited, *others):
            await channel.close()


@virtual_time()
async def test_two_participants_at_one_local_node_receive_from_each_other_at_once():
    with LocalNetwork() as network:
        node = network.node()
        async with (
            fairway.create_reliable_channel(node, "team", "alice", "/a/1/team/proto") as alice,
            fairway.create_reliable_channel(node, "team", "bob", "/a/1/team/proto") as bob,
        ):
            received: list[tuple[bytes, float]] = []
            loop = asyncio.get_running_loop()
            listen(bob, lambda message: received.append((bytes(message), loop.time())))
            await asyncio.sleep(5)
            began = loop.time()
            await alice.send(b"hello")
            await asyncio.sleep(1)
            assert received == [(b"hello", began)]
