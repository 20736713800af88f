"""All sends of a channel: each request, its segments, and the participants that acknowledged each segment.

A request is one call of ``send``, or the calls of a batch (`fairway.protocol.outgoing.batching`).
`fairway.protocol.outgoing.request_life` has its states, and `fairway.protocol.outgoing.request` the condition of its
delivery. The transmission queue has the segments that wait to
leave or wait for the node's answer (`TransmissionQueue.is_under_way`).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from itertools import islice
from math import inf
from operator import attrgetter
from typing import Any, Final

from fairway.events import (
    ChunkInfo,
    DeliveryError,
    Event,
    FailureReason,
    MessageAcknowledged,
    MessageEvent,
    MessagePossiblyAcknowledged,
    MessageSendError,
    MessageSent,
    RequestSent,
    SendErrorReason,
)
from fairway.options import ReliableChannelOptions
from fairway.protocol.effects import Effect, Emit, Placed
from fairway.protocol.journal import Journal, Row, RowReader
from fairway.protocol.outgoing.request import SendRequest, SentSegment
from fairway.protocol.outgoing.request_life import FAILED, RequestState, RequestStep
from fairway.protocol.outgoing.request_life import LIFE as REQUEST_LIFE
from fairway.protocol.sds.acknowledgements import Review
from fairway.wire.batch import id_in_batch

REQUESTS: Final = "requests"
SEGMENTS: Final = "segments"
BATCHES: Final = "batches"

_COLUMNS: Final[dict[type, tuple[str, ...]]] = {
    kind: tuple(column.name for column in fields(kind)[1:] if not column.metadata)
    for kind in (SendRequest, SentSegment)
}
"""Persisted fields after the first, which is the key."""
_VALUES: Final = {kind: attrgetter(*columns) for kind, columns in _COLUMNS.items()}
_PLAIN: Final[dict[type, Callable[[Any], Any]]] = {
    set: lambda names: tuple(sorted(names)),
    frozenset: lambda names: tuple(sorted(names)),
    list: tuple,
    RequestState: lambda state: state.value,
}
"""Conversion of a value for a row, by type; all other values are persisted unchanged."""
MAX_DELIVERED: Final = 1_000
"""Delivered sends in the table; a repeated ``send`` may require more acknowledgements of one of them."""
INTERVAL_MS: Final = 30_000
"""Retry interval if none is set, as in RELIABLE-CHANNEL-API."""
_ACKNOWLEDGED_WITHIN_MS: Final = 330_000
"""Time for an acknowledgement without retries: as long as with the default retries."""
OVERHEAD_BYTES: Final = 4_096
"""Estimated memory of a segment of a failed send, beyond its content."""


class Schedule:
    """Keys in the order of their times; an entry is valid while ``current`` returns its time for its key."""

    def __init__(self, current: Callable[[str], int | None]) -> None:
        self._current = current
        self._heap: list[tuple[int, int, str]] = []
        self.not_before_ms = inf
        """No key is due earlier."""

    def add(self, at_ms: int, order: int, key: str) -> None:
        """Add the new time of a key; ``order`` sorts keys of the same time."""
        heapq.heappush(self._heap, (at_ms, order, key))
        self.not_before_ms = self._heap[0][0]

    def next_at(self) -> int | None:
        """Return the earliest time; None if the schedule is empty."""
        while self._heap:
            at_ms, _, key = self._heap[0]
            if self._current(key) == at_ms:
                return at_ms
            self._pop()
        return None

    def take_due(self, now_ms: int) -> list[str]:
        """Remove and return the keys that are due, in order."""
        keys: dict[str, None] = {}
        while (at_ms := self.next_at()) is not None and at_ms <= now_ms:
            keys[self._pop()] = None
        return list(keys)

    def _pop(self) -> str:
        key = heapq.heappop(self._heap)[2]
        self.not_before_ms = self._heap[0][0] if self._heap else inf
        return key


class RequestTable:
    """All sends that are not forgotten."""

    def __init__(self, journal: Journal, options: ReliableChannelOptions) -> None:
        interval_ms = options.retry_interval_ms
        self.interval_ms = INTERVAL_MS if interval_ms is None else interval_ms or _ACKNOWLEDGED_WITHIN_MS
        """Time for an acknowledgement before a segment is sent again."""
        self.open: dict[str, SendRequest] = {}
        self.failed: OrderedDict[str, SendRequest] = OrderedDict()
        """Sends that failed and may still be acknowledged, the earliest failure first."""
        self.delivered: OrderedDict[str, SendRequest] = OrderedDict()
        """The newest delivered sends, the earliest delivery first."""
        self.segments: dict[str, SentSegment] = {}
        """Segments of all sends in the table, by SDS id."""
        self.held: dict[str, SentSegment] = {}
        """Due segments that wait until fewer retransmissions are active, by SDS id; the one held longest first."""
        self.batches: dict[str, tuple[str, ...]] = {}
        """Message ids of the sends that share a request, by its id."""
        self._ended_batches: dict[str, tuple[str, ...]] = {}
        """Batches whose request was forgotten in this operation."""
        self.readers: dict[str, RowReader] = {
            REQUESTS: self._request_row,
            SEGMENTS: self._segment_row,
            BATCHES: self._batch_row,
        }
        self.failed_bytes = 0
        """Estimated memory of the failed sends (``max_overdue_bytes``)."""
        self._max_failed_bytes = options.advanced.max_overdue_bytes
        self._overdue_count = 0
        self._journal = journal
        self.retries = Schedule(lambda key: self.segments[key].retry_at if key in self.segments else None)
        """Times of the next retransmissions; segments of the same time in the order of their SDS messages."""
        self.deadlines = Schedule(lambda key: None if (request := self.get(key)) is None else request.expires_ms)
        """Times at which the deadlines of sends pass."""

    def get(self, request_id: str) -> SendRequest | None:
        """Return a send in any state, or its batch; None if it is unknown or forgotten."""
        found = self.open.get(request_id) or self.failed.get(request_id) or self.delivered.get(request_id)
        if found is not None or not self.batches:
            return found
        first_id, index = self._place_in_batch(request_id)
        return self.get(first_id) if index else None

    def message_id(self, request_id: str) -> str | None:
        """Return the message id of a send; None if it is unknown or forgotten."""
        request = self.get(request_id)
        if request is None or request.request_id == request_id:
            return None if request is None else request.message_id
        first_id, index = self._place_in_batch(request_id)
        return self.batches[first_id][index]

    def _place_in_batch(self, request_id: str) -> tuple[str, int]:
        """Return the id of a batch, and the index of a send in it; 0 if the send is not in a batch."""
        first_id, _, number = request_id.rpartition(".")
        index = int(number) if first_id in self.batches and number.isdecimal() else 0
        return first_id, index if index < len(self.batches.get(first_id, ())) else 0

    def set_batch(self, request_id: str, message_ids: tuple[str, ...]) -> None:
        """Set the message ids of the sends that share a request."""
        self.batches[request_id] = message_ids
        self._journal.touch(BATCHES, request_id)

    def for_each_send(self, effects: Iterable[Effect]) -> Iterable[Effect]:
        """Return effects with the events and the place of a batch repeated for each of its sends."""
        if not (self.batches or self._ended_batches):
            return effects
        ended, self._ended_batches = self._ended_batches, {}
        return list(_for_each_send(effects, self.batches | ended if ended else self.batches))

    def of(self, segment: SentSegment) -> SendRequest:
        """Return the send of a segment."""
        request = self.get(segment.request_id)
        assert request is not None, "a segment is forgotten together with its send"
        return request

    def segments_of(self, request: SendRequest) -> list[SentSegment]:
        """Return the segments of a send that became SDS messages, in segment order."""
        return [self.segments[sds_id] for sds_id in request.segments]

    def add(self, request: SendRequest) -> None:
        """Add a new send."""
        self.open[request.request_id] = request
        self._watch_deadline(request)
        self._journal.created(REQUESTS, request.request_id)

    def ask(self, request: SendRequest, required_count: int, names: frozenset[str]) -> None:
        """Set the acknowledgements that a send requires."""
        request.required_count, request.required_from = required_count, names
        self.touch(request)

    def touch(self, request: SendRequest) -> None:
        """Note that a send changed."""
        self._journal.touch(REQUESTS, request.request_id)

    def add_segment(
        self, request: SendRequest, sds_id: str, order: int, *, is_parity: bool, sequence: int, made_ms: int
    ) -> SentSegment:
        """Add the next segment of a send."""
        segment = SentSegment(
            sds_id=sds_id,
            request_id=request.request_id,
            order=order,
            is_parity=is_parity,
            sequence=sequence,
            made_ms=made_ms,
        )
        self.segments[sds_id] = segment
        request.segments.append(sds_id)
        self._touch(segment)
        self.touch(request)
        return segment

    def drop_segment(self, segment: SentSegment) -> None:
        """Forget a segment that never left."""
        request = self.of(segment)
        request.segments.remove(segment.sds_id)
        del self.segments[segment.sds_id]
        self._journal.deleted(SEGMENTS, segment.sds_id)
        self.touch(request)

    def step(self, request: SendRequest, step: RequestStep, now_ms: int) -> None:
        """Move a send to its next state (`fairway.protocol.outgoing.request_life.LIFE`)."""
        self._take_out(request)
        request.state = REQUEST_LIFE[request.state][step]
        request.ended_ms = now_ms
        if request.state is RequestState.FORGOTTEN:
            self._forget(request)
            return
        self._put_in(request)
        self.touch(request)

    def chunk_info(self, segment: SentSegment) -> ChunkInfo:
        """Return the name of a segment in events."""
        return self.of(segment).chunk_info(segment.order, is_parity=segment.is_parity)

    def count_attempt(self, segment: SentSegment, retry_at: int | None) -> None:
        """Count an attempt, and plan the next one."""
        segment.attempts += 1
        self.plan_retry(segment, retry_at)

    def plan_retry(self, segment: SentSegment, retry_at: int | None) -> None:
        """Set the time of the next transmission of a segment; None cancels it.

        A segment that left has no such time unless its send is open; `fairway.protocol.outgoing.overdue` retransmits
        overdue sends.
        """
        self.held.pop(segment.sds_id, None)
        if segment.has_left and not self.of(segment).is_open:
            retry_at = None
        segment.retry_at = retry_at
        if retry_at is not None:
            self.retries.add(retry_at, segment.sequence, segment.sds_id)
        self._touch(segment)

    def hold(self, segment: SentSegment, now_ms: int) -> None:
        """Hold a due segment until fewer retransmissions are active."""
        segment.retry_at = now_ms
        self.held[segment.sds_id] = segment
        self._touch(segment)

    def next_retry_of(self, segment: SentSegment, now_ms: int) -> int:
        """Return when a segment is retransmitted if it leaves now and is not acknowledged."""
        return now_ms + self.interval_ms * (2 if self.waits_longer(segment) else 1)

    def plan_anew(self, now_ms: int) -> None:
        """Move retries to at most two intervals after now, and starts of sends in the future to now."""
        latest_ms = now_ms + 2 * self.interval_ms
        for segment in self.segments.values():
            if segment.retry_at is not None and segment.retry_at > latest_ms:
                self.plan_retry(segment, latest_ms)
        for request in [*self.open.values(), *self.failed.values()]:
            if request.accepted_ms > now_ms:
                request.accepted_ms = now_ms
                self._watch_deadline(request)
                self.touch(request)

    def take_due(self, now_ms: int) -> list[SentSegment]:
        """Return the segments whose retry is due; the caller plans each of them anew."""
        if now_ms < self.retries.not_before_ms:
            return []
        due = [self.segments[sds_id] for sds_id in self.retries.take_due(now_ms)]
        for segment in due:
            segment.retry_at = None
            self._touch(segment)
        return due

    def take_expired(self, now_ms: int) -> list[SendRequest]:
        """Return the sends whose deadline has passed; the caller takes the step of each."""
        due = self.deadlines.take_due(now_ms)
        return [request for request_id in due if (request := self.get(request_id)) is not None]

    def accepted(self, segment: SentSegment, message_hash: bytes) -> tuple[Event, ...]:
        """Note that the node took a segment, and return the events."""
        request = self.of(segment)
        segment.accepted = True
        self._touch(segment)
        sent = MessageSent(
            request_id=request.request_id,
            message_id=request.message_id,
            chunk_info=request.chunk_info(segment.order, is_parity=segment.is_parity),
            message_hash=message_hash,
        )
        complete = len(request.segments) == request.segment_count
        if request.was_sent or not complete or not all(self.segments[s].accepted for s in request.segments):
            return (sent,)
        request.was_sent = True
        self.touch(request)
        return (sent, RequestSent(request_id=request.request_id, message_id=request.message_id))

    def review(self, review: Review, now_ms: int) -> tuple[Event, ...]:
        """Apply evidence of SDS about a segment, and return the events.

        If the send is delivered now, the last event is `MessageDelivered`, and the caller takes its step.
        """
        segment = self.segments.get(review.message_id)
        if segment is None:
            return ()
        request = self.of(segment)
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
        segments = self.segments_of(request)
        before = request.holders(segments)
        segment.acknowledged_by.update(review.acknowledged_by)
        holders = request.holders(segments)
        events: list[Event] = []
        if not segment.is_parity or holders != before:
            orders = sorted(each.order for each in segments if each.acknowledged_by and not each.is_parity)
            events.append(
                MessageAcknowledged(
                    request_id=request.request_id,
                    message_id=request.message_id,
                    chunks_acknowledged=tuple(orders),
                    total_chunks=request.data_count,
                    acknowledged_by=tuple(sorted(segment.acknowledged_by)),
                    delivered_to=tuple(sorted(holders)),
                    at_ms=now_ms,
                )
            )
        if request.is_delivered(segments):
            events.append(request.delivered_event(segments, now_ms))
        return tuple(events)

    def waits_longer(self, segment: SentSegment) -> bool:
        """Return whether a segment is only possibly acknowledged, and one acknowledgement of any participant suffices.

        SDS, "Periodic Outgoing Buffer Sweep": SHOULD use a different duration for possibly acknowledged messages. The
        bloom filter of one participant is no evidence about the others that must acknowledge.
        """
        return segment.possibly and not segment.acknowledged_by and self.of(segment).anybody_will_do

    def needs_retry(self, segment: SentSegment) -> bool:
        """Return whether a participant whose acknowledgement is required may still miss a segment."""
        request = self.of(segment)
        known = segment.acknowledged_by
        if len(known) < request.required_count or not request.required_from <= known:
            return True
        # Enough participants have this segment, but not enough of them have the whole message. Repeat the segment if a
        # participant that acknowledged another segment has not acknowledged this one.
        everybody = set().union(*(s.acknowledged_by for s in self.segments_of(request)))
        return known != everybody

    @property
    def has_overdue(self) -> bool:
        """Whether a send is overdue."""
        return bool(self._overdue_count)

    def send_error(self, segment: SentSegment, reason: SendErrorReason, detail: str, refusal: str) -> tuple[Event, ...]:
        """Return the events of a segment that can never be sent, which ends its send."""
        request = self.of(segment)
        error = MessageSendError(
            request_id=request.request_id,
            message_id=request.message_id,
            chunk_info=self.chunk_info(segment),
            reason=reason,
            detail=detail,
        )
        text = f"segment {segment.order}: {reason.value}" + (f", {detail}" if detail else "")
        return (error, self.failure(request, FailureReason.CANNOT_BE_SENT, text, refusal))

    def failure(self, request: SendRequest, reason: FailureReason, detail: str, refusal: str) -> DeliveryError:
        """Return the event of a send that fails."""
        return request.failed_event(self.segments_of(request), reason, detail, refusal)

    def surplus(self) -> list[SendRequest]:
        """Return the oldest delivered and failed sends beyond the limits; the caller takes the step of each.

        The newest failed send is never among them.
        """
        surplus = list(islice(self.delivered.values(), max(0, len(self.delivered) - MAX_DELIVERED)))
        left_bytes = self.failed_bytes
        for request in islice(self.failed.values(), max(0, len(self.failed) - 1)):
            if left_bytes <= self._max_failed_bytes:
                break
            left_bytes -= _bytes_of(request)
            surplus.append(request)
        return surplus

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield all requests, then all segments."""
        for sends in (self.open, self.failed, self.delivered):
            for request_id, request in sends.items():
                yield REQUESTS, request_id, _row(request)
        for sds_id, segment in self.segments.items():
            yield SEGMENTS, sds_id, _row(segment)
        for request_id in self.batches:
            yield BATCHES, request_id, self._batch_row(request_id) or ()

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Fill an empty table with rows of `rows`, in any order."""
        found = list(rows)
        requests = [_request_of(key, row) for table, key, row in found if table == REQUESTS]
        for request in sorted(requests, key=lambda each: (each.ended_ms, each.accepted_ms)):
            self._put_in(request)
        for table, key, row in found:
            if table == SEGMENTS:
                self.segments[key] = segment = _segment_of(key, row)
                self.plan_retry(segment, segment.retry_at)
            elif table == BATCHES:
                text = row[0].hex()
                self.batches[key] = tuple(text[at : at + 64] for at in range(0, len(text), 64))

    def _batch_row(self, request_id: str) -> Row | None:
        message_ids = self.batches.get(request_id)
        return None if message_ids is None else (bytes.fromhex("".join(message_ids)),)

    def _request_row(self, request_id: str) -> Row | None:
        request = self.get(request_id)
        return None if request is None else _row(request)

    def _segment_row(self, sds_id: str) -> Row | None:
        segment = self.segments.get(sds_id)
        return None if segment is None else _row(segment)

    def _put_in(self, request: SendRequest) -> None:
        if request.is_open:
            self.open[request.request_id] = request
        elif request.state is RequestState.DELIVERED:
            self.delivered[request.request_id] = request
        else:
            self.failed[request.request_id] = request
            self.failed_bytes += _bytes_of(request)
        self._overdue_count += request.state is RequestState.OVERDUE
        self._watch_deadline(request)

    def _take_out(self, request: SendRequest) -> None:
        self._overdue_count -= request.state is RequestState.OVERDUE
        self.open.pop(request.request_id, None)
        self.delivered.pop(request.request_id, None)
        if request.state in FAILED:
            del self.failed[request.request_id]
            self.failed_bytes -= _bytes_of(request)

    def _forget(self, request: SendRequest) -> None:
        self._journal.deleted(REQUESTS, request.request_id)
        message_ids = self.batches.pop(request.request_id, None)
        if message_ids is not None:
            self._ended_batches[request.request_id] = message_ids
            self._journal.deleted(BATCHES, request.request_id)
        for segment in self.segments_of(request):
            del self.segments[segment.sds_id]
            self._journal.deleted(SEGMENTS, segment.sds_id)

    def _watch_deadline(self, request: SendRequest) -> None:
        if request.expires_ms is not None:
            self.deadlines.add(request.expires_ms, 0, request.request_id)

    def _touch(self, segment: SentSegment) -> None:
        self._journal.touch(SEGMENTS, segment.sds_id)


def _bytes_of(request: SendRequest) -> int:
    return request.size_bytes + request.data_count * OVERHEAD_BYTES


def _row(thing: SendRequest | SentSegment) -> Row:
    values = _VALUES[type(thing)](thing)
    return tuple([_PLAIN[type(value)](value) if type(value) in _PLAIN else value for value in values])


def _request_of(key: str, row: Row) -> SendRequest:
    request = SendRequest(request_id=key, **dict(zip(_COLUMNS[SendRequest], row, strict=True)))
    request.required_from, request.segments = frozenset(request.required_from), list(request.segments)
    request.state = RequestState(request.state)
    return request


def _segment_of(key: str, row: Row) -> SentSegment:
    segment = SentSegment(sds_id=key, **dict(zip(_COLUMNS[SentSegment], row, strict=True)))
    segment.acknowledged_by = set(segment.acknowledged_by)
    return segment


def _for_each_send(effects: Iterable[Effect], batches: Mapping[str, tuple[str, ...]]) -> Iterator[Effect]:
    for effect in effects:
        match effect:
            case Emit(event=MessageEvent() as event) if event.request_id in batches:
                for index, message_id in enumerate(batches[event.request_id]):
                    request_id = id_in_batch(event.request_id, index)
                    yield Emit(event=replace(event, request_id=request_id, message_id=message_id))
            case Placed(request_id=first_id, order_key=key) if first_id in batches:
                for index in range(len(batches[first_id])):
                    own_key = key._replace(sds_id=id_in_batch(key.sds_id, index))
                    yield Placed(request_id=id_in_batch(first_id, index), order_key=own_key)
            case _:
                yield effect
