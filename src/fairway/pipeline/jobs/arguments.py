"""The arguments that all jobs share; a `FairwayError` is printed as one line, with exit code 2."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, Final

from fairway.errors import FairwayError
from fairway.options import Profile
from fairway.pipeline.channel_topics import channel_topics_of
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.sources.options import selection_of

_COULD_NOT_RUN: Final = 2
_DEFAULTS: Final = RunOptions()


def exit_code_of(work: Callable[[], int]) -> int:
    """Run ``work`` and return its exit code; print a `FairwayError` on stderr and return 2."""
    try:
        return work()
    except FairwayError as error:
        sys.stderr.write(f"fairway: {error}\n")
        return _COULD_NOT_RUN


def positive(text: str) -> int:
    """Return the number that an option gives; argparse names the option in what it says of another one."""
    number = int(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"must be positive, not {text}")
    return number


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every job: the folder and the keys."""
    parser.add_argument(
        "--out",
        required=True,
        metavar="DIR",
        help="a path that driver and executors share, or for runs s3://BUCKET/PATH",
    )
    parser.add_argument("--keys", metavar="FILE", help="keys of encrypted channels, as JSON; read by the driver")


def add_tables(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of runs and streams: the sources, and the options of the tables."""
    parser.add_argument(
        "--source", action="extend", nargs="+", required=True, metavar="URI", help="one or more [NAME=]SCHEME:WHERE"
    )
    parser.add_argument("--profile", choices=[profile.value for profile in Profile])
    parser.add_argument("--blooms", action="store_true", help="look for acknowledgements in bloom filters too")
    parser.add_argument(
        "--epoch-ms", type=positive, default=_DEFAULTS.epoch_ms, help="length of an epoch of the rate limit"
    )
    parser.add_argument("--rate-limit", type=positive, help="transmissions that a sender is allowed in an epoch")
    parser.add_argument("--parity-rate", type=float, default=_DEFAULTS.parity_rate, help="as the participants have it")

    parser.add_argument("--since", metavar="TIME", help="only messages from this time on: ISO, or milliseconds")
    parser.add_argument("--until", metavar="TIME", help="only messages up to this time")
    parser.add_argument("--channel", action="append", metavar="ID", help="only this channel; repeatable")
    parser.add_argument("--topic", action="append", metavar="TOPIC", help="only this content topic; repeatable")
    parser.add_argument(
        "--channel-topic", action="append", metavar="CHANNEL=TOPIC", help="the topic a channel belongs to; repeatable"
    )


def run_options(given: argparse.Namespace, **more: Any) -> RunOptions:
    """Return the options that `add_tables` read, and those of ``more``."""
    return RunOptions(
        profile=None if given.profile is None else Profile(given.profile),
        blooms=given.blooms,
        epoch_ms=given.epoch_ms,
        rate_limit=given.rate_limit,
        parity_rate=given.parity_rate,
        selection=selection_of(
            since=given.since, until=given.until, channels=given.channel, content_topics=given.topic
        ),
        channel_topics=channel_topics_of(given.channel_topic),
        **more,
    )


def keys_of(given: argparse.Namespace) -> ChannelKeys | None:
    """Return the keys in the file that was given."""
    return None if given.keys is None else ChannelKeys.from_file(given.keys)
