"""`ArchiveStream`: follows an archive that answers queries along the order (timestamp, message hash).

An offset is a cursor in that order. So a restart continues after the last message of the checkpoint, and a repeated
micro-batch reads the same range: no message is skipped or repeated.

Senders choose timestamps, and a message arrives at a store shortly after its timestamp. Without a bound, a stream could
pass a message before it arrives, and one message dated next year would move the stream past all others. So a stream
reads only up to the present minus ``settleMs``; a message dated in the future waits until then. A store may receive
older messages later, for example when it synchronises with others after an outage. This stream skips them; a table has
them, and `fairway.pipeline.streaming.late` finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fairway.errors import ConfigurationError
from fairway.pipeline.sources.options import SourceOptions, offset_of, place_of
from fairway.pipeline.sources.source_stream import Offset, SourceStream, check_for_data_loss
from fairway.pipeline.sources.waku_messages import ArchiveScan
from fairway.storage.archive import LARGEST_HASH, ArchiveCursor, ArchiveSlice


class ArchiveStream(SourceStream):
    """The stream of an archive; it keeps nothing open between calls."""

    def __init__(self, scan: ArchiveScan, options: SourceOptions, now_ns: Callable[[], int]) -> None:
        self._scan = scan
        self._options = options
        self._now_ns = now_ns
        self._target: ArchiveCursor | None = None

    def beginning(self) -> Offset:
        """Return the place before the first wanted message."""
        return offset_of(self._options.selection.part.after)

    def present(self) -> Offset:
        """Return the last place that has settled now, but not one before the wanted part."""
        return offset_of(max(self._options.selection.part.after, self._settled()))

    def place(self, given: ArchiveCursor | Offset) -> Offset:
        """Return the offset of a cursor."""
        if isinstance(given, ArchiveCursor):
            return offset_of(given)
        raise ConfigurationError(
            f"{given!r} is the offset of a source of files, and {self._scan.source} is an archive; give one such as "
            '{"timestamp": 1760000000000000000, "hash": "0x..."}, or leave startingOffsets out'
        )

    def hold(self) -> None:
        """Fix the end of the stream at the last place that has settled now."""
        self._target = self._end()

    def reached(self, start: Offset, most: int | None) -> Offset:
        """Return the cursor of the micro-batch's last message, or ``start`` if there is none."""
        begun = place_of(start)
        ahead = ArchiveSlice(begun, self._end())
        with self._scan.open() as archive:
            end = None if most is None else archive.nth(most, ahead) if most else begun
            end = end or archive.last(ahead)
        return offset_of(end or begun)

    def newest(self) -> Offset | None:
        """Return the cursor of the last message that has settled."""
        with self._scan.open() as archive:
            last = archive.last(ArchiveSlice(self._options.selection.part.after, self._end()))
        return None if last is None else offset_of(last)

    def parts(self, start: Offset, end: Offset) -> list[Any]:
        """Return slices of the archive."""
        part = ArchiveSlice(place_of(start), place_of(end))
        if part.through <= part.after:
            return []
        with self._scan.open() as archive:
            check_for_data_loss(archive, part.after, self._scan.source, fail=self._options.fail_on_data_loss)
        batch = replace(self._scan, selection=replace(self._scan.selection, after=part.after, through=part.through))
        return list(batch.plan(self._options.min_partitions))

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a slice."""
        return self._scan.read(part)

    def _end(self) -> ArchiveCursor:
        settled = self._target or self._settled()
        return min(settled, self._options.selection.part.through)

    def _settled(self) -> ArchiveCursor:
        return ArchiveCursor(self._now_ns() - self._options.settle_ns, LARGEST_HASH)
