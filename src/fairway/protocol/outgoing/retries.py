"""Retransmission of segments (RELIABLE-CHANNEL-API, "Message retries").

`Retries` alone decides which segments are retransmitted, and when: unacknowledged segments, segments that the node
refused, segments that never left before a restart, and segments of overdue sends
(`fairway.protocol.outgoing.overdue`). `RequestTable` keeps the times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fairway.events import Limit, MessageDelivered
from fairway.protocol.effects import Effect, Purpose, QueryStore, emit
from fairway.protocol.outgoing.overdue import OverdueRetries
from fairway.protocol.outgoing.request import SentSegment
from fairway.protocol.outgoing.request_life import RequestState, RequestStep
from fairway.protocol.outgoing.request_table import RequestTable
from fairway.protocol.outgoing.sends import Sends
from fairway.protocol.outgoing.transmission_queue import Transmission, TransmissionQueue
from fairway.protocol.sds.acknowledgements import Review
from fairway.protocol.shared import Shared
from fairway.units import NS_PER_MS
from fairway.wire.sds import SdsMessage

_REFUSALS_IN_PLACE: Final = 3
"""Refusals before a segment yields its place; a segment that the node always refuses must not block the others."""
_POSTPONED_MS: Final = 5_000
"""Pause before a segment with more refusals leaves again."""
_VAIN_ATTEMPTS: Final = 2
"""Attempts before a store query for a lost acknowledgement."""
_ASK_EVERY_MS: Final = 60_000
"""Shortest interval between queries for lost acknowledgements, and time that a query covers before its message."""
_STORE_LAG_MS: Final = 600_000
"""Assumed largest delay with which a store receives a message."""


class Retries:
    """Retransmits the segments of one channel."""

    def __init__(self, shared: Shared, requests: RequestTable, sends: Sends, outbound: TransmissionQueue) -> None:
        options = shared.options
        self._max_retries = 0 if options.retry_interval_ms == 0 else options.max_retry_attempts
        self._is_adaptive = options.retry_interval_ms is None
        self._times = shared.times
        self._max_active = options.advanced.max_active_retries
        self._queries_store = options.retrieve_frequency_ms != 0
        self._sds, self._limits = shared.sds, shared.limits
        self._requests, self._sends, self._outbound = requests, sends, outbound
        self._overdue = OverdueRetries(requests, outbound.is_under_way)
        self._asked_ms = 0
        """Time of the last store query for lost acknowledgements."""

    def due(self, now_ms: int) -> Iterator[Transmission | list[Effect]]:
        """Yield the retransmissions that are due, and the effects of sends that fail. The caller sends each at once.

        SDS, "Periodic Outgoing Buffer Sweep": unacknowledged messages MUST be rebroadcast, and possibly acknowledged
        ones SHOULD wait longer. Here they wait twice as long.
        """
        segments = self._requests.take_due(now_ms)
        overdue = self._overdue.take_due(now_ms)
        if not (segments or overdue or self._requests.held):
            return
        yield from self._repeat_held(now_ms)
        for segment in segments:
            yield from self._repeat(segment, now_ms)
        # A failed send has no active retries, so a held segment may take their place.
        yield from self._repeat_held(now_ms)
        for segment in overdue if self._may_retry else ():
            waiting = self._sds.unacknowledged(segment.sds_id)
            if waiting is not None:
                yield from self._copy(segment, waiting.message, now_ms)
        yield emit(*self._limits.note(Limit.ACTIVE_RETRIES, self._max_active, bites=bool(self._requests.held)))

    def next_times(self, now_ms: int) -> tuple[int | None, ...]:
        """Return when a segment, and when a round of overdue sends, is due next; None if none is planned."""
        if self._requests.held and self._may_retry:
            return (now_ms,)
        return self._requests.retries.next_at(), self._overdue.at_ms

    def heard(self, name: str, now_ms: int) -> None:
        """Note a message of a participant; if the participant returns, overdue sends are retransmitted soon."""
        self._overdue.heard(name, now_ms)

    def refused(self, segment: SentSegment, now_ms: int, *, too_many: bool) -> None:
        """Plan a segment that the node refused: at once, or after a pause from the fourth refusal on.

        ``too_many`` is true if the node asked for fewer transmissions; such a refusal does not count.
        """
        segment.refusals += not too_many
        is_suspect = segment.refusals > _REFUSALS_IN_PLACE
        self._requests.plan_retry(segment, now_ms + (_POSTPONED_MS if is_suspect else 0))

    def not_stored(self, sds_id: str, now_ms: int) -> None:
        """Plan a retry at once for an unacknowledged segment that was sent once and that no store has."""
        segment = self._sends.live(sds_id)
        if segment is None or segment.retry_at is None or not self._max_retries:
            return
        if segment.attempts == 1 and not segment.acknowledged_by:
            self._requests.plan_retry(segment, now_ms)

    def is_missed(self, sds_id: str, now_ms: int) -> None:
        """Plan a retry now for a segment that a participant misses although it had time to acknowledge it.

        This time (`NetworkTimes.retry_ms`) doubles with each attempt, up to the retry interval.
        """
        segment = self._sends.live(sds_id)
        if segment is None or segment.retry_at is None or not segment.has_left or not self._max_retries:
            return
        if not self._is_adaptive or self._times.is_limited or not self._requests.needs_retry(segment):
            return
        sent_ms = segment.retry_at - self._requests.next_retry_of(segment, 0)
        if now_ms >= sent_ms + (self._times.retry_ms << min(segment.attempts - 1, self._max_retries)):
            self._requests.plan_retry(segment, now_ms)

    def reviewed(self, review: Review, now_ms: int) -> list[Effect]:
        """Apply evidence about a segment, and drop retransmissions that its send no longer needs."""
        segment, requests = self._sends.live(review.message_id), self._requests
        if segment is None or requests.of(segment).state is RequestState.DELIVERED:
            return []
        first_sign = review.evidence is None and not (segment.possibly or segment.acknowledged_by)
        request = requests.of(segment)
        if segment.attempts == 1 and not segment.acknowledged_by and review.evidence is not None:
            self._times.acknowledgements.note(max(0, now_ms - segment.made_ms))
        events = requests.review(review, now_ms)
        if request.state is RequestState.OVERDUE and review.evidence is not None:
            self._overdue.progressed(now_ms)
        if any(isinstance(event, MessageDelivered) for event in events):
            self._sends.close(request, RequestStep.ACKNOWLEDGED, now_ms)
            return [*emit(*events), *self._sends.evict(now_ms)]
        if first_sign and segment.retry_at is not None and requests.waits_longer(segment):
            requests.plan_retry(segment, segment.retry_at + requests.interval_ms)
        is_queued_again = segment.has_left and self._outbound.is_queued(segment.sds_id)
        if is_queued_again and not requests.needs_retry(segment):
            self._outbound.discard(segment.sds_id)
            requests.plan_retry(segment, requests.next_retry_of(segment, now_ms))
        return emit(*events)

    def never_left(self) -> list[SentSegment]:
        """After a restart, return the segments that became SDS messages and never left, in order of `sequence`."""
        unsent = [
            segment
            for segment in self._requests.segments.values()
            if not segment.has_left and self._sds.unacknowledged(segment.sds_id) is not None
        ]
        # Rows are restored in any order.
        return sorted(unsent, key=lambda segment: segment.sequence)

    def plan_anew(self, now_ms: int) -> None:
        """Bring forward retries that were planned while the clock was ahead, in this run or an earlier one."""
        self._requests.plan_anew(now_ms)
        self._asked_ms = 0
        self._overdue = OverdueRetries(self._requests, self._outbound.is_under_way)
        self._begin_overdue(now_ms)

    def _begin_overdue(self, now_ms: int) -> None:
        if self._max_retries:
            self._overdue.begin(now_ms)

    @property
    def _may_retry(self) -> bool:
        """Whether fewer retransmissions are active than ``max_active_retries``."""
        return self._outbound.active_retries < self._max_active

    @property
    def _can_retry_held(self) -> bool:
        return bool(self._requests.held) and self._may_retry

    def _repeat_held(self, now_ms: int) -> Iterator[Transmission | list[Effect]]:
        while self._can_retry_held:
            yield from self._repeat(next(iter(self._requests.held.values())), now_ms)

    def _repeat(self, segment: SentSegment, now_ms: int) -> Iterator[Transmission | list[Effect]]:
        """Yield a due segment, or the failure of its send; yield nothing if the segment need not leave now.

        A segment that never left is always needed, because later messages cite it. Any other segment is held while too
        many retransmissions are active. After ``max_retry_attempts`` retransmissions its send fails.
        """
        requests, request = self._requests, self._requests.of(segment)
        if segment.has_left and not request.is_open:
            # Its send ended after the segment became due.
            return
        waiting = self._sds.unacknowledged(segment.sds_id)
        is_under_way = self._outbound.is_under_way(segment.sds_id)
        needs_retry = waiting is not None and (not segment.has_left or requests.needs_retry(segment))
        is_late = is_under_way and segment.has_left and request.was_sent
        if needs_retry and is_late and self._outbound.limiter.limiting:
            # The rate limit held it back for an interval, which counts as an attempt: otherwise no send fails under a
            # limit.
            segment.attempts += 1
        if needs_retry and segment.attempts > self._max_retries:
            yield self._sends.exhausted(request, self._max_retries, now_ms)
            self._begin_overdue(now_ms)
        elif waiting is None:
            requests.plan_retry(segment, None)
        elif is_under_way or not needs_retry:
            requests.plan_retry(segment, requests.next_retry_of(segment, now_ms))
        elif segment.has_left and not self._may_retry:
            requests.hold(segment, now_ms)
        else:
            # If the rate limit holds it back until then, that counts as an attempt.
            requests.plan_retry(segment, requests.next_retry_of(segment, now_ms) if segment.has_left else None)
            yield from self._copy(segment, waiting.message, now_ms)

    def _copy(self, segment: SentSegment, message: SdsMessage, now_ms: int) -> Iterator[Transmission | list[Effect]]:
        yields = segment.refusals > _REFUSALS_IN_PLACE
        yield Transmission(
            purpose=Purpose.RETRY if segment.has_left else Purpose.CONTENT,
            sds_id=segment.sds_id,
            payload=self._sds.encode(message),
            # A segment that never left keeps its position, ahead of the retransmissions.
            sequence=None if segment.has_left or yields else segment.sequence,
            yields=yields,
        )
        yield self._query_for_acknowledgements(segment, now_ms)

    def _query_for_acknowledgements(self, segment: SentSegment, now_ms: int) -> list[Effect]:
        """Query a store for the messages since a segment was made, after `_VAIN_ATTEMPTS` attempts at the segment.

        A participant that acknowledged the segment and went offline does not acknowledge again, but the store has its
        acknowledgement.
        """
        is_asked = now_ms < self._asked_ms + _ASK_EVERY_MS
        if not self._queries_store or segment.attempts < _VAIN_ATTEMPTS or is_asked:
            return []
        start_ms = max(segment.made_ms - _ASK_EVERY_MS, self._asked_ms - _STORE_LAG_MS)
        self._asked_ms = now_ms
        return [QueryStore(start_ns=start_ms * NS_PER_MS, end_ns=now_ms * NS_PER_MS)]
