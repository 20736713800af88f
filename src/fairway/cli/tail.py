"""``fairway tail``: prints the messages of a channel until it is stopped.

A message is finished when it has been shown; with a store, the next run shows unfinished messages again. An
acknowledgement is sent some time after its message, so the command waits for it before it ends.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from fairway.channel.listeners import EventStream
from fairway.channel.reliable_channel import ReliableChannel
from fairway.cli._channel_options import with_settings
from fairway.cli._console import PlainConsole
from fairway.cli._event_json import as_line, brought_as_json, event_as_json
from fairway.cli._files import make_folder, save_message, words_for
from fairway.cli._notes import Notes
from fairway.cli._settings import ChannelSettings
from fairway.errors import DecodeError
from fairway.events import Event, MessageReceived
from fairway.files.outcomes import FileArriving, FileLimits, FileOutcome, FileRefused
from fairway.files.receiving import FileReceiver
from fairway.units import NS_PER_S, counted
from fairway.visible import visible
from fairway.wire.file_message import FileMessage, FilePart, decode_file_message

_QUIET_S: Final = 10.0
_MAX_TEXT_BYTES: Final = 4_096
"""Largest text that is shown whole, and that --save does not save."""


@with_settings
def command(
    settings: ChannelSettings,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until interrupted.")] = False,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many messages.")] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Stop after this time without a message.",
            show_default="10 if nothing is known to be missing; never with --follow",
        ),
    ] = None,
    linger: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, help="At the end, wait at most this long until acknowledgements are sent."
        ),
    ] = 20.0,
    events: Annotated[bool, typer.Option("--events", help="Print every event, as JSON lines.")] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Save files there by their names, and other payloads as FOLDER/MESSAGE_ID. Short texts are saved only "
            "with --json, which does not show them.",
        ),
    ] = None,
    max_file_bytes: Annotated[
        int,
        typer.Option("--max-file-bytes", metavar="BYTES", min=1, help="Larger files are refused."),
    ] = FileLimits().max_file_bytes,
    machine: Annotated[bool, typer.Option("--json", help="Print JSON lines, for programs.")] = False,
) -> None:
    """Print the messages of a channel: unfinished ones of an earlier run, stored ones, and new ones.

    Shows time, sender and text, or the hash of a payload that is not text. With --store, each message is shown once.
    A file in parts counts as one message when it is whole. If the command ends before, the next one with the same
    folder and the same --store continues. A file never replaces another: it is saved as "NAME (2)".
    Exit code 1 if fewer than --count messages arrived. stderr shows lost and restored connections, and how many
    messages could not be decrypted.

    Examples: [bold]fairway tail --channel team --sender bob --store bob.db --follow[/bold]

    [bold]fairway tail --channel team --sender bob --store bob.db --follow --save received[/bold]

    [bold]fairway tail --channel team --sender bob --count 1 --save received --json[/bold]
    """
    console, asides = PlainConsole(highlight=False), PlainConsole(highlight=False, stderr=True)
    notes = Notes(settings.sender_id)

    def show(event: Event, brought: Brought | None) -> None:
        if (machine and isinstance(event, MessageReceived)) or events:
            told = event_as_json(event) | (brought_as_json(brought) if brought is not None else {})
            sys.stdout.buffer.write(as_line(told))
            sys.stdout.buffer.flush()
        elif not isinstance(event, MessageReceived):
            note = notes.of(event)
            if note is not None:
                asides.print(Text(*note), soft_wrap=True)
        elif not isinstance(brought, FileArriving | FileRefused | FilePart):
            console.print(message_text(event, brought), soft_wrap=True)
        elif (words := words_for(brought)) is not None:
            asides.print(Text(f"{visible(event.sender_id)}: {words}", "dim"), soft_wrap=True)

    until = Until(
        count=count,
        quiet_s=timeout if timeout is not None or follow else _QUIET_S,
        even_if_syncing=timeout is not None,
        needs_node=not follow,
        linger_s=linger,
    )
    limits = FileLimits(max_file_bytes=max_file_bytes, max_incomplete_bytes=4 * max_file_bytes)
    is_shown: Callable[[bytes], bool] = (lambda _: False) if machine or events else _is_short_text
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
            ("an earlier message is missing", not message.dependencies_met),
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


_POLL_S: Final = 0.05
MARKS: Final = "\n\t\ufeff\u200b\u200e\u200f\u00ad\u2060"
"""Invisible characters of ordinary texts: line breaks, and marks of word processors."""
_INDENT: Final = "\n    "


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """The conditions to stop."""

    count: int | None = None
    """Stop after this many messages; None: never."""
    quiet_s: float | None = None
    """Stop after this time without a message; None: never."""
    even_if_syncing: bool = True
    """Whether that also holds while messages are known to be missing."""
    needs_node: bool = True
    """Whether an unreachable node at the start is an error; without it, a channel with a store waits for the node."""
    linger_s: float = 20.0
    """Longest wait until the last message is acknowledged."""


Brought = Path | FileOutcome | FileMessage
"""The path of a saved payload, the outcome of a file, or a file that is not saved."""

Show = Callable[[Event, Brought | None], None]
"""Called with an event, and for a message with its result."""


async def tail(
    settings: ChannelSettings,
    until: Until,
    show: Show,
    *,
    save: Path | None = None,
    limits: FileLimits | None = None,
    is_shown: Callable[[bytes], bool] = lambda _: False,
) -> int:
    """Show every event of a channel, unfinished messages of earlier runs first; return the number of messages.

    A file in parts counts as one message when it is whole. With ``save``, files are saved there by their names
    (`fairway.files`), and other payloads by their message ids unless ``is_shown`` returns True for them.
    """
    if save is not None:
        make_folder(save)
    seen, before = 0, None
    async with settings.open(needs_node=until.needs_node) as (_, channel):
        receiver = None if save is None else await FileReceiver.open(channel, save, limits)
        stream = channel.events()
        await channel.start()
        while until.count is None or seen < until.count:
            try:
                async with _within(until.quiet_s):
                    event = await _next_message(stream, show)
            except TimeoutError:
                if until.even_if_syncing or not channel.protocol.may_miss_messages:
                    break
                continue
            if event is None:
                break
            brought: Brought | None
            brought = file_in(event.payload) if receiver is None else await receiver.take(event)
            if receiver is not None and save is not None and brought is None and not is_shown(event.payload):
                brought = await save_message(receiver, save, event)
            show(event, brought)
            seen += not isinstance(brought, FileArriving | FileRefused | FilePart)
            if not event.ephemeral:
                channel.finish(event)
                # The next transmission carries the acknowledgement.
                before = _transmitted(channel)
        if before is not None:
            await _acknowledge(channel, before, until.linger_s)
    return seen


def file_in(payload: bytes) -> FileMessage | None:
    """Return the file, manifest or part in a payload; None if the payload is not a valid one."""
    try:
        return decode_file_message(payload)
    except DecodeError:
        return None


async def _acknowledge(channel: ReliableChannel, before: int, at_most_s: float) -> None:
    """Wait until a transmission after the last message, which acknowledges it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(at_most_s):
            # A sync message has no event.
            while _transmitted(channel) <= before or channel.statistics().publishing:  # noqa: ASYNC110 - see above
                await asyncio.sleep(_POLL_S)


def _transmitted(channel: ReliableChannel) -> int:
    return sum(channel.statistics().protocol.transmissions.values())


async def _next_message(stream: EventStream, show: Show) -> MessageReceived | None:
    """Wait for the next message, and show all other events; return None at the end of the channel."""
    async for event in stream:
        if isinstance(event, MessageReceived):
            return event
        show(event, None)
    return None


def _within(seconds: float | None) -> AbstractAsyncContextManager[object]:
    return nullcontext() if seconds is None else asyncio.timeout(seconds)


def as_text(payload: bytes) -> str | None:
    """Return a payload as text; None if it is not text, or contains control characters."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    return text if visible(text, keep=MARKS) == text else None


def indented(text: str) -> str:
    """Return a text with its later lines indented, so that none looks like a line of the program."""
    return visible(text.rstrip("\n"), keep="\n\t").replace("\n", _INDENT)
