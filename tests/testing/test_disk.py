"""What opens after a crash is a prefix of what was written, with everything that the store answered for."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.channel.creation import create_reliable_channel
from fairway.errors import ConfigurationError, StorageError, StoreCorruptError, StoreFullError, StoreLockedError
from fairway.events import MessageReceived, RequestSent
from fairway.nodes.local import LocalNetwork
from fairway.protocol.effects import Change
from fairway.storage.channel_store import Handling, StoredRequest, TracePoint, Write
from fairway.storage.memory_store import MemoryStore
from fairway.storage.store_reader import StoreReader
from fairway.testing import DiskFault, Machine, Process, SimulatedDisk, run, virtual_time

OWNER = ("harbour", "alice", "/fairway/1/harbour/proto")
OWNER_OF_BOB = ("harbour", "bob", OWNER[2])
ERRORS = (DiskFault.FULL, DiskFault.SYNC_ERROR)


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


def content_of(stored, points):
    """Return the rows and messages that a store returns when it is opened, and the requests of trace points."""
    rows = {(change.table, change.key): change.row for change in stored.changes}
    return rows, stored.inbox, stored.handling, [point.event.request_id for point in points]


def content_after(writes):
    """Return what a store keeps after these writes and no others."""
    store = MemoryStore()
    store.open(*OWNER)
    for each in writes:
        store.submit(each, lambda error: None)
    store.close()
    return content_of(store.open(*OWNER), [point for each in writes for point in each.trace])


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
        assert content_of(stored, StoreReader(store.path).trace("m")) == content_after(self.writes[:kept])
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
def test_a_reopened_store_is_a_prefix_with_all_confirmed_writes(steps, seed):
    async def world():
        with SimulatedDisk(seed) as disk:
            await live(Keeper(disk), steps)

    run(world(), seed=seed)


async def opened(disk, name="alice"):
    keeper = Keeper(disk, name)
    await keeper.ready()
    return keeper


@pytest.mark.parametrize("fault", DiskFault)
@virtual_time()
async def test_a_fault_at_any_sync_loses_no_confirmed_write(fault):
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
    # The schema, two openings, four writes, and the merge of the journal at the end of the first run.
    assert after == 8


@pytest.mark.parametrize("fault", ERRORS)
@virtual_time()
async def test_after_an_error_writes_fail_until_the_store_is_opened_again(fault):
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
        assert content_of(stored, StoreReader(keeper.store.path).trace("m")) in map(content_after, kept)
        answers = []
        keeper.store.submit(write(3, 100_000), answers.append)
        await asyncio.sleep(1)
        assert answers == [None]


def test_a_simulated_disk_raises_under_real_time():
    async def main():
        with SimulatedDisk() as disk, pytest.raises(ConfigurationError, match=r"run this with fairway\.testing\.run"):
            disk.store("alice").open(*OWNER)

    asyncio.run(main())


@virtual_time()
async def test_a_message_is_delivered_again_if_finishing_it_was_not_stored():
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
