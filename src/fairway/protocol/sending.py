"""Everything that leaves: new segments, retries, answers to repair requests, sync and ephemeral messages.

All of them pass the same two last steps, encryption and the rate limit; they differ in what they carry, how urgent they
are and what happens when they cannot be sent.
"""

from __future__ import annotations

from collections.abc import Callable

from fairway.errors import RlnError
from fairway.events import (
    ChunkInfo,
    DeliveryError,
    Event,
    MessageDelivered,
    MessageQueued,
    MessageSendError,
    MessageSending,
    MessageSent,
    SendErrorReason,
)
from fairway.options import ReliableChannelOptions
from fairway.protocol.ciphering import Ciphering
from fairway.protocol.effects import Effect, Emit, Publish, Purpose
from fairway.protocol.outbound import Outbound, Refused, Transmission
from fairway.protocol.outbox import Outbox, PendingPart
from fairway.protocol.ratelimit import Priority
from fairway.protocol.requests import Requests, SentSegment
from fairway.protocol.sds.acknowledgements import Review
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.statistics import Tally
from fairway.wire.sds import SdsMessage

_RETRY_AFTER_REFUSAL_MS = 5_000
"""How long a transmission waits that the node did not take; it does not count as an attempt."""
_SINGLE = ChunkInfo(chunk_index=0, total_chunks=1)
_ALL_PARTICIPANTS = 1 << 31
"""More acknowledgements than there can be: SDS keeps waiting until the request has ended."""


