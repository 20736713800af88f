"""The application of a participant: a small program on a `ReliableChannel`, as users write them.

It keeps a durable list of the messages that it wants to send (`Wish`). Each life opens the channel with the store of
the life before, sends again what was not accepted under the same request id, and awaits the receipts of all sends
without a result. It ends when it is killed, or when the channel fails.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from fairway.channel.creation import create_reliable_channel
from fairway.channel.reliable_channel import ReliableChannel
from fairway.encryption import Encryption
from fairway.errors import ChannelClosedError, ConfigurationError, DeliveryFailedError, StorageError
from fairway.events import EVENT_NAMES, Event, MessageReceived
from fairway.nodes.node import WakuNode
from fairway.options import Receive, ReliableChannelOptions
from fairway.storage.channel_store import ChannelStore

_CHECKED_S: Final = 5.0
"""Interval at which a program that reads by handlers checks whether its channel runs."""


@dataclass(slots=True, kw_only=True)
class Wish:
    """A message that an application wants to send."""

    payload: bytes
    by: frozenset[str]
    """Participants that must acknowledge it; none: any participant."""
    deadline_s: float | None = None
    is_accepted: bool = False


class Witness(Protocol):
    """Receives what happens at the side of the application."""

    def told(self, name: str, event: Event) -> None:
        """Note an event."""

    def received(self, name: str, message: MessageReceived) -> None:
        """Note a message that was handed over."""

    def accepted(self, name: str, request_id: str) -> None:
        """Note that ``send`` returned."""

    def answered(self, name: str, request_id: str, delivered_to: tuple[str, ...] | None) -> None:
        """Note the result of a receipt: the recipients, or None for a failure."""

    def forgotten(self, name: str, request_id: str) -> None:
        """Note that a channel does not know a send that it had accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelArguments:
    """What a life opens its channel with."""

    node: WakuNode
    channel_id: str
    content_topic: str
    options: ReliableChannelOptions
    store: ChannelStore
    encryption: Encryption | None


class Application:
    """One life of an application."""

    def __init__(
        self,
        name: str,
        arguments: ChannelArguments,
        wishes: dict[str, Wish],
        witness: Witness,
        slow_ms: int,
        dice: Random,
    ) -> None:
        """``slow_ms`` is the mean time that it takes over a message."""
        self.name = name
        self.channel: ReliableChannel | None = None
        """The channel, once it has started."""
        self._arguments = arguments
        self._wishes = wishes
        self._witness = witness
        self._slow_ms = slow_ms
        self._dice = dice

    async def run(self) -> None:
        """Live until the channel fails; raises what it fails with."""
        given = self._arguments
        has_loop = self._dice.random() < 0.5
        channel = await create_reliable_channel(
            given.node,
            given.channel_id,
            self.name,
            given.content_topic,
            options=given.options,
            store=given.store,
            encryption=given.encryption,
            receive=Receive.LOOP if has_loop else self._take,
        )
        self.channel = channel
        for kind in EVENT_NAMES:
            if kind is not MessageReceived:
                channel.on(kind, lambda event: self._witness.told(self.name, event))
        following = [asyncio.ensure_future(self.follow(request_id)) for request_id in self._wishes]
        if has_loop:
            async for message in channel:
                await self._take(message)
        else:
            while channel.is_started():  # noqa: ASYNC110 - no event tells a program with handlers that a channel failed
                await asyncio.sleep(_CHECKED_S)
        for task in following:
            await task
        channel.status  # noqa: B018 - raises why the channel does not run

    async def follow(self, request_id: str) -> None:
        """Send a message that is wished for, unless that was accepted, and await its result."""
        wish, channel = self._wishes.get(request_id), self.channel
        if channel is None or wish is None:
            return
        try:
            if wish.is_accepted:
                receipt = channel.receipt(request_id)
            else:
                receipt = await channel.send(wish.payload, by=wish.by, request_id=request_id, deadline=wish.deadline_s)
                wish.is_accepted = True
                self._witness.accepted(self.name, request_id)
            acknowledgement = await receipt.delivered()
            self._witness.answered(self.name, request_id, acknowledgement.delivered_to)
        except DeliveryFailedError:
            self._witness.answered(self.name, request_id, None)
        except ConfigurationError:
            self._witness.forgotten(self.name, request_id)
        except (ChannelClosedError, StorageError):
            # The next life goes on with it.
            return
        self._wishes.pop(request_id, None)

    async def send_ephemeral(self, payload: bytes) -> None:
        """Send an ephemeral message, if the channel runs."""
        if self.channel is not None:
            try:
                await self.channel.send_ephemeral(payload)
            except (ChannelClosedError, StorageError):
                return

    async def _take(self, message: MessageReceived) -> None:
        self._witness.received(self.name, message)
        if self._slow_ms:
            await asyncio.sleep(self._dice.expovariate(1_000 / self._slow_ms))
