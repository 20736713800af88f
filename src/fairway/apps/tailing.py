"""Read what a channel brings, until told to stop.

A message is finished once whoever shows it has returned: what was shown does not come again, what was not does, if the
channel has a store.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from fairway.apps.files import make_folder, save_payload
from fairway.apps.settings import ChannelSettings
from fairway.channel.listeners import EventStream
from fairway.events import ChannelStatus, Event, MessageReceived


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """When to stop."""

    count: int | None = None
    """After so many messages; None: never."""
    quiet_s: float | None = None
    """When no message came for so long; None: never."""
    even_if_syncing: bool = True
    """Whether quiet is enough although messages are known to be missing."""


Show = Callable[[Event, Path | None], None]
"""Called with an event, and with where its payload was saved if it was."""


async def tail(settings: ChannelSettings, until: Until, show: Show, *, save: Path | None = None) -> int:
    """Show every event of a channel, messages that earlier runs did not finish first; return how many messages came."""
    if save is not None:
        make_folder(save)
    seen = 0
    async with settings.open() as (_, channel):
        stream = channel.events()
        await channel.start()
        while until.count is None or seen < until.count:
            try:
                async with _within(until.quiet_s):
                    event = await _next_message(stream, show)
            except TimeoutError:
                if until.even_if_syncing or channel.status is ChannelStatus.SYNCED:
                    break
                continue
            if event is None:
                break
            path = None
            if save is not None:
                path = await asyncio.to_thread(save_payload, save, event.message_id, event.payload)
            show(event, path)
            seen += 1
            if not event.ephemeral:
                channel.finish(event)
    return seen


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
    if any(
        unicodedata.category(character) in {"Cc", "Cs", "Co", "Cn"} for character in text if character not in "\n\t"
    ):
        return None
    return text
