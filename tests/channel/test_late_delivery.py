"""Participants that are away for longer than the retries last, and messages that are of use for a while only."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from fairway.channel.creation import create_reliable_channel
from fairway.errors import ConfigurationError, DeliveryFailedError, SendExpiredError
from fairway.events import DeliveryError, FailureReason, MessageDelivered, MessageSent
from fairway.nodes.local import LocalNetwork
from fairway.options import ReliableChannelOptions
from fairway.storage.memory_store import MemoryStore
from fairway.testing import DiskFault, Machine, Process, SimulatedDisk, virtual_time
from listening import TOPIC, heard_by, join

HOUR_S = 3_600
DAY_S = 24 * HOUR_S


@virtual_time()
async def test_a_failed_send_may_be_awaited_again_and_is_delivered_late():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob"):
            ends = []
            alice.on(DeliveryError, ends.append)
            alice.on(MessageDelivered, ends.append)
            receipt = await alice.send(b"hello", by=["bob", "carol"])
            with pytest.raises(DeliveryFailedError) as failed:
                await receipt.delivered()
            error = failed.value
            assert (error.acknowledged_by, error.delivered_to) == (("bob",), ("bob",))
            assert (error.missing, error.missing_count) == (("carol",), 1)
            assert (error.chunks_missing, error.total_chunks, error.refusal) == ((0,), 1, "")
            assert receipt.has_ended
            assert str(receipt.failure) == str(error)
            again = asyncio.create_task(receipt.delivered())
            await asyncio.sleep(3 * DAY_S)
            assert not again.done()
            async with join(network, "carol") as carol:
                payloads = heard_by(carol)
                assert (await again).delivered_to == ("bob", "carol")
                await asyncio.sleep(HOUR_S)
                assert payloads == [b"hello"]
            assert receipt.failure is None
            assert receipt.progress.delivered_to == ("bob", "carol")
            assert [type(event) for event in ends] == [DeliveryError, MessageDelivered]
            assert ends[1].late


@virtual_time()
async def test_each_wait_that_was_under_way_raises_the_failure_and_the_next_ones_wait():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            receipt = await alice.send(b"hello", by=["bob"])
            results = await asyncio.gather(*(receipt.delivered() for _ in range(3)), return_exceptions=True)
            assert [type(result) for result in results] == [DeliveryFailedError] * 3
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receipt.delivered(), HOUR_S)


@pytest.mark.parametrize("restart_s", [60, HOUR_S], ids=["before it failed", "after it failed"])
@virtual_time()
async def test_a_send_is_delivered_late_after_a_restart(restart_s):
    store = MemoryStore()
    with LocalNetwork() as network:
        async with join(network, "alice", store=store) as alice:
            await alice.send(b"hello", by=["bob"], request_id="greeting")
            await asyncio.sleep(restart_s)
        async with join(network, "alice", store=store) as alice:
            await asyncio.sleep(HOUR_S)
            receipt = alice.receipt("greeting")
            assert receipt.has_ended
            assert receipt.failure.missing == ("bob",)
            assert receipt.failure.total_chunks == 1
            with pytest.raises(DeliveryFailedError):
                await asyncio.wait_for(receipt.delivered(), 1)
            async with join(network, "bob") as bob:
                payloads = heard_by(bob)
                assert (await asyncio.wait_for(receipt.delivered(), HOUR_S)).delivered_to == ("bob",)
                assert payloads == [b"hello"]
        async with join(network, "alice", store=store) as alice:
            assert (await alice.receipt("greeting").delivered()).delivered_to == ("bob",)


@virtual_time()
async def test_a_failure_of_which_the_application_took_note_is_not_raised_again_after_a_restart():
    store = MemoryStore()
    with LocalNetwork() as network:
        async with join(network, "alice", store=store) as alice:
            await alice.send(b"hello", by=["bob"], request_id="greeting")
            await asyncio.sleep(HOUR_S)
            await alice.settle("greeting")
        async with join(network, "alice", store=store) as alice:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(alice.receipt("greeting").delivered(), HOUR_S)


@pytest.mark.parametrize("fault", [DiskFault.CRASH_BEFORE, DiskFault.CRASH_AFTER])
@virtual_time()
async def test_a_crash_while_the_store_writes_the_failure_loses_neither_it_nor_the_late_delivery(fault):
    loop = asyncio.get_running_loop()
    told = []
    with LocalNetwork() as network, SimulatedDisk() as disk:
        machine = Machine(loop)

        async def life(first):
            async with create_reliable_channel(
                network.node(), "harbour", "alice", TOPIC, store=disk.store("alice")
            ) as alice:
                for kind in (DeliveryError, MessageDelivered):
                    alice.on(kind, lambda event: told.append(type(event)))
                if first:
                    await alice.send(b"hello", by=["bob"], request_id="greeting")
                    await asyncio.sleep(329)
                    disk.strike("alice", fault)
                await asyncio.Event().wait()

        process = Process("alice", machine)
        disk.on_crash = lambda name: process.kill()
        process.spawn(life(first=True))
        await asyncio.sleep(400)
        second = Process("alice", machine)
        second.spawn(life(first=False))
        await asyncio.sleep(HOUR_S)
        async with join(network, "bob") as bob:
            payloads = heard_by(bob)
            await asyncio.sleep(HOUR_S)
            assert payloads == [b"hello"]
        assert told[-1] is MessageDelivered
        assert told.count(MessageDelivered) == 1
        assert disk.store("alice") is not None
        second.kill()


@pytest.mark.parametrize("is_restarted", [True, False])
@virtual_time()
async def test_the_same_request_id_after_a_failure_sends_again_and_participants_receive_the_message_once(is_restarted):
    store = MemoryStore()
    options = ReliableChannelOptions(sync_min_interval_ms=0, retrieve_frequency_ms=0)
    with LocalNetwork() as network:
        alice = await join(network, "alice", store=store, options=options)
        bob = await join(network, "bob")
        bobs = heard_by(bob)
        receipt = await alice.send(b"hello", by=["bob", "carol"], request_id="greeting")
        with pytest.raises(DeliveryFailedError):
            await receipt.delivered()
        if is_restarted:
            await alice.close()
            alice = await join(network, "alice", store=store, options=options)
        async with alice, bob, join(network, "carol") as carol:
            carols, before = heard_by(carol), sum(alice.statistics().protocol.transmissions.values())
            receipt = await alice.send(b"hello", by=["bob", "carol"], request_id="greeting")
            await asyncio.sleep(1)
            assert sum(alice.statistics().protocol.transmissions.values()) == before + 1
            assert (await receipt.delivered()).delivered_to == ("bob", "carol")
            await asyncio.sleep(HOUR_S)
            assert (bobs, carols) == ([b"hello"], [b"hello"])
            assert alice.receipt("greeting").failure is None


# Deadlines


@pytest.mark.parametrize("deadline", [100, 100.0, timedelta(seconds=100)])
@virtual_time()
async def test_a_send_whose_deadline_passes_raises_an_error_of_its_own(deadline):
    loop = asyncio.get_running_loop()
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            sent, failures, began = [], [], loop.time()
            alice.on(MessageSent, sent.append)
            alice.on(DeliveryError, failures.append)
            receipt = await alice.send(b"hello", by=["bob"], deadline=deadline)
            for _ in range(2):
                with pytest.raises(SendExpiredError, match="the deadline of 100 s has passed"):
                    await receipt.delivered()
            assert 99 < loop.time() - began < 101
            assert [event.reason for event in failures] == [FailureReason.EXPIRED]
            count = len(sent)
            async with join(network, "bob"):
                await asyncio.sleep(DAY_S)
            assert len(sent) == count


@virtual_time()
async def test_a_message_that_waits_for_its_node_until_its_deadline_is_never_sent():
    store = MemoryStore()
    with LocalNetwork() as network:
        node = network.node()
        async with (
            create_reliable_channel(node, "harbour", "alice", TOPIC, store=store) as alice,
            join(network, "bob") as bob,
        ):
            payloads = heard_by(bob)
            node.go_offline()
            await alice.send(b"late", deadline=60, request_id="late")
            kept = await alice.send(b"in time", deadline=DAY_S)
            await asyncio.sleep(HOUR_S)
            node.go_online()
            await kept.delivered()
            assert payloads == [b"in time"]
        async with join(network, "alice", store=store) as alice:
            with pytest.raises(SendExpiredError):
                await alice.receipt("late").delivered()


@pytest.mark.parametrize(
    "deadline", [0, -1, True, "60", float("nan"), float("inf"), timedelta(0), 10**12, [60]], ids=repr
)
@virtual_time()
async def test_an_impossible_deadline_is_refused_before_anything_is_sent(deadline):
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            with pytest.raises(ConfigurationError, match="a deadline is a number of seconds"):
                await alice.send(b"hello", deadline=deadline)
            assert not alice.protocol.requests.open
