"""What opens after a crash is a prefix of what was written, with everything that the store answered for."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections import Counter
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.channel.creation import create_reliable_channel
from fairway.errors import ConfigurationError, StorageError, StoreCorruptError, StoreFullError, StoreLockedError
from fairway.events import MessageReceived, RequestSent
from fairway.nodes.local import LocalNetwork
from fairway.protocol.effects import Change
from fairway.storage import sqlite_writer
from fairway.storage.channel_store import Handling, StoredRequest, TracePoint, Write
from fairway.storage.memory_store import MemoryStore
from fairway.testing import DiskFault, DiskFaults, Machine, Process, SimulatedDisk, run, virtual_time

OWNER = ("harbour", "alice", "/fairway/1/harbour/proto")
OWNER_OF_BOB = ("harbour", "bob", OWNER[2])
ERRORS = (DiskFault.FULL, DiskFault.SYNC_ERROR)
ALL_FAULTS = DiskFaults(crash_before=0.02, crash_after=0.02, torn=0.05, full=0.02, sync_error=0.02)


def received(number):
    return MessageReceived(
        message_id="m",
        sender_id="bob",
        channel_id="harbour",
        content_topic=OWNER[2],
        payload=b"%d" % number,
        timestamp_ns=number,
        message_hashes=(),
        sds_ids=(),
    )


def write(number, size_bytes=10):
    """Return a write that touches every table; a prefix of them is told from any other by what is kept."""
    return Write(
        changes=(
            Change(table="history", key=str(number % 7), row=(number, bytes([number % 256]) * size_bytes)),
            Change(table="last", key="", row=(number,)),
            Change(table="history", key=str((number + 3) % 7), row=None),
        ),
        delivered=((number, received(number)),),
        handling=(Handling(number=number, attempts=1),),
        finished=(number - 4,),
        requests=(StoredRequest(request_id=f"r{number}", message_id="m", size_bytes=1, accepted_at_ms=number),),
        trace=(TracePoint(at_ms=number, event=RequestSent(request_id=f"r{number}", message_id="m")),),
    )


def content_of(store, stored):
    """Return everything that a store keeps."""
    rows = {(change.table, change.key): change.row for change in stored.changes}
    return rows, stored.inbox, stored.handling, [point.event.request_id for point in store.trace("m")]


def content_after(writes):
    """Return what a store keeps after these writes and no others."""
    store = MemoryStore()
    store.open(*OWNER)
    for each in writes:
        store.submit(each, lambda error: None)
    store.close()
    return content_of(store, store.open(*OWNER))


class Keeper:
    """A program that writes to a store, and sees after each crash that its past is what it must be."""

    def __init__(self, disk, name="alice"):
        self.disk, self.name = disk, name
        self.store = None
        self.life = 0
        self.writes = []
        self.answered = 0
        """Writes from the first on that were answered with success, or found on the disk."""
        self.failed = False
        self.history = []
        """What happened, for comparing worlds of the same seed."""
        disk.on_crash = self._crashed

    async def ready(self):
        """Open the store if the machine crashed or the store failed to open."""
        while self.store is None:
            store = self.disk.store(self.name)
            try:
                stored = store.open(*OWNER)
            except (StoreCorruptError, StoreLockedError):
                raise
            except StorageError as error:
                self.history.append(type(error))
                await asyncio.sleep(0.001)  # the news of a crash, if it was one
                self.disk.power_loss(self.name)
            else:
                self._began(store, stored)

    def submit(self, size_bytes=10):
        number, life = len(self.writes), self.life
        self.writes.append(write(number, size_bytes))

        def done(error):
            assert life == self.life, "a dead store answered"
            if error is None:
                assert (number, self.failed) == (self.answered, False)
                self.answered += 1
            else:
                self.failed = True
            self.history.append((number, type(error)))

        self.store.submit(self.writes[-1], done)

    def power_loss(self):
        self.disk.power_loss(self.name)
        self._died()

    async def close(self):
        """Close the store, and be told of everything that was written."""
        self.store.close()
        await asyncio.sleep(0.001)
        self.store = None

    def _began(self, store, stored):
        rows = {(change.table, change.key): change.row for change in stored.changes}
        (last,) = rows.get(("last", ""), (-1,))
        kept = last + 1
        assert self.answered <= kept <= len(self.writes)
        assert content_of(store, stored) == content_after(self.writes[:kept])
        self.history.append((kept, len(self.writes) - kept))
        del self.writes[kept:]
        self.answered, self.failed, self.store = kept, False, store

    def _crashed(self, name):
        assert name == self.name
        self._died()

    def _died(self):
        self.life += 1
        self.store = None


async def live(keeper, steps):
    for step in steps:
        await keeper.ready()
        match step:
            case "write", count, size_bytes:
                for _ in range(count):
                    keeper.submit(size_bytes)
            case "wait", ms:
                await asyncio.sleep(ms / 1_000)
            case "fault", fault:
                keeper.disk.strike(keeper.name, fault)
            case "power loss", _:
                keeper.power_loss()
            case "close", _:
                await keeper.close()
    await keeper.ready()
    await keeper.close()
    await keeper.ready()


sizes = st.sampled_from([10, 300, 3_000, 40_000])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 9), sizes),
        st.tuples(st.just("wait"), st.sampled_from([0, 1, 3, 20])),
        st.tuples(st.just("fault"), st.sampled_from(DiskFault)),
        st.tuples(st.just("power loss"), st.none()),
        st.tuples(st.just("close"), st.none()),
    ),
    max_size=30,
)


@given(steps=steps, seed=st.integers(0, 2**32))
def test_what_opens_again_is_a_prefix_with_everything_that_was_answered_for(steps, seed):
    async def world():
        with SimulatedDisk(seed) as disk:
            await live(Keeper(disk), steps)

    run(world(), seed=seed)


async def hour_of_faults(seed, syncs=400):
    """Return what happened to a program on a bad disk, and which faults struck."""
    with SimulatedDisk(seed) as disk:
        disk.faults = ALL_FAULTS
        keeper = Keeper(disk)
        for number in range(syncs):
            await keeper.ready()
            keeper.submit(10 ** (number % 5))
            await asyncio.sleep(0.004)
            if keeper.failed:
                keeper.power_loss()
        disk.faults = DiskFaults()
        await live(keeper, ())
        return keeper.history, disk.happened


@pytest.mark.full
def test_a_bad_disk_loses_nothing_that_was_answered_for_while_its_log_begins_anew(rng, monkeypatch):
    monkeypatch.setattr(sqlite_writer, "CHECKPOINT_AFTER_BYTES", 100_000)
    monkeypatch.setattr(sqlite_writer, "TRIM_AFTER", 20)
    happened = Counter()
    for _ in range(3):
        world_seed = rng.randrange(2**32)
        happened += run(hour_of_faults(world_seed), seed=world_seed)[1]
    assert set(happened) == set(DiskFault)


def test_the_same_seed_gives_the_same_faults_and_another_one_others(seed):
    first, again, other = (run(hour_of_faults(each, 150), seed=each) for each in (seed, seed, seed + 1))
    assert first == again
    assert first != other


async def opened(disk, name="alice"):
    keeper = Keeper(disk, name)
    await keeper.ready()
    return keeper


@virtual_time()
async def test_an_answer_comes_after_the_latency_and_in_the_context_of_whoever_submitted():
    current, answers = ContextVar("current", default="nobody"), []
    loop = asyncio.get_running_loop()

    def submit(name):
        current.set(name)
        store.submit(Write(), lambda error: answers.append((current.get(), error, loop.time())))

    with SimulatedDisk() as disk:
        disk.faults = DiskFaults(latency_ms=(250.0, 250.0))
        store = disk.store("alice")
        store.open(*OWNER)
        for name in ("bob", "carol"):
            loop.call_soon(submit, name)
        await asyncio.sleep(0.249)
        assert answers == []
        await asyncio.sleep(0.002)
        assert answers == [("bob", None, 0.25), ("carol", None, 0.25)]


@virtual_time()
async def test_the_answers_of_one_commit_come_together_and_late():
    with SimulatedDisk() as disk:
        disk.faults = DiskFaults(latency_ms=(5, 5), answer_ms=(100, 100))
        store = disk.store("alice")
        store.open(*OWNER)
        loop = asyncio.get_running_loop()
        answers: list[tuple[float, StorageError | None]] = []
        begun = loop.time()
        for number in range(3):
            store.submit(write(number), lambda error: answers.append((loop.time() - begun, error)))
        await asyncio.sleep(0.05)
        assert not answers
        await asyncio.sleep(1)
        assert answers == [(pytest.approx(0.105), None)] * 3


@pytest.mark.parametrize(("fault", "kept"), [(DiskFault.CRASH_BEFORE, 1), (DiskFault.CRASH_AFTER, 3)])
@virtual_time()
async def test_a_crash_amid_a_commit_is_told_and_never_answered(fault, kept):
    with SimulatedDisk() as disk:
        keeper = await opened(disk)
        keeper.submit()
        await asyncio.sleep(1)
        disk.strike("alice", fault)
        keeper.submit()
        keeper.submit()
        dead = keeper.store
        await asyncio.sleep(1)
        assert keeper.life == 1
        assert keeper.answered == 1
        dead.submit(write(9), lambda error: pytest.fail("a dead store answered"))
        with pytest.raises(StorageError, match="not open"):
            dead.request("r0")
        with pytest.raises(StorageError, match=r"lost power.*new store"):
            dead.open(*OWNER)
        dead.close()
        await keeper.ready()
        assert keeper.answered == kept


@pytest.mark.parametrize("fault", DiskFault)
@virtual_time()
async def test_a_fault_at_any_sync_from_the_making_of_the_file_on_loses_nothing(fault):
    for after in itertools.count():
        with SimulatedDisk(after) as disk:
            keeper = Keeper(disk)
            disk.strike("alice", fault, after=after)
            for size_bytes in (10, 30_000, 10, 3_000):
                await keeper.ready()
                keeper.submit(size_bytes)
                await asyncio.sleep(1)
                if keeper.failed:
                    await keeper.close()
            await keeper.ready()
            await keeper.close()
            await keeper.ready()
            if not disk.happened:
                break
    # The schema, its second and third version, two openings, the first removal of old records, and the writes.
    assert after == 8


@pytest.mark.parametrize("fault", ERRORS)
@virtual_time()
async def test_after_an_error_nothing_is_kept_until_the_store_is_opened_again(fault):
    with SimulatedDisk() as disk:
        keeper = await opened(disk)
        keeper.submit()
        await asyncio.sleep(1)
        disk.strike("alice", fault)
        errors = []
        for number in (1, 2):
            keeper.store.submit(write(number), errors.append)
            await asyncio.sleep(1)
        assert [type(error) for error in errors] == [StoreFullError] * 2
        keeper.store.close()
        stored = keeper.store.open(*OWNER)
        kept = [[write(0)]] if fault is DiskFault.FULL else [[write(0)], [write(0), write(1)]]
        assert content_of(keeper.store, stored) in map(content_after, kept)
        answers = []
        keeper.store.submit(write(3, 100_000), answers.append)
        await asyncio.sleep(1)
        assert answers == [None]


@virtual_time()
async def test_what_was_synced_survives_a_loss_of_power_and_other_machines_do_not_notice():
    with SimulatedDisk() as disk:
        stores = {name: disk.store(name) for name in ("alice", "bob/2")}
        for name, store in stores.items():
            store.open("harbour", name, OWNER[2])
            store.submit(write(0), lambda error: None)
        await asyncio.sleep(1)
        with pytest.raises(StoreLockedError):
            disk.store("alice").open("harbour", "alice", OWNER[2])
        disk.power_loss("alice")
        again = disk.store("alice")
        stored = again.open("harbour", "alice", OWNER[2])
        assert content_of(again, stored) == content_after([write(0)])
        assert stores["bob/2"].request("r0") is not None


@virtual_time()
async def test_a_loss_of_power_leaves_the_log_as_it_is_and_a_clean_end_none():
    with SimulatedDisk() as disk:
        keeper = await opened(disk)
        keeper.submit()
        await asyncio.sleep(1)
        path = keeper.store.path
        log = path.with_name(f"{path.name}-wal")
        before = log.read_bytes()
        disk.power_loss("alice")
        assert log.read_bytes() == before
        keeper.store = None
        await keeper.ready()
        keeper.store.close()
        assert not log.exists()


@virtual_time()
async def test_of_a_torn_write_any_part_is_on_the_disk_and_what_is_not_whole_does_not_count(rng):
    logs, kept = set(), set()
    for _ in range(30):
        with SimulatedDisk(rng.randrange(2**32)) as disk:
            disk.on_crash = lambda _: None
            store: Any = disk.store("alice")
            store.open(*OWNER)
            disk.strike("alice", DiskFault.TORN)
            store.submit(write(0, 3_000), lambda error: pytest.fail("a dead store answered"))
            await asyncio.sleep(1)
            logs.add(store.path.with_name(f"{store.path.name}-wal").stat().st_size)
            kept.add(bool(disk.store("alice").open(*OWNER).changes))
    assert len(logs) > 5
    assert False in kept


@virtual_time()
async def test_what_an_error_of_fsync_leaves_is_on_the_disk_or_not(rng):
    kept = set()
    for _ in range(20):
        with SimulatedDisk(rng.randrange(2**32)) as disk:
            store = disk.store("alice")
            store.open(*OWNER)
            disk.strike("alice", DiskFault.SYNC_ERROR)
            store.submit(write(0), lambda error: None)
            store.close()
            kept.add(bool(store.open(*OWNER).changes))
    assert kept == {True, False}


@virtual_time()
async def test_a_store_that_is_closed_writes_what_is_queued_at_once():
    with SimulatedDisk() as disk:
        keeper = await opened(disk)
        keeper.submit()
        keeper.store.close()
        await asyncio.sleep(0)
        assert keeper.answered == 1


def test_under_real_time_there_is_no_simulated_disk():
    async def main():
        with SimulatedDisk() as disk, pytest.raises(ConfigurationError, match=r"run this with fairway\.testing\.run"):
            disk.store("alice").open(*OWNER)

    asyncio.run(main())


@virtual_time()
async def test_a_disk_removes_its_own_folder_and_leaves_one_that_was_given(tmp_path):
    answers = []
    with SimulatedDisk() as own, SimulatedDisk(folder=tmp_path) as given_one:
        stores: list[Any] = [disk.store("alice") for disk in (own, given_one)]
        for store in stores:
            store.open(*OWNER)
            store.submit(write(0), answers.append)
    await asyncio.sleep(1)
    assert answers == []
    assert not stores[0].path.exists()
    assert stores[1].path.parent == tmp_path
    assert stores[1].path.exists()


KILLED = """
import sys, time
from fairway.testing import SimulatedDisk, run

