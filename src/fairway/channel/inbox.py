"""Messages between delivery by the protocol and the end of their handling by the application.

The store keeps a message until the application has finished it; after a crash it is handed over again. A message is
finished:

* if the application uses `messages()`: when the loop asks for the next one, when ``finish`` is called for it, or when
  an ``async with`` around the loop or the channel ends without an exception;
* else, if there are handlers of ``message-received``: when all of them returned without raising (`Attempts` says what
  happens if one raises);
* else, if only `events()` yields it: when that loop asks for the next event.

Messages that arrive before the first reader wait for it, and for all readers that begin in the same turn of the event
loop.

The number of a message is unique in its store and never changes. Every start hands over again what is not finished. Of
several `HandOver`s of a message only the newest can finish it, so that it is not finished while a handler works on it.
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

from fairway.errors import copy_of
from fairway.events import MessageReceived
from fairway.loop_binding import LoopBinding


class Reader(Enum):
    """The readers of a message besides the loops of `messages()`."""

    EVENTS = "events"
    """Only streams of all events."""
    HANDLERS = "handlers"
    """Handlers of received messages, and streams of all events."""


Retry = Callable[[], None]
"""Calls the handlers again that raised on a message."""


@dataclass(frozen=True, slots=True, eq=False)
class Delivered:
    """A received message and its number in the inbox; None for an ephemeral one, which is not kept."""

    number: int | None
    message: MessageReceived


class HandOver:
    """One attempt to hand a message to handlers and readers of events; each start of the channel makes a new one."""

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
        """Whether a later start handed the message over again."""
        return self._inbox.held(self._delivered.number) not in {None, self._delivered}

    def begin(self, reader: Reader) -> None:
        """Note which readers get the message."""
        self._reader = reader
        self._inbox.claimed(self._delivered.number)

    def finish(self, reader: Reader) -> None:
        """Finish the message, if this reader decides about it."""
        if reader is self._reader and not self._inbox.has_streams and not self.is_superseded:
            self._inbox.finish(self._delivered.number)

    def fail(self, error: str, again: Retry) -> None:
        """Count a failed attempt; ``again`` calls the handlers that raised."""
        if not self._inbox.has_streams and self._inbox.held(self._delivered.number) is self._delivered:
            self._failed(self._delivered, error, again)


class Inbox:
    """The messages that were delivered and not finished."""

    def __init__(self, finished: Callable[[int], None]) -> None:
        """Begin empty; ``finished`` stores that the message with a number is finished."""
        self.unread_bytes = 0
        """Payload bytes of all held messages."""
        self.has_streams = False
        """Whether the application uses `messages()`."""
        self._finished = finished
        self._held: OrderedDict[int, Delivered] = OrderedDict()
        self._unread: OrderedDict[int, Delivered] = OrderedDict()
        self._unclaimed: OrderedDict[int, Delivered] = OrderedDict()
        self._postponed: set[int] = set()
        """The numbers of held messages that no reader has and that are handed over again later."""
        self._coming: dict[int, int] = {}
        """Payload bytes of the messages that the store still writes, by number: they take up room already."""
        self._coming_bytes = 0
        self._ephemeral = 0
        self._changed = asyncio.Event()
        self._ended = False
        self._failure: BaseException | None = None
        self._streams: WeakSet[MessageStream] = WeakSet()

    def __len__(self) -> int:
        """Return how many messages are not finished."""
        return len(self._held)

    def restart(self) -> None:
        """Forget all messages, but not the readers; the caller puts what the store holds."""
        for messages in (self._held, self._unread, self._unclaimed):
            messages.clear()
        self._coming.clear()
        self._postponed.clear()
        self.unread_bytes = self._coming_bytes = 0
        self._failure = None

    def stream(self) -> MessageStream:
        """Return unread messages as an async iterator."""
        self.has_streams = True
        stream = MessageStream(self)
        self._streams.add(stream)
        return stream

    def unclaimed(self) -> tuple[Delivered, ...]:
        """Return the messages that no handler and no stream of events got."""
        return tuple(self._unclaimed.values())

    def claimed(self, number: int | None) -> None:
        """Note that handlers or streams of events get a message."""
        if number is not None:
            self._unclaimed.pop(number, None)

    def expect(self, number: int, message: MessageReceived) -> None:
        """Keep room for a message that is put as soon as it is durable."""
        self._coming[number] = len(message.payload)
        self._coming_bytes += len(message.payload)

    def put(self, delivered: Delivered) -> None:
        """Hold a message until it is finished."""
        key = delivered.number
        self._coming_bytes -= 0 if key is None else self._coming.pop(key, 0)
        if key is None:
            if not self.has_streams:
                return
            self._ephemeral -= 1
            key = self._ephemeral
        else:
            self._held[key] = delivered
            self.unread_bytes += len(delivered.message.payload)
            self._unclaimed[key] = delivered
        # Only a message of an earlier start may be in hand already.
        if not (delivered.message.redelivered and self._is_in_hand(key)):
            self._unread[key] = delivered
            self.wake()

    def _is_in_hand(self, key: int) -> bool:
        return any(stream.in_hand is not None and stream.in_hand.number == key for stream in self._streams)

    def held(self, number: int | None) -> Delivered | None:
        """Return the held message with a number."""
        return None if number is None else self._held.get(number)

    def postpone(self, message: MessageReceived) -> Delivered | None:
        """Take a held message back from its reader, which can no longer finish it; return what `resume` takes.

        None if the message is not held.
        """
        for number, delivered in self._held.items():
            if delivered.message is message:
                self._held[number] = later = Delivered(number, replace(message, redelivered=True))
                self._postponed.add(number)
                for stream in self._streams:
                    if stream.in_hand is delivered:
                        stream.in_hand = None
                return later
        return None

    def resume(self, delivered: Delivered) -> None:
        """Make a postponed message unread again."""
        number = delivered.number
        if number is not None and self.held(number) is delivered:
            self._postponed.discard(number)
            self._unread[number] = self._unclaimed[number] = delivered
            self.wake()

    def finish(self, number: int | None) -> None:
        """Drop a message that the application has finished, and store that."""
        if number is None:
            return
        if self.drop(number):
            self._finished(number)

    def drop(self, number: int) -> bool:
        """Drop a message; return whether it was held."""
        delivered = self._held.pop(number, None)
        if delivered is None:
            return False
        self.unread_bytes -= len(delivered.message.payload)
        self._postponed.discard(number)
        self._unread.pop(number, None)
        self._unclaimed.pop(number, None)
        self.wake()
        return True

    def finish_message(self, message: MessageReceived) -> bool:
        """Finish a message that this or an earlier start handed over; return whether it was held.

        A postponed message stays.
        """
        for number, delivered in self._held.items():
            if delivered.message is message or _first_time(delivered.message) == _first_time(message):
                if number not in self._postponed:
                    self.finish(number)
                return True
        return False

    async def next(self) -> Delivered | None:
        """Wait for the next message that no stream has taken; return None when the channel is closed.

        Unread messages of a closed channel come again at its next start, because they cannot be finished any more.
        """
        while True:
            if self._failure is not None:
                raise copy_of(self._failure)
            if self._ended:
                return None
            if self._unread:
                return self._unread.popitem(last=False)[1]
            await self._changed.wait()

    async def changed(self) -> None:
        """Wait until a message comes or is finished, or the channel closes."""
        await self._changed.wait()

    @property
    def count(self) -> int:
        """The number of messages that are held, or are being written: a slow disk must not let in more meanwhile."""
        return len(self._held) + len(self._coming)

    @property
    def count_bytes(self) -> int:
        """The payload bytes of these messages."""
        return self.unread_bytes + self._coming_bytes

    def finish_in_hand(self) -> None:
        """Finish all messages that streams have taken, including streams that no longer exist."""
        for number in [each for each in self._held if each not in self._unread and each not in self._postponed]:
            self.finish(number)

    def fail(self, failure: BaseException) -> None:
        """Raise an error in all streams, until the channel is started again."""
        self._failure = failure
        self.wake()

    def end(self) -> None:
        """End all streams."""
        self._ended = True
        self.wake()

    def wake(self) -> None:
        """End all waits that have begun: streams and `changed` look again."""
        self._changed.set()
        self._changed.clear()


def _first_time(message: MessageReceived) -> MessageReceived:
    return replace(message, redelivered=False)


class MessageStream:
    """An async iterator over received messages, and an async context manager that finishes the last one.

    If a channel has several streams, each message goes to one of them.
    """

    def __init__(self, inbox: Inbox) -> None:
        self.in_hand: Delivered | None = None
        """The message that was returned last, if it is not finished."""
        self._binding = LoopBinding("the loop over messages")
        self._inbox = inbox

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageReceived:
        """Finish the previous message, and wait for the next one."""
        self._binding.check()
        self.finish()
        delivered = await self._inbox.next()
        if delivered is None:
            raise StopAsyncIteration
        self.in_hand = delivered
        return delivered.message

    def finish(self) -> None:
        """Finish the message that was returned last."""
        if self.in_hand is not None:
            self._inbox.finish(self.in_hand.number)
            self.in_hand = None

    async def __aenter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the last message, unless the block raised."""
        if kind is None:
            self.finish()
