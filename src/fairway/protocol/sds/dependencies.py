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
from fairway.protocol.sds.message_id import SYNC_PREFIX
from fairway.protocol.sds.outcome import (
    DependenciesLost,
    DependenciesMissing,
    MessageReady,
    RepairScheduled,
    SdsOutcome,
)
from fairway.protocol.sds.repairing import Repair
from fairway.protocol.sds.waiting import WaitingClock
from fairway.wire.sds import HistoryEntry, SdsMessage

PARKED: Final = "parked"
MISSING: Final = "missing"
SETTLED: Final = "settled"
WAITED: Final = "waited"

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
        self.clock = WaitingClock()
        self.settled: OrderedDict[str, bool] = OrderedDict()
        """Ids that nobody waits for, with whether they were lost (or else recovered without being received)."""
        self._config = config
        self._journal = journal
        self._history = history
        self._repair = repair
        self._deliver = deliver

    def cited(self, message: SdsMessage) -> tuple[HistoryEntry, ...]:
        """Return what of a message's causal history is looked at: the newest entries (design.md 5.9)."""
        history, limit = message.causal_history, self._config.max_causal_history
        return history if len(history) <= limit else history[len(history) - limit :]

    def unmet(self, message_id: str, cited: tuple[HistoryEntry, ...]) -> list[HistoryEntry]:
        """Return the cited messages that are neither in the history nor settled, each once.

        Nothing is gained by waiting for what can never come: a message that cites itself (js-waku's do when a payload
        is sent again), or a sync message (nim-sds takes ours for content and cites them).
        """
        absent = self._history.missing_from(cited)
        if not absent:
            return absent
        hopeless = {"", message_id}
        waited_for = {e.message_id: e for e in absent if e.message_id not in self.settled}
        return [e for i, e in waited_for.items() if i not in hopeless and not i.startswith(SYNC_PREFIX)]

    def has_lost(self, cited: tuple[HistoryEntry, ...]) -> bool:
        """Return whether a cited message was declared lost and has not come since."""
        settled = self.settled
        return bool(settled) and any(settled.get(entry[0], False) for entry in cited)

    def came(self, message_id: str) -> None:
        """Note that a message entered the history: if it was given up, that is void."""
        if self.settled.pop(message_id, None) is not None:
            self._journal.touch(SETTLED, message_id)

    def park(
        self, message: SdsMessage, encoded: bytes, hint: bytes | None, missing: list[HistoryEntry], now_ms: int
    ) -> None:
        """Keep a message until what is missing has come. Parked, it is no longer missing itself."""
        self._let_time_pass(now_ms)
        self.incoming.park(message, encoded, hint, missing, self.clock.waited_ms)
        self._journal.touch(PARKED, message.message_id)
        if self.incoming.missing.pop(message.message_id, None) is not None:
            self._journal.touch(MISSING, message.message_id)

    def unpark(self, message_id: str) -> None:
        """Let go of a parked message, for another one is the true one under its id."""
        self.incoming.drop(self.incoming.parked[message_id])
        self._journal.touch(PARKED, message_id)

    def add_hint(self, message_id: str, hint: bytes) -> None:
        """Give a parked message the retrieval hint that it lacks."""
        parked = self.incoming.parked.get(message_id)
        if parked is not None and parked.retrieval_hint is None:
            parked.retrieval_hint = hint
            self._journal.touch(PARKED, message_id)

    def note_missing(self, missing: Iterable[HistoryEntry], now_ms: int) -> list[SdsOutcome]:
        """Remember what is cited and not here, and plan to ask for it."""
        outcomes: list[SdsOutcome] = []
        self._let_time_pass(now_ms)
        for entry in missing:
            if self.incoming.note_missing(entry, now_ms, self.clock.waited_ms):
                self._journal.touch(MISSING, entry.message_id)
            at_ms = self._repair.schedule_request(entry, now_ms)
            if at_ms is not None:
                outcomes.append(RepairScheduled(message_id=entry.message_id, at_ms=at_ms))
        return outcomes

    def settle(self, message_ids: Iterable[str], now_ms: int, *, lost: bool = False) -> list[SdsOutcome]:
        """Nobody needs to wait for these ids any more; what waited for nothing else is delivered."""
        outcomes: list[SdsOutcome] = []
        for message_id in message_ids:
            if message_id not in self._history and message_id not in self.settled:
                self.settled[message_id] = lost
                self._journal.touch(SETTLED, message_id)
                if len(self.settled) > _MAX_SETTLED:
                    forgotten, _ = self.settled.popitem(last=False)
                    self._journal.touch(SETTLED, forgotten)
            self._repair.forget(message_id)
            outcomes += self.release_waiters(message_id, now_ms)
        return outcomes

    def release_waiters(self, message_id: str, now_ms: int) -> list[SdsOutcome]:
        """Deliver, in the order of arrival, whatever waited for nothing but this id, and so on from there."""
        outcomes: list[SdsOutcome] = []
        met = deque([message_id])
        while met:
            next_id = met.popleft()
            if next_id in self.incoming.missing:
                self._journal.touch(MISSING, next_id)
            for parked in self.incoming.settle(next_id):
                self.incoming.take(parked)
                message = parked.message
                self._journal.touch(PARKED, message.message_id)
                self._deliver(parked, now_ms)
                outcomes.append(MessageReady(message=message, dependencies_met=not self.has_lost(self.cited(message))))
                met.append(message.message_id)
        return outcomes

    def sweep(self, now_ms: int) -> list[SdsOutcome]:
        """Declare lost what has been missing for too long, and report what still is missing."""
        outcomes: list[SdsOutcome] = []
        self._let_time_pass(now_ms)
        waited_ms = self.clock.waited_ms
        # An own message may enter the history after somebody cited it, which is not the time to deliver others'.
        for message_id in [i for i in self.incoming.missing if i in self._history]:
            outcomes += self.release_waiters(message_id, now_ms)
        timeout = self._config.lost_timeout_ms
        if timeout:
            known = self.incoming.missing.items()
            overdue = [(m.since_waited_ms, i) for i, m in known if waited_ms - m.since_waited_ms > timeout]
            # In an order that does not depend on whether the program was restarted meanwhile.
            outcomes += self._declare_lost([message_id for _, message_id in sorted(overdue)], now_ms)
            outcomes += self._release_circles(now_ms, waited_ms - timeout)
        if self.incoming.missing:
            entries = tuple(missing.entry for missing in self.incoming.missing.values())
            outcomes.append(DependenciesMissing(entries=entries))
        return outcomes

    def keep_within_bounds(self, now_ms: int) -> list[SdsOutcome]:
        """Give up waiting while the buffers are over their limits, for what has been waited for longest."""
        outcomes: list[SdsOutcome] = []
        config, incoming = self._config, self.incoming
        while len(incoming) > config.max_incoming_buffer or incoming.parked_bytes > config.max_incoming_buffer_bytes:
            outcomes += self._release(next(iter(incoming.parked.values())), now_ms)
        while len(incoming.missing) > _MAX_MISSING:
            outcomes += self._declare_lost([next(iter(incoming.missing))], now_ms)
        return outcomes

    def next_loss_at(self) -> int | None:
        """Return when a sweep is next to look whether something is to be given up."""
        timeout = self._config.lost_timeout_ms
        if not timeout:
            return None
        for missing in self.incoming.missing.values():
            return self.clock.reaches_at(missing.since_waited_ms + timeout + 1)
        for parked in self.incoming.parked.values():
            return self.clock.reaches_at(parked.since_waited_ms + timeout + 1)
        return None

    def can_come(self, possible: bool, now_ms: int) -> None:
        """Say whether what is missing can come from now on; only such time counts before it is given up."""
        self._let_time_pass(now_ms)
        self.clock.runs = possible

    def _let_time_pass(self, now_ms: int) -> None:
        if self.clock.advance(now_ms, counts=bool(self.incoming.missing or self.incoming.parked)):
            self._journal.touch(WAITED, "")

    def _declare_lost(self, message_ids: list[str], now_ms: int) -> list[SdsOutcome]:
        if not message_ids:
            return []
        outcomes: list[SdsOutcome] = [DependenciesLost(entries=tuple(map(self._entry_of, message_ids)))]
        return outcomes + self.settle(message_ids, now_ms, lost=True)

    def _entry_of(self, message_id: str) -> HistoryEntry:
        missing, parked = self.incoming.missing.get(message_id), self.incoming.parked.get(message_id)
        if missing is not None:
            return missing.entry
        if parked is not None:
            return HistoryEntry(message_id, parked.retrieval_hint, parked.message.sender_id)
        return HistoryEntry(message_id)

    def _release(self, parked: Parked, now_ms: int) -> list[SdsOutcome]:
        """Deliver a parked message now, after giving up everything that it waits for in the end."""
        outcomes = self._declare_lost(self.incoming.missing_behind(parked), now_ms)
        # What is left of them waits in a circle.
        return outcomes + self._declare_lost(list(parked.waiting_for), now_ms)

    def _release_circles(self, now_ms: int, not_since_ms: int) -> list[SdsOutcome]:
        """Release messages that cite each other in a circle, for nothing that comes will.

        Nobody can cite a message that cites his own, so that only a forger makes one.
        """
        outcomes: list[SdsOutcome] = []
        oldest = next(iter(self.incoming.parked.values()), None)
        if oldest is None or oldest.since_waited_ms >= not_since_ms:
            return outcomes
        for parked in self.incoming.waits_in_vain():
            if parked.message.message_id in self.incoming and parked.since_waited_ms < not_since_ms:
                outcomes += self._release(parked, now_ms)
        return outcomes
