"""Messages between "delivered by the protocol" and "finished by the application".

A message is kept, durably if the store is durable, until whoever reads it has finished with it; after a crash it is
handed over again. When it is finished depends on who got it, whatever came first:

* the application uses `messages()`: when the loop asks for the next one, when ``finish`` is called for it, or when an
  ``async with`` around the loop or the channel ends without an exception;
* else, if it was handed to handlers of ``message-received``: when all of them returned without raising (`Attempts` says
  what happens if one raises);
* else, if only `events()` showed it: when that loop asks for the next event.

What arrives while nobody reads waits for the first readers, for all that begin to read in the same turn of the event
loop.

A message has one number for good, and no two messages ever have the same. Every start hands over again what is not
finished; of events and handlers only the newest `HandOver` of a message finishes it, so that it is never finished
while somebody is still busy with it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from types import TracebackType
from typing import Self
from weakref import WeakSet

from fairway.events import MessageReceived


class Reader(Enum):
    """Who a message is handed over to besides the loops of `messages()`."""

    EVENTS = "events"
    """Nobody but streams of all events."""
    HANDLERS = "handlers"
    """Handlers of received messages, and such streams."""


Retry = Callable[[], None]
"""Calls again those handlers of a message that raised."""


@dataclass(frozen=True, slots=True, eq=False)
class Delivered:
    """A received message and its number in the inbox; None for an ephemeral one, which is not kept."""

    number: int | None
    message: MessageReceived


class HandOver:
    """One handing over of a message to handlers and to readers of events. Another start makes a newer one."""

    def __init__(self, inbox: Inbox, delivered: Delivered, failed: Callable[[Delivered, str, Retry], None]) -> None:
        self._inbox = inbox
        self._delivered = delivered
        self._failed = failed
        self._reader: Reader | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the message waits for readers; an ephemeral one does not."""
        return self._delivered.number is not None

    @property
    def is_superseded(self) -> bool:
        """Whether the message was handed over again meanwhile."""
        return self._inbox.held(self._delivered.number) not in {None, self._delivered}

    def begin(self, reader: Reader) -> None:
        """Take notice of who gets it."""
        self._reader = reader
        self._inbox.claimed(self._delivered.number)

    def finish(self, reader: Reader) -> None:
        """Take notice that a reader has finished with the message."""
        if reader is self._reader and not self._inbox.has_streams and not self.is_superseded:
            self._inbox.finish(self._delivered.number)

    def fail(self, error: str, again: Retry) -> None:
        """Take notice that handlers raised; ``again`` calls them once more."""
        if not self._inbox.has_streams and self._inbox.held(self._delivered.number) is self._delivered:
            self._failed(self._delivered, error, again)


