"""``GET /events``: messages as they arrive, or statistics of the node, as server-sent events.

An event ``message`` has the shape of an entry of a store page. Its id is the message hash, a dot, and the number of the
message in the order of arrival. A client that reconnects sends its last id (``Last-Event-ID``). The node first sends
the later messages from its archive, in the order of arrival and without ephemeral ones. An event ``gap`` says that
messages may be missing: the node has restarted, the id is unknown, the archive lacks messages, or the client reads too
slowly. The client should then query the store.

A comment follows every `HEARTBEAT_S` without an event. With ``statistics=true`` the events are those of
`StatisticsEvents` instead.

Invariant: the messages that wait for a client are bounded, and no client delays another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from fairway.errors import FairwayError, StorageError
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.nodes.rest.shapes import StoredEntry, hex_of, json_of, store_shape
from fairway.service.distribution import ArrivedMessage
from fairway.service.rest.answers import RefusedError
from fairway.service.rest.context import RestContext
from fairway.service.rest.server_sent_events import ServerSentEvents, begin, chunk
from fairway.service.rest.statistics import Statistics, StatisticsEvents
from fairway.subscription import Subscription
from fairway.units import counted

MAX_CONTENT_TOPICS: Final = 1_000
"""Content topics of one stream."""
EVENT_STREAM_BYTES: Final = 8_388_608
"""Size of the messages that wait for one client; beyond it the oldest are dropped, and an event ``gap`` follows."""
HEARTBEAT_S: Final = 15.0
"""Time without an event after which a stream sends a comment."""
_PAGE: Final = 100
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
        context.check_served(shards.values())
        wanted = frozenset((shard, topic) for topic, shard in shards.items())
        last = request.headers.get("last-event-id") or asked.get("lastEventId") or ""
        return MessageEvents(context, wanted, last)


class MessageEvents(ServerSentEvents):
    """The messages of content topics: first those since the last event id, then new ones."""

    def __init__(self, context: RestContext, wanted: Collection[tuple[str, str]], last: str) -> None:
        super().__init__(context)
        self._wanted: Final = wanted
        self._last: Final = last
        self._arrivals: Final = context.parts.distribution.arrivals

    async def _write(self, send: Send) -> None:
        distribution = self._context.parts.distribution
        live = distribution.follow(self._wants, max_bytes=EVENT_STREAM_BYTES)
        try:
            # There is no await after `follow` until the log is read: each message is either in `live` or in `missed`.
            message_hash, number = _parsed(self._last)
            missed = self._arrivals.missed(number, message_hash, self._wanted)
            await begin(send)
            if missed is not None:
                await self._repeat(missed, send)
            elif self._last:
                await chunk(send, _gap("the last event id is unknown: the node has restarted, or the id is too old"))
            await self._write_live(live, send)
        finally:
            live.close()

    async def _repeat(self, missed: list[tuple[int, bytes]], send: Send) -> None:
        """Send messages from the archive in the order of arrival; send a gap if the archive does not give all."""
        lacking, place, rows = 0, 0, _PAGE
        while place < len(missed):
            part = missed[place : place + rows]
            try:
                page = await self._page(StoreQuery(message_hashes=tuple(each for _, each in part), page_size=rows))
            except FairwayError as error:
                await chunk(send, _gap(f"the archive cannot be read: {error}"))
                return
            if page.cursor is not None and rows > 1:  # more than the size of a page
                rows //= 2
                continue
            found = {message.message_hash: message for message in page.messages}
            lacking += sum(message_hash not in found for _, message_hash in part)
            events = [
                _event(found[message_hash], number)
                for number, message_hash in part
                if message_hash in found and self._wants(found[message_hash])
            ]
            await chunk(send, b"".join(events))
            place += rows
        if lacking:
            await chunk(send, _gap(f"the archive does not have {counted(lacking, 'message')}"))

    async def _page(self, query: StoreQuery) -> StorePage:
        archive = self._context.parts.archive
        if archive is None:
            raise StorageError("the node keeps none")
        return await archive.page(query)

    async def _write_live(self, live: Subscription[ArrivedMessage], send: Send) -> None:
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
                await chunk(send, _gap(f"dropped {counted(live.dropped - dropped, 'message')}: the reader is too slow"))
                dropped = live.dropped
            for arrival in batch:
                await chunk(send, _event(arrival.message, arrival.number))

    def _wants(self, message: RoutedMessage) -> bool:
        return (message.pubsub_topic, message.message.content_topic) in self._wanted


def _event(message: RoutedMessage, number: int) -> bytes:
    name = hex_of(message.message_hash)
    entry = StoredEntry(message_hash=name, message=store_shape(message.message), pubsub_topic=message.pubsub_topic)
    return b"id: %s.%d\nevent: message\ndata: %s\n\n" % (name.encode(), number, json_of(entry))


def _gap(reason: str) -> bytes:
    return b"event: gap\ndata: %s\n\n" % json_of({"reason": reason})


def _parsed(event_id: str) -> tuple[bytes, int]:
    """Return the message hash and the number in an event id; an empty hash if it has none, -1 if it has no number."""
    name, _, number = event_id.partition(".")
    try:
        return bytes.fromhex(name.removeprefix("0x")), int(number) if number.isdecimal() else -1
    except ValueError:
        return b"", -1
