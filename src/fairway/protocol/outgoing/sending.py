"""The way out: new segments, retries, answers to repair requests, sync messages, and what a send goes through.

All of them go the same way down from SDS on: encrypt, limit, dispatch (`Stack._pass_down`). They differ in what they
carry, how urgent they are and what happens when they cannot be sent. What is to go down is returned as `Leaving`.

What is in the history was cited, or will be: so a segment enters it only when it was encrypted and is known to fit, and
from then on it leaves, also when its request has ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError, EncryptionError, FairwayError, RlnError
from fairway.events import Limit, MessageDelivered, MessageQueued, MessageSending, SendErrorReason
from fairway.options import BloomPolicy, IdRule, ReliableChannelOptions
from fairway.protocol.effects import Effect, Emit, NodeAnswer, Prove, Publish, Purpose, QueryStore, emit
from fairway.protocol.encryption.ciphering import Ciphering
from fairway.protocol.journal import Journal
from fairway.protocol.limits import LimitWatch
from fairway.protocol.outgoing.dispatching import (
    RETRY_AFTER_REFUSAL_MS,
    InFlight,
    Outbound,
    Transmission,
    Unsendable,
)
from fairway.protocol.outgoing.ephemeral import EphemeralSending
from fairway.protocol.outgoing.last_heard import LastHeard
from fairway.protocol.outgoing.lost_acknowledgements import LostAcknowledgements
from fairway.protocol.outgoing.outbox import Outbox, PendingSegment
from fairway.protocol.outgoing.request import SendRequest, SentSegment, wanted_id
from fairway.protocol.outgoing.requests import Requests
from fairway.protocol.outgoing.segment_life import UNDER_WAY, SegmentState, SegmentStep
from fairway.protocol.outgoing.want_more import EndedRequest, EndedRequests, WantMore
from fairway.protocol.ratelimit import Membership, Priority, Upstream
from fairway.protocol.sds.acknowledged_by import marks_of
from fairway.protocol.sds.acknowledgements import Acknowledged, Review
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.segmentation.segmenter import OutgoingSegment, Segmenter
from fairway.protocol.statistics import Tally
from fairway.wire.sds import HistoryEntry, SdsMessage

_ACKNOWLEDGED_WITHIN_MS: Final = 330_000
"""How long an acknowledgement is waited for where nothing is repeated: as long as with the default retries."""
_MARKED_SHARE: Final = 0.75
"""Of the largest message: a copy up to this has room for marks, whatever a cipher adds. The message itself did fit."""
_SOON_SHARE: Final = 0.25
"""Of the retry interval: how long who was heard has time to acknowledge what was put off until then."""
_FOR_REQUESTS: Final = (Purpose.CONTENT, Purpose.RETRY)
"""Transmissions that a request counts as its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """An SDS message that goes down from SDS: encrypt, limit, dispatch."""

    purpose: Purpose
    sds_id: str
    encoded: bytes
    first_segment: bool = True
    """Whether it begins a message, or is none (see `Transmission`)."""
    new: SdsMessage | None = None
    """The message itself if it is not in the history yet: it enters that when it is encrypted."""