async def main():
    disk = SimulatedDisk()
    store = disk.store("alice")
    store.open("harbour", "alice", "/fairway/1/harbour/proto")
    print(store.path.parent, flush=True)
    time.sleep(3600)

run(main())
"""


def test_what_a_killed_program_left_in_memory_is_removed_by_the_next_disk_and_nothing_that_is_in_use():
    programs = [subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        folders = [Path(program.stdout.readline().strip()) for program in programs if program.stdout is not None]
        programs[0].kill()
        programs[0].wait()
        assert [folder.is_dir() for folder in folders] == [True, True]
        with SimulatedDisk(), SimulatedDisk():
            assert [folder.is_dir() for folder in folders] == [False, True]
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    with SimulatedDisk():
        assert not folders[1].exists()
    for folder in folders:
        assert not list(folder.parent.glob(f"{folder.name}*"))


@pytest.mark.parametrize(
    "wrong", [{"torn": -0.1}, {"full": 1.1}, {"torn": 0.6, "full": 0.6}, {"latency_ms": (3.0, 1.0)}]
)
def test_shares_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        DiskFaults(**wrong)


@virtual_time()
async def test_a_message_whose_finishing_was_not_kept_is_handed_over_again():
    with LocalNetwork() as network, SimulatedDisk() as disk:
        loop = asyncio.get_running_loop()
        node = network.node("bob")
        heard = []

        async def life():
            async with await create_reliable_channel(node, *OWNER_OF_BOB, store=disk.store("bob")) as channel:
                async for message in channel:
                    heard.append((message.payload, message.redelivered))
                    if not message.redelivered:
                        # The next sync is that of the message being finished.
                        disk.strike("bob", DiskFault.CRASH_BEFORE)

        async with await create_reliable_channel(network.node("alice"), *OWNER) as alice:
            first = Process("bob", Machine(loop))
            disk.on_crash = lambda name: first.kill()
            first.spawn(life())
            await asyncio.sleep(1)
            await alice.send(b"the storm is here")
            await asyncio.sleep(60)
            assert not first.is_alive
            assert heard == [(b"the storm is here", False)]
            second = Process("bob", Machine(loop))
            second.spawn(life())
            await asyncio.sleep(60)
            assert heard == [(b"the storm is here", False), (b"the storm is here", True)]
            second.kill()
