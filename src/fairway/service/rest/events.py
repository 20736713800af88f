"""``GET /events``: messages as they arrive, or statistics of the node, as server-sent events.

An event ``message`` has the shape of an entry of a store page; its id is the message hash. A client that connects again
sends the last id that it received (``Last-Event-ID``), and first gets the messages that the archive has after it. An
event ``gap`` says that messages are missing, because the archive does not know the id or the client read too slowly;
the client should query the store. A comment follows every `HEARTBEAT_S` without an event. With ``statistics=true`` the
events are those of `StatisticsEvents` instead.

Invariant: the messages that wait for a client are bounded, and no client delays another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from fairway.errors import FairwayError
from fairway.protocol.recent_hashes import RecentHashes
from fairway.service.rest.answers import RefusedError
from fairway.service.rest.context import RestContext
from fairway.service.rest.server_sent_events import ServerSentEvents, begin, chunk
from fairway.service.rest.statistics import Statistics, StatisticsEvents
from fairway.waku.node import RoutedMessage, StoreQuery
from fairway.waku.rest.shapes import StoredEntry, hex_of, json_of, store_shape
from fairway.waku.subscription import Subscription
from fairway.wire.waku_message import MESSAGE_HASH_BYTES

MAX_CONTENT_TOPICS: Final = 1_000
"""Content topics of one stream."""
EVENT_STREAM_BYTES: Final = 8_388_608
"""Size of the messages that wait for one client; beyond it the oldest are dropped, and an event ``gap`` follows."""
HEARTBEAT_S: Final = 15.0
"""Time without an event after which a stream sends a comment."""
_PAGE: Final = 100
_REPLAYED: Final = 20_000
"""Hashes of messages sent from the archive, which are not sent again when they arrive live. More than this number of
messages cannot wait for a client."""
HEARTBEAT: Final = b": still here\n\n"


class EventEndpoints:
    """The handler of one server."""

    def __init__(self, context: RestContext) -> None:
        self._context: Final = context
        self._statistics: Final = Statistics(context)

    async def stream(self, request: Request) -> Response:
        """Begin an event stream."""
        context, asked = self._context, request.query_params
        topics = [topic for text in asked.getlist("contentTopics") for topic in text.split(",") if topic]
        if asked.get("statistics") == "true":
            if topics:
                raise RefusedError(400, "ask for contentTopics or for statistics=true, each on a stream of its own")
            return StatisticsEvents(context, self._statistics)
        if not topics or len(topics) > MAX_CONTENT_TOPICS:
            raise RefusedError(
                400, f"contentTopics names 1 to {MAX_CONTENT_TOPICS} content topics, with commas between"
            )
        shards = context.shards_of(topics, asked.get("pubsubTopic"))
        wanted = frozenset((shard, topic) for topic, shard in shards.items())
        last = request.headers.get("last-event-id") or asked.get("lastEventId") or ""
        return MessageEvents(context, wanted, last)


class MessageEvents(ServerSentEvents):
    """The messages of some content topics, after those that the archive has since the last event id."""

    def __init__(self, context: RestContext, wanted: Collection[tuple[str, str]], last: str) -> None:
        super().__init__(context)
        self._wanted: Final = wanted
        self._last: Final = last

    async def _write(self, send: Send) -> None:
        live = self._context.node.distribution.listen(self._wants, max_bytes=EVENT_STREAM_BYTES)
        try:
            await begin(send)
            await self._write_all(live, send)
        finally:
            live.close()

    async def _write_all(self, live: Subscription[RoutedMessage], send: Send) -> None:
        replayed = RecentHashes(_REPLAYED)
        if self._last:
            async for page in self._missed():
                for message in page:
                    replayed.add(message.message_hash)
                await chunk(send, b"".join(_event(message) for message in page))
            if not replayed and not await self._known():
                await chunk(send, _gap("the last event id is not known"))
        dropped = 0
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    batch = await live.next_batch()
            except TimeoutError:
                await chunk(send, HEARTBEAT)
                continue
            if not batch:
                return
            if live.dropped > dropped:
                await chunk(send, _gap(f"{live.dropped - dropped} messages were dropped: the reader is too slow"))
                dropped = live.dropped
            for message in batch:
                if message.message_hash not in replayed:
                    await chunk(send, _event(message))

    async def _missed(self) -> AsyncIterator[tuple[RoutedMessage, ...]]:
        """Yield the messages that the archive has after the last event id, oldest first."""
        cursor = _hash(self._last)
        topics = tuple(sorted({topic for _, topic in self._wanted}))
        archive = self._context.node.archive
        while cursor is not None and archive is not None:
            try:
                page = await archive.page(StoreQuery(content_topics=topics, page_size=_PAGE), cursor)
            except FairwayError:
                return
            if chosen := tuple(message for message in page.messages if self._wants(message)):
                yield chosen
            cursor = page.cursor

    async def _known(self) -> bool:
        """Return whether the archive has the message of the last event id."""
        last, archive = _hash(self._last), self._context.node.archive
        if last is None or archive is None:
            return False
        try:
            page = await archive.page(StoreQuery(message_hashes=(last,), page_size=1))
        except FairwayError:
            return False
        return bool(page.messages)

    def _wants(self, message: RoutedMessage) -> bool:
        return (message.pubsub_topic, message.message.content_topic) in self._wanted


def _event(message: RoutedMessage) -> bytes:
    name = hex_of(message.message_hash)
    entry = StoredEntry(message_hash=name, message=store_shape(message.message), pubsub_topic=message.pubsub_topic)
    return b"id: %s\nevent: message\ndata: %s\n\n" % (name.encode(), json_of(entry))


def _gap(reason: str) -> bytes:
    return b"event: gap\ndata: %s\n\n" % json_of({"reason": reason})


def _hash(text: str) -> bytes | None:
    try:
        value = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        return None
    return value if len(value) == MESSAGE_HASH_BYTES else None
