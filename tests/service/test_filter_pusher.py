"""What waits for filter subscribers: bounded for each and for all of them, and a slow one costs only itself."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.libp2p.host import Host
from fairway.libp2p.shared_bytes import SharedBytes
from fairway.service.filter_pusher import FilterPusher
from fairway.service.push_queue import PushQueue
from fairway.wire.filter import FILTER_PUSH_PROTOCOL
from patience import run, until

LISTEN = ["/ip4/127.0.0.1/tcp/0"]


def test_what_is_being_written_stays_and_of_the_rest_the_oldest_give_way():
    held = SharedBytes()
    queue = PushQueue(held, max_messages=3, max_bytes=1_000)
    frames = [b"%d" % number for number in range(10, 16)]
    queue.put(frames[0])
    piece = asyncio.run(queue.next_piece(1))
    for frame in frames[1:]:
        queue.put(frame)
    assert (piece, len(queue), queue.dropped, held.size_bytes) == (frames[:1], 3, 3, 6)
    queue.settle()
    assert asyncio.run(queue.next_piece(100)) == frames[4:]
    # It was not written, so it comes again, with what came meanwhile.
    queue.put(b"16")
    assert asyncio.run(queue.next_piece(100)) == [*frames[4:], b"16"]
    queue.close()
    queue.put(b"late")
    assert asyncio.run(queue.next_piece(100)) == []
    assert (held.size_bytes, queue.waiting_bytes) == (0, 0)


def test_what_was_written_and_may_not_have_been_read_comes_again_before_the_rest_and_gives_way_first():
    held = SharedBytes()
    queue = PushQueue(held, max_messages=4, max_bytes=1_000)
    frames = [b"%d" % number for number in range(10, 17)]
    for frame in frames[:3]:
        queue.put(frame)
    assert asyncio.run(queue.next_piece(4)) == frames[:2]
    queue.keep()
    assert (len(queue), queue.waiting_bytes, queue.kept_bytes, held.size_bytes) == (1, 2, 4, 6)
    queue.settle(queue.unread()[1:])
    assert asyncio.run(queue.next_piece(100)) == frames[1:3]
    queue.keep()
    for frame in frames[3:]:
        queue.put(frame)
    assert (queue.kept_bytes, queue.dropped) == (0, 0)
    assert asyncio.run(queue.next_piece(100)) == frames[3:]
    queue.keep()
    queue.forget_kept()
    assert (len(queue), held.size_bytes) == (0, 0)


def test_a_queue_hands_out_no_more_messages_at_once_than_it_is_asked_for():
    queue = PushQueue(SharedBytes(), max_messages=10, max_bytes=1_000)
    for number in range(5):
        queue.put(b"%d" % number)
    assert asyncio.run(queue.next_piece(1_000, 2)) == [b"0", b"1"]


steps = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from(["put", "piece", "written", "keep", "again", "forget", "give way", "close"])
    ),
    max_size=40,
)


@given(steps)
def test_bytes_are_counted_once_however_many_queues_hold_them(given_steps):
    held = SharedBytes()
    queues = [PushQueue(held, max_messages=4, max_bytes=100) for _ in range(3)]

    async def work():
        for number, (which, what) in enumerate(given_steps):
            queue = queues[which]
            if what == "put":
                frame = bytes([number]) * 30
                for one in queues[which:]:
                    one.put(frame)
            elif what == "piece" and len(queue):
                assert len(await queue.next_piece(50)) == 1
            elif what == "written":
                queue.settle()
            elif what == "keep":
                queue.keep()
            elif what == "again":
                queue.settle(queue.unread()[1:])
            elif what == "forget":
                queue.forget_kept()
            elif what == "give way":
                queue.give_way()
            elif what == "close":
                queue.close()
            different = {frame for one in queues for frame in one.frames}
            assert held.size_bytes == sum(map(len, different))
            assert all(len(one) <= 5 and one.waiting_bytes == 30 * len(one) for one in queues)
            assert all(one.waiting_bytes + one.kept_bytes == sum(map(len, one.frames)) for one in queues)

    asyncio.run(work())
    for queue in queues:
        queue.close()
    assert held.size_bytes == 0


def test_many_slow_subscribers_with_messages_of_their_own_hold_a_bounded_amount_together(monkeypatch):
    monkeypatch.setattr("fairway.service.filter_pusher.MAX_HELD_BYTES", 2_000_000)

    async def work():
        got = []
        over = asyncio.Event()

        async def read_all(stream):
            while (frame := await stream.read_frame(1 << 20)) is not None:
                got.append(frame)

        async def read_nothing(stream):
            await over.wait()

        async with contextlib.AsyncExitStack() as exits:
            node = await exits.enter_async_context(await Host.start(listen=LISTEN))
            pusher = FilterPusher(node, on_gone=lambda _: None)
            exits.push_async_callback(pusher.close)
            peers = []
            for number in range(6):
                peer = await exits.enter_async_context(await Host.start())
                peer.handle(FILTER_PUSH_PROTOCOL, read_nothing if number else read_all)
                await peer.connect(node.addresses[0])
                peers.append(peer)
            honest, *slow = peers
            for number in range(40):
                for peer in slow:
                    pusher.push([peer.peer_id], b"%d %s" % (number, bytes(50_000)))
                pusher.push([honest.peer_id], b"%d" % number)
                assert pusher.statistics().held_bytes <= 2_000_000
                await until(lambda number=number: len(got) > number)
            assert got == [b"%d" % number for number in range(40)]
            statistics = pusher.statistics()
            assert statistics.dropped >= 60
            assert statistics.held_bytes >= statistics.waiting_bytes > 250_000
            for peer in peers:
                pusher.forget(peer.peer_id)
            assert pusher.statistics().held_bytes == 0
            over.set()

    run(work())


@pytest.mark.parametrize("leaves", [False, True], ids=["is here and takes nothing", "has left"])
def test_a_subscriber_is_given_up_if_it_takes_nothing_but_not_because_it_left(monkeypatch, leaves):
    monkeypatch.setattr("fairway.service.filter_pusher.PAUSE_S", 0.01)

    async def work():
        given_up = []
        async with contextlib.AsyncExitStack() as exits:
            node = await exits.enter_async_context(await Host.start(listen=LISTEN))
            pusher = FilterPusher(node, on_gone=given_up.append)
            exits.push_async_callback(pusher.close)
            peer = await exits.enter_async_context(await Host.start())
            connection = await peer.connect(node.addresses[0])
            if leaves:
                await connection.close()
                await until(lambda: not node.connections())
            pusher.push([peer.peer_id], b"a message")
            await until(lambda: not pusher.statistics().subscribers)
            assert given_up == ([] if leaves else [peer.peer_id])
            # What a subscriber that left would have got is lost to nobody.
            assert (pusher.statistics().held_bytes, pusher.statistics().dropped) == (0, 0 if leaves else 1)

    run(work())


@contextlib.asynccontextmanager
async def pushing(handler):
    """A pusher, and the one peer that it pushes to, which has a handler for the streams."""
    async with contextlib.AsyncExitStack() as exits:
        node = await exits.enter_async_context(await Host.start(listen=LISTEN))
        given_up = []
        pusher = FilterPusher(node, on_gone=given_up.append)
        exits.push_async_callback(pusher.close)
        peer = await exits.enter_async_context(await Host.start())
        peer.handle(FILTER_PUSH_PROTOCOL, handler)
        await peer.connect(node.addresses[0])
        yield pusher, peer.peer_id, given_up


@pytest.mark.parametrize("size", [10, 20_000], ids=["short", "more than a window holds"])
@pytest.mark.parametrize("when", ["at once", "when all is written"])
def test_a_subscriber_that_reads_one_message_of_a_stream_gets_all_of_them_once(size, when):
    """go-waku's filter client does so."""

    async def work():
        got = []
        go_on = asyncio.Event()

        async def read_one(stream):
            got.append(await stream.read_frame(1 << 20))
            await go_on.wait()
            await stream.close()

        async with pushing(read_one) as (pusher, peer, given_up):
            if when == "at once":
                go_on.set()
            sent = [b"%d %s" % (number, bytes(size)) for number in range(60)]
            for message in sent:
                pusher.push([peer], message)
            await until(lambda: got)
            if when == "when all is written":
                await until(lambda: pusher.statistics().pushed == 60 or size > 10)
            go_on.set()
            await until(lambda: len(got) >= 60)
            assert sorted(got) == sorted(sent)
            await until(lambda: not pusher.statistics().held_bytes)
            assert given_up == []
            assert pusher.statistics().dropped == 0

    run(work())


