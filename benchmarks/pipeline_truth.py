"""Compares a whole run over a generated archive with the truth: ``python -m benchmarks.pipeline_truth``.

The archive has two stores, both wires, losses, damage and segments with parity; by default 1,000,000 messages. The exit
code is 1 if a row of a table is wrong.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from fairway.pipeline.run import RunTables, run
from fairway.pipeline.session import create_session
from fairway.testing.archives import GeneratorPlan, write_generated, written_sources
from fairway.testing.archives.check import CHECKED_TABLES, differences

_MESSAGES_PER_CHANNEL = 1_000
_RATE_LIMIT = 600
"""Transmissions for each sender in an epoch."""


def main() -> None:
    """Generate, run, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000, help="about how many")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    plan = GeneratorPlan(
        messages=chosen.messages,
        seed=chosen.seed,
        channels=max(1, chosen.messages // _MESSAGES_PER_CHANNEL),
        largest_share=0.6,
        logos_share=0.1,
        long_share=0.02,
        ephemeral_share=0.01,
        loss=0.05,
        stores=2,
    )
    with tempfile.TemporaryDirectory(prefix="fairway-truth-") as name:
        folder = Path(name)
        spark = create_session("fairway truth")
        began_s = time.perf_counter()
        write_generated(spark, plan, folder / "made")
        made_s = time.perf_counter()
        summary = run(written_sources(plan, folder / "made"), folder / "out", rate_limit=_RATE_LIMIT, spark=spark)
        ran_s = time.perf_counter()
        facts = spark.read.parquet(str(folder / "made" / "truth"))
        tables = RunTables(summary.folder)
        found = differences(facts, lambda table: tables.dataframe(spark, table), rate_limit=_RATE_LIMIT)
        compared_s = time.perf_counter()
        spark.stop()
    print(f"{summary.balance}; {len(CHECKED_TABLES)} tables compared")
    print(
        f"generated in {made_s - began_s:.0f} s, run in {ran_s - made_s:.0f} s, compared in {compared_s - ran_s:.0f} s"
    )
    for difference in found:
        print(f"DIFFERENT  {difference.table}: {difference.excess:,} rows too many, {difference.lacking:,} lacking")
    if found or not summary.balance.adds_up:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
