"""``fairway pipeline backfill``: writes the missing messages of an archive or a node from another archive."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fairway.cli._pipeline_terminal import DEFAULT_EPOCH_MS, broken_off, console, progress_bar
from fairway.cli._selection_options import Since, TopicPattern, Topics, Until
from fairway.extras import needing
from fairway.units import counted

if TYPE_CHECKING:
    from rich.progress import Progress

    from fairway.archives.backfill import BackfillProgress, BackfillSummary


def command(
    *,
    source: Annotated[
        str, typer.Option("--from", metavar="URI", help="What has the messages: a source of 'pipeline run'.")
    ],
    target: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URI",
            help="What lacks them: sqlite:PATH, parquet:DIR, postgresql://..., or a node with a store: http://... "
            "or /ip4/...",
        ),
    ],
    since: Since = None,
    until: Until = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Only this channel, if it is not encrypted. Repeatable.", show_default="all"),
    ] = None,
    topic: Topics = None,
    topic_pattern: TopicPattern = None,
    rate_limit: Annotated[
        int | None,
        typer.Option(min=1, help="Messages in an epoch, evenly spaced.", show_default="what a node says of itself"),
    ] = None,
    epoch_ms: Annotated[int, typer.Option(min=1, help="Length of an epoch of the rate limit.")] = DEFAULT_EPOCH_MS,
    max_message_bytes: Annotated[
        int | None, typer.Option(min=1, help="Leave out larger messages.", show_default="no limit")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=1, help="End after so much payload.", show_default="no limit")
    ] = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Also replace messages that the target has damaged, by the intact ones."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what is lacking, and write nothing.")] = False,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Write into an archive or a node what another archive has and it lacks, each message once.

    The same command continues where an earlier run stopped, also after a crash. It starts no Spark.

    Exit code 0 if the target has everything now (with --dry-run: could have), 1 if messages were left out, 2 if it
    could not go on.

    Example: [bold]fairway pipeline backfill --from sqlite:one.db --to sqlite:two.db --since 2026-01-31T10:55:00Z[/bold]
    """
    with needing("spark", "the pipeline"):
        from fairway.archives.backfill import BackfillOptions, backfill  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.sources.options import selection_of  # noqa: PLC0415 - needs the [spark] extra
    options = BackfillOptions(
        selection=selection_of(since=since, until=until, channels=channel, topics=topic, topics_pattern=topic_pattern),
        rate_limit=rate_limit,
        epoch_ms=epoch_ms,
        max_message_bytes=max_message_bytes,
        max_bytes=max_bytes,
        repair=repair,
        dry_run=dry_run,
    )
    with progress_bar() as bar, broken_off("run the same command again: it continues from here"):
        summary = backfill(source, target, options=options, progress=_Shown(bar, dry_run=dry_run).show)
    if machine:
        typer.echo(json.dumps(summary.as_json(), indent=2))
    else:
        _print(summary)
    raise typer.Exit(0 if summary.is_complete else 1)


class _Shown:
    """The progress of a backfill, on stderr."""

    def __init__(self, bar: Progress, *, dry_run: bool) -> None:
        self._bar = bar
        self._dry_run = dry_run
        self._task = bar.add_task("comparing", total=None)

    def show(self, progress: BackfillProgress) -> None:
        what = f"{progress.lacking:,} lacking"
        if not self._dry_run:
            what += f", {progress.sent:,} written"
        self._bar.update(self._task, total=progress.total, completed=progress.read, description=what)


def _print(summary: BackfillSummary) -> None:
    out = console()
    out.print(
        f"{escape(summary.target)} had {summary.there:,} of {counted(_unique(summary), 'message')} of "
        f"{escape(summary.source)}, and lacked {summary.lacking:,} ({counted(summary.lacking_bytes, 'byte')})"
    )
    if summary.damaged:
        out.print(f"{counted(summary.damaged, 'message')} damaged in it")
    if not summary.read:
        chosen = "--since, --until, --channel, --topic and --topic-pattern"
        out.print(f"nothing was read: the source is empty, or {chosen} select nothing")
    if summary.dry_run:
        out.print("nothing was written; to write it, leave --dry-run out")
    else:
        out.print(f"{summary.written:,} written")
    if summary.too_large:
        out.print(f"{summary.too_large:,} left out: larger than --max-message-bytes")
    for reason, count in summary.refused.most_common():
        out.print(f"{count:,} not taken: {escape(reason)}")
    if summary.invalid:
        out.print(
            f"{counted(summary.invalid, 'row')} of the source left out: no message, or not with the hash of its message"
        )
    if summary.reached_max_bytes:
        out.print("--max-bytes is reached; run the same command again for the rest")


def _unique(summary: BackfillSummary) -> int:
    return summary.there + summary.lacking + summary.damaged + summary.too_large
