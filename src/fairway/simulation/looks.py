"""`Looks`: what is looked at every half minute of a run, in every participant, beside what the ledger is told.

What a participant holds must be what it gave to its store, what it counts must be so, what it lacks must be asked for,
what is open must be sent again, and what a rate limit holds back must leave when an epoch begins. Each finding is told
once of each participant.
"""

from __future__ import annotations

import gc
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Final

from fairway.channel.statistics import ChannelStatistics
from fairway.events import Limit
from fairway.options import ReliableChannelOptions
from fairway.protocol.encryption.ciphering import Ciphering
from fairway.protocol.incoming.receiving import Transmitted
from fairway.protocol.journal import Row
from fairway.protocol.outgoing.dispatching import RATE_LIMIT, Transmission
from fairway.protocol.outgoing.requests import REQUESTS
from fairway.protocol.sds.acknowledgements import OUTGOING
from fairway.protocol.sds.channel import HISTORY
from fairway.protocol.sds.dependencies import FOR_PROGRESS, MISSING, PARKED
from fairway.protocol.sds.retained import RETAINED, Retained
from fairway.protocol.sds.rolling_bloom import RollingBloom
from fairway.protocol.segmentation.open_sets import BECOMING_WHOLE_FACTOR, SEGMENT_OVERHEAD_BYTES
from fairway.protocol.stack_state import JITTER
from fairway.protocol.statistics import StackStatistics
from fairway.simulation.clocks import Clocks
from fairway.simulation.invariants import Invariant, Violation
from fairway.simulation.ledger import Ledger
from fairway.simulation.plan import SimulationPlan
from fairway.simulation.script import names_of
from fairway.simulation.wire_rules import RATE_EPOCH_MS
from fairway.simulation.world import Participant, World
from fairway.storage.channel_store import Stored
from fairway.wire.bloom import BloomFilter

AT_REST_MS: Final = 10_000
"""Within this time what is under way to a disk arrives there."""
_INBOX: Final = "inbox"
_IDLE_LOOKS: Final = 10
_CHARGED_UNDER_WAY: Final = 1
"""So many messages may be charged, and still be proven, when an epoch ends."""
_UNSTEADY: Final = frozenset({JITTER, RATE_LIMIT})
"""Tables that are kept later than they change: where nothing else changes, they are not worth a write."""
MOMENT_MS: Final = 1_000
"""Within this time what is asked of a program reaches it."""
_REPEATED_WITHIN_MS: Final = 60_000
"""By so much longer than two intervals of retries it may take until something is sent again."""
_SOUGHT_WITHIN_MS: Final = 30_000
"""By so much longer than two intervals of retrieval it may take until something is asked for."""
_EPOCH_NOTICED_MS: Final = 10_000
"""Within this time of an epoch something of what waited for it leaves: longer than a node is given a rest."""
_AROUND_WITHIN_MS: Final = 30_000
"""By so much longer than the gap timeout a message may be held back, which a sweep and a commit take."""
_HOPED_FOR_MS: Final = 120_000
"""A store that is read for the time away stops the time of waiting for so long after it came, or last brought something
new."""
_NO_ANSWER_MS: Final = 20_000
"""For so long an answer of a node is waited for; nothing else may leave meanwhile."""
_LONGEST_WAITS: Final = 4
"""A participant that lacks a message asks again within so many T_max: twice that, and until its next sync message."""
_ASKED_AGAIN_MS: Final = 200_000
"""Within this time it asks again for what it asked for, if nobody else did since: after two minutes, and until it may
speak."""
_ASKED: Final = "asked"
_FEW: Final = 6
_NAME_BYTES: Final = 64
"""What is longer is no hash or key."""
_AT_REST_BYTES: Final = 2_000
_LOOKS_AGAIN: Final = 3
"""How often who seems to hold too much is looked at again."""
_ANSWERED_MS: Final = 120_000
"""Within this time a node has answered, or is not waited for any more."""
_FILTER_BYTES: Final = 2
"""Of a filter for each message that it has room for: the last sync message has one."""
_NO_CONTENT: Final = (
    *(type, ModuleType, FunctionType, MethodType, str, int, float),
    *(Retained, Transmission, BloomFilter, RollingBloom),
    *(Ciphering, Transmitted),
)
"""Among them `Transmitted`: doubtful segments, of which the oldest give way to what they may take together."""
_SEGMENTS_OF_ONE: Final = 16
"""The longest message in a world has no more segments, parity included."""


