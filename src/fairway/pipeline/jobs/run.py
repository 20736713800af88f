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

from fairway.errors import FairwayError
from fairway.options import Profile
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run import RunOptions, run_with
from fairway.pipeline.run_folder import FORMATS

_COULD_NOT_RUN: Final = 2
_DEFAULTS: Final = RunOptions()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command line arguments, and return the exit code."""
    given = _parser().parse_args(arguments)
    options = RunOptions(
        profile=None if given.profile is None else Profile(given.profile),
        format=given.format,
        blooms=given.blooms,
        epoch_ms=given.epoch_ms,
        rate_limit=given.rate_limit,
        parity_rate=given.parity_rate,
        max_channel_bytes=given.max_channel_bytes,
    )
    try:
        keys = None if given.keys is None else ChannelKeys.from_file(given.keys)
        summary = run_with(options, given.source, given.out, keys=keys)
    except FairwayError as error:
        sys.stderr.write(f"fairway: {error}\n")
        return _COULD_NOT_RUN
    sys.stdout.write(json.dumps(summary.as_json(), indent=2) + "\n")
    return 0 if summary.balance.adds_up else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Write all tables of message archives into a folder.")
    parser.add_argument("--source", action="append", required=True, metavar="URI", help="[NAME=]SCHEME:WHERE")
    parser.add_argument("--out", required=True, metavar="DIR", help="a path that driver and executors share")
    parser.add_argument("--keys", metavar="FILE", help="keys of encrypted channels, as JSON; read by the driver")
    parser.add_argument("--profile", choices=[profile.value for profile in Profile])
    parser.add_argument("--format", choices=FORMATS, default=_DEFAULTS.format)
    parser.add_argument("--blooms", action="store_true", help="look for acknowledgements in bloom filters too")
    parser.add_argument("--epoch-ms", type=int, default=_DEFAULTS.epoch_ms, help="length of an epoch of the rate limit")
    parser.add_argument("--rate-limit", type=int, help="transmissions that a sender is allowed in an epoch")
    parser.add_argument("--parity-rate", type=float, default=_DEFAULTS.parity_rate, help="as the participants have it")
    parser.add_argument(
        "--max-channel-bytes", type=int, default=_DEFAULTS.max_channel_bytes, help="ids that one worker takes to order"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
