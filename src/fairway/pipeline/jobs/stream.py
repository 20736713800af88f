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

from fairway.errors import FairwayError
from fairway.options import Profile
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run_steps import RunOptions
from fairway.pipeline.streaming import StreamOptions, StreamProgress, stream

_COULD_NOT_RUN: Final = 2
_TABLES: Final = RunOptions()
_DEFAULTS: Final = StreamOptions()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command line arguments, and return the exit code."""
    given = _parser().parse_args(arguments)
    try:
        options = StreamOptions(
            tables=RunOptions(
                profile=None if given.profile is None else Profile(given.profile),
                blooms=given.blooms,
                epoch_ms=given.epoch_ms,
                rate_limit=given.rate_limit,
                parity_rate=given.parity_rate,
            ),
            once=given.once,
            every_s=given.every,
            refresh_s=given.refresh,
            rows_per_batch=given.rows,
            state_partitions=given.state_partitions,
        )
        keys = None if given.keys is None else ChannelKeys.from_file(given.keys)
        summary = stream(given.source, given.out, options=options, keys=keys, progress=_tell, signals=True)
    except FairwayError as error:
        sys.stderr.write(f"fairway: {error}\n")
        return _COULD_NOT_RUN
    sys.stdout.write(json.dumps({"event": "summary", **summary.as_json()}) + "\n")
    return 0 if summary.balance.adds_up else 1


def _tell(progress: StreamProgress) -> None:
    sys.stdout.write(json.dumps({"event": "progress", **progress.as_json()}) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Follow message archives into a folder of deliveries and tables.")
    parser.add_argument("--source", action="append", required=True, metavar="URI", help="[NAME=]SCHEME:WHERE")
    parser.add_argument("--out", required=True, metavar="DIR", help="a path that driver and executors share")
    parser.add_argument("--keys", metavar="FILE", help="keys of encrypted channels, as JSON; read by the driver")
    parser.add_argument("--profile", choices=[profile.value for profile in Profile])
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
    parser.add_argument("--blooms", action="store_true", help="look for acknowledgements in bloom filters too")
    parser.add_argument("--epoch-ms", type=int, default=_TABLES.epoch_ms, help="length of an epoch of the rate limit")
    parser.add_argument("--rate-limit", type=int, help="transmissions that a sender is allowed in an epoch")
    parser.add_argument("--parity-rate", type=float, default=_TABLES.parity_rate, help="as the participants have it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
