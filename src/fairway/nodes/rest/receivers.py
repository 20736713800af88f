"""The receivers of one content topic over HTTP: by an event stream, or by polling.

A receiver reports its start and each message, and ends only with an error: `NotOfferedError` if the node has no such
endpoint, `NodeUnavailableError` if the node does not answer or lost the subscription.

`EventParser` reads server-sent events (WHATWG HTML, "Parsing an event stream"). At most `MAX_EVENT_BYTES` of an event
are held; a longer one is a `DecodeError`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from fairway.errors import ConfigurationError, DecodeError, NetworkError, NodeUnavailableError
from fairway.json_reading import read_json
from fairway.nodes.listeners import Criterion
from fairway.nodes.node import RoutedMessage
from fairway.nodes.rest.http_client import HttpClient
from fairway.nodes.rest.options import NWAKU_CACHE_MESSAGES, RestNodeOptions
from fairway.nodes.rest.shapes import FilterRequest, JsonMessage, StoredEntry, json_of, message_of
from fairway.wire.topics import StaticShard, autoshard

MAX_EVENT_BYTES: Final = 4_194_304


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event."""

    kind: str
    """``message`` unless the stream names another."""
    data: bytes


class EventParser:
    """One stream."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._kind = ""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that are complete now."""
        self._rest += chunk
        events: list[ServerEvent] = []
        if b"\n" in chunk:  # else a long line that comes in small pieces would be looked through again for each
            *lines, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
            for line in lines:
                event = self._line(line.removesuffix(b"\r"))
                if event is not None:
                    events.append(event)
        if len(self._rest) + self._data_bytes > MAX_EVENT_BYTES:
            raise DecodeError(f"a server-sent event of more than {MAX_EVENT_BYTES} bytes")
        return events

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatched()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
                self._data_bytes += len(value)
            case b"event":
                self._kind = value.decode(errors="replace")
            case _:
                return None  # a comment, which says that the stream is alive, an id, or an unknown field
        return None

    def _dispatched(self) -> ServerEvent | None:
        data, kind = self._data, self._kind
        self._data, self._data_bytes, self._kind = [], 0, ""
        if not data:
            return None
        return ServerEvent(kind=kind or "message", data=b"\n".join(data))


_NOT_THERE: Final = frozenset({400, 404, 405, 501})
_NOTHING: Final = b"null"
"""go-waku's answer for an empty cache."""
_LOG: Final = logging.getLogger(__name__)


class NotOfferedError(NetworkError):
    """The node does not have the endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """The callbacks of a receiver."""

    begun: Callable[[], None]
    """Called when messages sent from now on will be received."""
    deliver: Callable[[RoutedMessage], None]
    alive: Callable[[], None]
    """Called when no message is missing up to now."""
    gap: Callable[[], None]
    """Called when messages may be missing."""


async def receive_events(http: HttpClient, criterion: Criterion, sink: Sink, options: RestNodeOptions) -> None:
    """Receive from ``/events``."""
    pubsub_topic, content_topic = criterion
    if "," in content_topic:
        raise NotOfferedError("a comma separates topics there")
    query = urlencode({"contentTopics": content_topic, "pubsubTopic": pubsub_topic})
    async with await http.stream(f"/events?{query}") as stream:
        kind = stream.headers.get("content-type", "")
        if stream.status != 200 or not kind.startswith("text/event-stream"):
            # 503: the node has too many streams; polling still works.
            refused = NotOfferedError if stream.status in {200, 503, *_NOT_THERE} else NodeUnavailableError
            raise refused(f"/events: {stream.status} {await stream.text(options.request_timeout_s)}")
        sink.begun()
        parser = EventParser()
        while chunk := await stream.read(options.advanced.silence_s):
            try:
                events = parser.feed(chunk)
            except DecodeError as error:
                raise NodeUnavailableError(f"/events: {error}") from error
            for event in events:
                _take(event, sink)
            sink.alive()
    raise NodeUnavailableError("/events: the stream ended")


async def receive_by_relay(http: HttpClient, criterion: Criterion, sink: Sink, options: RestNodeOptions) -> None:
    """Receive from ``/relay/v1``: by content topic if the node's autosharding agrees with ours, else by shard."""
    pubsub_topic, content_topic = criterion
    if _is_automatic(pubsub_topic, content_topic, options.shard_count):
        path, topic = "/relay/v1/auto", content_topic
    else:
        path, topic = "/relay/v1", pubsub_topic
    await _begin(http, f"{path}/subscriptions", json_of([topic]))
    sink.begun()
    await _poll(http, f"{path}/messages/{quote(topic, safe='')}", pubsub_topic, sink, options)


async def receive_by_filter(http: HttpClient, criterion: Criterion, sink: Sink, options: RestNodeOptions) -> None:
    """Receive from ``/filter/v2``."""
    pubsub_topic, content_topic = criterion
    request = FilterRequest(request_id="fairway", content_filters=[content_topic], pubsub_topic=pubsub_topic)
    await _begin(http, "/filter/v2/subscriptions", json_of(request))
    sink.begun()
    await _poll(http, f"/filter/v2/messages/{quote(content_topic, safe='')}", pubsub_topic, sink, options)


async def _begin(http: HttpClient, path: str, body: bytes) -> None:
    reply = await http.request("POST", path, body)
    if reply.status in _NOT_THERE:
        raise NotOfferedError(f"{path}: {reply.status} {reply.text}")
    if reply.status != 200:
        raise NodeUnavailableError(f"{path}: {reply.status} {reply.text}")


async def _poll(http: HttpClient, path: str, pubsub_topic: str, sink: Sink, options: RestNodeOptions) -> None:
    while True:
        reply = await http.request("GET", path)
        if reply.status != 200:
            # 404 and 400: the node has restarted and lost the subscription.
            raise NodeUnavailableError(f"{path}: {reply.status} {reply.text}")
        try:
            shapes = [] if reply.body == _NOTHING else read_json(reply.body, list[JsonMessage])
        except DecodeError as error:
            raise NodeUnavailableError(f"{path}: {error}") from error
        _deliver(shapes, pubsub_topic, sink)
        if len(shapes) >= NWAKU_CACHE_MESSAGES:
            sink.gap()
        await asyncio.sleep(options.advanced.busy_poll_interval_s if shapes else options.poll_interval_s)


def _deliver(shapes: Sequence[JsonMessage], pubsub_topic: str, sink: Sink) -> None:
    for shape in shapes:
        try:
            sink.deliver(RoutedMessage.of(pubsub_topic, message_of(shape)))
        except (DecodeError, ConfigurationError) as error:
            _LOG.debug("a message was left out: %s", error)


def _take(event: ServerEvent, sink: Sink) -> None:
    match event.kind:
        case "message":
            try:
                entry = read_json(event.data, StoredEntry)
            except DecodeError as error:
                _LOG.debug("an event was left out: %s", error)
                return
            if isinstance(entry.message, JsonMessage) and isinstance(entry.pubsub_topic, str):
                _deliver([entry.message], entry.pubsub_topic, sink)
        case "gap":
            sink.gap()
        case other:
            _LOG.debug("an event of a kind that is not known was left out: %s", other)


def _is_automatic(pubsub_topic: str, content_topic: str, shard_count: int) -> bool:
    try:
        shard = StaticShard.parse(pubsub_topic)
        return autoshard(content_topic, shard.cluster_id, shard_count) == pubsub_topic
    except ConfigurationError:
        return False
