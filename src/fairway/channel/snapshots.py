"""Snapshots: `ReliableChannel.snapshot` publishes a state, `ReliableChannel.latest_snapshot` starts from one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fairway.channel.history import HistoryMessage
from fairway.events import OrderKey
from fairway.nodes.node import RoutedMessage
from fairway.protocol.snapshots import KnownSnapshot, SnapshotSearch
from fairway.wire.coverage import Coverage
from fairway.wire.envelope import Envelope, EnvelopeKind

HISTORY_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A state of the application that a participant published. ``bytes(snapshot)`` is the state."""

    state: bytes
    sender_id: str
    """Who published it."""
    timestamp_ns: int
    """When, in Unix nanoseconds."""
    order_key: OrderKey
    """Its place in the channel."""
    later: tuple[HistoryMessage, ...] = ()
    """Messages to apply to the state first: those that this store has, that the state does not contain, and that the
    channel does not hand over again, because this participant sent or finished them. In the order of the channel."""

    def __bytes__(self) -> bytes:
        """Return the state."""
        return self.state


def snapshot_of(known: KnownSnapshot, later: Iterable[HistoryMessage]) -> Snapshot:
    """Return what the application gets of a snapshot."""
    return Snapshot(
        state=known.envelope.content,
        sender_id=known.sender_id,
        timestamp_ns=known.timestamp_ns,
        order_key=known.order_key,
        later=tuple(later),
    )


def is_later(message: HistoryMessage, coverage: Coverage) -> bool:
    """Return whether a message of the application is not covered."""
    is_content = Envelope.of(message.payload).kind is EnvelopeKind.MESSAGE
    return is_content and not coverage.covers(message.sender_id, *message.order_key)


async def look_at(search: SnapshotSearch, routed: RoutedMessage, now_ms: int) -> None:
    """Pass a stored message to a search, and await its decryption if that takes time."""
    cipher = search.take(routed.message, routed.message_hash, now_ms)
    if cipher is None:
        return
    result: bytes | Exception
    try:
        result = await cipher.awaitable
    except Exception as error:  # noqa: BLE001 - an application's hook may raise anything
        result = error
    search.deciphered(cipher.token, result, now_ms)
