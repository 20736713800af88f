"""`Dependencies`: parks messages until their dependencies are met.

SDS, "Receive Message" and "Periodic Incoming Buffer Sweep". A message is delivered when all messages that it cites are
in the local history. Until then it is parked, and the missing ones of the cited messages are requested. After the lost
timeout the missing messages are declared lost, and the parked messages are delivered
(docs/decisions/specifications.md, "Lost dependencies"; js-waku drops them, nim-sds waits without end). With a gap
timeout a parked message is delivered earlier, around its missing dependencies, which are still requested.

The incoming buffer and the missing messages are bounded. A message that would exceed a bound is turned away: it is
neither received nor acknowledged, and its sender transmits it again. If other messages wait for it, it is requested
again after the last message that it cites has arrived (`MissingDependency.blocked_on`). By then it can probably be
delivered without parking.

If the application has no room, messages with met dependencies stay parked. They are held back until it has room
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
from fairway.wire.batch import MAX_BATCH
from fairway.wire.envelope import ENVELOPE_PREFIX
from fairway.wire.sds import HistoryEntry, SdsMessage

PARKED: Final = "parked"
MISSING: Final = "missing"
SETTLED: Final = "settled"
START: Final = "start"
WAITED: Final = "waited"

MAX_CITATIONS_READ: Final = 1_000
"""History entries read of a received message, the newest."""
PARKED_BYTES: Final = 13_422
"""Average bytes of a parked message; ``max_incoming_buffer`` times this bounds the total size."""
_MAX_SETTLED: Final = 20_000
"""Settled ids that are kept (`Dependencies.settled`)."""
_ENTRY_BYTES: Final = 210
"""Memory of a missing message: its record, and its history entry with a hint and a short sender id."""
_FEW_CITATIONS: Final = 20
"""New missing messages that one message usually cites, at most.

For a message that cites more, the bound of missing messages is halved, unless a parked message waits for it. A forged
message can cite a thousand ids that do not exist."""
_ASKED_AT_ONCE: Final = 60
"""Planned repair requests up to which a sweep plans more; requests made in vain do not count (`_IN_VAIN`)."""
_IN_VAIN: Final = 10
"""Requests for one message after which it probably does not exist; it then no longer delays other requests."""
FOR_PROGRESS: Final = 2
"""Factor by which a message that parked ones wait for may exceed the bounds; otherwise a full buffer never empties."""
LONGEST_TURNED_AWAY: Final = 4
"""Lost timeouts after which a message is given up that is turned away each time, if no blocked message progresses.

