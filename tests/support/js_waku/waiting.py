"""How js-waku waits for what a message cites: in a plain list that only a sweep empties."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fairway.options import SdsConfig
from fairway.protocol.journal import Journal
from fairway.protocol.sds.dependencies import Dependencies
from fairway.protocol.sds.history import LocalHistory
from fairway.protocol.sds.incoming_buffer import Parked
from fairway.protocol.sds.message_id import SYNC_PREFIX
from fairway.protocol.sds.outcome import DependenciesLost, DependenciesMissing, MessageReady, SdsOutcome
from fairway.protocol.sds.repair import Repair
from fairway.wire.sds import HistoryEntry, Kind, SdsMessage
from js_waku.faults import Fault, Notice


class Waiting(NamedTuple):
    """A message of js-waku's incoming buffer: content or sync, the same one perhaps several times."""

    message: SdsMessage
    retrieval_hint: bytes | None


class JsDependencies(Dependencies):
    """Messages that wait, in the order in which they came."""

    def __init__(
        self,
        config: SdsConfig,
        journal: Journal,
        history: LocalHistory,
        repair: Repair,
        deliver: Callable[[Parked, int], None],
        deliver_waiting: Callable[[Waiting, int], None],
        notice: Notice,
    ) -> None:
        """Make an empty buffer; ``deliver_waiting(waiting, now_ms)`` puts a swept message into the history."""
        super().__init__(config, journal, history, repair, deliver, max_missing=sys.maxsize)
        self._max_planned = sys.maxsize
        self.waiting: list[Waiting] = []
        self.time_received: dict[str, int] = {}
        """When a message was parked, or an own one sent: the only messages whose copies js-waku recognises."""
        self._deliver_waiting = deliver_waiting
        self._notice = notice

    def cited(self, message: SdsMessage) -> tuple[HistoryEntry, ...]:
        """Return the whole causal history, however long."""
        if len(super().cited(message)) < len(message.causal_history):
            self._notice(Fault.UNBOUNDED)
        return message.causal_history

    def absent(self, message_id: str, cited: tuple[HistoryEntry, ...]) -> list[HistoryEntry]:
        """Return the cited messages that are neither in the history nor waiting, as often as they are cited."""
        missing = self._not_here(cited, self._waiting_ids())
        ids = [entry.message_id for entry in missing]
        if message_id in ids or any(i.startswith(SYNC_PREFIX) or not i for i in ids):
            self._notice(Fault.WAITS_IN_VAIN)
        if len(set(ids)) < len(ids):
            self._notice(Fault.NAMED_REPEATEDLY)
        return missing

    def hold(self, message: SdsMessage, hint: bytes | None, now_ms: int) -> None:
        """Let a message wait."""
        if message.kind is Kind.SYNC:
            self._notice(Fault.SYNC_PARKED)
        self.waiting.append(Waiting(message, hint))
        self.time_received[message.message_id] = now_ms

    def release_waiters(self, message_id: str, now_ms: int) -> list[SdsOutcome]:
        """Do nothing when a dependency is met: the message waits for the next sweep."""
        if any(message_id == entry.message_id for entry in self._cited_by_waiting()):
            self._notice(Fault.RELEASED_IN_SWEEPS)
        return []

    def sweep(self, now_ms: int) -> list[SdsOutcome]:
        """Deliver what lacks nothing, drop what has waited for too long, and report what is missing.

        Whatever waited at the beginning of the sweep counts as met until its end, also what left in between.
        """
        outcomes: list[SdsOutcome] = []
        waiting_ids = self._waiting_ids()
        kept: list[Waiting] = []
        missing: list[HistoryEntry] = []
        for waiting in self.waiting:
            message = waiting.message
            absent = self._not_here(message.causal_history, waiting_ids)
            if not absent:
                if message.kind is Kind.CONTENT:
                    self._notice(Fault.RELEASED_IN_SWEEPS)
                    self._deliver_waiting(waiting, now_ms)
                    outcomes.append(MessageReady(message=message, dependencies_met=True))
            elif self._has_timed_out(message.message_id, now_ms):
                self._notice(Fault.DEPENDANTS_DROPPED)
                outcomes.append(DependenciesLost(entries=tuple(absent)))
            else:
                kept.append(waiting)
                missing += absent
                self._notice_overdue(absent, now_ms)
        self.waiting = kept
        if not missing:
            self._notice(Fault.EMPTY_REPORT)
        if any(self._merged(entry) != entry for entry in missing):
            self._notice(Fault.TOLD_AS_CITED)
        if len({entry.message_id for entry in missing}) < len(missing):
            self._notice(Fault.NAMED_REPEATEDLY)
        return [*outcomes, DependenciesMissing(entries=tuple(missing))]

    def _has_timed_out(self, message_id: str, now_ms: int) -> bool:
        timeout, since_ms = self._config.lost_timeout_ms, self.time_received[message_id]
        return bool(timeout) and bool(since_ms) and now_ms - since_ms > timeout

    def _not_here(self, cited: tuple[HistoryEntry, ...], waiting_ids: set[str]) -> list[HistoryEntry]:
        absent = self._history.missing_from(cited)
        missing = [entry for entry in absent if entry.message_id not in waiting_ids]
        if len(missing) < len(absent):
            self._notice(Fault.PARKED_COUNTS_AS_MET)
        return missing

    def _notice_overdue(self, absent: list[HistoryEntry], now_ms: int) -> None:
        """Notice where the missing has been missing for too long, but what waits for it has not waited so long."""
        known = [self.incoming.missing.get(entry.message_id) for entry in absent]
        timeout = self._config.lost_timeout_ms
        if timeout and any(missing is not None and now_ms - missing.since_ms > timeout for missing in known):
            self._notice(Fault.WAIT_COUNTED)

    def _merged(self, entry: HistoryEntry) -> HistoryEntry:
        """Return what all citations of a missing message tell together."""
        known = self.incoming.missing.get(entry.message_id)
        return entry if known is None else known.entry

    def _waiting_ids(self) -> set[str]:
        return {waiting.message.message_id for waiting in self.waiting}

    def _cited_by_waiting(self) -> Iterator[HistoryEntry]:
        for waiting in self.waiting:
            yield from waiting.message.causal_history
