"""Retransmission of failed sends: which segments, and when. One falling rate serves the whole channel.

A participant may be away for days. It cannot receive the copies that others send in this time. So the channel
retransmits one segment at a time, for any number of failed sends. The pause between two segments doubles from two
retry intervals to one hour. The newest send is the first: a participant that receives it requests the messages that it
cites, and so the earlier sends.

If a message of an awaited participant arrives after a silence, the channel retransmits one segment soon. If a
participant acknowledges a segment, the next round has twice as many segments, up to `_LARGEST_ROUND`, the oldest first.
The rounds end when every such send is acknowledged. A participant that never acknowledges gets one segment for each of
its returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairway.bounded import BoundedDict
from fairway.protocol.outgoing.request import SendRequest, SentSegment
from fairway.protocol.outgoing.request_life import RequestState
from fairway.protocol.outgoing.request_table import RequestTable

_LONGEST_PAUSE_MS: Final = 3_600_000
_FIRST_PAUSE: Final = 2
"""Retry intervals in the first pause."""
_SOON_SHARE: Final = 0.25
"""Share of the retry interval in which a returning participant may acknowledge without a copy."""
_SILENCE_MS: Final = 300_000
"""Silence after which the next message of a participant counts as its return."""
_MAX_NAMES: Final = 10_000
"""Participants with a remembered time of their last message; a forger can invent names."""
_LARGEST_ROUND: Final = 20
"""Segments of one round: as many as one sync message acknowledges (`fairway.protocol.sds.pending_citations`)."""


class OverdueRetries:
    """The schedule of the sends that are `RequestState.OVERDUE`."""

    def __init__(self, requests: RequestTable, is_under_way: Callable[[str], bool]) -> None:
        """``is_under_way`` returns whether a segment, by SDS id, waits to leave or waits for the node's answer."""
        self._requests, self._is_under_way = requests, is_under_way
        self._interval_ms = requests.interval_ms
        self._first_pause_ms = min(_FIRST_PAUSE * self._interval_ms, _LONGEST_PAUSE_MS)
        self._pause_ms = 0
        self._next_ms: int | None = None
        """When the next round begins at the falling rate; None while no send is overdue."""
        self._answer_ms: int | None = None
        """When a round begins because a participant returned or acknowledged a segment; None without such a round."""
        self._size = 1
        self._has_progress = False
        self._heard_ms: BoundedDict[str, int] = BoundedDict(_MAX_NAMES)
        """Arrival time of the last message of each participant, in this run."""

    @property
    def at_ms(self) -> int | None:
        """When the next round begins; None while no send is overdue."""
        if self._next_ms is None or self._answer_ms is None:
            return self._next_ms
        return min(self._next_ms, self._answer_ms)

    def begin(self, now_ms: int) -> None:
        """Start the schedule if a send is overdue."""
        if self._next_ms is None and self._requests.has_overdue:
            self._begin_pause(now_ms)

    def heard(self, name: str, now_ms: int) -> None:
        """Note a message of a participant; after a silence of `_SILENCE_MS`, or at its first message, it returns."""
        before_ms = self._heard_ms.get(name)
        self._heard_ms.put(name, now_ms)
        was_silent = before_ms is None or not 0 <= now_ms - before_ms < _SILENCE_MS
        if was_silent and self._next_ms is not None:
            self._answer_soon(now_ms)

    def progressed(self, now_ms: int) -> None:
        """Note that a segment of an overdue send was acknowledged."""
        if self._next_ms is not None:
            self._has_progress = True
            self._answer_soon(now_ms)

    def take_due(self, now_ms: int) -> list[SentSegment]:
        """Return the segments of the round that begins now; an empty list if no round begins."""
        if self._next_ms is not None and not self._requests.has_overdue:
            self._next_ms = self._answer_ms = None
            self._size, self._has_progress = 1, False
        if self._answer_ms is not None and self._answer_ms <= now_ms:
            self._answer_ms = None
            self._size = min(2 * self._size, _LARGEST_ROUND) if self._has_progress else 1
            self._has_progress = False
            chosen = self._awaiting_participants_heard(now_ms)
            if chosen:
                self._begin_pause(now_ms)
            return chosen
        if self._next_ms is not None and self._next_ms <= now_ms:
            self._size = 1
            self._pause_ms = min(2 * self._pause_ms, _LONGEST_PAUSE_MS)
            self._next_ms = now_ms + self._pause_ms
            return self._least_tried(now_ms)
        return []

    def _begin_pause(self, now_ms: int) -> None:
        self._pause_ms = self._first_pause_ms
        self._next_ms = now_ms + self._pause_ms

    def _answer_soon(self, now_ms: int) -> None:
        soon_ms = now_ms + int(self._interval_ms * _SOON_SHARE)
        self._answer_ms = soon_ms if self._answer_ms is None else min(self._answer_ms, soon_ms)

    def _least_tried(self, now_ms: int) -> list[SentSegment]:
        """Return one segment of the send whose last try is oldest; of untried sends, the newest."""
        sends = [send for send in reversed(self._requests.failed.values()) if send.state is RequestState.OVERDUE]
        return self._segments_to_try(min(sends, key=lambda send: send.tried_ms), 1, now_ms)

    def _awaiting_participants_heard(self, now_ms: int) -> list[SentSegment]:
        """Return segments of sends that await a participant heard within a retry interval, the oldest send first."""
        since_ms, tried_before_ms = now_ms - self._interval_ms, now_ms - 2 * self._interval_ms
        names = [name for name, heard_ms in self._heard_ms.items() if heard_ms >= since_ms]
        chosen: list[SentSegment] = []
        for send in self._requests.failed.values():
            if len(chosen) >= self._size:
                break
            if send.state is RequestState.OVERDUE and send.tried_ms < tried_before_ms:
                holders = send.holders(self._requests.segments_of(send))
                if any(send.awaits(name, holders) for name in names):
                    chosen += self._segments_to_try(send, self._size - len(chosen), now_ms)
        return chosen

    def _segments_to_try(self, send: SendRequest, count: int, now_ms: int) -> list[SentSegment]:
        """Return at most ``count`` data segments that an awaited participant may miss, least attempted first.

        This order makes each round continue a long message.
        """
        due = [
            segment
            for segment in self._requests.segments_of(send)
            if not segment.is_parity
            and segment.has_left
            and not self._is_under_way(segment.sds_id)
            and self._requests.needs_retry(segment)
        ]
        due.sort(key=lambda segment: (segment.attempts, -segment.order))
        if len(due) <= count:
            send.tried_ms = now_ms
        return due[:count]
