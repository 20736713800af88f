"""``fairway send``: sends one message or file by way of `fairway.apps.sending`, and shows how far it came."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from fairway.apps.event_json import as_json, as_line, event_as_json
from fairway.apps.files import read_payload, read_stream
from fairway.apps.sending import FileToSend, SendGoal, SendReport, Watching, send_message, send_one_file
from fairway.apps.settings import ChannelSettings
from fairway.channel.receipt import Progress, Wait
from fairway.cli._channel_options import with_settings
from fairway.cli._console import PlainConsole
from fairway.errors import ConfigurationError
from fairway.files.sending import FileProgress
from fairway.units import counted
from fairway.visible import visible

_BAR_CELLS: Final = 60


@with_settings
def command(
    settings: ChannelSettings,
    text: Annotated[list[str] | None, typer.Argument(help="The message; words are joined. Without it, stdin.")] = None,
    *,
    file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Send a file with its name and media type, in parts if it is large."),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Send only the content of the file, as one message, for js-waku and others.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What receivers call the file.", show_default="its own name")
    ] = None,
    media_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Such as image/jpeg.", show_default="what the name tells")
    ] = None,
    wait: Annotated[Wait, typer.Option(help="What to wait for; with none, a later run sends.")] = (Wait.DELIVERED),
    count: Annotated[int, typer.Option(min=1, help="How many participants must acknowledge it.")] = 1,
    by: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A participant that must acknowledge it; repeatable.")
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="How long to wait; for a file, how long without any progress. 0 = to the end."
        ),
    ] = 120.0,
    machine: Annotated[bool, typer.Option("--json", help="Print every event as a JSON line, for programs.")] = False,
) -> None:
    """Send a text, a file or stdin to a channel, and wait until it is acknowledged.

    Exit code 0 if it came as far as was waited for, 1 if not, 2 if it was not accepted. With --store a message that is
    not acknowledged yet stays there, and its sending goes on whenever a command runs with that store; so it is accepted
    also while the node cannot be reached (exit code 1, or 0 with --wait none).

    A file of more than a megabyte goes in parts, each when an earlier one is acknowledged; with --wait sent or none
    they do not wait for that, and take the memory of the whole file. If the command ends before, give it again with the
    same --store: it goes on, and what was acknowledged is not sent again. Others save files with 'fairway tail --save
    FOLDER'.

    Examples: [bold]fairway send --channel team --sender alice "see you at eight"[/bold]

    [bold]fairway send --channel team --sender alice --store alice.db --file holiday.jpg --by bob --by carol[/bold]

    [bold]fairway send --channel team --sender alice --store alice.db --file backup.tar --timeout 0[/bold]
    """
    if file is None and (raw or name is not None or media_type is not None):
        raise ConfigurationError("--raw, --name and --media-type are about a file; give --file PATH, too")
    if raw and (name is not None or media_type is not None):
        raise ConfigurationError("--raw sends no name and no media type; leave it out, or leave those out")
    sent: bytes | FileToSend
    if file is not None and not raw and not text:
        sent = FileToSend(path=file, name=name, media_type=media_type)
    else:
        sent = _payload(text or [], file, settings.options.segmentation.max_message_size_bytes)
    wish = SendGoal(wait=wait, count=max(count, len(set(by or []))), by=tuple(by or []), timeout_s=timeout or None)
    with _told_of_interruption(settings) as accepted:
        if machine:
            report = asyncio.run(_send(settings, sent, wish, Watching(event=_print_event, accepted=accepted)))
            _print_line({"event": "send-report", **as_json(report)})
        else:
            console = PlainConsole(highlight=False)
            with _picture(console) as watching:
                report = asyncio.run(_send(settings, sent, wish, replace(watching, accepted=accepted)))
            _print_report(console, report, settings, wait)
    raise typer.Exit(0 if report.reached else 1)


@contextmanager
def _told_of_interruption(settings: ChannelSettings) -> Iterator[Callable[[str, int], None]]:
    """Yield a callback for what is accepted; after Ctrl-C say what becomes of that."""
    accepted: list[str] = []
    try:
        yield lambda message_id, size_bytes: accepted.append(f"{message_id[:12]} ({counted(size_bytes, 'byte')})")
    except KeyboardInterrupt:
        if accepted:
            typer.echo(f"interrupted: {accepted[0]} was accepted; {_what_becomes_of_it(settings)}", err=True)
        raise


def _what_becomes_of_it(settings: ChannelSettings) -> str:
    if settings.store is None:
        return "without --store its sending ends here; say --store PATH to let it go on later"
    return f"it stays in {settings.store}, and its sending goes on whenever a command runs with that store"


async def _send(settings: ChannelSettings, sent: bytes | FileToSend, wish: SendGoal, watching: Watching) -> SendReport:
    if isinstance(sent, FileToSend):
        return await send_one_file(settings, sent, wish, watching)
    return await send_message(settings, sent, wish, watching)


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
        yield Watching(
            progress=lambda progress: live.update(_drawn(progress)),
            file_progress=lambda progress: live.update(_drawn_file(progress)),
        )


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


def _drawn_file(progress: FileProgress) -> Group:
    """Draw a bar of all data segments of the file: dots wait, half-tone is sent, full is acknowledged."""
    total = progress.total_segments
    width = min(total, _BAR_CELLS)
    full, sent = (width * count // total for count in (progress.segments_acknowledged, progress.segments_sent))
    bar = Text.assemble(("█" * full, "green"), ("▒" * (sent - full), "yellow"), ("·" * (width - sent), "dim"))
    line = (
        f"{progress.segments_sent:,}/{counted(total, 'segment')} sent, "
        f"{progress.segments_acknowledged:,} acknowledged; "
        f"{progress.messages_acknowledged:,}/{counted(progress.total_messages, 'message')}"
    )
    if progress.resumed_messages:
        line += f", {progress.resumed_messages:,} of them earlier"
    return Group(bar, Text(line, "dim"))


def _print_report(console: Console, report: SendReport, settings: ChannelSettings, wait: Wait) -> None:
    what = f"{report.message_id[:12]} ({counted(report.size_bytes, 'byte')})"
    if report.file is not None:
        parts = f" in {counted(report.file.total_messages, 'message')}" if report.file.total_messages > 1 else ""
        if report.file.resumed_messages:
            parts += f", {report.file.resumed_messages:,} of them earlier" if parts else ", earlier"
        what = f"{visible(report.file.name)} ({counted(report.size_bytes, 'byte')}{parts}, {report.message_id[:12]})"
    if report.reached and report.delivered_to:
        line = Text.assemble(("delivered ", "green"), f"{what} to {visible(', '.join(report.delivered_to))}")
    elif report.reached:
        line = Text.assemble(("sent " if wait is Wait.SENT else "accepted ", "green"), what)
    else:
        line = Text.assemble(f"{what}: ", (visible(report.detail), "red"))
    console.print(line, soft_wrap=True)
    if report.reached and report.file is not None and report.file.resumed_messages == report.file.total_messages:
        console.print("nothing of it left now; if it is sent once more, it goes as a new file", soft_wrap=True)
    if report.earlier_open:
        earlier = counted(report.earlier_open, "earlier send")
        console.print(f"{earlier} of {settings.store} went on meanwhile", soft_wrap=True)
    if report.file is not None and report.file.total_messages > 1 and not report.reached:
        _print_how_to_go_on(console, report.file, settings)
    elif settings.store is not None and not report.failed and not report.delivered_to:
        until = " until it is acknowledged" if wait is Wait.SENT and report.reached else ""
        trace = f"'fairway trace {report.message_id[:12]} --store {settings.store}'"
        console.print(f"{_what_becomes_of_it(settings)}{until}; {trace} shows how far it is", soft_wrap=True)
    elif not report.reached and not report.failed:
        console.print(_what_becomes_of_it(settings), soft_wrap=True)


def _print_how_to_go_on(console: Console, file: FileProgress, settings: ChannelSettings) -> None:
    done = f"{file.messages_acknowledged:,} of {counted(file.total_messages, 'message')} acknowledged"
    if settings.store is None:
        how = "without --store its sending ends here, and begins anew"
    else:
        how = f"the same command with {settings.store} goes on with the rest"
    console.print(f"{done}; {how}", soft_wrap=True)


def _print_event(event: Any) -> None:
    _print_line(event_as_json(event))


def _print_line(told: dict[str, Any]) -> None:
    sys.stdout.buffer.write(as_line(told))
    sys.stdout.buffer.flush()
