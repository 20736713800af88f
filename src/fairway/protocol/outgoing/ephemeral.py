"""Ephemeral messages, which may be lost (RELIABLE-CHANNEL-API, "Ephemeral messages").

They are never segmented, tracked, queued or sent again. When the rate limit is near they are dropped with an event. Of
each of the others one event says whether it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairway.errors import EmptyPayloadError, EncryptionError, MessageTooLargeError, RlnError, RlnErrorKind
from fairway.events import (
    ChunkInfo,
    DropReason,
    EphemeralMessageDropped,
    MessageSendError,
    MessageSent,
    SendErrorReason,
)
from fairway.options import ReliableChannelOptions
from fairway.protocol.effects import Effects, Publish, Purpose
from fairway.protocol.encryption.ciphering import Ciphering
from fairway.protocol.outgoing.dispatching import InFlight, Outbound, Transmission
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.protocol.statistics import Tally

_DROPPED: Final = {RlnErrorKind.BUDGET_EXHAUSTED: DropReason.RATE_LIMIT_REACHED}
"""Why a message without a proof is dropped, if not because none can be had now."""
_SINGLE: Final = ChunkInfo(chunk_index=0, total_chunks=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingEphemeral:
    """An ephemeral SDS message that goes down from SDS: encrypt, dispatch."""

    ids: tuple[str, str]
    """Request id and message id."""
    sds_id: str
    encoded: bytes
    admitted_ms: int
    """When the rate limit counted it."""


class EphemeralSending:
    """Sends ephemeral messages of one channel."""

    def __init__(
        self,
        options: ReliableChannelOptions,
        segmenter: Segmenter,
        sds: MessageChannel,
        outbound: Outbound,
        ciphering: Ciphering,
        effects: Effects,
        tally: Tally,
    ) -> None:
        self._limit_bytes = options.segmentation.segment_size_bytes
        self._is_wrapped = sds.profile.ephemeral_is_content
        self._segmenter = segmenter
        self._sds = sds
        self._outbound = outbound
        self._ciphering = ciphering
        self._effects = effects
        self._tally = tally

    def content_of(self, payload: bytes) -> bytes:
        """Return the content of the one SDS message that carries a payload.

        RELIABLE-CHANNEL-API, "Event handling": "NEVER segmented (if too large, they are rejected)".
        """
        if not payload:
            raise EmptyPayloadError("an empty payload cannot be sent; give at least one byte")
        if len(payload) <= self._limit_bytes:
            segments = self._segmenter.split(payload).segments if self._is_wrapped else ()
            if len(segments) <= 1:
                return segments[0].content if segments else payload
        raise MessageTooLargeError(len(payload), self._limit_bytes, "ephemeral messages are never segmented; use send")

    def apply_sds(self, content: bytes, request_id: str, message_id: str, now_ms: int) -> LeavingEphemeral | None:
        """Make the SDS message that carries content, or drop it.

        RELIABLE-CHANNEL-API, "Ephemeral messages": before sending one, check rate limit utilization.
        """
        limiter = self._outbound.limiter
        dropped = limiter.admit_ephemeral(now_ms) if self._outbound.connected else DropReason.NOT_READY
        if dropped is not None:
            self._dropped((request_id, message_id), dropped, now_ms)
            return None
        message = self._sds.send_ephemeral(content, now_ms)
        encoded = self._sds.profile.codec.encode(message)
        ids = (request_id, message_id)
        return LeavingEphemeral(ids=ids, sds_id=message.message_id, encoded=encoded, admitted_ms=now_ms)

    def encrypt(self, leaving: LeavingEphemeral) -> bytes | None:
        """Return what leaves sealed (LIP-173, "Encryption Hook"); None if that fails, or while the hook is awaited."""
        try:
            sealed = self._ciphering.seal(leaving.encoded, leaving)
        except EncryptionError as error:
            self.not_sealed(leaving, error)
            return None
        if isinstance(sealed, bytes):
            return sealed
        self._effects.add(sealed)
        return None

    def not_sealed(self, leaving: LeavingEphemeral, error: Exception) -> None:
        """Act on a failure of the encryption hook."""
        self._outbound.limiter.refund_ephemeral(leaving.admitted_ms)
        self._failed(leaving.ids, SendErrorReason.ENCRYPTION_FAILED, str(error))

    def dispatch(self, leaving: LeavingEphemeral, sealed: bytes, now_ms: int) -> None:
        """Hand out something that is sealed; it was admitted, and never waits."""
        limiter, ids = self._outbound.limiter, leaving.ids
        outcome = self._outbound.dispatch_ephemeral(
            Transmission(purpose=Purpose.EPHEMERAL, sds_id=leaving.sds_id, payload=sealed, ephemeral=ids), now_ms
        )
        if isinstance(outcome, Publish):
            self._tally.sent(outcome.purpose, len(outcome.encoded))
            self._effects.add(outcome)
        elif isinstance(outcome, RlnError):
            if outcome.kind is RlnErrorKind.BUDGET_EXHAUSTED:
                limiter.exhaust(now_ms)
            dropped = _DROPPED.get(outcome.kind, DropReason.NOT_READY)
            limiter.refund_ephemeral(leaving.admitted_ms)
            self._dropped(ids, dropped, now_ms)
        else:
            limiter.refund_ephemeral(leaving.admitted_ms)
            self._failed(ids, outcome.reason, outcome.detail)

    def answered(
        self, in_flight: InFlight, now_ms: int, *, accepted: bool, permanent: bool, too_many: bool, detail: str
    ) -> None:
        """Tell what the node said."""
        if in_flight.ephemeral is None:
            return
        if not accepted:
            self._tally.add("not_taken")
            if permanent:
                self._failed(in_flight.ephemeral, SendErrorReason.REJECTED, detail)
            else:
                why = DropReason.RATE_LIMIT_REACHED if too_many else DropReason.NOT_READY
                self._dropped(in_flight.ephemeral, why, now_ms)
            return
        request_id, message_id = in_flight.ephemeral
        self._effects.tell(
            MessageSent(
                request_id=request_id,
                message_id=message_id,
                chunk_info=_SINGLE,
                message_hash=in_flight.message_hash,
            )
        )

    def _dropped(self, ids: tuple[str, str], reason: DropReason, now_ms: int) -> None:
        request_id, message_id = ids
        self._effects.tell(
            EphemeralMessageDropped(
                request_id=request_id,
                message_id=message_id,
                reason=reason,
                rate_limit_utilization=self._outbound.limiter.utilization(now_ms),
            )
        )

    def _failed(self, ids: tuple[str, str], reason: SendErrorReason, detail: str) -> None:
        request_id, message_id = ids
        self._effects.tell(
            MessageSendError(
                request_id=request_id, message_id=message_id, chunk_info=_SINGLE, reason=reason, detail=detail
            )
        )
