"""The sync messages of one channel; at most one is queued (RELIABLE-CHANNEL-API, "Synchronization messages")."""

from __future__ import annotations

from fairway.protocol.effects import Purpose
from fairway.protocol.outgoing.transmission_queue import Transmission, TransmissionQueue
from fairway.protocol.ratelimit import Priority
from fairway.protocol.sds.channel import MessageChannel
from fairway.wire.sds import SdsMessage


class SyncMessages:
    """Composes sync messages, and restores the state that a sync message changed if it never left."""

    def __init__(self, sds: MessageChannel, outbound: TransmissionQueue) -> None:
        self._sds, self._outbound = sds, outbound
        self._unsent: SdsMessage | None = None
        """The newest sync message until the node takes it; then None."""

    @property
    def waits(self) -> bool:
        """Whether a sync message waits for the rate limit or the pace."""
        return self._outbound.limiter.queued(Priority.SYNC) > 0

    def compose(self, now_ms: int, *, even_empty: bool = False) -> Transmission | None:
        """Return a sync message, which replaces a waiting one.

        None if it would neither cite nor request a message, unless it may be ``even_empty``.
        """
        self.discard(now_ms)
        message = self._sds.send_sync(now_ms, even_empty=even_empty)
        if message is None:
            return None
        self._unsent = message
        encoded = self._sds.encode(message)
        return Transmission(purpose=Purpose.SYNC, sds_id=message.message_id, payload=encoded)

    def discard(self, now_ms: int) -> None:
        """Drop the waiting sync message, if any."""
        if self.waits and self._unsent is not None:
            self._outbound.discard(self._unsent.message_id)
            self.lost(now_ms)

    def lost(self, now_ms: int) -> None:
        """Note that the newest sync message never left: its repair requests and pending citations are due again."""
        if self._unsent is not None:
            self._sds.take_back(self._unsent, now_ms)
            self._unsent = None

    def taken(self, sds_id: str) -> None:
        """Note that the node took a message."""
        if self._unsent is not None and self._unsent.message_id == sds_id:
            self._unsent = None
