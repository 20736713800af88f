"""Reads the messages of a channel, until it is stopped.

A message is finished once it is shown; with a store, one that was not shown comes again. An acknowledgement leaves some
time after its message, so a tail waits for it before it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairway.apps.files import make_folder, save_message
from fairway.apps.settings import ChannelSettings
from fairway.channel.listeners import EventStream
from fairway.channel.reliable_channel import ReliableChannel
from fairway.errors import DecodeError
from fairway.events import Event, MessageReceived
from fairway.files.outcomes import FileArriving, FileLimits, FileOutcome, FileRefused
from fairway.files.receiving import FileReceiver
from fairway.visible import visible
from fairway.wire.file_message import FileMessage, FilePart, decode_file_message

_POLL_S: Final = 0.05
_MARKS: Final = "\n\t\ufeff\u200b\u200e\u200f\u00ad\u2060"
"""Invisible characters that texts contain: line breaks, and marks of word processors."""
_INDENT: Final = "\n    "


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """When to stop."""

    count: int | None = None
    """After so many messages; None: never."""
    quiet_s: float | None = None
    """When no message came for so long; None: never."""
    even_if_syncing: bool = True
    """Whether quiet is enough although messages are known to be missing."""
    needs_node: bool = True
    """Whether to fail if the node cannot be reached at the start; else it is waited for, if there is a store."""
    linger_s: float = 20.0
    """How long to stay at most until the last message is acknowledged."""


Brought = Path | FileOutcome | FileMessage
"""Where a payload was saved, or what became of a file, or the file that nothing is saved of."""

Show = Callable[[Event, Brought | None], None]
"""Called with an event, and for a message with what it brought."""


async def tail(
    settings: ChannelSettings,
    until: Until,
    show: Show,
    *,
    save: Path | None = None,
    limits: FileLimits | None = None,
    is_shown: Callable[[bytes], bool] = lambda _: False,
) -> int:
    """Show every event of a channel, messages that earlier runs did not finish first; return how many messages came.

    A file in parts counts as one message, when all of it is there. With ``save`` files are saved there by their names
    (`fairway.files`), and other payloads by their message ids, except those that ``is_shown`` says are shown whole.
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
                # Acknowledgements ride on whatever is transmitted from now on.
                before = _transmitted(channel)
        if before is not None:
            await _acknowledge(channel, before, until.linger_s)
    return seen


def file_in(payload: bytes) -> FileMessage | None:
    """Return the file, manifest or part in a payload; None for one that is no file, or not a right one."""
    try:
        return decode_file_message(payload)
    except DecodeError:
        return None


async def _acknowledge(channel: ReliableChannel, before: int, at_most_s: float) -> None:
    """Stay until something was transmitted since the last message, which acknowledges it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(at_most_s):
            # Sync messages are no events that one could wait for.
            while _transmitted(channel) <= before or channel.statistics().publishing:  # noqa: ASYNC110 - see above
                await asyncio.sleep(_POLL_S)


def _transmitted(channel: ReliableChannel) -> int:
    return sum(channel.statistics().protocol.transmissions.values())


async def _next_message(stream: EventStream, show: Show) -> MessageReceived | None:
    """Wait for the next message, showing everything else meanwhile; None at the end of the channel."""
    async for event in stream:
        if isinstance(event, MessageReceived):
            return event
        show(event, None)
    return None


def _within(seconds: float | None) -> AbstractAsyncContextManager[object]:
    return nullcontext() if seconds is None else asyncio.timeout(seconds)


def as_text(payload: bytes) -> str | None:
    """Return a payload as text, if it is text that a terminal can show without being steered by it."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    return text if visible(text, keep=_MARKS) == text else None


def indented(text: str) -> str:
    """Return a text of several lines as one that no line of which looks like a line of the program."""
    return visible(text.rstrip("\n"), keep="\n\t").replace("\n", _INDENT)
