"""``fairway pipeline``: runs `fairway.pipeline` over archives, reports its results, and exports messages."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fairway.cli import _pipeline_backfill, _pipeline_send, _pipeline_stream
from fairway.cli._pipeline_terminal import (
    DEFAULT_EPOCH_MS,
    DEFAULT_PARITY_RATE,
    MoreSources,
    StepsShown,
    TablesShown,
    broken_off,
    console,
    progress_bar,
)
from fairway.cli._selection_options import Channels, ChannelTopicPairs, Since, TopicPattern, Topics, Until
from fairway.extras import needing
from fairway.options import Profile, SdsConfig
from fairway.units import HOUR_MS, counted
from fairway.visible import visible

if TYPE_CHECKING:
    from fairway.archives.restore import Restored

_DEFAULT_CHANNEL_BYTES: Final = 536_870_912
_SHOWN_LEFT_OUT: Final = 20

app = typer.Typer(
    name="pipeline", no_args_is_help=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
)


@app.callback()
def command() -> None:
    """Rebuild every channel from message archives, with Spark.

    Runs the channel's own protocol over whole store archives, on this machine or a cluster.
    """


app.command(name="send")(_pipeline_send.command)
app.command(name="stream")(_pipeline_stream.command)
app.command(name="backfill")(_pipeline_backfill.command)


@app.command()
def run(
    more: MoreSources = None,
    *,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="URI",
            help="An archive: sqlite:PATH and others; NAME=URI names the store. Repeatable; at least one.",
        ),
    ] = None,
    out: Annotated[
        str,
        typer.Option("--out", metavar="DIR", help="Folder for the tables, created if missing, or s3://BUCKET/PATH."),
    ],
    keys: Annotated[
        Path | None,
        typer.Option("--keys", metavar="FILE", help="Keys of encrypted channels, as JSON; see docs/pipeline.md."),
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
    blooms: Annotated[
        bool, typer.Option("--blooms", help="Look for acknowledgements in bloom filters too; reads all payloads again.")
    ] = False,
    epoch_ms: Annotated[int, typer.Option(min=1, help="Length of an epoch of the rate limit.")] = DEFAULT_EPOCH_MS,
    rate_limit: Annotated[
        int | None,
        typer.Option(min=1, help="Transmissions that a sender may make in an epoch.", show_default="not known"),
    ] = None,
    parity_rate: Annotated[
        float, typer.Option(min=0, max=1, help="Parity segments per data segment, as the participants have it.")
    ] = DEFAULT_PARITY_RATE,
    max_channel_bytes: Annotated[
        int, typer.Option(min=1, help="Ids and citations that a worker orders at once; it orders more in parts.")
    ] = _DEFAULT_CHANNEL_BYTES,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, help="Parts of each source and of the tables.", show_default="by their sizes and the cores"
        ),
    ] = None,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Write all tables of some archives into a folder.

    A run that was interrupted continues when it is started again with the same arguments.

    Exit code 0 if every row is accounted for, 1 if not, 2 if it could not run.

    Example: [bold]fairway pipeline run --source a=sqlite:one.db --source b=sqlite:two.db --out run[/bold]
    """
    with needing("spark", "the pipeline"):
        from fairway.pipeline.channel_topics import channel_topics_of  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.keys import ChannelKeys  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.location import without_secrets  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.report.terminal import print_summary  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.run import RunOptions, run_with  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.run.attempt import step_names  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.sources.options import selection_of  # noqa: PLC0415 - needs the [spark] extra
    options = RunOptions(
        profile=profile,
        blooms=blooms,
        epoch_ms=epoch_ms,
        rate_limit=rate_limit,
        parity_rate=parity_rate,
        max_channel_bytes=max_channel_bytes,
        partitions=partitions,
        selection=selection_of(since=since, until=until, channels=channel, topics=topic, topics_pattern=topic_pattern),
        channel_topics=channel_topics_of(channel_topic),
    )
    channel_keys = None if keys is None else ChannelKeys.from_file(keys)
    with progress_bar() as bar:
        shown = StepsShown(bar, "looking for what is new", step_names(options))
        with broken_off("run the same command again: it continues with the job that was running"):
            summary = run_with(
                options,
                [*(source or ()), *(more or ())],
                out,
                keys=channel_keys,
                progress=shown.step,
                before_spark=partial(shown.starting, "starting Spark"),
            )
    if machine:
        typer.echo(json.dumps(summary.as_json(), indent=2))
    else:
        print_summary(summary, console())
        typer.echo(f"next: fairway pipeline report {shlex.quote(without_secrets(out))} --html report.html")
    raise typer.Exit(0 if summary.balance.adds_up else 1)


