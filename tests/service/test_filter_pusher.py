"""What waits for filter subscribers: bounded for each and for all of them, and a slow one costs only itself."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.service.filter_pusher import FilterPusher
from fairway.service.push_queue import PushQueue
from fairway.waku.libp2p.host import Host
from fairway.waku.libp2p.shared_bytes import SharedBytes
from fairway.wire.filter import FILTER_PUSH_PROTOCOL

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
    queue.written()
    assert asyncio.run(queue.next_piece(100)) == frames[4:]
    # It was not written, so it comes again, with what came meanwhile.
    queue.put(b"16")
    assert asyncio.run(queue.next_piece(100)) == [*frames[4:], b"16"]
    queue.close()
    queue.put(b"late")
    assert asyncio.run(queue.next_piece(100)) == []
    assert (held.size_bytes, queue.waiting_bytes) == (0, 0)


steps = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["put", "piece", "written", "give way"])), max_size=40)


@settings(deadline=None)
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
                queue.written()
            elif what == "give way":
                queue.give_way()
            different = {frame for one in queues for frame in one._frames}
            assert held.size_bytes == sum(map(len, different))
            assert all(len(one) <= 5 and one.waiting_bytes == 30 * len(one) for one in queues)

    asyncio.run(work())
    for queue in queues:
        queue.close()
    assert held.size_bytes == 0


def test_many_slow_subscribers_with_messages_of_their_own_hold_a_bounded_amount_together():
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
            pusher = FilterPusher(node, on_gone=lambda _: None, max_held_bytes=2_000_000)
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
                await asyncio.sleep(0.005)
            async with asyncio.timeout(10):
                while len(got) < 40:  # noqa: ASYNC110 - the subscriber's list has no event
                    await asyncio.sleep(0.01)
            assert got == [b"%d" % number for number in range(40)]
            statistics = pusher.statistics()
            assert statistics.dropped >= 60
            assert statistics.held_bytes == statistics.waiting_bytes > 250_000
            for peer in slow:
                pusher.forget(peer.peer_id)
            assert pusher.statistics().held_bytes == 0
            over.set()

    asyncio.run(asyncio.wait_for(work(), 30))


@pytest.mark.parametrize("leaves", [False, True], ids=["is here and takes nothing", "has left"])
def test_a_subscriber_is_given_up_if_it_takes_nothing_but_not_because_it_left(monkeypatch, leaves):
    monkeypatch.setattr("fairway.service.filter_pusher._PAUSE_S", 0.01)

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
                async with asyncio.timeout(10):
                    while node.connections():  # noqa: ASYNC110 - what a host knows of its own connections
                        await asyncio.sleep(0.01)
            pusher.push([peer.peer_id], b"a message")
            async with asyncio.timeout(10):
                while pusher.statistics().subscribers:  # noqa: ASYNC110 - a figure has no event
                    await asyncio.sleep(0.01)
            assert given_up == ([] if leaves else [peer.peer_id])
            assert pusher.statistics().held_bytes == 0

    asyncio.run(asyncio.wait_for(work(), 30))
