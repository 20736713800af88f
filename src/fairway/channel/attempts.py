"""Retries of messages on which handlers raise.

A message on which a handler raises comes again after a pause. After ``max_handling_attempts`` in all, counted over
restarts, it is set aside: the store keeps it, it no longer counts as unread, `MessageSetAside` reports it, and only
`ReliableChannel.hand_over_again` hands it over. So a message on which handlers always raise cannot block the channel.

Only exceptions count as failed attempts; the end of the process during an attempt does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from fairway.channel.inbox import Delivered, Inbox, Retry
from fairway.events import Event, Limit, LimitReached, MessageSetAside
from fairway.options import ReliableChannelOptions
from fairway.storage.channel_store import Handling, Write

_MAX_ERROR_CHARACTERS: Final = 1_000
"""Longest text of an error that is stored; the text could repeat a whole message."""


class Attempts:
    """Counts failed attempts per message, over all starts of a channel."""

    def __init__(
        self, inbox: Inbox, options: ReliableChannelOptions, keep: Callable[[Write, tuple[Event, ...]], None]
    ) -> None:
        """Count for the messages of an inbox; ``keep`` stores a write, then emits events."""
        self._inbox = inbox
        self._max_attempts = options.max_handling_attempts
        self._pause_s = options.handling_retry_ms / 1_000
        self._max_set_aside = options.max_set_aside
        self._keep = keep
        self._counts: dict[int, int] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self.set_aside: dict[int, MessageSetAside] = {}
        """Messages by number, the oldest first."""

    def restart(self, stored: Iterable[Handling]) -> None:
        """Load the counts from the store."""
        self.stop()
        self._counts = {handling.number: handling.attempts for handling in stored if handling.set_aside is None}
        self.set_aside = {handling.number: handling.set_aside for handling in stored if handling.set_aside is not None}

    def stop(self) -> None:
        """Cancel all retries; the next start hands everything over."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def failed(self, delivered: Delivered, error: str, again: Retry) -> None:
        """Count a failed attempt; try again later, or set the message aside."""
        number, message = delivered.number, delivered.message
        if number is None:
            return
        attempts = self._counts[number] = self._counts.get(number, 0) + 1
        if attempts < self._max_attempts:
            self._keep(Write(handling=(Handling(number=number, attempts=attempts),)), ())
            self._timers[number] = asyncio.get_running_loop().call_later(self._pause_s, self._again, delivered, again)
            return
        aside = MessageSetAside(
            number=number,
            message_id=message.message_id,
            sender_id=message.sender_id,
            size_bytes=len(message.payload),
            attempts=attempts,
            error=error[:_MAX_ERROR_CHARACTERS],
        )
        del self._counts[number]
        self._inbox.drop(number)
        self.set_aside[number] = aside
        events: list[Event] = [aside]
        finished: list[int] = []
        if len(self.set_aside) > self._max_set_aside:
            oldest = next(iter(self.set_aside))
            del self.set_aside[oldest]
            finished.append(oldest)
            events.append(LimitReached(limit=Limit.SET_ASIDE, bound=self._max_set_aside))
        handling = Handling(number=number, attempts=attempts, set_aside=aside)
        self._keep(Write(handling=(handling,), finished=tuple(finished)), tuple(events))

    def later(self, number: int, seconds: float, hand_over: Callable[[], None]) -> None:
        """Hand a message over after a time, unless the channel stops or the message is finished before."""

        def due() -> None:
            self._timers.pop(number, None)
            hand_over()

        self._timers[number] = asyncio.get_running_loop().call_later(seconds, due)

    def taken_back(self, number: int) -> bool:
        """Reset the count of a message that is handed over again; return whether it was set aside."""
        if self.set_aside.pop(number, None) is None:
            return False
        self._keep(Write(handling=(Handling(number=number, attempts=0),)), ())
        return True

    def finished(self, number: int) -> bool:
        """Forget a message that is finished; return whether it was set aside."""
        self._counts.pop(number, None)
        timer = self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()
        return self.set_aside.pop(number, None) is not None

    def _again(self, delivered: Delivered, again: Retry) -> None:
        if delivered.number is not None:
            self._timers.pop(delivered.number, None)
        if self._inbox.held(delivered.number) is delivered:
            again()
