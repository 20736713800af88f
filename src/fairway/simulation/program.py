"""The application of a participant: a small program on a `ReliableChannel`, as users write them.

Each life of it opens the channel with the store of the life before, reads in one of the three ways of a channel, and
ends when it is killed or when the channel fails; then the world starts it again. It passes all events and messages on
to the `Watcher` of the world.

It records the messages that it wants to send, as an application must that may crash. The next life sends again, with
the same request id, what was not accepted before, and asks the receipts of accepted sends until they have a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from fairway.channel.creation import create_reliable_channel
from fairway.channel.receipt import Receipt
from fairway.channel.reliable_channel import ReliableChannel
from fairway.errors import (
    ChannelClosedError,
    ConfigurationError,
    DeliveryFailedError,
    NodeUnavailableError,
    StorageError,
)
from fairway.events import EVENT_NAMES, Event, MessageReceived, MessageSetAside
from fairway.options import ReliableChannelOptions
from fairway.protocol.encryption import Encryption
from fairway.protocol.ratelimit import RlnProofProvider
from fairway.simulation.script import Asking
from fairway.storage.channel_store import ChannelStore
from fairway.waku.node import WakuNode

if TYPE_CHECKING:
    from random import Random

_LOOKED_AFTER_S: Final = 5.0
"""Time between two checks whether the channel still runs, for a program that reads by handlers."""
_LOOKED_AT_LATER_S: Final = 0.05
_HANDLERS: Final = 2
"""Handlers of a program that reads by handlers."""
_FAILING: Final = 0.3
_TAKEN_BACK: Final = 0.5
_IMPATIENT_AFTER_S: Final = (0.0, 0.0, 10.0, 60.0)
"""How long an application that is impatient waits before it makes a send again that is not accepted."""
_ASKED_MORE_S: Final = 120.0
"""How long after a send counts as delivered an application asks for more, at most."""
_TOLD_KINDS: Final = tuple(kind for kind in EVENT_NAMES if kind is not MessageReceived)


class Reading(Enum):
    """How a program reads."""

    MESSAGES = "messages"
    HANDLERS = "handlers"
    EVENTS = "events"


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How a program handles the messages that it receives."""

    reading: Reading = Reading.MESSAGES
    slow_ms: int = 0
    """Mean time that it takes over a message."""
    raises: float = 0.0
    """Share of messages on which its handlers raise, each time that they are called; a program that reads in a loop
    fails amid a third as many, for it has to be started again each time."""
    impatience: float = 0.0
    """Share of sends that it makes a second time before the first one is accepted."""
    is_direct: bool = False
    """Whether its handlers are plain functions, which take no time; and whether a program that reads in a loop says
    itself that it has finished with a message."""


@dataclass(slots=True, kw_only=True)
class Wish:
    """A message that an application wants to send, on its record until the send has a result."""

    payload: bytes
    count: int
    by: frozenset[str]
    is_accepted: bool = False
    more: frozenset[str] = frozenset()
    """The participants that are asked for later; perhaps none."""
    when: Asking = Asking.DELIVERED
    """When that is."""
    has_asked_more: bool = False


class Watcher(Protocol):
    """Receives what happens to programs."""

    def told(self, name: str, event: Event) -> None:
        """Note an event."""

    def received(self, name: str, message: MessageReceived) -> None:
        """Note a message that was handed over."""

    def looked_at(self, name: str, message: MessageReceived) -> None:
        """Note that a second handler handled a message, which need not get it again in the same life."""

    def finished(self, name: str, message: MessageReceived) -> None:
        """Note that a message was finished with."""

    def set_aside(self, name: str, waiting: Collection[MessageSetAside]) -> None:
        """Note the messages that a channel holds as set aside when it has started."""

    def taken_back(self, name: str, message: MessageSetAside) -> None:
        """Note that a message that was set aside is handed over again, or discarded."""

    def stopping(self, name: str) -> None:
        """Note that a program asks its channel to stop."""

    def stopped(self, name: str) -> None:
        """Note that the channel stopped, in order."""

    def resumed(self, name: str) -> None:
        """Note that a channel that was stopped is about to go on."""

    def raised(self, name: str, message: MessageReceived) -> None:
        """Note that a handler raised on a message, which so comes again."""

    def accepted(self, name: str, request_id: str) -> None:
        """Note a send that was accepted."""

    def asked(self, name: str, request_id: str, more: frozenset[str]) -> None:
        """Note that an application asks others to acknowledge a send, too; no names if it could not."""

    def answered(self, name: str, request_id: str, delivered_to: tuple[str, ...] | None) -> None:
        """Note what the receipt of a send says, of the latest that was asked of it; None if it failed."""

    def told_late(self, name: str, request_id: str) -> None:
        """Note that a receipt that knew that all of a message was sent said so only later."""

    def unknown(self, name: str, request_id: str) -> None:
        """Note that the channel no longer knows an earlier send, which it had accepted."""