Without a limit, a forger could resend a message without end, each time with a citation of another id that does not
exist."""
_AWAITED_MS: Final = 60_000
"""Time that messages wait for those that a snapshot missed. After it they are delivered around these."""
_RELIEVED: Final = 0.9
"""Share of a reached bound at which the bound no longer counts as reached."""


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
        """Called with the time if messages are delivered without their dependencies; set by the layer above."""
        self.settled: BoundedDict[str, bool] = BoundedDict(_MAX_SETTLED)
        """Ids that no message waits for, although the messages did not arrive.

        True: declared lost, or skipped because messages were delivered around them. False: the content is known
        otherwise."""
        self.awaited: tuple[HistoryEntry, ...] = ()
        """Messages that the snapshot missed from which this participant starts."""
        self.awaited_from = 0
        """Lamport timestamp of that snapshot; all messages from it on wait for the awaited ones."""
        self.awaited_until_ms = 0
        """The waiting clock at which they do not wait any more."""
        self.held_back: dict[str, None] = {}
        """Ids of parked messages whose dependencies are met, but for which the application had no room."""
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
        """Return how many messages are missing with this one; `_FEW_CITATIONS` if only sync messages cite it."""
        return self.incoming.fewest_lacked_with(message_id) or _FEW_CITATIONS

    def cited(self, message: SdsMessage) -> tuple[HistoryEntry, ...]:
        """Return the newest `MAX_CITATIONS_READ` entries of a message's causal history; the others are ignored."""
        return message.causal_history[-MAX_CITATIONS_READ:]

    def absent(self, message: SdsMessage, cited: tuple[HistoryEntry, ...]) -> list[HistoryEntry]:
        """Return the cited messages that are neither in the history nor settled, each once.

        A message after the snapshot from which this participant starts waits for all that the snapshot missed, too: its
        author had them, and may cite only the snapshot.

        A message does not wait for itself: in js-waku, a message cites itself if its payload is sent again. It does not
        wait for a sync message either: nim-sds treats sync messages of this wire as content, and cites them.
        """
        absent = self._history.missing_from(cited)
        if self.awaited and (message.lamport_timestamp or 0) >= self.awaited_from:
            absent = [*absent, *self._still_awaited()]
        if not absent:
            return absent
        hopeless = {"", message.message_id}
        waited_for = {e.message_id: e for e in absent if e.message_id not in self.settled}
        return [e for i, e in waited_for.items() if i not in hopeless and not i.startswith(SYNC_PREFIX)]

    def await_missed(self, entries: tuple[HistoryEntry, ...], lamport: int) -> None:
        """Let all messages from a Lamport timestamp on wait for these, for `_AWAITED_MS`; nobody may have them."""
        self.awaited, self.awaited_from = entries, lamport
        self.awaited_until_ms = self.clock.waited_ms + _AWAITED_MS

    def _still_awaited(self) -> tuple[HistoryEntry, ...]:
        left = tuple(entry for entry in self.awaited if not self._is_met(entry.message_id))
        if left != self.awaited:
            self.awaited = left
            self._journal.touch(START, "")
        return left

    def has_lost(self, cited: tuple[HistoryEntry, ...]) -> bool:
        """Return whether a cited message was declared lost or skipped, and has not arrived since."""
        settled = self.settled
        return bool(settled) and any(settled.get(entry[0], False) for entry in cited)

    @property
    def is_around_a_gap(self) -> bool:
        """Whether a message that others were delivered around is still missing or parked.

        Even a parked one counts, because it may cite messages that are unknown here.
        """
        settled, incoming = self.settled, self.incoming
        return bool(settled) and any(settled.get(each, False) for each in chain(incoming.missing, incoming.parked))

    def came(self, message_id: str) -> None:
        """Note that a message entered the history: it no longer counts as lost."""
        if self.settled.pop(message_id, None) is not None:
            self._journal.touch(SETTLED, message_id)

    def no_room_for(self, message: SdsMessage) -> bool:
        """Return whether a content message must be turned away, because it needs parking and would exceed a bound.

        A received message is acknowledged, so it must not be discarded later. The sender transmits a message again
        that is turned away. A message that parked ones wait for may exceed the bounds (`FOR_PROGRESS`).
        """
        if not self._is_near_a_bound(message):
            return False
        incoming, message_id = self.incoming, message.message_id
        unmet = self.absent(message, self.cited(message))
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
        """Return (limit, value, is reached) of each bound; empty if none is reached, now or at the last call.

        A bound is reached from the moment it turns a message away until clearly less of it is in use (`_RELIEVED`).
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
        """Park a message until the ``missing`` ones have arrived; it no longer counts as missing itself."""
        self.let_time_pass(now_ms)
        self.incoming.park(message, encoded, hint, missing, self.clock.waited_ms)
        self._journal.touch(PARKED, message.message_id)
        if self.incoming.missing.pop(message.message_id, None) is not None:
            self._journal.touch(MISSING, message.message_id)

    def unpark(self, message_id: str) -> None:
        """Remove a forged parked message: the genuine message with its id has arrived."""
        self.incoming.drop(self.incoming.parked[message_id])
        self._journal.touch(PARKED, message_id)

    def add_hint(self, message_id: str, hint: bytes) -> None:
        """Set the retrieval hint of a parked message that has none."""
        parked = self.incoming.parked.get(message_id)
        if parked is not None and parked.retrieval_hint is None:
            parked.retrieval_hint = hint
            self._journal.touch(PARKED, message_id)

    def note_missing(self, missing: Iterable[HistoryEntry], now_ms: int, *, of_turned_away: bool = False) -> None:
        """Note cited messages as missing, and plan to request them.

        The dependencies of a parked message are always noted: `no_room_for` has counted them. Citations of a sync
        message may fill half of the bound, citations ``of_turned_away`` messages all of it.
        """
        self.let_time_pass(now_ms)
        incoming, entries = self.incoming, tuple(missing)
        # Only the newest citations are requested at once. A later sweep requests the others, so that a message with
        # many citations does not take precedence over other messages.
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
        """Note that a missing message arrived and was turned away; its dependencies are now missing, too.

        The lost timeout of the message starts over, because the message exists. It is requested again only after the
        last message that it cites has arrived.
        """
        missing = self.incoming.missing.get(message.message_id)
        if missing is None:
            return
        self.let_time_pass(now_ms)
        unmet = self.absent(message, self.cited(message))
        missing.turned_away = True
        missing.release_after = ()
        self._begin_anew(missing)
        request = self._repair.requests.get(message.message_id)
        self.note_missing((e for e in unmet if e.message_id not in self.incoming), now_ms, of_turned_away=True)
        for entry in unmet if request is not None and request.asked else ():
            # The message is the answer to a request: its dependencies are not merely late.
            cited = self.incoming.missing.get(entry.message_id)
            if cited is not None and cited.blocked_on is None:
                self._repair.schedule_request(entry, now_ms, at_once=True)
        if unmet and missing.blocked_on is None and self._is_tracked(unmet[-1].message_id):
            missing.blocked_on = unmet[-1].message_id
            self._repair.forget(message.message_id)

    def _is_tracked(self, message_id: str) -> bool:
        return message_id in self.incoming.missing or message_id in self.incoming

    def settle(self, message_ids: Iterable[str], now_ms: int, *, lost: bool = False) -> list[SdsOutcome]:
        """Stop all waiting for these ids, and deliver the messages that waited for nothing else."""
        outcomes: list[SdsOutcome] = []
        for message_id in message_ids:
            if lost:
                self.note_gap(now_ms)
            self._note_settled(message_id, lost=lost)
            self._repair.forget(message_id)
            outcomes += self.release_waiters(message_id, now_ms)
        return outcomes

    def give_up(self, message: SdsMessage, now_ms: int) -> list[SdsOutcome]:
        """Stop all waiting for a message that arrived and is useless, once its dependencies are met.

        The messages that wait for it descend from its dependencies, too. So missing dependencies are requested first;
        the useless message itself need not arrive again.
        """
        unmet = self.absent(message, self.cited(message))
        if unmet:
            self.turned_away(message, now_ms)
            missing = self.incoming.missing.get(message.message_id)
            if missing is not None:
                missing.release_after = tuple(entry.message_id for entry in unmet)
            return []
        return self.settle([message.message_id], now_ms, lost=True)

    def _note_settled(self, message_id: str, *, lost: bool) -> None:
        # The content of a lost or skipped message may become known later.
        is_news = message_id not in self.settled or (self.settled[message_id] and not lost)
        if message_id not in self._history and is_news:
            evicted = self.settled.put(message_id, lost)
            self._journal.touch(SETTLED, message_id)
            if evicted is not None:
                self._journal.touch(SETTLED, evicted)

    def deliver_around_gaps(self, now_ms: int, *, keep: int = 0) -> list[SdsOutcome]:
        """Deliver parked messages around their missing dependencies, oldest first, until at most ``keep`` are parked.

        Missing messages are still requested, and delivered if they arrive before the lost timeout.
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
            # The remaining dependencies are parked, in a circle or behind one.
            for message_id in list(parked.waiting_for):
                outcomes += self._go_around(message_id, now_ms)
        return outcomes

    def _go_around(self, message_id: str, now_ms: int) -> list[SdsOutcome]:
        self.note_gap(now_ms)
        self._note_settled(message_id, lost=True)
        return self._deliver_free(self.incoming.let_go(message_id), now_ms)

    def release_waiters(self, message_id: str, now_ms: int) -> list[SdsOutcome]:
        """Deliver, in the order of arrival, the messages that waited for this id alone; then likewise their waiters."""
        return self._deliver_free(self._settled(message_id), now_ms)

    def set_room(self, messages: float, size_bytes: float) -> None:
        """Until the next call, deliver at most ``messages`` parked messages and ``size_bytes`` bytes of content.

        The last message may exceed the bytes. A message that need not be parked is delivered without regard to the
        room, and counts.
        """
        self._room_messages, self._room_bytes = messages, size_bytes

    def take_room(self, message: SdsMessage) -> None:
        """Subtract a delivered message from the room; one that may be a batch may use it up."""
        content = message.content or b""
        self._room_messages -= MAX_BATCH if ENVELOPE_PREFIX in content else 1
        self._room_bytes -= len(content)

    def deliver_held_back(self, now_ms: int) -> list[SdsOutcome]:
        """Deliver held-back messages in the order in which they were held back, until the room is used up."""
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
        """Deliver those of ``freed`` that wait for nothing, then likewise the messages that waited for these."""
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
                    # Only its newest citations are read; older ones may be missing.
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
        """After the timeouts, deliver around missing messages or declare them lost; report those still missing."""
        outcomes: list[SdsOutcome] = []
        self.let_time_pass(now_ms)
        waited_ms = self.clock.waited_ms
        # An own message may enter the history after it was cited (`broadcast`), without releasing its waiters.
        for message_id in [i for i in self.incoming.missing if i in self._history]:
            outcomes += self.release_waiters(message_id, now_ms)
        if self.awaited and waited_ms > self.awaited_until_ms:
            for entry in self._still_awaited():
                outcomes += self._go_around(entry.message_id, now_ms)
        outcomes += self._let_go_of_useless(now_ms)
        self._ask_again(now_ms)
        while (around_at := self._next_around_at()) is not None and around_at <= waited_ms and not self.held_back:
            outcomes += self._deliver_around_gaps(next(iter(self.incoming.parked.values())), now_ms)
        timeout = self._config.lost_timeout_ms
        if timeout:
            before_ms = waited_ms - timeout
            waited = [(i, m) for i, m in self.incoming.missing.items() if m.since_waited_ms < before_ms]
            overdue = [(m.since_waited_ms, i) for i, m in waited if m.blocked_on is None or self._waited_longest(m)]
            # Sorted, so that a restart does not change the order.
            outcomes += self._declare_lost([message_id for _, message_id in sorted(overdue)], now_ms)
            # If the buffer is full, circles are given up at once.
            full = self._biting & {Limit.INCOMING_BUFFER, Limit.INCOMING_BUFFER_BYTES}
            outcomes += self._release_circles(now_ms, waited_ms + 1 if full else waited_ms - timeout)
        self._plan_requests(now_ms)
        if self.incoming.missing:
            entries = tuple(missing.entry for missing in self.incoming.missing.values())
            outcomes.append(DependenciesMissing(entries=entries))
        return outcomes

    def _plan_requests(self, now_ms: int) -> None:
        """Plan requests for missing messages that have none, while few of the planned ones may still be answered."""
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
            # A message that arrived once exists: it is requested even if requests for invented ids use up the room.
            if room > 0 or missing.turned_away:
                self._repair.schedule_request(missing.entry, now_ms)
                room -= 1

    def _is_met(self, message_id: str) -> bool:
        """Return whether a dependency is met: it is in the history, or settled."""
        return message_id in self._history or message_id in self.settled

    def _let_go_of_useless(self, now_ms: int) -> list[SdsOutcome]:
        """Settle the useless messages (`give_up`) whose dependencies are met by now.

        A large message is given up segment by segment, and each segment cites the earlier ones. A separate wait for
        each segment would take as many lost timeouts.
        """
        outcomes: list[SdsOutcome] = []
        useless = {i: m.release_after for i, m in self.incoming.missing.items() if m.release_after}
        while met := sorted(i for i, until in useless.items() if all(self._is_met(each) for each in until)):
            outcomes += self.settle(met, now_ms, lost=True)
            useless = {i: until for i, until in useless.items() if i not in met and i in self.incoming.missing}
        return outcomes

    def _ask_again(self, now_ms: int) -> None:
        """Request the messages that were turned away and are no longer blocked."""
        blocked = [missing for missing in self.incoming.missing.values() if missing.blocked_on is not None]
        if any((missing.blocked_on or "") in self._history for missing in blocked):
            # Progress: the maximum wait (`LONGEST_TURNED_AWAY`) of all blocked messages starts over.
            for missing in blocked:
                missing.first_waited_ms = self.clock.waited_ms
        for missing in blocked:
            if self._is_tracked(missing.blocked_on or ""):
                continue
            missing.blocked_on = next((each for each in missing.release_after if self._is_tracked(each)), None)
            self._begin_anew(missing)
            if missing.blocked_on is None:
                self.incoming.noticed += 1
                self._repair.schedule_request(missing.entry, now_ms, at_once=True)

    def _begin_anew(self, missing: MissingDependency) -> None:
        """Start the lost timeout of a message over, unless the message has reached its maximum wait."""
        self._journal.touch(MISSING, missing.entry.message_id)
        if not self._waited_longest(missing):
            self.incoming.begin_anew(missing, self.clock.waited_ms)

    def _waited_longest(self, missing: MissingDependency) -> bool:
        """Return whether a message that is turned away has reached its maximum wait (`LONGEST_TURNED_AWAY`)."""
        longest_ms = (LONGEST_TURNED_AWAY - 1) * self._config.lost_timeout_ms
        return bool(longest_ms) and self.clock.waited_ms - missing.first_waited_ms > longest_ms

    def next_loss_at(self) -> int | None:
        """Return the time of the next sweep, in Unix milliseconds; None if none is due."""
        around_at = self._next_around_at()
        times = (None if around_at is None else self.clock.reaches_at(around_at), self._next_lost_at())
        return min((at for at in times if at is not None), default=None)

    def _next_around_at(self) -> int | None:
        """Return the value of the waiting clock at which the gap timeout of the oldest parked message ends.

        None without a parked message or without a gap timeout.
        """
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
        """Set whether missing messages can arrive from now on; only such time counts towards the timeouts."""
        self.let_time_pass(now_ms)
        self.clock.runs = possible

    def let_time_pass(self, now_ms: int, *, waits: bool = False) -> None:
        """Advance the waiting clock; it is stored while messages wait here, or in the layer above (``waits``)."""
        if self.clock.advance(now_ms, waits=waits or bool(self.incoming.missing or self.incoming.parked)):
            self._journal.touch(WAITED, "")

    def _declare_lost(self, message_ids: list[str], now_ms: int) -> list[SdsOutcome]:
        outcomes: list[SdsOutcome] = []
        for reason in (LossReason.TIMEOUT, LossReason.NO_ROOM):
            # A message whose content is known otherwise is not reported as lost.
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
        """Declare lost all messages that a parked one waits for, directly or through others, and so deliver it."""
        outcomes = self._declare_lost(self.incoming.missing_behind(parked), now_ms)
        if not self.held_back:
            # The remaining dependencies are parked, in a circle or behind one.
            outcomes += self._declare_lost(list(parked.waiting_for), now_ms)
        return outcomes

    def _release_circles(self, now_ms: int, not_since_ms: int) -> list[SdsOutcome]:
        """Release parked messages that cite each other in a circle: no arriving message can release them.

        Only forged messages form a circle: an honest sender cites only messages that were made earlier.
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
