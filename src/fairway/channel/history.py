"""`HistoryMessage`: a message of the channel's past, as `ReliableChannel.history` returns it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fairway.errors import ConfigurationError
from fairway.events import MessageReceived, OrderKey
from fairway.storage.channel_store import ChannelStore, HistoryPage, OwnMessage, SendOutcome
from fairway.units import NS_PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryMessage:
    """A received or own message in the order of the channel. ``bytes(message)`` is the payload."""

    order_key: OrderKey
    """Its place. Sort by it to merge received messages (`MessageReceived.order_key`) with those of a page."""
    position: int
    """Number of messages before it in this store, including removed ones. A late message raises the positions of the
    messages after it."""
    message_id: str
    sender_id: str
    payload: bytes
    timestamp_ns: int
    """Unix nanoseconds: the time at which `send` accepted an own message, or `MessageReceived.timestamp_ns`."""
    request_id: str | None = None
    """Request id of the send of an own message; None for a received message."""
    outcome: SendOutcome | None = None
    """Outcome of the send of an own message, or that it is open. None for a received message, and if the store has
    removed the request."""
    dependencies_met: bool = True
    """False if it was delivered without a message that it depends on (`MessageReceived.dependencies_met`)."""

    def __bytes__(self) -> bytes:
        """Return the payload."""
        return self.payload

    @property
    def is_own(self) -> bool:
        """Whether this participant sent it, with this store."""
        return self.request_id is not None


def place_of(message: HistoryMessage | MessageReceived | OrderKey | None) -> OrderKey | None:
    """Return the place of a message, or the place itself; raise `ConfigurationError` for any other object."""
    if message is None or isinstance(message, OrderKey):
        return message
    if not isinstance(message, HistoryMessage | MessageReceived):
        raise ConfigurationError(
            f"before is a message of the channel or its order_key, not {type(message).__name__}: {message!r:.100}"
        )
    if message.order_key is None:
        raise ConfigurationError("an ephemeral message has no place in the channel: give one of another kind")
    return message.order_key


def messages_of(page: HistoryPage, sender_id: str, store: ChannelStore) -> Iterator[HistoryMessage]:
    """Yield the messages of a page of a store, which belongs to a sender."""
    for position, (key, message) in enumerate(page.messages, page.first_position):
        if isinstance(message, OwnMessage):
            request = store.request(message.request_id)
            yield HistoryMessage(
                order_key=key,
                position=position,
                message_id=message.message_id,
                sender_id=sender_id,
                payload=message.payload,
                timestamp_ns=message.accepted_at_ms * NS_PER_MS,
                request_id=message.request_id,
                outcome=None if request is None else request.outcome,
            )
        else:
            yield HistoryMessage(
                order_key=key,
                position=position,
                message_id=message.message_id,
                sender_id=message.sender_id,
                payload=message.payload,
                timestamp_ns=message.timestamp_ns,
                dependencies_met=message.dependencies_met,
            )
