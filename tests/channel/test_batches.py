"""Sends that share a WakuMessage: each stays a message of its own, for its sender, its receivers and their stores."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from itertools import count

import pytest

from fairway.channel.creation import create_reliable_channel
from fairway.errors import ChannelClosedError, SendExpiredError, StorageError
from fairway.events import MessageDelivered, MessageQueued, MessageReceived
from fairway.nodes.local import LocalNetwork
from fairway.nodes.local.faults import NetworkFaults
from fairway.options import Profile, RateLimitConfig, ReliableChannelOptions
from fairway.storage.channel_store import SendOutcome
from fairway.storage.memory_store import MemoryStore
from fairway.testing import DiskFault, DiskFaults, Machine, Process, SimulatedDisk, run, virtual_time
from fairway.wire.batch import encode_batch
from fairway.wire.sds import WAKU_SDS
from fairway.wire.topics import autoshard
from listening import TOPIC, heard_by, join, listen

HOUR_S = 3_600
PUBSUB_TOPIC = autoshard(TOPIC, 1, 8)
BATCHES = ReliableChannelOptions(batch_ms=10)
READINGS = [b"reading %d" % number for number in range(30)]


async def send_all(channel, payloads=READINGS, **terms):
    return await asyncio.gather(*(channel.send(payload, **terms) for payload in payloads))


def in_any_order(payloads):
    """Return payloads in an order of their own: sends of one moment may begin in any order."""
    return sorted(payloads)


async def own_payloads(channel):
    return [message.payload for message in await channel.history() if message.is_own]


@pytest.mark.parametrize("profile", Profile)
@virtual_time()
async def test_sends_of_a_short_time_share_a_waku_message_and_are_messages_of_their_own(profile):
    options = ReliableChannelOptions(profile=profile, batch_ms=10, sync_min_interval_ms=0)
    with LocalNetwork() as network:
        async with (
            join(network, "alice", options=options) as alice,
            join(network, "bob", options=ReliableChannelOptions(profile=profile)) as bob,
        ):
            messages: list[MessageReceived] = []
            listen(bob, messages.append)
            receipts = await send_all(alice)
            for receipt in receipts:
                await receipt.sent()
            assert network.statistics().published == 1
            await asyncio.sleep(60)
            payloads = [message.payload for message in messages]
            assert in_any_order(payloads) == in_any_order(READINGS)
            assert [message.message_id for message in messages] == list(map(alice.get_message_id, payloads))
            assert [receipt.message_id for receipt in receipts] == list(map(alice.get_message_id, READINGS))
            assert len({receipt.request_id for receipt in receipts}) == len({m.order_key for m in messages}) == 30
            assert {message.message_hashes for message in messages} == {messages[0].message_hashes}
            assert len({message.sds_ids for message in messages}) == 30
            for receipt in receipts:
                assert (await receipt.delivered()).delivered_to == ("bob",)
            assert bob.statistics().unfinished == 0
            for channel in (alice, bob):
                assert [message.payload for message in await channel.history()] == payloads
            own = await alice.history()
            assert {message.request_id for message in own} == {receipt.request_id for receipt in receipts}
            assert {message.outcome for message in own} == {SendOutcome.DELIVERED}
            # A page may begin within a batch.
            for channel in (alice, bob):
                page = await channel.history(10)
                assert [m.payload for m in await channel.history(10, before=page[0])] == payloads[10:20]


@virtual_time()
async def test_without_batch_ms_each_send_has_a_waku_message():
    with LocalNetwork() as network:
        async with join(network, "alice", options=ReliableChannelOptions(sync_min_interval_ms=0)) as alice:
            await send_all(alice)
            assert network.statistics().published == 30


@virtual_time()
async def test_a_send_waits_no_longer_than_batch_ms_and_alone_is_sent_unmodified():
    with LocalNetwork() as network:
        async with join(network, "alice", options=BATCHES) as alice:
            stream = await network.node("carol").subscribe(PUBSUB_TOPIC, [TOPIC])
            began = asyncio.get_running_loop().time()
            await alice.send(b"alone in its time")
            assert 0.01 <= asyncio.get_running_loop().time() - began < 0.02
            (sent,) = await stream.next_batch()
            assert WAKU_SDS.decode(sent.message.payload).content == b"alone in its time"


@virtual_time()
async def test_sends_that_ask_for_different_acknowledgements_do_not_share_a_waku_message():
    with LocalNetwork() as network:
        async with (
            join(network, "alice", options=BATCHES) as alice,
            join(network, "bob") as bob,
            join(network, "carol") as carol,
        ):
            to_bob, to_both, late = await asyncio.gather(
                send_all(alice, READINGS[:10], by=["bob"]),
                send_all(alice, READINGS[10:20], count=2),
                send_all(alice, READINGS[20:], by=["dora"], deadline=timedelta(seconds=30)),
            )
            heard = heard_by(bob), heard_by(carol)
            for receipt in to_bob:
                assert "bob" in (await receipt.delivered()).delivered_to
            for receipt in to_both:
                assert (await receipt.delivered()).delivered_to == ("bob", "carol")
            for receipt in late:
                with pytest.raises(SendExpiredError):
                    await receipt.delivered()
            await asyncio.sleep(60)
            assert heard[0] == heard[1] == await own_payloads(alice)
            assert in_any_order(heard[0]) == in_any_order(READINGS)


@virtual_time()
async def test_a_send_with_a_request_id_keeps_its_place_and_can_be_repeated():
    with LocalNetwork() as network:
        async with join(network, "alice", options=BATCHES) as alice, join(network, "bob") as bob:
            payloads = heard_by(bob)
            before = asyncio.ensure_future(send_all(alice, READINGS[:10]))
            await asyncio.sleep(0.005)
            receipt = await alice.send(READINGS[10], request_id="eleventh")
            await before
            await send_all(alice, READINGS[11:])
            assert await alice.send(READINGS[10], request_id="eleventh") is receipt
            await asyncio.sleep(60)
            assert payloads[10] == READINGS[10]
            assert in_any_order(payloads) == in_any_order(READINGS)


@virtual_time()
async def test_a_send_of_a_batch_can_be_repeated_by_the_id_of_its_receipt():
    store = MemoryStore()
    with LocalNetwork() as network:
        async with join(network, "bob") as bob:
            payloads = heard_by(bob)
            async with join(network, "alice", options=BATCHES, store=store) as alice:
                ids = [receipt.request_id for receipt in await send_all(alice)]
                await asyncio.sleep(60)
            async with join(network, "alice", options=BATCHES, store=store) as alice:
                again = await alice.send(READINGS[17], request_id=ids[17])
                assert (await again.delivered()).delivered_to == ("bob",)
                more = await alice.send(READINGS[18], request_id=ids[18], count=2)
                async with join(network, "carol") as carol:
                    heard = heard_by(carol)
                    assert (await more.delivered()).delivered_to == ("bob", "carol")
                    await asyncio.sleep(60)
                    assert heard == await own_payloads(alice)
            assert in_any_order(payloads) == in_any_order(READINGS)


@virtual_time()
async def test_sends_join_the_batch_that_the_rate_limit_holds_back():
    limit = RateLimitConfig(enabled=True, epoch_ms=600_000, messages_per_epoch=4)
    options = ReliableChannelOptions(batch_ms=10, rate_limit=limit, sync_min_interval_ms=0)
    with LocalNetwork() as network:
        async with join(network, "alice", options=options) as alice, join(network, "bob") as bob:
            payloads, queued, delivered = heard_by(bob), [], []
            alice.on(MessageQueued, queued.append)
            alice.on(MessageDelivered, delivered.append)
            sent = [b"reading %d" % number for number in range(500)]
            # Each is durable before the next one is sent.
            receipts = [await alice.send(payload) for payload in sent]
            assert network.statistics().published <= 6
            await asyncio.sleep(HOUR_S)
            assert payloads == sent
            ids = [receipt.request_id for receipt in receipts]
            assert len({event.request_id for event in queued}) == len(queued) >= 490
            assert sorted(event.request_id for event in delivered) == sorted(ids)


@virtual_time()
async def test_sends_join_the_batch_that_waits_for_the_node():
    with LocalNetwork() as network:
        node = network.node()
        async with (
            create_reliable_channel(node, "harbour", "alice", TOPIC, options=BATCHES) as alice,
            join(network, "bob") as bob,
        ):
            payloads = heard_by(bob)
            node.go_offline()
            receipts = [await alice.send(payload) for payload in READINGS]
            before = network.statistics().published
            node.go_online()
            for receipt in receipts:
                await receipt.sent()
            assert network.statistics().published - before <= 2
            await asyncio.sleep(60)
            assert payloads == READINGS


@virtual_time()
async def test_each_send_of_a_batch_can_wait_for_all_that_are_present():
    with LocalNetwork() as network:
        async with (
            join(network, "alice", options=BATCHES) as alice,
            join(network, "bob") as bob,
            join(network, "carol") as carol,
        ):
            await asyncio.gather(bob.send(b"here"), carol.send(b"here, too"))
            await asyncio.sleep(10)
            receipts = await send_all(alice)
            for acknowledgement in await asyncio.gather(*(each.delivered(to_all_present=True) for each in receipts)):
                assert acknowledgement.delivered_to == ("bob", "carol")


@virtual_time()
async def test_a_cancelled_send_does_not_cancel_the_others_of_its_batch():
    with LocalNetwork() as network:
        async with join(network, "alice", options=BATCHES) as alice, join(network, "bob") as bob:
            payloads = heard_by(bob)
            first, second = asyncio.ensure_future(alice.send(b"first")), asyncio.ensure_future(alice.send(b"second"))
            await asyncio.sleep(0.005)
            first.cancel()
            assert (await (await second).delivered()).delivered_to == ("bob",)
            await asyncio.sleep(60)
            assert in_any_order(payloads) == [b"first", b"second"]


@virtual_time()
async def test_a_stop_sends_the_open_batch_and_a_closed_channel_refuses_sends():
    with LocalNetwork() as network:
        async with join(network, "bob") as bob:
            payloads = heard_by(bob)
            async with join(network, "alice", options=BATCHES) as alice:
                sending = asyncio.ensure_future(send_all(alice))
                await asyncio.sleep(0.005)
            assert len(await sending) == 30
            with pytest.raises(ChannelClosedError):
                await alice.send(b"too late")
            await asyncio.sleep(60)
            assert in_any_order(payloads) == in_any_order(READINGS)


@virtual_time()
async def test_each_send_of_a_batch_raises_the_error_of_the_store_and_can_be_repeated():
    with LocalNetwork() as network, SimulatedDisk() as disk:
        async with (
            join(network, "bob") as bob,
            join(network, "alice", options=BATCHES, store=disk.store("alice")) as alice,
        ):
            payloads = heard_by(bob)
            await asyncio.sleep(1)
            disk.strike("alice", DiskFault.SYNC_ERROR)
            sends = [asyncio.ensure_future(alice.send(payload)) for payload in READINGS]
            errors = await asyncio.gather(*sends, return_exceptions=True)
            assert all(isinstance(error, StorageError) for error in errors)
            ids = [str(error).partition("request_id='")[2].partition("'")[0] for error in errors]
            assert len(set(ids)) == 30
            await alice.start()
            for payload, request_id in zip(READINGS, ids, strict=True):
                await alice.send(payload, request_id=request_id)
            await asyncio.sleep(60)
            assert in_any_order(payloads) == in_any_order(READINGS)


@virtual_time()
async def test_a_batch_that_no_fairway_makes_is_one_message():
    refused = [encode_batch([b"one", b"", b"three"]), encode_batch([b"x"] * 1_001), encode_batch([b"alone"])]
    nested = encode_batch([b"one", b"two"])
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            payloads = heard_by(bob)
            for payload in (*refused, encode_batch([nested, b"three"])):
                await alice.send(payload)
            await asyncio.sleep(60)
            assert payloads == [*refused, nested, b"three"]
            assert bob.statistics().unfinished == 0


@virtual_time()
async def test_batches_arrive_whole_and_once_over_a_lossy_network():
    with LocalNetwork(NetworkFaults(loss=0.3, duplication=0.2, max_delay_ms=2_000), seed=5) as network:
        async with (
            join(network, "alice", options=BATCHES) as alice,
            join(network, "bob", options=BATCHES) as bob,
            join(network, "carol") as carol,
        ):
            heard = heard_by(carol)
            for first in range(0, 30, 5):
                await asyncio.gather(
                    send_all(alice, READINGS[first : first + 5]),
                    send_all(bob, [payload.upper() for payload in READINGS[first : first + 5]]),
                )
                await asyncio.sleep(3)
            await asyncio.sleep(2 * HOUR_S)
            for sender in (alice, bob):
                own = await own_payloads(sender)
                assert [payload for payload in heard if payload in own] == own
            assert in_any_order(heard) == in_any_order(READINGS + [payload.upper() for payload in READINGS])


@pytest.mark.parametrize("fault", [DiskFault.CRASH_BEFORE, DiskFault.CRASH_AFTER])
@pytest.mark.parametrize("after", range(6))
@virtual_time()
async def test_a_sender_that_is_killed_at_a_commit_loses_no_send_that_returned_and_repeats_none(after, fault):
    returned: list[bytes] = []
    limit = RateLimitConfig(enabled=True, epoch_ms=60_000, messages_per_epoch=2)
    options = ReliableChannelOptions(batch_ms=10, rate_limit=limit)

    async def life(network, store, payloads):
        node = next((node for node in network.nodes if node.name == "alice"), None) or network.node("alice")
        async with create_reliable_channel(node, "harbour", "alice", TOPIC, options=options, store=store) as alice:

            async def send(payload):
                await alice.send(payload)
                returned.append(payload)

            for first in range(0, len(payloads), 5):
                await asyncio.gather(*map(send, payloads[first : first + 5]))
            await asyncio.sleep(HOUR_S)
            kept.extend(await alice.history())

    with LocalNetwork() as network, SimulatedDisk() as disk:
        machine, kept = Machine(asyncio.get_running_loop()), []
        first = Process("alice", machine)
        disk.on_crash = lambda _: first.kill()
        disk.strike("alice", fault, after=2 + after)
        async with join(network, "bob") as bob:
            payloads = heard_by(bob)
            first.spawn(life(network, disk.store("alice"), READINGS))
            await asyncio.sleep(30)
            second = Process("alice", machine)
            second.spawn(life(network, disk.store("alice"), [b"later"]))
            await asyncio.sleep(2 * HOUR_S)
            assert disk.happened[fault] == 1
            own = [message.payload for message in kept]
            assert payloads == own
            assert len(set(own)) == len(own)
            assert set(returned) <= set(own)
            assert {message.outcome for message in kept} == {SendOutcome.DELIVERED}
        second.kill()


@pytest.mark.parametrize("fault", [DiskFault.CRASH_BEFORE, DiskFault.CRASH_AFTER])
@pytest.mark.parametrize("after", range(6))
@virtual_time()
async def test_a_receiver_that_is_killed_at_a_commit_gets_each_message_of_a_batch_once(after, fault):
    messages: list[MessageReceived] = []

    async def life(network, store):
        node = next((node for node in network.nodes if node.name == "bob"), None) or network.node("bob")
        async with create_reliable_channel(node, "harbour", "bob", TOPIC, store=store) as bob:
            async for message in bob:
                messages.append(message)
                await asyncio.sleep(0.01)

    with LocalNetwork() as network, SimulatedDisk() as disk:
        machine = Machine(asyncio.get_running_loop())
        first = Process("bob", machine)
        disk.on_crash = lambda _: first.kill()
        disk.strike("bob", fault, after=2 + after)
        async with join(network, "alice", options=BATCHES) as alice:
            first.spawn(life(network, disk.store("bob")))
            await asyncio.sleep(1)
            receipts = await send_all(alice)
            await asyncio.sleep(30)
            second = Process("bob", machine)
            second.spawn(life(network, disk.store("bob")))
            for receipt in receipts:
                assert (await receipt.delivered()).delivered_to == ("bob",)
            await asyncio.sleep(HOUR_S)
            assert disk.happened[fault] == 1
            # A message is handed over twice only if the first program had not finished it: it is marked then.
            assert list(dict.fromkeys(message.payload for message in messages)) == await own_payloads(alice)
            seen = [message.payload for message in messages if not message.redelivered]
            again = [message.payload for message in messages if message.redelivered]
            assert len(seen) == len(set(seen))
            assert len(again) == len(set(again))
        second.kill()


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.full] * (seed > 0)) for seed in range(10)])
def test_no_crash_of_any_participant_loses_or_repeats_a_message_of_a_batch(seed):
    run(group_with_crashes(seed), seed=seed)


async def group_with_crashes(seed):
    """Let three participants send readings at 30 % loss, and lose power at random commits; then let them catch up."""
    names, returned, handed = ("alice", "bob", "carol"), set(), {}
    limit = RateLimitConfig(enabled=True, epoch_ms=60_000, messages_per_epoch=10)
    options = ReliableChannelOptions(batch_ms=10, rate_limit=limit)
    number = count()

    async def life(network, name, store):
        node = next((node for node in network.nodes if node.name == name), None) or network.node(name)
        async with create_reliable_channel(node, "harbour", name, TOPIC, options=options, store=store) as channel:

            async def send(payload):
                await channel.send(payload, by=[other for other in names if other != name])
                returned.add(payload)

            async def talk():
                while asyncio.get_running_loop().time() < HOUR_S / 3:
                    sends = (send(b"%s %d" % (name.encode(), next(number))) for _ in range(7))
                    # A store that has lost its power fails a moment before its program is killed.
                    await asyncio.gather(*sends, return_exceptions=True)
                    await asyncio.sleep(60)

            talking = asyncio.ensure_future(talk())
            async for message in channel:
                handed.setdefault((name, message.order_key), []).append(message)
            await talking

    with LocalNetwork(NetworkFaults(loss=0.3, duplication=0.1), seed=seed) as network, SimulatedDisk(seed) as disk:
        processes: dict[str, Process] = {}

        def begin(name):
            processes[name] = Process(name, Machine(asyncio.get_running_loop()))
            task = processes[name].spawn(life(network, name, disk.store(name)))
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

        def crash(name):
            processes[name].kill()
            disk.later(5, partial(begin, name))

        disk.on_crash = crash
        disk.faults = DiskFaults(crash_before=0.03, crash_after=0.03)
        for name in names:
            begin(name)
        await asyncio.sleep(HOUR_S / 3)
        disk.faults = DiskFaults()
        await asyncio.sleep(2 * HOUR_S)
        assert disk.happened.total() > 5
        heard = {name: [] for name in names}
        for (name, _), messages in handed.items():
            heard[name].append(messages[0].payload)
            assert [message.redelivered for message in messages[1:]] == [True] * (len(messages) - 1)
        for name in names:
            assert len(heard[name]) == len(set(heard[name]))
            others = {payload for payload in returned if not payload.startswith(name.encode())}
            assert others <= set(heard[name])
        by_sender = [{p for p in heard[name] if p.startswith(b"alice")} for name in ("bob", "carol")]
        assert by_sender[0] == by_sender[1]
        for process in processes.values():
            process.kill()
