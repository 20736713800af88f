"""``fairway demo``: the main job, to look at."""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fairway.errors import ConfigurationError
from fairway.simulation.demo import Demo, DemoResult
from fairway.simulation.picture import make_picture

_STEP_MS: Final = 250
_PAUSE_S: Final = 0.02
"""Real time per step on a terminal: virtual time runs some 12 times faster than real time."""


def command(
    file: Annotated[Path | None, typer.Argument(help="The file to send; a picture of about 1 MiB if none.")] = None,
    *,
    loss: Annotated[float, typer.Option(help="Share of deliveries that the network loses, 0 to 1.")] = 0.3,
    participants: Annotated[int, typer.Option(help="How many take part, 2 to 8.")] = 3,
    seed: Annotated[int, typer.Option(help="The same seed gives the same run.")] = 1,
    archive: Annotated[
        Path | None, typer.Option(help="Keep what was broadcast here, as a nwaku store would (SQLite).")
    ] = None,
    spark: Annotated[bool, typer.Option(help="End with a Spark job over the archive.")] = True,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Send texts and a file between participants over a network that loses a third of everything.

    Everybody gets everything once, in order, and everybody's acknowledgement comes back; then Spark reads what was
    broadcast through the same protocol core and finds the same. Exit code 1 if anything was lost, came twice, or the
    two disagree.

    Examples: [bold]fairway demo[/bold]

    [bold]fairway demo holiday.jpg --participants 5 --loss 0.5 --archive demo.sqlite[/bold]
    """
    console = Console(highlight=False, stderr=machine)
    content, title = _read(file)
    demo = Demo(content, loss=loss, participants=participants, seed=seed)
    _watch(demo, title, console)
    result = demo.result()
    _print_result(result, title, console)
    with nullcontext(None) if archive else tempfile.TemporaryDirectory() as folder:
        path = archive or Path(str(folder)) / "demo.sqlite"
        count = demo.write_archive(path)
        console.print(f"{count} broadcasts archived in nwaku's SQLite layout" + (f": {archive}" if archive else ""))
        agrees = _analyse(path, result, console) if spark else True
    if machine:
        typer.echo(json.dumps({**asdict(result), "succeeded": result.succeeded, "spark_agrees": agrees}))
    raise typer.Exit(0 if result.succeeded and agrees else 1)


def _read(file: Path | None) -> tuple[bytes, str]:
    if file is None:
        return make_picture(), "sea.png"
    try:
        return file.read_bytes(), file.name
    except OSError as error:
        raise ConfigurationError(
            f"{file} cannot be read ({error.strerror}); give the path of a readable file"
        ) from error


def _watch(demo: Demo, title: str, console: Console) -> None:
    """Run the demo; on a terminal slowly enough to be watched."""
    if not console.is_terminal:
        while not demo.finished:
            demo.advance(60_000)
        return
    with Live(_picture_of(demo, title), console=console, refresh_per_second=20, transient=True) as live:
        while not demo.finished:
            demo.advance(_STEP_MS)
            live.update(_picture_of(demo, title))
            time.sleep(_PAUSE_S)


def _picture_of(demo: Demo, title: str) -> Group:
    bars = Table.grid(padding=(0, 2))
    messages = list(demo.messages())
    total = max((message.total_chunks for message in messages), default=1)
    for name in demo.names[1:]:
        held = total if demo.has_file(name) else min(demo.segments_held(name), total)
        state = "[green]complete, hash verified[/green]" if demo.has_file(name) else f"{held}/{total} segments"
        bars.add_row(name, "receives", escape(title), ProgressBar(total=total, completed=held, width=30), state)
    for message in messages:
        done = "[green]delivered to " + ", ".join(message.delivered_to) + "[/green]"
        acknowledged = f"{message.chunks_acknowledged}/{message.total_chunks} acknowledged"
        bars.add_row(
            message.sender,
            "sends",
            escape(title if message.size_bytes > len(message.title.encode()) else message.title),
            ProgressBar(total=message.total_chunks, completed=message.chunks_acknowledged, width=30),
            done if message.delivered_at_ms is not None else acknowledged,
        )
    return Group(Text(f"virtual time {demo.elapsed_ms / 1000:6.1f} s", style="dim"), bars)


def _print_result(result: DemoResult, title: str, console: Console) -> None:
    table = Table(title="What was sent", title_justify="left")
    for heading in ("from", "what", "bytes", "received by", "acknowledged whole by", "after"):
        table.add_column(heading, justify="right" if heading in {"bytes", "after"} else "left")
    for message in result.messages:
        if message.delivered_at_ms is None:
            outcome = f"[red]{escape(message.failed or 'unknown')}[/red]"
        else:
            outcome = f"{(message.delivered_at_ms - message.sent_at_ms) / 1000:.1f} s"
        is_file = message.size_bytes > len(message.title.encode())
        table.add_row(
            message.sender,
            escape(title if is_file else message.title),
            f"{message.size_bytes:,}",
            ", ".join(message.received_by),
            ", ".join(message.delivered_to),
            outcome,
        )
    console.print(table)
    copies = len(result.participants) - 1
    offered = result.deliveries_made + result.deliveries_lost
    share = result.deliveries_lost / offered if offered else 0.0
    verdict = "[green]nothing lost, nothing twice[/green]" if result.succeeded else "[red]something went wrong[/red]"
    console.print(
        f"{verdict}: {result.lost} lost, {result.duplicates} twice, in {result.elapsed_ms / 1000:.0f} s of virtual "
        f"time; the network swallowed {result.deliveries_lost} of {offered} deliveries ({share:.0%})"
    )
    console.print(
        f"{result.copies_with_same_hash} of {copies} copies of {escape(title)} have SHA-256 "
        f"{result.file_sha256[:16]}..., {result.recovered_by_parity} of them rebuilt with Reed-Solomon"
    )


def _analyse(archive: Path, result: DemoResult, console: Console) -> bool:
    """Let Spark read the archive, and say whether it finds what the participants found."""
    try:
        from fairway.pipeline.render import print_report  # noqa: PLC0415 - needs the [spark] extra
        from fairway.pipeline.report import run_report  # noqa: PLC0415 - needs the [spark] extra
    except ImportError as error:
        raise ConfigurationError(
            f"the Spark job needs the [spark] extra ({error.name} is missing): "
            "install fairway[spark], or pass --no-spark"
        ) from error
    with (
        console.status("Spark reads the archive (the first start takes some seconds)")
        if console.is_terminal
        else (nullcontext())
    ):
        report = run_report(archive)
    print_report(report, console)
    sent = sorted((m.sender, m.message_id, m.size_bytes) for m in result.messages)
    found = sorted((m.sender_id, m.message_id, m.size_bytes) for m in report.delivered)
    agrees = sent == found
    console.print(
        "[green]Spark delivers the very messages that the participants got[/green]"
        if agrees
        else "[red]Spark and the participants disagree about what was delivered[/red]"
    )
    return agrees
