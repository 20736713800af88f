"""`Dependencies`: parks messages until the messages that they cite are there.

SDS, "Receive Message" and "Periodic Incoming Buffer Sweep". A message is delivered when all messages that it cites are
in the local history. Until then it is parked, and the cited messages that are not here are missing: they are asked for.
After the lost timeout they are announced as lost, and the parked messages are delivered
(docs/decisions/specifications.md, "Lost dependencies"; js-waku drops them, nim-sds waits without end).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import islice, pairwise
from typing import Final

from fairway.events import Limit, LossReason
from fairway.options import SdsConfig
from fairway.protocol.journal import Journal
from fairway.protocol.sds.history import LocalHistory
from fairway.protocol.sds.incoming import IncomingBuffer, MissingDependency, Parked
from fairway.protocol.sds.message_id import SYNC_PREFIX
from fairway.protocol.sds.outcome import (
    DependenciesLost,
    DependenciesMissing,
    MessageReady,
    RepairScheduled,
    SdsOutcome,
)
from fairway.protocol.sds.repair import Repair
from fairway.protocol.sds.waiting import WaitingClock
from fairway.wire.sds import HistoryEntry, SdsMessage

PARKED: Final = "parked"
MISSING: Final = "missing"
SETTLED: Final = "settled"
WAITED: Final = "waited"

_MAX_SETTLED: Final = 20_000
"""Ids that no message has to wait for: lost ones, and those recovered without being received."""
_ENTRY_BYTES: Final = 210
"""Memory of a missing message: its history entry, with a hint and a short sender id, and its record."""
_FEW_CITATIONS: Final = 20
"""New missing messages of one citing message that are nothing unusual. What brings more of them may fill only half of
what may be missing: one forged message invents a thousand citations, and must not crowd out honest ones."""
_ASKED_AT_ONCE: Final = 60
"""Missing messages that are asked for at the same time; a sweep adds further ones only below this number."""
FOR_PROGRESS: Final = 2
"""Factor by which a message that parked ones wait for may exceed the bounds; else a full buffer would not empty."""
_NEXT_SHARE: Final = 4
"""One in so many of the messages that the bounds name is room that is kept for what is next in line."""
LONGEST_TURNED_AWAY: Final = 4
"""How many lost timeouts a message may be missing that comes and finds no room, while nothing comes in that it waits
for: anybody can make a message come as often as he likes, and each time cite something else that nobody has."""
_RELIEVED: Final = 0.9
"""Share of a bound in use below which the bound no longer counts as reached."""


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
        self.clock = WaitingClock()
        self.segments_wait: Callable[[], bool] = lambda: False
        """Whether segments wait for others of their message; the layer above knows."""
        self.settled: OrderedDict[str, bool] = OrderedDict()
        """Ids that nobody waits for, with whether they were lost (or else recovered without being received)."""
        self._config = config
        self._max_missing = max_missing
        self._max_planned = _FEW_CITATIONS
        self._led_on: set[str] = set()
        """What found no room since the last sweep, for the first time."""
        self._biting: set[Limit] = set()
        self._bit_last_time = False
        self._journal = journal
        self._history = history
        self._repair = repair
        self._deliver = deliver

    def cited(self, message: SdsMessage) -> tuple[HistoryEntry, ...]:
        """Return the entries of a message's causal history that count: a bounded number of the newest."""
        history, limit = message.causal_history, self._config.max_causal_history
        return history if len(history) <= limit else history[len(history) - limit :]

    def unmet(self, message_id: str, cited: tuple[HistoryEntry, ...]) -> list[HistoryEntry]:
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
        """Return whether a cited message was declared lost and has not arrived since."""
        settled = self.settled
        return bool(settled) and any(settled.get(entry[0], False) for entry in cited)

    def came(self, message_id: str) -> None:
        """Note that a message entered the history: it no longer counts as lost."""
        if self.settled.pop(message_id, None) is not None:
            self._journal.touch(SETTLED, message_id)

    def no_room_for(self, message: SdsMessage) -> bool:
        """Return whether a content message cannot be taken in now, because it would have to wait and buffers are full.

        Nothing is received that might have to be thrown away later, for whoever receives a message acknowledges it;
        and nothing is given up while it can still come. What is turned away comes again. A parked message that waits
        for it has it let in all the same, so that a full buffer empties when what is missing comes.
        """
        if not self._is_near_a_bound(message):
            return False
        incoming, message_id = self.incoming, message.message_id
        unmet = self.unmet(message_id, self.cited(message))
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
            bounds = _for_progress(bounds, is_next=awaited.is_next)
        exceeded = {limit for limit, bound in bounds.items() if used[limit] > bound}
        self._biting |= exceeded
        return bool(exceeded)

    def limits(self) -> list[tuple[Limit, int, bool]]:
        """Return each bound, and whether it turned a message away since the last time, or may still do so.

        Nothing is returned while none does, as the time before.
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
        told = [(limit, bound, limit in self._biting) for limit, bound in bounds.items()]
        self._bit_last_time = bool(self._biting)
        self._biting -= {limit for limit, bound in bounds.items() if used[limit] <= bound * _RELIEVED}
        return told

    def _bounds(self) -> dict[Limit, int]:
        return {
            Limit.INCOMING_BUFFER: self._config.max_incoming_buffer,
            Limit.INCOMING_BUFFER_BYTES: self._config.max_incoming_buffer_bytes,
            Limit.MISSING_MESSAGES: self._max_missing,
        }

    def _is_near_a_bound(self, message: SdsMessage) -> bool:
        incoming, config = self.incoming, self._config
        return (
            len(incoming) >= config.max_incoming_buffer
            or incoming.parked_bytes + _size_of(message) > config.max_incoming_buffer_bytes
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
        """Remove a parked message, because another message is the true one under its id."""
        self.incoming.drop(self.incoming.parked[message_id])
        self._journal.touch(PARKED, message_id)

    def add_hint(self, message_id: str, hint: bytes) -> None:
        """Give a parked message the retrieval hint that it lacks."""
        parked = self.incoming.parked.get(message_id)
        if parked is not None and parked.retrieval_hint is None:
            parked.retrieval_hint = hint
            self._journal.touch(PARKED, message_id)

    def note_missing(self, missing: Iterable[HistoryEntry], now_ms: int) -> list[SdsOutcome]:
        """Note the cited messages that are not here as missing, and plan to ask for them."""
        outcomes: list[SdsOutcome] = []
        self.let_time_pass(now_ms)
        entries = tuple(missing)
        # What a message cites before its newest few is asked for later (`sweep`), not before what others cite.
        unplanned = {entry.message_id for entry in entries[: max(0, len(entries) - self._max_planned)]}
        is_near = len(self.incoming.missing) + len(entries) > self._max_missing // 2
        lacked = {each.lacks for each in self.incoming.missing.values()} if is_near else frozenset()
        for entry in entries:
            if entry.message_id not in self.incoming.missing and not self._may_track_more(entry.message_id, lacked):
                self._biting.add(Limit.MISSING_MESSAGES)
                continue
            if self.incoming.note_missing(entry, now_ms, self.clock.waited_ms):
                self._journal.touch(MISSING, entry.message_id)
            if self.incoming.is_waited_for(entry.message_id):
                self._presume(entry.message_id, None)
            is_planned = entry.message_id not in unplanned and self.incoming.missing[entry.message_id].lacks is None
            at_ms = self._repair.schedule_request(entry, now_ms) if is_planned else None
            if at_ms is not None:
                outcomes.append(RepairScheduled(message_id=entry.message_id, at_ms=at_ms))
        return outcomes

    def turned_away(
        self, message: SdsMessage, now_ms: int, *, waits: bool = True, refused: bool = False
    ) -> list[SdsOutcome]:
        """Note that a message came and found no room; ask for what it cites, if messages here wait for it.

        It finds room once nothing that it cites is lacking; and maybe nobody else cites that. It can come again, so
        that it is waited for as though it were missing from now on; if it ``waits`` for what it lacks or for room in
        the incoming buffer, it is not asked for before either is there (`_ask_again`). If it was ``refused`` by the
        layer above, room in this one is of no use.
        """
        missing = self.incoming.missing.get(message.message_id)
        if missing is None:
            return []
        self.let_time_pass(now_ms)
        unmet = self.unmet(message.message_id, self.cited(message))
        request = self._repair.requests.get(message.message_id)
        if not missing.turned_away:
            self._led_on.add(message.message_id)
        missing.turned_away = True
        missing.is_next = False
        missing.is_refused = refused
        self._begin_anew(missing)
        # What it cites last comes last.
        lacks = unmet[-1].message_id if waits and unmet and missing.lacks is None else None
        missing.lacks = missing.lacks or lacks
        outcomes = self.note_missing((entry for entry in unmet if entry.message_id not in self.incoming), now_ms)
        if lacks is not None:
            if lacks in self.incoming.missing or lacks in self.incoming:
                self._repair.forget(message.message_id)
                if not refused:
                    self._ask_for_first(unmet, now_ms, was_asked=request is not None and request.asked > 0)
            else:
                # For what nobody keeps track of it would wait for ever.
                missing.lacks = None
        return outcomes

    def _ask_for_first(self, unmet: list[HistoryEntry], now_ms: int, *, was_asked: bool) -> None:
        """Ask for the first of what a message lacks that found no room, and for the others after it.

        They would find no room either, for each of them probably lacks the one before it. What precedes a message that
        came because it ``was_asked`` for is not just late.
        """
        for before, entry in pairwise(unmet):
            if before.message_id in self.incoming.missing:
                self._presume(entry.message_id, before.message_id)
        first = self.incoming.missing.get(unmet[0].message_id)
        if was_asked and first is not None and first.lacks is None:
            self._repair.schedule_request(first.entry, now_ms, at_once=True)

    def _presume(self, message_id: str, lacks: str | None) -> None:
        """Suppose that a message that never came lacks another, unless a parked one waits for it."""
        missing = self.incoming.missing.get(message_id)
        if missing is None or missing.turned_away or missing.is_next:
            return
        if lacks is None or not self.incoming.is_waited_for(message_id):
            missing.lacks = lacks
        if missing.lacks is not None:
            self._repair.forget(message_id)

    def set_aside(self, message: SdsMessage, now_ms: int) -> list[SdsOutcome]:
        """Note that a segment came which its set cannot use as it is.

        What was to be asked for only after it is asked for now: a forged segment may stand in the place of one of them,
        and then neither can be taken in before the other is here.
        """
        for missing in [m for m in self.incoming.missing.values() if m.lacks == message.message_id]:
            missing.lacks = None
            self._begin_anew(missing)
            self._repair.schedule_request(missing.entry, now_ms, at_once=True)
        return self.turned_away(message, now_ms, waits=False)

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
        """Declare messages lost that have been missing for too long, and report those that still are missing."""
        outcomes: list[SdsOutcome] = []
        self.let_time_pass(now_ms)
        waited_ms = self.clock.waited_ms
        # An own message may enter the history after somebody cited it, which is not the time to deliver others'.
        for message_id in [i for i in self.incoming.missing if i in self._history]:
            outcomes += self.release_waiters(message_id, now_ms)
        self._ask_again(now_ms)
        timeout = self._config.lost_timeout_ms
        if timeout:
            known = [(i, m) for i, m in self.incoming.missing.items() if m.lacks is None or self._waited_longest(m)]
            overdue = [(m.since_waited_ms, i) for i, m in known if waited_ms - m.since_waited_ms > timeout]
            # In an order that does not depend on whether the program was restarted meanwhile.
            outcomes += self._declare_lost([message_id for _, message_id in sorted(overdue)], now_ms)
            # What can never be released must not keep others out.
            full = self._biting & {Limit.INCOMING_BUFFER, Limit.INCOMING_BUFFER_BYTES}
            outcomes += self._release_circles(now_ms, waited_ms + 1 if full else waited_ms - timeout)
        if self._repair.config.enabled and len(self._repair.requests) < _ASKED_AT_ONCE:
            asked_for = (m for m in self.incoming.missing.values() if m.lacks is None)
            unasked = (m.entry for m in asked_for if m.entry.message_id not in self._repair.requests)
            for entry in list(islice(unasked, _ASKED_AT_ONCE - len(self._repair.requests))):
                self._repair.schedule_request(entry, now_ms)
        if self.incoming.missing:
            entries = tuple(missing.entry for missing in self.incoming.missing.values())
            outcomes.append(DependenciesMissing(entries=entries))
        return outcomes

    def _ask_again(self, now_ms: int) -> None:
        """Ask for what found no room: what can be delivered as soon as it comes, and as much as there is room for.

        What comes after it in turn is asked for as well: in the line of what waits for each other it is next.
        """
        incoming = self.incoming
        waiting = [(missing, missing.lacks) for missing in incoming.missing.values() if missing.lacks is not None]
        if not waiting:
            return
        followers: dict[str, list[MissingDependency]] = {}
        # What was found out last to be missing was mostly sent first, and releases most.
        for missing, lacks in reversed(waiting):
            followers.setdefault(lacks, []).append(missing)
        moved = [each for each in followers if each in self._history]
        moved += self._led_on
        self._led_on.clear()
        for missing in self._line(moved, followers):
            missing.first_waited_ms = self.clock.waited_ms
        asked = [message_id for message_id, missing in incoming.missing.items() if missing.is_next]
        room = self._room(is_next=False) - len(asked)
        for missing, lacks in reversed(waiting):
            is_met = lacks in self._history or lacks in self.settled
            if is_met or (room > 0 and not missing.is_refused):
                self._ask_for_next(missing, now_ms, at_once=is_met)
                asked.append(missing.entry.message_id)
                room -= 1
        room = min(self._room(is_next=True), _ASKED_AT_ONCE) - len(asked)
        # Behind what was refused all is refused.
        welcome = {lacks: [each for each in line if not each.is_refused] for lacks, line in followers.items()}
        unasked = (missing for missing in self._line(asked, welcome) if missing.lacks is not None)
        for place, missing in enumerate(list(islice(unasked, max(0, room))), start=1):
            # One after the other, so that they come in this order.
            self._ask_for_next(missing, now_ms + place, at_once=True)

    def _line(
        self, first: Iterable[str], followers: Mapping[str, list[MissingDependency]]
    ) -> Iterator[MissingDependency]:
        """Return what follows messages, one after the other, nearest first: what lacks them, or waits for them."""
        line = deque(first)
        seen = set(line)
        while line:
            message_id = line.popleft()
            further = followers.get(message_id, ())
            yield from further
            new = [each.entry.message_id for each in further] + self.incoming.waiters(message_id)
            line += [each for each in new if each not in seen]
            seen.update(new)

    def _ask_for_next(self, missing: MissingDependency, at_ms: int, *, at_once: bool) -> None:
        missing.lacks = None
        missing.is_next = True
        self._begin_anew(missing)
        self._repair.schedule_request(missing.entry, at_ms, at_once=at_once)

    def _room(self, *, is_next: bool) -> int:
        """Return for how many messages that are waited for there is room, if they are like those that are parked."""
        bounds, count = self._bounds(), len(self.incoming)
        most = _for_progress(bounds, is_next=is_next)
        room = most[Limit.INCOMING_BUFFER] - count
        if count:
            free_bytes = most[Limit.INCOMING_BUFFER_BYTES] - self.incoming.parked_bytes
            room = min(room, free_bytes * count // self.incoming.parked_bytes)
        return room if len(self.incoming.missing) < bounds[Limit.MISSING_MESSAGES] else 0

    def _begin_anew(self, missing: MissingDependency) -> None:
        """Give a message the time to come again, unless it has been given that for too long."""
        if not self._waited_longest(missing):
            self.incoming.begin_anew(missing, self.clock.waited_ms)
            self._journal.touch(MISSING, missing.entry.message_id)

    def _waited_longest(self, missing: MissingDependency) -> bool:
        """Return whether a message was waited for as long as any is that came and found no room."""
        longest_ms = (LONGEST_TURNED_AWAY - 1) * self._config.lost_timeout_ms
        return bool(longest_ms) and self.clock.waited_ms - missing.first_waited_ms > longest_ms

    def _may_track_more(self, message_id: str, lacked: Container[str | None]) -> bool:
        """Return whether one more may be missing; for a parked message there was room, for a sync message maybe not.

        What a message lacks that found no room leads to what can be delivered, and is noted as long as there is any.
        """
        count = len(self.incoming.missing)
        if count < self._max_missing // 2 or self.incoming.is_waited_for(message_id):
            return True
        return count < self._max_missing and message_id in lacked

    def next_loss_at(self) -> int | None:
        """Return the time of the next sweep, in Unix milliseconds; None if none is due."""
        timeout = self._config.lost_timeout_ms
        if not timeout:
            return None
        for missing in self.incoming.missing.values():
            if missing.lacks is None:
                return self.clock.reaches_at(missing.since_waited_ms + timeout + 1)
        for parked in () if self.incoming.missing else self.incoming.parked.values():
            return self.clock.reaches_at(parked.since_waited_ms + timeout + 1)
        return None

    def can_come(self, possible: bool, now_ms: int) -> None:
        """Note whether missing messages can arrive from now on; only such time counts towards the lost timeout."""
        self.let_time_pass(now_ms)
        self.clock.runs = possible

    def let_time_pass(self, now_ms: int) -> None:
        """Add the time since the last call to the waiting time of missing messages."""
        counts = self.segments_wait() or bool(self.incoming.missing or self.incoming.parked)
        if self.clock.advance(now_ms, counts=counts):
            self._journal.touch(WAITED, "")

    def _declare_lost(self, message_ids: list[str], now_ms: int) -> list[SdsOutcome]:
        outcomes: list[SdsOutcome] = []
        for reason in (LossReason.TIMEOUT, LossReason.NO_ROOM):
            entries = tuple(self._entry_of(i) for i in message_ids if self._reason_for(i) is reason)
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

    def _release(self, parked: Parked, now_ms: int) -> list[SdsOutcome]:
        """Deliver a parked message now, after giving up everything that it waits for in the end."""
        outcomes = self._declare_lost(self.incoming.missing_behind(parked), now_ms)
        # What is left of them waits in a circle.
        return outcomes + self._declare_lost(list(parked.waiting_for), now_ms)

    def _release_circles(self, now_ms: int, not_since_ms: int) -> list[SdsOutcome]:
        """Release messages that cite each other in a circle, because no other message can release them.

        An honest sender cannot cite a message that cites its own, so that only a forger makes a circle.
        """
        outcomes: list[SdsOutcome] = []
        oldest = next(iter(self.incoming.parked.values()), None)
        if oldest is None or oldest.since_waited_ms >= not_since_ms:
            return outcomes
        for parked in self.incoming.waits_in_vain():
            if parked.message.message_id in self.incoming and parked.since_waited_ms < not_since_ms:
                outcomes += self._release(parked, now_ms)
        return outcomes


def _for_progress(bounds: Mapping[Limit, int], *, is_next: bool) -> dict[Limit, int]:
    """Return how much may be parked with what others wait for; the last of the room is for what is next in line."""
    return {limit: FOR_PROGRESS * bound - (0 if is_next else bound // _NEXT_SHARE) for limit, bound in bounds.items()}


def _size_of(message: SdsMessage) -> int:
    """Return the approximate memory of a parked message in bytes."""
    entries = len(message.causal_history) + len(message.repair_request)
    return len(message.content or b"") + len(message.bloom_filter or b"") + _ENTRY_BYTES * entries
