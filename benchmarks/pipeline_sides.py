"""What is measured of the pipeline: Spark's side, a plain Python process, DuckDB, each with its stages.

A side is a function of an archive (a folder of Parquet), a folder to write into, and a stopwatch; it runs in a process
of its own (`benchmarks.pipeline_scale`) and returns the rows of the tables that it made.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from benchmarks.pipeline_plain import PlainPipeline
from benchmarks.pipeline_sql import run_sql
from benchmarks.process_tree import ProcessTree
from benchmarks.standalone_cluster import standalone_cluster
from pyspark.sql import SparkSession

from fairway.pipeline import machine
from fairway.pipeline.generator import GeneratorPlan, rows_mapper
from fairway.pipeline.run import run
from fairway.pipeline.session import create_session, embedded_settings
from fairway.pipeline.sources.open_source import open_source
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA, EXACT_TIME, TIME
from fairway.pipeline.stages.decoded import decoded, decoding_mapper

_ROW_GROUP = 20_000
_BATCH_ROWS = 1_000
_EXECUTORS = 2
_LEAST_EXECUTOR_MIB = 512


class Stopwatch:
    """Notes what each stage of this process took, with all that it started."""

    def __init__(self, tree: ProcessTree) -> None:
        self.stages: list[dict[str, Any]] = []
        self._tree = tree
        self.restart()

    def restart(self) -> None:
        """Begin a stage."""
        self._began_s = time.perf_counter()
        self._before = self._tree.usage()

    def lap(self, name: str) -> None:
        """End a stage, and begin the next."""
        after = self._tree.usage()
        self.stages.append(
            {
                "stage": name,
                "seconds": time.perf_counter() - self._began_s,
                "java_cpu_s": after.java_cpu_s - self._before.java_cpu_s,
                "python_cpu_s": after.python_cpu_s - self._before.python_cpu_s,
            }
        )
        self.restart()


Rows = dict[str, int]
Side = Callable[[Path, Path, Stopwatch, dict[str, str]], Rows]
"""Of archive, folder, stopwatch and the settings of Spark that are not those of an embedded session."""


def generate_archive(plan: GeneratorPlan, folder: Path) -> int:
    """Write an archive with all cores, a file for each, and return its rows.

    Its column ``timestamp`` is the time in nanoseconds once more: so earlier checkouts of fairway read the archive too.
    """
    folder.mkdir(parents=True)
    count = machine.cores()
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        return sum(pool.map(partial(_write_stripe, plan, folder, count), range(count)))


def _write_stripe(plan: GeneratorPlan, folder: Path, count: int, stripe: int) -> int:
    batches = rows_mapper(plan, count)(iter([pa.RecordBatch.from_pydict({"id": [stripe]})]))
    writer, rows = None, 0
    for table in _gathered(map(_for_earlier_checkouts, batches)):
        writer = writer or pq.ParquetWriter(folder / f"part-{stripe}.parquet", table.schema, compression="zstd")
        writer.write_table(table)
        rows += table.num_rows
    if writer is not None:
        writer.close()
    return rows


def _for_earlier_checkouts(messages: pa.RecordBatch) -> pa.RecordBatch:
    exact = messages.select(ARROW_SCHEMA.names)
    return exact.append_column(TIME, exact.column(EXACT_TIME))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches into tables of a row group each."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= _ROW_GROUP:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def measure_spark(archive: Path, out: Path, watch: Stopwatch, settings: dict[str, str]) -> Rows:
    """Run the whole pipeline in the session that ``fairway pipeline run`` would start."""
    source = f"store=parquet:{archive}"
    session = _started(watch, settings, little_java=True)

    def noted(progress: Any) -> None:
        if progress.results is not None:
            watch.lap(progress.step)

    summary = run([source], out, spark=session, progress=noted)
    watch.lap("balance")
    session.stop()
    watch.lap("end of Spark")
    if not summary.balance.adds_up:
        raise SystemExit(f"the balance does not add up: {summary.balance}")
    return {table.name: table.rows for table in summary.tables}


def measure_grown(archive: Path, out: Path, watch: Stopwatch, settings: dict[str, str]) -> Rows:
    """Run the whole pipeline over all but the newest hundredth of each topic, and then once more with that, too."""
    source = out.with_name(f"{out.name}-source")
    shutil.rmtree(source, ignore_errors=True)
    newest = _without_newest(archive, source)
    watch.lap("splitting")
    session = _started(watch, settings, little_java=True)
    run([f"store=parquet:{source}"], out, spark=session)
    watch.lap("whole")
    session.stop()
    pq.write_table(newest, source / "part-newest.parquet", compression="zstd")
    watch.lap("end of Spark")
    summary = run([f"store=parquet:{source}"], out)
    watch.lap(f"{summary.mode}, {summary.new_rows:,} rows")
    shutil.rmtree(source)
    if summary.mode != "grown" or not summary.balance.adds_up:
        raise SystemExit(f"it is {summary.mode}, because {summary.because}; {summary.balance}")
    return {table.name: table.rows for table in summary.tables}


def _without_newest(archive: Path, folder: Path) -> pa.Table:
    """Write an archive without the newest hundredth of each topic, as if all had gone on side by side; return that."""
    rows = ds.dataset(archive).to_table()
    topics = rows["content_topic"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.lexsort((rows["timestamp_ns"].to_numpy(), topics))
    starts = np.searchsorted(topics[order], topics[order])
    sizes = np.bincount(topics)[topics[order]]
    share = np.empty(len(order))
    share[order] = (np.arange(len(order)) - starts + 1) / sizes
    rows = rows.take(pa.array(np.argsort(share, kind="stable")))
    first = rows.num_rows - rows.num_rows // 101
    folder.mkdir(parents=True)
    count = machine.cores()
    for number in range(count):
        begin, end = (first * part // count for part in (number, number + 1))
        part = folder / f"part-{number}.parquet"
        pq.write_table(rows.slice(begin, end - begin), part, row_group_size=_ROW_GROUP, compression="zstd")
    return rows.slice(first)


def measure_cluster(archive: Path, out: Path, watch: Stopwatch, settings: dict[str, str]) -> Rows:
    """Run it on executors that are processes of their own, which the driver starts."""
    memory_mib = _executor_memory_mib()
    own = {"spark.master": f"local-cluster[{_EXECUTORS},{_executor_cores()},{memory_mib}]"}
    return measure_spark(archive, out, watch, own | _cluster_settings() | settings)


def measure_standalone(archive: Path, out: Path, watch: Stopwatch, settings: dict[str, str]) -> Rows:
    """Run it on a standalone cluster: a master and two workers, each with an executor."""
    daemons = out.with_name(f"{out.name}-daemons")
    memory_mib = _executor_memory_mib()
    with standalone_cluster(daemons, workers=_EXECUTORS, cores=_executor_cores(), memory_mib=memory_mib) as address:
        watch.lap("start of the cluster")
        rows = measure_spark(archive, out, watch, {"spark.master": address} | _cluster_settings() | settings)
    watch.lap("end of the cluster")
    return rows


def _executor_cores() -> int:
    return max(1, machine.cores() // _EXECUTORS)


def _executor_memory_mib() -> int:
    return max(_LEAST_EXECUTOR_MIB, machine.jvm_memory_to_pass_on_mib(_executor_cores()))


def _cluster_settings() -> dict[str, str]:
    """Return what docs/cluster.md advises for executors, beside their memory."""
    embedded = embedded_settings(little_java=True)
    return {
        "spark.executor.memory": f"{_executor_memory_mib()}m",
        "spark.executor.extraJavaOptions": embedded["spark.driver.extraJavaOptions"],
    }


def measure_plain(archive: Path, out: Path, watch: Stopwatch, settings: dict[str, str]) -> Rows:  # noqa: ARG001 - a side
    """Make the same tables in this process."""
    out.mkdir()
    pipeline = PlainPipeline(archive)
    for name in pipeline.steps():
        watch.lap(name)
    pipeline.write(out)
    watch.lap("writing")
    return pipeline.rows


def measure_duckdb(archive: Path, out: Path, watch: Stopwatch, settings: dict[str, str]) -> Rows:  # noqa: ARG001 - a side
    """Make the tables that are SQL from what Spark decoded, which is in the folder beside."""
    out.mkdir()
    duckdb = import_module("duckdb")
    rows = {}
    for name, count in run_sql(duckdb, archive, out.parent / "spark" / "tables" / "sds_messages", out):
        watch.lap(name)
        rows[name] = count
    return rows


def measure_decoding(archive: Path, out: Path, watch: Stopwatch, settings: dict[str, str]) -> Rows:  # noqa: ARG001 - a side
    """Read and decode in Spark, writing nothing: the whole archive twice, of which the second time is warm."""
    session = _started(watch, settings, little_java=False)
    for name in ("decoding, cold", "decoding, warm"):
        messages = open_source(session, f"parquet:{archive}", label="store")
        decoded(messages).write.format("noop").mode("overwrite").save()
        watch.lap(name)
    session.stop()
    return {}


def measure_plain_decoding(archive: Path, out: Path, watch: Stopwatch, settings: dict[str, str]) -> Rows:  # noqa: ARG001 - a side
    """Do the same in this process."""
    for name in ("decoding, cold", "decoding, warm"):
        batches = ds.dataset(archive).to_batches(batch_size=_BATCH_ROWS)
        rows = sum(batch.num_rows for batch in decoding_mapper()(batches))
        watch.lap(name)
    return {"decoded": rows}


def _started(watch: Stopwatch, settings: dict[str, str], *, little_java: bool) -> SparkSession:
    session = create_session("fairway benchmark", little_java=little_java, config=settings)
    watch.lap("start of Spark")
    return session


SIDES: dict[str, Side] = {
    "spark": measure_spark,
    "grown": measure_grown,
    "cluster": measure_cluster,
    "standalone": measure_standalone,
    "plain": measure_plain,
    "duckdb": measure_duckdb,
    "decoding": measure_decoding,
    "plain-decoding": measure_plain_decoding,
}
"""By name: what can be measured."""
