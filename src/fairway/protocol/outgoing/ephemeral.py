"""Ephemeral messages, which may be lost (RELIABLE-CHANNEL-API, "Ephemeral messages").

An ephemeral message is never segmented, tracked, queued or retransmitted. The channel drops it if the rate limit is
near, or if the node is offline. One event reports each message: sent, dropped or failed.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from fairway.errors import EmptyPayloadError, MessageTooLargeError, RlnErrorKind
from fairway.events import (
    ChunkInfo,
    DropReason,
    EphemeralMessageDropped,
    MessageSendError,
    MessageSent,
    SendErrorReason,
)
from fairway.protocol.effects import Effect, NodeAnswer, Prove, Publish, Purpose, emit
from fairway.protocol.outgoing.transmission_queue import HandedOut, Transmission, TransmissionQueue, Unsendable
from fairway.protocol.shared import Shared

_DROPPED: Final = {RlnErrorKind.BUDGET_EXHAUSTED: DropReason.RATE_LIMIT_REACHED}
"""Drop reason for a kind of proof error, if it is not NOT_READY."""
_SINGLE: Final = ChunkInfo(chunk_index=0, total_chunks=1)


class EphemeralSending:
    """Sends ephemeral messages of one channel."""

    def __init__(self, shared: Shared, outbound: TransmissionQueue) -> None:
        self._limit_bytes = shared.options.segmentation.segment_size_bytes
        self._is_wrapped = shared.sds.profile.ephemeral_is_content
        self._segmenter = shared.segmenter
        self._sds = shared.sds
        self._outbound = outbound
        self._tally = shared.tally

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

    def apply_sds(self, content: bytes, request_id: str, message_id: str, now_ms: int) -> Transmission | list[Effect]:
        """Return the SDS message that carries content, or the effects of dropping the content.

        RELIABLE-CHANNEL-API, "Ephemeral messages": the sender checks rate limit utilization before it sends.
        """
        limiter = self._outbound.limiter
        dropped = limiter.admit_ephemeral(now_ms) if self._outbound.connected else DropReason.NOT_READY
        if dropped is not None:
            return self._dropped((request_id, message_id), dropped, now_ms)
        message = self._sds.send_ephemeral(content, now_ms)
        encoded = self._sds.encode(message)
        return Transmission(
            purpose=Purpose.EPHEMERAL,
            sds_id=message.message_id,
            payload=encoded,
            ephemeral=(request_id, message_id),
            admitted_ms=now_ms,
        )

    def not_encrypted(self, transmission: Transmission, error: Exception) -> list[Effect]:
        """Refund the charge of a message that the encryption hook did not encrypt, and report the failure."""
        self._refund(transmission)
        return _failed(_ids(transmission), SendErrorReason.ENCRYPTION_FAILED, str(error))

    def dispatch(self, transmission: Transmission, encrypted: bytes, now_ms: int) -> list[Effect]:
        """Stamp an encrypted message and hand it out; an ephemeral message never waits in the queue."""
        if now_ms != transmission.admitted_ms:
            # The charge belongs to the epoch of the timestamp, and an epoch may have ended during encryption.
            self._refund(transmission)
            dropped = self._outbound.limiter.admit_ephemeral(now_ms)
            if dropped is not None:
                return self._dropped(_ids(transmission), dropped, now_ms)
        sent = replace(transmission, payload=encrypted, admitted_ms=now_ms)
        outcome = self._outbound.stamp(sent, now_ms)
        return [outcome] if isinstance(outcome, Prove) else self.handed_out(outcome)

    def handed_out(self, outcome: Publish | Unsendable) -> list[Effect]:
        """Hand out a stamped message, or report why the network cannot take it."""
        if isinstance(outcome, Publish):
            self._tally.sent(outcome.purpose, len(outcome.encoded))
            return [outcome]
        self._refund(outcome.transmission)
        return _failed(_ids(outcome.transmission), outcome.reason, outcome.detail)

    def not_proven(self, sent: Transmission, kind: RlnErrorKind, now_ms: int) -> list[Effect]:
        """Drop a message without a proof."""
        self._refund(sent)
        return self._dropped(_ids(sent), _DROPPED.get(kind, DropReason.NOT_READY), now_ms)

    def _refund(self, sent: Transmission) -> None:
        self._outbound.limiter.refund_ephemeral(sent.admitted_ms)

    def answered(self, in_flight: HandedOut, answer: NodeAnswer, now_ms: int) -> list[Effect]:
        """Report the node's answer to the application."""
        ids = _ids(in_flight.transmission)
        if answer.accepted:
            request_id, message_id = ids
            return emit(
                MessageSent(
                    request_id=request_id,
                    message_id=message_id,
                    chunk_info=_SINGLE,
                    message_hash=in_flight.message_hash,
                )
            )
        self._tally.add("not_taken")
        if answer.permanent:
            return _failed(ids, answer.send_error, answer.detail)
        return self._dropped(ids, DropReason.RATE_LIMIT_REACHED if answer.too_many else DropReason.NOT_READY, now_ms)

    def _dropped(self, ids: tuple[str, str], reason: DropReason, now_ms: int) -> list[Effect]:
        request_id, message_id = ids
        return emit(
            EphemeralMessageDropped(
                request_id=request_id,
                message_id=message_id,
                reason=reason,
                rate_limit_utilization=self._outbound.limiter.utilization(now_ms),
            )
        )


def _ids(transmission: Transmission) -> tuple[str, str]:
    """Return the request id and message id of an ephemeral message."""
    assert transmission.ephemeral is not None, "an ephemeral message has its ids"
    return transmission.ephemeral


def _failed(ids: tuple[str, str], reason: SendErrorReason, detail: str) -> list[Effect]:
    request_id, message_id = ids
    return emit(
        MessageSendError(request_id=request_id, message_id=message_id, chunk_info=_SINGLE, reason=reason, detail=detail)
    )
