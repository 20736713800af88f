"""SDS-R for one participant: requests for missing messages, and answers to others (SDS, "SDS Repair (SDS-R)").

A participant that misses a message waits until T_req, then names it in the repair_request of its next message. A
participant that has the message waits until T_resp and broadcasts the original again, unless another participant did so
before. Hashes spread both times (`fairway.wire.repair_hash`): one of many participants is first, and the others receive
its message and do nothing.

A request is repeated while the message is missing, after twice the first wait. Later waits double, up to two minutes
(js-waku requests only once). A request of another participant for the same message delays the own request by twice the
first wait, a limited number of times. A planned answer is cancelled if the message is received again.

Any participant may request any message, and a request of a hundred bytes may cause an answer of a hundred thousand. So
answers are limited:

* The first answer for a message is free.
* A rest precedes each further answer for the same message. It doubles each time, at most three times.
* All further answers together may have as many bytes as the messages that were sent and received, plus a small
  allowance that grows with time. The last answer may exceed that; the following ones wait.

After a restart the retained messages count as sent and received.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from fairway.bounded import BoundedDict
from fairway.options import RepairConfig
from fairway.protocol.journal import Journal
from fairway.wire.repair_hash import RepairHash
from fairway.wire.sds import HistoryEntry, SdsMessage

MAX_REQUESTS_PER_MESSAGE: Final = 3
"""Repair requests in one outgoing message."""
_MAX_REQUESTS_READ: Final = 10
"""Repair requests read of a received message; implementations of SDS-R send 3."""
MAX_TRACKED: Final = 1_000
"""Entries in each of the two repair buffers."""
_PARTICIPANTS_PER_GROUP: Final = 128
_LONGEST_WAIT_MS: Final = 120_000
"""Longest wait between two own requests for a message: thirty requests within lost_timeout_ms, an hour.

If half of all messages are lost, one request in four is answered. Fifteen requests miss one message in seventy-five,
thirty miss one in five thousand."""
_MAX_DOUBLINGS: Final = 20
_EVEN_REQUESTS: Final = 4
"""Requests before the waits grow: at 50 % loss several requests or their answers in a row are lost."""
_MAX_REST_DOUBLINGS: Final = 3
_MAX_ANSWERED: Final = 20_000
"""Messages remembered as answered."""
_FIRST_MESSAGES: Final = 14
_MESSAGE_INTERVAL_MS: Final = 37_500
"""Time in which the allowance, `_FIRST_MESSAGES` at first, grows by one message; the rate of sync messages."""
_FEWEST_MESSAGE_BYTES: Final = 512
"""Approximate bytes of a message without content, unless its filter is larger."""
_ENTRY_BYTES: Final = 128
"""Approximate bytes of a history entry with its hint and author."""
_MAX_CREDIT_BYTES: Final = 8_388_608
"""Maximum of the allowance."""
_OVERDUE_SHARE: Final = 3
"""Requests of one message for each that is chosen because it is the most overdue (`Repair.take_requests`).

