"""`ChannelStore`: the interface of stores for the state of a channel.

A channel submits `Write` objects in order. A store makes each durable, whole or not at all, and calls back; only then
the channel carries out the effects that depend on it. A store has one process, one channel and one sender.

A store keeps the rows of the protocol's state (`fairway.protocol.journal`), and received and own messages in the order
of the channel. It keeps the inbox: the received messages that the application has not finished. It keeps the requests,
so that a send can be repeated and looked up. A store on a disk also keeps the trace: the events about each message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple, Self

from msgspec import Struct

from fairway.errors import ConfigurationError, StorageError
from fairway.events import DeliveryError, Event, MessageReceived, MessageSetAside, OrderKey
from fairway.protocol.effects import Change
from fairway.type_checks import check_type
from fairway.wire.file_message import file_header

KEPT_MESSAGES: Final = 10_000
"""Default number of messages that a store keeps for the application to read again."""
KEPT_MESSAGE_BYTES: Final = 67_108_864
"""Default size of their payloads."""
_NEW_SHARE: Final = 8
"""Old messages are removed after new ones of one part in `_NEW_SHARE` of a bound."""
_NEW_MESSAGES: Final = 100
_NEW_BYTES: Final = 1_048_576
"""Old messages are removed after at least `_NEW_MESSAGES` new ones, or `_NEW_BYTES` of them."""

NUMBERS_PER_OPENING: Final = 1 << 32
"""Message numbers that each opening of a store reserves."""


class Bounds(NamedTuple):
    """Bounds on the finished and own messages of a store; with 0 they are removed soon."""

    messages: int
    message_bytes: int

    def check(self) -> Self:
        """Return the bounds; raise `ConfigurationError` for one that cannot be."""
        for name, bound in (("kept_messages", self.messages), ("kept_message_bytes", self.message_bytes)):
            check_type(name, bound, int)
            if bound < 0:
                raise ConfigurationError(f"{name} must be at least 0, not {bound}")
        return self

    def is_time_to_remove(self, new_messages: int, new_bytes: int) -> bool:
        """Return whether to remove messages beyond the bounds, by the new ones since the last removal."""
        return new_messages > max(_NEW_MESSAGES, self.messages // _NEW_SHARE) or (
            new_bytes > max(_NEW_BYTES, self.message_bytes // _NEW_SHARE)
        )

    def are_exceeded(self, messages: int, message_bytes: int) -> bool:
        """Return whether this number of messages, or of their bytes, is beyond the bounds."""
        return messages > self.messages or message_bytes > self.message_bytes


class SendOutcome(Enum):
    """The outcome of a request, or that it is open. A failed request may be delivered later."""

    OPEN = "open"
    DELIVERED = "delivered"
    FAILED = "failed"


class StoredRequest(Struct, frozen=True, kw_only=True):
    """One call of `send`."""

    request_id: str
    message_id: str
    size_bytes: int
    """Size of the payload."""
    accepted_at_ms: int
    outcome: SendOutcome = SendOutcome.OPEN
    ended_at_ms: int | None = None
    delivered_to: tuple[str, ...] = ()
    failure: DeliveryError | None = None
    """The failure of a failed request; ``delivered_to`` is then empty."""
    is_settled: bool = False
    """Whether the application has noted the outcome (`ReliableChannel.settle`)."""
    file_header: bytes = b""
    """Header of a file, a manifest or a part (`file_header`)."""
    number: int | None = None
    """The number of the message; a repeated send has the same number."""
    order_key: OrderKey | None = None
    """The place of the message."""


class OwnMessage(Struct, frozen=True, kw_only=True):
    """The content of a send."""

    request_id: str
    message_id: str
    payload: bytes
    accepted_at_ms: int


class MessagePlace(NamedTuple):
    """The place of an own message. It changes when the message is sent."""

    number: int
    size_bytes: int
    """Size of its payload."""
    order_key: OrderKey
    earlier: OrderKey | None = None
    """The place that it had before."""


def placement_of(number: int, message: MessageReceived) -> MessagePlace:
    """Return the place of a received message."""
    return MessagePlace(number, len(message.payload), message.order_key or OrderKey(0, ""))


class HistoryPage(NamedTuple):
    """Some messages of a channel, in their order."""

    first_position: int
    """Number of messages before them, including those that were removed."""
    messages: tuple[tuple[OrderKey, MessageReceived | OwnMessage], ...]


class TracePoint(Struct, frozen=True, kw_only=True):
    """An event about a message, and when it happened."""

    at_ms: int
    event: Event
    """A store returns a `MessageReceived` without its payload, of which ``size_bytes`` has the size.

    If the message is a file, or a manifest or a part of one, the payload is its header, else empty. The inbox has the
    whole payload until the application has finished the message."""
    size_bytes: int | None = None

    @property
    def file_header(self) -> bytes:
        """Header of a received file, manifest or part; empty for other events."""
        return self.event.payload if isinstance(self.event, MessageReceived) else b""

    def names(self, identifier: str) -> bool:
        """Return whether the event names a request id, message id or SDS message id."""
        single = (getattr(self.event, field, None) for field in ("request_id", "message_id", "sds_id"))
        return bool(identifier) and (identifier in single or identifier in getattr(self.event, "sds_ids", ()))


def without_payload(point: TracePoint) -> TracePoint:
    """Return a trace point as a store keeps it: of a received message, the size and the header of a file."""
    event = point.event
    if not isinstance(event, MessageReceived) or not event.payload:
        return point
    size_bytes = len(event.payload) if point.size_bytes is None else point.size_bytes
    return TracePoint(
        at_ms=point.at_ms, event=replace(event, payload=file_header(event.payload)), size_bytes=size_bytes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """The failed attempts to handle a message of the inbox."""

    number: int
    attempts: int
    set_aside: MessageSetAside | None = None
    """The event, once the message is set aside."""


class Write(Struct, frozen=True, kw_only=True):
    """Changes that become durable together."""

    changes: tuple[Change, ...] = ()
    delivered: tuple[tuple[int, MessageReceived], ...] = ()
    """New messages of the inbox, with growing numbers."""
    finished: tuple[int, ...] = ()
    """Numbers of messages removed from the inbox."""
    sent: tuple[tuple[int, OwnMessage], ...] = ()
    """New own messages, with numbers from the same series; ``placed`` has their places."""
    placed: tuple[MessagePlace, ...] = ()
    """Places of own messages."""
    handling: tuple[Handling, ...] = ()
    """Failed attempts, which replace the earlier entry of the same number."""
    requests: tuple[StoredRequest, ...] = ()
    """New requests, and new states of known ones."""
    trace: tuple[TracePoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The stored state of a channel."""

    changes: tuple[Change, ...]
    """The rows for `Stack.restore`; empty for a new channel."""
    inbox: tuple[tuple[int, MessageReceived], ...]
    """Messages neither finished nor set aside, in the order of delivery."""
    handling: tuple[Handling, ...]
    """Failed attempts, by ascending number."""
    first_number: int
    """The first unused message number."""


