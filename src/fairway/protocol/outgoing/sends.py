"""The begin and the end of a send: delivered, failed, expired, evicted, or impossible to send.

`fairway.protocol.outgoing.request_life` has the states of a send as a table.

A segment enters the history when SDS makes its message. From then on later messages may cite it, so it leaves even if
its send ends. A new segment is withdrawn if it cannot be encrypted or is too large. Until it is encrypted, SDS makes no
other message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairway.errors import ConfigurationError
from fairway.events import Event, FailureReason, Limit, SendErrorReason
from fairway.protocol.effects import Effect, emit
from fairway.protocol.outgoing.pending_segments import PendingSegments
from fairway.protocol.outgoing.request import SendRequest, SentSegment, wanted_id
from fairway.protocol.outgoing.request_life import FAILED, RequestState, RequestStep
from fairway.protocol.outgoing.request_table import RequestTable
from fairway.protocol.outgoing.sync_messages import SyncMessages
from fairway.protocol.outgoing.transmission_queue import TransmissionQueue
from fairway.protocol.sds.acknowledgements import Acknowledged
from fairway.protocol.segmentation.segmenter import OutgoingSegment
from fairway.protocol.shared import Shared

_KEEP_UNSENT: Final = frozenset({RequestStep.ACKNOWLEDGED, RequestStep.UNSENDABLE_PART})
"""Steps after which the remaining unsent segments still leave."""


class Sends:
    """Begins and ends the sends of one channel."""

    def __init__(
        self,
        shared: Shared,
        requests: RequestTable,
        outbox: PendingSegments,
        outbound: TransmissionQueue,
        sync_messages: SyncMessages,
    ) -> None:
        self._max_overdue_bytes = shared.options.advanced.max_overdue_bytes
        self._sds, self._limits = shared.sds, shared.limits
        self._requests, self._outbox, self._outbound, self._sync = requests, outbox, outbound, sync_messages
        self._unsent: dict[str, None] = {}
        """SDS ids of segments of expired sends that are in the history and never left."""
        self.refusal = ""
        """The node's reason for refusing the latest transmission; empty if the node took it."""

    def known(self, message_id: str, request_id: str | None) -> SendRequest | None:
        """Return the send with a request id; raise `ConfigurationError` if it has another payload."""
        request = None if request_id is None else self._requests.get(wanted_id(request_id))
        if request_id is not None and self._requests.message_id(request_id) not in (None, message_id):
            raise ConfigurationError(
                f"request_id {request_id!r} stands for another payload; choose one id for each message"
            )
        return request

    def begin(
        self,
        request_id: str,
        message_id: str,
        size_bytes: int,
        segments: Sequence[OutgoingSegment],
        *,
        required_count: int,
        required_from: frozenset[str],
        now_ms: int,
        deadline_ms: int | None,
    ) -> SendRequest:
        """Begin a send; its segments enter the outbox."""
        request = SendRequest(
            request_id=request_id,
            message_id=message_id,
            size_bytes=size_bytes,
            data_count=segments[0].data_count,
            segment_count=len(segments),
            required_count=required_count,
            required_from=required_from,
            accepted_ms=now_ms,
            deadline_ms=deadline_ms,
        )
        self._requests.add(request)
        self._outbox.extend(request_id, segments)
        return request

    def repeat(
        self, request: SendRequest, required_count: int, names: frozenset[str], deadline_ms: int | None, now_ms: int
    ) -> list[Effect] | None:
        """Repeat a send with new requirements, and return the effects.

        An open or delivered send also keeps its earlier requirements: a repeat may require more, but not less. An open
        send keeps its deadline. Returns None if the segments are not kept. Then the send is forgotten, and the caller
        begins a new one.
        """
        requests, before = self._requests, request.state
        segments = requests.segments_of(request)
        if before not in FAILED:
            required_count, names = max(required_count, request.required_count), names | request.required_from
        if not request.is_open and request.reaches(required_count, names, segments):
            delivered = request.delivered_event(segments, now_ms)
            if before in FAILED:
                self.close(request, RequestStep.ACKNOWLEDGED, now_ms)
            return emit(delivered)
        requests.ask(request, required_count, names)
        if request.is_open:
            return []
        if not self._keeps(request):
            self.close(request, RequestStep.EVICTED, now_ms)
            return None
        request.accepted_ms, request.deadline_ms = now_ms, deadline_ms
        requests.step(request, RequestStep.SENT_AGAIN, now_ms)
        for segment in segments:
            # The next transmission of a failed send counts as its first.
            segment.attempts = 0 if before in FAILED else min(1, segment.attempts)
            if segment.is_parity or self._outbound.is_under_way(segment.sds_id):
                continue
            # Participants that already have a delivered message may acknowledge it without a retransmission.
            requests.plan_retry(segment, now_ms if before in FAILED else requests.next_retry_of(segment, now_ms))
        if before is RequestState.DELIVERED:
            self._sds.watch_again(
                {each.sds_id: Acknowledged(each.sequence, each.acknowledged_by, each.made_ms) for each in segments}
            )
        return []

    def require(self, request: SendRequest, names: frozenset[str], now_ms: int) -> list[Effect]:
        """Require the acknowledgements of further participants of a delivered send, within its deadline."""
        left_ms = None if request.deadline_ms is None else request.accepted_ms + request.deadline_ms - now_ms
        is_late = left_ms is not None and left_ms <= 0
        if request.state is not RequestState.DELIVERED or is_late or not self._keeps(request):
            return []
        return self.repeat(request, request.required_count, names, left_ms, now_ms) or []

    def release(self, request: SendRequest, names: frozenset[str], now_ms: int) -> list[Effect]:
        """Require some acknowledgements of an open or overdue send no more; it may be delivered by this."""
        if request.state not in (RequestState.OPEN, RequestState.OVERDUE):
            return []
        self._requests.ask(request, request.required_count, request.required_from - names)
        segments = self._requests.segments_of(request)
        if not request.is_delivered(segments):
            return []
        delivered = request.delivered_event(segments, now_ms)
        self.close(request, RequestStep.ACKNOWLEDGED, now_ms)
        return emit(delivered)

    def fail(self, segment: SentSegment, reason: SendErrorReason, detail: str, now_ms: int) -> list[Effect]:
        """End a send because one of its segments can never be sent, and return the events."""
        request = self._requests.of(segment)
        # The application was already notified that an expired send failed.
        is_expired = request.state is RequestState.EXPIRED
        events = () if is_expired else self._requests.send_error(segment, reason, detail, self.refusal)
        others = [each for each in self._requests.segments_of(request) if each is not segment and not each.has_left]
        step = RequestStep.UNSENDABLE_PART if others else RequestStep.UNSENDABLE
        self.close(request, step, now_ms, unsendable=segment)
        return emit(*events)

    def exhausted(self, request: SendRequest, retries: int, now_ms: int) -> list[Effect]:
        """Let a send fail because its retries are used up; from now on it is retransmitted at the falling rate."""
        detail = f"not acknowledged after {retries} retransmission{'' if retries == 1 else 's'}"
        error = self._requests.failure(request, FailureReason.NOT_ACKNOWLEDGED, detail, self.refusal)
        self._requests.step(request, RequestStep.EXHAUSTED, now_ms)
        self._stop_retries(request)
        return [*emit(error), *self.evict(now_ms)]

    def evict(self, now_ms: int) -> list[Effect]:
        """Forget the failed and delivered sends beyond the limits."""
        events: list[Event] = []
        for request in self._requests.surplus():
            if request.state in FAILED:
                events += self._limits.note(Limit.OVERDUE_SENDS, self._max_overdue_bytes, bites=True)
            if request.state is RequestState.OVERDUE:
                detail = "not acknowledged, and newer sends that are not acknowledged take the room"
                events.append(self._requests.failure(request, FailureReason.GIVEN_UP, detail, self.refusal))
            self.close(request, RequestStep.EVICTED, now_ms)
        if self._requests.failed_bytes <= self._max_overdue_bytes // 2:
            self._limits.relieved([Limit.OVERDUE_SENDS])
        return emit(*events)

    def expire(self, now_ms: int) -> list[Effect]:
        """Let every send fail whose deadline has passed."""
        effects: list[Effect] = []
        if now_ms < self._requests.deadlines.not_before_ms:
            return effects
        for request in self._requests.take_expired(now_ms):
            detail = f"the deadline of {(request.deadline_ms or 0) / 1_000:g} s has passed"
            effects += emit(self._requests.failure(request, FailureReason.EXPIRED, detail, self.refusal))
            self._outbox.drop(request.request_id)
            if not request.segments:
                self.close(request, RequestStep.UNSENDABLE, now_ms)
                continue
            if len(request.segments) >= request.data_count:
                # All data segments are in the history, so the remaining parity is not needed.
                request.segment_count = len(request.segments)
            self._requests.step(request, RequestStep.DEADLINE, now_ms)
            self._stop_retries(request)
            unsent = [each for each in self._requests.segments_of(request) if not each.has_left]
            self._unsent |= dict.fromkeys(each.sds_id for each in unsent)
        if effects:
            self.withdraw_unsent(now_ms)
            effects += self.evict(now_ms)
        return effects

    def withdraw_unsent(self, now_ms: int) -> None:
        """Withdraw the segments of expired sends that never left, unless they are being encrypted or are handed out."""
        for sds_id in list(self._unsent):
            segment = self.live(sds_id)
            if segment is None or segment.has_left or self._requests.of(segment).state is not RequestState.EXPIRED:
                del self._unsent[sds_id]
            elif sds_id not in self._outbound.encrypting and not self._outbound.is_handed_out(sds_id):
                self.withdraw_expired(segment, now_ms)

    def withdraw_expired(self, segment: SentSegment, now_ms: int) -> bool:
        """Withdraw a segment that never left if its send has expired; return whether it was withdrawn.

        After a message that may cite it has left, the segment cannot be withdrawn: participants would wait for it.
        """
        sds_id, request, outbound = segment.sds_id, self._requests.of(segment), self._outbound
        if request.state is not RequestState.EXPIRED:
            return False
        citing = [self._requests.segments[each] for each in self._sds.citing(sds_id)]
        may_be_cited = not outbound.encrypting.get(sds_id, False)
        others_left = outbound.is_busy or outbound.done > segment.entered_at_count
        if (may_be_cited and others_left) or any(
            each.has_left or each.sds_id in outbound.encrypting or outbound.is_handed_out(each.sds_id)
            for each in citing
        ):
            return False
        self._sds.withdraw(sds_id, now_ms)
        outbound.encrypting.pop(sds_id, None)
        outbound.discard(sds_id)
        self._sync.discard(now_ms)
        for each in citing:
            if outbound.discard(each.sds_id):
                # It is encoded and encrypted anew, without the citation.
                self._requests.plan_retry(each, now_ms)
        self._requests.drop_segment(segment)
        if not request.segments:
            self.close(request, RequestStep.EVICTED, now_ms)
        return True

    def live(self, sds_id: str) -> SentSegment | None:
        """Return a segment; None if it is unknown, or if it has left and its send is delivered."""
        segment = self._requests.segments.get(sds_id)
        if segment is None or (segment.has_left and self._requests.of(segment).state is RequestState.DELIVERED):
            return None
        return segment

    def close(
        self, request: SendRequest, step: RequestStep, now_ms: int, *, unsendable: SentSegment | None = None
    ) -> None:
        """End a send by a step after which its segments are not retransmitted; ``unsendable`` cannot be sent.

        After a step in `_KEEP_UNSENT` a segment that never left still leaves, unless it is new or ``unsendable``: later
        messages cite it, and every participant would request it.
        """
        if len(request.segments) < request.segment_count:
            self._outbox.drop(request.request_id)
        keeps_unsent = step in _KEEP_UNSENT
        was_delivered = request.state is RequestState.DELIVERED
        for segment in self._requests.segments_of(request):
            if was_delivered and segment.has_left:
                continue
            # While a new segment is encrypted, SDS makes no message that cites it. After a restart several segments
            # may be new, and cite each other.
            is_new = self._outbound.encrypting.get(segment.sds_id, False)
            if is_new:
                del self._outbound.encrypting[segment.sds_id]
            if is_new and not self._sds.citing(segment.sds_id):
                self._sds.withdraw(segment.sds_id, now_ms)
            elif segment.has_left or segment is unsendable or not keeps_unsent:
                self._sds.forget_outgoing(segment.sds_id)
            if segment.has_left:
                self._requests.plan_retry(segment, None)
                self._outbound.discard(segment.sds_id)
        self._requests.step(request, step, now_ms)
        for segment in self._requests.segments_of(request) if keeps_unsent else ():
            if not segment.has_left and self._sds.unacknowledged(segment.sds_id) is None:
                self._requests.drop_segment(segment)

    def _keeps(self, request: SendRequest) -> bool:
        """Return whether SDS still keeps all data segments of a send that ended."""
        segments = self._requests.segments_of(request)[: request.data_count]
        if [segment.order for segment in segments] != list(range(request.data_count)):
            return False
        return all(
            self._sds.unacknowledged(segment.sds_id) is not None or segment.sds_id in self._sds.retained
            for segment in segments
        )

    def _stop_retries(self, request: SendRequest) -> None:
        for segment in self._requests.segments_of(request):
            if segment.has_left:
                self._outbound.discard(segment.sds_id)
                self._requests.plan_retry(segment, None)
