"""Messages between delivery by the protocol and the end of their handling by the application.

The store keeps a message until the application has finished it; after a crash the channel hands it over again. A
channel receives in one of three ways, chosen when it is created (`fairway.options.Receive`). A message is finished

* a loop, ``async for message in channel``: when the loop asks for the next message, or when the ``async with`` around
  the channel ends without an exception;
* a handler: when the handler has returned (for a handler that raises, see `fairway.channel.handling`);
* events: when the loop over `ReliableChannel.events` asks for the next event.

In all three, ``finish`` finishes a message at once. Messages that arrive before the first loop wait for it. The number
of a message is unique in its store and never changes. Every start hands over all unfinished messages again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Final, Self
from weakref import WeakSet

from msgspec import Struct

from fairway.errors import copy_of
from fairway.events import MessageReceived
from fairway.loop_binding import LoopBinding
from fairway.waiters import Waiters

_MAX_EPHEMERAL: Final = 1_000
"""Largest number of ephemeral messages that wait for a slow reader; further ones are dropped."""


READING_THREAD: Final[ContextVar[int | None]] = ContextVar("READING_THREAD", default=None)
"""The thread of `fairway.blocking` for which a task of the event loop runs."""


def reader() -> object:
    """Return what runs the current code: the thread of `fairway.blocking`, or else the task."""
    return READING_THREAD.get() or asyncio.current_task()


class Delivered(Struct, frozen=True, eq=False):
    """A received message and its number in the inbox; None for an ephemeral one, which is not kept."""

    number: int | None
    message: MessageReceived


class Inbox:
    """The messages that were delivered and not finished."""

    def __init__(self, finished: Callable[[int], None], received: Callable[[MessageReceived], None] | None) -> None:
        """Begin empty; ``finished`` stores that the message with a number is finished."""
        self.received = received
        """Called with each message that a loop of the application gets, if it is measured."""
        self.unread_bytes = 0
        """Payload bytes of all held messages."""
        self.handled: Delivered | None = None
        """The message that the application's handler has."""
        self._finished = finished
        self._held: OrderedDict[int, Delivered] = OrderedDict()
        self._unread: OrderedDict[int, Delivered] = OrderedDict()
        """The messages that no reader has taken; ephemeral ones have negative keys."""
        self._aside: set[int] = set()
        """The numbers of held messages that no reader gets: requests, until they are answered."""
        self._postponed: set[int] = set()
        """The numbers of held messages that no reader has and that are handed over again later."""
        self._coming: dict[int, MessageReceived] = {}
        """The messages that the store still writes, by number: they take up room already."""
        self._coming_bytes = 0
        self._ephemeral = 0
        self._ephemeral_unread = 0
        self._waiters = Waiters()
        self._failure: BaseException | None = None
        """The exception that the loops raise, if they have ended."""
        self._loops: WeakSet[MessageLoop] = WeakSet()
        self._watcher: Callable[[], None] | None = None

    def __len__(self) -> int:
        """Return how many messages are not finished."""
        return len(self._held)

    def restart(self) -> None:
        """Remove all messages, but not the readers; the caller then puts the messages of the store."""
        self._held.clear()
        self._unread.clear()
        self._coming.clear()
        self._postponed.clear()
        self._aside.clear()
        self.unread_bytes = self._coming_bytes = self._ephemeral_unread = 0
        self._failure = None

    def loop(self) -> MessageLoop:
        """Return a loop over unread messages."""
        loop = MessageLoop(self)
        self._loops.add(loop)
        return loop

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call a function whenever a loop may find a message, or an error."""
        self._watcher = watcher

    def expect(self, number: int, message: MessageReceived) -> None:
        """Keep room for a message that is put as soon as it is durable."""
        self._coming[number] = message
        self._coming_bytes += len(message.payload)

    def put(self, delivered: Delivered, *, aside: bool = False) -> None:
        """Hold a message until it is finished; no reader gets it if it is put ``aside``."""
        key = delivered.number
        if key is None:
            if self._ephemeral_unread >= _MAX_EPHEMERAL:
                return
            self._ephemeral -= 1
            self._ephemeral_unread += 1
            key = self._ephemeral
        else:
            if self._coming.pop(key, None) is not None:
                self._coming_bytes -= len(delivered.message.payload)
            self._held[key] = delivered
            self.unread_bytes += len(delivered.message.payload)
        if aside and delivered.number is not None:
            self._aside.add(delivered.number)
            return
        # Only a message of an earlier start may be in hand already.
        if not (delivered.message.redelivered and self._is_in_hand(key)):
            self._unread[key] = delivered
            self.wake()

    def _is_in_hand(self, key: int) -> bool:
        in_hand = [self.handled, *(loop.in_hand for loop in self._loops)]
        return any(each is not None and each.number == key for each in in_hand)

    def held(self, number: int | None) -> Delivered | None:
        """Return the held message with a number."""
        return None if number is None else self._held.get(number)

    def waits(self, number: int) -> bool:
        """Return whether a message is held, and not postponed."""
        return number in self._held and number not in self._postponed

    def take(self) -> Delivered | None:
        """Return the next message that no reader has taken, and note that it is taken; None if there is none."""
        if not self._unread:
            return None
        key, delivered = self._unread.popitem(last=False)
        self._ephemeral_unread -= key < 0
        return delivered

    def postpone(self, number: int) -> Delivered | None:
        """Take a held message back from its reader, which can no longer finish it; return the argument for `resume`.

        None if the message is not held.
        """
        delivered = self._held.get(number)
        if delivered is None:
            return None
        later = Delivered(number, replace(delivered.message, redelivered=True))
        self._held[number] = later
        self._postponed.add(number)
        for loop in self._loops:
            if loop.in_hand is delivered:
                loop.in_hand = None
        return later

    def resume(self, delivered: Delivered) -> bool:
        """Make a postponed message unread again; return False if it was finished or handed over meanwhile."""
        number = delivered.number
        if number is None or self.held(number) is not delivered:
            return False
        self._postponed.discard(number)
        self._unread[number] = delivered
        self.wake()
        return True

    def finish(self, number: int | None) -> None:
        """Drop a message that the application has finished, and store that; a postponed one stays."""
        if number is not None and self.waits(number) and self.drop(number):
            self._finished(number)

    def drop(self, number: int) -> bool:
        """Drop a message; return whether it was held."""
        delivered = self._held.pop(number, None)
        if delivered is None:
            return False
        self.unread_bytes -= len(delivered.message.payload)
        self._postponed.discard(number)
        self._aside.discard(number)
        self._unread.pop(number, None)
        self.wake()
        return True

    def number_of(self, message: MessageReceived) -> int | None:
        """Return the number of a held message that this or an earlier start handed over; None if it is not held."""
        first_time = replace(message, redelivered=False)
        for number, delivered in self._held.items():
            if delivered.message is message or replace(delivered.message, redelivered=False) == first_time:
                return number
        return None

    async def next(self) -> Delivered:
        """Wait for the next message that no reader has taken.

        Raises `StopAsyncIteration` when the channel is closed. It hands its unread messages over at its next start,
        because they cannot be finished any more.
        """
        while True:
            self.check()
            delivered = self.take()
            if delivered is not None:
                return delivered
            await self._waiters.wait()

    def check(self) -> None:
        """Raise the error that the loops raise, if they have ended."""
        if self._failure is not None:
            raise copy_of(self._failure)

    async def changed(self) -> None:
        """Wait until a message is put or finished, or the channel closes."""
        await self._waiters.wait()

    @property
    def count(self) -> int:
        """Number of messages that are held or still being written, so that a slow disk admits no further ones."""
        return len(self._held) + len(self._coming)

    @property
    def count_bytes(self) -> int:
        """The payload bytes of these messages."""
        return self.unread_bytes + self._coming_bytes

    def unfinished(self) -> dict[int, MessageReceived]:
        """Return the messages that are held or still being written, by number, in the order of delivery."""
        return {number: delivered.message for number, delivered in self._held.items()} | self._coming

    def in_hand_of_caller(self) -> set[int | None]:
        """Return the numbers of the messages that loops have returned to the calling task, or to its thread."""
        return {loop.in_hand.number for loop in self._loops if loop.in_hand is not None and loop.reader == reader()}

    def finish_in_hand(self) -> None:
        """Finish all messages that loops have taken, including loops that no longer exist."""
        for number in [each for each in self._held if each not in self._unread and each not in self._aside]:
            self.finish(number)

    def end(self, failure: BaseException | None = None) -> None:
        """End all loops, or raise an error in them until the channel is started again."""
        self._failure = failure or StopAsyncIteration()
        self.wake()

    def wake(self) -> None:
        """End all waits that have begun: loops and `changed` look again."""
        self._waiters.wake()
        if self._watcher is not None:
            self._watcher()


class MessageLoop:
    """One loop over received messages; if a channel has several, each message goes to one of them."""

    def __init__(self, inbox: Inbox) -> None:
        self.in_hand: Delivered | None = None
        """The message that was returned last, if it is not finished."""
        self.inbox = inbox
        self.reader: object = None
        """The task or thread that got it (`reader`)."""
        self._binding = LoopBinding("the loop over messages")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageReceived:
        """Finish the previous message, and wait for the next one."""
        self._binding.check()
        self.finish()
        return self._hand(await self.inbox.next())

    def finish(self) -> None:
        """Finish the message that was returned last."""
        if self.in_hand is not None:
            self.inbox.finish(self.in_hand.number)
            self.in_hand = None

    def take(self) -> MessageReceived | None:
        """Return the next message if there is one."""
        self.inbox.check()
        delivered = self.inbox.take()
        return None if delivered is None else self._hand(delivered)

    def _hand(self, delivered: Delivered) -> MessageReceived:
        self.in_hand, self.reader = delivered, reader()
        if self.inbox.received is not None:
            self.inbox.received(delivered.message)
        return delivered.message
