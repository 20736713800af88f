"""PubSub over real hosts: what is published arrives, and what slow, bad and returning peers cost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random

import pytest

from fairway.libp2p.errors import ConnectionClosedError, StreamResetError
from fairway.libp2p.gossipsub.codec import (
    Message,
    SubscriptionChange,
    decode_message,
    decode_rpc,
    encode_message,
    publish_frame,
    subscription_frame,
)
from fairway.libp2p.gossipsub.pubsub import PubSub
from fairway.libp2p.gossipsub.router import Router, ValidationResult
from fairway.libp2p.host import Host
from patience import PATIENCE_S, until

TOPIC = "/waku/2/rs/16/0"
PROTOCOL = "/vac/waku/relay/2.0.0"


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr("fairway.libp2p.gossipsub.pubsub.HEARTBEAT_INTERVAL_S", 0.05)


def accept(message):
    return ValidationResult.ACCEPT


class Member(PubSub):
    """A member that says on which host it is."""

    host: Host


@contextlib.asynccontextmanager
async def member(validator=accept):
    async with (
        await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as host,
        Member(host, PROTOCOL, validator=validator, rng=random.Random(1)) as pubsub,
    ):
        pubsub.host = host
        yield pubsub


@contextlib.asynccontextmanager
async def stranger(pubsub, *, reads=True):
    """A peer that does as the test wants: its host, and its stream to the member."""

    async def listen(stream):
        while reads and await stream.read():
            pass
        if not reads:
            await asyncio.Event().wait()

    async with await Host.start() as host:
        host.handle(PROTOCOL, listen)
        connection = await host.connect(pubsub.host.addresses[0])
        stream = await connection.open_stream([PROTOCOL])
        await stream.write(subscription_frame((SubscriptionChange(topic=TOPIC, subscribed=True),)))
        yield host, stream


async def join(*members):
    for one, other in itertools.pairwise(members):
        await one.host.connect(other.host.addresses[0])
    subscriptions = [one.subscribe(TOPIC) for one in members]
    await until(lambda: all(one.mesh_of(TOPIC) for one in members))
    return subscriptions


async def collect(subscription, count):
    got = []
    while len(got) < count:
        got += [delivered.message.data for delivered in await subscription.next_batch()]
    return got


def numbered(count, size=20):
    return [number.to_bytes(4, "big") * (size // 4) for number in range(count)]


def test_a_message_reaches_every_member_once_and_the_publisher_learns_how_many_got_it(run):
    async def scenario():
        async with member() as one, member() as two, member() as three:
            subscriptions = await join(one, two, three)
            messages = numbered(30)
            for message in messages:
                assert await two.publish(TOPIC, message) == 2
            for subscription in (subscriptions[0], subscriptions[2]):
                assert await collect(subscription, 30) == messages
            assert len(subscriptions[1]) == 0
            assert await two.publish(TOPIC, messages[0]) == 0
            assert two.statistics().published == 30

    run(scenario())


@pytest.mark.full
def test_what_waits_for_all_slow_peers_together_is_bounded_also_if_each_got_other_messages(run, monkeypatch):
    monkeypatch.setattr("fairway.libp2p.gossipsub.pubsub.MAX_OUTBOX_BYTES", 2_000_000)
    monkeypatch.setattr("fairway.libp2p.gossipsub.pubsub.MAX_WAITING_BYTES", 1_000_000)

    async def scenario():
        async with member() as one, contextlib.AsyncExitStack() as exits:
            one.subscribe(TOPIC)
            most = 0
            for _ in range(4):
                before = len(one.peers_of(TOPIC))
                _, stream = await exits.enter_async_context(stranger(one, reads=False))
                await until(lambda before=before: len(one.peers_of(TOPIC)) == before + 1)
                # More than the stream's window: the rest waits here, and stays when the peer loses interest.
                for _ in range(16):
                    await one.publish(TOPIC, random.randbytes(50_000))
                    most = max(most, one.held_bytes)
                await stream.write(subscription_frame((SubscriptionChange(topic=TOPIC, subscribed=False),)))
                await until(lambda before=before: len(one.peers_of(TOPIC)) == before)
            assert 900_000 < most <= 1_000_000
            assert one.dropped > 5

    run(scenario())


@pytest.mark.full
def test_a_peer_that_does_not_read_loses_the_oldest_messages_and_delays_nobody_for_long(run, monkeypatch):
    monkeypatch.setattr("fairway.libp2p.gossipsub.pubsub.MAX_OUTBOX_BYTES", 1_000_000)

    async def scenario():
        async with member() as one, member() as two, stranger(one, reads=False):
            _, subscription = await join(one, two)
            await until(lambda: len(one.peers_of(TOPIC)) == 2)
            messages = numbered(200, 50_000)
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            for message in messages:
                await one.publish(TOPIC, message)
                await asyncio.sleep(0)
            waited_s = loop.time() - began_s
            assert sorted(await collect(subscription, 200)) == sorted(messages)
            assert one.held_bytes <= 1_000_000 + 100_000
            assert one.dropped >= 150
            assert waited_s < PATIENCE_S  # one wait of a second for it, not one for each of 200 messages

    run(scenario())


def test_a_peer_that_sends_no_rpc_loses_that_stream_and_nothing_else(run):
    async def scenario():
        async with member() as one, member() as two, stranger(one) as (host, stream):
            _, subscription = await join(one, two)
            await until(lambda: host.peer_id in one.peers_of(TOPIC))
            await stream.write_frame(b"\xff" * 50)
            with pytest.raises(StreamResetError):
                await stream.read()
            assert host.connections()
            again = await host.open_stream(one.host.peer_id, [PROTOCOL])
            await again.write(publish_frame(b"\x12\x06data!!\x22" + bytes([len(TOPIC)]) + TOPIC.encode()))
            assert await collect(subscription, 1) == [b"data!!"]

    run(scenario())


def test_a_message_gets_to_a_peer_that_reset_the_idle_stream_before(run):
    """nim-libp2p resets a stream that was idle for 5 minutes, js-libp2p for 2."""

    async def scenario():
        reset, received = asyncio.Event(), asyncio.Queue()

        async def listen(stream):
            if not reset.is_set():
                await stream.read_frame(1_000_000)
                await stream.reset()
                reset.set()
            while (frame := await stream.read_frame(1_000_000)) is not None:
                for encoded in decode_rpc(frame).messages:
                    received.put_nowait(decode_message(encoded, 1_000_000).data)

        async with member() as one, await Host.start() as host:
            one.subscribe(TOPIC)
            host.handle(PROTOCOL, listen)
            await host.connect(one.host.addresses[0])
            await reset.wait()
            async with await host.open_stream(one.host.peer_id, [PROTOCOL]) as stream:
                await stream.write(subscription_frame((SubscriptionChange(topic=TOPIC, subscribed=True),)))
                await until(lambda: one.peers_of(TOPIC))
                messages = numbered(3)
                for message in messages:
                    assert await one.publish(TOPIC, message) == 1
                assert [await received.get() for _ in messages] == messages

    run(scenario())


def test_a_frame_longer_than_the_bound_is_not_waited_for(run):
    async def scenario():
        async with member() as one, stranger(one) as (_, stream):
            await stream.write(b"\x80\x80\x80\x80\x08")  # 2 GiB follow
            with pytest.raises(StreamResetError):
                await stream.read()
            assert one.host.statistics().buffered_bytes < 1_000

    run(scenario())


def test_a_peer_that_sends_very_many_frames_lets_others_have_their_turn(run, monkeypatch):
    async def scenario():
        received, longest, since = 0, 0, 0
        receive = Router.receive

        def counted(*arguments):
            nonlocal received, longest, since
            received, since = received + 1, since + 1
            longest = max(longest, since)
            return receive(*arguments)

        monkeypatch.setattr(Router, "receive", counted)
        async with member() as one, stranger(one) as (_, stream):

            async def other():
                nonlocal since
                while True:
                    await asyncio.sleep(0)
                    since = 0

            received = 0
            others = asyncio.create_task(other())
            await stream.write(b"\x00" * 100_000)
            await until(lambda: received >= 100_000)
            others.cancel()
            assert longest < 1_000

    run(scenario())


def test_a_peer_whose_stream_broke_is_spoken_to_again_and_still_known(run):
    async def scenario():
        async with member() as one, member() as two:
            _, subscription = await join(one, two)
            for connection in two.host.connections():
                for stream in connection.streams():
                    if stream.inbound and stream.protocol == PROTOCOL:
                        await stream.reset()
            for message in numbered(60):
                await one.publish(TOPIC, message)
                await asyncio.sleep(0)
            await until(lambda: one.peers_of(TOPIC) == {two.host.peer_id})
            marker = b"after the break"
            await until(lambda: one.mesh_of(TOPIC))
            await one.publish(TOPIC, marker)
            got = []
            while marker not in got:
                got += await collect(subscription, 1)

    run(scenario())


def test_peers_that_come_and_go_leave_no_tasks_behind(run):
    async def scenario():
        async with member() as one:
            one.subscribe(TOPIC)

            async def come_and_go(times):
                for _ in range(times):
                    async with stranger(one) as (host, _stream):
                        await until(lambda: host.peer_id in one.peers_of(TOPIC))
                await until(lambda: not one.host.connections() and not one.peers_of(TOPIC))

            await come_and_go(1)
            before = len(asyncio.all_tasks())
            await come_and_go(15)
            await until(lambda: len(asyncio.all_tasks()) <= before)

    run(scenario())


def test_a_peer_with_a_score_beyond_hope_is_parted_with(run):
    async def scenario():
        async with member(lambda message: ValidationResult.REJECT) as one, stranger(one) as (host, stream):
            one.subscribe(TOPIC)
            await until(lambda: host.peer_id in one.peers_of(TOPIC))
            bad = [publish_frame(encode_message(Message(topic=TOPIC, data=data))) for data in numbered(20)]
            await stream.write(b"".join(bad))
            await until(lambda: not one.host.connections())
            with pytest.raises((StreamResetError, ConnectionClosedError)):
                await stream.read()
            # Who comes back is as bad as before.
            connection = await host.connect(one.host.addresses[0])
            again = await connection.open_stream([PROTOCOL])
            await again.write(subscription_frame((SubscriptionChange(topic=TOPIC, subscribed=True),)))
            await until(lambda: not one.host.connections())

    run(scenario())


def test_closing_leaves_no_task_even_when_peers_go_on_talking(run):
    async def scenario():
        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as host:
            pubsub = Member(host, PROTOCOL, validator=accept, rng=random.Random(1))
            pubsub.start()
            subscription = pubsub.subscribe(TOPIC)
            pubsub.host = host
            async with stranger(pubsub) as (_, stream):
                await until(lambda: pubsub.mesh_of(TOPIC) or pubsub.peers_of(TOPIC))
                await pubsub.close()
                await pubsub.close()
                assert [one async for one in subscription] == []
                with contextlib.suppress(StreamResetError):
                    await stream.write(subscription_frame((SubscriptionChange(topic=TOPIC, subscribed=True),)))
                # The host was left its connection; what the peer says there is heard by nobody any more.
                with contextlib.suppress(StreamResetError):
                    while await stream.read():
                        pass
                await until(lambda: not [one for one in asyncio.all_tasks() if "PubSub" in one.get_coro().__qualname__])

    run(scenario())