class Sending:
    """The outgoing half of a channel."""

    def __init__(
        self,
        options: ReliableChannelOptions,
        sds: MessageChannel,
        requests: Requests,
        outbound: Outbound,
        outbox: Outbox,
        ciphering: Ciphering,
        effects: list[Effect],
        tally: Tally,
    ) -> None:
        self._options = options
        self._sds = sds
        self._requests = requests
        self._outbound = outbound
        self._outbox = outbox
        self._ciphering = ciphering
        self._effects = effects
        self._tally = tally
        self._ephemeral: dict[str, tuple[str, str]] = {}

    def apply_sds(self, part: PendingPart, now_ms: int) -> tuple[SentSegment, SdsMessage]:
        """Make the SDS message of a segment; SDS tracks it until the request ends."""
        request = self._requests.open[part.request_id]
        single = request.required_count == 1 and not request.required_from
        message = self._sds.send(part.content, now_ms, required_count=1 if single else _ALL_PARTICIPANTS)
        segment = self._requests.add_segment(request, message.message_id, part.chunk_index, is_parity=part.is_parity)
        return segment, message

    def encrypt(
        self,
        message: SdsMessage,
        *,
        then: Callable[[bytes, int], None],
        failed: Callable[[Exception, int], None],
        now_ms: int,
    ) -> None:
        """Seal a segment's SDS message (seed 002: per segment, after SDS)."""
        encoded = self._sds.dialect.codec.encode(message)
        self._ciphering.seal(encoded, then=then, failed=failed, now_ms=now_ms, is_content=True)

    def rate_limit(self, segment: SentSegment, message: SdsMessage, sealed: bytes, now_ms: int) -> None:
        """Commit a sealed segment to the history and let it leave when the rate limit allows."""
        if segment.sds_id not in self._requests.segments:
            return
        self._sds.broadcast(message, None)
        self._enqueue(Purpose.CONTENT, segment.sds_id, sealed, now_ms, first_segment=segment.chunk_index == 0)
        self.dispatch(now_ms)
        if self._outbound.limiter.is_queued(segment.sds_id):
            request = self._requests.open[segment.request_id]
            self._tell(
                MessageQueued(
                    request_id=request.request_id,
                    message_id=request.message_id,
                    chunk_info=self._requests.chunk_info(segment),
                    expected_ms=self._outbound.limiter.expected_at(Priority.CONTENT, now_ms),
                )
            )

    def give_up(self, segment: SentSegment, error: Exception) -> None:
        """End the request of a segment that the encryption hook did not seal; it never entered the history."""
        self._fail(segment, SendErrorReason.ENCRYPTION_FAILED, str(error))

    def dispatch(self, now_ms: int) -> None:
        """Hand out everything that may leave now."""
        for leaving in self._outbound.dispatch(now_ms):
            if isinstance(leaving, Refused):
                self._refused(leaving)
            else:
                self._publish(leaving, now_ms)

    def untracked(self, message: SdsMessage, purpose: Purpose, now_ms: int) -> None:
        """Send a message that nobody acknowledges, such as a sync message; a stale one in the queue gives way."""
        if self._outbound.limiter.queued(Priority.SYNC):
            self._outbound.limiter.discard(lambda waiting: waiting.purpose is Purpose.SYNC)
        self._transmit(purpose, message.message_id, self._sds.dialect.codec.encode(message), now_ms)

    def ephemeral(self, content: bytes, request_id: str, message_id: str, now_ms: int) -> None:
        """Send an ephemeral message that the rate limit admitted."""
        if self._sds.dialect.has_ephemeral:
            message = self._sds.send_ephemeral(content, now_ms)
        else:
            # nim-sds will log and cite it, so that it must be in our history too; it is just not tracked.
            message = self._sds.send(content, now_ms, tracked=False)
            self._sds.broadcast(message, None)
        self._ephemeral[message.message_id] = (request_id, message_id)

        def leave(sealed: bytes, now: int) -> None:
            transmission = Transmission(purpose=Purpose.EPHEMERAL, sds_id=message.message_id, payload=sealed)
            outcome = self._outbound.dispatch_ephemeral(transmission, now)
            if isinstance(outcome, Publish):
                self._effects.append(outcome)
                return
            self._outbound.limiter.refund_ephemeral(now_ms)
            if isinstance(outcome, RlnError):
                self._ephemeral_failed(message.message_id, SendErrorReason.RLN_PROOF_FAILED, str(outcome))
            else:
                self._ephemeral_failed(message.message_id, outcome.reason, outcome.detail)

        self._ciphering.seal(
            self._sds.dialect.codec.encode(message),
            then=leave,
            failed=lambda error, _: self._ephemeral_failed(
                message.message_id, SendErrorReason.ENCRYPTION_FAILED, str(error)
            ),
            now_ms=now_ms,
        )

    def answered(self, token: int, now_ms: int, *, accepted: bool, permanent: bool, detail: str) -> None:
        """Act on the node's answer to a transmission."""
        found = self._outbound.answered(token)
        if found is None:
            return
        transmission, message_hash = found
        sds_id = transmission.sds_id
        if transmission.purpose is Purpose.EPHEMERAL:
            self._ephemeral_answered(sds_id, message_hash, accepted=accepted, detail=detail)
            return
        segment = self._requests.segments.get(sds_id)
        if accepted:
            self._tell(*self._requests.accepted(sds_id, message_hash))
            self._sds.add_hint(sds_id, message_hash)
            return
        self._tally.add("not_taken")
        self._sds.withdraw_hint(sds_id, message_hash)
        if segment is None:
            return
        if permanent:
            self._fail(segment, SendErrorReason.REJECTED, detail)
        else:
            segment.attempts = max(0, segment.attempts - 1)
            self._requests.plan_retry(segment, now_ms + _RETRY_AFTER_REFUSAL_MS)

    def reviewed(self, review: Review, now_ms: int) -> None:
        """Pass on evidence about a segment, and stop repeating what its request no longer needs."""
        for event in self._requests.review(review, now_ms):
            self._tell(event)
            if isinstance(event, MessageDelivered):
                self._close(event.request_id)
                return
        segment = self._requests.segments.get(review.message_id)
        if segment is not None and review.evidence is not None and not self._requests.needs_retry(segment):
            self._outbound.limiter.discard_key(segment.sds_id)

    def retry(self, now_ms: int) -> None:
        """Send again what is not acknowledged (seed 000, "Message retries"; seed 002, "Retransmission").

        Possibly acknowledged segments wait twice as long (SDS spec: SHOULD use a different period). When a segment was
        sent as often as allowed, its request ends with a delivery error.
        """
        for segment in self._requests.take_due(now_ms):
            request = self._requests.open.get(segment.request_id)
            if request is None:
                continue
            encoded = self._sds.retained.encoded(segment.sds_id)
            waiting = self._sds.outgoing.messages.get(segment.sds_id)
            if waiting is not None:
                encoded = self._sds.dialect.codec.encode(waiting.message)
            queued = self._outbound.limiter.is_queued(segment.sds_id)
            if encoded is None or queued or not self._requests.needs_retry(segment):
                self._requests.plan_retry(segment, self._retry_at(segment, now_ms))
            elif segment.attempts > self._options.max_retry_attempts:
                self._tell(
                    self._requests.delivery_error(
                        request, f"not acknowledged after {self._options.max_retry_attempts} retransmissions"
                    )
                )
                self._close(request.request_id)
            else:
                self._transmit(Purpose.RETRY, segment.sds_id, encoded, now_ms)

    def answer_repairs(self, now_ms: int) -> None:
        """Broadcast originals for others whose turn it is (SDS-R)."""
        for message_id, encoded in self._sds.sweep_repair(now_ms):
            if not self._outbound.limiter.is_queued(message_id):
                self._transmit(Purpose.REPAIR, message_id, encoded, now_ms)

    def resume(self, now_ms: int) -> None:
        """After a restart, send what was accepted and never left, in its order, and plan the retries."""
        unsent = [segment for segment in self._requests.segments.values() if not segment.attempts]
        order = {request_id: place for place, request_id in enumerate(self._requests.open)}
        for segment in sorted(unsent, key=lambda s: (order[s.request_id], s.chunk_index)):
            waiting = self._sds.outgoing.messages.get(segment.sds_id)
            if waiting is not None:
                self._send_again(segment, waiting.message, now_ms)
        for segment in self._requests.segments.values():
            if segment.attempts and segment.retry_at is None and not segment.is_parity:
                self._requests.plan_retry(segment, self._retry_at(segment, now_ms))

    def _send_again(self, segment: SentSegment, message: SdsMessage, now_ms: int) -> None:
        def then(sealed: bytes, now: int) -> None:
            self.rate_limit(segment, message, sealed, now)

        def failed(error: Exception, _: int) -> None:
            self.give_up(segment, error)

        self.encrypt(message, then=then, failed=failed, now_ms=now_ms)

    def _transmit(self, purpose: Purpose, sds_id: str, encoded: bytes, now_ms: int) -> None:
        """Seal and queue something that is no new segment; if it cannot be sealed, a retry will try again."""

        def failed(_: Exception, now: int) -> None:
            self._tally.add("not_sealed")
            self._plan_again(sds_id, now)

        self._ciphering.seal(
            encoded, then=lambda sealed, now: self._enqueue(purpose, sds_id, sealed, now), failed=failed, now_ms=now_ms
        )
        self.dispatch(now_ms)

    def _enqueue(
        self, purpose: Purpose, sds_id: str, sealed: bytes, now_ms: int, *, first_segment: bool = True
    ) -> None:
        transmission = Transmission(purpose=purpose, sds_id=sds_id, payload=sealed, first_segment=first_segment)
        accepted, displaced = self._outbound.enqueue(transmission)
        if not accepted:
            self._plan_again(sds_id, now_ms)
        if displaced is not None:
            self._plan_again(displaced.sds_id, now_ms)

    def _plan_again(self, sds_id: str, now_ms: int) -> None:
        segment = self._requests.segments.get(sds_id)
        if segment is not None:
            self._requests.plan_retry(segment, now_ms + _RETRY_AFTER_REFUSAL_MS)

    def _publish(self, leaving: Publish, now_ms: int) -> None:
        self._tally.sent(leaving.purpose, len(leaving.encoded))
        segment = self._requests.segments.get(leaving.sds_id)
        if segment is not None and leaving.purpose in {Purpose.CONTENT, Purpose.RETRY}:
            request = self._requests.open[segment.request_id]
            self._tell(
                MessageSending(
                    request_id=request.request_id,
                    message_id=request.message_id,
                    chunk_info=self._requests.chunk_info(segment),
                    attempt=segment.attempts,
                )
            )
            # Parity is not repeated: whoever lacks data segments gets those.
            self._requests.transmitted(segment, None if segment.is_parity else self._retry_at(segment, now_ms))
            self._sds.add_hint(leaving.sds_id, leaving.message_hash)
        self._effects.append(leaving)

    def _retry_at(self, segment: SentSegment, now_ms: int) -> int | None:
        interval = self._options.retry_interval_ms
        if not interval:
            return None
        return now_ms + interval * (2 if segment.possibly and not segment.acknowledged_by else 1)

    def _refused(self, refused: Refused) -> None:
        segment = self._requests.segments.get(refused.transmission.sds_id)
        if segment is not None:
            self._fail(segment, refused.reason, refused.detail)
        else:
            self._tally.add("refused")

    def _fail(self, segment: SentSegment, reason: SendErrorReason, detail: str) -> None:
        if segment.sds_id not in self._requests.segments:
            return
        self._tell(*self._requests.send_error(segment, reason, detail))
        self._close(segment.request_id)

    def _close(self, request_id: str) -> None:
        self._outbox.drop(request_id)
        for sds_id in self._requests.close(request_id):
            self._sds.forget_outgoing(sds_id)
            self._outbound.limiter.discard_key(sds_id)

    def _ephemeral_answered(self, sds_id: str, message_hash: bytes, *, accepted: bool, detail: str) -> None:
        if not accepted:
            self._ephemeral_failed(sds_id, SendErrorReason.REJECTED, detail)
            return
        ids = self._ephemeral.pop(sds_id, None)
        if ids is not None:
            request_id, message_id = ids
            self._tell(
                MessageSent(request_id=request_id, message_id=message_id, chunk_info=_SINGLE, message_hash=message_hash)
            )

    def _ephemeral_failed(self, sds_id: str, reason: SendErrorReason, detail: str) -> None:
        ids = self._ephemeral.pop(sds_id, None)
        if ids is not None:
            request_id, message_id = ids
            self._tell(
                MessageSendError(
                    request_id=request_id, message_id=message_id, chunk_info=_SINGLE, reason=reason, detail=detail
                )
            )

    def _tell(self, *events: Event | DeliveryError) -> None:
        self._effects += [Emit(event=event) for event in events]
