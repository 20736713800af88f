"""A run of the pipeline as a Spark job: what ``fairway pipeline run`` does, in a session that somebody else set up.

::

    spark-submit --master yarn .../fairway/pipeline/jobs/run.py --source sqlite:/shared/store.db --out /shared/run
    python -m fairway.pipeline.jobs.run --source store.db --out run

Prints the summary as JSON. Exit codes as those of the command: 0 every row is accounted for, 1 not, 2 it could not run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

from fairway.pipeline.jobs.arguments import add_places, add_tables, exit_code_of, keys_of, run_options
from fairway.pipeline.run import RunOptions, run_with

_DEFAULTS: Final = RunOptions()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command line arguments, and return the exit code."""
    given = _parser().parse_args(arguments)
    return exit_code_of(lambda: _run(given))


def _run(given: argparse.Namespace) -> int:
    options = run_options(given, max_channel_bytes=given.max_channel_bytes)
    summary = run_with(options, given.source, given.out, keys=keys_of(given))
    sys.stdout.write(json.dumps(summary.as_json(), indent=2) + "\n")
    return 0 if summary.balance.adds_up else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Write all tables of message archives into a folder.")
    add_tables(parser)
    add_places(parser)
    parser.add_argument(
        "--max-channel-bytes", type=int, default=_DEFAULTS.max_channel_bytes, help="ids that one worker takes to order"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
