"""A service node that is closed under difficulties: what it archived is on disk, and nothing of it is left."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from fairway.libp2p.errors import AddressError
from fairway.libp2p.host import Host
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.nodes.protocols.relay import Relay
from fairway.service.filter_pusher import FilterPusher
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.wire.waku_message import WakuMessage

SHARD = "/waku/2/rs/16/0"
TOPIC = "/fairway-test/1/room/proto"


def options(**changes):
    return ServiceOptions(**{"cluster_id": 16, "shards": (0,), "shard_count": 1, **changes})


def message():
    return RoutedMessage.of(SHARD, WakuMessage(payload=b"hello", content_topic=TOPIC, timestamp_ns=time.time_ns()))


async def stored(archive):
    async with await ServiceNode.start(options(archive=archive)) as node:
        return (await node.query(StoreQuery())).messages


async def test_a_part_that_cannot_be_closed_keeps_no_message_from_the_disk(monkeypatch, tmp_path):
    archive = f"sqlite:{tmp_path / 'messages.sqlite'}"

    async def fail(_):
        raise RuntimeError("cannot be closed")

    with monkeypatch.context() as broken:
        broken.setattr(FilterPusher, "close", fail)
        node = await ServiceNode.start(options(archive=archive))
        subscription = await node.subscribe(SHARD, [TOPIC])
        await node.send(message())
        with pytest.raises(RuntimeError, match="cannot be closed"):
            await node.close()
    assert len([one async for one in subscription]) == 1
    assert len(await stored(archive)) == 1


async def test_a_cancelled_close_still_closes_everything(monkeypatch, tmp_path):
    archive = f"sqlite:{tmp_path / 'messages.sqlite'}"

    closing = asyncio.Event()

    async def slow(_):
        closing.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as broken:
        broken.setattr(FilterPusher, "close", slow)
        node = await ServiceNode.start(options(archive=archive))
        await node.send(message())
        giving_up = asyncio.create_task(node.close())
        await closing.wait()
        giving_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await giving_up
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", int(str(node.addresses[0]).split("/")[4]))
    assert len(await stored(archive)) == 1


async def test_a_node_that_cannot_start_closes_everything(tmp_path):
    before = asyncio.all_tasks()
    with pytest.raises(AddressError):
        await ServiceNode.start(options(peers=("/ip4/garbage",), archive=f"sqlite:{tmp_path / 'messages.sqlite'}"))
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    gc.collect()  # a socket or a file that was left open says so now, and a warning is an error


async def test_the_host_is_closed_when_the_node_cannot_serve(monkeypatch):
    closed = []
    close = Host.close

    async def noted(host):
        closed.append(host)
        await close(host)

    async def fail(_):
        raise RuntimeError("cannot serve")

    monkeypatch.setattr(Host, "close", noted)
    monkeypatch.setattr(Relay, "__aenter__", fail)
    with pytest.raises(RuntimeError, match="cannot serve"):
        await ServiceNode.start(options())
    assert len(closed) == 1
