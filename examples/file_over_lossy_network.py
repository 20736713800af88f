"""Send half a megabyte to two others over a network that loses a third of everything, and watch it arrive.

`LocalNetwork` is public: it is what a program's own tests use to see how it does when things go wrong.

Run it: python examples/file_over_lossy_network.py
"""

from __future__ import annotations

import asyncio
import hashlib

import fairway
from fairway.nodes.local import LocalNetwork, NetworkFaults

# Timers for an impatient example; the defaults suit a network of people.
OPTIONS = fairway.ReliableChannelOptions(sync_min_interval_ms=500, retry_interval_ms=700)
CONTENT = bytes(range(256)) * 2_048


async def join(network: LocalNetwork, name: str) -> fairway.ReliableChannel:
    """Return one participant's channel."""
    return await fairway.create_reliable_channel(
        network.node(name), "drop", name, "/example/1/drop/proto", options=OPTIONS
    )


async def receive(channel: fairway.ReliableChannel) -> None:
    """Print the first message that comes."""
    async for message in channel:
        digest = hashlib.sha256(message.payload).hexdigest()
        how = ", rebuilt with Reed-Solomon" if message.recovered else ""
        print(f"{channel.sender_id}: {len(message.payload)} bytes, SHA-256 {digest[:16]}...{how}")
        return


async def main() -> None:
    """Run the three of them."""
    faults = NetworkFaults(loss=0.33, duplication=0.05, min_delay_ms=5, max_delay_ms=80)
    with LocalNetwork(faults, seed=1) as network:
        alice, bob, carol = [await join(network, name) for name in ("alice", "bob", "carol")]
        async with alice, bob, carol, asyncio.timeout(60):
            receivers = [asyncio.create_task(receive(channel)) for channel in (bob, carol)]
            receipt = await alice.send(CONTENT, by={"bob", "carol"})
            async for progress in receipt.updates():
                print(f"alice: {len(progress.chunks_acknowledged)} of {progress.total_chunks} segments acknowledged")
            print("alice: delivered to", ", ".join((await receipt.delivered()).delivered_to))
            await asyncio.gather(*receivers)
        print(network.statistics())


asyncio.run(main())