class ChannelStore(ABC):
    """Keeps one channel of one sender."""

    @abstractmethod
    def open(self, channel_id: str, sender_id: str, content_topic: str) -> Stored:
        """Open the store for a channel, create it if it does not exist, and return its state.

        Raises `StoreLockedError`, `StoreMismatchError`, `StoreVersionError`, `StoreCorruptError`,
        `StorePathError` or `StoreFullError`.
        """

    def follow(self, snapshot: Callable[[], tuple[Change, ...]]) -> bool:
        """Return whether the store calls ``snapshot`` at its next `open` to get the rows of the state.

        Then writes have no rows and no trace points. Only a store that ends with the process can do that.
        """
        del snapshot
        return False

    @abstractmethod
    def submit(self, write: Write, done: Callable[[StorageError | None], None], *, hurry: bool = True) -> None:
        """Make a write durable, then call ``done`` with None, or with an error; both in the order of the calls.

        ``done`` may be called before `submit` returns, or from another thread. After an error no later write becomes
        durable; the failed one may be durable or not, as after a failed fsync. Then close the store and open it again.

        Without ``hurry`` the store may wait a moment for later writes, and commit them together.
        """

    @abstractmethod
    def request(self, request_id: str) -> StoredRequest | None:
        """Return a request, open or ended; None if it is unknown. The store removes the oldest ended requests.

        Submitted writes count, even if not yet durable. Can be called from any thread.
        """

    @abstractmethod
    def message(self, number: int) -> MessageReceived | None:
        """Return a message of the inbox, set aside or not; None if the number is unknown.

        Submitted writes count, even if not yet durable. Can be called from any thread.
        """

    @abstractmethod
    def history(self, before: OrderKey | None, limit: int) -> HistoryPage:
        """Return the last messages before a key, or at the end of the channel, at most ``limit``.

        Only durable writes count. Can be called from any thread, and takes milliseconds.
        """

    @abstractmethod
    def close(self) -> None:
        """Complete the writes under way, and close the store. Can be called twice; the store can be opened again.

        Must not be called from ``done``.
        """
