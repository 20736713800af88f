"""``fairway pipeline stream``: follow archives, deliver each message once, keep the tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairway.cli._pipeline_terminal import DEFAULT_EPOCH_MS, DEFAULT_PARITY_RATE, MoreSources, console
from fairway.cli._selection_options import Channels, ChannelTopicPairs, Since, TopicPattern, Topics, Until
from fairway.extras import needing
from fairway.options import Profile
from fairway.units import MS_PER_S, counted

if TYPE_CHECKING:
    from fairway.pipeline.streaming import StreamProgress, StreamSummary


def command(
    more: MoreSources = None,
    *,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="URI",
            help="An archive to follow: sqlite:PATH, postgresql://..., http://..., parquet:DIR, lip76:DIR; NAME=URI "
            "names it. Repeatable; at least one.",
        ),
    ] = None,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Folder of the stream; created if missing.")],
    keys: Annotated[
        Path | None, typer.Option("--keys", metavar="FILE", help="Keys of encrypted channels, as JSON.")
    ] = None,
    profile: Annotated[
        Profile | None, typer.Option(help="The wire of all channels.", show_default="what each message says")
    ] = None,
    since: Since = None,
    until: Until = None,
    channel: Channels = None,
    topic: Topics = None,
    topic_pattern: TopicPattern = None,
    channel_topic: ChannelTopicPairs = None,
    once: Annotated[bool, typer.Option("--once", help="End when all messages that exist now have been read.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How often to look for messages.")] = 5.0,
    refresh: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How often to refresh the tables; 0: only at the end.")
    ] = 600.0,
    late: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="How far back a refresh looks for messages that reached an archive late.",
            show_default="all of a database, an hour of a node or with --topic, --topic-pattern or --channel",
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Messages of each archive in a micro-batch, at most.")] = 10_000,
    state_partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Parts of the state; fixed at the first start.", show_default="cores, from 2 to 8"),
    ] = None,
    blooms: Annotated[
        bool, typer.Option("--blooms", help="Look for acknowledgements in bloom filters too, at each refresh.")
    ] = False,
    epoch_ms: Annotated[int, typer.Option(min=1, help="Length of an epoch of the rate limit.")] = DEFAULT_EPOCH_MS,
    rate_limit: Annotated[
        int | None,
        typer.Option(min=1, help="Transmissions that a sender may make in an epoch.", show_default="not known"),
    ] = None,
    parity_rate: Annotated[
        float, typer.Option(min=0, max=1, help="Parity segments per data segment, as the participants have it.")
    ] = DEFAULT_PARITY_RATE,
    machine: Annotated[bool, typer.Option("--json", help="Print JSON lines, for programs.")] = False,
) -> None:
    """Follow archives: deliver each message once, as soon as it is complete, and keep the tables of a run.

    Ctrl-C refreshes the tables and ends it. Started again with the same arguments it continues where it ended.

    Exit code 0 if every row is accounted for, 1 if not, 2 if it could not go on.

    Example: [bold]fairway pipeline stream --source a=sqlite:one.db --out live[/bold]
    """
    with needing("spark", "the pipeline"):
        from fairway.pipeline.channel_topics import channel_topics_of  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.keys import ChannelKeys  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.run.options import RunOptions  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.sources.options import selection_of  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.streaming import StreamOptions  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.streaming import stream as follow  # noqa: PLC0415 - needs the [spark] extra
    options = StreamOptions(
        tables=RunOptions(
            profile=profile,
            blooms=blooms,
            epoch_ms=epoch_ms,
            rate_limit=rate_limit,
            parity_rate=parity_rate,
            selection=selection_of(
                since=since, until=until, channels=channel, topics=topic, topics_pattern=topic_pattern
            ),
            channel_topics=channel_topics_of(channel_topic),
        ),
        once=once,
        every_s=every,
        refresh_s=refresh,
        rows_per_batch=rows,
        late_ms=None if late is None else round(late * MS_PER_S),
    )
    if state_partitions is not None:
        options = replace(options, state_partitions=state_partitions)
    channel_keys = None if keys is None else ChannelKeys.from_file(keys)
    teller = _JsonLines() if machine else _Lines()
    summary = follow(
        [*(source or ()), *(more or ())], out, options=options, keys=channel_keys, progress=teller.tell, signals=True
    )
    teller.end(summary)
    raise typer.Exit(0 if summary.balance.adds_up else 1)


class _JsonLines:
    """One JSON object a line on stdout."""

    def tell(self, progress: StreamProgress) -> None:
        typer.echo(json.dumps({"event": "progress", **progress.as_json()}))

    def end(self, summary: StreamSummary) -> None:
        typer.echo(json.dumps({"event": "summary", **summary.as_json()}))


class _Lines:
    """Lines for people: progress on stderr, results on stdout."""

    def __init__(self) -> None:
        self._console = console(stderr=True)

    def tell(self, progress: StreamProgress) -> None:
        self._console.print(_line(progress))

    def end(self, summary: StreamSummary) -> None:
        typer.echo(
            f"{summary.folder}: {counted(summary.delivered, 'message')} delivered"
            + (f" ({summary.settled:,} only now, from the tables)" if summary.settled else "")
            + f", {summary.missing:,} missing\n{summary.balance}"
        )


def _line(progress: StreamProgress) -> str:
    what = f"{progress.phase.value:<10} {progress.batch:>5}"
    if progress.phase.value == "refreshing":
        return f"{what} the tables"
    rate = f"{progress.rows:>10,} rows {progress.seconds:>7.1f} s "
    rate += " " * len("12345678 rows/s") if progress.rows_per_s is None else f"{progress.rows_per_s:>8,.0f} rows/s"
    behind = "" if progress.behind_s is None else f"  behind {progress.behind_s:,.0f} s"
    return f"{what} {rate}  delivered {progress.delivered:,}  missing {progress.missing:,}{behind}"
