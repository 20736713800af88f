"""The way out: new segments, retries, answers to repair requests, sync messages, and what a send goes through.

After SDS all of them pass the same stages: encrypt, limit, dispatch (`Stack._seal_and_admit`). They differ in content,
urgency, and in what follows if they cannot be sent.

A segment is in the history when SDS has made its message: later messages cite it, so it leaves, also if its request
ends meanwhile. It is withdrawn if it cannot be encrypted or does not fit. Until then no other message is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError, EncryptionError, FairwayError, RlnError, RlnErrorKind
from fairway.events import Event, FailureReason, Limit, MessageDelivered, MessageQueued, MessageSending, SendErrorReason
from fairway.options import IdRule
from fairway.protocol.effects import Effect, Emit, NodeAnswer, Prove, Publish, Purpose, QueryStore, emit
from fairway.protocol.notices import Blockage
from fairway.protocol.outgoing.ephemeral import EphemeralSending
from fairway.protocol.outgoing.lost_acknowledgements import LostAcknowledgements
from fairway.protocol.outgoing.overdue import OverdueRetries
from fairway.protocol.outgoing.pending_segments import PendingSegment, PendingSegments
from fairway.protocol.outgoing.request import SendRequest, SentSegment, wanted_id
from fairway.protocol.outgoing.request_life import FAILED, RequestState, RequestStep
from fairway.protocol.outgoing.request_table import RequestTable
from fairway.protocol.outgoing.sync_timer import SyncTimer
from fairway.protocol.outgoing.transmission_queue import InFlight, Transmission, TransmissionQueue, Unsendable
from fairway.protocol.ratelimit import Membership, Priority, Upstream
from fairway.protocol.sds.acknowledgements import Acknowledged, Review
from fairway.protocol.segmentation.segmenter import OutgoingSegment
from fairway.protocol.shared import Shared
from fairway.wire.sds import HistoryEntry, SdsMessage

_ACKNOWLEDGED_WITHIN_MS: Final = 330_000
"""How long an acknowledgement is waited for where nothing is repeated: as long as with the default retries."""
_REFUSALS_IN_PLACE: Final = 3
"""Refusals of a segment after which others go first: the fault may be its own. Otherwise it would stop them all."""
_POSTPONED_MS: Final = 5_000
"""Pause before a segment leaves that was refused more often."""
_MAX_REPAIRS: Final = 1_000
"""Answers to repair requests that wait for the rate limit; further ones are sent when they are asked for again."""
_FOR_REQUESTS: Final = (Purpose.CONTENT, Purpose.RETRY)
"""Transmissions that a request counts as its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedMessage:
    """An SDS message that goes down from SDS: encrypt, limit, dispatch."""

    purpose: Purpose
    sds_id: str
    encoded: bytes
    is_new: bool = False
    """Whether it leaves for the first time."""
    lamport: int = 0
    """Its Lamport timestamp if it leaves for the first time."""
    sequence: int | None = None
    """Number of a segment that never left among the own messages, in the order of which they leave."""


