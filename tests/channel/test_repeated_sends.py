"""A send that is repeated while the first one is under way is one send; receipts tell durable outcomes only."""

from __future__ import annotations

import asyncio

import pytest

from fairway.events import DeliveryError, MessageDelivered
from fairway.nodes.local import LocalNetwork
from fairway.options import Advanced, RateLimitConfig, ReliableChannelOptions, SegmentationConfig
from fairway.testing import DiskFaults, SimulatedDisk, virtual_time
from listening import join, listen

WRITE_S = 0.25
"""How long each write takes."""


def slow(disk):
    disk.faults = DiskFaults(latency_ms=(WRITE_S * 1_000, WRITE_S * 1_000))
    return disk.store("alice")


@virtual_time()
async def test_a_repeated_send_returns_when_the_first_one_is_durable():
    loop = asyncio.get_running_loop()
    with SimulatedDisk() as disk, LocalNetwork() as network:
        async with join(network, "alice", store=slow(disk)) as alice:
            # Nothing of the start is under way any more.
            await asyncio.sleep(10)
            first = asyncio.create_task(alice.send(b"ahoy", request_id="greeting"))
            began = loop.time()
            await asyncio.sleep(WRITE_S / 10)
            assert not first.done()
            again = await alice.send(b"ahoy", request_id="greeting")
            assert loop.time() - began >= WRITE_S
            assert await first is again


@pytest.mark.parametrize("is_heard", [True, False], ids=["delivered", "failed"])
@virtual_time()
async def test_a_send_that_is_repeated_when_the_store_is_writing_how_it_ended_is_repeated_only_if_it_failed(is_heard):
    options, told = ReliableChannelOptions(max_retry_attempts=0), []
    with SimulatedDisk() as disk, LocalNetwork() as network:
        store = slow(disk)
        async with join(network, "alice", store=store, options=options) as alice, join(network, "bob"):
            alice.on(MessageDelivered, told.append)
            alice.on(DeliveryError, told.append)
            if not is_heard:
                network.partition({"alice"}, {"bob"})
            receipt = await alice.send(b"ahoy", request_id="greeting", by={"bob"})
            while alice.protocol.requests.open:  # noqa: ASYNC110 - time is virtual
                await asyncio.sleep(0.001)
            assert (told, receipt.has_ended) == ([], False)
            assert await alice.send(b"ahoy", request_id="greeting", by={"bob"}) is receipt
            assert receipt.has_ended is is_heard
            await asyncio.sleep(60)
            assert [type(event) for event in told] == ([MessageDelivered] if is_heard else [DeliveryError] * 2)


@virtual_time()
async def test_a_repeated_send_with_another_name_ends_once_if_that_name_has_acknowledged():
    told = []
    with SimulatedDisk() as disk, LocalNetwork() as network:
        async with join(network, "alice", store=slow(disk)) as alice, join(network, "bob"):
            alice.on(MessageDelivered, told.append)
            await alice.send(b"ahoy", request_id="greeting")
            while alice.protocol.requests.open:  # noqa: ASYNC110 - time is virtual
                await asyncio.sleep(0.001)
            receipt = await alice.send(b"ahoy", request_id="greeting", by={"bob"})
            assert (await receipt.delivered()).delivered_to == ("bob",)
            await asyncio.sleep(60)
            assert [event.delivered_to for event in told] == [("bob",)]


@pytest.mark.parametrize("is_open", [True, False], ids=["while open", "ended"])
@virtual_time()
async def test_a_settled_send_stays_so_when_it_ends_and_after_a_restart(is_open):
    with SimulatedDisk() as disk, LocalNetwork() as network:
        store = disk.store("alice")
        async with join(network, "alice", store=store) as alice:
            receipt = await alice.send(b"ahoy", request_id="greeting")
            await alice.send(b"who is there?", request_id="question")
            if is_open:
                await alice.settle("greeting")
            async with join(network, "bob"):
                await receipt.delivered()
            if not is_open:
                assert not alice.is_settled("greeting")
                await alice.settle("greeting")
            await alice.settle("never sent")
        async with join(network, "alice", store=disk.store("alice")) as alice:
            settled = [alice.is_settled(each) for each in ("greeting", "question", "never sent")]
            assert settled == [True, False, False]
            assert (await alice.receipt("greeting").delivered()).delivered_to == ("bob",)


@virtual_time()
async def test_two_sends_with_one_request_id_at_once_are_one_send():
    options = ReliableChannelOptions(
        segmentation=SegmentationConfig(segment_size_bytes=1_024, parity_rate=1.0),
        rate_limit=RateLimitConfig(max_queued=1),
        advanced=Advanced(max_concurrent_publishes=1),
    )
    ended, heard = [], []
    with LocalNetwork() as network:
        network.limit_uplink("alice", 0.2)
        async with join(network, "alice", options=options) as alice, join(network, "bob") as bob:
            alice.on(MessageDelivered, lambda event: ended.append(event.request_id))
            listen(bob, lambda event: heard.append(len(event.payload)))
            await alice.send(bytes(2 * 1_024), request_id="before")
            await asyncio.gather(*(alice.send(bytes(7 * 1_024), request_id="greeting") for _ in range(2)))
            # Parity was still waiting when the last data was acknowledged.
            assert "greeting" in ended
            await asyncio.sleep(600)
            assert sorted(ended) == ["before", "greeting"]
            assert heard == [2 * 1_024, 7 * 1_024]
