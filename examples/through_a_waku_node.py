"""A Waku node in this program, and two participants that reach it in two ways: as a light client and by its REST API.

The node loses a third of what it hands out, so that the channel has something to repair. In earnest it is a process of
its own (`fairway node`) or somebody's nwaku, and the two addresses are all that changes.

Run it: python examples/through_a_waku_node.py
"""

from __future__ import annotations

import asyncio

import fairway
from fairway.service import ServiceNode, ServiceOptions
from fairway.service.rest import RestServer

# Timers for an impatient example; the defaults suit a network of people.
OPTIONS = fairway.ReliableChannelOptions(sync_min_interval_ms=500, retry_interval_ms=700)
QUESTIONS = [f"is lamp {number} lit?" for number in range(1, 6)]


async def join(node: fairway.WakuNode, name: str) -> fairway.ReliableChannel:
    """Return one participant's channel."""
    return await fairway.create_reliable_channel(node, "harbour", name, "/example/1/harbour/proto", options=OPTIONS)


async def answer(channel: fairway.ReliableChannel) -> None:
    """Answer every question."""
    async for message in channel:
        print(f"{channel.sender_id} heard: {bytes(message).decode()}")
        await channel.send(b"yes to: " + bytes(message))


async def hear(channel: fairway.ReliableChannel) -> None:
    """Print as many answers as there are questions."""
    messages = aiter(channel)
    for _ in QUESTIONS:
        print(f"{channel.sender_id} heard: {bytes(await anext(messages)).decode()}")


async def main() -> None:
    """Run the node and the two of them."""
    async with (
        await ServiceNode.start(ServiceOptions(loss=0.33, seed=1)) as waku,
        await RestServer.start(waku) as rest,
    ):
        tcp = next(str(address) for address in waku.addresses if "/ws" not in str(address))
        print(f"a node at {tcp}\n  and at {rest.url}")
        async with fairway.connect(tcp) as light_client, fairway.connect(rest.url) as rest_client:
            alice, bob = await join(light_client, "alice"), await join(rest_client, "bob")
            async with alice, bob, asyncio.timeout(120):
                answering = asyncio.create_task(answer(bob))
                receipts = [await alice.send(question.encode()) for question in QUESTIONS]
                await hear(alice)
                who = {name for receipt in receipts for name in (await receipt.delivered()).delivered_to}
                print(f"all {len(receipts)} questions are acknowledged by {', '.join(who)}")
                answering.cancel()
        print("the node lost", waku.statistics().lost_on_purpose, "messages on the way")


asyncio.run(main())
