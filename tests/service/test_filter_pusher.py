"""What waits for filter subscribers: bounded for each and for all of them, and a slow one costs only itself."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from fairway.libp2p.host import Host
from fairway.service.filter_pusher import FilterPusher
from fairway.wire.filter import FILTER_PUSH_PROTOCOL
from patience import until

LISTEN = ["/ip4/127.0.0.1/tcp/0"]


async def test_many_slow_subscribers_with_messages_of_their_own_hold_a_bounded_amount_together(monkeypatch):
    monkeypatch.setattr("fairway.service.filter_pusher.MAX_HELD_BYTES", 2_000_000)
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
                pusher.push([str(peer.peer_id)], b"%d %s" % (number, bytes(50_000)))
            pusher.push([str(honest.peer_id)], b"%d" % number)
            assert pusher.statistics().held_bytes <= 2_000_000
            await until(lambda number=number: len(got) > number)
        assert got == [b"%d" % number for number in range(40)]
        statistics = pusher.statistics()
        assert statistics.dropped >= 60
        assert statistics.held_bytes >= statistics.waiting_bytes > 250_000
        for peer in peers:
            pusher.forget(str(peer.peer_id))
        assert pusher.statistics().held_bytes == 0
        over.set()


@pytest.mark.parametrize("leaves", [False, True], ids=["is here and takes nothing", "has left"])
async def test_a_subscriber_that_reads_nothing_loses_its_subscription_and_a_disconnected_one_keeps_it(
    monkeypatch, leaves
):
    monkeypatch.setattr("fairway.service.filter_pusher.PAUSE_S", 0.01)
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
        pusher.push([str(peer.peer_id)], b"a message")
        await until(lambda: not pusher.statistics().subscribers)
        assert given_up == ([] if leaves else [str(peer.peer_id)])
        # What a subscriber that left would have got is lost to nobody.
        assert (pusher.statistics().held_bytes, pusher.statistics().dropped) == (0, 0 if leaves else 1)


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
        yield pusher, str(peer.peer_id), given_up


@pytest.mark.parametrize("size", [10, 20_000], ids=["short", "more than a window holds"])
@pytest.mark.parametrize("when", ["at once", "when all is written"])
async def test_a_subscriber_that_reads_one_message_of_a_stream_gets_all_of_them_once(size, when):
    """go-waku's filter client does so."""
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


async def test_a_subscriber_that_reads_to_the_end_gets_all_messages_on_one_stream(monkeypatch):
    """js-waku's and nwaku's do so."""
    monkeypatch.setattr("fairway.service.filter_pusher.PROBATION_S", 0.2)
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


async def test_a_subscriber_that_refuses_fast_messages_gets_them_later(monkeypatch):
    """go-waku's filter client resets streams beyond 20 at once and 15 a second."""
    monkeypatch.setattr("fairway.service.filter_pusher.PAUSE_S", 0.01)
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


@pytest.mark.parametrize("reads_one_first", [False, True])
async def test_a_subscriber_that_resets_every_stream_is_given_up(monkeypatch, reads_one_first):
    monkeypatch.setattr("fairway.service.filter_pusher.PAUSE_S", 0.01)
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
