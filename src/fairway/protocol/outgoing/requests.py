"""What became of every send: one request, its segments, and who acknowledged which.

A request is one call of ``send``; it ends in exactly one terminal event, `MessageDelivered` or `DeliveryError`, and may
be opened again when more is wanted of it (`fairway.protocol.outgoing.want_more`). What makes it delivered stands in
`fairway.protocol.outgoing.request`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from fairway.events import (
    ChunkInfo,
    DeliveryError,
    Event,
    MessageAcknowledged,
    MessagePossiblyAcknowledged,
    MessageSendError,
    MessageSent,
    RequestSent,
    SendErrorReason,
)
from fairway.protocol.journal import Journal, Row
from fairway.protocol.outgoing.request import SendRequest, SentSegment
from fairway.protocol.outgoing.segment_life import LIFE, SegmentState, SegmentStep
from fairway.protocol.sds.acknowledgements import Review

REQUESTS: Final = "requests"
SEGMENTS: Final = "segments"


class Requests:
    """All sends that have not ended yet."""

    def __init__(self, journal: Journal) -> None:
        self.open: dict[str, SendRequest] = {}
        self.segments: dict[str, SentSegment] = {}
        self.held: dict[str, SentSegment] = {}
        """Segments that are `SegmentState.HELD`, by SDS id, the one that waits longest first."""
        self.repeated = 0
        """How many segments are on their way again (`SentSegment.is_repeated`)."""
        self._put_off: dict[str, dict[str, SentSegment]] = {}
        """Segments that are sent again once somebody is heard who may lack them, by request id."""
        self._journal = journal
        self._retries: list[tuple[int, str]] = []

    def add(self, request: SendRequest) -> None:
        """Begin a request."""
        self.open[request.request_id] = request
        self._journal.created(REQUESTS, request.request_id)

    def of_payload(self, message_id: str) -> SendRequest | None:
        """Return a request for this logical message that has not ended."""
        return next((request for request in self.open.values() if request.message_id == message_id), None)

    def want_more(self, request: SendRequest, required_count: int, names: frozenset[str]) -> None:
        """Let a request end only when this is met, too."""
        request.want_more(required_count, names)
        self._journal.touch(REQUESTS, request.request_id)

    def add_segment(self, request: SendRequest, sds_id: str, order: int, *, is_parity: bool) -> SentSegment:
        """Add the next segment of a request."""
        segment = SentSegment(sds_id=sds_id, request_id=request.request_id, order=order, is_parity=is_parity)
        self.segments[sds_id] = segment
        request.segments.append(sds_id)
        self._touch(segment)
        self._journal.touch(REQUESTS, request.request_id)
        return segment

    def move(self, segment: SentSegment, step: SegmentStep) -> None:
        """Take a segment's next step (`fairway.protocol.outgoing.segment_life.LIFE`)."""
        self.repeated -= segment.is_repeated
        self.held.pop(segment.sds_id, None)
        segment.state = LIFE[segment.state][step]
        self.repeated += segment.is_repeated
        if segment.state is SegmentState.HELD:
            self.held[segment.sds_id] = segment

    def chunk_info(self, segment: SentSegment) -> ChunkInfo:
        """Return how events name a segment."""
        return self.open[segment.request_id].chunk_info(segment.order, is_parity=segment.is_parity)

    def count_attempt(self, segment: SentSegment, retry_at: int | None) -> None:
        """Count an attempt, and plan the next."""
        segment.attempts += 1
        self.plan_retry(segment, retry_at)

    def plan_retry(self, segment: SentSegment, retry_at: int | None) -> None:
        """Set when a segment is sent again."""
        segment.retry_at = retry_at
        if retry_at is not None:
            heapq.heappush(self._retries, (retry_at, segment.sds_id))
        self._touch(segment)

    def bring_forward(self, latest_ms: int) -> None:
        """Plan no retry later than this: what stands later was planned by a clock that was ahead."""
        for segment in self.segments.values():
            if segment.retry_at is not None and segment.retry_at > latest_ms:
                self.plan_retry(segment, latest_ms)

    def take_due(self, now_ms: int) -> list[SentSegment]:
        """Return the segments whose retry is due; each needs a new plan."""
        due: list[SentSegment] = []
        while self._retries and self._retries[0][0] <= now_ms:
            at_ms, sds_id = heapq.heappop(self._retries)
            segment = self.segments.get(sds_id)
            if segment is not None and segment.retry_at == at_ms:
                segment.retry_at = None
                self._touch(segment)
                due.append(segment)
        return due

    def next_retry_at(self) -> int | None:
        """Return when the next retry is due."""
        while self._retries:
            at_ms, sds_id = self._retries[0]
            segment = self.segments.get(sds_id)
            if segment is not None and segment.retry_at == at_ms:
                return at_ms
            heapq.heappop(self._retries)
        return None

    def accepted(self, segment: SentSegment, message_hash: bytes) -> tuple[Event, ...]:
        """Note that the network took a segment, and return what to tell of it."""
        request = self.open[segment.request_id]
        segment.accepted = True
        self._touch(segment)
        sent = MessageSent(
            request_id=request.request_id,
            message_id=request.message_id,
            chunk_info=self.chunk_info(segment),
            message_hash=message_hash,
        )
        complete = len(request.segments) == request.segment_count
        if request.was_sent or not complete or not all(self.segments[s].accepted for s in request.segments):
            return (sent,)
        request.was_sent = True
        self._journal.touch(REQUESTS, request.request_id)
        return (sent, RequestSent(request_id=request.request_id, message_id=request.message_id))

    def review(self, review: Review, now_ms: int) -> tuple[Event, ...]:
        """Apply evidence that SDS found about a segment, and return what to tell of it."""
        segment = self.segments.get(review.message_id)
        if segment is None:
            return ()
        request = self.open[segment.request_id]
        self._touch(segment)
        if review.evidence is None:
            segment.possibly = True
            return (
                MessagePossiblyAcknowledged(
                    request_id=request.request_id,
                    message_id=request.message_id,
                    chunk_info=self.chunk_info(segment),
                    possible_ack_count=review.possible_count,
                    participant=review.participant,
                ),
            )
        segment.acknowledged_by.update(review.acknowledged_by)
        events: list[Event] = []
        if not segment.is_parity:
            orders = sorted(s.order for s in self._segments_of(request) if s.acknowledged_by and not s.is_parity)
            events.append(
                MessageAcknowledged(
                    request_id=request.request_id,
                    message_id=request.message_id,
                    chunks_acknowledged=tuple(orders),
                    total_chunks=request.data_count,
                    acknowledged_by=tuple(sorted(segment.acknowledged_by)),
                )
            )
        segments = list(self._segments_of(request))
        if request.is_delivered(segments):
            events.append(request.delivered_event(segments, now_ms))
        return tuple(events)

    def waits_longer(self, segment: SentSegment) -> bool:
        """Return whether a segment is only possibly acknowledged, and anybody's acknowledgement would do.

        SDS, "Periodic Outgoing Buffer Sweep": SHOULD use a different duration for possibly acknowledged messages.
        What one participant possibly has says nothing of others that were asked for.
        """
        request = self.open[segment.request_id]
        return segment.possibly and not segment.acknowledged_by and request.anybody_will_do

    def needs_retry(self, segment: SentSegment) -> bool:
        """Return whether anybody whose acknowledgement is wanted may still lack a segment."""
        request = self.open[segment.request_id]
        known = segment.acknowledged_by
        if len(known) < request.required_count or not request.required_from <= known:
            return True
        # Everybody has this segment, but no one participant enough of them: repeat what somebody lacks.
        everybody = set().union(*(s.acknowledged_by for s in self._segments_of(request)))
        return known != everybody

    def is_for(self, segment: SentSegment, names: Iterable[str]) -> bool:
        """Return whether a segment is to be sent again when these participants are there to hear it.

        The last data segment that somebody may lack is, whoever is there.
        """
        request = self.open[segment.request_id]
        later = (self.segments[sds_id] for sds_id in request.segments[segment.order + 1 : request.data_count])
        if not any(map(self.needs_retry, later)):
            return True
        is_awaited = self._is_awaited(request)
        return any(name not in segment.acknowledged_by and is_awaited(name) for name in names)

    def put_off(self, segment: SentSegment) -> None:
        """Note that a segment is not sent again because nobody was heard who may lack it."""
        self._put_off.setdefault(segment.request_id, {})[segment.sds_id] = segment

    def take_put_off(self, name: str) -> list[SentSegment]:
        """Return what was put off until this participant is heard."""
        found = [request_id for request_id in self._put_off if self._is_awaited(self.open[request_id])(name)]
        return [segment for request_id in found for segment in self._put_off.pop(request_id).values()]

    def send_error(self, segment: SentSegment, reason: SendErrorReason, detail: str) -> tuple[Event, ...]:
        """Return what to tell when a segment can never be sent, which ends its request."""
        request = self.open[segment.request_id]
        error = MessageSendError(
            request_id=request.request_id,
            message_id=request.message_id,
            chunk_info=self.chunk_info(segment),
            reason=reason,
            detail=detail,
        )
        return (error, self.delivery_error(request, f"segment {segment.order}: {reason.value}"))

    def delivery_error(self, request: SendRequest, detail: str) -> DeliveryError:
        """Return the terminal event of a request whose delivery is not known to have happened."""
        known: set[str] = set().union(*(s.acknowledged_by for s in self._segments_of(request)))
        return DeliveryError(
            request_id=request.request_id,
            message_id=request.message_id,
            detail=detail,
            acknowledged_by=tuple(sorted(known)),
        )

    def close(self, request_id: str) -> list[SentSegment]:
        """End a request, and return its segments, whose acknowledgement is no longer waited for."""
        request = self.open.pop(request_id)
        self._journal.deleted(REQUESTS, request_id)
        self._put_off.pop(request_id, None)
        segments = [self.segments.pop(sds_id) for sds_id in request.segments]
        for segment in segments:
            self._journal.deleted(SEGMENTS, segment.sds_id)
            self.move(segment, SegmentStep.REQUEST_ENDS)
        return segments

    def reopen(self, request: SendRequest, segments: Iterable[SentSegment]) -> None:
        """Begin a request again that ended; each of its segments needs a new plan."""
        self.add(request)
        for segment in segments:
            self.segments[segment.sds_id] = segment
            self.move(segment, SegmentStep.REOPENED)
            segment.retry_at = None
            self._touch(segment)

    def row(self, table: str, key: str) -> Row | None:
        """Return the present row of a request or a segment."""
        if table == REQUESTS:
            request = self.open.get(key)
            return None if request is None else _request_row(request)
        segment = self.segments.get(key)
        return None if segment is None else _segment_row(segment)

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield all requests, then all segments."""
        for request_id, request in self.open.items():
            yield REQUESTS, request_id, _request_row(request)
        for sds_id, segment in self.segments.items():
            yield SEGMENTS, sds_id, _segment_row(segment)

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Fill an empty table with rows of `rows`, in any order."""
        found = list(rows)
        for table, key, row in found:
            if table == REQUESTS:
                message_id, data_count, required_count, names, segments, segment_count, was_sent = row
                self.open[key] = SendRequest(
                    request_id=key,
                    message_id=message_id,
                    data_count=data_count,
                    required_count=required_count,
                    required_from=frozenset(names),
                    segments=list(segments),
                    segment_count=segment_count,
                    was_sent=was_sent,
                )
        for table, key, row in found:
            if table == SEGMENTS:
                request_id, order, is_parity, attempts, retry_at, accepted, names, possibly = row
                segment = SentSegment(
                    sds_id=key,
                    request_id=request_id,
                    order=order,
                    is_parity=is_parity,
                    attempts=attempts,
                    accepted=accepted,
                    acknowledged_by=set(names),
                    possibly=possibly,
                    state=SegmentState.SENT if attempts else SegmentState.ENCRYPTING,
                )
                self.segments[key] = segment
                self.plan_retry(segment, retry_at)

    def _is_awaited(self, request: SendRequest) -> Callable[[str], bool]:
        """Return what says whether it matters to a request that a participant gets the message."""
        holders = request.holders(self._segments_of(request))
        # Who is named counts as well, once he has it.
        if len(holders | request.required_from) < request.required_count:
            return lambda name: name not in holders
        return (request.required_from - holders).__contains__

    def _touch(self, segment: SentSegment) -> None:
        self._journal.touch(SEGMENTS, segment.sds_id)

    def _segments_of(self, request: SendRequest) -> Iterator[SentSegment]:
        return (self.segments[sds_id] for sds_id in request.segments)


def _request_row(request: SendRequest) -> Row:
    return (
        request.message_id,
        request.data_count,
        request.required_count,
        tuple(sorted(request.required_from)),
        tuple(request.segments),
        request.segment_count,
        request.was_sent,
    )


def _segment_row(segment: SentSegment) -> Row:
    return (
        segment.request_id,
        segment.order,
        segment.is_parity,
        segment.attempts,
        segment.retry_at,
        segment.accepted,
        tuple(sorted(segment.acknowledged_by)),
        segment.possibly,
    )
