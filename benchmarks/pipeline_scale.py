"""The pipeline on Spark from end to end and stage by stage, beside one plain Python process and DuckDB.

``python -m benchmarks.pipeline_scale`` measures 100,000 messages of about 500 bytes, ``--full`` also 1,000,000; see
``--help`` for other sizes and shapes. Archives are generated ones (`fairway.pipeline.generator`), as Parquet. Each side
has a process of its own, so that neither inherits the other's heap, and CPU-seconds and memory are those of everything
that it started. Rows of the tables are compared: who is quick must be right first. One run each, no error bars.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.pipeline_plain import PlainPipeline
from benchmarks.pipeline_sql import run_sql
from benchmarks.process_tree import PeakMemory, Usage, usage_of

from fairway.pipeline.generator import GeneratorPlan, rows_mapper
from fairway.pipeline.generator_plan import layout_of
from fairway.pipeline.run import run
from fairway.pipeline.session import create_session

_CHECKOUT = Path(__file__).parents[1]
_SIZES = (100_000,)
_FULL_SIZES = (100_000, 1_000_000)
_SHAPES = {
    "skewed": GeneratorPlan(largest_share=0.6),
    "uniform": GeneratorPlan(skew=0),
    "bloom": GeneratorPlan(bloom_bytes=18_000, history=10),
}
_LEAST_SECONDS = 0.001
_TABLES_OF_BOTH = (
    "waku_messages",
    "sds_messages",
    "quarantine",
    "delivered",
    "incomplete",
    "missing_messages",
    "sds_ordered",
    "acknowledgements",
    "ack_latency",
    "sender_stats",
    "channel_stats",
    "rate_utilisation",
    "store_completeness",
)


class Stopwatch:
    """Notes what each stage of this process took, with all that it started."""

    def __init__(self) -> None:
        self.stages: list[dict[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        """Begin a stage."""
        self._began_s = time.perf_counter()
        self._before = usage_of(os.getpid())

    def lap(self, name: str) -> None:
        """End a stage, and begin the next."""
        after = usage_of(os.getpid())
        self.stages.append(
            {
                "stage": name,
                "seconds": time.perf_counter() - self._began_s,
                "java_cpu_s": after.java_cpu_s - self._before.java_cpu_s,
                "python_cpu_s": after.python_cpu_s - self._before.python_cpu_s,
            }
        )
        self.restart()


def generate_archive(plan: GeneratorPlan, path: Path) -> int:
    """Write an archive in this process, and return its rows."""
    stripes = pa.RecordBatch.from_pydict({"id": [0]})
    writer, rows = None, 0
    for batch in _gathered(rows_mapper(plan)(iter([stripes]))):
        writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
        writer.write_table(batch)
        rows += batch.num_rows
    if writer is not None:
        writer.close()
    return rows


def _gathered(batches: Iterable[pa.RecordBatch], rows: int = 20_000) -> Iterator[pa.Table]:
    """Join batches into tables of about so many rows, each a row group."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= rows:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def measure_spark(archive: Path, out: Path) -> dict[str, Any]:
    """Run the whole pipeline."""
    watch = Stopwatch()
    session = create_session("fairway benchmark")
    watch.lap("start of Spark")

    def noted(progress: Any) -> None:
        if progress.result is not None:
            watch.lap(progress.step)

    summary = run([f"store=parquet:{archive}"], out, spark=session, progress=noted)
    watch.lap("balance")
    session.stop()
    if not summary.balance.adds_up:
        raise SystemExit(f"the balance does not add up: {summary.balance}")
    return {"stages": watch.stages, "rows": {table.name: table.rows for table in summary.tables}}


def measure_plain(archive: Path, out: Path) -> dict[str, Any]:
    """Make the same tables in this process."""
    out.mkdir()
    watch = Stopwatch()
    pipeline = PlainPipeline(archive)
    for name in pipeline.steps():
        watch.lap(name)
    pipeline.write(out)
    watch.lap("writing")
    return {"stages": watch.stages, "rows": pipeline.rows}


def measure_duckdb(archive: Path, out: Path) -> dict[str, Any]:
    """Make the tables that are SQL from what Spark decoded, which is in the folder beside."""
    out.mkdir()
    duckdb = import_module("duckdb")
    watch = Stopwatch()
    rows = {}
    for name, count in run_sql(duckdb, archive, out.parent / "spark" / "tables" / "sds_messages", out):
        watch.lap(name)
        rows[name] = count
    return {"stages": watch.stages, "rows": rows}


_SIDES = {"spark": measure_spark, "plain": measure_plain, "duckdb": measure_duckdb}


