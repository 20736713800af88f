"""``fairway tail``: prints what `fairway.apps.tailing` reads."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from fairway.apps.event_json import as_line, brought_as_json, event_as_json
from fairway.apps.file_words import words_for
from fairway.apps.notes import Notes
from fairway.apps.settings import ChannelSettings
from fairway.apps.tailing import Brought, Until, as_text, indented, tail
from fairway.cli._channel_options import with_settings
from fairway.cli._console import PlainConsole
from fairway.events import EVENT_NAMES, Event, MessageReceived
from fairway.files.outcomes import FileArriving, FileLimits, FileRefused
from fairway.units import NS_PER_S, counted
from fairway.visible import visible
from fairway.wire.file_message import FilePart

_QUIET_S: Final = 10.0
_MAX_TEXT_BYTES: Final = 4_096
"""Size of a text that --save does not save, because it is shown."""


@with_settings
def command(
    settings: ChannelSettings,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until interrupted.")] = False,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many messages.")] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Stop after so long without a message.",
            show_default="10 if nothing is known to be missing; never with --follow",
        ),
    ] = None,
    linger: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, help="At the end, wait at most so long until acknowledgements have left."
        ),
    ] = 20.0,
    events: Annotated[bool, typer.Option("--events", help="Show every event, not only messages.")] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Save files there by their names, other payloads as FOLDER/MESSAGE_ID; short texts only with --json, "
            "which does not show them.",
        ),
    ] = None,
    max_file_bytes: Annotated[
        int,
        typer.Option("--max-file-bytes", metavar="BYTES", min=1, help="Larger files are refused."),
    ] = FileLimits().max_file_bytes,
    machine: Annotated[bool, typer.Option("--json", help="Print JSON lines, for programs.")] = False,
) -> None:
    """Print the messages of a channel: unfinished ones of an earlier run, stored ones, and new ones.

    Shows time, sender and text, or the hash if it is no text. With --store, what was shown is not shown again.
    A file in parts counts as one message, when it is whole; if the command ends before, the next one with the same
    folder and the same --store goes on. A file never replaces another: it is saved as "NAME (2)".
    Exit code 1 if --count messages did not come. On stderr it says when the node disconnects and reconnects, and what
    could not be opened.

    Examples: [bold]fairway tail --channel team --sender bob --store bob.db --follow[/bold]

    [bold]fairway tail --channel team --sender bob --store bob.db --follow --save received[/bold]

    [bold]fairway tail --channel team --sender bob --count 1 --save received --json[/bold]
    """
    console, asides = PlainConsole(highlight=False), PlainConsole(highlight=False, stderr=True)
    notes = Notes(settings.sender_id)

    def show(event: Event, brought: Brought | None) -> None:
        if not events and not isinstance(event, MessageReceived):
            note = notes.of(event)
            if note is not None:
                asides.print(Text(*note), soft_wrap=True)
            return
        if machine:
            told = event_as_json(event) | (brought_as_json(brought) if brought is not None else {})
            sys.stdout.buffer.write(as_line(told))
            sys.stdout.buffer.flush()
        elif isinstance(event, MessageReceived):
            if events or not isinstance(brought, FileArriving | FileRefused | FilePart):
                console.print(message_text(event, brought), soft_wrap=True)
            else:
                words = words_for(brought)
                if words is not None:
                    asides.print(Text(f"{visible(event.sender_id)}: {words}", "dim"), soft_wrap=True)
        else:
            console.print(_other(event), soft_wrap=True)

    until = Until(
        count=count,
        quiet_s=timeout if timeout is not None or follow else _QUIET_S,
        even_if_syncing=timeout is not None,
        needs_node=not follow,
        linger_s=linger,
    )
    limits = FileLimits(max_file_bytes=max_file_bytes, max_incomplete_bytes=4 * max_file_bytes)
    is_shown: Callable[[bytes], bool] = (lambda _: False) if machine else _is_short_text
    seen = asyncio.run(tail(settings, until, show, save=save, limits=limits, is_shown=is_shown))
    raise typer.Exit(1 if count is not None and seen < count else 0)


def _is_short_text(payload: bytes) -> bool:
    return len(payload) <= _MAX_TEXT_BYTES and as_text(payload) is not None


def message_text(message: MessageReceived, brought: Brought | None) -> Text:
    """Return a received message as a line for people."""
    at_s = message.timestamp_ns / NS_PER_S if message.timestamp_ns else time.time()
    marks = [
        mark
        for mark, holds in (
            ("ephemeral", message.ephemeral),
            ("redelivered", message.redelivered),
            ("recovered by Reed-Solomon", message.recovered),
            ("something before it is missing", not message.dependencies_met),
            (f"saved as {brought}", isinstance(brought, Path)),
        )
        if holds
    ]
    text = as_text(message.payload)
    size_bytes = len(message.payload)
    if brought is not None and not isinstance(brought, Path):
        text = words_for(brought) or "a part of a file"
        size_bytes = getattr(brought, "size_bytes", size_bytes)
    return Text.assemble(
        (time.strftime("%H:%M:%S ", time.localtime(at_s)), "dim"),
        (f"{visible(message.sender_id)} ", "bold cyan"),
        (f"{counted(size_bytes, 'byte')}  ", "dim"),
        indented(text) if text is not None else (f"SHA-256 {message.message_id}", "magenta"),
        (f"  [{', '.join(marks)}]" if marks else "", "dim"),
    )


def _other(event: Event) -> Text:
    told = event_as_json(event)
    name = EVENT_NAMES[type(event)][0]
    fields = ", ".join(f"{key} {_short(value)}" for key, value in told.items() if key not in {"event", "type"})
    return Text.assemble((time.strftime("%H:%M:%S "), "dim"), (f"{name}  ", "yellow"), (fields, "dim"))


def _short(value: object) -> str:
    if isinstance(value, dict):
        return "/".join(str(item) for item in value.values())
    text = ascii(value) if not isinstance(value, str) else visible(value)
    return f"{text[:12]}..." if len(text) == 64 and text.isalnum() else text
