"""`look_back`: finds the late messages of archives, which a stream passed before they arrived.

A stream reads an archive once, in the order of time, up to `StreamOptions.settle_ms` before the present. A store may
receive an older message later, for example from another store after an outage. `look_back` compares the archives with
the recorded rows, and appends each late message to the table ``late``. The query ``record`` follows this table as one
more source, so that late messages are recorded, delivered and written into the tables like all others.

Invariant: a message of an archive is recorded once. A late message is at or before the place that ``record`` has
committed, so ``record`` never reads it from the archive.

Databases count their messages: parts with as many messages as were recorded are not read. So a late message is not
found while as many messages of its part are removed from the archive. Without such counts all messages of the last
`StreamOptions.late_ms` are read again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run.ingesting import at_sources
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.sources.options import place_of
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import ArchiveScan
from fairway.pipeline.streaming.folder import RECORD, StreamFolder
from fairway.pipeline.streaming.options import StreamOptions
from fairway.storage.archive import ArchiveCursor, ArchiveSlice, ReadableArchive
from fairway.units import NS_PER_MS

_UNCOUNTED_MS: Final = 3_600_000
"""Default of `StreamOptions.late_ms` for archives that do not count the wanted messages."""
PART_MESSAGES: Final = 10_000
"""Messages of the parts of a database whose counts are compared; more if these are above `_MOST_PARTS`."""
_MOST_PARTS: Final = 256
_OFFSETS_BEGIN: Final = 2
"""Lines before the offsets in a file of Spark's offset log: its version, and settings."""
_NO_OFFSET: Final = "-"

_TIME: Final = ds.field("timestamp_ns")
_HASH: Final = ds.field("message_hash")


def look_back(
    folder: StreamFolder, sources: tuple[RunSource, ...], options: StreamOptions, keys: ChannelKeys | None
) -> int:
    """Append the late messages of the archives to the table ``late``, and return their number."""
    wanted = at_sources(options.tables.selection, keys)
    found = 0
    for position, source in enumerate(sources):
        reached = reached_by(folder, position)
        if reached is not None:
            scan = scan_of(source.uri, wanted, source.label)
            assert isinstance(scan, ArchiveScan), "only the offset of an archive is a place"
            for rows in late_messages(scan, folder, reached, options.late_ms):
                folder.late.append_rows(rows)
                found += rows.num_rows
    return found


def reached_by(folder: StreamFolder, position: int) -> ArchiveCursor | None:
    """Return the place in an archive that the last recorded micro-batch reached; None for files, or before it."""
    log = folder.checkpoint(RECORD) / "offsets" / str(folder.recorded.last())
    lines = log.read_text(encoding="utf-8").splitlines()[_OFFSETS_BEGIN:] if log.is_file() else []
    offset = json.loads(lines[position]) if lines and lines[position] != _NO_OFFSET else {}
    return place_of(offset) if "timestamp" in offset else None


def late_messages(
    scan: ArchiveScan, folder: StreamFolder, reached: ArchiveCursor, late_ms: int | None
) -> Iterator[pa.Table]:
    """Yield the messages of an archive, up to a place, that are neither recorded nor in the table ``late``."""
    recorded, is_own = folder.recorded.dataset(), ds.field("source") == scan.source
    with scan.open() as archive:
        for part in _parts(scan, archive, recorded, is_own, reached, late_ms):
            for batch in filter(len, scan.read(part)):
                rows = pa.Table.from_batches([batch])
                where = is_own & _near(rows)
                if (rows := _unknown(rows, recorded, where)).num_rows:
                    rows = _unknown(rows, folder.late.dataset(), where)
                if rows.num_rows:
                    yield rows


def _parts(
    scan: ArchiveScan,
    archive: ReadableArchive,
    recorded: ds.Dataset,
    is_own: ds.Expression,
    reached: ArchiveCursor,
    late_ms: int | None,
) -> Iterator[ArchiveSlice]:
    """Yield the parts of an archive that may have late messages."""
    wanted = scan.selection.part
    first = archive.nth(1, ArchiveSlice(wanted.after, reached))
    if first is None:
        return
    # Messages before the first one were removed from the archive.
    part = ArchiveSlice(max(wanted.after, ArchiveCursor(first.timestamp_ns, b"")), min(wanted.through, reached))
    count = archive.estimate(part) if scan.selection.is_of_times_alone else None
    if late_ms is None and count is None:
        late_ms = _UNCOUNTED_MS
    if late_ms is not None:
        part = part._replace(after=max(part.after, ArchiveCursor(reached.timestamp_ns - late_ms * NS_PER_MS, b"")))
    if count is None:
        yield part
        return

    def is_recorded(part: ArchiveSlice) -> bool:
        known: int = recorded.count_rows(filter=is_own & _within(part))
        return (archive.estimate(part) or 0) <= known

    if not is_recorded(part):
        parts = archive.slices(min(_MOST_PARTS, -(-count // PART_MESSAGES)), part)
        yield from (each for each in parts if not is_recorded(each))


def _near(rows: pa.Table) -> ds.Expression:
    """Return a condition that holds for the recorded copies of some rows: their range of time, which is in few files.

    Bytes of a node that are no message have no time of their own.
    """
    if pc.any(pc.equal(rows["pubsub_topic"], "")).as_py():
        return ds.scalar(True)
    ends = pc.min_max(rows["timestamp_ns"]).as_py()
    return (ends["min"] <= _TIME) & (ends["max"] >= _TIME)


def _within(part: ArchiveSlice) -> ds.Expression:
    first, last = part
    is_after = (first.timestamp_ns < _TIME) | ((first.timestamp_ns == _TIME) & (first.message_hash < _HASH))
    return is_after & ((last.timestamp_ns > _TIME) | ((last.timestamp_ns == _TIME) & (last.message_hash >= _HASH)))


def _unknown(rows: pa.Table, known: ds.Dataset, chosen: ds.Expression) -> pa.Table:
    """Return the rows whose message hash is not among the chosen ones of a table."""
    hashes = rows["message_hash"].combine_chunks()
    found = known.to_table(columns=["message_hash"], filter=chosen & _HASH.isin(hashes))["message_hash"]
    return rows.filter(pc.invert(pc.is_in(hashes, value_set=found.combine_chunks())))
