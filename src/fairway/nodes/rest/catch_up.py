"""`CatchUp`: reads messages that a feed missed from the store: first their hashes, then the unknown messages.

`CatchUp.run` passes on each message of the criterion the store has from `covered_ns` on, once. `covered_ns` is then
``overlap`` before the beginning of the run, because clocks of senders differ and messages take time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

from fairway.errors import StoreQueryError
from fairway.nodes.listeners import Criterion
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.nodes.rest.store_reader import RestStoreReader
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
        hand_on: Callable[[RoutedMessage], None],
        overlap_ns: int,
        now_ns: Callable[[], int],
    ) -> None:
        self._reader: Final = reader
        self._criterion: Final = criterion
        self._seen: Final = seen
        self._hand_on: Final = hand_on
        self._overlap_ns: Final = overlap_ns
        self._now_ns: Final = now_ns
        self.covered_ns = now_ns() - overlap_ns
        """Where the next run begins."""

    async def begin(self) -> None:
        """Note the messages before the subscription, which are not passed on; raise `StoreQueryError`."""
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
        """Pass on missed messages, and return their number; raise `StoreQueryError`."""
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
                    self._hand_on(message)
                    self._seen.add(message.message_hash)
                    found += 1
            cursor = page.cursor
            if cursor is None:
                break
        return found
