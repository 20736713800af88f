"""The application of a participant: a small program on a `ReliableChannel`, as users write them.

It keeps a durable list of the messages to send (`Wish`). Each life opens the channel with the store of the previous
life. It repeats the sends that were not accepted, under the same request id, and awaits the receipts of all sends
without a result. A life ends when it is killed, or when the channel fails.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Final

from fairway.channel.creation import create_reliable_channel
from fairway.channel.reliable_channel import ReliableChannel
from fairway.encryption import Encryption
from fairway.errors import ChannelClosedError, ConfigurationError, DeliveryFailedError, StorageError
from fairway.events import EVENT_NAMES, MessageReceived
from fairway.identity import Identity, Members
from fairway.nodes.node import WakuNode
from fairway.options import Receive, ReliableChannelOptions
from fairway.simulation.history import History
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelArguments:
    """The arguments with which a life opens its channel."""

    node: WakuNode
    channel_id: str
    content_topic: str
    options: ReliableChannelOptions
    store: ChannelStore
    encryption: Encryption | None
    identity: Identity | None
    """The key of the participant, if participants sign."""
    members: Members | None


class Application:
    """One life of an application."""

    def __init__(
        self,
        name: str,
        arguments: ChannelArguments,
        wishes: dict[str, Wish],
        history: History,
        slow_ms: int,
        dice: Random,
    ) -> None:
        """``slow_ms`` is the mean processing time of a message."""
        self.name = name
        self.channel: ReliableChannel | None = None
        """The channel, once it has started."""
        self._arguments = arguments
        self._wishes = wishes
        self._history = history
        self._slow_ms = slow_ms
        self._dice = dice

    async def run(self) -> None:
        """Run until the channel fails; raise its error."""
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
            identity=given.identity,
            members=given.members,
            receive=Receive.LOOP if has_loop else self._take,
        )
        self.channel = channel
        for kind in EVENT_NAMES:
            if kind is not MessageReceived:
                channel.on(kind, lambda event: self._history.told(self.name, event))
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
        """Send a message unless it was accepted, and await its result."""
        wish, channel = self._wishes.get(request_id), self.channel
        if channel is None or wish is None:
            return
        try:
            if wish.is_accepted:
                receipt = channel.receipt(request_id)
            else:
                receipt = await channel.send(wish.payload, by=wish.by, request_id=request_id, deadline=wish.deadline_s)
                wish.is_accepted = True
                self._history.accepted(self.name, request_id)
            acknowledgement = await receipt.delivered()
            self._history.answered(self.name, request_id, acknowledgement.delivered_to)
        except DeliveryFailedError:
            self._history.answered(self.name, request_id, None)
        except ConfigurationError:
            self._history.forgotten(self.name, request_id)
        except (ChannelClosedError, StorageError):
            # The next life continues it.
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
        self._history.received(self.name, message)
        if self._slow_ms:
            await asyncio.sleep(self._dice.expovariate(1_000 / self._slow_ms))