def measured_apart(side: str, archive: Path, folder: Path) -> dict[str, Any]:
    """Return what a side measured in a process of its own, with the most memory that it held."""
    command = [sys.executable, "-m", "benchmarks.pipeline_scale", "--side", side, str(archive), str(folder / side)]
    began_s = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, cwd=_CHECKOUT, stdout=subprocess.PIPE, text=True, env=environment) as process:
        with PeakMemory(process.pid) as peak:
            output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"{side} ended with exit code {process.returncode}")
    return json.loads(output.splitlines()[-1]) | {
        "seconds": time.perf_counter() - began_s,
        "peak_mib": peak.total_mib,
        "peak_java_mib": peak.java_mib,
        "peak_python_mib": peak.python_mib,
    }


def measure(plan: GeneratorPlan, shape: str) -> dict[str, Any]:
    """Measure all sides over one archive."""
    with tempfile.TemporaryDirectory(prefix="fairway-bench-") as name:
        folder = Path(name)
        archive = folder / "archive.parquet"
        began_s = time.perf_counter()
        rows = generate_archive(plan, archive)
        generated_s = time.perf_counter() - began_s
        sides = {side: measured_apart(side, archive, folder) for side in ("spark", "plain")}
        if find_spec("duckdb") is not None:
            sides["duckdb"] = measured_apart("duckdb", archive, folder)
        return {
            "shape": shape,
            "messages": plan.messages,
            "rows": rows,
            "channels": len(layout_of(plan).sizes),
            "archive_mib": archive.stat().st_size / 2**20,
            "generated_rows_per_s": rows / generated_s,
            "sides": sides,
            "disagreements": disagreements(sides),
        }


def disagreements(sides: dict[str, dict[str, Any]]) -> list[str]:
    """Return the tables that do not have equally many rows in Spark and plain Python."""
    spark, plain = sides["spark"]["rows"], sides["plain"]["rows"]
    return [
        f"{name}: Spark has {spark[name]:,} rows, plain Python {plain[name]:,}"
        for name in _TABLES_OF_BOTH
        if spark[name] != plain[name]
    ]


def print_table(result: dict[str, Any]) -> None:
    """Print what was measured over one archive."""
    rows = result["rows"]
    print(
        f"\n{rows:,} rows of about {result['messages']:,} messages, {result['shape']}, {result['channels']:,} channels,"
        f" {result['archive_mib']:.0f} MiB of Parquet; generated at {result['generated_rows_per_s']:,.0f} rows/s"
    )
    print(f"{'':<10}{'stage':<22}{'seconds':>9}{'rows/s':>12}{'CPU-s':>9}{'java':>9}{'python':>9}")
    for side, told in result["sides"].items():
        total = Usage(
            java_cpu_s=sum(stage["java_cpu_s"] for stage in told["stages"]),
            python_cpu_s=sum(stage["python_cpu_s"] for stage in told["stages"]),
        )
        end_to_end = {"stage": "end to end", "seconds": told["seconds"], **asdict(total)}
        for stage in [*told["stages"], end_to_end]:
            cpu_s = stage["java_cpu_s"] + stage["python_cpu_s"]
            per_second = rows / max(stage["seconds"], _LEAST_SECONDS)
            print(
                f"{side:<10}{stage['stage']:<22}{stage['seconds']:>9.2f}{per_second:>12,.0f}{cpu_s:>9.2f}"
                f"{stage['java_cpu_s']:>9.2f}{stage['python_cpu_s']:>9.2f}"
            )
        print(
            f"{side:<10}{'peak memory, MiB':<22}{told['peak_mib']:>9.0f}{'':>12}{'':>9}{told['peak_java_mib']:>9.0f}"
            f"{told['peak_python_mib']:>9.0f}"
        )
    for line in result["disagreements"]:
        print(f"DIFFERENT  {line}")


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, nargs="*", help="about how many; default 100,000")
    parser.add_argument("--full", action="store_true", help="also 1,000,000")
    parser.add_argument("--shapes", nargs="*", choices=list(_SHAPES), default=["skewed"])
    parser.add_argument("--json", type=Path, help="also write what was measured to this file")
    parser.add_argument("--side", nargs=3, metavar=("SIDE", "ARCHIVE", "OUT"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.side:
        side, archive, out = chosen.side
        print(json.dumps(_SIDES[side](Path(archive), Path(out))))
        return
    sizes = chosen.messages or (_FULL_SIZES if chosen.full else _SIZES)
    results = []
    for size in sizes:
        for shape in chosen.shapes:
            plan = replace(_SHAPES[shape], messages=size, channels=max(1, size // 1_000))
            results.append(measure(plan, shape))
            print_table(results[-1])
    machine = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "python": sys.version.split()[0]}
    print(f"\n{machine['cores']} cores, load {machine['load']}, Python {machine['python']}, one run each")
    if chosen.json:
        chosen.json.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n", encoding="utf-8")
    if any(result["disagreements"] for result in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
