"""`TroubledArchive`: the archive of a simulated service node, which lacks messages, is late, cuts answers, and lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from fairway.service.archives import ArchiveStatistics, NodeArchive
from fairway.waku.local.answers import FaultyAnswers
from fairway.waku.local.faults import FaultDice
from fairway.waku.message_store import MemoryMessageStore
from fairway.waku.node import RoutedMessage, StorePage, StoreQuery

_MAX_MESSAGES: Final = 100_000
_MAX_BYTES: Final = 268_435_456


class TroubledArchive(NodeArchive):
    """Keeps messages in memory that outlives its node, as a database does."""

    def __init__(self, dice: FaultDice, later: Callable[[int, Callable[[], object]], None]) -> None:
        """``later`` does something after so many milliseconds, whether the node lives then or not."""
        self._dice: Final = dice
        self._later: Final = later
        self._store: Final = MemoryMessageStore(max_messages=_MAX_MESSAGES, max_bytes=_MAX_BYTES)
        self._answers: Final = FaultyAnswers(self._store, dice)
        self.missed = 0
        """Messages that it should have and has not."""
        self.stored = 0
        self.queries = 0
        self.belied = 0
        """Answers that were false."""

    def __iter__(self) -> Iterator[RoutedMessage]:
        """Yield all messages, oldest first."""
        return iter(self._store)

    def has(self, message_hash: bytes) -> bool:
        """Return whether it has a message."""
        return bool(self._store.page(StoreQuery(message_hashes=(message_hash,)), None, lambda _: True).messages)

    def matching(self, query: StoreQuery) -> list[RoutedMessage]:
        """Return all that it has of what a query asks for."""
        found: list[RoutedMessage] = []
        cursor: bytes | None = None
        while True:
            page = self._store.page(query, cursor, lambda _: True)
            found += page.messages
            cursor = page.cursor
            if cursor is None:
                return found

    def put(self, message: RoutedMessage, received_ns: int) -> None:
        """Keep a message, soon."""
        if not self._dice.is_stored():
            self.missed += 1
        elif self._dice.faults.store_lag_ms:
            self._later(self._dice.faults.store_lag_ms, lambda: self._keep(message, received_ns))
        else:
            self._keep(message, received_ns)

    def _keep(self, message: RoutedMessage, received_ns: int) -> None:
        self.stored += self._store.put(message, received_ns)

    async def page(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the answer to a query."""
        self.queries += 1
        page, is_false = self._answers.page(query, cursor, lambda _: True, asker="")
        self.belied += is_false
        return page

    async def statistics(self) -> ArchiveStatistics:
        """Return counts."""
        return ArchiveStatistics(
            messages=len(self._store), size_bytes=0, waiting=0, failing=0, dropped=self.missed, queries=self.queries
        )

    async def close(self) -> None:
        """Keep everything: the node may be started again."""