@app.command()
def report(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="What 'fairway pipeline run --out' wrote.")],
    *,
    limit: Annotated[int, typer.Option(min=1, help="Rows in each list.")] = 20,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="Write one page for a browser instead, which needs no network."),
    ] = None,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Print the results of a run: channels, senders, losses, bandwidth, stores.

    Starts no Spark.

    Example: [bold]fairway pipeline report run --html report.html[/bold]
    """
    with needing("spark", "the pipeline"):
        from fairway.pipeline.location import Location  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.report.as_json import report_json  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.report.html import write_html_report  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.report.terminal import print_run_report  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.run.reading import RunTables  # noqa: PLC0415 - needs the [spark] extra
    page = None if html is None else Location.of(html, "--html")
    if html is not None:
        write_html_report(folder, html)
    if machine:
        typer.echo(json.dumps(report_json(RunTables(folder), limit)))
    elif page is None:
        print_run_report(RunTables(folder), console(), limit)
    else:
        typer.echo(f"the report is in {page}" + (f"; open {page.local.as_uri()}" if page.is_local else ""))


@app.command(name="export")
def export_messages(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="What 'fairway pipeline run --out' wrote.")],
    *,
    to: Annotated[str, typer.Option("--to", metavar="FOLDER", help="An empty folder, or a new one.")],
    channel: Annotated[
        str | None, typer.Option("--channel", metavar="ID", help="Only this channel.", show_default="all")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="files, jsonl or parquet.")] = "files",
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Write the reassembled messages as files or rows.

    Starts no Spark.

    Example: [bold]fairway pipeline export run --to messages --channel team[/bold]
    """
    with needing("spark", "the pipeline"):
        from fairway.archives.export import export  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.run.reading import RunTables  # noqa: PLC0415 - needs the [spark] extra
    done = export(RunTables(folder), to, channel_id=channel, format=form)
    if machine:
        typer.echo(json.dumps({"messages": done.messages, "bytes": done.bytes, "to": str(done.to)}))
        return
    typer.echo(f"{counted(done.messages, 'message')}, {counted(done.bytes, 'byte')} in {done.to}")


@app.command()
def violations(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="What 'fairway pipeline run --out' wrote.")],
    *,
    group: Annotated[
        Path | None,
        typer.Option("--group", metavar="FILE", help="The group, as 'fairway rln group' makes it: names the members."),
    ] = None,
    machine: Annotated[bool, typer.Option("--json", help="Print a JSON line for each, for programs.")] = False,
) -> None:
    """Say which RLN memberships sent more than one message under a message id.

    Two such messages give a membership's secret away, and with it its identity commitment. Only that of a member of the
    group is certain, since proofs are not verified here. Starts no Spark.

    Example: [bold]fairway pipeline violations run --group ours.json[/bold]
    """
    with needing("spark", "the pipeline"):
        from fairway.archives.violations import violations as violations_in  # noqa: PLC0415 - the same
        from fairway.pipeline.run.reading import RunTables  # noqa: PLC0415 - needs the [spark] extra
    from fairway.rln.membership_file import MembershipFile  # noqa: PLC0415 - needs the [rln] extra

    known = None if group is None else MembershipFile(group)
    found = violations_in(RunTables(folder), known)
    for one in found:
        if machine:
            senders = [{"channel_id": channel, "sender_id": sender} for channel, sender in one.senders]
            told = {"epoch": one.epoch, "nullifier": one.nullifier.hex(), "identity_commitment": one.commitment.hex()}
            told |= {"place": one.place, "limit": one.limit, "signals": one.signals, "senders": senders}
            typer.echo(json.dumps(told))
            continue
        who = f"member {one.place}" if one.place is not None else "not in the group" if known else "membership"
        names = ", ".join(f"{visible(sender)} in {visible(channel)}" for channel, sender in one.senders)
        signals = counted(one.signals, "message")
        typer.echo(f"epoch {one.epoch}: {signals} of {names} under one id: {who} {one.commitment.hex()}")
    if not machine:
        typer.echo(counted(len(found), "violation"))


