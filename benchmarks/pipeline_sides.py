"""The measured sides of the pipeline: Spark, and one plain Python process.

A side is a function of an archive (a folder of Parquet), a folder to write into, and a stopwatch. It runs in a process
of its own (`benchmarks.pipeline_scale`), and returns the number of rows of each table.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from benchmarks.pipeline_plain import PlainPipeline
from benchmarks.process_tree import ProcessTree
from pyspark.sql import SparkSession

from fairway.pipeline import machine
from fairway.pipeline.run import run
from fairway.pipeline.session import create_session, embedded_settings
from fairway.testing.archives import GeneratorPlan, rows_mapper

_ROW_GROUP = 20_000
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
    """Write an archive with all cores, one file for each, and return its number of rows."""
    folder.mkdir(parents=True)
    count = machine.cores()
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        return sum(pool.map(partial(_write_stripe, plan, folder, count), range(count)))


def _write_stripe(plan: GeneratorPlan, folder: Path, count: int, stripe: int) -> int:
    batches = rows_mapper(plan, count)(iter([pa.RecordBatch.from_pydict({"id": [stripe]})]))
    writer, rows = None, 0
    for table in _gathered(batches):
        writer = writer or pq.ParquetWriter(folder / f"part-{stripe}.parquet", table.schema, compression="zstd")
        writer.write_table(table)
        rows += table.num_rows
    if writer is not None:
        writer.close()
    return rows


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
    session = _started(watch, settings)

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
    """Run the whole pipeline over all but the newest rows, then add those of few channels, then those of the others."""
    source = out.with_name(f"{out.name}-source")
    shutil.rmtree(source, ignore_errors=True)
    newest = _without_newest(archive, source)
    watch.lap("splitting")
    session = _started(watch, settings)
    run([f"store=parquet:{source}"], out, spark=session)
    watch.lap("whole")
    session.stop()
    for name, rows in newest.items():
        pq.write_table(rows, source / f"part-newest-{name}.parquet", compression="zstd")
        watch.lap("end of Spark")
        summary = run([f"store=parquet:{source}"], out)
        watch.lap(f"{summary.mode}, {summary.new_rows:,} {name}")
        if summary.mode != "grown" or not summary.balance.adds_up:
            raise SystemExit(f"it is {summary.mode}, because {summary.because}; {summary.balance}")
    shutil.rmtree(source)
    return {table.name: table.rows for table in summary.tables}


def _without_newest(archive: Path, folder: Path) -> dict[str, pa.Table]:
    """Write an archive without its newest rows; return those of a tenth of the topics, and those of the others.

    They are the newest tenth of every tenth topic, and the newest hundredth of the others.
    """
    rows = ds.dataset(archive).to_table()
    topics = rows["content_topic"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.lexsort((rows["timestamp_ns"].to_numpy(), topics))
    starts = np.searchsorted(topics[order], topics[order])
    share = np.empty(len(order))
    share[order] = (np.arange(len(order)) - starts + 1) / np.bincount(topics)[topics[order]]
    is_of_few = topics % 10 == 0
    few, others = is_of_few & (share > 0.9), ~is_of_few & (share > 0.99)
    old = rows.filter(pa.array(~few & ~others))
    folder.mkdir(parents=True)
    count = machine.cores()
    for number in range(count):
        begin, end = (old.num_rows * part // count for part in (number, number + 1))
        part = folder / f"part-{number}.parquet"
        pq.write_table(old.slice(begin, end - begin), part, row_group_size=_ROW_GROUP, compression="zstd")
    return {"of a tenth": rows.filter(pa.array(few)), "of the rest": rows.filter(pa.array(others))}


def measure_cluster(archive: Path, out: Path, watch: Stopwatch, settings: dict[str, str]) -> Rows:
    """Run it on executors that are processes of their own, which the driver starts."""
    memory_mib = _executor_memory_mib()
    own = {"spark.master": f"local-cluster[{_EXECUTORS},{_executor_cores()},{memory_mib}]"}
    return measure_spark(archive, out, watch, own | _cluster_settings() | settings)


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


def _started(watch: Stopwatch, settings: dict[str, str]) -> SparkSession:
    session = create_session("fairway benchmark", little_java=True, config=settings)
    watch.lap("start of Spark")
    return session


SIDES: dict[str, Side] = {
    "spark": measure_spark,
    "grown": measure_grown,
    "cluster": measure_cluster,
    "plain": measure_plain,
}
"""The sides by name."""
