"""`refresh`: updates the tables of a stream by a run over all recorded rows.

So a stream has the same tables as a run over the same rows, in any order of arrival. The run writes into the folder of
the stream. It adds the newly recorded rows to the tables, or makes the tables anew if it cannot
(`fairway.pipeline.run.growth`). Its last step shows the new tables to readers (`RunFolder`).

``run.json`` and the report have the number of late messages of each archive (`fairway.pipeline.streaming.late`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyspark.sql import SparkSession

from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run.folder import read_run
from fairway.pipeline.run.running import Recorded, run_with
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA
from fairway.pipeline.streaming.folder import StreamFolder
from fairway.pipeline.streaming.options import StreamOptions


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
    late = Counter(folder.late.dataset().to_table(columns=["source"])["source"].to_pylist())
    recorded = Recorded(
        uri=f"parquet:{folder.recorded.place}@v{version}",
        described=tuple({"label": source.label, "uri": source.shown, "late": late[source.label]} for source in sources),
        stores=tuple(source.label for source in sources if source.label),
        through=through,
        rows_after=lambda after, columns: folder.recorded.rows(after, through, columns or ARROW_SCHEMA.names),
    )
    summary = run_with(options.tables, recorded, folder.path, keys=keys, spark=spark)
    return read_run(folder.path), summary.mode
