"""The progress of a receipt counts data segments and parity segments apart, and is known after a restart."""

from __future__ import annotations

import asyncio

from fairway.channel.creation import create_reliable_channel
from fairway.nodes.local import LocalNetwork
from fairway.options import ReliableChannelOptions, SegmentationConfig
from fairway.storage.memory_store import MemoryStore
from fairway.testing import virtual_time

OPTIONS = ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=1_024))
PAYLOAD = bytes(10 * 1_024)
ALL_AND_PARITY = tuple(range(11))


@virtual_time()
async def test_parity_counts_from_the_number_of_data_segments_and_a_restart_forgets_nothing():
    store = MemoryStore()
    with LocalNetwork() as network:
        alice = await create_reliable_channel(
            network.node("alice"), "harbour", "alice", "/fairway/1/harbour/proto", options=OPTIONS, store=store
        )
        async with alice:
            receipt = await alice.send(PAYLOAD)
            await receipt.sent()
            assert (receipt.progress.total_chunks, receipt.progress.chunks_sent) == (10, ALL_AND_PARITY)
            await alice.stop()
            del receipt
            await asyncio.sleep(1)
            await alice.start()
            known = alice.receipt(alice.protocol.requests.open.copy().popitem()[0])
            again = known.progress
            await known.sent()  # it was before the restart
            assert (again.total_chunks, again.chunks_sent, again.chunks_acknowledged) == (10, ALL_AND_PARITY, ())
