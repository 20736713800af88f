"""SDS-R for one participant: asking for what is missing, and answering for others (SDS, "SDS Repair (SDS-R)").

A participant that misses a message waits until T_req, then names it in the repair_request of what it sends next. One
that holds the message waits until T_resp and, if no other answered meanwhile, broadcasts the original again
(`fairway.protocol.sds.repair_times`).

A request is repeated for as long as the message is missing, after twice the first wait; hearing somebody else ask puts
it off, but not for ever (js-waku asks once and then never again). An answer is called off when the message is heard.

Anybody may ask for anything, and a request of a hundred bytes may bring a hundred thousand. So the first answer for a
message is free, which is as much as its sender had everybody transmit; every further one waits twice as long as the
one before, and all of them together are at most as many bytes as the messages that were sent and received, beside
what a silent participant's own sync messages take.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from fairway.options import RepairConfig
from fairway.protocol.journal import Journal
from fairway.protocol.sds.outcome import RepairRequested, ResponseScheduled, SdsOutcome
from fairway.protocol.sds.repair_times import (
    backed_off,
    in_response_group,
    request_offset,
    response_groups_for,
)
from fairway.wire.repair_hash import RepairHash
from fairway.wire.sds import HistoryEntry, SdsMessage

_MAX_REST_DOUBLINGS: Final = 3
_MAX_ANSWERED: Final = 20_000
"""Messages remembered as answered."""
_FIRST_CREDIT_BYTES: Final = 262_144
_MILLISECONDS_PER_BYTE: Final = 2
"""Sync messages, one in half a minute with a filter of 18,752 bytes, take about as much."""
_MAX_CREDIT_BYTES: Final = 8_388_608
"""Answers that may be repeated at once."""
_OVERDUE_SHARE: Final = 3
"""Of the requests that one message carries, one in so many is the most overdue, not the one made least often."""
_MAX_HEARD_IN_BETWEEN: Final = 8
"""Requests of others that put off our own, until it is made."""

REPAIR_REQUESTS: Final = "repair_requests"
REPAIR_RESPONSES: Final = "repair_responses"


class Scheduled(NamedTuple):
    """An entry of a repair buffer: when its time comes, and for which message. The order of the fields is its order."""

    at_ms: int
    message_id: str
    entry: HistoryEntry
    asked: int = 0
    """How often it was asked for already."""
    heard: int = 0
    """How often others asked since."""


class RepairBuffer:
    """Entries ordered by time, at most one per message id, bounded.

    When it is full, the entry whose time comes last goes without (SDS-R keeps what is most overdue).
    """

    def __init__(self, limit: int) -> None:
        self._by_id: dict[str, Scheduled] = {}
        self._ordered: list[Scheduled] = []
        self._limit = limit

    def __len__(self) -> int:
        return len(self._ordered)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._by_id

    def __iter__(self) -> Iterator[Scheduled]:
        return iter(self._ordered)

    def get(self, message_id: str) -> Scheduled | None:
        """Return the entry of a message."""
        return self._by_id.get(message_id)

    def add(self, entry: HistoryEntry, at_ms: int, asked: int = 0, heard: int = 0) -> tuple[bool, str | None]:
        """Schedule an entry unless its id is there; return (whether added, id that had to make room)."""
        if entry.message_id in self._by_id:
            return False, None
        scheduled = Scheduled(at_ms, entry.message_id, entry, asked, heard)
        evicted: str | None = None
        if len(self._ordered) >= self._limit:
            if not self._ordered or scheduled > self._ordered[-1]:
                return False, None
            evicted = self._ordered[-1].message_id
            self.remove(evicted)
        self._by_id[entry.message_id] = scheduled
        insort(self._ordered, scheduled)
        return True, evicted

    def remove(self, message_id: str) -> bool:
        """Take an entry out; return whether it was there."""
        scheduled = self._by_id.pop(message_id, None)
        if scheduled is None:
            return False
        del self._ordered[bisect_left(self._ordered, scheduled)]
        return True

    def reschedule(self, message_id: str, at_ms: int, asked: int, heard: int = 0) -> bool:
        """Move an entry to another time; return whether it was there."""
        old = self._by_id.get(message_id)
        if old is None:
            return False
        self.remove(message_id)
        self.add(old.entry, at_ms, asked, heard)
        return True

    def due(self, now_ms: int, limit: int | None = None) -> list[Scheduled]:
        """Return the entries whose time has come, earliest first, at most ``limit``."""
        found: list[Scheduled] = []
        for scheduled in islice(self._ordered, limit):
            if scheduled.at_ms > now_ms:
                break
            found.append(scheduled)
        return found

    def next_at(self) -> int | None:
        """Return the earliest time, or None when empty."""
        return self._ordered[0].at_ms if self._ordered else None


class Repair:
    """The outgoing and the incoming repair buffer."""

    def __init__(
        self, participant_id: str, config: RepairConfig, hashes: RepairHash, journal: Journal, *, max_heard: int
    ) -> None:
        """Make empty buffers; ``max_heard`` requests of one received message are looked at."""
        self.requests = RepairBuffer(config.max_tracked)
        self.responses = RepairBuffer(config.max_tracked)
        self.config = config
        self._participant_id = participant_id
        self._hashes = hashes
        self._journal = journal
        self._max_heard = max_heard
        self.answers_awaited: OrderedDict[str, bool] = OrderedDict()
        """Ids of messages that are here and that others asked for; the next copy is the answer."""
        self.rests_until: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """When an id that was answered may be answered again, and how often it was; the oldest answer first."""
        self._credit_bytes = _FIRST_CREDIT_BYTES
        self._credited_ms: int | None = None

    def schedule_request(self, entry: HistoryEntry, now_ms: int, *, at_once: bool = False) -> int | None:
        """Plan to ask for a missing message, at T_req or ``at_once``; return when, if it was not planned yet."""
        if not self.config.enabled:
            return None
        at_ms = now_ms if at_once else now_ms + self._request_offset(entry.message_id)
        added, evicted = self.requests.add(entry, at_ms)
        if evicted is not None:
            self._journal.touch(REPAIR_REQUESTS, evicted)
        if not added:
            planned = self.requests.get(entry.message_id) if at_once else None
            if planned is not None and planned.at_ms > at_ms:
                self.requests.reschedule(entry.message_id, at_ms, planned.asked, planned.heard)
                self._journal.touch(REPAIR_REQUESTS, entry.message_id)
            return None
        self._journal.touch(REPAIR_REQUESTS, entry.message_id)
        return at_ms

    def take_requests(self, now_ms: int) -> tuple[HistoryEntry, ...]:
        """Return what to ask for now, at most as many entries as one message carries (SDS-R).

        Most of them are those that were asked for least often, the most overdue first: one forged message invents more
        than a message can ask for, and what exists is not to wait until all of that was asked for once more. The rest
        are the most overdue, however often they were.
        """
        if not self.config.enabled or not len(self.requests):
            return ()
        due, limit = self.requests.due(now_ms), self.config.max_requests_per_message
        chosen = sorted(due, key=lambda scheduled: scheduled.asked)[: limit - limit // _OVERDUE_SHARE]
        chosen += [scheduled for scheduled in due[:limit] if scheduled not in chosen][: limit - len(chosen)]
        for scheduled in chosen:
            self._back_off(scheduled.message_id, scheduled.asked + 1, now_ms)
        return tuple(scheduled.entry for scheduled in chosen)

    def ask_again(self, entries: Iterable[HistoryEntry], now_ms: int) -> None:
        """Take back requests that did not leave: they are due now, and were not made."""
        for entry in entries:
            scheduled = self.requests.get(entry.message_id)
            if scheduled is not None:
                self.requests.reschedule(entry.message_id, now_ms, max(0, scheduled.asked - 1), scheduled.heard)
                self._journal.touch(REPAIR_REQUESTS, entry.message_id)

    def heard_request(self, message_id: str, now_ms: int) -> None:
        """Somebody else asked for a message: our own request waits as though it had been made.

        Only so often, for anybody may make requests without end.
        """
        scheduled = self.requests.get(message_id)
        if scheduled is not None and scheduled.heard < _MAX_HEARD_IN_BETWEEN:
            self._back_off(message_id, scheduled.asked, now_ms, scheduled.heard + 1)

    def review_requests(
        self, message: SdsMessage, holds: Callable[[str], bool], participants: int, now_ms: int
    ) -> list[SdsOutcome]:
        """Go through what a message of another participant asks for; ``holds`` says which messages are here."""
        requests = {entry.message_id: entry for entry in message.repair_request[: self._max_heard]}
        outcomes: list[SdsOutcome] = [RepairRequested(message_ids=tuple(requests), participant=message.sender_id)]
        for message_id, entry in requests.items():
            self.heard_request(message_id, now_ms)
            if not holds(message_id):
                continue
            # If the group that should have answered the last request did not, everybody who can will: its members are
            # the same every time, and may all have left.
            groups = self.config.response_groups or response_groups_for(participants)
            groups = 1 if message_id in self.answers_awaited else groups
            at_ms = self.schedule_response(entry, now_ms, groups, self.rests_until.get(message_id, (0, 0))[0])
            self.answers_awaited[message_id] = True
            if len(self.answers_awaited) > self.config.max_tracked:
                self.answers_awaited.popitem(last=False)
            if at_ms is not None:
                outcomes.append(ResponseScheduled(message_id=message_id, at_ms=at_ms))
        return outcomes

    def schedule_response(self, entry: HistoryEntry, now_ms: int, groups: int, not_before_ms: int = 0) -> int | None:
        """Plan to answer for a message that we hold; return T_resp if we shall and it is new."""
        author = entry.sender_id
        if not self.config.enabled or not author:
            return None
        if not in_response_group(self._hashes, self._participant_id, author, entry.message_id, groups):
            return None
        offset_ms = self._hashes.response_offset(self._participant_id, author, entry.message_id, self.config.t_max_ms)
        at_ms = max(now_ms + offset_ms, not_before_ms)
        added, evicted = self.responses.add(entry, at_ms)
        if evicted is not None:
            self._journal.touch(REPAIR_RESPONSES, evicted)
        if not added:
            return None
        self._journal.touch(REPAIR_RESPONSES, entry.message_id)
        return at_ms

    def take_responses(self, now_ms: int) -> list[str]:
        """Return the ids of messages whose answer is due, and forget them."""
        due = [scheduled.message_id for scheduled in self.responses.due(now_ms)]
        for message_id in due:
            self.responses.remove(message_id)
            self._journal.touch(REPAIR_RESPONSES, message_id)
        return due

    def earned(self, message: SdsMessage) -> None:
        """Note that a message was sent or received: as many bytes may be answered again."""
        size_bytes = len(message.content or b"") + len(message.bloom_filter or b"")
        self._credit_bytes = min(_MAX_CREDIT_BYTES, self._credit_bytes + size_bytes)

    def may_answer(self, message_id: str, size_bytes: int, now_ms: int) -> bool:
        """Return whether a message of that size may be broadcast again now, and note it if so."""
        passed_ms = 0 if self._credited_ms is None else max(0, now_ms - self._credited_ms)
        self._credited_ms = now_ms
        self._credit_bytes = min(_MAX_CREDIT_BYTES, self._credit_bytes + passed_ms // _MILLISECONDS_PER_BYTE)
        until_ms, times = self.rests_until.pop(message_id, (0, 0))
        is_paid = not times or size_bytes <= self._credit_bytes
        if times and is_paid:
            self._credit_bytes -= size_bytes
        if is_paid:
            until_ms, times = now_ms + (self.config.t_min_ms << min(times, _MAX_REST_DOUBLINGS)), times + 1
        self.rests_until[message_id] = (until_ms, times)
        if len(self.rests_until) > _MAX_ANSWERED:
            self.rests_until.popitem(last=False)
        return is_paid

    def forget(self, message_id: str) -> bool:
        """Neither ask for nor answer a message that was heard (SDS-R: remove from both buffers).

        Return whether it answers somebody's request, for it was here before and had been asked for.
        """
        if self.requests.remove(message_id):
            self._journal.touch(REPAIR_REQUESTS, message_id)
        if self.responses.remove(message_id):
            self._journal.touch(REPAIR_RESPONSES, message_id)
        return self.answers_awaited.pop(message_id, False)

    def clock_went_back(self, now_ms: int) -> None:
        """Wait no longer than from now on for what was planned by a clock that was ahead."""
        for scheduled in list(self.requests):
            wait_ms = backed_off(self._request_offset(scheduled.message_id), scheduled.asked + scheduled.heard)
            if scheduled.at_ms > now_ms + wait_ms:
                self._back_off(scheduled.message_id, scheduled.asked, now_ms, scheduled.heard)
        for scheduled in list(self.responses):
            if scheduled.at_ms > now_ms + self.config.t_max_ms:
                self.responses.reschedule(scheduled.message_id, now_ms + self.config.t_max_ms, scheduled.asked)
                self._journal.touch(REPAIR_RESPONSES, scheduled.message_id)
        for message_id, (until_ms, times) in self.rests_until.items():
            longest_ms = self.config.t_min_ms << min(times, _MAX_REST_DOUBLINGS)
            self.rests_until[message_id] = (min(until_ms, now_ms + longest_ms), times)

    def next_request_at(self) -> int | None:
        """Return when the next request is due."""
        return self.requests.next_at()

    def next_response_at(self) -> int | None:
        """Return when the next answer is due."""
        return self.responses.next_at()

    def _request_offset(self, message_id: str) -> int:
        return request_offset(self._hashes, self._participant_id, message_id, self.config)

    def _back_off(self, message_id: str, asked: int, now_ms: int, heard: int = 0) -> None:
        at_ms = now_ms + backed_off(self._request_offset(message_id), asked + heard)
        self.requests.reschedule(message_id, at_ms, asked, heard)
        self._journal.touch(REPAIR_REQUESTS, message_id)
