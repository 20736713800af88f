"""The pipeline on Spark, stage by stage, beside one plain Python process.

``python -m benchmarks.pipeline_scale`` measures 100,000 messages of about 500 bytes; ``--help`` has other sizes, shapes
and sides. The archives are generated (`fairway.testing.archives`) as Parquet. Each side runs in a process of its own.
CPU-seconds and memory include its child processes. Both sides must make tables with equal numbers of rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from benchmarks.pipeline_sides import SIDES, Stopwatch, generate_archive
from benchmarks.process_tree import ProcessTree, Usage

from fairway.testing.archives import GeneratorPlan
from fairway.testing.archives.plan import layout_of

_CHECKOUT = Path(__file__).parents[1]
_MESSAGES = 100_000
_MESSAGES_PER_CHANNEL = 1_000
SHAPES = {
    "skewed": GeneratorPlan(largest_share=0.6),
    "uniform": GeneratorPlan(skew=0),
    "bloom": GeneratorPlan(bloom_bytes=18_000, history=10),
    # 110,000 messages are 2.2 GB, nearly all of it in segments of 32 KiB.
    "large": GeneratorPlan(long_share=0.23, segment_size_bytes=32_768),
}
"""By name: archives without their size."""
_DEFAULT_SIDES = ("spark", "plain")
_LEAST_SECONDS = 0.001
_TABLES_OF_BOTH = (
    "waku_messages",
    "sds_messages",
    "repeats",
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


def _measured_apart(side: str, archive: Path, out: Path, settings: Sequence[str]) -> dict[str, Any]:
    """Measure a side in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.pipeline_scale", "--side", side, str(archive), str(out)]
    for setting in settings:
        command += ["--set", setting]
    began_s = time.perf_counter()
    ended = subprocess.run(command, cwd=_CHECKOUT, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{side} ended with exit code {ended.returncode}")
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return told | {"seconds": time.perf_counter() - began_s}


def _measure_here(side: str, archive: Path, out: Path, settings: Sequence[str]) -> dict[str, Any]:
    with ProcessTree(os.getpid()) as tree:
        watch = Stopwatch(tree)
        rows = SIDES[side](archive, out, watch, dict(setting.split("=", 1) for setting in settings))
        total = tree.usage()
    return {
        "stages": watch.stages,
        "rows": rows,
        "java_cpu_s": total.java_cpu_s,
        "python_cpu_s": total.python_cpu_s,
        "peak_mib": tree.peak_mib,
        "load": round(os.getloadavg()[0], 1),
    }


def measure(plan: GeneratorPlan, sides: Sequence[str], settings: Sequence[str] = ()) -> dict[str, Any]:
    """Measure sides over one archive."""
    with tempfile.TemporaryDirectory(prefix="fairway-bench-") as name:
        folder = Path(name)
        archive = folder / "archive"
        generate_archive(plan, archive)
        measured = {side: _measured_apart(side, archive, folder / side, settings) for side in sides}
        return {
            "messages": plan.messages,
            "rows": ds.dataset(archive).count_rows(),
            "channels": len(layout_of(plan).sizes),
            "archive_mib": sum(file.stat().st_size for file in archive.iterdir()) / 2**20,
            "settings": list(settings),
            "sides": measured,
            "disagreements": disagreements(measured),
        }


def disagreements(sides: dict[str, dict[str, Any]]) -> list[str]:
    """Return a line for each table that has another number of rows on another side than on Spark's."""
    if "spark" not in sides:
        return []
    spark = sides["spark"]["rows"]
    return [
        f"{name}: Spark has {spark[name]:,} rows, {other} {sides[other]['rows'][name]:,}"
        for other in ("plain", "cluster")
        if other in sides
        for name in _TABLES_OF_BOTH
        if spark[name] != sides[other]["rows"][name]
    ]


def print_table(result: dict[str, Any]) -> None:
    """Print what was measured over one archive."""
    rows = result["rows"]
    print(
        f"\n{rows:,} rows of about {result['messages']:,} messages, {result['shape']}, {result['channels']:,} channels,"
        f" {result['archive_mib']:.0f} MiB of Parquet {' '.join(result['settings'])}"
    )
    print(f"{'':<15}{'stage':<20}{'seconds':>9}{'rows/s':>12}{'CPU-s':>9}{'java':>9}{'python':>9}")
    for side, told in result["sides"].items():
        total = Usage(java_cpu_s=told["java_cpu_s"], python_cpu_s=told["python_cpu_s"])
        end_to_end = {"stage": "end to end", "seconds": told["seconds"], **asdict(total)}
        for stage in [*told["stages"], end_to_end]:
            cpu_s = stage["java_cpu_s"] + stage["python_cpu_s"]
            per_second = rows / max(stage["seconds"], _LEAST_SECONDS)
            print(
                f"{side:<15}{stage['stage']:<20}{stage['seconds']:>9.2f}{per_second:>12,.0f}{cpu_s:>9.2f}"
                f"{stage['java_cpu_s']:>9.2f}{stage['python_cpu_s']:>9.2f}"
            )
        print(f"{side:<15}{'peak memory, MiB':<20}{told['peak_mib']:>9.0f}{'load':>7}{told['load']:>5}")
    for line in result["disagreements"]:
        print(f"DIFFERENT  {line}")


def main() -> None:
    """Measure what the command line says."""
    chosen = _parser().parse_args()
    if chosen.side:
        side, archive, out = chosen.side
        print(json.dumps(_measure_here(side, Path(archive), Path(out), chosen.set)))
        return
    results = []
    for shape in chosen.shapes:
        size = chosen.messages
        plan = replace(SHAPES[shape], messages=size, channels=max(1, size // _MESSAGES_PER_CHANNEL))
        results.append({"shape": shape} | measure(plan, chosen.sides, chosen.set))
        print_table(results[-1])
    machine = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "python": sys.version.split()[0]}
    print(f"\n{machine['cores']} cores, load {machine['load']}, Python {machine['python']}, one run each")
    if chosen.json:
        chosen.json.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n", encoding="utf-8")
    if any(result["disagreements"] for result in results):
        raise SystemExit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=_MESSAGES, help="about how many; default 100,000")
    parser.add_argument("--shapes", nargs="*", choices=list(SHAPES), default=["skewed"])
    parser.add_argument("--sides", nargs="*", choices=list(SIDES), default=_DEFAULT_SIDES)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    parser.add_argument("--json", type=Path, help="also write what was measured to this file")
    parser.add_argument("--side", nargs=3, metavar=("SIDE", "ARCHIVE", "OUT"), help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
