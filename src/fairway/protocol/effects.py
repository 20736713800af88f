"""What the protocol wants done outside: effects, as values.

Every operation of the stack returns a tuple of effects, to be carried out in order. `Persist` always comes first, so
that whatever leaves was counted and recorded before it left. None of them needs an answer at once; the answers that
some have are calls on the stack (`Stack.published`, `Stack.proven`, `Stack.cipher_done`, and `Stack.receive_stored` for
what a store query finds).

Inside the protocol each function that has effects returns them as a list of its own, and its caller joins the lists:
effects stand in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from fairway.events import Event, OrderKey, SendErrorReason
from fairway.protocol.journal import Row
from fairway.wire.waku_message import WakuMessage


class Purpose(Enum):
    """Why something is transmitted; `bandwidth` by purpose is the first thing an operator asks for."""

    CONTENT = "content"
    RETRY = "retry"
    REPAIR = "repair"
    SYNC = "sync"
    EPHEMERAL = "ephemeral"


class Change(NamedTuple):
    """One row to put, or to delete if ``row`` is None."""

    table: str
    key: str
    row: Row | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """Make these changes durable before anything that follows."""

    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prove:
    """Prove that a transmission is within the RLN rate limit, and call `Stack.proven` with the token."""

    token: int
    signal: bytes
    """What the proof is about (`fairway.protocol.ratelimit.rln_signal`)."""
    at_ms: int
    """Time in Unix milliseconds, whose epoch the proof is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Hand these bytes to the network, and call `Stack.published` with the token when it answered."""

    token: int
    purpose: Purpose
    pubsub_topic: str
    message: WakuMessage
    encoded: bytes
    """The message's bytes. Send these very bytes: their hash is what others will ask a store for."""
    message_hash: bytes
    sds_id: str


class NodeAnswer(NamedTuple):
    """What the node said to a `Publish`."""

    accepted: bool
    """Whether it took the message."""
    permanent: bool = False
    """Whether it never will."""
    too_large: bool = False
    """Whether that is because of the size of the message."""
    too_many: bool = False
    """Whether it asks for less (429)."""
    detail: str = ""
    """What it said in words."""

    @property
    def send_error(self) -> SendErrorReason:
        """Why a send ends that the node never will take."""
        return SendErrorReason.MESSAGE_TOO_LARGE if self.too_large else SendErrorReason.REJECTED


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStore:
    """Ask a store node, and feed what it finds to `Stack.receive_stored`.

    Either by hash; or, where hints are missing or led nowhere, by time on the channel's content topic: then newest
    first, until a page after which `Stack.history_heard` has grown and nothing is missing; or for the time away.
    """

    message_hashes: tuple[bytes, ...] = ()
    tries: int = 0
    """How often these messages were asked for by hash, and not brought: what was asked for least often goes first."""
    start_ns: int | None = None
    end_ns: int | None = None
    catch_up: bool = False
    """Whether it asks for the time away: oldest first, to the end. After each page that was taken in whole
    (`Stack.was_turned_away`) call `Stack.catch_up_progressed`, and at the end `Stack.caught_up` with ``end_ns``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitCipher:
    """Await what an asynchronous encryption hook returned, and call `Stack.cipher_done` with its result."""

    token: int
    awaitable: Awaitable[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit:
    """Tell the application."""

    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The first segment of a send has its place in the channel."""

    request_id: str
    order_key: OrderKey


Effect = Persist | Prove | Publish | QueryStore | AwaitCipher | Emit | Placed


def emit(*events: Event) -> list[Effect]:
    """Return the effects that tell the application of events."""
    return [Emit(event=event) for event in events] if events else []
