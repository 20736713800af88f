"""`TopicFeed`: the messages of one content topic, received from the node or, if missed, read from its store.

One task receives by the first endpoint that the node offers, and starts again when that ends. A second task reads the
store (`CatchUp`): after each new start, after a possible overflow of the node's cache, and while polling at intervals.
It reads the hashes of messages first, then the unknown messages. Each message that the store keeps and that arrived
after the start of the feed is delivered once.

Receiving ends only with an error: `NotOfferedError` if the node has no such endpoint, `NodeUnavailableError` if the
node does not answer or lost the subscription. `EventParser` reads server-sent events (WHATWG HTML, "Parsing an event
stream") as ``fairway node`` writes them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final
from urllib.parse import quote, urlencode

from fairway.errors import ConfigurationError, DecodeError, NetworkError, NodeUnavailableError, StoreQueryError
from fairway.json_reading import read_json
from fairway.nodes.listeners import Criterion
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.nodes.rest.http_client import HttpClient
from fairway.nodes.rest.options import NWAKU_CACHE_MESSAGES, ReceiveWay, RestNodeOptions
from fairway.nodes.rest.shapes import FilterRequest, JsonMessage, StoredEntry, json_of, message_of
from fairway.nodes.rest.store_client import PageTrail, RestStoreReader
from fairway.nodes.rest.store_messages import digest_of
from fairway.owned_tasks import OwnedTasks
from fairway.protocol.query_windows import MAX_WINDOW_NS
from fairway.protocol.recent_hashes import RecentHashes
from fairway.wire.topics import StaticShard, autoshard

_LOG: Final = logging.getLogger(__name__)
_PAGE: Final = 100
_FETCH: Final = 50
"""Hashes in one query: 3,400 characters of its URL."""
CHECK_INTERVAL_S: Final = 5.0
"""While polling, interval between store queries for messages that the polls missed, because other programs empty the
same cache."""
OVERLAP_NS: Final = 30_000_000_000
"""Time before a gap at which a store query begins, because clocks differ and messages take time."""
FIRST_PAUSE_S: Final = 0.2
"""Pause before the second attempt to receive; each further pause is twice as long."""
LONGEST_PAUSE_S: Final = 10.0
"""Longest pause between two attempts."""


class CatchUp:
    """Reads the gaps of one pubsub topic and content topic."""

    def __init__(
        self,
        reader: RestStoreReader,
        criterion: Criterion,
        *,
        seen: RecentHashes,
        deliver: Callable[[RoutedMessage], None],
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._reader: Final = reader
        self._criterion: Final = criterion
        self._seen: Final = seen
        self._deliver: Final = deliver
        self._now_ns: Final = now_ns
        self.covered_ns = now_ns() - OVERLAP_NS
        """Start of the next run."""

    async def begin(self) -> None:
        """Note the messages before the subscription, which are not delivered; raise `StoreQueryError`."""
        async for page in self._hashes():
            for message_hash in page:
                self._seen.add(message_hash)

    def live(self) -> None:
        """Note that nothing is missing up to now."""
        self.covered_ns = max(self.covered_ns, self._now_ns() - OVERLAP_NS)

    def reach_back(self, duration_ns: int) -> None:
        """Make the next run begin earlier."""
        self.covered_ns = min(self.covered_ns, self._now_ns() - duration_ns)

    async def run(self) -> int:
        """Deliver missed messages, and return their number; raise `StoreQueryError`."""
        begun_ns = self._now_ns()
        found = 0
        async for page in self._hashes():
            missed = [message_hash for message_hash in page if message_hash not in self._seen]
            for first in range(0, len(missed), _FETCH):
                found += await self._fetch(tuple(missed[first : first + _FETCH]))
        self.covered_ns = max(self.covered_ns, begun_ns - OVERLAP_NS)
        return found

    async def _hashes(self) -> AsyncIterator[tuple[bytes, ...]]:
        """Yield the hashes that the store has, page by page; at most 24 hours are asked for at once."""
        pubsub_topic, content_topic = self._criterion
        query = StoreQuery(pubsub_topic=pubsub_topic, content_topics=(content_topic,), page_size=_PAGE)
        start_ns = self.covered_ns
        while self._now_ns() - start_ns > MAX_WINDOW_NS:
            until_ns = start_ns + MAX_WINDOW_NS
            async for page in self._hashes_of(replace(query, start_ns=start_ns, end_ns=until_ns)):
                yield page
            start_ns = until_ns
        async for page in self._hashes_of(replace(query, start_ns=start_ns)):
            yield page

    async def _hashes_of(self, query: StoreQuery) -> AsyncIterator[tuple[bytes, ...]]:
        cursor: bytes | None = None
        trail = PageTrail()
        while True:
            page, cursor = await self._reader.hashes(query, cursor)
            yield page
            if cursor is None:
                return
            trail.follow(cursor, digest_of(page))

    async def _fetch(self, hashes: tuple[bytes, ...]) -> int:
        query = StoreQuery(message_hashes=hashes, page_size=_PAGE)
        cursor: bytes | None = None
        found = 0
        for _ in hashes:  # every page has at least one of them
            page = await self._reader.page(query, cursor)
            for message in page.messages:
                if message.message_hash not in self._seen:
                    self._deliver(message)
                    self._seen.add(message.message_hash)
                    found += 1
            cursor = page.cursor
            if cursor is None:
                break
        return found


MAX_EVENT_BYTES: Final = 4_194_304
"""Longest event that is read; a longer one raises `DecodeError`."""
BUSY_POLL_INTERVAL_S: Final = 0.1
"""Pause after a poll that returned messages."""
SILENCE_S: Final = 45.0
"""An event stream without any bytes for this time counts as dead."""


class EventParser:
    """One stream of events."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[tuple[str, bytes]]:
        """Return the events that are complete now: the kind of each, by default "message", and its data."""
        self._rest += chunk
        *complete, self._rest = self._rest.split(b"\n\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise DecodeError(f"a server-sent event of more than {MAX_EVENT_BYTES} bytes")
        return [event for block in complete if (event := _event_in(block)) is not None]


def _event_in(block: bytes) -> tuple[str, bytes] | None:
    """Return the event of a block of lines; None without data, as for a keep-alive comment."""
    kind, data = "message", []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif name == b"event":
            kind = value.removeprefix(b" ").decode(errors="replace")
    return (kind, b"\n".join(data)) if data else None


_NOT_THERE: Final = frozenset({400, 404, 405, 501})
_NOTHING: Final = b"null"
"""go-waku's answer for an empty cache."""


class NotOfferedError(NetworkError):
    """The node does not have the endpoint."""


async def receive_events(http: HttpClient, feed: TopicFeed, options: RestNodeOptions) -> None:
    """Receive from ``/events``."""
    pubsub_topic, content_topic = feed.criterion
    if "," in content_topic:
        raise NotOfferedError("a comma separates topics there")
    query = urlencode({"contentTopics": content_topic, "pubsubTopic": pubsub_topic})
    async with await http.stream(f"/events?{query}") as stream:
        content_type = stream.headers.get("content-type", "")
        if stream.status != 200 or not content_type.startswith("text/event-stream"):
            # 503: the node has too many streams; polling still works.
            refused = NotOfferedError if stream.status in {200, 503, *_NOT_THERE} else NodeUnavailableError
            raise refused(f"/events: {stream.status} {await stream.text(options.request_timeout_s)}")
        feed.begun()
        parser = EventParser()
        while chunk := await stream.read(SILENCE_S):
            try:
                events = parser.feed(chunk)
            except DecodeError as error:
                raise NodeUnavailableError(f"/events: {error}") from error
            for kind, data in events:
                _take(kind, data, feed)
            feed.alive()
    raise NodeUnavailableError("/events: the stream ended")


async def receive_by_relay(http: HttpClient, feed: TopicFeed, options: RestNodeOptions) -> None:
    """Receive from ``/relay/v1``: by content topic if the node's autosharding agrees with ours, else by shard."""
    pubsub_topic, content_topic = feed.criterion
    if _is_automatic(pubsub_topic, content_topic, options.shard_count):
        path, topic = "/relay/v1/auto", content_topic
    else:
        path, topic = "/relay/v1", pubsub_topic
    await _begin(http, f"{path}/subscriptions", json_of([topic]))
    feed.begun()
    await _poll(http, f"{path}/messages/{quote(topic, safe='')}", pubsub_topic, feed, options)


async def receive_by_filter(http: HttpClient, feed: TopicFeed, options: RestNodeOptions) -> None:
    """Receive from ``/filter/v2``."""
    pubsub_topic, content_topic = feed.criterion
    request = FilterRequest(request_id="fairway", content_filters=[content_topic], pubsub_topic=pubsub_topic)
    await _begin(http, "/filter/v2/subscriptions", json_of(request))
    feed.begun()
    await _poll(http, f"/filter/v2/messages/{quote(content_topic, safe='')}", pubsub_topic, feed, options)


async def _begin(http: HttpClient, path: str, body: bytes) -> None:
    reply = await http.request("POST", path, body)
    if reply.status in _NOT_THERE:
        raise NotOfferedError(f"{path}: {reply.status} {reply.text}")
    if reply.status != 200:
        raise NodeUnavailableError(f"{path}: {reply.status} {reply.text}")


async def _poll(http: HttpClient, path: str, pubsub_topic: str, feed: TopicFeed, options: RestNodeOptions) -> None:
    while True:
        reply = await http.request("GET", path)
        if reply.status != 200:
            # 404 and 400: the node has restarted and lost the subscription.
            raise NodeUnavailableError(f"{path}: {reply.status} {reply.text}")
        try:
            shapes = [] if reply.body == _NOTHING else read_json(reply.body, list[JsonMessage])
        except DecodeError as error:
            raise NodeUnavailableError(f"{path}: {error}") from error
        _deliver(shapes, pubsub_topic, feed)
        if len(shapes) >= NWAKU_CACHE_MESSAGES:
            feed.gap()
        await asyncio.sleep(BUSY_POLL_INTERVAL_S if shapes else options.poll_interval_s)


def _deliver(shapes: Sequence[JsonMessage], pubsub_topic: str, feed: TopicFeed) -> None:
    for shape in shapes:
        try:
            feed.deliver(RoutedMessage.of(pubsub_topic, message_of(shape)))
        except (DecodeError, ConfigurationError) as error:
            _LOG.debug("a message was left out: %s", error)


def _take(kind: str, data: bytes, feed: TopicFeed) -> None:
    match kind:
        case "message":
            try:
                entry = read_json(data, StoredEntry)
            except DecodeError as error:
                _LOG.debug("an event was left out: %s", error)
                return
            if isinstance(entry.message, JsonMessage) and isinstance(entry.pubsub_topic, str):
                _deliver([entry.message], entry.pubsub_topic, feed)
        case "gap":
            feed.gap()
        case other:
            _LOG.debug("an event of a kind that is not known was left out: %s", other)


def _is_automatic(pubsub_topic: str, content_topic: str, shard_count: int) -> bool:
    try:
        shard = StaticShard.parse(pubsub_topic)
        return autoshard(content_topic, shard.cluster_id, shard_count) == pubsub_topic
    except ConfigurationError:
        return False


_RECEIVERS: Final[dict[ReceiveWay, Callable[[HttpClient, TopicFeed, RestNodeOptions], Awaitable[None]]]] = {
    ReceiveWay.EVENTS: receive_events,
    ReceiveWay.RELAY: receive_by_relay,
    ReceiveWay.FILTER: receive_by_filter,
}
_SLOW_READER_NS: Final = 300_000_000_000
"""Time to read back after a node dropped messages because this program read too slowly."""


class TopicFeed:
    """The messages of one pubsub topic and content topic of one node."""

    def __init__(
        self,
        http: HttpClient,
        criterion: Criterion,
        options: RestNodeOptions,
        *,
        seen: RecentHashes,
        deliver: Callable[[RoutedMessage], None],
        changed: Callable[[], None],
        store: RestStoreReader,
    ) -> None:
        self.criterion: Final = criterion
        self.live = False
        """Whether messages are being received."""
        self.broken = False
        """Whether receiving failed."""
        self.way: ReceiveWay | None = None
        """The endpoint that was used last."""
        self.caught_up = 0
        """Messages that were read from the store."""
        self._http: Final = http
        self._options: Final = options
        self._changed: Final = changed
        self.deliver: Final = deliver
        self._catch_up: Final = CatchUp(store, criterion, seen=seen, deliver=deliver)
        self._behind = False
        self._complaint = logging.WARNING
        self._settled = asyncio.Event()
        self._due = asyncio.Event()
        self._wake = asyncio.Event()
        self._tasks: Final = OwnedTasks()

    def start(self) -> None:
        """Begin to receive."""
        self._tasks.spawn(self._receive())
        self._tasks.spawn(self._complete())

    async def ready(self, timeout_s: float) -> None:
        """Wait until messages are being received or the feed is closed, at most ``timeout_s``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()

    def wake(self) -> None:
        """Try again now: the node is back."""
        self._wake.set()

    async def close(self) -> None:
        """Stop. Can be called twice."""
        self._settled.set()
        await self._tasks.close()

    async def _receive(self) -> None:
        """Receive, and start again when that ends, with growing pauses until it lasts for a while."""
        with suppress(StoreQueryError):
            await self._catch_up.begin()
        loop = asyncio.get_running_loop()
        ways = self._options.receive
        pause_s = FIRST_PAUSE_S
        index = 0
        while True:
            self._wake.clear()  # before the attempt, because the node may reconnect while the attempt still fails
            self.way = ways[index]
            tried_s = loop.time()
            try:
                await _RECEIVERS[self.way](self._http, self, self._options)
            except NotOfferedError as error:
                _LOG.debug("%s: %s", self._http.address.name, error)
                index = (index + 1) % len(ways)
                if index:
                    continue
                _LOG.log(self._complaint, "%s offers no way to receive messages: %s", self._http.address.name, error)
                self._complaint = logging.DEBUG
            except NetworkError as error:
                _LOG.debug("%s: %s", self._http.address.name, error)
                index = 0  # after a reconnection the node may be another program
            if self.live and loop.time() - tried_s >= LONGEST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            self.live, self.broken = False, True
            self._changed()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _complete(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            await self._until_due()
            self._due.clear()
            try:
                self.caught_up += await self._catch_up.run()
                self._behind = self._due.is_set()
                pause_s = FIRST_PAUSE_S
            except StoreQueryError as error:
                _LOG.debug("the store could not be looked through: %s", error)
                self._fall_behind()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _until_due(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CHECK_INTERVAL_S):
                await self._due.wait()
                return
        if self.way is ReceiveWay.EVENTS or not self.live:
            await self._due.wait()

    def begun(self) -> None:
        """Note that messages sent from now on will be received."""
        # Also the first time: only the store has the messages since `CatchUp.begin`.
        self._fall_behind()
        self.live, self.broken = True, False
        self._settled.set()
        self._changed()

    def alive(self) -> None:
        """Note that no message is missing so far."""
        if not self._behind:
            self._catch_up.live()

    def gap(self) -> None:
        """Note that messages may be missing."""
        if self.way is ReceiveWay.EVENTS:
            self._catch_up.reach_back(_SLOW_READER_NS)
        self._fall_behind()

    def _fall_behind(self) -> None:
        self._behind = True
        self._due.set()