@app.command()
def restore(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="What 'fairway pipeline run --out' wrote.")],
    *,
    channel: Annotated[str, typer.Option("--channel", metavar="ID", envvar="FAIRWAY_CHANNEL", help="The channel.")],
    sender: Annotated[
        str, typer.Option("--sender", metavar="NAME", envvar="FAIRWAY_SENDER", help="Who you are in it.")
    ],
    store: Annotated[
        str, typer.Option("--store", metavar="PATH", envvar="FAIRWAY_STORE", help="The store to make; a new file.")
    ],
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Content topic, if the channel was on several.")
    ] = None,
    channel_topic: ChannelTopicPairs = None,
    keys: Annotated[
        Path | None, typer.Option("--keys", metavar="FILE", help="Keys of encrypted channels, as JSON.")
    ] = None,
    as_read: Annotated[
        bool, typer.Option("--as-read", help="Mark all messages as read: only later ones are shown.")
    ] = False,
    around_gaps: Annotated[
        bool,
        typer.Option("--around-gaps", help="Deliver also what waits for messages that the archive lacks, and mark it."),
    ] = False,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Make a channel's store from an archive: a participant that was offline reads it all, and continues from there.

    Other commands use the store with --store. Starts no Spark.

    Example: [bold]fairway pipeline restore run --channel team --sender alice --store alice.db[/bold]
    """
    with needing("spark", "the pipeline"):
        from fairway.archives.restore import restore as restore_store  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.channel_topics import channel_topics_of, topic_of  # noqa: PLC0415 - the same
        from fairway.pipeline.keys import ChannelKeys  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.run.reading import RunTables  # noqa: PLC0415 - needs the [spark] extra
    channel_keys = None if keys is None else ChannelKeys.from_file(keys)
    done = restore_store(
        RunTables(folder),
        store,
        channel_id=channel,
        sender_id=sender,
        content_topic=topic_of(channel, topic, channel_topics_of(channel_topic)),
        keys=channel_keys,
        as_read=as_read,
        around_gaps=around_gaps,
    )
    if machine:
        typer.echo(json.dumps({"store": store, **asdict(done)}))
        return
    typer.echo(
        f"{store}: {counted(done.delivered, 'message')} of others{' as read' if as_read else ' to read'}, "
        f"{done.history:,} in the log; made of {counted(done.messages, 'Waku message')}"
    )
    if done.refused:
        typer.echo(f"{done.refused:,} of these refused: the channel's keys do not open them")
    if done.no_room:
        typer.echo(f"{done.no_room:,} not taken in, because too many others wait: with --around-gaps none has to wait")
    if around_gaps:
        _print_left_out(done)
    elif done.parked or done.missing:
        hours = SdsConfig().lost_timeout_ms / HOUR_MS
        typer.echo(
            f"waiting: {counted(done.parked, 'message')}, for {done.missing:,} that the archive lacks. The channel "
            f"asks store nodes and participants for these when it is started, and delivers what waits when they come, "
            f"or when it has given them up after {hours:g} h online"
        )


def _print_left_out(done: Restored) -> None:
    """Print the messages that a restore left out or delivered without an ancestor."""
    if not done.left_out:
        typer.echo("nothing is left out: the archive has all messages that others cite")
        return
    typer.echo(
        f"{counted(done.around_gaps, 'message')} delivered without a message that is cited, and marked "
        f"(dependencies_met is false); {len(done.left_out):,} left out, for which the channel asks store nodes and "
        "participants when it is started:"
    )
    for each in done.left_out[:_SHOWN_LEFT_OUT]:
        author = "" if each.sender_id is None else f" by {visible(each.sender_id)}"
        typer.echo(f"  {visible(each.message_id)}{author}")
    if len(done.left_out) > _SHOWN_LEFT_OUT:
        typer.echo(f"  and {len(done.left_out) - _SHOWN_LEFT_OUT:,} more; --json has all")


@app.command()
def generate(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="A new folder for the archive and the record of the truth.")
    ],
    *,
    messages: Annotated[int, typer.Option(min=1, help="About how many SDS messages.")] = 100_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same rows.")] = 1,
    channels: Annotated[int, typer.Option(min=1, help="How many channels; their sizes differ.")] = 100,
    stores: Annotated[int, typer.Option(min=1, help="Number of stores, each with different gaps.")] = 1,
    logos_share: Annotated[float, typer.Option(min=0, max=1, help="Share of channels on the Logos wire.")] = 0.0,
    loss: Annotated[float, typer.Option(min=0, max=1, help="Share of messages that no store has.")] = 0.02,
    corruption: Annotated[float, typer.Option(min=0, max=1, help="Share that cannot be decoded.")] = 0.002,
    duplication: Annotated[float, typer.Option(min=0, max=1, help="Share that one store has twice.")] = 0.01,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Make an archive of any size for tests, with losses, copies and damage, and a record of the truth beside it.

    Prints the command that runs the pipeline over it. `fairway.testing.archives` has more options.

    Example: [bold]fairway pipeline generate big --messages 1000000 --stores 2[/bold]
    """
    with needing("spark", "the pipeline"):
        from fairway.pipeline.session import session_or_own  # noqa: PLC0415 - needs the [spark] extra
        from fairway.testing.archives import check_new, write_generated, written_sources  # noqa: PLC0415 - the same
        from fairway.testing.archives.plan import GeneratorPlan  # noqa: PLC0415 - needs the [spark] extra
    plan = GeneratorPlan(
        messages=messages,
        seed=seed,
        channels=channels,
        stores=stores,
        logos_share=logos_share,
        loss=loss,
        corruption=corruption,
        duplication=duplication,
    )
    check_new(folder)
    with progress_bar() as bar, broken_off("start the command again"):
        shown = TablesShown(bar, "starting Spark", 2)
        with session_or_own(None) as spark:
            write_generated(spark, plan, folder, progress=shown.begins)
        shown.end()
    sources = written_sources(plan, folder)
    if machine:
        typer.echo(json.dumps({"folder": folder, "sources": sources}))
        return
    words = " ".join(f"--source {shlex.quote(source)}" for source in sources)
    typer.echo(f"next: fairway pipeline run {words} --out run")
