"""``GET /events``: messages as they arrive, as server-sent events (WHATWG HTML, "Server-sent events").

An event ``message`` has the shape of an entry of a store page. Its id is the message hash, a dot, and the number of the
message in the order of arrival. A client that reconnects sends its last id (``Last-Event-ID``). The node first sends
the later messages from its archive, in the order of arrival and without ephemeral ones. An event ``gap`` means that
messages may be missing: the node has restarted, the id is unknown, messages are not in the archive, or the client reads
too slowly. The client should then query the store.

A comment follows every `HEARTBEAT_S` without an event.

Invariants: the messages that wait for a client are bounded, and no client delays another. A stream ends when its client
disconnects or the server closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fairway.errors import FairwayError, StorageError
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.nodes.rest.shapes import StoredEntry, hex_of, json_of, store_shape
from fairway.service.distribution import ArrivedMessage
from fairway.service.rest.answers import RefusedError
from fairway.service.rest.context import Endpoints, RestContext
from fairway.subscription import Subscription
from fairway.units import counted

MAX_EVENT_STREAMS: Final = 256
"""Streams open at once; a further request is answered with 503."""
MAX_CONTENT_TOPICS: Final = 1_000
"""Content topics of one stream."""
EVENT_STREAM_BYTES: Final = 8_388_608
"""Size of the messages that wait for one client; beyond it the oldest are dropped, and an event ``gap`` follows."""
HEARTBEAT_S: Final = 15.0
"""Time without an event after which a stream sends a comment."""
_PAGE: Final = 100
_HEARTBEAT: Final = b": still here\n\n"
_RETRY: Final = b"retry: 1000\n\n"
"""Makes the browser reconnect after 1,000 ms."""
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventEndpoints(Endpoints):
    """The handlers of one server."""

    async def stream(self, request: Request) -> Response:
        """Begin an event stream."""
        context, asked = self._context, request.query_params
        topics = [topic for text in asked.getlist("contentTopics") for topic in text.split(",") if topic]
        if context.event_streams >= MAX_EVENT_STREAMS:
            raise RefusedError(503, "too many event streams are open; try again later")
        if not topics or len(topics) > MAX_CONTENT_TOPICS:
            raise RefusedError(
                400, f"contentTopics names 1 to {MAX_CONTENT_TOPICS} content topics, with commas between"
            )
        shards = context.shards_of(topics, asked.get("pubsubTopic"))
        context.check_served(shards.values())
        wanted = frozenset((shard, topic) for topic, shard in shards.items())
        last = request.headers.get("last-event-id") or asked.get("lastEventId") or ""
        return MessageEvents(context, wanted, last)


class MessageEvents(Response):
    """The messages of content topics: first those since the last event id, then new ones."""

    def __init__(self, context: RestContext, wanted: Collection[tuple[str, str]], last: str) -> None:
        super().__init__()
        self._context: Final = context
        self._wanted: Final = wanted
        self._last: Final = last
        self._arrivals: Final = context.parts.distribution.arrivals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Send events until the client or the node ends the stream."""
        context = self._context
        ends = [asyncio.ensure_future(_disconnected(receive)), asyncio.ensure_future(context.closing.wait())]
        writing = asyncio.ensure_future(self._write(send))
        with context.counting_stream():
            try:
                await asyncio.wait([*ends, writing], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (*ends, writing):
                    task.cancel()
                await asyncio.gather(*ends, writing, return_exceptions=True)
        if context.closing.is_set():
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send) -> None:
        distribution = self._context.parts.distribution
        live = distribution.follow(self._wants, max_bytes=EVENT_STREAM_BYTES)
        try:
            # There is no await after `follow` until the log is read: each message is either in `live` or in `missed`.
            message_hash, number = _parsed(self._last)
            missed = self._arrivals.missed(number, message_hash, self._wanted)
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await _chunk(send, _RETRY)
            if missed is not None:
                await self._repeat(missed, send)
            elif self._last:
                await _chunk(send, _gap("the last event id is unknown: the node has restarted, or the id is too old"))
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
                await _chunk(send, _gap(f"the archive cannot be read: {error}"))
                return
            if page.cursor is not None and rows > 1:  # more messages than fit on a page
                rows //= 2
                continue
            found = {message.message_hash: message for message in page.messages}
            lacking += sum(message_hash not in found for _, message_hash in part)
            events = [
                _event(found[message_hash], number)
                for number, message_hash in part
                if message_hash in found and self._wants(found[message_hash])
            ]
            await _chunk(send, b"".join(events))
            place += rows
        if lacking:
            await _chunk(send, _gap(f"the archive does not have {counted(lacking, 'message')}"))

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
                await _chunk(send, _HEARTBEAT)
                continue
            if not batch:
                return
            if live.dropped > dropped:
                lost = counted(live.dropped - dropped, "message")
                await _chunk(send, _gap(f"dropped {lost}: the reader is too slow"))
                dropped = live.dropped
            for arrival in batch:
                await _chunk(send, _event(arrival.message, arrival.number))

    def _wants(self, message: RoutedMessage) -> bool:
        return (message.pubsub_topic, message.message.content_topic) in self._wanted


async def _chunk(send: Send, data: bytes) -> None:
    """Send a part of the answer; wait while the client reads too slowly."""
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


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
