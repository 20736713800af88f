"""A channel belongs to one event loop, and its store to one channel: other uses raise errors that say what to do."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from fairway import connect, create_reliable_channel
from fairway.errors import EventLoopError, StoreLockedError
from fairway.nodes.local import LocalNetwork
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.storage.memory_store import MemoryStore
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S

TOPIC = "/fairway/1/harbour/proto"

pytestmark = pytest.mark.filterwarnings("ignore:unclosed ReliableChannel:ResourceWarning")


def create(network, store=None, name="alice"):
    return create_reliable_channel(network.node(), "harbour", name, TOPIC, store=store)


async def updates(receipt):
    return [progress async for progress in receipt.updates()]


CALLS = {
    "send": lambda channel, receipt: channel.send(b"x"),
    "send_ephemeral": lambda channel, receipt: channel.send_ephemeral(b"x"),
    "start": lambda channel, receipt: channel.start(),
    "stop": lambda channel, receipt: channel.stop(),
    "settle": lambda channel, receipt: channel.settle(receipt.request_id),
    "Receipt.delivered": lambda channel, receipt: receipt.delivered(),
    "Receipt.updates": lambda channel, receipt: updates(receipt),
}
FUNCTIONS = {
    "on": lambda channel: channel.on("message-sent", print),
    "messages": aiter,
    "events": lambda channel: channel.events(),
    "finish": lambda channel: channel.finish(None),
    "receipt": lambda channel: channel.receipt("request"),
    "statistics": lambda channel: channel.statistics(),
    "status": lambda channel: channel.status,
    "gaps": lambda channel: channel.gaps(),
}


async def raised_by(call, *arguments):
    with pytest.raises(EventLoopError) as caught:
        async with asyncio.timeout(PATIENCE_S):
            await call(*arguments)
    return str(caught.value)


def test_a_channel_whose_event_loop_has_ended_says_so():
    with LocalNetwork() as network:

        async def leave_open():
            channel = await create(network)
            return channel, await channel.send(b"hello"), aiter(channel), channel.events()

        channel, receipt, messages, events = asyncio.run(leave_open())
        assert not channel.is_started()
        for call in CALLS.values():
            assert "has ended" in asyncio.run(raised_by(call, channel, receipt))
        for stream in (messages, events):
            assert "has ended" in asyncio.run(raised_by(anext, stream))
        for function in FUNCTIONS.values():
            with pytest.raises(EventLoopError, match="has ended"):
                function(channel)
        asyncio.run(channel.close())


def test_a_channel_that_is_used_in_another_thread_says_how_to_call_it_there():
    async def story():
        with LocalNetwork() as network:
            async with create(network) as channel:
                receipt, messages, events = await channel.send(b"hello"), aiter(channel), channel.events()
                for call in CALLS.values():
                    told = await asyncio.to_thread(asyncio.run, raised_by(call, channel, receipt))
                    assert "run_coroutine_threadsafe" in told
                assert "run_coroutine_threadsafe" in await asyncio.to_thread(asyncio.run, raised_by(channel.close))
                for stream in (messages, events):
                    assert "another event loop" in await asyncio.to_thread(asyncio.run, raised_by(anext, stream))
                for function in FUNCTIONS.values():
                    with pytest.raises(EventLoopError, match="call_soon_threadsafe"):
                        await asyncio.to_thread(function, channel)
                loop = asyncio.get_running_loop()
                sending = await asyncio.to_thread(asyncio.run_coroutine_threadsafe, channel.send(b"right"), loop)
                await (await asyncio.wrap_future(sending)).sent()

    asyncio.run(story())


async def _opened(opening):
    return await opening


@pytest.mark.parametrize("address", ["local:", "/ip4/127.0.0.1/tcp/1", "http://127.0.0.1:1"])
def test_a_node_whose_event_loop_has_ended_says_so_and_can_be_closed(address):
    message = RoutedMessage.of("/waku/2/rs/1/0", WakuMessage(payload=b"x", content_topic=TOPIC, timestamp_ns=1))
    node = asyncio.run(connect(address, connect_timeout_s=None))
    calls = (
        lambda: node.send(message),
        lambda: node.query(StoreQuery(message_hashes=(message.message_hash,))),
        lambda: node.subscribe(message.pubsub_topic, [TOPIC]),
        lambda: _opened(create_reliable_channel(node, "harbour", "alice", TOPIC)),
    )
    for call in calls:
        assert "the node belongs to an event loop that has ended" in asyncio.run(raised_by(call))
    asyncio.run(node.close())


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_store_of_a_channel_that_was_never_closed_names_that_channel(tmp_path, kind):
    store = MemoryStore() if kind == "memory" else tmp_path / "alice.db"

    async def story():
        with LocalNetwork() as network:
            first = await create(network, store)
            receipt = await first.send(b"hello")
            with pytest.raises(StoreLockedError, match=r"'alice', started> .* never closed: await its close") as caught:
                await create(network, store)
            assert caught.value.channel is first
            await caught.value.channel.close()
            async with create(network, store) as second:
                await second.receipt(receipt.request_id).sent()

    asyncio.run(story())


@pytest.mark.parametrize("kind", ["file", "memory"])
@pytest.mark.parametrize("is_collected", [True, False])
def test_the_store_of_a_channel_whose_event_loop_has_ended_can_be_opened_again(tmp_path, is_collected, kind):
    store = MemoryStore() if kind == "memory" else tmp_path / "alice.db"
    kept = []

    async def leave_open():
        channel = await create(network, store)
        kept.append(channel)
        return (await channel.send(b"hello")).request_id

    async def go_on(request_id):
        async with create(network, store) as channel:
            await channel.receipt(request_id).sent()

    with LocalNetwork() as network:
        request_id = asyncio.run(leave_open())
        if is_collected:
            kept.clear()
            gc.collect()
        asyncio.run(go_on(request_id))
        for channel in kept:
            asyncio.run(channel.close())
        asyncio.run(go_on(request_id))


def test_a_channel_that_was_never_closed_is_a_resource_warning():
    async def leave_open(*, closes):
        with LocalNetwork() as network:
            channel = await create(network)
            if closes:
                await channel.close()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(leave_open(closes=True))
        gc.collect()
        assert not [each for each in told if "ReliableChannel" in str(each.message)]
        asyncio.run(leave_open(closes=False))
        gc.collect()
    texts = [str(each.message) for each in told if each.category is ResourceWarning]
    assert "unclosed ReliableChannel 'harbour' of 'alice': await its close(), or use 'async with'" in texts
