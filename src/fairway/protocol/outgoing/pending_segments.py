"""The outbox: segments that wait before SDS, because they cannot leave now.

A segment becomes an SDS message when it can leave. So its timestamp, citations, hints and bloom filter are of that
moment. A long burst waits as payloads, not as messages with some 18 kB of bloom filter each. With an asynchronous
encryption hook a segment also waits until the segment before it is encrypted, and can cite it. The outbox is persisted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from fairway.protocol.journal import Journal, Row, RowReader
from fairway.protocol.segmentation.segmenter import OutgoingSegment

OUTBOX: Final = "outbox"


class PendingSegment(NamedTuple):
    """A segment that waits."""

    request_id: str
    content: bytes
    order: int
    """Its segment order: data segments from 0, then parity segments."""
    is_parity: bool


class PendingSegments(dict[str, PendingSegment]):
    """Waiting segments, first in, first out; journaled by `extend`, `take` and `drop`."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal
        self._order = 0
        self.readers: dict[str, RowReader] = {OUTBOX: self.get}

    @property
    def newest(self) -> PendingSegment | None:
        """The segment that entered last; None if the outbox is empty."""
        return self[next(reversed(self))] if self else None

    def waiting(self, request_id: str) -> Iterator[tuple[int, PendingSegment]]:
        """Yield the waiting segments of the newest request, each with the number of its segments behind it."""
        segments = []
        for segment in reversed(self.values()):
            if segment.request_id != request_id:
                break
            segments.append(segment)
        for behind in range(len(segments) - 1, -1, -1):
            yield behind, segments[behind]

    def extend(self, request_id: str, segments: Iterable[OutgoingSegment]) -> None:
        """Add the segments of a request."""
        for segment in segments:
            self._order += 1
            key = str(self._order)
            self[key] = PendingSegment(request_id, segment.content, segment.order, segment.is_parity)
            self._journal.created(OUTBOX, key)

    def replace_newest(self, content: bytes) -> None:
        """Replace the content of the segment that entered last."""
        key = next(reversed(self))
        self[key] = self[key]._replace(content=content)
        self._journal.touch(OUTBOX, key)

    def take(self) -> PendingSegment:
        """Remove and return the first segment."""
        return self._remove(next(iter(self)))

    def drop(self, request_id: str) -> None:
        """Remove the segments of a request that ended."""
        for key in [key for key, segment in self.items() if segment.request_id == request_id]:
            self._remove(key)

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield table, key and row of each segment."""
        for key, segment in self.items():
            yield OUTBOX, key, segment

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Fill an empty outbox with rows of `rows`, in any order."""
        for _, key, row in sorted(rows, key=lambda item: int(item[1])):
            self._order = int(key)
            self[key] = PendingSegment(*row)

    def _remove(self, key: str) -> PendingSegment:
        self._journal.deleted(OUTBOX, key)
        return self.pop(key)
