"""``fairway pipeline send``: a batch of payloads into channels, within the rate limit, each once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fairway.cli._pipeline_terminal import StepsShown, console, progress_bar
from fairway.errors import ConfigurationError
from fairway.extras import needing
from fairway.options import BloomPolicy, Profile
from fairway.units import counted
from fairway.visible import visible
from fairway.wire.topics import CLUSTER_COUNT, SHARDS_PER_CLUSTER

if TYPE_CHECKING:
    from fairway.pipeline.outgoing.dispatching import DispatchProgress
    from fairway.pipeline.outgoing.summary import SendSummary

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def command(
    *,
    payloads: Annotated[
        str,
        typer.Option(
            metavar="PATH", help="What to send: FILE.parquet, FILE.jsonl, or a folder with a file per payload."
        ),
    ],
    out: Annotated[str, typer.Option(metavar="DIR", help="Folder for the tables and receipts; created if missing.")],
    node: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            envvar="FAIRWAY_NODE",
            help="The node, such as /ip4/127.0.0.1/tcp/60000.",
            show_default="with --network nodes that are found",
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="The network: twn, waku.test, logos.test, or a TOML file. Instead of --cluster and --shards.",
        ),
    ] = None,
    cluster: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=CLUSTER_COUNT - 1,
            metavar="NUMBER",
            help="Cluster of the network.",
            show_default="1, The Waku Network",
        ),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=SHARDS_PER_CLUSTER,
            metavar="NUMBER",
            help="Number of network shards in the cluster.",
            show_default="8",
        ),
    ] = None,
    shard: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=SHARDS_PER_CLUSTER - 1,
            metavar="NUMBER",
            help="Network shard of all messages.",
            show_default="that of each content topic, by autosharding",
        ),
    ] = None,
    channel: Annotated[
        str | None, typer.Option(metavar="ID", help="The channel of payloads that do not name one.")
    ] = None,
    sender: Annotated[
        str | None, typer.Option(metavar="NAME", help="The sender of payloads that do not name one.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Content topic; /fairway/1/CHANNEL/proto if none.")
    ] = None,
    keys: Annotated[Path | None, typer.Option(metavar="FILE", help="Keys of encrypted channels, as JSON.")] = None,
    profile: Annotated[Profile, typer.Option(help="The wire of the channels.")] = Profile.WAKU,
    parity_rate: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Parity segments per data segment.", show_default="the profile's"),
    ] = None,
    bloom_policy: Annotated[
        BloomPolicy | None,
        typer.Option(
            help="Which messages have a bloom filter of 18 kB: always, as SDS has it; news or never: none, since a "
            "batch receives nothing that it could tell of.",
            show_default="none",
        ),
    ] = None,
    rate_limit: Annotated[
        int | None,
        typer.Option(min=1, help="Transmissions in an epoch, of all senders.", show_default="no limit"),
    ] = None,
    epoch_ms: Annotated[int, typer.Option(min=1, help="Length of an epoch of the rate limit.")] = 600_000,
    after: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Go on from a channel's store, or from the folder of a 'pipeline run'."),
    ] = None,
    start_ms: Annotated[
        int | None, typer.Option(metavar="MS", help="Time of the batch, since 1970.", show_default="now")
    ] = None,
    longest_wait_s: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="S", help="Stop after so long; another run continues.", show_default="wait for all"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the schedule and send nothing.")] = False,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Send many payloads into channels: segmented, encrypted, within the rate limit, each once.

    Started again with the same arguments it continues, also after a crash, and sends nothing twice.

    Exit code 0 if everything was sent (with --dry-run: could be), 1 if something was refused or is left, 2 if it could
    not run.

    Example: [bold]fairway pipeline send --payloads reports --channel team --sender alice
    --node /ip4/127.0.0.1/tcp/60000 --out batch[/bold]
    """
    if node is None and network is not None:
        node = f"waku:{network}"
    if node is None and not dry_run:
        raise ConfigurationError("--node is missing: give the node to send through, or --dry-run to see the schedule")
    with needing("spark", "the pipeline"):
        from fairway.pipeline.keys import ChannelKeys  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.location import local_path  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.outgoing import (  # noqa: PLC0415 - needs the [spark] extra
            SendOptions,
            channel_options,
            send,
        )
    options = SendOptions(
        channel_id=channel,
        sender_id=sender,
        content_topic=topic,
        channel=channel_options(profile, parity_rate, bloom_policy, network=network, cluster=cluster, shards=shards),
        shard=shard,
        rate_limit=rate_limit,
        epoch_ms=epoch_ms,
        start_ms=start_ms,
        after=None if after is None else str(local_path(after, "--after").absolute()),
    )
    channel_keys = None if keys is None else ChannelKeys.from_file(keys)
    with progress_bar() as bar:
        shown = _SendingShown(bar, "reading the payloads")
        summary = send(
            payloads,
            out,
            node=None if dry_run else node,
            options=options,
            keys=channel_keys,
            longest_wait_s=longest_wait_s,
            progress=shown.step,
            planned=shown.planned,
            dispatching=shown.dispatching,
        )
    if machine:
        typer.echo(json.dumps(summary.as_json(), indent=2))
    else:
        _print(summary, dry_run=dry_run)
    raise typer.Exit(0 if summary.is_complete or (dry_run and not summary.refused) else 1)


