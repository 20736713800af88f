"""How js-waku asks for repairs: once, and not at all where somebody else did."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import Any

from fairway.options import RepairConfig
from fairway.protocol.journal import Journal
from fairway.protocol.sds.repair import Repair, RepairBuffer, Scheduled
from fairway.wire.repair_hash import RepairHash
from fairway.wire.sds import HistoryEntry, SdsMessage
from js_waku.faults import Fault, Notice


def _time_of(scheduled: Scheduled) -> int:
    return scheduled.at_ms


class JsRepairBuffer(RepairBuffer):
    """Entries ordered by time, those of the same time as they came."""

    def __init__(self, limit: int, notice: Notice) -> None:
        super().__init__(limit)
        self._notice = notice

    def add(self, entry: HistoryEntry, at_ms: int, asked: int = 0, heard: int = 0) -> tuple[bool, str | None]:
        """Schedule an entry unless its id is there; a full buffer lets its last entry go first, however early."""
        if entry.message_id in self:
            return False, None
        evicted: str | None = None
        if len(self) >= self._limit:
            self._notice(Fault.NEWEST_STAYS)
            evicted = self._ordered[-1].message_id
            self.remove(evicted)
        if any(scheduled.at_ms == at_ms for scheduled in self):
            self._notice(Fault.TIES_BY_ARRIVAL)
        self._by_id[entry.message_id] = scheduled = Scheduled(at_ms, entry.message_id, entry, asked, heard)
        insort(self._ordered, scheduled, key=_time_of)
        return True, evicted

    def remove(self, message_id: str) -> bool:
        """Take an entry out; return whether it was there."""
        scheduled = self._by_id.pop(message_id, None)
        if scheduled is None:
            return False
        self._ordered.remove(scheduled)
        return True

    def mark_asked(self, scheduled: Scheduled) -> None:
        """Note that an entry was asked for. It stays where it is and is never due again."""
        asked = scheduled._replace(asked=scheduled.asked + 1)
        self._by_id[scheduled.message_id] = self._ordered[self._ordered.index(scheduled)] = asked


class JsRepair(Repair):
    """The outgoing and the incoming repair buffer."""

    def __init__(
        self,
        participant_id: str,
        config: RepairConfig,
        hashes: RepairHash,
        journal: Journal,
        *,
        max_heard: int,
        notice: Notice,
    ) -> None:
        super().__init__(participant_id, config, hashes, journal, max_heard=max_heard, bloom_bytes=0)
        self.requests = self._requests = JsRepairBuffer(config.max_tracked, notice)
        self.responses = JsRepairBuffer(config.max_tracked, notice)
        self._notice = notice
        self.heard: list[tuple[str, dict[str, Any]]] = []
        """Events of requests that others made, since `take_events`."""
        self.planned: list[tuple[str, dict[str, Any]]] = []
        """Events of requests that are to be made, since `take_events`."""

    def take_events(self) -> tuple[list[tuple[str, dict[str, Any]]], list[tuple[str, dict[str, Any]]]]:
        """Return the events of requests that were heard, and of those that were planned, since the last call."""
        taken = self.heard, self.planned
        self.heard, self.planned = [], []
        return taken

    def schedule_request(self, entry: HistoryEntry, now_ms: int, *, at_once: bool = False) -> None:
        """Plan to ask for a missing message, and tell when."""
        was_planned = entry.message_id in self.requests
        super().schedule_request(entry, now_ms, at_once=at_once)
        planned = self.requests.get(entry.message_id)
        if planned is not None and not was_planned:
            self.planned.append(("RepairRequestQueued", {"messageId": entry.message_id, "tReq": planned.at_ms}))

    def take_requests(self, now_ms: int) -> tuple[HistoryEntry, ...]:
        """Return what to ask for now, and never ask for it again, even if the message that carries it is not sent."""
        due = [scheduled for scheduled in self._requests.due(now_ms) if not scheduled.asked]
        taken = due[: self.config.max_requests_per_message]
        for scheduled in taken:
            self._notice(Fault.ASKED_ONCE)
            self._requests.mark_asked(scheduled)
        return tuple(scheduled.entry for scheduled in taken)

    def review_requests(
        self,
        message: SdsMessage,
        holds: Callable[[str], bool],
        participants: int,
        now_ms: int,
    ) -> None:
        """Go through everything that a message asks for, however much, also what it names twice."""
        ids = tuple(entry.message_id for entry in message.repair_request)
        if len(set(ids)) < len(ids):
            self._notice(Fault.NAMED_REPEATEDLY)
        if len(ids) > self._max_heard:
            self._notice(Fault.UNBOUNDED)
        detail = {"messageIds": list(ids), "fromSenderId": message.sender_id}
        self.heard.append(("sds:repair:request-received", detail))
        for entry in message.repair_request:
            self.heard_request(entry.message_id, now_ms)
            if holds(entry.message_id):
                self._answer(entry, now_ms)

    def _answer(self, entry: HistoryEntry, now_ms: int) -> None:
        """Plan to answer if our group is the author's, also when that group did not answer before."""
        if entry.message_id in self.responses:
            return
        self.schedule_response(entry, now_ms, self.config.response_groups or 1)
        planned = self.responses.get(entry.message_id)
        if planned is None:
            self._notice(Fault.LEFT_TO_ONE_GROUP)
        else:
            self.heard.append(("RepairResponseQueued", {"messageId": entry.message_id, "tResp": planned.at_ms}))

    def heard_request(self, message_id: str, now_ms: int) -> None:
        """Somebody else asked for a message: our own request is dropped for ever."""
        if self._requests.remove(message_id):
            self._notice(Fault.HEARD_MEANS_DONE)
