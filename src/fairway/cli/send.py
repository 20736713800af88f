"""``fairway send``: sends one message by way of `fairway.apps.sending`, and shows how far it came."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from fairway.apps.event_json import as_json, as_line, event_as_json
from fairway.apps.files import read_payload, read_stream
from fairway.apps.sending import SendGoal, SendReport, Watching, send_message
from fairway.apps.settings import ChannelSettings
from fairway.channel.receipt import Progress, Wait
from fairway.cli._channel_options import with_settings
from fairway.cli._console import PlainConsole
from fairway.errors import ConfigurationError
from fairway.visible import visible


@with_settings
def command(
    settings: ChannelSettings,
    text: Annotated[list[str] | None, typer.Argument(help="The message; words are joined. Without it, stdin.")] = None,
    *,
    file: Annotated[Path | None, typer.Option(metavar="PATH", help="Send the content of a file.")] = None,
    wait: Annotated[Wait, typer.Option(help="What to wait for; with none, a later run sends.")] = (Wait.DELIVERED),
    count: Annotated[int, typer.Option(min=1, help="How many participants must acknowledge it.")] = 1,
    by: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A participant that must acknowledge it; repeatable.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait; 0 = to the end.")] = 120.0,
    machine: Annotated[bool, typer.Option("--json", help="Print every event as a JSON line, for programs.")] = False,
) -> None:
    """Send a text, a file or stdin to a channel, and wait until it is acknowledged.

    Exit code 0 if it came as far as was waited for, 1 if not, 2 if it was not accepted. With --store a message that is
    not acknowledged yet stays there, and its sending goes on whenever a command runs with that store; so it is accepted
    also while the node cannot be reached (exit code 1, or 0 with --wait none).

    Examples: [bold]fairway send --channel team --sender alice "see you at eight"[/bold]

    [bold]fairway send --channel team --sender alice --store alice.db --file holiday.jpg --by bob --by carol[/bold]
    """
    payload = _payload(text or [], file, settings.options.segmentation.max_message_size_bytes)
    wish = SendGoal(wait=wait, count=max(count, len(set(by or []))), by=tuple(by or []), timeout_s=timeout or None)
    if machine:
        report = asyncio.run(send_message(settings, payload, wish, Watching(event=_print_event)))
        _print_line({"event": "send-report", **as_json(report)})
    else:
        console = PlainConsole(highlight=False)
        with _picture(console) as watching:
            report = asyncio.run(send_message(settings, payload, wish, watching))
        _print_report(console, report, settings)
    raise typer.Exit(0 if report.reached else 1)


def _payload(words: list[str], file: Path | None, limit_bytes: int) -> bytes:
    if words and file is not None:
        raise ConfigurationError("give a text or --file, not both")
    if file is not None:
        return read_payload(file, limit_bytes)
    if words:
        return " ".join(words).encode()
    if sys.stdin.isatty():
        typer.echo("type the message, and end it with Ctrl-D on a line of its own", err=True)
    return read_stream(sys.stdin.buffer, limit_bytes)


@contextmanager
def _picture(console: Console) -> Iterator[Watching]:
    """Show the segments of the message while it is being sent, if stderr is a terminal."""
    if not console.is_terminal:
        yield Watching()
        return
    with Live(Text("accepted"), console=console, refresh_per_second=10, transient=True) as live:
        yield Watching(progress=lambda progress: live.update(_drawn(progress)))


def _drawn(progress: Progress) -> Group:
    """One cell per data segment: dots wait, half-tone is sent, full is acknowledged."""
    total = progress.total_chunks
    sent = [chunk for chunk in progress.chunks_sent if chunk < total]
    cells = Text(overflow="fold")
    for chunk in range(total):
        if chunk in progress.chunks_acknowledged:
            cells.append("█", "green")
        else:
            cells.append("▒" if chunk in sent else "·", "yellow" if chunk in sent else "dim")
    names = f" by {visible(', '.join(progress.acknowledged_by))}" if progress.acknowledged_by else ""
    line = f"{len(sent)}/{total} sent, {len(progress.chunks_acknowledged)}/{total} acknowledged{names}"
    if progress.possible_ack_count and not progress.acknowledged_by:
        line += f" (probably by {progress.possible_ack_count})"
    return Group(cells, Text(line, "dim"))


def _print_report(console: Console, report: SendReport, settings: ChannelSettings) -> None:
    what = f"{report.message_id[:12]} ({report.size_bytes:,} bytes)"
    if report.reached and report.delivered_to:
        line = Text.assemble(("delivered ", "green"), f"{what} to {visible(', '.join(report.delivered_to))}")
    elif report.reached:
        line = Text.assemble(("accepted ", "green"), what)
    else:
        line = Text.assemble((f"{visible(report.detail)} ", "red"), what)
    console.print(line, soft_wrap=True)
    if report.earlier_open:
        earlier = "an earlier send" if report.earlier_open == 1 else f"{report.earlier_open} earlier sends"
        console.print(f"{earlier} of {settings.store} went on meanwhile", soft_wrap=True)
    if settings.store is not None and not report.failed and not report.delivered_to:
        console.print(
            f"it stays in {settings.store}, and is sent whenever a command runs with that store and reaches a node; "
            f"'fairway trace {report.message_id[:12]} --store {settings.store}' tells how far it came",
            soft_wrap=True,
        )
    elif not report.reached and not report.failed:
        console.print("without --store its sending ends here; say --store PATH to let it go on later", soft_wrap=True)


def _print_event(event: Any) -> None:
    _print_line(event_as_json(event))


def _print_line(told: dict[str, Any]) -> None:
    sys.stdout.buffer.write(as_line(told))
    sys.stdout.buffer.flush()
