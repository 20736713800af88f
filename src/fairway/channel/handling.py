"""`MessageHandling`: the application's handler of received messages, retries, and messages that are set aside.

The handler gets one message after the other. If the handler raises, the message is handed over again after a pause, and
later messages are handed over meanwhile. After ``max_handling_attempts`` attempts, counted over restarts, the message
is set aside: the store keeps it, it no longer counts as unread, `MessageSetAside` reports it, and only
`ReliableChannel.hand_over_again` hands it over. So a message on which the handler always raises cannot block the
channel.

Only exceptions count as failed attempts; the end of the process during an attempt does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from fairway.channel.inbox import Inbox
from fairway.channel.listeners import Handler, Listeners, SerialHandler
from fairway.events import Event, Limit, LimitReached, MessageReceived, MessageSetAside
from fairway.options import Receive, ReliableChannelOptions
from fairway.storage.channel_store import Handling, Write

_MAX_ERROR_CHARACTERS: Final = 1_000
"""Longest text of an error that is stored; the text could repeat a whole message."""


class MessageHandling:
    """Hands the messages of an inbox to a handler, if there is one, and counts its failures over all starts."""

    def __init__(
        self,
        inbox: Inbox,
        options: ReliableChannelOptions,
        receive: Receive | Handler,
        listeners: Listeners,
        keep: Callable[[Write, tuple[Event, ...]], None],
    ) -> None:
        """``keep`` stores a write, then emits events."""
        self.set_aside: dict[int, MessageSetAside] = {}
        """Messages by number, the oldest first."""
        self._inbox = inbox
        self._max_attempts = options.max_handling_attempts
        self._pause_s = options.advanced.handling_retry_ms / 1_000
        self._max_set_aside = options.advanced.max_set_aside
        self._listeners = listeners
        self._handler = (
            None if isinstance(receive, Receive) else SerialHandler(receive, listeners.calls, self._take, self._handled)
        )
        self._keep = keep
        self._is_running = False
        self._attempts: dict[int, int] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def load(self, stored: Iterable[Handling]) -> None:
        """Load the failed attempts that the store has."""
        self.stop()
        self._attempts = {handling.number: handling.attempts for handling in stored if handling.set_aside is None}
        self.set_aside = {handling.number: handling.set_aside for handling in stored if handling.set_aside is not None}

    def start(self) -> None:
        """Hand over unread messages, from the next turn of the event loop on."""
        self._is_running = True
        # The caller of the start may give the channel the name that its handler uses.
        asyncio.get_running_loop().call_soon(self.proceed)

    def stop(self) -> None:
        """Stop handing over; the next start hands all unfinished messages over."""
        self._is_running = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def proceed(self) -> None:
        """Hand over unread messages."""
        self._listeners.pass_on_unread()
        if self._handler is not None and self._is_running:
            self._handler.proceed()

    def later(self, number: int, seconds: float) -> None:
        """Hand a held message over after a delay, unless the channel stops or the message is finished before."""
        delivered = self._inbox.postpone(number)

        def due() -> None:
            self._timers.pop(number, None)
            if delivered is not None and self._inbox.resume(delivered):
                self.proceed()

        self._timers[number] = asyncio.get_running_loop().call_later(seconds, due)

    def in_hand_of_caller(self) -> set[int | None]:
        """Return the number of the message that the handler has, if the caller is the handler."""
        handled, handler = self._inbox.handled, self._handler
        is_handler = handler is not None and handler.task is not None and handler.task is asyncio.current_task()
        return {handled.number} if handled is not None and is_handler else set()

    def take_back(self, number: int) -> bool:
        """Reset the count of a message that is handed over again; return whether it was set aside."""
        if self.set_aside.pop(number, None) is None:
            return False
        self._keep(Write(handling=(Handling(number=number, attempts=0),)), ())
        return True

    def finished(self, number: int) -> None:
        """Forget a message that is finished."""
        self._attempts.pop(number, None)
        self.set_aside.pop(number, None)
        timer = self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()

    def _take(self) -> MessageReceived | None:
        delivered = self._inbox.take() if self._is_running else None
        if delivered is None:
            return None
        self._inbox.handled = delivered
        return delivered.message

    def _handled(self, message: MessageReceived, error: BaseException | None) -> None:
        """Finish a message, or try it again later."""
        delivered, self._inbox.handled = self._inbox.handled, None
        assert delivered is not None, "the handler had it"
        assert self._handler is not None, "it has ended"
        if error is None:
            self._inbox.finish(delivered.number)
            return
        self._listeners.failed(self._handler.name, message, error)
        if delivered.number is not None and self._inbox.waits(delivered.number):
            self._retry(delivered.number, message, repr(error))

    def _retry(self, number: int, message: MessageReceived, error: str) -> None:
        attempts = self._attempts[number] = self._attempts.get(number, 0) + 1
        if attempts < self._max_attempts:
            self._keep(Write(handling=(Handling(number=number, attempts=attempts),)), ())
            if self._is_running:
                self.later(number, self._pause_s)
            return
        aside = MessageSetAside(
            number=number,
            message_id=message.message_id,
            sender_id=message.sender_id,
            size_bytes=len(message.payload),
            attempts=attempts,
            error=error[:_MAX_ERROR_CHARACTERS],
        )
        del self._attempts[number]
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
