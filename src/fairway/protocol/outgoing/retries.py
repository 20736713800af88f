"""Which segments are sent again, and when (RELIABLE-CHANNEL-API, "Message retries").

`Retries` alone decides that: for what is not acknowledged, what the node refused, what never left before a restart, and
what failed sends still owe (`fairway.protocol.outgoing.overdue`). The times stand in `RequestTable`.
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
"""Refusals of a segment after which others go first: the fault may be its own. Otherwise it would stop them all."""
_POSTPONED_MS: Final = 5_000
"""Pause before a segment leaves that was refused more often."""
_VAIN_ATTEMPTS: Final = 2
"""Attempts at a segment after which the acknowledgement may have got lost on its way here."""
_ASK_EVERY_MS: Final = 60_000
"""Shortest interval between queries for lost acknowledgements, and how long before the first attempt they begin."""
_STORE_LAG_MS: Final = 600_000
"""Delay with which a store that is behind gets a message."""


class Retries:
    """Sends segments of one channel again."""

    def __init__(self, shared: Shared, requests: RequestTable, sends: Sends, outbound: TransmissionQueue) -> None:
        options = shared.options
        self._max_retries = options.max_retry_attempts if options.retry_interval_ms else 0
        self._retry_interval_ms = options.retry_interval_ms
        self._max_active = options.advanced.max_active_retries
        self._queries_store = options.retrieve_frequency_ms > 0
        self._sds, self._limits = shared.sds, shared.limits
        self._requests, self._sends, self._outbound = requests, sends, outbound
        self._overdue = OverdueRetries(requests, outbound.is_under_way)
        self._asked_ms = 0
        """When a store was last asked for lost acknowledgements."""

    def due(self, now_ms: int) -> Iterator[Transmission | list[Effect]]:
        """Yield what is to be sent again now, and the effects of what ends instead. The caller sends each at once.

        SDS, "Periodic Outgoing Buffer Sweep": unacknowledged messages MUST be rebroadcast, and possibly acknowledged
        ones SHOULD wait longer: here twice as long.
        """
        segments = self._requests.take_due(now_ms)
        overdue = self._overdue.take_due(now_ms)
        if not (segments or overdue or self._can_retry_held):
            return
        yield from self._repeat_held(now_ms)
        for segment in segments:
            yield from self._repeat(segment, now_ms)
        # A send that failed makes room for others.
        yield from self._repeat_held(now_ms)
        for segment in overdue if self._may_retry else ():
            waiting = self._sds.unacknowledged(segment.sds_id)
            if waiting is not None:
                yield from self._copy(segment, waiting.message, now_ms)
        yield emit(*self._limits.note(Limit.ACTIVE_RETRIES, self._max_active, bites=bool(self._requests.held)))

    def next_deadline(self, now_ms: int) -> int | None:
        """Return when a segment is next due to be sent again."""
        if self._can_retry_held:
            return now_ms
        times = (self._requests.next_retry_at(), self._overdue.at_ms)
        return min((at for at in times if at is not None), default=None)

    def heard(self, name: str, now_ms: int) -> None:
        """Note that a message of a participant came: overdue sends are sent again soon if it returns."""
        self._overdue.heard(name, now_ms)

    def refused(self, segment: SentSegment, now_ms: int, *, too_many: bool) -> None:
        """Plan a segment that the node did not take: at once, or after a pause if it is refused again and again."""
        segment.refusals += not too_many
        is_suspect = segment.refusals > _REFUSALS_IN_PLACE
        self._requests.plan_retry(segment, now_ms + (_POSTPONED_MS if is_suspect else 0))

    def not_stored(self, sds_id: str, now_ms: int) -> None:
        """Send a segment again at once that was sent once and that no store has."""
        segment = self._sends.live(sds_id)
        if segment is None or segment.retry_at is None or not self._max_retries:
            return
        if segment.attempts == 1 and not segment.acknowledged_by:
            self._requests.plan_retry(segment, now_ms)

    def reviewed(self, review: Review, now_ms: int) -> list[Effect]:
        """Pass on evidence about a segment, and stop repeating what its send no longer needs."""
        segment, requests = self._sends.live(review.message_id), self._requests
        if segment is None or requests.of(segment).state is RequestState.DELIVERED:
            return []
        first_sign = review.evidence is None and not (segment.possibly or segment.acknowledged_by)
        request = requests.of(segment)
        events = requests.review(review, now_ms)
        if request.state is RequestState.OVERDUE and review.evidence is not None:
            self._overdue.progressed(now_ms)
        if any(isinstance(event, MessageDelivered) for event in events):
            self._sends.close(request, RequestStep.ACKNOWLEDGED, now_ms)
            return [*emit(*events), *self._sends.evict(now_ms)]
        if first_sign and segment.retry_at is not None and requests.waits_longer(segment):
            requests.plan_retry(segment, segment.retry_at + self._retry_interval_ms)
        is_queued_again = segment.has_left and self._outbound.is_queued(segment.sds_id)
        if is_queued_again and not requests.needs_retry(segment):
            self._outbound.discard(segment.sds_id)
            requests.plan_retry(segment, requests.next_retry_of(segment, now_ms))
        return emit(*events)

    def never_left(self) -> list[SentSegment]:
        """After a restart, return the segments that were made and never left, in their order."""
        unsent = [
            segment
            for segment in self._requests.segments.values()
            if not segment.has_left and self._sds.unacknowledged(segment.sds_id) is not None
        ]
        # The order of rows says nothing of when segments were made.
        return sorted(unsent, key=lambda segment: segment.sequence)

    def plan_anew(self, now_ms: int) -> None:
        """Bring forward what was planned by a clock that was ahead, in this run or an earlier one."""
        self._requests.plan_anew(now_ms)
        self._asked_ms = 0
        self._overdue = OverdueRetries(self._requests, self._outbound.is_under_way)
        self._begin_overdue(now_ms)

    def _begin_overdue(self, now_ms: int) -> None:
        if self._max_retries:
            self._overdue.begin(now_ms)

    @property
    def _may_retry(self) -> bool:
        """Whether fewer segments are being sent again than may be at once."""
        return self._outbound.active_retries < self._max_active

    @property
    def _can_retry_held(self) -> bool:
        return bool(self._requests.held) and self._may_retry

    def _repeat_held(self, now_ms: int) -> Iterator[Transmission | list[Effect]]:
        while self._can_retry_held:
            yield from self._repeat(next(iter(self._requests.held.values())), now_ms)

    def _repeat(self, segment: SentSegment, now_ms: int) -> Iterator[Transmission | list[Effect]]:
        """Yield a segment whose time has come; nothing if it need not be sent now, or is not any more.

        A segment that never left is always needed: later messages cite it. Another one is held while many are being
        sent again. When it was sent as often as allowed, its send fails.
        """
        requests, request = self._requests, self._requests.of(segment)
        if segment.has_left and not request.is_open:
            # Its send ended while this one was due.
            return
        waiting = self._sds.unacknowledged(segment.sds_id)
        is_under_way = self._outbound.is_under_way(segment.sds_id)
        needs_retry = waiting is not None and (not segment.has_left or requests.needs_retry(segment))
        is_late = is_under_way and segment.has_left and request.was_sent
        if needs_retry and is_late and self._outbound.limiter.limiting:
            # The rate limit held it back for an interval. If that did not count, a send would never fail under a limit.
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
            # If it waits for the rate limit until then, that counts as an attempt.
            requests.plan_retry(segment, requests.next_retry_of(segment, now_ms) if segment.has_left else None)
            yield from self._copy(segment, waiting.message, now_ms)

    def _copy(self, segment: SentSegment, message: SdsMessage, now_ms: int) -> Iterator[Transmission | list[Effect]]:
        yields = segment.refusals > _REFUSALS_IN_PLACE
        yield Transmission(
            purpose=Purpose.RETRY if segment.has_left else Purpose.CONTENT,
            sds_id=segment.sds_id,
            payload=self._sds.profile.codec.encode(message),
            # What never left goes in its place, before what is repeated.
            sequence=None if segment.has_left or yields else segment.sequence,
            yields=yields,
        )
        yield self._query_for_acknowledgements(segment, now_ms)

    def _query_for_acknowledgements(self, segment: SentSegment, now_ms: int) -> list[Effect]:
        """Ask a store for what was sent since, if a segment was sent again in vain.

        A participant that acknowledged a message and left does not do so again, but its acknowledgement is in the
        store.
        """
        is_asked = now_ms < self._asked_ms + _ASK_EVERY_MS
        if not self._queries_store or segment.attempts < _VAIN_ATTEMPTS or is_asked:
            return []
        start_ms = max(segment.made_ms - _ASK_EVERY_MS, self._asked_ms - _STORE_LAG_MS)
        self._asked_ms = now_ms
        return [QueryStore(start_ns=start_ms * NS_PER_MS, end_ns=now_ms * NS_PER_MS)]
