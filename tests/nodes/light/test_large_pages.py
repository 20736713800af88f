"""A light client and stores that return as many messages as they are asked for, whatever their size, as nwaku does."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence

import pytest

from fairway.errors import StoreQueryError, StoreRefusedError
from fairway.libp2p.host import Host
from fairway.nodes.light import LightNode, LightOptions
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.nodes.protocols.exchange import answering
from fairway.wire.store import (
    MAX_RESPONSE_BYTES,
    STORE_QUERY_PROTOCOL,
    StoredMessage,
    StoreQueryResponse,
    decode_store_query_request,
    encode_store_query_response,
)
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, run, until

SHARD, TOPIC = "/waku/2/rs/16/0", "/fairway-test/1/room/proto"
ALL = StoreQuery(pubsub_topic=SHARD, content_topics=(TOPIC,))


class Store:
    """A store without a limit of bytes; an answer of more than so many messages never comes."""

    def __init__(self, messages: Sequence[RoutedMessage], *, most_in_time: int = 100) -> None:
        self.asked: list[int] = []
        self._messages = messages
        self._most_in_time = most_in_time

    @contextlib.asynccontextmanager
    async def client(self, request_timeout_s: float = PATIENCE_S) -> AsyncIterator[LightNode]:
        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as host:
            host.handle(STORE_QUERY_PROTOCOL, answering(self._page, max_request_bytes=1 << 20))
            options = LightOptions(request_timeout_s=request_timeout_s)
            async with await LightNode.start([host.addresses[0]], options, connect_timeout_s=None) as light:
                await until(lambda: light.status.store)
                yield light

    async def _page(self, peer: str, data: bytes) -> bytes:
        asked = decode_store_query_request(data)
        limit = min(asked.pagination_limit or 20, 100)
        self.asked.append(limit)
        hashes = [message.message_hash for message in self._messages]
        first = 0 if asked.pagination_cursor is None else hashes.index(asked.pagination_cursor) + 1
        found = [one for one in self._messages[first:] if one.message_hash in (asked.message_hashes or hashes)]
        answer = encode_store_query_response(
            StoreQueryResponse(
                request_id=asked.request_id,
                status_code=200,
                messages=tuple(
                    StoredMessage(message_hash=one.message_hash, message_bytes=one.encoded, pubsub_topic=SHARD)
                    for one in found[:limit]
                ),
                pagination_cursor=found[limit - 1].message_hash if len(found) > limit else None,
            )
        )
        if limit > self._most_in_time:
            await asyncio.Event().wait()
        return answer


def messages(count: int, size_bytes: int) -> list[RoutedMessage]:
    payload = os.urandom(size_bytes - 4)
    return [
        RoutedMessage.of(
            SHARD, WakuMessage(payload=b"%04d" % number + payload, content_topic=TOPIC, timestamp_ns=1 + number)
        )
        for number in range(count)
    ]


async def all_of(light: LightNode) -> list[bytes]:
    page = await light.query(ALL)
    found = [one.message_hash for one in page.messages]
    while page.cursor is not None:
        page = await light.query(ALL, page.cursor)
        found += [one.message_hash for one in page.messages]
    return found


@pytest.mark.parametrize(
    ("count", "size_bytes", "most_queries"),
    [(120, 100_000, 3), (100, 153_000, 1), (90, 400_000, 14), (20, 1_000_000, 10)],
)
def test_pages_of_any_length_are_read_whole_and_in_order(count: int, size_bytes: int, most_queries: int) -> None:
    async def work() -> None:
        kept = messages(count, size_bytes)
        store = Store(kept)
        async with store.client() as light:
            assert await all_of(light) == [one.message_hash for one in kept]
            assert len(store.asked) <= most_queries

    run(work())


def test_large_messages_are_found_by_their_hashes() -> None:
    async def work() -> None:
        kept = messages(60, 400_000)
        store = Store(kept)
        async with store.client() as light:
            page = await light.query(StoreQuery(message_hashes=tuple(one.message_hash for one in kept[10:])))
            assert [one.message_hash for one in page.messages] == [one.message_hash for one in kept[10:]]

    run(work())


def test_a_page_that_does_not_come_in_time_is_asked_for_with_fewer_messages() -> None:
    async def work() -> None:
        kept = messages(10, 100)
        async with Store(kept, most_in_time=10).client(request_timeout_s=0.4) as light:
            found: list[bytes] = []
            while len(found) < len(kept):
                with contextlib.suppress(StoreQueryError):
                    found = await all_of(light)
            assert found == [one.message_hash for one in kept]

    run(work())


def test_a_message_that_is_longer_than_any_answer_that_is_read_is_refused_for_good() -> None:
    async def work() -> None:
        store = Store(messages(2, MAX_RESPONSE_BYTES))
        async with store.client() as light:
            with pytest.raises(StoreRefusedError, match="a message that is longer than 16777216 bytes"):
                await light.query(ALL)
            assert store.asked == [100, 50, 25, 12, 6, 3, 1]

    run(work())
