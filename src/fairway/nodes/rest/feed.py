"""`TopicFeed`: the messages of one content topic, received from the node or, if missed, read from its store.

One task receives by the first endpoint that the node offers, and starts again when that ends. A second task reads the
store (`CatchUp`): after each new start, after a possible overflow of the node's cache, and while polling at intervals.
It reads the hashes of messages first, then the unknown messages. Each message that the store keeps and that came after
the start of the feed is delivered once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from fairway.errors import NetworkError, StoreQueryError
from fairway.nodes.listeners import Criterion
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.nodes.rest.http_client import HttpClient
from fairway.nodes.rest.options import ReceiveWay, RestNodeOptions
from fairway.nodes.rest.receivers import (
    NotOfferedError,
    Sink,
    receive_by_filter,
    receive_by_relay,
    receive_events,
)
from fairway.nodes.rest.store_reader import RestStoreReader
from fairway.owned_tasks import OwnedTasks
from fairway.protocol.query_windows import MAX_WINDOW_NS
from fairway.protocol.recent_hashes import RecentHashes

_PAGE: Final = 100
_FETCH: Final = 50
"""Hashes in one query: 3,400 characters of its URL."""


class CatchUp:
    """Reads the gaps of one pubsub topic and content topic."""

    def __init__(
        self,
        reader: RestStoreReader,
        criterion: Criterion,
        *,
        seen: RecentHashes,
        deliver: Callable[[RoutedMessage], None],
        overlap_ns: int,
        now_ns: Callable[[], int],
    ) -> None:
        self._reader: Final = reader
        self._criterion: Final = criterion
        self._seen: Final = seen
        self._deliver: Final = deliver
        self._overlap_ns: Final = overlap_ns
        self._now_ns: Final = now_ns
        self.covered_ns = now_ns() - overlap_ns
        """Where the next run begins."""

    async def begin(self) -> None:
        """Note the messages before the subscription, which are not delivered; raise `StoreQueryError`."""
        async for page in self._hashes():
            for message_hash in page:
                self._seen.add(message_hash)

    def live(self) -> None:
        """Note that nothing is missing up to now."""
        self.covered_ns = max(self.covered_ns, self._now_ns() - self._overlap_ns)

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
        self.covered_ns = max(self.covered_ns, begun_ns - self._overlap_ns)
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
        led = RecentHashes()
        while True:
            page, cursor = await self._reader.hashes(query, cursor)
            yield page
            if cursor is None:
                return
            if not led.add(cursor):
                raise StoreQueryError(f"the node gives the cursor 0x{cursor.hex()} twice")

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


_RECEIVERS: Final[dict[ReceiveWay, Callable[..., Awaitable[None]]]] = {
    ReceiveWay.EVENTS: receive_events,
    ReceiveWay.RELAY: receive_by_relay,
    ReceiveWay.FILTER: receive_by_filter,
}
_SLOW_READER_NS: Final = 300_000_000_000
"""How far to read back after a node dropped messages because this program read too slowly."""
_LOG: Final = logging.getLogger(__name__)


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
        self._catch_up: Final = CatchUp(
            store,
            criterion,
            seen=seen,
            deliver=deliver,
            overlap_ns=int(options.advanced.overlap_s * 1e9),
            now_ns=time.time_ns,
        )
        self._sink: Final = Sink(begun=self._begun, deliver=deliver, alive=self._alive, gap=self._gap)
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
        pause_s = self._options.advanced.first_pause_s
        index = 0
        while True:
            self._wake.clear()  # not later: the node may come back while an attempt still fails
            self.way = ways[index]
            tried_s = loop.time()
            try:
                await _RECEIVERS[self.way](self._http, self.criterion, self._sink, self._options)
            except NotOfferedError as error:
                _LOG.debug("%s: %s", self._http.address.name, error)
                index = (index + 1) % len(ways)
                if index:
                    continue
                _LOG.log(self._complaint, "%s offers no way to receive messages: %s", self._http.address.name, error)
                self._complaint = logging.DEBUG
            except NetworkError as error:
                _LOG.debug("%s: %s", self._http.address.name, error)
                index = 0  # it may be another program when it is back
            if self.live and loop.time() - tried_s >= self._options.advanced.longest_pause_s:
                pause_s = self._options.advanced.first_pause_s
            self.live, self.broken = False, True
            self._changed()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            pause_s = min(2 * pause_s, self._options.advanced.longest_pause_s)

    async def _complete(self) -> None:
        pause_s = self._options.advanced.first_pause_s
        while True:
            await self._until_due()
            self._due.clear()
            try:
                self.caught_up += await self._catch_up.run()
                self._behind = self._due.is_set()
                pause_s = self._options.advanced.first_pause_s
            except StoreQueryError as error:
                _LOG.debug("the store could not be looked through: %s", error)
                self._fall_behind()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, self._options.advanced.longest_pause_s)

    async def _until_due(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.advanced.check_interval_s):
                await self._due.wait()
                return
        if self.way is ReceiveWay.EVENTS or not self.live:
            await self._due.wait()

    def _begun(self) -> None:
        # Also the first time: only the store has the messages since `CatchUp.begin`.
        self._fall_behind()
        self.live, self.broken = True, False
        self._settled.set()
        self._changed()

    def _alive(self) -> None:
        if not self._behind:
            self._catch_up.live()

    def _gap(self) -> None:
        if self.way is ReceiveWay.EVENTS:
            self._catch_up.reach_back(_SLOW_READER_NS)
        self._fall_behind()

    def _fall_behind(self) -> None:
        self._behind = True
        self._due.set()