class _SendingShown(StepsShown):
    """The progress on stderr: the steps, the schedule, and the dispatched share."""

    def planned(self, summary: SendSummary) -> None:
        self.bar.console.print(_schedule(summary))

    def dispatching(self, progress: DispatchProgress) -> None:
        waits = progress.waits_until_ms
        what = "sending" if waits is None else f"waiting for the epoch that begins at {_clock(waits)} UTC"
        self.bar.update(self.task, total=progress.total, completed=progress.settled, description=what, began_s=None)


def _schedule(summary: SendSummary) -> str:
    if summary.starts_ms is None or summary.ends_ms is None:
        return "nothing to send"
    planned = f"{counted(summary.transmissions, 'transmission')} in {counted(summary.epochs, 'epoch')}, planned"
    times = f"from {_clock(summary.starts_ms)} to {_clock(summary.ends_ms)} UTC"
    return f"{planned} {times}; {summary.left:,} not sent yet"


def _print(summary: SendSummary, *, dry_run: bool) -> None:
    from fairway.pipeline.report.tables import ColumnKind, small_table  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.report.terminal import render_table  # noqa: PLC0415 - needs the [spark] extra

    out = console()
    rows = [
        ("payloads", summary.payloads),
        ("payloads refused: the table refused says why", summary.refused),
        ("transmissions", summary.transmissions),
        *((f"  {status}", count) for status, count in sorted(summary.statuses.items())),
    ]
    columns = {"of": ColumnKind.TEXT, "count": ColumnKind.COUNT}
    out.print(render_table(small_table("Results of the messages to send", columns, rows)))
    out.print(f"{_schedule(summary)}; in {summary.folder}", markup=False, soft_wrap=True)
    for reason, count in summary.reasons.items():
        out.print(f"{counted(count, 'message')} not taken: {visible(reason)}", markup=False, soft_wrap=True)
    if any("421 " in reason for reason in summary.reasons):
        out.print("--network, or --cluster with --shards or --shard, gives the network of the node", soft_wrap=True)
    if dry_run:
        out.print("nothing was sent; to send it, leave --dry-run out and give --node")
    elif summary.left:
        out.print("not everything was sent; run the same command again to send the rest")
    if dropped := summary.statuses.get("dropped", 0):
        out.print(f"{counted(dropped, 'ephemeral message')} not sent in time, and dropped: the table receipts says why")


def _clock(time_ms: int) -> str:
    return f"{_EPOCH + timedelta(milliseconds=time_ms):%Y-%m-%d %H:%M:%S}"