The others are those made least often."""
_MAX_HEARD_IN_BETWEEN: Final = 8
"""Requests of others that delay an own request before it is made, at most."""

REPAIR_REQUESTS: Final = "repair_requests"
REPAIR_RESPONSES: Final = "repair_responses"


def response_groups_for(participants: int) -> int:
    """Return the number of response groups for that many participants: participants div 128 + 1 (SDS-R)."""
    return participants // _PARTICIPANTS_PER_GROUP + 1


def request_offset(hashes: RepairHash, participant_id: str, message_id: str, t_min_ms: int, t_max_ms: int) -> int:
    """Return the wait in ms between the detection of a missing message and its first request (SDS-R: T_req)."""
    window = t_max_ms - t_min_ms
    return t_min_ms + (hashes.pair(participant_id, message_id) % window if window else 0)


def in_response_group(hashes: RepairHash, participant_id: str, author_id: str, message_id: str, groups: int) -> bool:
    """Return whether a participant belongs to the response group of a message; the author always does."""
    if groups <= 1:
        return True
    mine, authors = hashes.pair(participant_id, message_id), hashes.pair(author_id, message_id)
    return mine % groups == authors % groups


class Scheduled(NamedTuple):
    """An entry of a repair buffer: a time and a message. Entries sort by these fields."""

    at_ms: int
    message_id: str
    entry: HistoryEntry
    asked: int = 0
    """Requests by this participant."""
    heard: int = 0
    """Requests by others since the last own one."""


class RepairBuffer:
    """Entries ordered by time, at most one per message id, bounded.

    A full buffer evicts or rejects the entry that is due last (SDS-R keeps the most overdue).
    """

    def __init__(self) -> None:
        self._by_id: dict[str, Scheduled] = {}
        self._ordered: list[Scheduled] = []

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
        """Schedule an entry unless its id is scheduled; return (whether added, evicted id)."""
        if entry.message_id in self._by_id:
            return False, None
        scheduled = Scheduled(at_ms, entry.message_id, entry, asked, heard)
        evicted: str | None = None
        if len(self._ordered) >= MAX_TRACKED:
            if scheduled > self._ordered[-1]:
                return False, None
            evicted = self._ordered[-1].message_id
            self.remove(evicted)
        self._by_id[entry.message_id] = scheduled
        insort(self._ordered, scheduled)
        return True, evicted

    def remove(self, message_id: str) -> bool:
        """Remove an entry; return whether it was scheduled."""
        scheduled = self._by_id.pop(message_id, None)
        if scheduled is None:
            return False
        del self._ordered[bisect_left(self._ordered, scheduled)]
        return True

    def reschedule(self, message_id: str, at_ms: int, asked: int, heard: int = 0) -> bool:
        """Move an entry to another time; return whether it was scheduled."""
        old = self._by_id.get(message_id)
        if old is None:
            return False
        self.remove(message_id)
        self.add(old.entry, at_ms, asked, heard)
        return True

    def due(self, now_ms: int, limit: int | None = None) -> list[Scheduled]:
        """Return the due entries, earliest first, at most ``limit``."""
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
        self,
        participant_id: str,
        config: RepairConfig,
        hashes: RepairHash,
        journal: Journal,
        *,
        bloom_bytes: int,
    ) -> None:
        """Make empty buffers; ``bloom_bytes`` is the size of the filter in each own message, or 0."""
        self.requests = RepairBuffer()
        self.responses = RepairBuffer()
        self.config = config
        self._t_min_ms, self._t_max_ms = config.window()
        self._wanted_t_min_ms: int | None = None
        """The last T_min of `set_t_min`."""
        self._participant_id = participant_id
        self._hashes = hashes
        self._journal = journal
        self.lacked_together: Callable[[str], int] = lambda _: 1
        """Number of missing messages that share a citing message with a given one; set by the layer above."""
        self.answers_awaited: BoundedDict[str, bool] = BoundedDict(MAX_TRACKED)
        """Ids of held messages that others requested: the next copy that arrives is an answer to them."""
        self.rests_until: BoundedDict[str, tuple[int, int]] = BoundedDict(_MAX_ANSWERED)
        """End of the rest and number of answers for each answered id, the oldest answer first."""
        self._message_bytes = max(bloom_bytes, _FEWEST_MESSAGE_BYTES)
        self._credit_bytes = _FIRST_MESSAGES * self._message_bytes
        self._credited_ms: int | None = None

    def set_t_min(self, t_min_ms: int, now_ms: int) -> None:
        """Set T_min, unless an option sets it. A shorter T_min makes planned requests and answers due sooner."""
        if t_min_ms == self._wanted_t_min_ms:
            return
        before_ms, self._wanted_t_min_ms = self._t_min_ms, t_min_ms
        self._t_min_ms, self._t_max_ms = self.config.window(t_min_ms)
        if self._t_min_ms < before_ms:
            self.plan_anew(now_ms)

    def schedule_request(self, entry: HistoryEntry, now_ms: int, *, at_once: bool = False) -> None:
        """Plan to request a missing message, at T_req or ``at_once``."""
        if not self.config.enabled:
            return
        at_ms = now_ms if at_once else now_ms + self._wait(entry.message_id)
        added, evicted = self.requests.add(entry, at_ms)
        if evicted is not None:
            self._journal.touch(REPAIR_REQUESTS, evicted)
        planned = self.requests.get(entry.message_id) if at_once else None
        is_later = planned is not None and planned.at_ms > at_ms
        if planned is not None and is_later:
            self.requests.reschedule(entry.message_id, at_ms, planned.asked, planned.heard)
        if added or is_later:
            self._journal.touch(REPAIR_REQUESTS, entry.message_id)

    def take_requests(self, now_ms: int) -> tuple[HistoryEntry, ...]:
        """Return the messages to request now, at most `MAX_REQUESTS_PER_MESSAGE` (SDS-R).

        Most of them are those requested least often, the most overdue first. A forged message may cite many ids that do
        not exist, and must not delay requests for messages that exist. So a request counts once for each message that
        is missing together with the requested one: all dependencies of one message have one share together. The others
        are the most overdue, regardless of their number of requests.
        """
        if not self.config.enabled or not len(self.requests):
            return ()
        due, limit = self.requests.due(now_ms), MAX_REQUESTS_PER_MESSAGE
        together = {each.message_id: self.lacked_together(each.message_id) for each in due if each.asked}
        by_share = sorted(due, key=lambda each: each.asked * together.get(each.message_id, 1))
        chosen = by_share[: limit - limit // _OVERDUE_SHARE]
        chosen += [scheduled for scheduled in due[:limit] if scheduled not in chosen][: limit - len(chosen)]
        for scheduled in chosen:
            self._back_off(scheduled.message_id, scheduled.asked + 1, now_ms)
        return tuple(scheduled.entry for scheduled in chosen)

    def ask_again(self, entries: Iterable[HistoryEntry], now_ms: int) -> None:
        """Note that these requests were not sent: they are due now."""
        for entry in entries:
            scheduled = self.requests.get(entry.message_id)
            if scheduled is not None:
                self.requests.reschedule(entry.message_id, now_ms, max(0, scheduled.asked - 1), scheduled.heard)
                self._journal.touch(REPAIR_REQUESTS, entry.message_id)

    def heard_request(self, message_id: str, now_ms: int) -> None:
        """Note that another participant requested a message: an own request for it waits for the answer.

        A limited number of requests have this effect; otherwise forged ones could delay the own request for ever.
        """
        scheduled = self.requests.get(message_id)
        if scheduled is not None and scheduled.heard < _MAX_HEARD_IN_BETWEEN:
            self._back_off(message_id, scheduled.asked, now_ms, scheduled.heard + 1)

    def review_requests(
        self, message: SdsMessage, holds: Callable[[str], bool], participants: int, now_ms: int
    ) -> None:
        """Plan answers to the repair requests of a message; ``holds`` returns whether a message is here."""
        requests = {entry.message_id: entry for entry in message.repair_request[:_MAX_REQUESTS_READ]}
        for message_id, entry in requests.items():
            self.heard_request(message_id, now_ms)
            if not holds(message_id):
                continue
            # If the response group did not answer the last request, all participants with the message answer: the group
            # is the same for each request, and all its members may be offline.
            groups = 1 if message_id in self.answers_awaited else response_groups_for(participants)
            self.schedule_response(entry, now_ms, groups, self.rests_until.get(message_id, (0, 0))[0])
            self.answers_awaited[message_id] = True

    def schedule_response(self, entry: HistoryEntry, now_ms: int, groups: int, not_before_ms: int = 0) -> None:
        """Plan to answer, at T_resp, for a held message, if this participant belongs to its response group."""
        author = entry.sender_id
        if not self.config.enabled or not author:
            return
        if not in_response_group(self._hashes, self._participant_id, author, entry.message_id, groups):
            return
        offset_ms = self._hashes.response_offset(self._participant_id, author, entry.message_id, self._t_max_ms)
        at_ms = max(now_ms + offset_ms, not_before_ms)
        added, evicted = self.responses.add(entry, at_ms)
        if evicted is not None:
            self._journal.touch(REPAIR_RESPONSES, evicted)
        if added:
            self._journal.touch(REPAIR_RESPONSES, entry.message_id)

    def take_responses(self, now_ms: int) -> list[str]:
        """Remove the due answers, and return their message ids."""
        due = [scheduled.message_id for scheduled in self.responses.due(now_ms)]
        for message_id in due:
            self.responses.remove(message_id)
            self._journal.touch(REPAIR_RESPONSES, message_id)
        return due

    def earned(self, message: SdsMessage) -> None:
        """Add the bytes of a sent or received message to the allowance of answers."""
        size_bytes = len(message.content or b"") + len(message.bloom_filter or b"")
        size_bytes += _ENTRY_BYTES * (1 + len(message.causal_history))
        self._credit_bytes = min(_MAX_CREDIT_BYTES, self._credit_bytes + size_bytes)

    def may_answer(self, message_id: str, size_bytes: int, now_ms: int) -> bool:
        """Return whether a message of that size may be broadcast again now, and charge it if so."""
        passed_ms = 0 if self._credited_ms is None else max(0, now_ms - self._credited_ms)
        self._credited_ms = now_ms
        grown_bytes = passed_ms * self._message_bytes // _MESSAGE_INTERVAL_MS
        self._credit_bytes = min(_MAX_CREDIT_BYTES, self._credit_bytes + grown_bytes)
        until_ms, times = self.rests_until.pop(message_id, (0, 0))
        # Regardless of the size: requests for smaller messages could keep the allowance too small for a large one.
        is_paid = not times or self._credit_bytes > 0
        if times and is_paid:
            self._credit_bytes -= size_bytes
        if is_paid:
            until_ms, times = now_ms + (self._t_min_ms << min(times, _MAX_REST_DOUBLINGS)), times + 1
        self.rests_until[message_id] = (until_ms, times)
        return is_paid

    def not_answered(self, message_id: str, size_bytes: int) -> None:
        """Undo the charge of `may_answer` for an answer that was not sent."""
        _, times = self.rests_until.pop(message_id, (0, 0))
        if times > 1:
            self._credit_bytes = min(_MAX_CREDIT_BYTES, self._credit_bytes + size_bytes)
            self.rests_until[message_id] = (0, times - 1)

    def forget(self, message_id: str) -> bool:
        """Remove a received message from both buffers (SDS-R).

        Return whether it is an answer to a request of another participant.
        """
        if self.requests.remove(message_id):
            self._journal.touch(REPAIR_REQUESTS, message_id)
        if self.responses.remove(message_id):
            self._journal.touch(REPAIR_RESPONSES, message_id)
        return self.answers_awaited.pop(message_id, False)

    def plan_anew(self, now_ms: int) -> None:
        """Limit each planned time to the time of a plan made now: the clock may have been ahead."""
        for scheduled in list(self.requests):
            if scheduled.at_ms > now_ms + self._wait(scheduled.message_id, scheduled.asked, scheduled.heard):
                self._back_off(scheduled.message_id, scheduled.asked, now_ms, scheduled.heard)
        for scheduled in list(self.responses):
            if scheduled.at_ms > now_ms + self._t_max_ms:
                self.responses.reschedule(scheduled.message_id, now_ms + self._t_max_ms, scheduled.asked)
                self._journal.touch(REPAIR_RESPONSES, scheduled.message_id)
        for message_id, (until_ms, times) in list(self.rests_until.items()):
            longest_ms = self._t_min_ms << min(times, _MAX_REST_DOUBLINGS)
            self.rests_until[message_id] = (min(until_ms, now_ms + longest_ms), times)

    def _wait(self, message_id: str, asked: int = 0, heard: int = 0) -> int:
        """Return the wait in ms before the next request: T_req at first, then twice T_req.

        From the sixth request on each wait is twice the last one.

        After an own request the wait is at most `_LONGEST_WAIT_MS`, or t_min_ms if longer. After a ``heard`` request of
        another participant it has no bound.
        """
        first_offset_ms = request_offset(self._hashes, self._participant_id, message_id, self._t_min_ms, self._t_max_ms)
        if heard:
            return 2 * first_offset_ms
        doubled_ms = first_offset_ms << min(max(1, asked - _EVEN_REQUESTS), _MAX_DOUBLINGS)
        return min(doubled_ms, max(_LONGEST_WAIT_MS, self._t_min_ms)) if asked else first_offset_ms

    def _back_off(self, message_id: str, asked: int, now_ms: int, heard: int = 0) -> None:
        at_ms = now_ms + self._wait(message_id, asked, heard)
        self.requests.reschedule(message_id, at_ms, asked, heard)
        self._journal.touch(REPAIR_REQUESTS, message_id)
