"""Segments that have not reached SDS yet.

With an encryption hook that answers at once the outbox is empty again before ``send`` returns. With one that must be
awaited, segments wait here for their turn, so that each can cite the one before it; they are state like all the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from fairway.protocol.journal import Journal, Row
from fairway.protocol.segmentation.segmenter import SegmentPart

OUTBOX: Final = "outbox"


class PendingPart(NamedTuple):
    """A segment that waits."""

    request_id: str
    content: bytes
    chunk_index: int
    is_parity: bool


class Outbox:
    """Waiting segments, first in, first out."""

    def __init__(self, journal: Journal) -> None:
        self._parts: dict[str, PendingPart] = {}
        self._journal = journal
        self._order = 0

    def __len__(self) -> int:
        return len(self._parts)

    def extend(self, request_id: str, parts: Iterable[SegmentPart]) -> None:
        """Add the segments of a request."""
        for part in parts:
            self._order += 1
            key = str(self._order)
            self._parts[key] = PendingPart(request_id, part.content, part.chunk_index, part.is_parity)
            self._journal.created(OUTBOX, key)

    def take(self) -> PendingPart:
        """Take the first segment."""
        return self._remove(next(iter(self._parts)))

    def drop(self, request_id: str) -> None:
        """Take out what is left of a request that ended."""
        for key in [key for key, part in self._parts.items() if part.request_id == request_id]:
            self._remove(key)

    def row(self, key: str) -> Row | None:
        """Return the present row of a key."""
        part = self._parts.get(key)
        return None if part is None else tuple(part)

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield everything."""
        for key, part in self._parts.items():
            yield OUTBOX, key, tuple(part)

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Fill an empty outbox with rows of `rows`, in any order."""
        for _, key, row in sorted(rows, key=lambda item: int(item[1])):
            self._order = int(key)
            self._parts[key] = PendingPart(*row)

    def _remove(self, key: str) -> PendingPart:
        self._journal.deleted(OUTBOX, key)
        return self._parts.pop(key)
