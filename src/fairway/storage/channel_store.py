"""What of a channel must survive a crash, and the interface of whatever keeps it.

A channel hands over `Write` objects in order; a store makes each durable whole or not at all, and calls back when it
is. Only then does the channel let out what depends on it. One process uses a store, for one sender in one channel.

Beside the rows of the protocol's state (`fairway.protocol.journal`) it keeps three things that the protocol core does
not know of: the inbox, which is what was delivered to the application and not yet finished by it; the requests, so that
a send can be repeated safely and asked about later; and the trace, which answers "where did my message go?".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from fairway.errors import ConfigurationError, StorageError
from fairway.events import Event, MessageReceived, MessageSetAside
from fairway.protocol.effects import Change

KEPT_REQUESTS: Final = 100_000
"""How many ended requests a store remembers unless it is told otherwise."""
KEPT_TRACE_POINTS: Final = 200_000
"""How many trace points a store remembers unless it is told otherwise."""


NUMBERS_PER_OPENING: Final = 1 << 32
"""Numbers of messages that one opening of a store can give; the next opening goes on behind them."""


def check_bounds(**bounds: int) -> None:
    """See that every bound is at least 1. Raises `ConfigurationError`."""
    for name, bound in bounds.items():
        if bound < 1:
            raise ConfigurationError(f"{name} must be at least 1, not {bound}")


class Outcome(Enum):
    """How a send ended."""

    OPEN = "open"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRequest:
    """One send, by its request id."""

    request_id: str
    message_id: str
    size_bytes: int
    """Of the payload."""
    accepted_at_ms: int
    outcome: Outcome = Outcome.OPEN
    ended_at_ms: int | None = None
    delivered_to: tuple[str, ...] = ()
    detail: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePoint:
    """An event about a message, and when it happened."""

    at_ms: int
    event: Event
    """A `MessageReceived` comes back from a store with an empty payload; its size is in ``size_bytes``."""
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """How often a message of the inbox was handed over in vain."""

    number: int
    attempts: int
    set_aside: MessageSetAside | None = None
    """Given once it is not handed over any more by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What is to become durable together."""

    changes: tuple[Change, ...] = ()
    delivered: tuple[tuple[int, MessageReceived], ...] = ()
    """New in the inbox, under ever growing numbers."""
    finished: tuple[int, ...] = ()
    """Numbers that leave the inbox."""
    handling: tuple[Handling, ...] = ()
    """Of messages in the inbox, those that handlers raised on; replaces what was known of the number."""
    requests: tuple[StoredRequest, ...] = ()
    """New ones, and new states of known ones."""
    trace: tuple[TracePoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Everything that a channel needs to go on."""

    changes: tuple[Change, ...]
    """The rows of `Stack.restore`; empty for a channel without a past."""
    inbox: tuple[tuple[int, MessageReceived], ...]
    """Delivered and neither finished nor set aside, in the order of delivery."""
    handling: tuple[Handling, ...]
    """What is known of handlers that raised, by ascending number."""
    first_number: int
    """From here on no number was ever given to a message of this store."""


class ChannelStore(ABC):
    """Keeps one channel of one sender."""

    @abstractmethod
    def open(self, channel_id: str, sender_id: str, content_topic: str) -> Stored:
        """Open the store for a channel, create it if it is not there, and return what it keeps.

        Raises `StoreLockedError`, `StoreMismatchError`, `StoreVersionError`, `StoreCorruptError` or `StoreFullError`.
        """

    @abstractmethod
    def submit(self, write: Write, done: Callable[[StorageError | None], None]) -> None:
        """Make something durable, in the order of the calls, and call ``done`` then, in that order.

        ``done`` may be called at once or from another thread. With an error, no later write became durable, and this
        one or not (an fsync that failed leaves that open): the store is of no use until it is closed and opened again.
        """

    @abstractmethod
    def request(self, request_id: str) -> StoredRequest | None:
        """Return what is known of a send, also of one that ended; the oldest ended ones are forgotten.

        Writes that were submitted count, durable yet or not. May be called from any thread.
        """

    @abstractmethod
    def message(self, number: int) -> MessageReceived | None:
        """Return a message of the inbox, set aside or not; None if there is none of that number.

        Writes that were submitted count, durable yet or not. May be called from any thread.
        """

    @abstractmethod
    def trace(self, identifier: str) -> Iterable[TracePoint]:
        """Return what happened to a message: by message id, request id or SDS id, oldest first.

        Writes that were submitted count, durable yet or not. May be called from any thread, and searches everything
        that is kept: a tenth of a second on disk, so an event loop does better to call it from another thread.
        """

    @abstractmethod
    def close(self) -> None:
        """Finish the writes under way and let go of the store. May be called twice; it can be opened again.

        Not to be called from ``done``.
        """
