"""Segments that have not reached SDS yet, because the node would not take them now.

A segment becomes an SDS message when it can leave: then its timestamp, its citations, their hints and its bloom filter
are of that moment, and a long burst waits as payloads and not as messages with some 18 kB of bloom filter each. With an
encryption hook that must be awaited, segments wait for each other, too, so that each can cite the one before it.
What waits here is state like all the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from fairway.protocol.journal import Journal, Row
from fairway.protocol.ratelimit import NOTHING_WAITS, Upstream
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
        self._first_parts = 0

    def __len__(self) -> int:
        return len(self._parts)

    def upstream(self, *, first_segment_only: bool) -> Upstream:
        """Return what the rate limit needs to know of what waits; with that option only first segments are charged."""
        if not self._parts:
            return NOTHING_WAITS
        if not first_segment_only:
            return Upstream(len(self._parts), len(self._parts))
        front = next(iter(self._parts.values()), None)
        return Upstream(len(self._parts), self._first_parts, front is not None and front.chunk_index != 0)

    def waiting(self, request_id: str) -> Iterator[tuple[int, PendingPart]]:
        """Yield the segments of a request that was added last, with how many of its own are behind each."""
        parts = []
        for part in reversed(self._parts.values()):
            if part.request_id != request_id:
                break
            parts.append(part)
        for behind in range(len(parts) - 1, -1, -1):
            yield behind, parts[behind]

    def extend(self, request_id: str, parts: Iterable[SegmentPart]) -> None:
        """Add the segments of a request."""
        for part in parts:
            self._order += 1
            key = str(self._order)
            self._put(key, PendingPart(request_id, part.content, part.chunk_index, part.is_parity))
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
            self._put(key, PendingPart(*row))

    def _put(self, key: str, part: PendingPart) -> None:
        self._parts[key] = part
        self._first_parts += part.chunk_index == 0

    def _remove(self, key: str) -> PendingPart:
        self._journal.deleted(OUTBOX, key)
        part = self._parts.pop(key)
        self._first_parts -= part.chunk_index == 0
        return part