def test_a_subscriber_that_reads_to_the_end_gets_all_messages_on_one_stream(monkeypatch):
    """js-waku's and nwaku's do so."""
    monkeypatch.setattr("fairway.service.filter_pusher.PROBATION_S", 0.2)

    async def work():
        streams, got = [], []

        async def read_all(stream):
            streams.append(stream)
            while (frame := await stream.read_frame(1 << 20)) is not None:
                got.append(frame)

        async with pushing(read_all) as (pusher, peer, given_up):
            sent = [b"%d" % number for number in range(300)]
            for message in sent[:200]:
                pusher.push([peer], message)
            # What was written is let go of once the stream has proved itself.
            await until(lambda: len(got) == 200 and not pusher.statistics().held_bytes)
            for message in sent[200:]:
                pusher.push([peer], message)
            await until(lambda: len(got) == 300 and not pusher.statistics().held_bytes)
            assert (got, len(streams), given_up) == (sent, 1, [])

    run(work())


def test_a_subscriber_that_refuses_what_comes_too_fast_gets_it_later(monkeypatch):
    """go-waku's filter client resets streams beyond 20 at once and 15 a second."""
    monkeypatch.setattr("fairway.service.filter_pusher.PAUSE_S", 0.01)

    async def work():
        got, refused, numbers = [], [], itertools.count()

        async def read_some(stream):
            if next(numbers) % 8 > 4:
                refused.append(stream)
                await stream.reset()
                return
            got.append(await stream.read_frame(1 << 20))
            await stream.close()

        async with pushing(read_some) as (pusher, peer, given_up):
            sent = [b"%d" % number for number in range(100)]
            for message in sent:
                pusher.push([peer], message)
            await until(lambda: not pusher.statistics().held_bytes)
            assert sorted(got) == sorted(sent)
            assert refused
            assert given_up == []

    run(work())


@pytest.mark.parametrize("reads_one_first", [False, True])
def test_a_subscriber_that_resets_every_stream_is_given_up(monkeypatch, reads_one_first):
    monkeypatch.setattr("fairway.service.filter_pusher.PAUSE_S", 0.01)

    async def work():
        streams = []

        async def refuse(stream):
            streams.append(stream)
            if reads_one_first and len(streams) == 1:
                await stream.read_frame(1 << 20)
                await stream.close()
            else:
                await stream.reset()

        async with pushing(refuse) as (pusher, peer, given_up):
            for number in range(3):
                pusher.push([peer], b"%d" % number)
            await until(lambda: given_up)
            assert len(streams) <= 20
            assert pusher.statistics().held_bytes == 0

    run(work())