class ApplicationRaised(Exception):  # noqa: N818 - what an application's own code raises is no error of ours
    """What an application raises amid a message in a world where applications do."""


class Program:
    """One life of a participant's application."""

    def __init__(
        self,
        name: str,
        watcher: Watcher,
        habits: Habits,
        dice: Random,
        wishes: dict[str, Wish],
        open_channel: Callable[[], ChannelArguments],
    ) -> None:
        """``wishes`` are the application's own record of what it sends, by request id, which every life goes on."""
        self.name = name
        self.channel: ReliableChannel | None = None
        """Once it has started."""
        self._watcher = watcher
        self._habits = habits
        self._dice = dice
        self._wishes = wishes
        self._open_channel = open_channel
        self._closing: asyncio.Task[None] | None = None
        self._following: set[asyncio.Task[None]] = set()
        self._followed: set[str] = set()
        """Of which sends somebody awaits what becomes of them."""
        self._is_paused = False
        self._is_leaving = False
        """Whether it ends its loop when it has finished with the message in hand."""
        self._left = asyncio.Event()
        self._starts = 1
        """How often its channel has started."""
        self._ended: dict[tuple[str, ...], set[bool]] = {}
        """Of the messages that one handler alone has ended well with: whether that is the second one."""

    async def run(self) -> None:
        """Live until the channel fails; raises what it fails with."""
        arguments = self._open_channel()
        if arguments.connect is not None:
            await arguments.connect()
        channel = await create_reliable_channel(
            arguments.node,
            arguments.channel_id,
            self.name,
            arguments.content_topic,
            options=replace(arguments.options, auto_start=False),
            store=arguments.store,
            encryption=arguments.encryption,
            rln=arguments.rln,
        )
        for kind in _TOLD_KINDS:
            channel.on(kind, self._told)
        if self._habits.reading is Reading.HANDLERS:
            channel.on(MessageReceived, self._dice.choice((self._look_at, self._look_at_later)))
            channel.on(MessageReceived, self._handle_at_once if self._is_direct else self._handle)
        await channel.start()
        self.channel = channel
        self._look_at_what_is_set_aside(channel)
        try:
            await self._live(channel)
        except ApplicationRaised as error:
            # As an ``async with`` around all of it does, which would do so for a program that is killed, too.
            await channel.__aexit__(type(error), error, error.__traceback__)
            raise

    @property
    def _is_direct(self) -> bool:
        return self._habits.is_direct and not self._habits.slow_ms

    def _follow_all(self) -> None:
        for request_id in self._wishes:
            if request_id not in self._followed:
                task = asyncio.ensure_future(self.follow(request_id))
                self._following.add(task)
                task.add_done_callback(self._following.discard)

    def _look_at_what_is_set_aside(self, channel: ReliableChannel) -> None:
        """Have every other message that was set aside handed over again, or discard it."""
        waiting = channel.set_aside()
        if waiting or self._habits.raises:
            self._watcher.set_aside(self.name, waiting)
        for message in waiting:
            if self._dice.random() < _TAKEN_BACK:
                self._watcher.taken_back(self.name, message)
                if self._dice.random() < _TAKEN_BACK:
                    channel.finish(message)
                else:
                    channel.hand_over_again(message)

    async def _live(self, channel: ReliableChannel) -> None:
        self._follow_all()
        if self._habits.reading is Reading.MESSAGES:
            await self._read_messages(channel)
        elif self._habits.reading is Reading.EVENTS:
            await self._read_events(channel)
        while channel.is_started() or self._is_paused:  # noqa: ASYNC110 - of a failing channel nobody is told who only has handlers
            await asyncio.sleep(_LOOKED_AFTER_S)
        if self._closing is not None:
            await self._closing
        channel.status  # noqa: B018 - raises why it does not run any more

    async def follow(self, request_id: str) -> None:
        """Send a recorded message, if the channel runs and has not accepted it yet, and await its result."""
        wish = self._wishes.get(request_id)
        if self.channel is None or wish is None:
            return
        self._followed.add(request_id)
        try:
            await self._await_end(self.channel, request_id, wish)
        finally:
            self._followed.discard(request_id)

    async def _await_end(self, channel: ReliableChannel, request_id: str, wish: Wish) -> None:
        try:
            receipt = await self._receipt(channel, request_id, wish)
            all_sent, began_s = _is_all_sent(channel, receipt), asyncio.get_running_loop().time()
            await receipt.sent()
            if all_sent and asyncio.get_running_loop().time() > began_s:
                self._watcher.told_late(self.name, request_id)
            if wish.more and wish.when is Asking.OPEN:
                await self._ask_more(channel, request_id, wish)
            delivered_to = (await receipt.delivered(count=wish.count, by=wish.by)).delivered_to
            if wish.more:
                self._watcher.answered(self.name, request_id, delivered_to)
                await asyncio.sleep(self._dice.uniform(0, _ASKED_MORE_S))
                await self._ask_more(channel, request_id, wish)
                delivered_to = (await receipt.delivered(count=wish.count, by=wish.by)).delivered_to
        except DeliveryFailedError:
            self._watcher.answered(self.name, request_id, None)
        except ConfigurationError:
            if not wish.has_asked_more:
                self._watcher.unknown(self.name, request_id)
                return
            # Of what ended in an earlier life nothing more can be asked.
            self._watcher.asked(self.name, request_id, frozenset())
            delivered_to = (await channel.receipt(request_id).delivered()).delivered_to
            self._watcher.answered(self.name, request_id, delivered_to)
        except (ChannelClosedError, StorageError):
            return
        else:
            self._watcher.answered(self.name, request_id, delivered_to)
        self._wishes.pop(request_id, None)

    async def _receipt(self, channel: ReliableChannel, request_id: str, wish: Wish) -> Receipt:
        if wish.is_accepted and not wish.has_asked_more:
            return channel.receipt(request_id)
        send = partial(channel.send, wish.payload, request_id=request_id, count=wish.count, by=wish.by)
        if self._habits.impatience and not wish.is_accepted and self._dice.random() < self._habits.impatience:
            receipt, _ = await asyncio.gather(send(), self._later(send))
        else:
            receipt = await send()
        if not wish.is_accepted:
            wish.is_accepted = True
            self._watcher.accepted(self.name, request_id)
        return receipt

    async def _later(self, send: Callable[[], Awaitable[Receipt]]) -> Receipt:
        await asyncio.sleep(self._dice.choice(_IMPATIENT_AFTER_S))
        return await send()

    async def _ask_more(self, channel: ReliableChannel, request_id: str, wish: Wish) -> None:
        # What was asked for before holds on: only what is new is said.
        wish.by, wish.more, wish.has_asked_more = wish.more, frozenset(), True
        self._watcher.asked(self.name, request_id, wish.by)
        await self._receipt(channel, request_id, wish)

    async def stop(self) -> None:
        """Close the channel, if it runs, and end then."""
        if self.channel is not None:
            self._watcher.stopping(self.name)
            self._closing = asyncio.ensure_future(self.channel.close())
            await self._closing
            self._watcher.stopped(self.name)

    async def leave(self) -> None:
        """End the loop when it has finished with the message in hand, and then the block around the channel, and end.

        What waits unread then comes in the next life.
        """
        if self.channel is not None and self._closing is None:
            self._is_leaving = True
            await self._left.wait()
            self._closing = asyncio.ensure_future(self.channel.__aexit__(None, None, None))
            await self._closing

    async def pause(self, for_s: float) -> None:
        """Stop the channel, whatever is under way in it, and let it go on after a while."""
        channel = self.channel
        if channel is None or self._is_paused or self._closing is not None or not channel.is_started():
            return
        self._is_paused = True
        try:
            self._watcher.stopping(self.name)
            await channel.stop()
            self._watcher.stopped(self.name)
            await asyncio.sleep(for_s)
            self._watcher.resumed(self.name)
            self._starts += 1
            await channel.start()
            self._look_at_what_is_set_aside(channel)
            self._follow_all()
        except (ChannelClosedError, NodeUnavailableError, StorageError):
            # Its program ends, and somebody starts it again.
            await channel.close()
        finally:
            self._is_paused = False

    async def ask_again(self, request_id: str, answers: list[tuple[str, ...] | None]) -> None:
        """Add to the answers what the receipt of an earlier send says, if the channel knows of it."""
        if self.channel is None:
            return
        try:
            answers.append((await self.channel.receipt(request_id).delivered()).delivered_to)
        except DeliveryFailedError:
            answers.append(None)
        except (ChannelClosedError, ConfigurationError, StorageError):
            return

    async def send_again(self, request_id: str, payload: bytes) -> None:
        """Send under an id that may have been used before, if the channel runs, and keep no receipt."""
        if self.channel is not None:
            with suppress(ChannelClosedError, StorageError):
                await self.channel.send(payload, request_id=request_id)

    async def send_ephemeral(self, payload: bytes) -> None:
        """Send an ephemeral message, if the channel runs."""
        if self.channel is not None:
            try:
                await self.channel.send_ephemeral(payload)
            except (ChannelClosedError, StorageError):
                return

    def _told(self, event: Event) -> None:
        self._watcher.told(self.name, event)

    async def _read_messages(self, channel: ReliableChannel) -> None:
        async with channel.messages() as messages:
            async for message in messages:
                await self.take(message)
                self._may_fail()
                self._watcher.finished(self.name, message)
                if self._habits.is_direct and not message.ephemeral and channel.is_started():
                    channel.finish(message)
                if self._is_leaving:
                    break
        self._left.set()

    async def _read_events(self, channel: ReliableChannel) -> None:
        async for event in channel.events():
            if isinstance(event, MessageReceived):
                await self.take(event)
                self._may_fail()
                self._watcher.finished(self.name, event)

    def _may_fail(self) -> None:
        if self._habits.raises and self._dice.random() < self._habits.raises * _FAILING:
            raise ApplicationRaised

    def _look_at(self, message: MessageReceived) -> None:
        """Handle a message as a second handler, which never raises."""
        self._watcher.looked_at(self.name, message)
        self._ends(message, is_second=True)

    async def _look_at_later(self, message: MessageReceived) -> None:
        """Do the same once the first handler has mostly ended."""
        began_in = self._starts
        await asyncio.sleep(_LOOKED_AT_LATER_S)
        if self._starts == began_in:
            self._look_at(message)
        else:
            # Meanwhile the channel has started again, and may have handed the message over again.
            self._ends(message, is_second=True)

    async def _handle(self, message: MessageReceived) -> None:
        await self.take(message)
        self._handled(message)

    def _handle_at_once(self, message: MessageReceived) -> None:
        self._watcher.received(self.name, message)
        self._handled(message)

    def _handled(self, message: MessageReceived) -> None:
        if self._habits.raises and self._dice.random() < self._habits.raises:
            self._watcher.raised(self.name, message)
            raise ApplicationRaised
        self._ends(message, is_second=False)

    def _ends(self, message: MessageReceived, *, is_second: bool) -> None:
        """Note that a handler ended well: when both have, the application has finished with the message."""
        ended = self._ended.setdefault(message.sds_ids, set())
        ended.add(is_second)
        if len(ended) == _HANDLERS:
            del self._ended[message.sds_ids]
            self._watcher.finished(self.name, message)

    async def take(self, message: MessageReceived) -> None:
        """Note a message, and take the time for it that a slow reader takes."""
        self._watcher.received(self.name, message)
        if self._habits.slow_ms:
            await asyncio.sleep(self._dice.expovariate(1_000 / self._habits.slow_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelArguments:
    """The arguments with which a life opens its channel."""

    node: WakuNode
    channel_id: str
    content_topic: str
    options: ReliableChannelOptions
    store: ChannelStore
    encryption: Encryption | None
    rln: RlnProofProvider | None = None
    connect: Callable[[], Awaitable[None]] | None = None
    """Connects the node, where that takes time; raises `NodeUnavailableError`."""


def is_expected(error: BaseException) -> bool:
    """Return whether a program may end with an error: its own, or a fault of disk or node that it is told of."""
    return isinstance(error, StorageError | NodeUnavailableError | ChannelClosedError | ApplicationRaised)


def _is_all_sent(channel: ReliableChannel, receipt: Receipt) -> bool:
    """Return whether a receipt of an open send names each of its segments as sent, parity, too."""
    request = channel.protocol.requests.open.get(receipt.request_id)
    return request is not None and set(range(request.segment_count)) <= set(receipt.progress.chunks_sent)
