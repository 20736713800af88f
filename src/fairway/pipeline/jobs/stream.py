"""A stream as a Spark job: what ``fairway pipeline stream`` does, in a session that somebody else set up.

::

    spark-submit --master yarn .../fairway/pipeline/jobs/stream.py --source postgresql://waku@db/waku --out /shared/live
    python -m fairway.pipeline.jobs.stream --source store.db --out live --once

Prints progress and, at its end, the summary as JSON lines. SIGTERM ends it in good order. Exit codes as those of the
command: 0 every row is accounted for, 1 not, 2 it could not go on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

from fairway.pipeline.jobs.arguments import add_places, add_tables, exit_code_of, keys_of, run_options
from fairway.pipeline.streaming import StreamOptions, StreamProgress, stream

_DEFAULTS: Final = StreamOptions()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command line arguments, and return the exit code."""
    given = _parser().parse_args(arguments)
    return exit_code_of(lambda: _stream(given))


def _stream(given: argparse.Namespace) -> int:
    options = StreamOptions(
        tables=run_options(given),
        once=given.once,
        every_s=given.every,
        refresh_s=given.refresh,
        rows_per_batch=given.rows,
        state_partitions=given.state_partitions,
    )
    summary = stream(given.source, given.out, options=options, keys=keys_of(given), progress=_tell, signals=True)
    sys.stdout.write(json.dumps({"event": "summary", **summary.as_json()}) + "\n")
    return 0 if summary.balance.adds_up else 1


def _tell(progress: StreamProgress) -> None:
    sys.stdout.write(json.dumps({"event": "progress", **progress.as_json()}) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Follow message archives into a folder of deliveries and tables.")
    add_tables(parser)
    add_places(parser)
    parser.add_argument("--once", action="store_true", help="end when everything that is there now has been read")
    parser.add_argument("--every", type=float, default=_DEFAULTS.every_s, help="seconds from one look to the next")
    parser.add_argument("--refresh", type=float, default=_DEFAULTS.refresh_s, help="seconds between two sets of tables")
    parser.add_argument("--rows", type=int, default=_DEFAULTS.rows_per_batch, help="of each archive in a micro-batch")
    parser.add_argument(
        "--state-partitions",
        type=int,
        default=_DEFAULTS.state_partitions,
        help="into how many parts the channels are split; fixed at the first start",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
