"""Service nodes that synchronize their archives, and peers that misuse the protocols."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager, suppress

import pytest

from fairway.errors import ConfigurationError
from fairway.libp2p.errors import NegotiationError, StreamError
from fairway.libp2p.host import Host
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.nodes.protocols.metadata import MetadataExchange
from fairway.service import ServiceNode, ServiceOptions, StoreSyncOptions
from fairway.service.node import parts_of
from fairway.wire.metadata import WakuMetadata
from fairway.wire.store_sync import (
    MAX_PAYLOAD_BYTES,
    RECONCILIATION_PROTOCOL,
    TRANSFER_PROTOCOL,
    ZERO_HASH,
    ItemSet,
    SyncId,
    SyncPayload,
    SyncRange,
    Transfer,
    decode_sync_payload,
    encode_sync_payload,
    encode_transfer,
)
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, run, until

SHARD, OTHER_SHARD, TOPIC = "/waku/2/rs/16/0", "/waku/2/rs/16/1", "/fairway-test/1/room/proto"
MINUTE_NS = 60_000_000_000
OFTEN = StoreSyncOptions(interval_s=0.2)
WAITING = StoreSyncOptions(interval_s=3_600)
"""For nodes that answer and begin no session themselves."""


def message(number, *, shard=SHARD, age_ns=MINUTE_NS, **changes):
    fields = {"payload": b"message %d" % number, "content_topic": TOPIC, "timestamp_ns": time.time_ns() - age_ns}
    return RoutedMessage.of(shard, WakuMessage(**(fields | changes)))


@asynccontextmanager
async def serving(*held, **changes):
    options = {"cluster_id": 16, "shards": (0,), "shard_count": 2, "store_sync": OFTEN, **changes}
    async with await ServiceNode.start(ServiceOptions(**options)) as node:
        for one in held:
            parts_of(node).archive.put(one, time.time_ns())
        yield node


async def archived(node):
    page = await node.query(StoreQuery(page_size=100))
    return {one.message_hash for one in page.messages}


def hashes(*messages):
    return {one.message_hash for one in messages}


def counts(node):
    return parts_of(node).store_sync.statistics()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_two_nodes_get_the_messages_that_they_lack_each_once(kind, tmp_path):
    async def work():
        ours, theirs, both = message(1), message(2, meta=b"meta", version=1), message(3)
        places = [f"sqlite:{tmp_path / name}.db" if kind == "sqlite" else "memory:" for name in "ab"]
        async with (
            serving(theirs, both, archive=places[0], store_sync=WAITING) as other,
            serving(ours, both, archive=places[1], peers=(str(other.addresses[0]),)) as node,
        ):
            await until(lambda: counts(node).received and counts(other).received, "the messages of the other store")
            assert await archived(node) == await archived(other) == hashes(ours, theirs, both)
            assert (counts(node).received, counts(node).sent) == (1, 1)
            before = counts(other).sessions
            await until(lambda: counts(other).sessions >= before + 2, "further sessions")
            assert counts(other).received == counts(other).sent == 1, "nothing is sent twice"
            found = await node.query(StoreQuery(message_hashes=(theirs.message_hash,)))
            assert found.messages[0].message == theirs.message

    run(work())


async def test_the_messages_of_hundreds_of_differences_arrive():
    held = [message(number, age_ns=MINUTE_NS * 50 - number * 1_000_000) for number in range(700)]
    async with (
        serving(*held[:400], store_sync=WAITING) as other,
        serving(*held[300:], peers=(str(other.addresses[0]),)) as node,
    ):
        await until(lambda: counts(other).received == 300 and counts(node).received == 300)
        assert (counts(node).refused, counts(node).failed) == (0, 0)


async def test_only_messages_of_common_shards_of_the_last_hour_are_exchanged():
    held = [
        message(1, shard=OTHER_SHARD),
        message(2, age_ns=90 * MINUTE_NS),
        message(3, age_ns=10_000_000_000),  # it may still arrive by relay
        message(4),
    ]
    async with (
        serving(*held, shards=(0, 1), store_sync=WAITING) as other,
        serving(peers=(str(other.addresses[0]),)) as node,
    ):
        await until(lambda: counts(node).sessions >= 3)
        assert await archived(node) == hashes(held[3])


@asynccontextmanager
async def peer_of(node):
    """A peer that node admits, with its host."""
    async with await Host.start() as host:
        MetadataExchange(host, WakuMetadata(cluster_id=16, shards=(0, 1)), timeout_s=PATIENCE_S)
        await host.connect(str(node.addresses[0]))
        await until(lambda: parts_of(node).introductions.admits(host.peer_id))
        yield host


async def ask(stream, payload):
    await stream.write_frame(encode_sync_payload(payload))
    return decode_sync_payload(await stream.read_frame(MAX_PAYLOAD_BYTES))


def last_hour(content):
    now_ns = time.time_ns()
    bounds = SyncId(now_ns - 60 * MINUTE_NS, ZERO_HASH), SyncId(now_ns - MINUTE_NS // 2, ZERO_HASH)
    return SyncPayload(ranges=(SyncRange(*bounds, content),))


async def transfer(host, node, one):
    stream = await host.open_stream(node.peer_id, [TRANSFER_PROTOCOL])
    with suppress(StreamError):
        await stream.write_frame(encode_transfer(Transfer(pubsub_topic=one.pubsub_topic, message_bytes=one.encoded)))
        await stream.close_write()
        await stream.read()


REFUSED = {
    "of a shard that the node does not serve": {"shard": OTHER_SHARD},
    "ephemeral": {"ephemeral": True},
    "too old": {"age_ns": 90 * MINUTE_NS},
    "of the future": {"age_ns": -MINUTE_NS},
    "without a timestamp": {"timestamp_ns": None},
    "without a content topic": {"content_topic": ""},
    "too long": {"payload": bytes(153_600)},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
async def test_a_transferred_message_is_refused_if_it_is(changes):
    async with serving(store_sync=WAITING) as node, peer_of(node) as host:
        stream = await host.open_stream(node.peer_id, [RECONCILIATION_PROTOCOL])
        await ask(stream, last_hour(bytes(31) + b"x"))
        await transfer(host, node, message(1, **changes))
        await transfer(host, node, expected := message(2))
        await until(lambda: counts(node).received == 1)
        assert counts(node).refused == 1
        assert await archived(node) == hashes(expected)


def test_a_transfer_without_a_session_is_refused():
    async def work():
        async with serving(store_sync=WAITING) as node, peer_of(node) as host:
            await transfer(host, node, message(1))
            assert (counts(node).refused, counts(node).received) == (1, 0)
            assert await archived(node) == set()

    run(work())


async def test_a_transfer_that_is_no_message_is_counted_and_the_next_one_is_read():
    async with serving(store_sync=WAITING) as node, peer_of(node) as host:
        stream = await host.open_stream(node.peer_id, [RECONCILIATION_PROTOCOL])
        await ask(stream, last_hour(bytes(31) + b"x"))
        transfers = await host.open_stream(node.peer_id, [TRANSFER_PROTOCOL])
        await transfers.write_frame(b"\xff\xff")
        await transfers.write_frame(encode_transfer(Transfer(pubsub_topic=SHARD, message_bytes=message(1).encoded)))
        await until(lambda: counts(node).received == 1)
        assert counts(node).refused == 1


@pytest.mark.parametrize("data", [b"\x01\x02\x03", b"\x00\x00\x00\x05\x01"], ids=["no payload", "a cut payload"])
async def test_a_malformed_payload_ends_the_session_only(data):
    async with serving(message(1), store_sync=WAITING) as node, peer_of(node) as host:
        stream = await host.open_stream(node.peer_id, [RECONCILIATION_PROTOCOL])
        await stream.write_frame(data)
        await until(lambda: counts(node).failed == 1)
        stream = await host.open_stream(node.peer_id, [RECONCILIATION_PROTOCOL])
        reply = await ask(stream, last_hour(bytes(32)))
        assert [len(one.content.ids) for one in reply.ranges if isinstance(one.content, ItemSet)] == [1]


async def test_a_peer_has_one_session_at_a_time_and_few_in_a_row():
    async with serving(store_sync=WAITING) as node, peer_of(node) as host:
        first = await host.open_stream(node.peer_id, [RECONCILIATION_PROTOCOL])
        await ask(first, last_hour(bytes(31) + b"x"))
        with pytest.raises(StreamError):
            await ask(await host.open_stream(node.peer_id, [RECONCILIATION_PROTOCOL]), last_hour(bytes(32)))
        await first.reset()
        await until(lambda: counts(node).failed == 1)
        for _ in range(20):
            with suppress(StreamError):
                await ask(await host.open_stream(node.peer_id, [RECONCILIATION_PROTOCOL]), last_hour(bytes(32)))
        assert counts(node).refused > 8


async def test_a_peer_that_lacks_a_message_gets_it_over_a_stream_of_its_own():
    held = message(1)
    received = []

    async def take(stream):
        received.append(await stream.read_frame(200_000))

    async with serving(held, store_sync=WAITING) as node, peer_of(node) as host:
        host.handle(TRANSFER_PROTOCOL, take)
        stream = await host.open_stream(node.peer_id, [RECONCILIATION_PROTOCOL])
        assert await ask(stream, last_hour(ItemSet((), reconciled=True))) == SyncPayload()
        await until(lambda: received)
        assert received == [encode_transfer(Transfer(pubsub_topic=SHARD, message_bytes=held.encoded))]


async def test_a_node_does_not_synchronize_unless_that_is_wanted():
    async with serving(message(1), store_sync=None) as node, peer_of(node) as host:
        with pytest.raises(NegotiationError):
            await host.open_stream(node.peer_id, [RECONCILIATION_PROTOCOL])


def test_a_synchronization_needs_an_archive_and_times_above_zero():
    with pytest.raises(ConfigurationError, match="archive"):
        ServiceOptions(store_sync=OFTEN, archive=None)
    for wrong in ({"interval_s": 0.0}, {"range_s": -1.0}, {"range_s": float("inf")}):
        with pytest.raises(ConfigurationError, match="interval and range"):
            StoreSyncOptions(**wrong)
