"""`refresh`: updates the tables of a stream: those of a run over all recorded rows, published in one step.

So a stream has the same tables as a run over the same rows, in any order of arrival. A refresh is that run, into
the same folder each time: it takes what was recorded since the last one into its tables, or makes them anew where it
cannot (`fairway.pipeline.run.growth`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from fairway.pipeline.durable import write_json
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run import run_with
from fairway.pipeline.run.folder import MANIFEST
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.stages.store_completeness import STORE_COMPLETENESS
from fairway.pipeline.streaming.compaction import copy_rows, join_recorded
from fairway.pipeline.streaming.folder import StreamFolder
from fairway.pipeline.streaming.joined import MANY_FOLDERS, JoinedBatches
from fairway.pipeline.streaming.options import StreamOptions

_STORES: Final = "store_completeness"
_STORE_SCHEMA: Final = arrow_schema(STORE_COMPLETENESS)


def refresh(
    spark: SparkSession,
    folder: StreamFolder,
    sources: tuple[RunSource, ...],
    options: StreamOptions,
    keys: ChannelKeys | None,
) -> dict[str, Any]:
    """Update the tables, unless no row was recorded since the last refresh; return their manifest.

    In it ``stream`` tells through which micro-batch they go, and which way the run took (`RunSummary.mode`).
    """
    join_recorded(folder)
    through = folder.rows.through
    shown = folder.generation()
    if shown is not None and shown["stream"]["through"] == through:
        return {**shown, "stream": {"through": through, "mode": "unchanged"}}
    source = f"parquet:{folder.rows.place}"
    summary = run_with(options.tables, [source], folder.run, keys=keys, spark=spark)
    join_files_of_a_run(folder.rows, RunSource.parse(source), folder.run)
    manifest: dict[str, Any] = json.loads((folder.run / MANIFEST).read_text(encoding="utf-8"))
    folder.prepare_generation()
    _add_empty_stores(folder, manifest, sources)
    manifest["sources"] = [source.described() | {"fingerprint": []} for source in sources]
    manifest["stream"] = {"through": through, "mode": summary.mode}
    folder.show(manifest)
    return manifest


def join_files_of_a_run(rows: JoinedBatches, source: RunSource, run: Path, *, many: int = MANY_FOLDERS) -> None:
    """Join the files of the only source of a finished run if they are many, so that the run knows them afterwards.

    The same rows are in other files then: without this the run would be made anew. It is, if this is broken off.
    """
    known = source.fingerprint()
    manifest = json.loads((run / MANIFEST).read_text(encoding="utf-8"))
    (told,) = manifest["sources"]
    if told["fingerprint"] != known or not rows.join_small(copy_rows, many):
        return
    gone = {one.folder.name for one in rows.inner()}
    told["fingerprint"] = [state for state in source.fingerprint() if state[0].partition("/")[0] not in gone]
    write_json(run / MANIFEST, manifest)
    rows.remove_inner()


def _add_empty_stores(folder: StreamFolder, manifest: dict[str, Any], sources: tuple[RunSource, ...]) -> None:
    """Add a row to ``store_completeness`` for each store without messages, as a run does."""
    place = folder.next_generation / "tables" / _STORES
    added = place / "part-empty.parquet"
    known = {row["source"] for row in RunTables(folder.run).all(_STORES, ["source"])}
    empty = sorted({source.label for source in sources if source.label} - known)
    if not empty:
        return
    total = manifest["tables"]["waku_messages"]["rows"]
    rows = [{"source": name, "messages": 0, "of": total, "missing": total} for name in empty]
    pq.write_table(pa.Table.from_pylist(rows, schema=_STORE_SCHEMA), added, compression="zstd")
    told = manifest["tables"][_STORES]
    told["rows"] += len(rows)
    told["files"] += 1
    told["names"].append(added.name)
