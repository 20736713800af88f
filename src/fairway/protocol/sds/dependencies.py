"""`Dependencies`: parks messages until the messages that they cite are there.

SDS, "Receive Message" and "Periodic Incoming Buffer Sweep". A message is delivered when all messages that it cites are
in the local history. Until then it is parked, and the cited messages that are not here are missing: they are asked for.
After the lost timeout they are announced as lost, and the parked messages are delivered
(docs/decisions/specifications.md, "Lost dependencies"; js-waku drops them, nim-sds waits without end). With a gap
timeout a parked message is delivered earlier, around the missing ones, which are still asked for.

The incoming buffer and the missing messages are bounded. A message that would exceed a bound is turned away: it is
neither received nor acknowledged, and its sender transmits it again. If others wait for it, it is requested again once
the last message that it cites has come (`MissingDependency.blocked_on`), for then it probably need not be parked.

The application may have no room for messages that need not wait any more. They stay parked, held back, until there is
(`Dependencies.set_room`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

from fairway.bounded import BoundedDict
from fairway.events import Limit, LossReason
from fairway.options import SdsConfig
from fairway.protocol.journal import Journal
from fairway.protocol.sds.history import LocalHistory
from fairway.protocol.sds.incoming_buffer import IncomingBuffer, MissingDependency, Parked
from fairway.protocol.sds.message_id import SYNC_PREFIX
from fairway.protocol.sds.outcome import DependenciesLost, DependenciesMissing, MessageReady, SdsOutcome
from fairway.protocol.sds.repair import Repair
from fairway.protocol.sds.wait_clock import WaitClock
from fairway.wire.sds import HistoryEntry, SdsMessage

PARKED: Final = "parked"
MISSING: Final = "missing"
SETTLED: Final = "settled"
WAITED: Final = "waited"

MAX_CITATIONS_READ: Final = 1_000
"""History entries read of a received message; of more, the newest."""
PARKED_BYTES: Final = 13_422
"""Bytes of a parked message on average: ``max_incoming_buffer`` bounds their total size, too."""
_MAX_SETTLED: Final = 20_000
"""Settled ids that are remembered (`Dependencies.settled`)."""
_ENTRY_BYTES: Final = 210
"""Memory of a missing message: its history entry, with a hint and a short sender id, and its record."""
_FEW_CITATIONS: Final = 20
"""New missing messages that one message usually cites. One that cites more is parked only while at most half of the
messages that may be missing are: a forged message can cite a thousand ids that do not exist."""
_ASKED_AT_ONCE: Final = 60
"""A sweep plans further repair requests while fewer than this are planned, but for those made in vain (`_IN_VAIN`)."""
_IN_VAIN: Final = 10
"""A message that was asked for so often is probably an invention: what else is missing need not wait for it."""
FOR_PROGRESS: Final = 2
"""Factor by which messages that parked ones wait for may exceed the bounds; without it a full buffer would never
empty."""
LONGEST_TURNED_AWAY: Final = 4
"""How many lost timeouts to wait for a message that is turned away each time it comes, while nothing that it cites
comes in. Without a limit a forger could send a message again and again, each time citing another id that does not
exist."""
_RELIEVED: Final = 0.9
"""A bound that was reached counts as reached until at most this share of it is in use."""


class Dependencies:
    """The parked messages of a channel, and the missing messages that they wait for."""

    def __init__(
        self,
        config: SdsConfig,
        journal: Journal,
        history: LocalHistory,
        repair: Repair,
        deliver: Callable[[Parked, int], None],
        max_missing: int,
    ) -> None:
        """Make an empty buffer; ``deliver(parked, now_ms)`` puts a released message into the history."""
        self.incoming = IncomingBuffer()
        self.clock = WaitClock()
        self.note_gap: Callable[[int], None] = lambda _: None
        """Called with the time when messages are delivered without what they cite; set by the layer above."""
        self.settled: BoundedDict[str, bool] = BoundedDict(_MAX_SETTLED)
        """Ids that no message waits for although they never came: true if they were declared lost or messages that cite
        them were delivered around them, false if their content is known otherwise."""
        self.held_back: dict[str, None] = {}
        """Ids of parked messages that need not wait any more, but for which the application had no room."""
        self._room_messages: float = math.inf
        self._room_bytes: float = math.inf
        self._config = config
        self._max_missing = max_missing
        self._biting: set[Limit] = set()
        self._bit_last_time = False
        self._journal = journal
        self._history = history
        self._repair = repair
        repair.lacked_together = self._lacked_together
        self._deliver = deliver

    def _lacked_together(self, message_id: str) -> int:
        """Return how many messages are lacked together with a missing one; of what only sync messages cite, many."""
        return self.incoming.fewest_lacked_with(message_id) or _FEW_CITATIONS

    def cited(self, message: SdsMessage) -> tuple[HistoryEntry, ...]:
        """Return the newest entries of a message's causal history, a bounded number; the others are ignored."""
        return message.causal_history[-MAX_CITATIONS_READ:]

    def absent(self, message_id: str, cited: tuple[HistoryEntry, ...]) -> list[HistoryEntry]:
        """Return the cited messages that are neither in the history nor settled, each once.

        A message does not wait for itself (js-waku's messages cite themselves when a payload is sent again), nor for a
        sync message (nim-sds treats those of this wire as content, and cites them).
        """
        absent = self._history.missing_from(cited)
        if not absent:
            return absent
        hopeless = {"", message_id}
        waited_for = {e.message_id: e for e in absent if e.message_id not in self.settled}
        return [e for i, e in waited_for.items() if i not in hopeless and not i.startswith(SYNC_PREFIX)]

    def has_lost(self, cited: tuple[HistoryEntry, ...]) -> bool:
        """Return whether a cited message was declared lost, or gone around, and has not arrived since."""
        settled = self.settled
        return bool(settled) and any(settled.get(entry[0], False) for entry in cited)

    @property
    def is_around_a_gap(self) -> bool:
        """Whether something that messages were delivered around has not been delivered yet, nor declared lost.

        It may cite what nobody here knows of, when it has come, too, and is parked.
        """
        settled, incoming = self.settled, self.incoming
        return bool(settled) and any(settled.get(each, False) for each in chain(incoming.missing, incoming.parked))

    def came(self, message_id: str) -> None:
        """Note that a message entered the history: it no longer counts as lost."""
        if self.settled.pop(message_id, None) is not None:
            self._journal.touch(SETTLED, message_id)

    def no_room_for(self, message: SdsMessage) -> bool:
        """Return whether a content message must be turned away: it would have to be parked, and a bound is reached.

        A message that is received is acknowledged, so it may not be thrown away later. One that is turned away comes
        again. A message that parked ones wait for may exceed the bounds, so that a full buffer empties when it comes.
        """
        if not self._is_near_a_bound(message):
            return False
        incoming, message_id = self.incoming, message.message_id
        unmet = self.absent(message_id, self.cited(message))
        if not unmet:
            return False
        new = sum(e.message_id not in incoming.missing and e.message_id not in incoming for e in unmet)
        awaited = incoming.missing.get(message_id)
        used = {
            Limit.INCOMING_BUFFER: len(incoming) + 1,
            Limit.INCOMING_BUFFER_BYTES: incoming.parked_bytes + _size_of(message),
            Limit.MISSING_MESSAGES: len(incoming.missing) + new if new else 0,
        }
        bounds = self._bounds()
        if awaited is None and new > _FEW_CITATIONS:
            bounds[Limit.MISSING_MESSAGES] //= 2
        if awaited is not None:
            bounds = {limit: FOR_PROGRESS * bound for limit, bound in bounds.items()}
        exceeded = {limit for limit, bound in bounds.items() if used[limit] > bound}
        self._biting |= exceeded
        return bool(exceeded)

    def limits(self) -> list[tuple[Limit, int, bool]]:
        """Return each bound (which, its value, whether it is reached); nothing while none is, nor was the last time.

        A bound is reached from when it turned a message away until clearly less of it is in use.
        """
        if not (self._biting or self._bit_last_time):
            return []
        incoming = self.incoming
        used = {
            Limit.INCOMING_BUFFER: len(incoming),
            Limit.INCOMING_BUFFER_BYTES: incoming.parked_bytes,
            Limit.MISSING_MESSAGES: 2 * len(incoming.missing),
        }
        bounds = self._bounds()
        reached = [(limit, bound, limit in self._biting) for limit, bound in bounds.items()]
        self._bit_last_time = bool(self._biting)
        self._biting -= {limit for limit, bound in bounds.items() if used[limit] <= bound * _RELIEVED}
        return reached

    def _bounds(self) -> dict[Limit, int]:
        return {
            Limit.INCOMING_BUFFER: self._config.max_incoming_buffer,
            Limit.INCOMING_BUFFER_BYTES: self._config.max_incoming_buffer * PARKED_BYTES,
            Limit.MISSING_MESSAGES: self._max_missing,
        }

    def _is_near_a_bound(self, message: SdsMessage) -> bool:
        incoming, most = self.incoming, self._config.max_incoming_buffer
        return (
            len(incoming) >= most
            or incoming.parked_bytes + _size_of(message) > most * PARKED_BYTES
            or len(incoming.missing) + len(message.causal_history) > self._max_missing // 2
        )

    def park(
        self, message: SdsMessage, encoded: bytes, hint: bytes | None, missing: list[HistoryEntry], now_ms: int
    ) -> None:
        """Park a message until the ``missing`` ones have arrived. It no longer counts as missing itself."""
        self.let_time_pass(now_ms)
        self.incoming.park(message, encoded, hint, missing, self.clock.waited_ms)
        self._journal.touch(PARKED, message.message_id)
        if self.incoming.missing.pop(message.message_id, None) is not None:
            self._journal.touch(MISSING, message.message_id)

    def unpark(self, message_id: str) -> None:
        """Remove a parked message, because it is forged: the message that its id belongs to has come."""
        self.incoming.drop(self.incoming.parked[message_id])
        self._journal.touch(PARKED, message_id)

    def add_hint(self, message_id: str, hint: bytes) -> None:
        """Give a parked message the retrieval hint that it lacks."""
        parked = self.incoming.parked.get(message_id)
        if parked is not None and parked.retrieval_hint is None:
            parked.retrieval_hint = hint
            self._journal.touch(PARKED, message_id)

    def note_missing(self, missing: Iterable[HistoryEntry], now_ms: int, *, of_turned_away: bool = False) -> None:
        """Note the cited messages that are not here as missing, and plan to request them.

        A parked message was let in together with what it cites. What only a sync message cites may take half of the
        room, what one ``of_turned_away`` cites all of it.
        """
        self.let_time_pass(now_ms)
        incoming, entries = self.incoming, tuple(missing)
        # Only the newest citations are requested at once. A later sweep requests the others, so that a message with
        # many citations does not come before other messages.
        unplanned = {entry.message_id for entry in entries[: max(0, len(entries) - _FEW_CITATIONS)]}
        most = self._max_missing if of_turned_away else self._max_missing // 2
        for entry in entries:
            message_id = entry.message_id
            is_new = message_id not in incoming.missing
            if is_new and len(incoming.missing) >= most and not incoming.is_waited_for(message_id):
                self._biting.add(Limit.MISSING_MESSAGES)
                continue
            if incoming.note_missing(entry, now_ms, self.clock.waited_ms):
                self._journal.touch(MISSING, message_id)
            if message_id not in unplanned and incoming.missing[message_id].blocked_on is None:
                self._repair.schedule_request(entry, now_ms)

    def turned_away(self, message: SdsMessage, now_ms: int) -> None:
        """Note that a missing message came and was turned away; the messages that it cites are missing, too.

        The lost timeout of the message begins anew, because it can come. It is not requested again before the last
        message that it cites has come.
        """
        missing = self.incoming.missing.get(message.message_id)
        if missing is None:
            return
        self.let_time_pass(now_ms)
        unmet = self.absent(message.message_id, self.cited(message))
        missing.turned_away = True
        missing.release_after = ()
        self._begin_anew(missing)
        request = self._repair.requests.get(message.message_id)
        self.note_missing((e for e in unmet if e.message_id not in self.incoming), now_ms, of_turned_away=True)
        for entry in unmet if request is not None and request.asked else ():
            # The message came because it was requested: what it cites is not merely late.
            cited = self.incoming.missing.get(entry.message_id)
            if cited is not None and cited.blocked_on is None:
                self._repair.schedule_request(entry, now_ms, at_once=True)
        if unmet and missing.blocked_on is None and self._is_tracked(unmet[-1].message_id):
            missing.blocked_on = unmet[-1].message_id
            self._repair.forget(message.message_id)

    def _is_tracked(self, message_id: str) -> bool:
        return message_id in self.incoming.missing or message_id in self.incoming

    def settle(self, message_ids: Iterable[str], now_ms: int, *, lost: bool = False) -> list[SdsOutcome]:
        """Let no message wait for these ids any more, and deliver those that waited for nothing else."""
        outcomes: list[SdsOutcome] = []
        for message_id in message_ids:
            if lost:
                self.note_gap(now_ms)
            self._note_settled(message_id, lost=lost)
            self._repair.forget(message_id)
            outcomes += self.release_waiters(message_id, now_ms)
        return outcomes

    def give_up(self, message: SdsMessage, now_ms: int) -> list[SdsOutcome]:
        """Let no message wait any more for one that came and is of no use, once all is here that it cites.

        What was sent before it was sent before those that wait for it, too; what is lacking of that is asked for first,
        and then it need not come again.
        """
        unmet = self.absent(message.message_id, self.cited(message))
        if unmet:
            self.turned_away(message, now_ms)
            missing = self.incoming.missing.get(message.message_id)
            if missing is not None:
                missing.release_after = tuple(entry.message_id for entry in unmet)
            return []
        return self.settle([message.message_id], now_ms, lost=True)

    def _note_settled(self, message_id: str, *, lost: bool) -> None:
        # What was gone around, or lost, may become known after all.
        is_news = message_id not in self.settled or (self.settled[message_id] and not lost)
        if message_id not in self._history and is_news:
            evicted = self.settled.put(message_id, lost)
            self._journal.touch(SETTLED, message_id)
            if evicted is not None:
                self._journal.touch(SETTLED, evicted)

    def deliver_around_gaps(self, now_ms: int, *, keep: int = 0) -> list[SdsOutcome]:
        """Deliver parked messages without what they wait for, the oldest first, until at most ``keep`` are parked.

        What is missing is still asked for, and is delivered if it comes before its lost timeout.
        """
        outcomes: list[SdsOutcome] = []
        while len(self.incoming) > keep and not self.held_back:
            outcomes += self._deliver_around_gaps(next(iter(self.incoming.parked.values())), now_ms)
        return outcomes

    def _deliver_around_gaps(self, parked: Parked, now_ms: int) -> list[SdsOutcome]:
        outcomes: list[SdsOutcome] = []
        for message_id in self.incoming.missing_behind(parked):
            outcomes += self._go_around(message_id, now_ms)
        if not self.held_back:
            # Whatever it still waits for is parked and waits for it in turn.
            for message_id in list(parked.waiting_for):
                outcomes += self._go_around(message_id, now_ms)
        return outcomes

    def _go_around(self, message_id: str, now_ms: int) -> list[SdsOutcome]:
        self.note_gap(now_ms)
        self._note_settled(message_id, lost=True)
        return self._deliver_free(self.incoming.let_go(message_id), now_ms)

    def release_waiters(self, message_id: str, now_ms: int) -> list[SdsOutcome]:
        """Deliver, in the order of arrival, what waited for this id alone, and then what waited for those messages."""
        return self._deliver_free(self._settled(message_id), now_ms)

    def set_room(self, messages: float, size_bytes: float) -> None:
        """Deliver at most so many messages, and content, until the next call; the last message may exceed the bytes.

        A message that need not be parked is delivered in any case.
        """
        self._room_messages, self._room_bytes = messages, size_bytes

    def take_room(self, message: SdsMessage) -> None:
        """Note that a message is delivered."""
        self._room_messages -= 1
        self._room_bytes -= len(message.content or b"")

    def deliver_held_back(self, now_ms: int) -> list[SdsOutcome]:
        """Deliver messages that are held back while there is room, those first that were held back first."""
        outcomes: list[SdsOutcome] = []
        while self.held_back and not self._is_full:
            message_id = next(iter(self.held_back))
            del self.held_back[message_id]
            parked = self.incoming.parked.get(message_id)
            if parked is not None:
                outcomes += self._deliver_free([parked], now_ms)
        return outcomes

    @property
    def _is_full(self) -> bool:
        return self._room_messages <= 0 or self._room_bytes <= 0

    def _settled(self, message_id: str) -> list[Parked]:
        if message_id in self.incoming.missing:
            self._journal.touch(MISSING, message_id)
        return self.incoming.settle(message_id)

    def _deliver_free(self, freed: list[Parked], now_ms: int) -> list[SdsOutcome]:
        """Deliver those of some parked messages that need not wait any more, and then what waited for these alone."""
        outcomes: list[SdsOutcome] = []
        met: deque[str] = deque()
        while True:
            for parked in freed:
                if parked.waiting_for:
                    continue
                if self._is_full:
                    self.held_back[parked.message.message_id] = None
                    continue
                if len(self.cited(parked.message)) < len(parked.message.causal_history):
                    # It cites more than is read.
                    self.note_gap(now_ms)
                self.incoming.drop(parked)
                message = parked.message
                self._journal.touch(PARKED, message.message_id)
                self.take_room(message)
                self._deliver(parked, now_ms)
                outcomes.append(MessageReady(message=message, dependencies_met=not self.has_lost(self.cited(message))))
                met.append(message.message_id)
            if not met:
                return outcomes
            freed = self._settled(met.popleft())

    def sweep(self, now_ms: int) -> list[SdsOutcome]:
        """Deliver around what is missing, or declare it lost, after its time; and report what still is missing."""
        outcomes: list[SdsOutcome] = []
        self.let_time_pass(now_ms)
        waited_ms = self.clock.waited_ms
        # An own message may enter the history after it was cited (`broadcast`), and that does not release what waits.
        for message_id in [i for i in self.incoming.missing if i in self._history]:
            outcomes += self.release_waiters(message_id, now_ms)
        outcomes += self._let_go_of_useless(now_ms)
        self._ask_again(now_ms)
        while (around_at := self._next_around_at()) is not None and around_at <= waited_ms and not self.held_back:
            outcomes += self._deliver_around_gaps(next(iter(self.incoming.parked.values())), now_ms)
        timeout = self._config.lost_timeout_ms
        if timeout:
            before_ms = waited_ms - timeout
            waited = [(i, m) for i, m in self.incoming.missing.items() if m.since_waited_ms < before_ms]
            overdue = [(m.since_waited_ms, i) for i, m in waited if m.blocked_on is None or self._waited_longest(m)]
            # Sorted, so that the order is the same whether the program was restarted or not.
            outcomes += self._declare_lost([message_id for _, message_id in sorted(overdue)], now_ms)
            # Messages that can never be released are given up at once if they fill the buffer.
            full = self._biting & {Limit.INCOMING_BUFFER, Limit.INCOMING_BUFFER_BYTES}
            outcomes += self._release_circles(now_ms, waited_ms + 1 if full else waited_ms - timeout)
        self._plan_requests(now_ms)
        if self.incoming.missing:
            entries = tuple(missing.entry for missing in self.incoming.missing.values())
            outcomes.append(DependenciesMissing(entries=entries))
        return outcomes

    def _plan_requests(self, now_ms: int) -> None:
        """Plan to ask for what is missing and not planned, while few of the planned ones may still come."""
        if not self._repair.config.enabled:
            return
        requests = self._repair.requests
        unplanned = [
            missing
            for message_id, missing in self.incoming.missing.items()
            if missing.blocked_on is None and message_id not in requests
        ]
        if not unplanned:
            return
        room = _ASKED_AT_ONCE - sum(scheduled.asked < _IN_VAIN for scheduled in requests)
        for missing in unplanned:
            # A message that came once is no invention. A forger that invents messages all the time leaves no room.
            if room > 0 or missing.turned_away:
                self._repair.schedule_request(missing.entry, now_ms)
                room -= 1

    def _is_met(self, message_id: str) -> bool:
        """Return whether no message waits for another one that it cites: it is in the history, or settled."""
        return message_id in self._history or message_id in self.settled

    def _let_go_of_useless(self, now_ms: int) -> list[SdsOutcome]:
        """Let no message wait any more for those that came, were of no use, and lack nothing now.

        A message is given up segment by segment, each of which cites those before it. To wait for each anew would take
        as many lost timeouts.
        """
        outcomes: list[SdsOutcome] = []
        useless = {i: m.release_after for i, m in self.incoming.missing.items() if m.release_after}
        while met := sorted(i for i, until in useless.items() if all(self._is_met(each) for each in until)):
            outcomes += self.settle(met, now_ms, lost=True)
            useless = {i: until for i, until in useless.items() if i not in met and i in self.incoming.missing}
        return outcomes

    def _ask_again(self, now_ms: int) -> None:
        """Request the messages that were turned away and are not blocked any more."""
        blocked = [missing for missing in self.incoming.missing.values() if missing.blocked_on is not None]
        if any((missing.blocked_on or "") in self._history for missing in blocked):
            # The others come after it.
            for missing in blocked:
                missing.first_waited_ms = self.clock.waited_ms
        for missing in blocked:
            if self._is_tracked(missing.blocked_on or ""):
                continue
            missing.blocked_on = next((each for each in missing.release_after if self._is_tracked(each)), None)
            self._begin_anew(missing)
            if missing.blocked_on is None:
                self._repair.schedule_request(missing.entry, now_ms, at_once=True)

    def _begin_anew(self, missing: MissingDependency) -> None:
        """Let the lost timeout of a message begin anew, unless that was done for too long."""
        self._journal.touch(MISSING, missing.entry.message_id)
        if not self._waited_longest(missing):
            self.incoming.begin_anew(missing, self.clock.waited_ms)

    def _waited_longest(self, missing: MissingDependency) -> bool:
        """Return whether a message was waited for as long as one may be that is turned away (`LONGEST_TURNED_AWAY`)."""
        longest_ms = (LONGEST_TURNED_AWAY - 1) * self._config.lost_timeout_ms
        return bool(longest_ms) and self.clock.waited_ms - missing.first_waited_ms > longest_ms

    def next_loss_at(self) -> int | None:
        """Return the time of the next sweep, in Unix milliseconds; None if none is due."""
        around_at = self._next_around_at()
        times = (None if around_at is None else self.clock.reaches_at(around_at), self._next_lost_at())
        return min((at for at in times if at is not None), default=None)

    def _next_around_at(self) -> int | None:
        """Return up to when, in time waited, what waits longest waits for what is missing; None if to the end."""
        timeout = self._config.gap_timeout_ms
        oldest = next(iter(self.incoming.parked.values()), None) if timeout else None
        return None if oldest is None else oldest.since_waited_ms + timeout + 1

    def _next_lost_at(self) -> int | None:
        timeout = self._config.lost_timeout_ms
        if not timeout:
            return None
        for missing in self.incoming.missing.values():
            if missing.blocked_on is None:
                return self.clock.reaches_at(missing.since_waited_ms + timeout + 1)
        for parked in () if self.incoming.missing else self.incoming.parked.values():
            return self.clock.reaches_at(parked.since_waited_ms + timeout + 1)
        return None

    def can_come(self, possible: bool, now_ms: int) -> None:
        """Say whether missing messages can come from now on; only such time counts towards the lost timeout."""
        self.let_time_pass(now_ms)
        self.clock.runs = possible

    def let_time_pass(self, now_ms: int, *, waits: bool = False) -> None:
        """Let the waiting clock advance; it is stored while messages wait here, or in the layer above (``waits``)."""
        if self.clock.advance(now_ms, waits=waits or bool(self.incoming.missing or self.incoming.parked)):
            self._journal.touch(WAITED, "")

    def _declare_lost(self, message_ids: list[str], now_ms: int) -> list[SdsOutcome]:
        outcomes: list[SdsOutcome] = []
        for reason in (LossReason.TIMEOUT, LossReason.NO_ROOM):
            # If the content of a missing message is known otherwise, nothing is lost.
            unknown = (i for i in message_ids if self.settled.get(i) is not False)
            entries = tuple(self._entry_of(i) for i in unknown if self._reason_for(i) is reason)
            if entries:
                outcomes.append(DependenciesLost(entries=entries, reason=reason))
        return outcomes + self.settle(message_ids, now_ms, lost=True)

    def _reason_for(self, message_id: str) -> LossReason:
        missing = self.incoming.missing.get(message_id)
        return LossReason.NO_ROOM if missing is not None and missing.turned_away else LossReason.TIMEOUT

    def _entry_of(self, message_id: str) -> HistoryEntry:
        missing, parked = self.incoming.missing.get(message_id), self.incoming.parked.get(message_id)
        if missing is not None:
            return missing.entry
        if parked is not None:
            return HistoryEntry(message_id, parked.retrieval_hint, parked.message.sender_id)
        return HistoryEntry(message_id)

    def _give_up_behind(self, parked: Parked, now_ms: int) -> list[SdsOutcome]:
        """Deliver a parked message after giving up all missing messages that it waits for, itself or through others."""
        outcomes = self._declare_lost(self.incoming.missing_behind(parked), now_ms)
        if not self.held_back:
            # Whatever it still waits for is parked and waits for it in turn.
            outcomes += self._declare_lost(list(parked.waiting_for), now_ms)
        return outcomes

    def _release_circles(self, now_ms: int, not_since_ms: int) -> list[SdsOutcome]:
        """Release parked messages that cite each other in a circle, which no message can release.

        Only forged messages do: an honest sender cannot cite a message that cites the one that it is sending.
        """
        outcomes: list[SdsOutcome] = []
        oldest = next(iter(self.incoming.parked.values()), None)
        if oldest is None or oldest.since_waited_ms >= not_since_ms or self.held_back:
            return outcomes
        for parked in self.incoming.waits_in_vain():
            is_due = parked.message.message_id in self.incoming and parked.since_waited_ms < not_since_ms
            if is_due and not self.held_back:
                outcomes += self._give_up_behind(parked, now_ms)
        return outcomes


def _size_of(message: SdsMessage) -> int:
    """Return the approximate memory of a parked message in bytes."""
    entries = len(message.causal_history) + len(message.repair_request)
    return len(message.content or b"") + len(message.bloom_filter or b"") + _ENTRY_BYTES * entries
