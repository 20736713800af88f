r"""Sending a batch as a Spark job: what ``fairway pipeline send`` does, in a session that somebody else set up.

::

    spark-submit --master yarn .../fairway/pipeline/jobs/send.py --payloads /shared/batch.parquet --out /shared/sent \
        --channel team --sender alice --node http://127.0.0.1:8645

The cluster makes the tables; messages leave from the driver, so that the node sees one client. Prints the summary as
JSON. Exit codes as those of the command: 0 everything was sent, 1 something was refused or is left, 2 it could not run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

from fairway.options import BloomPolicy, Profile
from fairway.pipeline.jobs.arguments import add_places, exit_code_of, keys_of, positive
from fairway.pipeline.outgoing import Counting, SendOptions, channel_options, send

_DEFAULTS: Final = SendOptions()


def main(arguments: Sequence[str] | None = None) -> int:
    """Send with command line arguments, and return the exit code."""
    given = _parser().parse_args(arguments)
    return exit_code_of(lambda: _send(given))


def _send(given: argparse.Namespace) -> int:
    options = SendOptions(
        channel_id=given.channel,
        sender_id=given.sender,
        content_topic=given.topic,
        channel=channel_options(
            Profile(given.profile),
            given.parity_rate,
            given.bloom_policy and BloomPolicy(given.bloom_policy),
            network=given.network,
            cluster=given.cluster,
            shards=given.shards,
        ),
        shard=given.shard,
        rate_limit=given.rate_limit,
        epoch_ms=given.epoch_ms,
        counting=Counting(given.counting),
        start_ms=given.start_ms,
        after=given.after,
    )
    summary = send(
        given.payloads,
        given.out,
        node=None if given.dry_run else given.node,
        options=options,
        keys=keys_of(given),
        longest_wait_s=given.longest_wait_s,
    )
    sys.stdout.write(json.dumps(summary.as_json(), indent=2) + "\n")
    return 0 if summary.is_complete or (given.dry_run and not summary.refused) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Send many payloads into channels, within the rate limit, each once.")
    parser.add_argument("--payloads", required=True, metavar="PATH", help=".parquet, .jsonl, or a folder of files")
    add_places(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--node", metavar="ADDRESS", help="the node to send through")
    where.add_argument("--dry-run", action="store_true", help="make the tables and send nothing")
    parser.add_argument("--network", metavar="NAME|FILE", help="the network, instead of --cluster and --shards")
    parser.add_argument("--cluster", type=int, help="cluster of the network; 1 if none")
    parser.add_argument("--shards", type=positive, help="number of network shards in the cluster; 8 if none")
    parser.add_argument("--shard", type=int, help="network shard of all messages; by autosharding if none")
    parser.add_argument("--channel", metavar="ID", help="the channel of payloads that do not name one")
    parser.add_argument("--sender", metavar="NAME", help="the sender of payloads that do not name one")
    parser.add_argument("--topic", metavar="TOPIC", help="content topic; /fairway/1/CHANNEL/proto if none")
    parser.add_argument("--profile", choices=[each.value for each in Profile], default=Profile.WAKU.value)
    parser.add_argument("--parity-rate", type=float, help="parity segments per data segment")
    parser.add_argument(
        "--bloom-policy",
        choices=[each.value for each in BloomPolicy],
        help="which messages have a bloom filter: always, as SDS has it; none by default",
    )
    parser.add_argument("--rate-limit", type=positive, help="transmissions in an epoch, of all senders")
    parser.add_argument(
        "--epoch-ms", type=positive, default=_DEFAULTS.epoch_ms, help="length of an epoch of the rate limit"
    )
    parser.add_argument("--counting", choices=[each.value for each in Counting], default=Counting.SEGMENTS.value)
    parser.add_argument("--after", metavar="PATH", help="a channel's store, or the folder of a run, to go on from")
    parser.add_argument("--start-ms", type=int, help="time of the batch, since 1970; now if none")
    parser.add_argument("--longest-wait-s", type=float, help="later epochs are left to another run")
    return parser


if __name__ == "__main__":
    sys.exit(main())