class Sending:
    """The outgoing half of a channel, which owns the outbox, the requests and the queue of the rate limit."""

    def __init__(self, shared: Shared, membership: Membership | None, sync_timer: SyncTimer, *, proves: bool) -> None:
        self._options = options = shared.options
        self._max_retries = options.max_retry_attempts if options.retry_interval_ms else 0
        self._interval_ms = options.retry_interval_ms or _ACKNOWLEDGED_WITHIN_MS
        self._overdue = OverdueRetries(self._interval_ms) if self._max_retries else None
        self._sds, self._ciphering = shared.sds, shared.ciphering
        self._tally, self._limits = shared.tally, shared.limits
        self.requests = RequestTable(shared.journal, options.advanced.max_overdue_bytes)
        self.outbox = PendingSegments(shared.journal)
        self.outbound = TransmissionQueue(shared, membership, self._waits_above, proves=proves)
        self.ephemeral = EphemeralSending(shared, self.outbound)
        self._lost_acknowledgements = LostAcknowledgements(options)
        self._sync_timer = sync_timer
        self._unsent_sync: SdsMessage | None = None
        """The newest sync message, until the network took it."""
        self._encrypting: set[str] = set()
        """SDS ids of segments between SDS and the queue."""
        self._unsent: dict[str, None] = {}
        """Segments of expired sends that are in the history and never left, by SDS id."""
        self._refusal = ""
        """What the node said when it refused the latest transmission; empty if it took it."""
        self.blockage = Blockage()

    def known(self, message_id: str, request_id: str | None) -> SendRequest | None:
        """Return the send that a new one would repeat; raise `ConfigurationError` if it was of another payload."""
        if request_id is not None:
            request = self.requests.get(wanted_id(request_id))
            if request is not None and request.message_id != message_id:
                raise ConfigurationError(
                    f"request_id {request_id!r} stands for another payload; choose one id for each message"
                )
            if request is not None:
                return request
        if self._options.sds.id_rule is not IdRule.PAYLOAD:
            return None
        # With that rule equal payloads are one message, as long as it is not delivered.
        same = self.requests.of_payload(message_id)
        return next((request for request in same if request.state is not RequestState.DELIVERED), None)

    def begin(self, request: SendRequest, segments: Iterable[OutgoingSegment], now_ms: int) -> None:
        """Begin a send; its segments wait in the outbox for their turn."""
        if self._options.sds.id_rule is IdRule.PAYLOAD:
            # Its segments have the ids of an earlier send.
            for earlier in list(self.requests.of_payload(request.message_id)):
                self._close(earlier, RequestStep.EVICTED, now_ms)
        self.requests.add(request)
        self.outbox.extend(request.request_id, segments)

    def send_again(
        self, request: SendRequest, required_count: int, names: frozenset[str], deadline_ms: int | None, now_ms: int
    ) -> list[Effect] | None:
        """Repeat a send, and let it end only when this is met.

        What an open or delivered send was asked for before holds, too: it may be asked for more, but not for less. An
        open send keeps its deadline. Returns None if its segments are not kept; then the send is forgotten, and the
        message has to begin anew.
        """
        requests, before = self.requests, request.state
        segments = requests.segments_of(request)
        if before not in FAILED:
            required_count, names = max(required_count, request.required_count), names | request.required_from
        if not request.is_open and request.reaches(required_count, names, segments):
            delivered = request.delivered_event(segments, now_ms)
            if before in FAILED:
                self._close(request, RequestStep.ACKNOWLEDGED, now_ms)
            return emit(delivered)
        requests.ask(request, required_count, names)
        if request.is_open:
            return []
        if not self._keeps(request):
            self._close(request, RequestStep.EVICTED, now_ms)
            return None
        request.accepted_ms, request.deadline_ms = now_ms, deadline_ms
        requests.step(request, RequestStep.SENT_AGAIN, now_ms)
        for segment in segments:
            # The copy of a failed send that leaves now is like a first transmission.
            segment.attempts = 0 if before in FAILED else min(1, segment.attempts)
            if segment.is_parity or self.is_under_way(segment.sds_id):
                continue
            # Participants that have a delivered message may acknowledge it without a copy.
            at_ms = now_ms if before in FAILED else self._retry_at(segment, now_ms)
            requests.plan_retry(segment, at_ms)
        if before is RequestState.DELIVERED:
            self._sds.watch_again(
                {each.sds_id: Acknowledged(each.sequence, each.acknowledged_by, each.made_ms) for each in segments}
            )
        return []

    def _keeps(self, request: SendRequest) -> bool:
        """Return whether the data segments of a send that ended can be sent again."""
        segments = self.requests.segments_of(request)[: request.data_count]
        if [segment.order for segment in segments] != list(range(request.data_count)):
            return False
        return all(
            self._sds.unacknowledged(segment.sds_id) is not None or segment.sds_id in self._sds.retained
            for segment in segments
        )

    def next_segment(self, now_ms: int) -> PendingSegment | None:
        """Take the next segment from the outbox if it can leave at once, and the one before it is encrypted."""
        if self.outbox and not self._ciphering.encrypting_content and self.outbound.has_room_for_content(now_ms):
            return self.outbox.take()
        return None

    def is_under_way(self, sds_id: str) -> bool:
        """Return whether a segment is between SDS and the node's answer, for the first time or again."""
        return sds_id in self._encrypting or self.outbound.is_queued(sds_id) or self.outbound.is_handed_out(sds_id)

    def queued(self) -> int:
        """Return how many transmissions wait for the rate limit, and segments in the outbox."""
        return self.outbound.limiter.queued() + len(self.outbox)

    @property
    def sync_waits(self) -> bool:
        """Whether a sync message waits for the rate limit, the pace, or the node."""
        return bool(self.outbound.limiter.queued(Priority.SYNC))

    def claim(self, now_ms: int) -> list[Effect]:
        """Tell the other channels of the node what waits here, and the application if the node's pace holds it back."""
        self.outbound.claim(now_ms)
        self.blockage.closed(now_ms, is_closed=self.outbound.limiter.is_closed(now_ms))
        pace = self.outbound.limiter.pace.per_second
        bites = pace is not None and len(self.outbox) > 0
        return emit(*self._limits.note(Limit.NODE_PACE, max(1, int(pace or 0)), bites=bites))

    def tell_what_waits(self, request: SendRequest, now_ms: int) -> list[Effect]:
        """Tell of the segments of a new request that the rate limit holds back, or the lack of a node."""
        if not self.outbox or self._ciphering.encrypting_content or not self.outbound.holds_back(now_ms):
            return []
        limiter, connected = self.outbound.limiter, self.outbound.connected
        return emit(
            *[
                MessageQueued(
                    request_id=request.request_id,
                    message_id=request.message_id,
                    chunk_info=request.chunk_info(segment.order, is_parity=segment.is_parity),
                    expected_ms=limiter.expected_at(Priority.CONTENT, now_ms, behind=behind) if connected else None,
                )
                for behind, segment in self.outbox.waiting(request.request_id)
            ]
        )

    def apply_sds(self, pending: PendingSegment, now_ms: int) -> ComposedMessage | list[Effect]:
        """Return the SDS message of a segment, which SDS tracks until the request ends, or what to do without one."""
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
        return self._first_time(segment, message, now_ms)

    def first_time(self, segment: SentSegment, now_ms: int) -> ComposedMessage | list[Effect]:
        """Return the message of a segment that was made and never left; nothing if its request has ended."""
        waiting = self._sds.unacknowledged(segment.sds_id)
        return [] if waiting is None else self._first_time(segment, waiting.message, now_ms)

    def _first_time(self, segment: SentSegment, message: SdsMessage, now_ms: int) -> ComposedMessage | list[Effect]:
        try:
            encoded = self._sds.profile.codec.encode(message)
        except FairwayError as error:
            return self._fail(segment, SendErrorReason.ENCODING_FAILED, str(error), now_ms)
        return ComposedMessage(
            purpose=Purpose.CONTENT,
            sds_id=segment.sds_id,
            encoded=encoded,
            is_new=True,
            lamport=message.lamport_timestamp or 0,
            sequence=segment.sequence,
        )

    def _cited_by_first(self, request: SendRequest, order: int) -> tuple[HistoryEntry, ...]:
        """Return what a segment cites because the first one does, which may be lost.

        A message is whole without as many segments as it has parity. So the first of those and one more all tell what
        was sent before the message, and a receiver that rebuilds the message has one of them.
        """
        if not 0 < order <= request.segment_count - request.data_count:
            return ()
        first = self._sds.unacknowledged(request.segments[0])
        return () if first is None else first.message.causal_history

    def encrypt(self, composed: ComposedMessage, now_ms: int) -> bytes | list[Effect]:
        """Return what leaves encrypted (LIP-173, "Encryption Hook"), or what to do if that fails or is awaited."""
        if composed.purpose in _FOR_REQUESTS:
            self._encrypting.add(composed.sds_id)
        try:
            encrypted = self._ciphering.encrypt(composed.encoded, composed, is_content=composed.is_new)
        except EncryptionError as error:
            return self.not_encrypted(composed, error, now_ms)
        return encrypted if isinstance(encrypted, bytes) else [encrypted]

    def not_encrypted(self, composed: ComposedMessage, error: Exception, now_ms: int) -> list[Effect]:
        """Act on a failure of the encryption hook; it ends the request of a segment that was never encrypted before."""
        if composed.is_new:
            segment = self._live(composed.sds_id)
            if segment is None:
                self._encrypting.discard(composed.sds_id)
                return []
            return self._fail(segment, SendErrorReason.ENCRYPTION_FAILED, str(error), now_ms)
        self._tally.add("not_encrypted")
        if composed.purpose is Purpose.SYNC:
            self._sync_lost(now_ms)
        if composed.purpose is Purpose.REPAIR:
            self._sds.not_answered(composed.sds_id)
        if composed.purpose in _FOR_REQUESTS:
            self._encrypting.discard(composed.sds_id)
        segment = self._carried(composed)
        if segment is not None:
            # An attempt like any other, so that a cipher that is broken for good ends the request.
            self.requests.count_attempt(segment, self._retry_at(segment, now_ms))
        return []

    def limit(self, composed: ComposedMessage, encrypted: bytes, now_ms: int) -> list[Effect]:
        """Queue something that is encrypted until the rate limit lets it leave (`dispatch`).

        A segment that leaves for the first time is withdrawn if it does not fit or its request has ended.
        """
        if composed.is_new:
            segment = self._live(composed.sds_id)
            if segment is None:
                self._encrypting.discard(composed.sds_id)
                return []
            if self.requests.of(segment).state is RequestState.EXPIRED and self._withdraw(segment, now_ms):
                return []
            if self.outbound.is_too_large(encrypted):
                detail = f"{len(encrypted)} bytes encrypted do not fit the network"
                return self._fail(segment, SendErrorReason.MESSAGE_TOO_LARGE, detail, now_ms)
        self._enqueue(composed, encrypted)
        return []

    def dispatch(self, now_ms: int) -> list[Effect]:
        """Hand out everything that may leave now."""
        effects = self.expire(now_ms)
        for outcome in self.outbound.dispatch(now_ms):
            effects += [outcome] if isinstance(outcome, Prove) else self._handed_out(outcome, now_ms)
        return effects

    def proven(self, token: int, proof: bytes | RlnError | None, now_ms: int) -> list[Effect]:
        """Hand out what waited for a proof, or let it wait again."""
        stamped = self.outbound.proven(token)
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

    def _handed_out(self, outcome: Publish | Unsendable, now_ms: int) -> list[Effect]:
        return self._publish(outcome) if isinstance(outcome, Publish) else self._not_sendable(outcome, now_ms)

    def sync(self, now_ms: int) -> ComposedMessage | list[Effect]:
        """Return a sync message, if there is anything to say; it replaces one that waits in the queue."""
        if self.sync_waits:
            self._discard_sync(now_ms)
        message = self._sds.send_sync(now_ms)
        if message is None:
            return []
        self._unsent_sync = message
        encoded = self._sds.profile.codec.encode(message)
        return ComposedMessage(purpose=Purpose.SYNC, sds_id=message.message_id, encoded=encoded)

    def answered(self, token: int, answer: NodeAnswer, now_ms: int) -> list[Effect]:
        """Act on the node's answer to what was handed out under a token."""
        in_flight = self.outbound.answered(token)
        if in_flight is None:
            return []
        self._refusal = "" if answer.accepted else answer.detail
        if answer.accepted:
            self.blockage.ended()
        else:
            self.blockage.refused(answer.detail, now_ms)
        if answer.accepted or answer.permanent:
            self.outbound.answered_for_good(in_flight, now_ms)
        else:
            self.outbound.refused(in_flight, now_ms, too_many=answer.too_many)
        if in_flight.ephemeral is not None:
            return self.ephemeral.answered(in_flight, answer, now_ms)
        return self._accepted(in_flight, now_ms) if answer.accepted else self._not_taken(in_flight, answer, now_ms)

    def _not_taken(self, in_flight: InFlight, answer: NodeAnswer, now_ms: int) -> list[Effect]:
        """Plan what the node did not take: a segment is due again, at once or after a pause."""
        purpose, sds_id = in_flight.purpose, in_flight.sds_id
        self._tally.add("not_taken")
        self._sds.withdraw_hint(sds_id, in_flight.message_hash)
        carried = self._carried(in_flight.transmission)
        if purpose is Purpose.SYNC:
            self._sync_lost(now_ms)
            self._sync_timer.send_soon(now_ms)
        if purpose is Purpose.REPAIR and not answer.permanent:
            self._sds.not_answered(sds_id)
        if carried is None:
            return []
        if answer.permanent:
            return self._fail(carried, answer.send_error, answer.detail, now_ms)
        carried.refusals += not answer.too_many
        is_suspect = carried.refusals > _REFUSALS_IN_PLACE
        self.requests.plan_retry(carried, now_ms + (_POSTPONED_MS if is_suspect else 0))
        self._withdraw_unsent(now_ms)
        return []

    def not_stored(self, sds_id: str, now_ms: int) -> None:
        """Retransmit a segment at once that was sent once and that no store has."""
        segment = self._live(sds_id)
        may_retry = self._max_retries > 0 and segment is not None and segment.retry_at is not None
        if segment is not None and may_retry and segment.attempts == 1 and not segment.acknowledged_by:
            self.requests.plan_retry(segment, now_ms)

    def reviewed(self, review: Review, now_ms: int) -> list[Effect]:
        """Pass on evidence about a segment, and stop repeating what its request no longer needs."""
        segment = self._live(review.message_id)
        if segment is None or self.requests.of(segment).state is RequestState.DELIVERED:
            return []
        first_sign = review.evidence is None and not (segment.possibly or segment.acknowledged_by)
        request = self.requests.of(segment)
        events = self.requests.review(review, now_ms)
        if request.state is RequestState.OVERDUE and review.evidence is not None and self._overdue is not None:
            self._overdue.progressed(now_ms)
        if any(isinstance(event, MessageDelivered) for event in events):
            self._close(request, RequestStep.ACKNOWLEDGED, now_ms)
            return [*emit(*events), *self._evict(now_ms)]
        if first_sign and segment.retry_at is not None and self.requests.waits_longer(segment):
            self.requests.plan_retry(segment, segment.retry_at + self._options.retry_interval_ms)
        is_queued_again = segment.has_left and self.outbound.is_queued(segment.sds_id)
        if is_queued_again and not self.requests.needs_retry(segment):
            self.outbound.discard(segment.sds_id)
            self.requests.plan_retry(segment, self._retry_at(segment, now_ms))
        return emit(*events)

    def heard(self, name: str, now_ms: int) -> None:
        """Note that a message of a participant came: overdue sends are sent again soon if it returns."""
        if self._overdue is not None:
            self._overdue.heard(name, now_ms)

    def take_due(self, now_ms: int) -> list[SentSegment]:
        """Return the segments that are to be sent again now (RELIABLE-CHANNEL-API, "Message retries").

        SDS, "Periodic Outgoing Buffer Sweep": unacknowledged messages MUST be rebroadcast, and possibly acknowledged
        ones SHOULD wait longer: here twice as long.
        """
        return self.requests.take_due(now_ms)

    def take_overdue(self, now_ms: int) -> list[SentSegment]:
        """Return the few segments of overdue sends that are to be sent again now."""
        if self._overdue is None or self._overdue.at_ms is None:
            return []
        if not self.requests.has_overdue:
            self._overdue.end()
            return []
        due = self._overdue.take_due(now_ms)
        if due is None or not self._may_retry:
            return []
        if not due.is_answer:
            return self.requests.least_tried(self.is_under_way, now_ms)
        heard = list(self._overdue.heard_since(now_ms - self._interval_ms))
        tried_before_ms = now_ms - 2 * self._interval_ms
        chosen = self.requests.awaiting(heard, due.size, tried_before_ms, self.is_under_way, now_ms)
        if chosen:
            self._overdue.answered(now_ms)
        return chosen

    @property
    def _may_retry(self) -> bool:
        """Whether fewer segments are being sent again than may be at once."""
        return self.outbound.active_retries + len(self._encrypting) < self._options.advanced.max_active_retries

    @property
    def can_retry_held(self) -> bool:
        """Whether a segment that waited until fewer others are sent again can be sent again now."""
        return bool(self.requests.held) and self._may_retry

    def oldest_held(self) -> SentSegment:
        """Return the segment that is held and was due first."""
        return next(iter(self.requests.held.values()))

    def note_held(self) -> list[Effect]:
        """Tell whether more segments are to be sent again than may be at once."""
        return emit(
            *self._limits.note(
                Limit.ACTIVE_RETRIES, self._options.advanced.max_active_retries, bites=bool(self.requests.held)
            )
        )

    def next_retry_at(self, now_ms: int) -> int | None:
        """Return when a segment is next due to be sent again."""
        if self.can_retry_held:
            return now_ms
        overdue_ms = None if self._overdue is None else self._overdue.at_ms
        return min((at for at in (self.requests.next_retry_at(), overdue_ms) if at is not None), default=None)

    def repeat(self, segment: SentSegment, now_ms: int) -> ComposedMessage | list[Effect]:
        """Return a segment whose time has come, to be sent again; nothing if it need not be now, or is not any more.

        A segment that never left is always needed: later messages cite it. Another one is held while many are being
        sent again. When it was sent as often as allowed, its send fails.
        """
        request = self.requests.of(segment)
        if segment.has_left and not request.is_open:
            # Its send ended while this one was due.
            return []
        waiting = self._sds.unacknowledged(segment.sds_id)
        is_under_way = self.is_under_way(segment.sds_id)
        needs_retry = waiting is not None and (not segment.has_left or self.requests.needs_retry(segment))
        is_late = is_under_way and segment.has_left and request.was_sent
        if needs_retry and is_late and self.outbound.limiter.limiting:
            # The rate limit held it back for an interval. If that did not count, a send would never fail under a limit.
            segment.attempts += 1
        if needs_retry and segment.attempts > self._max_retries:
            return self._exhausted(request, now_ms)
        if waiting is None:
            self.requests.plan_retry(segment, None)
        elif is_under_way or not needs_retry:
            self.requests.plan_retry(segment, self._retry_at(segment, now_ms))
        elif segment.has_left and not self._may_retry:
            self.requests.hold(segment, now_ms)
        else:
            # If it waits for the rate limit until then, that counts as an attempt.
            self.requests.plan_retry(segment, self._retry_at(segment, now_ms) if segment.has_left else None)
            return self._copy(segment, waiting.message)
        return []

    def repeat_overdue(self, segment: SentSegment) -> ComposedMessage | list[Effect]:
        """Return a copy of a segment whose send is overdue."""
        waiting = self._sds.unacknowledged(segment.sds_id)
        return [] if waiting is None else self._copy(segment, waiting.message)

    def _copy(self, segment: SentSegment, message: SdsMessage) -> ComposedMessage:
        # What never left goes before what is repeated, in its place, unless the node refuses just this one.
        is_repeated = segment.has_left or segment.refusals > _REFUSALS_IN_PLACE
        return ComposedMessage(
            purpose=Purpose.RETRY if is_repeated else Purpose.CONTENT,
            sds_id=segment.sds_id,
            encoded=self._sds.profile.codec.encode(message),
            sequence=None if is_repeated else segment.sequence,
        )

    def _exhausted(self, request: SendRequest, now_ms: int) -> list[Effect]:
        """Let a send fail whose retries are used up; from now on it is sent again at the falling rate."""
        times = self._max_retries
        detail = f"not acknowledged after {times} retransmission{'' if times == 1 else 's'}"
        error = self.requests.failure(request, FailureReason.NOT_ACKNOWLEDGED, detail, self._refusal)
        self.requests.step(request, RequestStep.EXHAUSTED, now_ms)
        self._stop_retries(request)
        if self._overdue is not None:
            self._overdue.begin(now_ms)
        return [*emit(error), *self._evict(now_ms)]

    def _stop_retries(self, request: SendRequest) -> None:
        for segment in self.requests.segments_of(request):
            if segment.has_left:
                self.outbound.discard(segment.sds_id)
                self.requests.plan_retry(segment, None)

    def _evict(self, now_ms: int) -> list[Effect]:
        """Forget sends that failed or were delivered if there are too many of them."""
        events: list[Event] = []
        for request in self.requests.surplus():
            if request.state in FAILED:
                bound = self._options.advanced.max_overdue_bytes
                events += self._limits.note(Limit.OVERDUE_SENDS, bound, bites=True)
            if request.state is RequestState.OVERDUE:
                detail = "not acknowledged, and newer sends that are not acknowledged take the room"
                events.append(self.requests.failure(request, FailureReason.GIVEN_UP, detail, self._refusal))
            self._close(request, RequestStep.EVICTED, now_ms)
        if self.requests.failed_bytes <= self._options.advanced.max_overdue_bytes // 2:
            self._limits.relieved([Limit.OVERDUE_SENDS])
        return emit(*events)

    def expire(self, now_ms: int) -> list[Effect]:
        """Let the sends fail whose deadline has passed."""
        effects: list[Effect] = []
        for request in self.requests.take_expired(now_ms):
            detail = f"the deadline of {(request.deadline_ms or 0) / 1_000:g} s has passed"
            effects += emit(self.requests.failure(request, FailureReason.EXPIRED, detail, self._refusal))
            self.outbox.drop(request.request_id)
            if not request.segments:
                self._close(request, RequestStep.UNSENDABLE, now_ms)
                continue
            if len(request.segments) >= request.data_count:
                # Parity that did not leave yet is not needed.
                request.segment_count = len(request.segments)
            self.requests.step(request, RequestStep.DEADLINE, now_ms)
            self._stop_retries(request)
            unsent = [each for each in self.requests.segments_of(request) if not each.has_left]
            self._unsent |= dict.fromkeys(each.sds_id for each in unsent)
        if effects:
            self._withdraw_unsent(now_ms)
            effects += self._evict(now_ms)
        return effects

    def _withdraw_unsent(self, now_ms: int) -> None:
        """Withdraw the segments of expired sends that the node never took, as far as that is still possible."""
        for sds_id in list(self._unsent):
            segment = self._live(sds_id)
            if segment is None or segment.has_left or self.requests.of(segment).state is not RequestState.EXPIRED:
                del self._unsent[sds_id]
            elif sds_id not in self._encrypting and not self.outbound.is_handed_out(sds_id):
                self._withdraw(segment, now_ms)

    def _withdraw(self, segment: SentSegment, now_ms: int) -> bool:
        """Withdraw a segment that never left, and return whether that was possible.

        It is not once a message that may cite it has left: participants would wait for it.
        """
        sds_id, request = segment.sds_id, self.requests.of(segment)
        citing = [self.requests.segments[each] for each in self._sds.citing(sds_id)]
        may_be_cited = sds_id not in self._encrypting
        has_left = self.outbound.is_busy or self.outbound.done > segment.entered_at_count
        leaves = any(
            each.has_left or each.sds_id in self._encrypting or self.outbound.is_handed_out(each.sds_id)
            for each in citing
        )
        if leaves or (may_be_cited and has_left):
            return False
        self._sds.withdraw(sds_id, now_ms)
        self._encrypting.discard(sds_id)
        self.outbound.discard(sds_id)
        if self.sync_waits:
            self._discard_sync(now_ms)
        for each in citing:
            if self.outbound.is_queued(each.sds_id):
                # It is encoded and encrypted anew.
                self.outbound.discard(each.sds_id)
                self.requests.plan_retry(each, now_ms)
        self.requests.drop_segment(segment)
        if not request.segments:
            self._close(request, RequestStep.EVICTED, now_ms)
        return True

    def seek_acknowledgements(self, segment: SentSegment, now_ms: int) -> list[QueryStore]:
        """Return the query for acknowledgements that got lost, if a segment that is sent again was in vain so far."""
        return self._lost_acknowledgements.query(segment.attempts, segment.made_ms, now_ms)

    def repair(self, message_id: str, encoded: bytes) -> ComposedMessage | list[Effect]:
        """Return a message that somebody asked for and that it is our turn to send (SDS-R), unless it waits already."""
        queued, handed_out = self.outbound.is_queued, self.outbound.is_handed_out
        is_answered = queued(message_id, repair=True) or handed_out(message_id, repair=True)
        is_full = self.outbound.limiter.queued(Priority.REPAIR) >= _MAX_REPAIRS
        if is_full or is_answered or self.is_under_way(message_id):
            self._sds.not_answered(message_id)
            return []
        return ComposedMessage(purpose=Purpose.REPAIR, sds_id=message_id, encoded=encoded)

    def never_left(self) -> list[SentSegment]:
        """After a restart, return the segments that were made and never left, in their order."""
        for segment in self.requests.segments.values():
            if not segment.accepted:
                # Its hint was kept before the node got what that is the hash of, and maybe the node never did.
                self._withdraw_hint(segment.sds_id)
        unsent = [
            segment
            for segment in self.requests.segments.values()
            if not segment.has_left and self._sds.unacknowledged(segment.sds_id) is not None
        ]
        self._encrypting.update(segment.sds_id for segment in unsent)
        # The order of rows says nothing of when segments were made.
        return sorted(unsent, key=lambda segment: segment.sequence)

    def plan_anew(self, now_ms: int) -> None:
        """Bring forward what was planned by a clock that was ahead, in this run or an earlier one."""
        self.requests.plan_anew(now_ms + 2 * self._interval_ms, now_ms)
        self.outbound.plan_anew(now_ms)
        self._lost_acknowledgements = LostAcknowledgements(self._options)
        if self._overdue is not None:
            self._overdue = OverdueRetries(self._interval_ms)
            if self.requests.has_overdue:
                self._overdue.begin(now_ms)

    def _waits_above(self) -> Upstream:
        """Return what the rate limit needs to know of the outbox.

        Nothing of it can leave while a hook is awaited. It will need its room all the same, and so will what is being
        encrypted.
        """
        is_encrypting = self._ciphering.encrypting_content
        return Upstream(len(self.outbox) + is_encrypting, is_ready=len(self.outbox) > 0 and not is_encrypting)

    def _discard_sync(self, now_ms: int) -> None:
        """Drop the sync message that waits in the queue, which is the newest one."""
        if self._unsent_sync is not None:
            self.outbound.discard(self._unsent_sync.message_id)
        self._sync_lost(now_ms)

    def _sync_lost(self, now_ms: int) -> None:
        if self._unsent_sync is not None:
            self._sds.take_back(self._unsent_sync, now_ms)
            self._unsent_sync = None

    def _carried(self, sent: ComposedMessage | Transmission | Publish) -> SentSegment | None:
        """Return the segment that a transmission carries; None for an answer to a repair, and if its send has ended."""
        return self._live(sent.sds_id) if sent.purpose in _FOR_REQUESTS else None

    def _live(self, sds_id: str) -> SentSegment | None:
        """Return a segment whose send may still be acknowledged, or that has still to leave because others cite it."""
        segment = self.requests.segments.get(sds_id)
        if segment is None or (segment.has_left and self.requests.of(segment).state is RequestState.DELIVERED):
            return None
        return segment

    def _enqueue(self, composed: ComposedMessage, encrypted: bytes) -> None:
        transmission = Transmission(
            purpose=composed.purpose,
            sds_id=composed.sds_id,
            payload=encrypted,
            sequence=composed.sequence,
        )
        if composed.purpose in _FOR_REQUESTS:
            self._encrypting.discard(composed.sds_id)
        self.outbound.enqueue(transmission)

    def _publish(self, publish: Publish) -> list[Effect]:
        self._tally.sent(publish.purpose, len(publish.encoded))
        segment = self._carried(publish)
        if segment is None:
            return [publish]
        request = self.requests.of(segment)
        self._sds.add_hint(publish.sds_id, publish.message_hash)
        sending = MessageSending(
            request_id=request.request_id,
            message_id=request.message_id,
            chunk_info=self.requests.chunk_info(segment),
            attempt=segment.attempts,
        )
        return [Emit(event=sending), publish]

    def _retry_at(self, segment: SentSegment, now_ms: int) -> int:
        return now_ms + self._interval_ms * (2 if self.requests.waits_longer(segment) else 1)

    def _not_sendable(self, what: Unsendable, now_ms: int) -> list[Effect]:
        segment = self._carried(what.transmission)
        if segment is not None:
            return self._fail(segment, what.reason, what.detail, now_ms)
        self._tally.add("refused")
        return []

    def _accepted(self, in_flight: InFlight, now_ms: int) -> list[Effect]:
        sds_id, message_hash = in_flight.sds_id, in_flight.message_hash
        if self._unsent_sync is not None and sds_id == self._unsent_sync.message_id:
            self._unsent_sync = None
        record = self._sds.record(sds_id)
        if record is None or record.retrieval_hint != message_hash:
            segment = self.requests.segments.get(sds_id)
            if segment is not None and not segment.accepted:
                # A hint that was not confirmed is replaced by one that was.
                self._withdraw_hint(sds_id)
            self._sds.add_hint(sds_id, message_hash)
        carried = self._carried(in_flight.transmission)
        if carried is None:
            return []
        carried.refusals = 0
        if self.requests.of(carried).state is RequestState.DELIVERED:
            self._sds.forget_outgoing(sds_id)
        # Parity is not sent again: a receiver that lacks data segments gets those. The interval begins now, because the
        # segment could not be received before the node took it.
        self.requests.count_attempt(carried, None if carried.is_parity else self._retry_at(carried, now_ms))
        return emit(*self.requests.accepted(carried, message_hash))

    def _withdraw_hint(self, sds_id: str) -> None:
        record = self._sds.record(sds_id)
        if record is not None and record.retrieval_hint is not None:
            self._sds.withdraw_hint(sds_id, record.retrieval_hint)

    def _fail(self, segment: SentSegment, reason: SendErrorReason, detail: str, now_ms: int) -> list[Effect]:
        request = self.requests.of(segment)
        # An expired send has ended for the application.
        is_expired = request.state is RequestState.EXPIRED
        events = () if is_expired else self.requests.send_error(segment, reason, detail, self._refusal)
        self._close(request, RequestStep.UNSENDABLE, now_ms)
        return emit(*events)

    def _close(self, request: SendRequest, step: RequestStep, now_ms: int) -> None:
        """Let a send end by a step after which SDS need not watch its segments any more."""
        if len(request.segments) < request.segment_count:
            self.outbox.drop(request.request_id)
        for segment in self.requests.segments_of(request):
            if request.state is RequestState.DELIVERED and segment.has_left:
                continue
            # No message is made while a new segment is being encrypted; after a restart there may be several.
            is_new = segment.sds_id in self._encrypting and not segment.has_left
            is_uncited = is_new and not self._sds.citing(segment.sds_id)
            if is_new:
                self._encrypting.discard(segment.sds_id)
            if is_uncited:
                self._sds.withdraw(segment.sds_id, now_ms)
            elif segment.has_left or step is not RequestStep.ACKNOWLEDGED:
                self._sds.forget_outgoing(segment.sds_id)
            # A segment that never left is cited by later messages: without it every participant would ask for it.
            if segment.has_left:
                self.requests.plan_retry(segment, None)
                self.outbound.discard(segment.sds_id)
        self.requests.step(request, step, now_ms)