class Inbox:
    """What was delivered and not finished."""

    def __init__(self, finished: Callable[[int], None]) -> None:
        """Begin empty; ``finished`` makes it durable that a number needs no handing over any more."""
        self.unread_bytes = 0
        """Payload bytes that are held."""
        self.has_streams = False
        """Whether the application uses `messages()`."""
        self._finished = finished
        self._held: OrderedDict[int, Delivered] = OrderedDict()
        self._unread: OrderedDict[int, Delivered] = OrderedDict()
        self._unclaimed: OrderedDict[int, Delivered] = OrderedDict()
        self._ephemeral = 0
        self._changed = asyncio.Event()
        self._ended = False
        self._failure: BaseException | None = None
        self._streams: WeakSet[MessageStream] = WeakSet()

    def __len__(self) -> int:
        """Return how many messages are not finished."""
        return len(self._held)

    def restart(self) -> None:
        """Forget everything but who reads; what the store holds is put again."""
        for messages in (self._held, self._unread, self._unclaimed):
            messages.clear()
        self.unread_bytes = 0
        self._failure = None

    def stream(self) -> MessageStream:
        """Return unread messages as an async iterator."""
        self.has_streams = True
        stream = MessageStream(self)
        self._streams.add(stream)
        return stream

    def unclaimed(self) -> tuple[Delivered, ...]:
        """Return what arrived while there were neither handlers nor streams of events."""
        return tuple(self._unclaimed.values())

    def claimed(self, number: int | None) -> None:
        """Take notice that handlers or streams of events get a message."""
        if number is not None:
            self._unclaimed.pop(number, None)

    def put(self, delivered: Delivered) -> None:
        """Hold a message until it is finished."""
        key = delivered.number
        if key is None:
            if not self.has_streams:
                return
            self._ephemeral -= 1
            key = self._ephemeral
        else:
            self._held[key] = delivered
            self.unread_bytes += len(delivered.message.payload)
            self._unclaimed[key] = delivered
        if all(stream.in_hand is None or stream.in_hand.number != key for stream in self._streams):
            self._unread[key] = delivered
            self._wake()

    def held(self, number: int | None) -> Delivered | None:
        """Return what is held under a number."""
        return None if number is None else self._held.get(number)

    def finish(self, number: int | None) -> None:
        """Take notice that the application has finished with a message."""
        if number is None:
            return
        if self.drop(number):
            self._finished(number)

    def drop(self, number: int) -> bool:
        """Hold a message no longer; return whether it was held."""
        delivered = self._held.pop(number, None)
        if delivered is None:
            return False
        self.unread_bytes -= len(delivered.message.payload)
        self._unread.pop(number, None)
        self._unclaimed.pop(number, None)
        self._wake()
        return True

    def finish_message(self, message: MessageReceived) -> bool:
        """Finish with a message that was handed over, before another start or after it; return whether it was held."""
        for number, delivered in self._held.items():
            if delivered.message is message or _first_time(delivered.message) == _first_time(message):
                self.finish(number)
                return True
        return False

    async def next(self) -> Delivered | None:
        """Wait for the next message that no stream has taken; None when the channel ended.

        What is unread then could not be finished any more; it comes again at the next start.
        """
        while True:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                return None
            if self._unread:
                return self._unread.popitem(last=False)[1]
            await self._changed.wait()

    async def room(self, max_messages: int, max_bytes: int) -> None:
        """Wait until less than so much is held."""
        while not self._ended and self.is_full(max_messages, max_bytes):
            await self._changed.wait()

    def is_full(self, max_messages: int, max_bytes: int) -> bool:
        """Return whether as much is held as may be."""
        return len(self._held) >= max_messages or self.unread_bytes >= max_bytes

    def finish_in_hand(self) -> None:
        """Finish with whatever was handed over by streams, also by those that nobody holds any more."""
        for number in [number for number in self._held if number not in self._unread]:
            self.finish(number)

    def fail(self, failure: BaseException) -> None:
        """Let all streams raise an error, until the channel is started again."""
        self._failure = failure
        self._wake()

    def end(self) -> None:
        """End all streams."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _first_time(message: MessageReceived) -> MessageReceived:
    return replace(message, redelivered=False)


class MessageStream:
    """Received messages, as an async iterator, and an async context manager that finishes the last one.

    Several streams of one channel share its messages: each message goes to one of them.
    """

    def __init__(self, inbox: Inbox) -> None:
        self.in_hand: Delivered | None = None
        """What was handed over last and is not finished."""
        self._inbox = inbox

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageReceived:
        """Finish with the message before, and wait for the next one."""
        self.finish()
        delivered = await self._inbox.next()
        if delivered is None:
            raise StopAsyncIteration
        self.in_hand = delivered
        return delivered.message

    def finish(self) -> None:
        """Say that the message handed over last need not come again."""
        if self.in_hand is not None:
            self._inbox.finish(self.in_hand.number)
            self.in_hand = None

    async def __aenter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish with the last message, unless an exception says that it was not."""
        if kind is None:
            self.finish()
