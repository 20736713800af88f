"""`refresh`: updates the tables of a stream: those of a run over all recorded rows.

So a stream has the same tables as a run over the same rows, in any order of arrival. A refresh is that run, into the
folder of the stream: it takes what was recorded since the last one into its tables, or makes them anew where it cannot
(`fairway.pipeline.run.growth`). Its last step makes the new tables those that readers find (`RunFolder`).
"""

from __future__ import annotations

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

    Return the description of the run (`read_run`), and which way it took (`RunSummary.mode`).
    """
    version, through = folder.recorded.state()
    recorded = Recorded(
        uri=f"parquet:{folder.recorded.place}@v{version}",
        described=tuple({"label": source.label, "uri": source.shown} for source in sources),
        stores=tuple(source.label for source in sources if source.label),
        through=through,
        rows_after=lambda after, columns: folder.recorded.rows(after, through, columns or ARROW_SCHEMA.names),
    )
    summary = run_with(options.tables, recorded, folder.path, keys=keys, spark=spark)
    return read_run(folder.path), summary.mode