@dataclass(slots=True)
class Peaks:
    """The largest value of each bounded quantity in any participant."""

    parked: int = 0
    missing: int = 0
    open_sets: int = 0
    ended_sets: int = 0
    buffered_bytes: int = 0
    """With what each segment costs beside its payload."""
    queued: int = 0
    open_requests: int = 0

    def note(self, held: StackStatistics) -> None:
        """Update the largest values with the statistics of a participant."""
        self.parked = max(self.parked, held.parked)
        self.missing = max(self.missing, held.missing)
        self.open_sets = max(self.open_sets, held.reassembly.open_sets)
        self.ended_sets = max(self.ended_sets, held.reassembly.ended_sets)
        buffered = held.reassembly.buffered_bytes + SEGMENT_OVERHEAD_BYTES * held.reassembly.open_segments
        self.buffered_bytes = max(self.buffered_bytes, buffered)
        self.queued = max(self.queued, held.queued)
        self.open_requests = max(self.open_requests, held.open_requests)

    def beyond(
        self, options: ReliableChannelOptions, senders: int, *, queue_is_bounded: bool = True
    ) -> Iterator[Violation]:
        """Yield a violation for each that exceeded its bound; ``senders`` is how many others there were.

        What is sent while its node is away a channel takes in without a bound.
        """
        segmentation = options.segmentation
        # What others wait for, or waits for nothing, is begun beyond the sets of its sender: there only bytes bound it.
        begun_bytes = BECOMING_WHOLE_FACTOR * segmentation.max_buffered_bytes
        sets = max(segmentation.max_sets_per_sender * senders, begun_bytes // SEGMENT_OVERHEAD_BYTES)
        # Segments wait in one queue and whatever else in another one; of a message all segments are taken in at once.
        queued = 2 * options.rate_limit.max_queued + _SEGMENTS_OF_ONE if queue_is_bounded else math.inf
        for what, most, bound in (
            ("parked messages", self.parked, FOR_PROGRESS * options.sds.max_incoming_buffer),
            ("missing messages", self.missing, options.max_missing),
            ("incomplete segment sets", self.open_sets, sets),
            ("ended segment sets", self.ended_sets, segmentation.max_completed_sets),
            ("bytes in incomplete sets", self.buffered_bytes, begun_bytes),
            ("queued transmissions", self.queued, queued),
        ):
            if most > bound:
                text = f"a participant held {most:,} {what}, of which at most {bound:,} are allowed"
                yield Violation(
                    invariant=Invariant.BOUNDS, at_ms=None, participant=None, request_id=None, sentence=text
                )


class Looks:
    """Looks at a world now and then, and remembers what it found."""

    def __init__(
        self, world: World, plan: SimulationPlan, ledger: Ledger, clocks: Clocks, spoken_for: Callable[[str, int], int]
    ) -> None:
        """Look at a world that begins now.

        ``spoken_for`` returns how often a forger spoke to a participant in its own name before a time.
        """
        self._world, self._plan, self._ledger, self._clocks = world, plan, ledger, clocks
        self._spoken_for = spoken_for
        self.peaks = Peaks()
        self.is_healed = False
        """Whether nothing goes wrong any more."""
        self.found: list[Violation] = []
        self._start_ms = world.now_ms
        self._told: defaultdict[str, set[str]] = defaultdict(set)
        """What was found of each participant, which is not told again."""
        self._unsought_since: dict[tuple[str, int], dict[str, int]] = {}
        """What each participant lacks and never asked a store for, and when that was seen first."""
        self._ever_sought: defaultdict[str, set[str]] = defaultdict(set)
        """SDS ids of what each participant asked a store for, by any hint."""
        self._hints_seen: defaultdict[tuple[str, str], set[bytes]] = defaultdict(set)
        """The hints that a participant was seen to have for an SDS id that it lacks."""
        self._parked_since: dict[str, dict[str, int]] = {}
        """What waits for something missing at each participant, and when that was seen first."""
        self._full_ms: dict[str, int] = {}
        """When each participant was last seen to have no room for what it hears."""
        self._looks = 0
        self._left_alone: set[str] = set()
        self._queued_ms: dict[str, int] = {}
        """When something was last seen to wait for a rate limit or the pace of a node."""

    def violation(self, invariant: Invariant, name: str, sentence: str, request_id: str | None = None) -> Violation:
        """Return a violation that is seen now."""
        at_ms = self._world.now_ms - self._start_ms
        return Violation(invariant=invariant, at_ms=at_ms, participant=name, request_id=request_id, sentence=sentence)

    def look(self) -> None:
        """Look at all participants; at what one of them gave to its store, another one each time."""
        held: dict[str, StackStatistics] = {}
        for participant in self._world.participants.values():
            if not self._world.is_reachable(participant.name):
                self._ledger.troubled(self._world.now_ms, participant.name)
            if participant.channel is not None:
                told = participant.channel.statistics()
                held[participant.name] = told.protocol
                self.peaks.note(told.protocol)
                self.found += self._unreleased(participant.name, told.protocol)
                self.found += self._miscounted(participant, told)
                self.found += self._unsought(participant, is_full=_is_full(participant, told))
                self.found += self._overstayed(participant)
        self._look_into_one()
        self._look_for_sends_left_alone(held)
        self._look_for_what_nobody_is_asked_for(held)

    def hoards(self) -> Iterator[Violation]:
        """Yield who, at rest, still holds contents of what is over, whatever it counts."""
        capacity = max(each.options.sds.bloom_capacity for each in self._world.participants.values())
        largest_bytes = max((sent.size_bytes for sent in self._ledger.sent), default=0)
        for name in sorted(self._world.participants)[:_FEW]:
            participant = self._world.participants[name]
            # What stays incomplete is bounded by itself, and counted.
            if participant.channel is None or participant.stack.statistics().reassembly.open_sets:
                continue
            # What was looked at last may stay at hand.
            allowed_bytes = _AT_REST_BYTES + _FILTER_BYTES * capacity + largest_bytes
            held_bytes = self._held_for_good_bytes(participant, allowed_bytes)
            if held_bytes > allowed_bytes:
                text = f"{name} waits for nothing and holds {held_bytes:,} bytes of contents that it does not need"
                yield self.violation(Invariant.BOUNDS, name, text)

    def _held_for_good_bytes(self, participant: Participant, allowed_bytes: int) -> int:
        """Return how many bytes of contents a participant holds; if more than allowed, also some moments later.

        It speaks also when all is said: a sync message is held until it is encrypted, what it rests on is stored, and
        the node has taken it, whose answer may get lost.
        """
        rules = self._ledger.rules

        def is_told() -> bool:
            return participant.channel is None or not participant.channel.statistics().publishing

        held_bytes = _content_bytes(participant.stack)
        for _ in range(_LOOKS_AGAIN):
            if held_bytes > allowed_bytes:
                self._world.run(MOMENT_MS + rules.cipher_ms + rules.disk_ms)
                self._world.run(_ANSWERED_MS, is_told)
                held_bytes = min(held_bytes, _content_bytes(participant.stack))
        return held_bytes

    def crash(self, name: str) -> list[Violation]:
        """Kill a program and start it again; return the differences between its stored and its true state."""
        participant = self._world.participants[name]
        channel = participant.channel
        if channel is None or channel.statistics().uncommitted:
            self._world.crash(name)
            return []
        held = self._held(participant)
        found: list[Violation] = []

        def look(stored: Stored) -> None:
            kept = {(row.table, row.key): row.row for row in stored.changes}
            found.extend(self._unkept(name, held, kept, len(stored.inbox)))

        self._world.crash(name, look)
        return found

    @staticmethod
    def _held(participant: Participant) -> tuple[dict[tuple[str, str], Row | None], int]:
        """Return the rows of what a running program holds, and how many messages it has not finished with."""
        channel = participant.channel
        rows = {(row.table, row.key): row.row for row in participant.stack.snapshot()}
        return rows, 0 if channel is None else channel.statistics().unfinished

    def _look_into_one(self) -> None:
        """See that what a participant holds, another one each time, is what it gave to its store.

        As that takes time, those who wait for nothing are passed over but for now and then.
        """
        self._looks += 1
        name = sorted(self._world.participants)[self._looks % len(self._world.participants)]
        participant = self._world.participants[name]
        if participant.channel is None or participant.channel.statistics().uncommitted:
            return
        if self.waits_for(participant.stack.statistics()) or self._looks % _IDLE_LOOKS == 0:
            held, kept = self._held(participant), participant.kept
            self.found += self._unkept(name, held, kept.rows, len(kept.inbox))
            self.found += self._uncounted(name, held[0], participant.stack.statistics())

    def _unkept(
        self,
        name: str,
        held: tuple[dict[tuple[str, str], Row | None], int],
        kept: Mapping[tuple[str, str], Row | None],
        unread: int,
    ) -> Iterator[Violation]:
        """Yield how what is kept is not what is held; of one table of one participant once."""
        was, unfinished = held
        places = sorted(place for place in was.keys() | kept.keys() if was.get(place) != kept.get(place))
        tables = {table for table, _ in places} - _UNSTEADY - self._told[name]
        self._told[name] |= tables
        for table in sorted(tables):
            rows = [key for of, key in places if of == table]
            told = f"{len(rows)} rows of {table!r} that {name} kept are not what they were, such as {rows[0][:40]!r}"
            yield self._kept_violation(name, told)
        if unread != unfinished and _INBOX not in self._told[name]:
            self._told[name].add(_INBOX)
            yield self._kept_violation(name, f"{name} kept {unread} unread messages and had {unfinished}")

    def _uncounted(
        self, name: str, rows: Mapping[tuple[str, str], Row | None], held: StackStatistics
    ) -> Iterator[Violation]:
        """Yield of what there are not as many rows as a participant says that it holds."""
        tables = Counter(table for (table, _), row in rows.items() if row is not None)
        for table, count in (
            (HISTORY, held.history),
            (OUTGOING, held.unacknowledged),
            (PARKED, held.parked),
            (MISSING, held.missing),
            (REQUESTS, held.open_requests),
            (RETAINED, held.retained),
        ):
            if tables[table] != count and table not in self._told[name]:
                self._told[name].add(table)
                yield self._kept_violation(name, f"{name} holds {count} and keeps {tables[table]} rows of {table!r}")

    def _miscounted(self, participant: Participant, told: ChannelStatistics) -> Iterator[Violation]:
        """Yield what a channel says of itself and is not so, and bounds that it does not keep to without a word."""
        name, options, kept = participant.name, participant.options, participant.kept
        unread_bytes = _unread_bytes(participant)
        is_full = _is_full(participant, told)
        # What cannot be this channel's, by its carrier alone, is counted apart.
        turned_away = told.protocol.unmarked + told.protocol.oversized + told.protocol.foreign_topic
        taken_in = told.protocol.received + turned_away - told.retrieved + told.dropped
        found = {}
        if not told.uncommitted and told.unfinished_bytes != unread_bytes:
            found["bytes"] = f"{name} says that it holds {told.unfinished_bytes} unread bytes, which are {unread_bytes}"
        # The hash of a message does not cover its version: in a damaged answer it may be one that nobody can open.
        damaged = told.protocol.undecryptable if self._plan.bad_nodes or self._plan.garbled else 0
        unnoticed = participant.node.heard - participant.node.waiting - taken_in
        if not is_full and not told.uncommitted and not 0 <= unnoticed <= damaged:
            found["heard"] = f"{name} heard {participant.node.heard} messages and took notice of {taken_in}"
        if told.store_mismatches < participant.node.belied:
            told_of = f"{told.store_mismatches} of {participant.node.belied}"
            found["belied"] = f"{name} took notice of {told_of} messages that a store gave under a hash not theirs"
        spoken_for = self._spoken_for(name, self._world.now_ms - MOMENT_MS)
        is_behind = is_full or told.dropped or told.uncommitted or participant.node.waiting
        # Of what its cipher fails to open a participant takes no notice.
        opens_all = not self._plan.cipher_failures
        if opens_all and not is_behind and told.protocol.forged < spoken_for:
            found["forged"] = f"{name} took notice of {told.protocol.forged} of {spoken_for} words forged in its name"
        said = self._ledger.status_told.get(name)
        status = participant.stack.status
        if not told.uncommitted and said not in {None, status}:
            found["status"] = f"{name} is {status.value}, and what it last said is that it is {said}"
        most = max(options.max_unread_messages, kept.unread_at_opening)
        # Of messages that were set aside the application may have any number handed over again.
        if told.unfinished > most + self._ledger.ever_set_aside(name):
            found["unread"] = f"{name} holds {told.unfinished} unread messages, more than {most}"
        for what in found.keys() - self._told[name]:
            self._told[name].add(what)
            yield self._kept_violation(name, found[what])

    def _kept_violation(self, name: str, sentence: str) -> Violation:
        return self.violation(Invariant.KEPT, name, sentence)

    def _unsought(self, participant: Participant, *, is_full: bool) -> Iterator[Violation]:
        """Yield what a participant lacks, knows by a hint, and never asks the store for though it could."""
        name, now_ms, options, sought = participant.name, self._world.now_ms, participant.options, self._ledger.sought
        hints = {
            sds_id: message.entry.retrieval_hint
            for sds_id, message in participant.stack.sds.missing.items()
            # What came and waits for something else itself is not asked for.
            if message.lacks is None and message.entry.retrieval_hint is not None
        }
        # What waited for its turn when a program ended waits anew.
        life = name, participant.kept.openings
        before, ever = self._unsought_since.get(life, {}), self._ever_sought[name]
        # A later hint of a message waits for the pauses that queries by an earlier one earned. It may come with the
        # answer to the first such query, before anybody looks.
        for sds_id, hint in hints.items():
            self._hints_seen[name, sds_id].add(hint)
        ever |= {sds_id for sds_id in hints if any((name, hint) in sought for hint in self._hints_seen[name, sds_id])}
        since = {sds_id: before.get(sds_id, now_ms) for sds_id in hints if sds_id not in ever}
        self._unsought_since[life] = since
        if is_full:
            self._full_ms[name] = now_ms
        # What is asked by each query waits for the one before.
        overdue_ms = now_ms - 2 * options.retrieve_frequency_ms - _SOUGHT_WITHIN_MS
        is_able = not (self._plan.silence or self._plan.clock_jumps_per_hour or self._plan.hostile)
        is_able = is_able and Limit.STORE_QUERIES not in self._ledger.limits_told[name]
        # What a store brings waits for room at the application, and the next query for that.
        hindered_ms = max(self._ledger.troubled_ms.get(name, 0), self._full_ms.get(name, 0))
        if not is_able or hindered_ms > overdue_ms:
            return
        for sds_id, since_ms in since.items():
            if since_ms < overdue_ms and sds_id not in self._told[name]:
                self._told[name].add(sds_id)
                text = f"{name} has not asked the store for {sds_id[:12]}, which it lacks and has a hint for"
                yield self.violation(Invariant.SOUGHT, name, text)

    def _overstayed(self, participant: Participant) -> Iterator[Violation]:
        """Yield what waits for something missing longer than the gap timeout, in one life and with a network."""
        name, now_ms, timeout_ms = participant.name, self._world.now_ms, participant.options.sds.gap_timeout_ms
        if not timeout_ms:
            return
        before = self._parked_since.get(name, {})
        since = {sds_id: before.get(sds_id, now_ms) for sds_id in participant.stack.sds.parked}
        self._parked_since[name] = since
        overdue_ms = now_ms - timeout_ms - _AROUND_WITHIN_MS
        # Only time in which the missing message can come counts, and that by the clock of the participant. What is read
        # of a store for the time away comes first, as long as that may bring it.
        read_until_ms = self._ledger.hoped_since_ms(name) + _HOPED_FOR_MS
        hindered_ms = max(self._ledger.troubled_ms.get(name, 0), read_until_ms)
        if hindered_ms > overdue_ms or self._plan.clock_jumps_per_hour:
            return
        for sds_id, since_ms in since.items():
            if since_ms < overdue_ms and sds_id not in self._told[name]:
                self._told[name].add(sds_id)
                text = f"{name} still holds {sds_id[:12]} back for what is missing, {timeout_ms} ms after it came"
                yield self.violation(Invariant.WAKES, name, text)

    def _look_for_sends_left_alone(self, held: Mapping[str, StackStatistics]) -> None:
        """See that of each open send something is handed over in every interval of retries, wherever that is possible.

        ``held`` is what each program that runs says that it holds.

        SDS, "Periodic Outgoing Buffer Sweep": what is unacknowledged MUST be rebroadcast, what is possibly acknowledged
        SHOULD wait longer.
        """
        if self._plan.clock_jumps_per_hour and not self.is_healed:
            # Intervals are those of the sender's clock.
            return
        slow = names_of(self._plan)[: self._plan.slow_uplinks] if not self.is_healed else ()
        for name, its in held.items():
            interval_ms = self._world.participants[name].options.retry_interval_ms
            if name in slow or not interval_ms:
                continue
            before_ms = self._world.now_ms - 2 * interval_ms - _REPEATED_WITHIN_MS
            if its.queued:
                # The rate limit or the pace of the node comes first, and what left the queue just now is on its way.
                self._queued_ms[name] = self._world.now_ms
            left_alone = self._ledger.left_alone(name, before_ms)
            if not left_alone or self._queued_ms.get(name, 0) >= before_ms:
                continue
            takes_turns = Limit.ACTIVE_RETRIES in self._ledger.limits_told[name]
            if takes_turns and len(left_alone) < its.open_requests:
                # More is to be sent again than may be at once, and some of it was.
                continue
            for request_id in left_alone:
                if request_id not in self._left_alone:
                    self._left_alone.add(request_id)
                    text = f"{name} handed nothing over of {request_id}, which is open, for {interval_ms // 500 + 60} s"
                    self.found.append(self.violation(Invariant.REPEATED, name, text))

    def _look_for_what_nobody_is_asked_for(self, held: Mapping[str, StackStatistics]) -> None:
        """See that who lacks a message makes repair requests, whatever others ask for (SDS, "SDS Repair (SDS-R)")."""
        plan = self._plan
        if plan.clock_jumps_per_hour or plan.tight_quotas or plan.tiny_quotas or not plan.repairs:
            # Of what found no room what it lacks itself is asked for first.
            return
        for name, its in held.items():
            told = self._told[name]
            if its.queued or _ASKED in told:
                continue
            longest_ms = _LONGEST_WAITS * self._world.participants[name].options.sds.repair.t_max_ms
            # A hostile neighbour asks in the name of others for what none of them asks for.
            for within_ms in (longest_ms,) if plan.hostile else (_ASKED_AGAIN_MS, longest_ms):
                is_asked = within_ms < longest_ms
                lacking = self._ledger.asks_nobody(name, self._world.now_ms - within_ms, again=is_asked)
                if lacking is not None:
                    told.add(_ASKED)
                    asked = "asked for it, and nobody" if is_asked else "asked nobody"
                    text = f"{name} lacks {lacking[:12]} and {asked} for anything for {within_ms // 1_000} s"
                    self.found.append(self.violation(Invariant.ASKED, name, text))
                    break

    def _unreleased(self, name: str, held: StackStatistics) -> Iterator[Violation]:
        """Yield what takes room although it is gone."""
        for what, count, size in (
            ("messages that wait", held.parked, held.parked_bytes),
            ("whole messages that wait for their place", held.awaiting, held.awaiting_bytes),
            ("segments", held.reassembly.open_segments, held.reassembly.buffered_bytes),
        ):
            if (size if count == 0 else size < 0) and what not in self._told[name]:
                self._told[name].add(what)
                yield self._kept_violation(name, f"{name} holds {count} {what}, and counts {size} bytes for them")

    def watch_epochs(self) -> None:
        """See that what the rate limit holds back leaves when an epoch begins."""
        first_ms = self._start_ms + RATE_EPOCH_MS - self._start_ms % RATE_EPOCH_MS
        for begins_ms in range(first_ms, self._start_ms + self._plan.duration_ms, RATE_EPOCH_MS):
            self._world.at(begins_ms - MOMENT_MS, partial(self._before_epoch, begins_ms))

    def _before_epoch(self, begins_ms: int) -> None:
        rules, epoch = self._ledger.rules, begins_ms // RATE_EPOCH_MS - 1
        for name, participant in self._world.participants.items():
            uncounted = rules.overcharged(name, epoch)
            was_there = self._ledger.troubled_ms.get(name, 0) < begins_ms - RATE_EPOCH_MS - AT_REST_MS
            if was_there and participant.channel is not None and uncounted > _CHARGED_UNDER_WAY:
                text = f"{name} counts {uncounted} more messages in an epoch than it handed over"
                self.found.append(self.violation(Invariant.RATE, name, text))
        waiting = {
            name: (participant.lives, self._left_around(name, begins_ms))
            for name, participant in self._world.participants.items()
            if participant.channel is not None
            and participant.stack.statistics().queued
            # Who took that epoch for the present one, by a clock that was wrong, may have nothing left of it.
            and self._ledger.rules.epochs[name, begins_ms // RATE_EPOCH_MS] == 0
        }
        noticed_ms = _EPOCH_NOTICED_MS
        if self._plan.answer_loss or self._plan.silence:
            noticed_ms += _NO_ANSWER_MS
        self._world.at(begins_ms + noticed_ms, partial(self._after_epoch, begins_ms, waiting))

    def _left_around(self, name: str, begins_ms: int) -> int:
        """Return what left in an epoch and in the one before: what waits only while a node rests may leave in that."""
        epochs, epoch = self._ledger.rules.epochs, begins_ms // RATE_EPOCH_MS
        return epochs[name, epoch - 1] + epochs[name, epoch]

    def _after_epoch(self, begins_ms: int, waiting: dict[str, tuple[int, int]]) -> None:
        for name, (lives, had_left) in waiting.items():
            participant = self._world.participants.get(name)
            if participant is None or participant.lives != lives or participant.machine.skew_ms:
                continue
            is_there = self._world.is_reachable(name) and self._ledger.troubled_ms.get(name, 0) < begins_ms - AT_REST_MS
            if is_there and self._clocks.wall_ms(name) and self._left_around(name, begins_ms) == had_left:
                ago_s = (self._world.now_ms - begins_ms) // 1_000
                text = f"{name} let nothing out of what waited for the epoch that began {ago_s} s ago"
                self.found.append(self.violation(Invariant.WAKES, name, text))

    @staticmethod
    def waits_for(held: StackStatistics) -> int:
        """Return of how many things that a participant waits for there are any, or 0 if it waits for nothing."""
        return held.open_requests or held.missing or held.parked or held.queued


def _is_full(participant: Participant, told: ChannelStatistics) -> bool:
    """Return whether a channel takes nothing more in until its application has finished with something."""
    options = participant.options
    return told.unfinished >= options.max_unread_messages or _unread_bytes(participant) >= options.max_unread_bytes


def _content_bytes(root: object) -> int:
    """Return how many bytes an object holds of contents that are neither under way nor kept to repair others."""
    seen, rest, found_bytes = {id(root)}, [root], 0
    while rest:
        for held in gc.get_referents(rest.pop()):
            if id(held) in seen or isinstance(held, _NO_CONTENT):
                continue
            seen.add(id(held))
            if isinstance(held, bytes | bytearray | memoryview):
                found_bytes += len(held) if len(held) > _NAME_BYTES else 0
            else:
                rest.append(held)
    return found_bytes


def _unread_bytes(participant: Participant) -> int:
    return sum(len(message.payload) for message in participant.kept.inbox.values())
