"""Snapshots: what they cover, and what a newcomer that starts from one gets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.errors import FairwayError, MessageTooLargeError
from fairway.identity import Identity
from fairway.nodes.local import LocalNetwork, NetworkFaults
from fairway.options import Profile, RateLimitConfig, Receive, ReliableChannelOptions, SegmentationConfig
from fairway.storage.memory_store import MemoryStore
from fairway.testing import DiskFault, Machine, Process, SimulatedDisk, run, virtual_time
from fairway.wire.coverage import Coverage
from groups import Group, in_group
from listening import heard_by, join, listen
from slow_cipher import SlowCipher

QUIET = ReliableChannelOptions(sync_min_interval_ms=600_000, retry_interval_ms=600_000)
LIMIT = RateLimitConfig(enabled=True, messages_per_epoch=2, epoch_ms=10_000, max_queued=1)
SMALL_SEGMENTS = ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=1_000))


class App:
    """Counts the messages of each participant, and rejects one that comes twice, too late or too early."""

    def __init__(self, name):
        self.name, self.counts = name, Counter()

    async def start(self, channel):
        """Start from the newest snapshot of a channel, then read its messages."""
        self.channel = channel
        snapshot = await channel.latest_snapshot()
        if snapshot is not None:
            self.counts = Counter(json.loads(snapshot.state))
            for message in snapshot.later:
                self.apply(message)
        listen(channel, self.apply)
        return snapshot

    def apply(self, message):
        number, seen, _ = json.loads(message.payload)
        assert number == self.counts[message.sender_id], "each message once, in the order of its sender"
        assert all(self.counts[name] >= count for name, count in seen.items()), "after all that its sender had"
        self.counts[message.sender_id] += 1

    async def send(self, size=0):
        payload = json.dumps([self.counts[self.name], self.counts, "x" * size]).encode()
        self.counts[self.name] += 1
        return await self.channel.send(payload)

    async def snapshot(self):
        return await self.channel.snapshot(json.dumps(self.counts).encode())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "big", "snapshot", "apart", "together", "wait"]),
        st.sampled_from(["alice", "bob", "carol"]),
        st.sampled_from([0.0, 0.02, 0.5, 20.0]),
    ),
    min_size=5,
    max_size=25,
)


@settings(max_examples=20, deadline=None)
@given(
    steps=STEPS,
    rest=STEPS,
    lost=st.sampled_from(["alice", "bob", "carol"]),
    loss=st.sampled_from([0.0, 0.3]),
    profile=st.sampled_from(Profile),
    batch_ms=st.sampled_from([0, 30]),
    seed=st.integers(0, 1_000),
)
def test_all_have_one_state_however_messages_cross_the_snapshots(steps, rest, lost, loss, profile, batch_ms, seed):
    options = replace(SMALL_SEGMENTS, profile=profile, batch_ms=batch_ms)

    async def world():
        with LocalNetwork(NetworkFaults(loss=loss), seed=seed) as network:
            apps = {name: App(name) for name in ("alice", "bob", "carol")}
            stores = {name: MemoryStore() for name in apps}
            for name, app in apps.items():
                await app.start(await join(network, name, options=options, store=stores[name]))

            async def play(script):
                for what, who, pause_s in script:
                    if what in {"send", "big"}:
                        await apps[who].send(size=5_000 if what == "big" else 0)
                    elif what == "snapshot":
                        await apps[who].snapshot()
                    elif what == "apart":
                        network.partition({who}, apps.keys() - {who})
                    elif what == "together":
                        network.heal()
                    await asyncio.sleep(pause_s)
                network.heal()

            await play(steps)
            apps["dora"] = App("dora")
            joining = asyncio.ensure_future(apps["dora"].start(await join(network, "dora", options=options)))
            await play(rest)
            await joining
            await apps["dora"].send()
            if await apps[lost].channel.latest_snapshot() is not None:
                await apps[lost].channel.close()
                apps[lost] = App(lost)
                await apps[lost].start(await join(network, lost, options=options, store=stores[lost]))
            await asyncio.sleep(3_600)
            counts = [app.counts for app in apps.values()]
            assert counts[1:] == counts[:-1]
            for app in apps.values():
                assert not app.channel.gaps()
                await app.channel.close()

    run(world(), seed=seed)


@virtual_time()
async def test_joining_costs_what_came_after_the_snapshot_over_a_lossy_network_and_with_a_kill_in_the_middle():
    with LocalNetwork() as network, SimulatedDisk() as disk:
        async with join(network, "alice", options=QUIET) as alice, join(network, "bob", options=QUIET) as bob:
            apps = {name: App(name) for name in ("alice", "bob")}
            await apps["alice"].start(alice)
            await apps["bob"].start(bob)
            for number in range(5_000):
                await apps["alice"].send()
                await asyncio.sleep(1)
                if number in {2_000, 4_850}:
                    await apps["bob"].snapshot()
            network.faults = NetworkFaults(loss=0.3)
            machine, lives = Machine(asyncio.get_running_loop()), []

            async def life():
                async with join(network, "dora", store=disk.store("dora"), options=QUIET) as dora:
                    app = App("dora")
                    lives.append((dora, app, await app.start(dora)))
                    await asyncio.Event().wait()

            first = Process("dora", machine)
            first.spawn(life())
            await Group.until(lambda: lives and lives[0][1].counts["alice"] >= 4_900)
            queries = lives[0][0].statistics().store_queries
            first.kill()
            disk.power_loss("dora")
            second = Process("dora", machine)
            second.spawn(life())
            await Group.until(lambda: len(lives) > 1 and lives[1][1].counts["alice"] == 5_000)
            (_, _, snapshot), (dora, app, again) = lives
            assert snapshot.sender_id == again.sender_id == "bob"
            assert Counter(json.loads(snapshot.state)) == Counter(json.loads(again.state)) == {"alice": 4_851}
            assert again.later, "the first life finished messages that its state had"
            assert app.counts == apps["bob"].counts
            # 150 messages came after the snapshot, and 60 in the minute before it that is read again.
            assert queries + dora.statistics().store_queries < 40
            assert dora.statistics().retrieved < 1_000
            second.kill()


@pytest.mark.parametrize("fault", [DiskFault.CRASH_BEFORE, DiskFault.CRASH_AFTER])
@pytest.mark.parametrize("after", range(8))
@virtual_time()
async def test_a_newcomer_that_crashes_at_any_write_starts_again_from_the_snapshot(fault, after):
    with LocalNetwork() as network, SimulatedDisk() as disk:
        machine, apps = Machine(asyncio.get_running_loop()), [App("dora")]

        async def life():
            with suppress(FairwayError):
                async with join(network, "dora", store=disk.store("dora")) as dora:
                    apps.append(App("dora"))
                    await apps[-1].start(dora)
                    await asyncio.Event().wait()

        async with join(network, "alice") as channel:
            alice = App("alice")
            await alice.start(channel)
            for number in range(30):
                await alice.send()
                if number == 20:
                    await alice.snapshot()
            first = Process("dora", machine)
            disk.on_crash = lambda _: first.kill()
            disk.strike("dora", fault, after=after)
            first.spawn(life())
            await asyncio.sleep(60)
            first.kill()
            second = Process("dora", machine)
            second.spawn(life())
            await alice.send()
            await asyncio.sleep(600)
            assert apps[-1].counts == alice.counts
            second.kill()


@virtual_time()
async def test_a_snapshot_covers_what_is_finished_and_in_the_hand_of_its_caller():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            for text in (b"1", b"2", b"3", b"4", b"5"):
                await alice.send(text)
            first, second = aiter(bob), aiter(bob)
            one, _two = await anext(first), await asyncio.create_task(anext(second))
            three = await anext(first)
            bob.finish(three)
            await anext(first)
            await bob.snapshot(b"of 1, 3 and 4")
            assert one.payload == b"1"
            await asyncio.sleep(60)
            async with join(network, "dora") as dora:
                assert (await dora.latest_snapshot()).state == b"of 1, 3 and 4"
                heard = heard_by(dora)
                await asyncio.sleep(60)
                assert heard == [b"2", b"5"]


@virtual_time()
async def test_a_handler_publishes_and_starts_from_snapshots():
    with LocalNetwork() as network:
        texts = []

        async def handle(message):
            texts.append(message.payload)
            if message.payload == b"2":
                await bob.snapshot(b" ".join(texts))

        async with join(network, "alice") as alice, join(network, "bob", receive=handle) as bob:
            for text in (b"1", b"2", b"3"):
                await alice.send(text)
                await asyncio.sleep(200)
            state = []
            dora = await join(network, "dora", receive=lambda m: state.append(m.payload), options={"auto_start": False})
            snapshot = await dora.latest_snapshot()
            assert not dora.is_started()
            await asyncio.sleep(60)
            assert (snapshot.state, state) == (b"1 2", [])
            await dora.start()
            await asyncio.sleep(60)
            assert state == [b"3"]
            await dora.close()


@virtual_time()
async def test_a_loop_over_events_publishes_and_starts_from_snapshots():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob", receive=Receive.EVENTS) as bob:
            for text in (b"1", b"2", b"3"):
                await alice.send(text)
            received = (each async for each in bob.events() if getattr(each, "payload", None))
            await anext(received)
            await anext(received)
            await bob.snapshot(b"1 2")
            await asyncio.sleep(60)
            async with join(network, "dora") as dora:
                assert (await dora.latest_snapshot()).state == b"1 2"
                assert (await anext(aiter(dora))).payload == b"3"


@in_group(on_disk=True)
async def test_a_program_that_lost_its_state_continues_from_its_store(group, tmp_path):
    alice, bob = await group.channel("alice"), await group.channel("bob", store=tmp_path / "bob.db")
    stream = aiter(bob)
    await alice.send(b"1")
    await bob.send(b"own 1")
    await group.take(stream, 1)
    await (await alice.snapshot(b"superseded")).delivered()
    await bob.snapshot(b"with 1")
    await bob.send(b"own 2")
    await alice.send(b"2")
    await alice.send(b"3")
    assert await group.take(stream, 2) == [b"2", b"3"]
    await bob.close()
    bob = await group.channel("bob", store=tmp_path / "bob.db")
    snapshot = await bob.latest_snapshot()
    assert (snapshot.state, snapshot.sender_id) == (b"with 1", "bob")
    assert sorted(each.payload for each in snapshot.later) == [b"2", b"own 2"], "3 is not finished"
    assert await group.take(aiter(bob), 1) == [b"3"]


@virtual_time()
async def test_participants_get_a_snapshot_as_a_state_and_not_as_a_message():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            assert await bob.latest_snapshot() is None
            heard = heard_by(bob)
            receipt = await alice.snapshot(b"older")
            assert (await receipt.delivered()).delivered_to == ("bob",)
            await alice.snapshot(b"newer")
            await alice.send(b"hello")
            await asyncio.sleep(60)
            assert heard == [b"hello"]
            snapshot = await bob.latest_snapshot()
            assert (bytes(snapshot), snapshot.sender_id) == (b"newer", "alice")


@virtual_time()
async def test_a_newcomer_starts_with_an_asynchronous_cipher_and_signatures():
    keys = {name: Identity.new() for name in ("alice", "dora")}
    members = {name: key.public_key for name, key in keys.items()}

    def signed(network, name):
        return join(network, name, encryption=SlowCipher(), identity=keys[name], members=members)

    with LocalNetwork() as network:
        async with signed(network, "alice") as alice:
            await alice.send(b"before")
            await alice.snapshot(b"x" * 300_000)
            await alice.send(b"after")
            await asyncio.sleep(200)
            async with join(network, "mallory", encryption=SlowCipher()) as mallory:
                await mallory.snapshot(b"everything is covered")
                await asyncio.sleep(200)
                async with signed(network, "dora") as dora:
                    assert (await dora.latest_snapshot()).state == b"x" * 300_000
                    assert (await anext(aiter(dora))).payload == b"after"


@virtual_time()
async def test_messages_that_are_sent_while_a_snapshot_waits_come_after_it():
    with LocalNetwork() as network:
        few = ReliableChannelOptions(batch_ms=50, rate_limit=LIMIT)
        async with join(network, "alice", options=few) as alice:
            for number in range(5):
                await alice.send(b"until no room is left: %d" % number)
            before = [asyncio.ensure_future(alice.send(b"before %d" % number)) for number in range(10)]
            await asyncio.sleep(0)
            waiting = asyncio.ensure_future(alice.snapshot(b"with 10"))
            await asyncio.sleep(0)
            after = [asyncio.ensure_future(alice.send(b"after %d" % number)) for number in range(10)]
            await asyncio.gather(*before, waiting, *after)
            await asyncio.sleep(600)
            async with join(network, "dora") as dora:
                assert (await dora.latest_snapshot()).state == b"with 10"
                heard = heard_by(dora)
                await asyncio.sleep(600)
                assert sorted(heard) == [b"after %d" % number for number in range(10)]


@virtual_time()
async def test_a_snapshot_amid_a_batch_covers_its_finished_messages():
    with LocalNetwork() as network:
        async with (
            join(network, "alice", options=ReliableChannelOptions(batch_ms=50)) as alice,
            join(network, "bob") as bob,
        ):
            await asyncio.gather(*(alice.send(b"%d" % number) for number in range(5)))
            messages = aiter(bob)
            await Group.take(messages, 2)
            await bob.snapshot(b"with two of five")
            rest = await Group.take(messages, 3)
            await asyncio.sleep(60)
            async with join(network, "dora") as dora:
                assert (await dora.latest_snapshot()).state == b"with two of five"
                assert await Group.take(aiter(dora), 3) == rest
                await asyncio.sleep(60)
                assert dora.statistics().unfinished == 1, "the message in hand"


@virtual_time()
async def test_a_newcomer_waits_a_while_for_a_store_node():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            await (await alice.snapshot(b"state")).sent()
        node = network.node("dora")
        node.store_available = False
        async with join(network, "dora") as dora:
            assert await dora.latest_snapshot() is None
            waiting = asyncio.ensure_future(dora.latest_snapshot())
            await asyncio.sleep(5)
            node.store_available = True
            assert (await waiting).state == b"state"


@virtual_time()
async def test_a_newcomer_waits_a_minute_for_an_old_message_that_no_store_has():
    with LocalNetwork(NetworkFaults(store_loss=1.0)) as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            await (await alice.send(b"not finished")).delivered()
            network.faults = NetworkFaults()
            await asyncio.create_task(anext(aiter(bob)))
            for number in range(10):
                await (await alice.send(b"%d" % number)).delivered()
                bob.finish(await anext(aiter(bob)))
            await bob.snapshot(b"0 to 9")
            await (await bob.send(b"after")).sent()
        async with join(network, "dora") as dora:
            assert (await dora.latest_snapshot()).state == b"0 to 9"
            heard = heard_by(dora)
            await asyncio.sleep(50)
            assert heard == []
            await asyncio.sleep(50)
            assert heard == [b"after"]


@virtual_time()
async def test_a_state_that_is_too_large_is_refused():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            with pytest.raises(MessageTooLargeError, match="the state has 2000000 bytes"):
                await alice.snapshot(bytes(2_000_000))
            assert await alice.latest_snapshot() is None


def test_a_snapshot_covers_no_message_after_itself_whatever_it_says():
    said = Coverage(read_from_ms=99, floor=(99, "z"), newest={"bob": 99}).before("eve", 50, now_ms=60)
    assert said == Coverage(read_from_ms=60, floor=(49, ""), newest={"bob": 49, "eve": 49})
