"""`refresh`: updates the tables of a stream by a run over all recorded rows.

So a stream has the same tables as a run over the same rows, in any order of arrival. The run writes into the folder of
the stream. It adds the newly recorded rows to the tables, or makes the tables anew if it cannot
(`fairway.pipeline.run.growth`). Its last step shows the new tables to readers (`RunFolder`).

A stream reads an archive once, in the order of time. It does not record a message that reaches the archive after the
stream has passed its time. A refresh counts these messages (`late_rows`); ``run.json`` and the report have the count.
"""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run.folder import read_run
from fairway.pipeline.run.running import Recorded, run_with
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA, ArchiveScan, Selection
from fairway.pipeline.streaming.batch_table import BatchTable
from fairway.pipeline.streaming.folder import StreamFolder
from fairway.pipeline.streaming.options import StreamOptions
from fairway.storage.archive import time_slice


def refresh(
    spark: SparkSession,
    folder: StreamFolder,
    sources: tuple[RunSource, ...],
    options: StreamOptions,
    keys: ChannelKeys | None,
) -> tuple[dict[str, Any], str]:
    """Update the tables, unless no row was recorded since the last refresh.

    Return the description of the run (`read_run`) and its mode (`RunSummary.mode`).
    """
    version, through = folder.recorded.state()
    recorded = Recorded(
        uri=f"parquet:{folder.recorded.place}@v{version}",
        described=tuple(
            {"label": source.label, "uri": source.shown, "late": late_rows(folder.recorded, source, options)}
            for source in sources
        ),
        stores=tuple(source.label for source in sources if source.label),
        through=through,
        rows_after=lambda after, columns: folder.recorded.rows(after, through, columns or ARROW_SCHEMA.names),
    )
    summary = run_with(options.tables, recorded, folder.path, keys=keys, spark=spark)
    return read_run(folder.path), summary.mode


def late_rows(recorded: BatchTable, source: RunSource, options: StreamOptions) -> int | None:
    """Return the number of messages of an archive that a stream has passed without recording them.

    None for a source that is not an `ArchiveScan`, for a store node, which reports no count, for a stream of selected
    messages, and before any row is recorded.
    """
    scan = scan_of(source.uri, Selection(), source.label)
    files = [str(file) for file, _ in recorded.files(-1, recorded.last())]
    if not isinstance(scan, ArchiveScan) or options.tables.selection != Selection() or not files:
        return None
    rows = ds.dataset(files, schema=arrow_schema(recorded.schema), format="parquet")
    is_own, time = ds.field("source") == scan.source, ds.field("timestamp_ns")
    times = (pc.max(batch.column(0)).as_py() for batch in rows.to_batches(columns=["timestamp_ns"], filter=is_own))
    last_ns = max((time_ns for time_ns in times if time_ns is not None), default=None)
    with scan.open() as archive:
        if last_ns is None or archive.estimate(time_slice(last_ns, last_ns)) is None:
            return None
        first = archive.nth(1, time_slice())
        if first is None:
            return 0
        # The last timestamp is left out, since the stream may have recorded a part of its messages. Rows older than
        # the archive's first message were removed from it.
        there = archive.estimate(time_slice(first.timestamp_ns, last_ns - 1)) or 0
    taken: int = rows.count_rows(filter=is_own & (time >= first.timestamp_ns) & (time < last_ns))
    return max(0, there - taken)
