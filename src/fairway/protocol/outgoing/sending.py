"""Outgoing messages: new segments, retries, answers to repair requests, sync messages and ephemeral messages.

After SDS all of them pass the same stages: encrypt, limit, dispatch (`Stack._seal_and_admit`). They differ in content,
in priority, and in the reaction to a failure. `Sends` begins and ends sends, and `Retries` chooses retransmissions.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from fairway.errors import EncryptionError, FairwayError, RlnError, RlnErrorKind
from fairway.events import Limit, MessageQueued, MessageSending, OrderKey, SendErrorReason
from fairway.protocol.effects import Effect, Emit, NodeAnswer, Prove, Publish, Purpose, emit
from fairway.protocol.encryption.epochs import EpochCipher
from fairway.protocol.encryption.payload_v1 import signs_payloads
from fairway.protocol.notices import Blockage
from fairway.protocol.outgoing.batching import Batching
from fairway.protocol.outgoing.ephemeral import EphemeralSending
from fairway.protocol.outgoing.pending_segments import PendingSegment, PendingSegments
from fairway.protocol.outgoing.request import SendRequest, SentSegment
from fairway.protocol.outgoing.request_life import RequestState
from fairway.protocol.outgoing.request_table import RequestTable
from fairway.protocol.outgoing.retries import Retries
from fairway.protocol.outgoing.sends import Sends
from fairway.protocol.outgoing.sync_messages import SyncMessages
from fairway.protocol.outgoing.sync_timer import SyncTimer
from fairway.protocol.outgoing.transmission_queue import HandedOut, Transmission, TransmissionQueue, Unsendable
from fairway.protocol.ratelimit import Membership, Priority, Upstream
from fairway.protocol.shared import Shared
from fairway.wire.sds import HistoryEntry
from fairway.wire.signature import read_signature

_MAX_REPAIRS: Final = 1_000
"""Queued answers to repair requests; further requests are answered when they are repeated."""


class Sending:
    """The outgoing half of a channel: its outbox, its sends, and the stages between SDS and the node."""

    def __init__(self, shared: Shared, membership: Membership | None, sync_timer: SyncTimer, *, proves: bool) -> None:
        self._sds, self._ciphering = shared.sds, shared.ciphering
        self._tally, self._limits = shared.tally, shared.limits
        self._sync_timer = sync_timer
        self._signs_payloads = shared.signing is not None and signs_payloads(shared.ciphering.encryption)
        self.requests = RequestTable(shared.journal, shared.options)
        self.outbox = PendingSegments(shared.journal)
        self.batching = Batching(shared, self.requests, self.outbox)
        self.outbound = TransmissionQueue(shared, membership, self._upstream, proves=proves)
        self.sync_messages = SyncMessages(shared.sds, self.outbound)
        self.sends = Sends(shared, self.requests, self.outbox, self.outbound, self.sync_messages)
        self.retries = Retries(shared, self.requests, self.sends, self.outbound)
        self.ephemeral = EphemeralSending(shared, self.outbound)
        self.blockage = Blockage()

    def next_segment(self, now_ms: int) -> PendingSegment | None:
        """Take the next segment from the outbox if it can leave at once and no other segment is being encrypted."""
        if self.outbox and not self._ciphering.encrypting_segments and self.outbound.has_room_for_content(now_ms):
            return self.outbox.take()
        return None

    def queued(self) -> int:
        """Return the number of queued transmissions and of segments in the outbox."""
        return self.outbound.limiter.queued() + len(self.outbox)

    def claim(self, now_ms: int) -> list[Effect]:
        """Announce the waiting transmissions to the other channels of the node.

        The effects notify the application if the pace of the node holds back segments.
        """
        self.outbound.claim(now_ms)
        self.blockage.closed(now_ms, is_closed=self.outbound.limiter.is_closed(now_ms))
        pace = self.outbound.limiter.pace.per_second
        bites = pace is not None and len(self.outbox) > 0
        return emit(*self._limits.note(Limit.NODE_PACE, max(1, int(pace or 0)), bites=bites))

    def note_queued(self, request: SendRequest, now_ms: int) -> list[MessageQueued]:
        """Return the events of the segments of a new request that must wait in the outbox (`MessageQueued`)."""
        if not self.outbox or self._ciphering.encrypting_segments or not self.outbound.holds_back(now_ms):
            return []
        limiter, connected = self.outbound.limiter, self.outbound.connected
        return [
            MessageQueued(
                request_id=request.request_id,
                message_id=request.message_id,
                chunk_info=request.chunk_info(segment.order, is_parity=segment.is_parity),
                expected_ms=limiter.expected_at(Priority.CONTENT, now_ms, behind=behind) if connected else None,
            )
            for behind, segment in self.outbox.waiting(request.request_id)
        ]

    def apply_sds(self, pending: PendingSegment, now_ms: int) -> Transmission | list[Effect]:
        """Return the SDS message of a segment, or the effects of a failure.

        SDS tracks the message until the request ends.
        """
        request = self.requests.get(pending.request_id)
        assert request is not None, "what waits in the outbox leaves it when its send ends"
        beside = self._cited_by_first(request, pending.order)
        message = self._sds.send(pending.content, now_ms, beside=beside)
        made = self._sds.unacknowledged(message.message_id)
        assert made is not None, "SDS tracks what it was given to send"
        segment = self.requests.add_segment(
            request,
            message.message_id,
            pending.order,
            is_parity=pending.is_parity,
            sequence=made.sequence,
            made_ms=made.made_ms,
        )
        segment.entered_at_count = self.outbound.done
        is_first = pending.order == 0
        order_key = OrderKey(message.lamport_timestamp or 0, message.message_id) if is_first else None
        return self.first_time(segment, now_ms, order_key)

    def first_time(
        self, segment: SentSegment, now_ms: int, order_key: OrderKey | None = None
    ) -> Transmission | list[Effect]:
        """Return the first transmission of a segment; no effects if SDS no longer tracks the segment."""
        waiting = self._sds.unacknowledged(segment.sds_id)
        if waiting is None:
            return []
        try:
            encoded = self._sds.retained.encoded(segment.sds_id) or self._sds.encode(waiting.message)
        except FairwayError as error:
            return self.sends.fail(segment, SendErrorReason.ENCODING_FAILED, str(error), now_ms)
        return Transmission(
            purpose=Purpose.CONTENT,
            sds_id=segment.sds_id,
            payload=encoded,
            is_new=True,
            order_key=order_key,
            sequence=segment.sequence,
        )

    def encrypt(self, transmission: Transmission, now_ms: int) -> bytes | list[Effect]:
        """Return the encrypted payload, or the effects of a failure or of an asynchronous hook.

        LIP-173, "Encryption Hook".
        """
        if transmission.carries_segment:
            self.outbound.encrypting[transmission.sds_id] = transmission.is_new
        try:
            epochs = self._ciphering.epochs
            if epochs is not None and transmission.purpose in (Purpose.RETRY, Purpose.REPAIR):
                return self._encrypted_as_of(transmission, epochs)
            encrypted = self._ciphering.encrypt(transmission.payload, transmission, is_content=transmission.is_new)
        except EncryptionError as error:
            return self.not_encrypted(transmission, error, now_ms)
        return encrypted if isinstance(encrypted, bytes) else [encrypted]

    def _encrypted_as_of(self, transmission: Transmission, epochs: EpochCipher) -> bytes:
        """Encrypt a repeated message, so that a new member cannot read what was sent before its addition."""
        lamport = self._sds.profile.codec.decode(transmission.payload).lamport_timestamp or 0
        made_ms = lamport * self._sds.profile.lamport_unit_ms
        return epochs.encrypt_as_of(transmission.payload, transmission.sds_id, made_ms)

    def not_encrypted(self, transmission: Transmission, error: Exception, now_ms: int) -> list[Effect]:
        """Act on a failure of the encryption hook, which ends the send of a segment that was never encrypted before."""
        if transmission.purpose is Purpose.EPHEMERAL:
            return self.ephemeral.not_encrypted(transmission, error)
        segment = self._carried(transmission)
        if transmission.is_new and segment is not None:
            return self.sends.fail(segment, SendErrorReason.ENCRYPTION_FAILED, str(error), now_ms)
        self.outbound.encrypting.pop(transmission.sds_id, None)
        if transmission.is_new:
            return []
        self._tally.add("not_encrypted")
        if transmission.purpose is Purpose.SYNC:
            self.sync_messages.lost(now_ms)
        if transmission.purpose is Purpose.REPAIR:
            self._sds.not_answered(transmission.sds_id)
        if segment is not None:
            # Counts as an attempt, so that a permanent failure of the cipher ends the request.
            self.requests.count_attempt(segment, self.requests.next_retry_of(segment, now_ms))
        return []

    def limit(self, transmission: Transmission, encrypted: bytes, now_ms: int) -> list[Effect]:
        """Queue an encrypted transmission until the rate limit admits it (`dispatch`).

        A new segment is withdrawn if its send has expired. Its send fails if the segment is too large. An ephemeral
        message is charged already, and leaves at once.
        """
        if transmission.purpose is Purpose.EPHEMERAL:
            return self.ephemeral.dispatch(transmission, encrypted, now_ms)
        if transmission.is_new:
            segment = self._carried(transmission)
            if segment is None:
                self.outbound.encrypting.pop(transmission.sds_id, None)
                return []
            if self.sends.withdraw_expired(segment, now_ms):
                return []
            if self.outbound.is_too_large(encrypted):
                detail = f"{len(encrypted)} bytes encrypted do not fit the network"
                return self.sends.fail(segment, SendErrorReason.MESSAGE_TOO_LARGE, detail, now_ms)
        self.outbound.enqueue(replace(transmission, payload=encrypted))
        return []

    def dispatch(self, now_ms: int) -> list[Effect]:
        """Hand out every transmission that may leave now, after sends past their deadline have expired."""
        effects = self.sends.expire(now_ms)
        for outcome in self.outbound.dispatch(now_ms):
            effects += [outcome] if isinstance(outcome, Prove) else self._handed_out(outcome, now_ms)
        return effects

    def proven(self, token: int, proof: bytes | RlnError | None, now_ms: int) -> list[Effect]:
        """Hand out the transmission of a proof, or act on the error: queue it again, drop it, or end its send."""
        stamped = self.outbound.take(token, is_proven=False)
        if stamped is None:
            return []
        is_ephemeral = stamped.transmission.ephemeral is not None
        if not isinstance(proof, RlnError):
            outcome = self.outbound.hand_out(token, stamped, proof, now_ms)
            return self.ephemeral.handed_out(outcome) if is_ephemeral else self._handed_out(outcome, now_ms)
        if proof.kind is not RlnErrorKind.BUDGET_EXHAUSTED:
            self.blockage.refused(str(proof), now_ms)
        unsendable = self.outbound.not_proven(stamped, proof, now_ms)
        if is_ephemeral:
            return self.ephemeral.not_proven(stamped.transmission, proof.kind, now_ms)
        return [] if unsendable is None else self._not_sendable(unsendable, now_ms)

    def answered(self, token: int, answer: NodeAnswer, now_ms: int) -> list[Effect]:
        """Act on the node's answer to the transmission with a token."""
        in_flight = self.outbound.take(token, is_proven=True)
        if in_flight is None:
            return []
        self.sends.refusal = "" if answer.accepted else answer.detail
        if answer.accepted:
            self.blockage.ended()
        else:
            self.blockage.refused(answer.detail, now_ms)
        if answer.accepted or answer.permanent:
            self.outbound.answered_for_good(in_flight, now_ms)
        else:
            self.outbound.refused(in_flight, now_ms, too_many=answer.too_many)
        if in_flight.transmission.ephemeral is not None:
            return self.ephemeral.answered(in_flight, answer, now_ms)
        return self._taken(in_flight, now_ms) if answer.accepted else self._refused(in_flight, answer, now_ms)

    def repair(self, message_id: str, encoded: bytes) -> Transmission | list[Effect]:
        """Return the answer to a repair request (SDS-R); an empty list if it is under way or the queue is full.

        Our signature of a payload says that we are the author. So no answer carries a message without a signature.
        """
        if self._signs_payloads and read_signature(encoded) is None:
            self._sds.not_answered(message_id)
            return []
        is_under_way = self.outbound.is_under_way(message_id) or self.outbound.repair_is_under_way(message_id)
        if is_under_way or self.outbound.limiter.queued(Priority.REPAIR) >= _MAX_REPAIRS:
            self._sds.not_answered(message_id)
            return []
        return Transmission(purpose=Purpose.REPAIR, sds_id=message_id, payload=encoded)

    def restore(self) -> list[SentSegment]:
        """After a restart, return the segments that became SDS messages and never left, in order of `sequence`."""
        for segment in self.requests.segments.values():
            if not segment.accepted:
                # The hint was persisted before the node answered, and the node may never have received the message.
                self._withdraw_hint(segment.sds_id)
        unsent = self.retries.never_left()
        self.outbound.encrypting.update({segment.sds_id: True for segment in unsent})
        return unsent

    def plan_anew(self, now_ms: int) -> None:
        """Bring forward times that were planned while the clock was ahead, in this run or an earlier one."""
        self.outbound.plan_anew(now_ms)
        self.retries.plan_anew(now_ms)

    def _upstream(self) -> Upstream:
        """Return the content that will still count against the rate limit, and whether a segment may leave now.

        The count includes the outbox and a segment that is being encrypted. No segment leaves the outbox while an
        asynchronous hook encrypts another.
        """
        waiting, is_encrypting = len(self.outbox), self._ciphering.encrypting_segments > 0
        return Upstream(waiting + is_encrypting, is_ready=waiting > 0 and not is_encrypting)

    def _cited_by_first(self, request: SendRequest, order: int) -> tuple[HistoryEntry, ...]:
        """Return the citations of a request's first segment, for a segment that repeats them; otherwise nothing.

        With n parity segments a receiver can rebuild the message without any n segments. So the first n + 1 segments
        carry these citations, and every receiver that rebuilds the message has one of these segments.
        """
        if not 0 < order <= request.segment_count - request.data_count:
            return ()
        first = self._sds.unacknowledged(request.segments[0])
        return () if first is None else first.message.causal_history

    def _carried(self, transmission: Transmission) -> SentSegment | None:
        """Return the segment that a transmission carries; None for another purpose, or if `Sends.live` returns None."""
        return self.sends.live(transmission.sds_id) if transmission.carries_segment else None

    def _handed_out(self, outcome: Publish | Unsendable, now_ms: int) -> list[Effect]:
        return self._publish(outcome) if isinstance(outcome, Publish) else self._not_sendable(outcome, now_ms)

    def _publish(self, publish: Publish) -> list[Effect]:
        self._tally.sent(publish.purpose, len(publish.encoded))
        is_own = publish.purpose in (Purpose.CONTENT, Purpose.RETRY)
        segment = self.sends.live(publish.sds_id) if is_own else None
        if segment is None:
            return [publish]
        request = self.requests.of(segment)
        self._sds.add_hint(publish.sds_id, publish.message_hash)
        sending = MessageSending(
            request_id=request.request_id,
            message_id=request.message_id,
            chunk_info=request.chunk_info(segment.order, is_parity=segment.is_parity),
            attempt=segment.attempts,
        )
        return [Emit(event=sending), publish]

    def _not_sendable(self, what: Unsendable, now_ms: int) -> list[Effect]:
        segment = self._carried(what.transmission)
        if segment is not None:
            return self.sends.fail(segment, what.reason, what.detail, now_ms)
        self._tally.add("refused")
        return []

    def _taken(self, in_flight: HandedOut, now_ms: int) -> list[Effect]:
        """Note that the node took a transmission."""
        sds_id, message_hash = in_flight.transmission.sds_id, in_flight.message_hash
        self.sync_messages.taken(sds_id)
        record = self._sds.record(sds_id)
        if record is None or record.retrieval_hint != message_hash:
            segment = self.requests.segments.get(sds_id)
            if segment is not None and not segment.accepted:
                # The hash of the accepted message replaces a hint of an unconfirmed transmission.
                self._withdraw_hint(sds_id)
            self._sds.add_hint(sds_id, message_hash)
        carried = self._carried(in_flight.transmission)
        if carried is None:
            return []
        carried.refusals = 0
        if self.requests.of(carried).state is RequestState.DELIVERED:
            self._sds.forget_outgoing(sds_id)
        # Parity is not retransmitted: a receiver with missing data segments gets those. The interval begins now,
        # because no participant can receive the segment before the node takes it.
        retry_at = None if carried.is_parity else self.requests.next_retry_of(carried, now_ms)
        self.requests.count_attempt(carried, retry_at)
        return emit(*self.requests.accepted(carried, message_hash))

    def _refused(self, in_flight: HandedOut, answer: NodeAnswer, now_ms: int) -> list[Effect]:
        """Note that the node refused a transmission: plan a retry, or end the send if the refusal is permanent."""
        transmission = in_flight.transmission
        self._tally.add("not_taken")
        self._sds.withdraw_hint(transmission.sds_id, in_flight.message_hash)
        if transmission.purpose is Purpose.SYNC:
            self.sync_messages.lost(now_ms)
            if not answer.permanent:
                self._sync_timer.refused(now_ms)
        if transmission.purpose is Purpose.REPAIR and not answer.permanent:
            self._sds.not_answered(transmission.sds_id)
        segment = self._carried(transmission)
        if segment is None:
            return []
        if answer.permanent:
            return self.sends.fail(segment, answer.send_error, answer.detail, now_ms)
        self.retries.refused(segment, now_ms, too_many=answer.too_many)
        self.sends.withdraw_unsent(now_ms)
        return []

    def _withdraw_hint(self, sds_id: str) -> None:
        record = self._sds.record(sds_id)
        if record is not None and record.retrieval_hint is not None:
            self._sds.withdraw_hint(sds_id, record.retrieval_hint)
