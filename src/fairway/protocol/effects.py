"""Effects: the I/O that the protocol requests from the shell, as values.

Every operation of the stack returns a tuple of effects, and the shell carries them out in order. `Persist` is always
the first, so the state of a message is durable before the message leaves. No effect needs an answer at once. The shell
answers by calls on the stack: `Stack.published`, `Stack.proven`, `Stack.cipher_done`, and `Stack.receive_stored` with
the results of a store query.

Inside the protocol each function returns its effects as a list. The caller joins the lists, so the effects have the
order of the calls.
"""

from __future__ import annotations

from collections.abc import Awaitable
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from fairway.events import Event, OrderKey, SendErrorReason
from fairway.protocol.journal import Row
from fairway.wire.waku_message import WakuMessage


class Purpose(Enum):
    """The purpose of a transmission; statistics count transmissions and bytes by purpose."""

    CONTENT = "content"
    RETRY = "retry"
    REPAIR = "repair"
    SYNC = "sync"
    EPHEMERAL = "ephemeral"


class Change(NamedTuple):
    """One row to write, or to delete if ``row`` is None."""

    table: str
    key: str
    row: Row | None


class Persist(Struct, frozen=True, kw_only=True):
    """Make these changes durable before the next effects."""

    changes: tuple[Change, ...]


class Prove(Struct, frozen=True, kw_only=True):
    """Prove that a transmission is within the RLN rate limit, and call `Stack.proven` with the token."""

    token: int
    signal: bytes
    """The signal of the proof (`fairway.protocol.ratelimit.rln_signal`)."""
    at_ms: int
    """Time in Unix milliseconds; the proof is for its epoch."""


class Publish(Struct, frozen=True, kw_only=True):
    """Send these bytes to the node, and call `Stack.published` with the token and its answer."""

    token: int
    purpose: Purpose
    pubsub_topic: str
    message: WakuMessage
    encoded: bytes
    """The bytes of the message, to send unchanged: other participants request their hash from a store."""
    message_hash: bytes
    sds_id: str


class NodeAnswer(NamedTuple):
    """The node's answer to a `Publish`."""

    accepted: bool
    """Whether the node took the message."""
    permanent: bool = False
    """Whether the node will never take the message."""
    too_large: bool = False
    """Whether the message is too large for the node."""
    too_many: bool = False
    """Whether the node refused it for too many requests (429)."""
    detail: str = ""
    """The text of the answer."""

    @property
    def send_error(self) -> SendErrorReason:
        """The reason for the end of the send, if the refusal is permanent."""
        return SendErrorReason.MESSAGE_TOO_LARGE if self.too_large else SendErrorReason.REJECTED


class QueryStore(Struct, frozen=True, kw_only=True):
    """Query a store node, and pass the results to `Stack.receive_stored`.

    A query is one of three kinds:

    - by hash;
    - by time on the channel's content topic, if hints are missing or wrong: newest first, until `Stack.history_heard`
      has grown after a page and no message is missing;
    - for the time away (``catch_up``).
    """

    message_hashes: tuple[bytes, ...] = ()
    tries: int = 0
    """Earlier queries by hash that did not return these messages; queries with fewer tries go first."""
    start_ns: int | None = None
    end_ns: int | None = None
    catch_up: bool = False
    """Whether it is for the time away: oldest first, to the end. After each page without a message that was turned away
    (`Stack.was_turned_away`) call `Stack.catch_up_progressed`, and at the end `Stack.caught_up` with ``end_ns``."""


class AwaitCipher(Struct, frozen=True, kw_only=True):
    """Await the awaitable of an asynchronous encryption hook, and call `Stack.cipher_done` with its result."""

    token: int
    awaitable: Awaitable[bytes]


class Emit(Struct, frozen=True, kw_only=True):
    """Pass an event to the application."""

    event: Event


class Placed(Struct, frozen=True, kw_only=True):
    """The first segment of a send has its position in the channel."""

    request_id: str
    order_key: OrderKey


Effect = Persist | Prove | Publish | QueryStore | AwaitCipher | Emit | Placed


def emit(*events: Event) -> list[Effect]:
    """Return the effects that pass events to the application."""
    return [Emit(event=event) for event in events] if events else []
