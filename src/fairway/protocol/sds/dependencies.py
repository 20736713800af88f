"""Waiting for what a message cites (SDS spec, "Receive Message" and "Periodic Incoming Buffer Sweep").

A message is delivered when everything that it cites is in the local history. Until then it is parked, what it lacks is
noted as missing and asked for, and after the lost timeout nobody waits any longer: the loss is announced and the
dependants are delivered (design.md 5.4; js-waku drops them, nim-sds waits for ever).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final

from fairway.options import SdsConfig
from fairway.protocol.journal import Journal
from fairway.protocol.sds.history import LocalHistory
from fairway.protocol.sds.incoming import IncomingBuffer, Parked
from fairway.protocol.sds.outcome import (
    DependenciesLost,
    DependenciesMissing,
    MessageReady,
    RepairScheduled,
    SdsOutcome,
)
from fairway.protocol.sds.repairing import Repair
from fairway.wire.sds import HistoryEntry, SdsMessage

PARKED: Final = "parked"
MISSING: Final = "missing"
SETTLED: Final = "settled"

_MAX_SETTLED: Final = 100_000
"""Ids remembered as needing no waiting for; each was lost, or recovered without being received."""
_MAX_MISSING: Final = 20_000
"""Missing messages tracked at once; the longest missing is declared lost beyond it."""


class Dependencies:
    """Parked messages, and what they wait for."""

    def __init__(
        self,
        config: SdsConfig,
        journal: Journal,
        history: LocalHistory,
        repair: Repair,
        deliver: Callable[[Parked, int], None],
    ) -> None:
        """Make an empty buffer; ``deliver(parked, now_ms)`` puts a released message into the history."""
        self.incoming = IncomingBuffer()
        self.settled: OrderedDict[str, bool] = OrderedDict()
        """Ids that nobody waits for, with whether they were lost (or else recovered without being received)."""
        self._config = config
        self._journal = journal
        self._history = history
        self._repair = repair
        self._deliver = deliver

    def unmet(self, message_id: str, cited: tuple[HistoryEntry, ...]) -> list[HistoryEntry]:
        """Return the cited messages that are neither in the history nor settled."""
        missing = self._history.missing_from(cited)
        if missing:
            settled = self.settled
            missing = [e for e in missing if e.message_id not in settled and e.message_id != message_id]
        return missing

    def park(
        self, message: SdsMessage, encoded: bytes, hint: bytes | None, missing: list[HistoryEntry], now_ms: int
    ) -> None:
        """Keep a message until what is missing has come. Parked, it is no longer missing itself."""
        self.incoming.park(message, encoded, hint, missing, now_ms)
        self._journal.touch(PARKED, message.message_id)
        if self.incoming.missing.pop(message.message_id, None) is not None:
            self._journal.touch(MISSING, message.message_id)

    def note_missing(self, missing: Iterable[HistoryEntry], now_ms: int) -> list[SdsOutcome]:
        """Remember what is cited and not here, and plan to ask for it."""
        outcomes: list[SdsOutcome] = []
        for entry in missing:
            # A parked message was received: it needs no asking for, only what it waits for does.
            if entry.message_id in self.incoming:
                continue
            if self.incoming.note_missing(entry, now_ms):
                self._journal.touch(MISSING, entry.message_id)
            at_ms = self._repair.schedule_request(entry, now_ms)
            if at_ms is not None:
                outcomes.append(RepairScheduled(message_id=entry.message_id, at_ms=at_ms))
        return outcomes

    def settle(self, message_ids: Iterable[str], now_ms: int, *, lost: bool = False) -> list[SdsOutcome]:
        """Nobody needs to wait for these ids any more; what waited for nothing else is delivered."""
        outcomes: list[SdsOutcome] = []
        for message_id in message_ids:
            if message_id in self._history or message_id in self.settled:
                continue
            self.settled[message_id] = lost
            self._journal.touch(SETTLED, message_id)
            self._repair.forget(message_id)
            if len(self.settled) > _MAX_SETTLED:
                forgotten, _ = self.settled.popitem(last=False)
                self._journal.touch(SETTLED, forgotten)
            outcomes += self.release_waiters(message_id, now_ms, lost=lost)
        return outcomes

    def release_waiters(self, message_id: str, now_ms: int, *, lost: bool = False) -> list[SdsOutcome]:
        """Deliver, in the order of arrival, whatever waited for nothing but this id, and so on from there."""
        outcomes: list[SdsOutcome] = []
        settled = deque([(message_id, lost)])
        while settled:
            next_id, was_lost = settled.popleft()
            if next_id in self.incoming.missing:
                self._journal.touch(MISSING, next_id)
            for parked in sorted(self.incoming.settle(next_id, lost=was_lost), key=lambda p: p.order):
                released_id = parked.message.message_id
                self.incoming.take(released_id)
                self._journal.touch(PARKED, released_id)
                self._deliver(parked, now_ms)
                outcomes.append(MessageReady(message=parked.message, dependencies_met=not parked.lost_dependency))
                settled.append((released_id, False))
        return outcomes

    def sweep(self, now_ms: int) -> list[SdsOutcome]:
        """Declare lost what has been missing for too long, and report what still is missing."""
        outcomes: list[SdsOutcome] = []
        timeout = self._config.lost_timeout_ms
        if timeout:
            overdue = [m.entry for m in self.incoming.missing.values() if now_ms - m.since_ms > timeout]
            outcomes += self._declare_lost(overdue, now_ms)
            while self.incoming.parked and not self.incoming.missing:
                outcomes += self._break_cycle(now_ms)
        if self.incoming.missing:
            entries = tuple(missing.entry for missing in self.incoming.missing.values())
            outcomes.append(DependenciesMissing(entries=entries))
        return outcomes

    def keep_within_bounds(self, now_ms: int) -> list[SdsOutcome]:
        """Give up waiting for what has been missing longest while the buffers are over their limits."""
        outcomes: list[SdsOutcome] = []
        config, incoming = self._config, self.incoming
        while (
            len(incoming) > config.max_incoming_buffer
            or incoming.parked_bytes > config.max_incoming_buffer_bytes
            or len(incoming.missing) > _MAX_MISSING
        ):
            if incoming.missing:
                outcomes += self._declare_lost([next(iter(incoming.missing.values())).entry], now_ms)
            else:
                outcomes += self._break_cycle(now_ms)
        return outcomes

    def next_loss_at(self) -> int | None:
        """Return when the next missing message is to be declared lost."""
        if not self._config.lost_timeout_ms or not self.incoming.missing:
            return None
        return next(iter(self.incoming.missing.values())).since_ms + self._config.lost_timeout_ms + 1

    def restart_clocks(self, now_ms: int) -> None:
        """Count the time that something has been missing from now: while we were away nothing could come."""
        for message_id, missing in self.incoming.missing.items():
            missing.since_ms = now_ms
            self._journal.touch(MISSING, message_id)

    def _declare_lost(self, entries: list[HistoryEntry], now_ms: int) -> list[SdsOutcome]:
        if not entries:
            return []
        outcomes: list[SdsOutcome] = [DependenciesLost(entries=tuple(entries))]
        return outcomes + self.settle([entry.message_id for entry in entries], now_ms, lost=True)

    def _break_cycle(self, now_ms: int) -> list[SdsOutcome]:
        """Release the longest parked message when nothing is missing: messages that cite each other never resolve.

        Nobody can cite a message that cites his own, so that only a forger makes a cycle.
        """
        parked = next(iter(self.incoming.parked.values()))
        waiting = parked.waiting_for
        entries = [entry for entry in parked.message.causal_history if entry.message_id in waiting]
        return self._declare_lost(entries, now_ms)