class Sending:
    """The outgoing half of a channel, which owns the outbox, the requests and the queue of the rate limit."""

    def __init__(
        self,
        content_topic: str,
        options: ReliableChannelOptions,
        *,
        sds: MessageChannel,
        segmenter: Segmenter,
        ciphering: Ciphering,
        waku_version: int,
        proves: bool,
        membership: Membership | None,
        journal: Journal,
        tally: Tally,
        limits: LimitWatch,
    ) -> None:
        self._options = options
        self._max_retries = options.max_retry_attempts if options.retry_interval_ms else 0
        self._interval_ms = options.retry_interval_ms or _ACKNOWLEDGED_WITHIN_MS
        self._last_heard = LastHeard()
        self._sds = sds
        self._ciphering = ciphering
        self.requests = Requests(journal)
        self.outbox = Outbox(journal)
        self.outbound = Outbound(
            content_topic,
            options,
            waku_version,
            journal,
            membership,
            upstream=self._waits_above,
            proves=proves,
        )
        self.ephemeral = EphemeralSending(options, segmenter, sds, self.outbound, ciphering, tally)
        self._ended = EndedRequests()
        self._want_more = WantMore(sds, self.requests, self._ended)
        self._tally = tally
        self._lost_acknowledgements = LostAcknowledgements(options)
        self._limits = limits
        self._unsent_sync: SdsMessage | None = None
        """The newest sync message, until the network took it."""

    def under_way(self, message_id: str, request_id: str | None) -> SendRequest | None:
        """Return the send that has not ended and that a new one would repeat."""
        if request_id is not None:
            request = self.requests.open.get(wanted_id(request_id))
            if request is not None and request.message_id != message_id:
                raise ConfigurationError(
                    f"request_id {request_id!r} stands for another payload that is being sent; choose an id per message"
                )
            if request is not None:
                return request
        # With that rule equal payloads are one message.
        return self.requests.of_payload(message_id) if self._options.sds.id_rule is IdRule.PAYLOAD else None

    def begin(self, request: SendRequest, segments: Iterable[OutgoingSegment]) -> None:
        """Begin a send; its segments wait in the outbox for their turn."""
        self._ended.forget(request.request_id)
        self.requests.add(request)
        self.outbox.extend(request.request_id, segments)

    def want_more(self, request_id: str, required_count: int, names: frozenset[str], now_ms: int) -> list[Effect]:
        """Ask more of a send (`fairway.protocol.outgoing.want_more`)."""
        answer = self._want_more.want(request_id, required_count, names, now_ms)
        if isinstance(answer, MessageDelivered):
            return emit(answer)
        for segment in answer:
            self._begin_anew(segment, now_ms)
        return []

    def next_segment(self, now_ms: int) -> PendingSegment | None:
        """Take the next segment from the outbox if it can leave at once, and the one before it is encrypted."""
        if self.outbox and not self._ciphering.encrypting_content and self.outbound.has_room_for_content(now_ms):
            return self.outbox.take()
        return None

    def queued(self) -> int:
        """Return how many transmissions wait for the rate limit, and segments in the outbox."""
        return self.outbound.queued() + len(self.outbox)

    @property
    def sync_waits(self) -> bool:
        """Whether a sync message waits for the rate limit, the pace, or the node."""
        return bool(self.outbound.limiter.queued(Priority.SYNC))

    def claim(self, now_ms: int) -> list[Effect]:
        """Tell the other channels of the node what waits here, and the application if the node's pace holds it back."""
        self.outbound.claim(now_ms)
        pace = self.outbound.per_second
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

    def apply_sds(self, pending: PendingSegment, now_ms: int) -> Leaving | list[Effect]:
        """Return the SDS message of a segment, which SDS tracks until the request ends, or what to do without one."""
        request = self.requests.open[pending.request_id]
        beside = self._cited_by_first(request, pending.order)
        message = self._sds.send(pending.content, now_ms, beside=beside)
        segment = self.requests.add_segment(request, message.message_id, pending.order, is_parity=pending.is_parity)
        return self._first_time(segment, message, now_ms)

    def first_time(self, message: SdsMessage, now_ms: int) -> Leaving | list[Effect]:
        """Return the message of a segment that was made and never left; nothing if its request has ended."""
        segment = self.requests.segments.get(message.message_id)
        return [] if segment is None else self._first_time(segment, message, now_ms)

    def _first_time(self, segment: SentSegment, message: SdsMessage, now_ms: int) -> Leaving | list[Effect]:
        try:
            encoded = self._sds.profile.codec.encode(message)
        except FairwayError as error:
            return self._fail(segment, SendErrorReason.ENCODING_FAILED, str(error), now_ms)
        return Leaving(
            purpose=Purpose.CONTENT,
            sds_id=segment.sds_id,
            encoded=encoded,
            first_segment=segment.order == 0,
            new=message,
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

    def encrypt(self, leaving: Leaving, now_ms: int) -> bytes | list[Effect]:
        """Return what leaves encrypted (LIP-173, "Encryption Hook"), or what to do if that fails or is awaited."""
        try:
            encrypted = self._ciphering.encrypt(leaving.encoded, leaving, is_content=leaving.new is not None)
        except EncryptionError as error:
            return self.not_encrypted(leaving, error, now_ms)
        return encrypted if isinstance(encrypted, bytes) else [encrypted]

    def not_encrypted(self, leaving: Leaving, error: Exception, now_ms: int) -> list[Effect]:
        """Act on a failure of the encryption hook; it ends the request of a segment that was never encrypted before."""
        if leaving.new is not None:
            segment = self.requests.segments.get(leaving.sds_id)
            if segment is None:
                return []
            return self._fail(segment, SendErrorReason.ENCRYPTION_FAILED, str(error), now_ms)
        self._tally.add("not_encrypted")
        if leaving.purpose is Purpose.SYNC:
            self._sync_lost(now_ms)
        if leaving.purpose is Purpose.REPAIR:
            self._sds.not_answered(leaving.sds_id)
        segment = self._carried(leaving, SegmentState.ENCRYPTING)
        if segment is not None:
            self.requests.move(segment, SegmentStep.NOT_ENCRYPTED)
            # An attempt like any other, so that a cipher that is broken for good ends the request.
            self.requests.count_attempt(segment, self._retry_at(segment, now_ms))
        return []

    def limit(self, leaving: Leaving, encrypted: bytes, now_ms: int) -> list[Effect]:
        """Queue something that is encrypted until the rate limit lets it leave (`dispatch`).

        A segment that leaves for the first time enters the history here, if it fits and its request has not ended.
        """
        if leaving.new is not None:
            segment = self.requests.segments.get(leaving.sds_id)
            if segment is None:
                return []
            if self.outbound.is_too_large(encrypted):
                detail = f"{len(encrypted)} bytes encrypted do not fit the network"
                return self._fail(segment, SendErrorReason.MESSAGE_TOO_LARGE, detail, now_ms)
            self._sds.broadcast(leaving.new, None)
        self._enqueue(leaving, encrypted, now_ms)
        return []

    def dispatch(self, now_ms: int) -> list[Effect]:
        """Hand out everything that may leave now."""
        effects: list[Effect] = []
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
        unsendable = self.outbound.not_proven(stamped, proof, now_ms)
        if is_ephemeral:
            return self.ephemeral.not_proven(stamped.transmission, proof.kind, now_ms)
        return [] if unsendable is None else self._not_sendable(unsendable, now_ms)

    def _handed_out(self, outcome: Publish | Unsendable, now_ms: int) -> list[Effect]:
        return self._publish(outcome) if isinstance(outcome, Publish) else self._not_sendable(outcome, now_ms)

    def sync(self, now_ms: int) -> Leaving | list[Effect]:
        """Return a sync message, if there is anything to say; it replaces one that waits in the queue."""
        if self.sync_waits:
            self.outbound.limiter.discard(lambda _: True, Priority.SYNC)
            self._sync_lost(now_ms)
        message = self._sds.send_sync(now_ms)
        if message is None:
            return []
        self._unsent_sync = message
        encoded = self._sds.profile.codec.encode(message)
        return Leaving(purpose=Purpose.SYNC, sds_id=message.message_id, encoded=encoded)

    def answered(self, token: int, answer: NodeAnswer, now_ms: int) -> list[Effect]:
        """Act on the node's answer to what was handed out under a token."""
        in_flight = self.outbound.answered(token)
        if in_flight is None:
            return []
        if answer.accepted or answer.permanent:
            self.outbound.answered_for_good(in_flight, now_ms)
        else:
            self.outbound.refused(in_flight, now_ms, too_many=answer.too_many)
        if in_flight.ephemeral is not None:
            return self.ephemeral.answered(in_flight, answer, now_ms)
        return self._accepted(in_flight, now_ms) if answer.accepted else self._not_taken(in_flight, answer, now_ms)

    def _not_taken(self, in_flight: InFlight, answer: NodeAnswer, now_ms: int) -> list[Effect]:
        purpose, sds_id = in_flight.purpose, in_flight.sds_id
        segment = self.requests.segments.get(sds_id)
        self._tally.add("not_taken")
        self._sds.withdraw_hint(sds_id, in_flight.message_hash)
        carried = self._carried(in_flight.transmission, SegmentState.IN_FLIGHT)
        if (
            not answer.permanent
            and self._is_still_wanted(purpose, segment)
            and self.outbound.put_back(in_flight, now_ms, too_many=answer.too_many)
        ):
            if carried is not None:
                self.requests.move(carried, SegmentStep.PUT_BACK)
            return []
        if purpose is Purpose.SYNC:
            self._sync_lost(now_ms)
        if purpose is Purpose.REPAIR and not answer.permanent:
            self._sds.not_answered(sds_id)
        if carried is not None and answer.permanent:
            return self._fail(carried, answer.send_error, answer.detail, now_ms)
        if carried is not None:
            self._postpone(carried, SegmentStep.NOT_TAKEN, now_ms)
        return []

    def reviewed(self, review: Review, now_ms: int) -> list[Effect]:
        """Pass on evidence about a segment, and stop repeating what its request no longer needs."""
        segment = self.requests.segments.get(review.message_id)
        if segment is None:
            return []
        first_sign = review.evidence is None and not (segment.possibly or segment.acknowledged_by)
        events = self.requests.review(review, now_ms)
        if any(isinstance(event, MessageDelivered) for event in events):
            self._close(segment.request_id, now_ms, delivered=True)
            return emit(*events)
        if first_sign and segment.retry_at is not None and self.requests.waits_longer(segment):
            self.requests.plan_retry(segment, segment.retry_at + self._options.retry_interval_ms)
        is_queued_again = segment.attempts and segment.state is SegmentState.QUEUED
        if is_queued_again and not self.requests.needs_retry(segment):
            self.outbound.discard(segment.sds_id)
            self.requests.move(segment, SegmentStep.UNNEEDED)
            self.requests.plan_retry(segment, self._retry_at(segment, now_ms))
        return emit(*events)

    def heard(self, name: str, now_ms: int) -> None:
        """Note that a participant was heard: what was put off until then is soon sent again.

        Not at once, since what it says next may acknowledge it.
        """
        self._last_heard.heard(name, now_ms)
        for segment in self.requests.take_put_off(name):
            if segment.retry_at is not None:
                soon_ms = now_ms + int(self._interval_ms * _SOON_SHARE)
                self.requests.plan_retry(segment, min(segment.retry_at, soon_ms))

    def _begin_anew(self, segment: SentSegment, now_ms: int) -> None:
        """Plan to repeat a segment of a request that was opened again, as often as if it had left just now."""
        segment.attempts = min(1, segment.attempts)
        self.requests.plan_retry(segment, None if segment.is_parity else self._retry_at(segment, now_ms))

    def take_due(self, now_ms: int) -> list[SentSegment]:
        """Return the segments that are to be sent again now (RELIABLE-CHANNEL-API, "Message retries").

        SDS, "Periodic Outgoing Buffer Sweep": unacknowledged messages MUST be rebroadcast, and possibly acknowledged
        ones SHOULD wait longer: here twice as long.
        """
        return self.requests.take_due(now_ms)

    @property
    def goes_on_with_held(self) -> bool:
        """Whether a segment that waited until fewer others are sent again can be sent again now."""
        return bool(self.requests.held) and self.requests.repeated < self._options.max_active_retries

    def first_held(self) -> SentSegment:
        """Return the segment that is held and was due first."""
        return next(iter(self.requests.held.values()))

    def note_held(self) -> list[Effect]:
        """Tell whether more segments are to be sent again than may be at once."""
        return emit(
            *self._limits.note(Limit.ACTIVE_RETRIES, self._options.max_active_retries, bites=bool(self.requests.held))
        )

    def next_retry_at(self, now_ms: int) -> int | None:
        """Return when a segment is next due to be sent again."""
        return now_ms if self.goes_on_with_held else self.requests.next_retry_at()

    def repeat(self, segment: SentSegment, now_ms: int) -> Leaving | list[Effect]:
        """Return a segment whose time has come, to be sent again; nothing if it need not be now, or is not any more.

        It is held while many others are being sent again. When it was sent as often as allowed, its request ends with a
        delivery error.
        """
        request = self.requests.open.get(segment.request_id)
        if request is None:
            return []
        waiting = self._sds.unacknowledged(segment.sds_id)
        # A copy that is retained for repair requests is encoded.
        message = self._sds.retained.encoded(segment.sds_id) if waiting is None else waiting.message
        is_under_way = segment.state in UNDER_WAY or self.outbound.waits(segment.sds_id)
        if message is None or is_under_way or not self.requests.needs_retry(segment):
            if segment.state is SegmentState.HELD:
                self.requests.move(segment, SegmentStep.UNNEEDED)
            self.requests.plan_retry(segment, self._retry_at(segment, now_ms))
        elif segment.attempts > self._max_retries:
            why = f"not acknowledged after {self._max_retries} retransmissions"
            error = self.requests.delivery_error(request, why)
            self._close(request.request_id, now_ms)
            return emit(error)
        elif segment.attempts and not self.requests.is_for(segment, self._last_heard.since(now_ms - self._interval_ms)):
            if segment.state is SegmentState.HELD:
                self.requests.move(segment, SegmentStep.UNNEEDED)
            self.requests.plan_retry(segment, self._retry_at(segment, now_ms))
            self.requests.put_off(segment)
        elif segment.attempts and self.requests.repeated >= self._options.max_active_retries:
            self.requests.move(segment, SegmentStep.HOLD)
        else:
            self.requests.move(segment, SegmentStep.DUE)
            # What never left goes before what is repeated.
            purpose = Purpose.RETRY if segment.attempts else Purpose.CONTENT
            is_first = segment.order == 0
            encoded = message if isinstance(message, bytes) else self._sds.profile.codec.encode(message)
            encoded = self._marked(encoded, segment)
            return Leaving(purpose=purpose, sds_id=segment.sds_id, encoded=encoded, first_segment=is_first)
        return []

    def _marked(self, encoded: bytes, segment: SentSegment) -> bytes:
        """Return a copy that says whose acknowledgement of it is known, if there is room for that."""
        if self._options.sds.bloom_policy is BloomPolicy.ALWAYS or not segment.acknowledged_by:
            return encoded
        marks = marks_of(segment.acknowledged_by, segment.sds_id)
        is_small = len(encoded) + len(marks) <= self._options.max_wire_message_bytes * _MARKED_SHARE
        return self._sds.profile.codec.with_acknowledged_by(encoded, marks) if is_small else encoded

    def seek_acknowledgements(self, segment: SentSegment, now_ms: int) -> list[QueryStore]:
        """Return the query for acknowledgements that got lost, if a segment that is sent again was in vain so far."""
        return self._lost_acknowledgements.query(segment.attempts, now_ms)

    def repair(self, message_id: str, encoded: bytes) -> Leaving | list[Effect]:
        """Return a message that somebody asked for and that it is our turn to send (SDS-R), unless it waits already."""
        if self.outbound.waits(message_id) or self.outbound.repair_is_under_way(message_id):
            self._sds.not_answered(message_id)
            return []
        return Leaving(purpose=Purpose.REPAIR, sds_id=message_id, encoded=encoded)

    def never_left(self) -> list[SdsMessage]:
        """After a restart, return the messages of segments that were made and never left, in their order."""
        for segment in self.requests.segments.values():
            if not segment.accepted:
                # Its hint was kept before the node got what that is the hash of, and maybe the node never did.
                self._withdraw_hint(segment.sds_id)
        unsent = [
            made
            for segment in self.requests.segments.values()
            if not segment.attempts and (made := self._sds.unacknowledged(segment.sds_id))
        ]
        # Rows come in any order, so that theirs says nothing of when they were made.
        return [made.message for made in sorted(unsent, key=lambda made: made.sequence)]

    def resume(self, now_ms: int) -> None:
        """After a restart, plan the retries."""
        for segment in self.requests.segments.values():
            if segment.attempts and segment.retry_at is None and not segment.is_parity:
                self.requests.plan_retry(segment, self._retry_at(segment, now_ms))
        self.clock_went_back(now_ms)

    def clock_went_back(self, now_ms: int) -> None:
        """Bring forward the retries that were planned by a clock that was ahead, in this life or an earlier one."""
        self.requests.bring_forward(now_ms + 2 * self._interval_ms)
        self._lost_acknowledgements.clock_went_back(now_ms)
        self.outbound.clock_went_back(now_ms)

    def _waits_above(self) -> Upstream:
        """Return what the rate limit needs to know of the outbox.

        Nothing of it can leave while a hook is awaited. It will need its room all the same, and so will what is being
        encrypted.
        """
        upstream = self.outbox.upstream(first_segment_only=self._options.rate_limit.first_segment_only)
        return Upstream(paying=upstream.paying + 1) if self._ciphering.encrypting_content else upstream

    def _sync_lost(self, now_ms: int) -> None:
        if self._unsent_sync is not None:
            self._sds.take_back(self._unsent_sync, now_ms)
            self._unsent_sync = None

    def _is_still_wanted(self, purpose: Purpose, segment: SentSegment | None) -> bool:
        """Return whether something that the node did not take still has to leave."""
        if purpose is Purpose.SYNC:
            # The newest tells all that older ones did.
            return not self.sync_waits
        # New content was cited already, and others asked for repairs.
        return purpose is not Purpose.RETRY or (segment is not None and self.requests.needs_retry(segment))

    def _carried(self, sent: Leaving | Transmission | Publish, state: SegmentState) -> SentSegment | None:
        """Return the segment of an open request that is in this state and is carried by this.

        None for what others asked for, and for what left for a request that has ended since.
        """
        segment = self.requests.segments.get(sent.sds_id) if sent.purpose in _FOR_REQUESTS else None
        return segment if segment is not None and segment.state is state else None

    def _postpone(self, segment: SentSegment, step: SegmentStep, now_ms: int) -> None:
        """Let a segment that did not leave this time go again soon; that does not count as an attempt."""
        self.requests.move(segment, step)
        self.requests.plan_retry(segment, now_ms + RETRY_AFTER_REFUSAL_MS)

    def _enqueue(self, leaving: Leaving, encrypted: bytes, now_ms: int) -> None:
        transmission = Transmission(
            purpose=leaving.purpose,
            sds_id=leaving.sds_id,
            payload=encrypted,
            first_segment=leaving.first_segment,
        )
        segment = self._carried(leaving, SegmentState.ENCRYPTING)
        if segment is not None:
            self.requests.move(segment, SegmentStep.ENCRYPTED)
        placement = self.outbound.enqueue(transmission)
        without_room = placement.displaced if placement.accepted else transmission
        if without_room is None:
            return
        if without_room.purpose is Purpose.REPAIR:
            self._sds.not_answered(without_room.sds_id)
        segment = self._carried(without_room, SegmentState.QUEUED)
        if segment is not None:
            self._postpone(segment, SegmentStep.DISPLACED, now_ms)

    def _publish(self, publish: Publish) -> list[Effect]:
        self._tally.sent(publish.purpose, len(publish.encoded))
        segment = self._carried(publish, SegmentState.QUEUED)
        if segment is None:
            return [publish]
        self.requests.move(segment, SegmentStep.HANDED_OUT)
        request = self.requests.open[segment.request_id]
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
        segment = self._carried(what.transmission, SegmentState.QUEUED)
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
        carried = self._carried(in_flight.transmission, SegmentState.IN_FLIGHT)
        if carried is None:
            return []
        self.requests.move(carried, SegmentStep.TAKEN)
        # Parity is not sent again: a receiver that lacks data segments gets those. The interval begins now, because the
        # segment could not be received before the node took it.
        self.requests.count_attempt(carried, None if carried.is_parity else self._retry_at(carried, now_ms))
        return emit(*self.requests.accepted(carried, message_hash))

    def _withdraw_hint(self, sds_id: str) -> None:
        record = self._sds.record(sds_id)
        if record is not None and record.retrieval_hint is not None:
            self._sds.withdraw_hint(sds_id, record.retrieval_hint)

    def _fail(self, segment: SentSegment, reason: SendErrorReason, detail: str, now_ms: int) -> list[Effect]:
        if segment.sds_id not in self.requests.segments:
            return []
        events = self.requests.send_error(segment, reason, detail)
        self._close(segment.request_id, now_ms)
        return emit(*events)

    def _close(self, request_id: str, now_ms: int, *, delivered: bool = False) -> None:
        request = self.requests.open[request_id]
        if len(request.segments) < request.segment_count:
            self.outbox.drop(request_id)
        segments = self.requests.close(request_id)
        acknowledged: dict[str, Acknowledged] = {}
        for segment in segments:
            waiting = self._sds.forget_outgoing(segment.sds_id)
            if waiting is not None:
                acknowledged[segment.sds_id] = Acknowledged(waiting.sequence, waiting.acknowledged_by, waiting.made_ms)
                if self._sds.record(segment.sds_id) is None:
                    self._sds.take_back(waiting.message, now_ms)
            # What never left is in the history, where later messages cite it: all would have to ask for it.
            if segment.attempts:
                self.outbound.discard(segment.sds_id)
        if delivered:
            self._ended.delivered(EndedRequest(request, tuple(segments), acknowledged))
        else:
            self._ended.failed(request_id)
