"""`simulate`: plays the script of a plan, brings all participants back, waits until the world is quiet, and checks it.

The network keeps its faults until then. A world is quiet when every participant has all messages that it is owed, and
none waits for anything. Then the faults end, and every program is killed and started again, because its store must have
the state that it had. A last message of several participants must be delivered to all. The world runs on for a while,
because a fault such as a second delivery may come later.
"""

from __future__ import annotations

import logging
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from fairway.channel.statistics import ChannelStatistics
from fairway.events import ChannelStatus, Limit, MessageDelivered, StatusChanged
from fairway.options import Delivery, ReliableChannelOptions
from fairway.protocol.encryption import Encryption
from fairway.protocol.encryption.aead import AesGcm
from fairway.protocol.incoming.delivering import logical_message_id
from fairway.protocol.journal import Row
from fairway.protocol.outgoing.dispatching import RATE_LIMIT
from fairway.protocol.outgoing.requests import REQUESTS
from fairway.protocol.sds.acknowledgements import OUTGOING
from fairway.protocol.sds.channel import HISTORY
from fairway.protocol.sds.dependencies import LONGEST_TURNED_AWAY, MISSING, PARKED
from fairway.protocol.sds.retained import RETAINED
from fairway.protocol.stack_state import JITTER
from fairway.protocol.statistics import StackStatistics
from fairway.simulation.cipher import TroubledCipher
from fairway.simulation.hostile import PESTERED_EVERY_MS, Mallory
from fairway.simulation.invariants import Checks, Invariant, Peaks, TrafficSoFar, Violation, unrest
from fairway.simulation.ledger import MISDATED_MS, Ledger, SimulatedSend
from fairway.simulation.plan import FAST_DISK_MS, SimulationPlan, StoreKind
from fairway.simulation.program import Habits, Reading
from fairway.simulation.report import SimulationReport, make_report
from fairway.simulation.script import Action, Asking, Deed, names_of, write_script
from fairway.simulation.wire_rules import RATE_EPOCH_MS, WireRules
from fairway.simulation.world import DEFAULT_CHANNEL_ID, Participant, World
from fairway.storage.channel_store import Stored
from fairway.testing import DiskFault, DiskFaults, SimulatedDisk
from fairway.units import NS_PER_MS
from fairway.waku.local import NetworkFaults
from fairway.waku.node import RoutedMessage

Progress = Callable[[int, int], None]
"""Called now and then with (virtual time passed, virtual time planned), both in milliseconds."""

_SAMPLE_MS: Final = 30_000
"""Time between two looks at the state of participants."""
_SLOW_PER_SECOND: Final = 0.5
"""Messages that a slow uplink lets out."""
_SLOW_MS: Final = 2_000
"""How long a slow application takes over a message."""
_BUSY_MS: Final = 200
"""How long an application takes over it that has something to do: long enough to be killed amid it."""
_LAST_SPEAKERS: Final = 4
_HARMLESS: Final = frozenset({Deed.SEND, Deed.EPHEMERAL})
_SURE: Final = 1e-4
"""Chance that an acknowledgement, repeated in each sync message, is lost for longer than `_heard_of_ms`."""
_SYNC_MS: Final = 30_000
_KEY: Final = bytes(range(32))
_CALLED: Final = 6
"""How many participants say something in the end, and are asked for by name: in a world of a thousand not all."""
_LONGEST_SETTLING: Final = 9
"""How many times the longest wait without a delivery the world may take in all."""
_CLOCKS_APART_MS: Final = 60_000
"""By so much the time that a store is asked for is longer than the time away."""
_CLOCK_NOTICED_MS: Final = 120_000
"""A clock that was set is followed within this time."""
_AT_REST_MS: Final = 10_000
"""Within this time what is under way to a disk arrives there."""
_INBOX: Final = "inbox"
_IDLE_LOOKS: Final = 10
_SPEAKERS: Final = 2
_AWAY_MS: Final = 120_000
_CAUGHT_UP_MS: Final = 12_000
"""A store that has everything, and answers at once, is read within this time."""
_ASKED_AGAIN: Final = 3
"""So many sends of each participant."""
_GOODBYE_MS: Final = 8_000
"""Within this time, in which a program that stopped is not started again, its goodbye comes."""
_DISK_IN_TIME_MS: Final = 100
"""A program that ends has a second for its goodbye, in which several writes follow one another."""
_CIPHER_IN_TIME_MS: Final = 500
"""In that second its goodbye is sealed, too."""
_UNSTEADY: Final = frozenset({JITTER, RATE_LIMIT})
"""Tables that are kept later than they change: where nothing else changes, they are not worth a write."""
_STORES_TROUBLES: Final = (
    "store_gaps",
    "store_lag_ms",
    "store_lies",
    "clock_skew_ms",
    "clock_jumps_per_hour",
    "cipher_failures",
)
"""Troubles by which a store that was read need not have brought everything."""
_HEALED: Final = NetworkFaults(min_delay_ms=20, max_delay_ms=100)
_FAR: Final = NetworkFaults(min_delay_ms=200, max_delay_ms=300)
"""Answers take so long that it matters whether others are awaited at the same time."""
_MOMENT_MS: Final = 1_000
"""Within this time what is asked of a program reaches it."""
_REPEATED_WITHIN_MS: Final = 60_000
"""By so much longer than two intervals of retries it may take until something is sent again."""
_SOUGHT_WITHIN_MS: Final = 30_000
"""By so much longer than two intervals of retrieval it may take until something is asked for."""
_EPOCH_NOTICED_MS: Final = 10_000
"""Within this time of an epoch something of what waited for it leaves: longer than a node is given a rest."""
_NO_ANSWER_MS: Final = 20_000
"""For so long an answer of a node is waited for; nothing else may leave meanwhile."""
_HOLD_BACK: Final = ("rate_limit", "refusals", "answer_loss", "silence", "node_rate", "slow_uplinks")
"""Troubles by which a sync message that cites something waits while newer content leaves."""
_KEEP_FROM_SPEAKING: Final = (
    *_HOLD_BACK,
    "absences_per_hour",
    "node_deaths_per_hour",
    "deaf_per_hour",
    "pauses_per_hour",
    "mixed_options",
    "option_changes",
    "cipher_delay_ms",
)
_ANSWER_LATE_MS: Final = 5_000
_HEIR: Final = "heir"
_SILENT_MS: Final = 45 * 60_000
"""After such a silence participants wait longest between two sync messages."""
_HEARD_ALONE_MS: Final = 20_000
_LEARNT_MS: Final = 150_000
"""Within this time of the first sync message after a silence, which got lost, the next one comes."""
_INHERITED_MS: Final = 330_000
"""Within this time who lacks something has asked for it, and whoever has it has answered."""
_LONGEST_WAITS: Final = 4
"""Within so many of the longest waits (T_max) whoever lacks something asks again: one doubled, and a sync message."""
_ASKED: Final = "asked"
_SAID_AT_ONCE: Final = 20
_TRIED_MS: Final = 10_000
_AT_ONCE_MS: Final = 4_000
"""Within this time so much leaves through a node that never asked for less."""
_RECOVERED_MS: Final = 90_000
"""Within this time nodes that take everything were handed so much: at a pace that busy nodes taught, if need be."""
_GRACE_MS: Final = 90_000
"""How long a quiet world runs on: long enough for a sync message of every participant."""


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Silence the log of channels, because the report has what matters."""
    log = logging.getLogger("fairway")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


def simulate(plan: SimulationPlan, progress: Progress | None = None) -> SimulationReport:
    """Run a world and return the report. The same plan gives the same run in every process."""
    return Run(plan).through(progress or (lambda _, __: None))


def _patience_ms(plan: SimulationPlan) -> int:
    """Return how long no message may arrive before the world counts as stuck.

    With forgers it is longer than a participant waits for invented messages: all that time it reports that it is
    syncing, because it cannot know that there is no such message.
    """
    waited_ms = LONGEST_TURNED_AWAY * plan.lost_timeout_ms + _CLOCK_NOTICED_MS if plan.hostile else 0
    return max(plan.settle_ms, waited_ms)


def _heard_of_ms(plan: SimulationPlan) -> int:
    """Return the longest time until an acknowledgement arrives, if no participant is offline."""
    if plan.delivery is Delivery.ARRIVAL:
        # What was handed over on arrival may still wait for its place, and is not acknowledged before.
        return plan.duration_ms + (_LONGEST_SETTLING + 1) * _patience_ms(plan)
    loss = plan.loss
    return _SYNC_MS * (4 + (math.ceil(math.log(_SURE) / math.log(loss)) if loss else 0))


class Run:
    """One world while it runs."""

    def __init__(self, plan: SimulationPlan, channel_id: str = DEFAULT_CHANNEL_ID) -> None:
        """Make a world that has not begun; the name of its channel tells it from others in a common archive."""
        self.plan = plan
        self.channel_id = channel_id
        self.is_healed = False
        """Whether nothing goes wrong any more."""
        self._unkept_before: list[Violation] = []
        self._told_unkept: defaultdict[str, set[str]] = defaultdict(set)
        self._unsought_since: dict[str, dict[str, int]] = {}
        """What each participant lacks and never asked a store for, and when that was seen first."""
        self._ever_sought: defaultdict[str, set[str]] = defaultdict(set)
        """SDS ids of what each participant asked a store for, by any hint."""
        self._looks = 0
        self._left_alone: set[str] = set()
        self._readers = 0
        self._blips: dict[str, tuple[int, int]] = {}
        """Of clocks that show a wrong time for a moment, the skew before, and the life in which it began."""
        self._blipped: dict[str, int] = {}
        self._clocks_set: dict[str, int] = {}
        self._queued_ms: dict[str, int] = {}
        """When something was last seen to wait for a rate limit or the pace of a node."""
        self._held_back_until_ms: dict[str, int] = {}
        """Until when something may leave that was stamped while a clock was behind for a moment."""
        self._dice = random.Random(f"people/{plan.seed}")  # noqa: S311 - reproducible, and guards nothing
        self._disk = SimulatedDisk(plan.seed) if plan.store is StoreKind.DISK else None
        if self._disk is not None:
            is_slow = plan.disk_ms > FAST_DISK_MS
            answer_ms = (1.0, float(plan.disk_ms)) if is_slow else (0.0, 0.0)
            self._disk.faults = DiskFaults(latency_ms=(1.0, float(plan.disk_ms)), answer_ms=answer_ms)
        self.world = World(
            (),
            seed=plan.seed,
            faults=plan.faults(),
            options=plan.options(),
            options_of=self._options_of,
            habits_of=self._habits_of,
            channel_id=channel_id,
            encryption=self._cipher_of,
            disk=self._disk,
            skew_ms=lambda _: self._dice.randint(-plan.clock_skew_ms, plan.clock_skew_ms),
        )
        rules = WireRules(plan.profile, plan.options().sds)
        rules.order_is_checked = not plan.cipher_delay_ms
        rules.copies_are_checked = not (
            any(getattr(plan, name) for name in _HOLD_BACK)
            or plan.hostile
            or plan.clock_jumps_per_hour
            or plan.clock_skew_ms
            or plan.cipher_failures
            or plan.tight_quotas
            or plan.tiny_quotas
            or plan.slow_readers
            or plan.storage_faults_per_hour
        )
        # A write takes so long, and as long again until that is known.
        rules.disk_ms = 2 * plan.disk_ms if plan.disk_ms > FAST_DISK_MS else 0
        rules.is_limited = plan.rate_limit is not None
        if not any(getattr(plan, name) for name in _KEEP_FROM_SPEAKING) and plan.disk_ms <= FAST_DISK_MS:
            # RELIABLE-CHANNEL-API, "Synchronization messages": sooner than those that nobody waits for.
            rules.answered_within_ms = plan.options().sync_min_interval_ms // 2 + _ANSWER_LATE_MS
        self.ledger = Ledger(self._holds, rules, self._opened, _heard_of_ms(plan))
        self.ledger.wall_ms = self._wall_ms
        self.ledger.hop_ms = plan.max_delay_ms
        self.ledger.lamport_unit_ms = plan.profile.lamport_unit_ms
        self.ledger.hints_are_checked = not (plan.store_lies or plan.restamped)
        self.ledger.tries_are_counted = not plan.cipher_failures
        self.ledger.was_apart = self.world.was_apart
        self.ledger.is_stored = lambda: not self.world.network.faults.store_loss
        self.ledger.store_is_whole = not any(getattr(plan, name) for name in _STORES_TROUBLES)
        self.ledger.events_come_late = plan.disk_ms > FAST_DISK_MS
        if not (plan.mixed_options or plan.option_changes):
            self.ledger.max_attempts = plan.options().max_handling_attempts
        self.ledger.max_queries_per_minute = plan.options().max_store_queries_per_minute
        haste = random.Random(f"haste/{plan.seed}") if plan.hostile and plan.haste else None  # noqa: S311 - as above
        self.mallory = Mallory(self.world, plan.options(), self._cipher_of("mallory"), self.ledger, haste)
        self.peaks = Peaks()
        self.start_ms = self.world.now_ms
        self.stored: tuple[RoutedMessage, ...] = ()
        """What the store of the world keeps, once it has run."""
        self.world.observers.append(self.ledger)
        for name in names_of(plan)[: plan.slow_uplinks]:
            self.world.network.limit_uplink(name, _SLOW_PER_SECOND)
        for name in names_of(plan):
            self.ledger.joined(name)
            self.world.join(name)
        for action in write_script(plan):
            self.world.at(self.start_ms + action.at_ms, partial(self._act, action))
        if haste is not None:
            for at_ms in range(PESTERED_EVERY_MS, plan.duration_ms, PESTERED_EVERY_MS):
                self.world.at(self.start_ms + at_ms, self.mallory.pester)
            if plan.tight_quotas:
                self.world.at(self.start_ms + plan.duration_ms // 4, self.mallory.flood)
        self.ledger.segments_expire_ms = None if plan.clock_jumps_per_hour else plan.reassembly_timeout_ms
        if plan.rate_limit is not None:
            self._watch_epochs()

    def through(self, progress: Progress) -> SimulationReport:
        """Run to the end."""
        with self.world, _quiet_log():
            try:
                report = self._through(progress)
            finally:
                if self._disk is not None:
                    self._disk.close()
            self.stored = tuple(self.world.network.stored())
            return report

    def _through(self, progress: Progress) -> SimulationReport:
        plan = self.plan
        for passed_ms in range(0, plan.duration_ms, _SAMPLE_MS):
            progress(passed_ms, plan.duration_ms)
            self._run(min(_SAMPLE_MS, plan.duration_ms - passed_ms))
        self._bring_back()
        self._last_words()
        began_ms = self.world.now_ms
        quiet = self._settle(progress)
        settled_ms = self.world.now_ms - began_ms
        unkept: list[Violation] = []
        called: list[str] = []
        if quiet:
            unkept += self._recover()
            quiet = self._settle(progress)
        if quiet:
            unkept += self._start_all_again()
            self._run(_MOMENT_MS)
            unkept += self._ask_again()
            # Whoever speaks cites what nobody cited yet, such as a part of what somebody said who has left: that comes
            # before all can hear all.
            self._send(next(iter(self.world.participants)), b"all are up again", ask_all=False)
            quiet = self._settle(progress)
        if quiet:
            called = self._call_the_roll()
            quiet = self._settle(progress)
        stirred: list[Violation] = []
        if quiet:
            stirred += self._part()
            quiet = self._settle(progress)
        if quiet:
            stirred += self._away()
            quiet = self._settle(progress)
        if quiet and self._has_heirs:
            stirred += self._inherit()
            stirred += self._break_silence()
            self.world.network.faults = _HEALED
            quiet = self._settle(progress)
        if quiet:
            stirred += self._rest()
        else:
            self._run(_GRACE_MS)
        checks = Checks(self.ledger, self.world, self.start_ms)
        # A forger speaks under a name of his own, and under that of whoever hears him.
        others = max(1, len(self.ledger.presences) - 1) + 2 * bool(plan.hostile)
        violations = [
            *self._unkept_before,
            *unkept,
            *checks.everything(),
            *self.peaks.beyond(self.world.options, others, queue_is_bounded=not plan.is_anybody_away),
            *stirred,
        ]
        violations += checks.healed(called)
        if not quiet:
            violations.insert(0, self._unrest())
        return make_report(
            plan,
            self.ledger,
            self.world.network.statistics(),
            checks,
            violations,
            self.peaks,
            quiet=quiet,
            settled_ms=settled_ms,
        )

    def _settle(self, progress: Progress) -> bool:
        """Run until the world is quiet, or no message has come for too long; return whether it is quiet.

        A page of the time away is something, also one that has nothing new. Who walks back through what was said while
        he was away, with no store, takes a while for each step. How long everything took the figures tell.
        """
        plan, began_ms, patience_ms = self.plan, self.world.now_ms, _patience_ms(self.plan)
        # What was just asked of programs has not reached them yet.
        self._run(_MOMENT_MS)
        end_ms, least, read = began_ms + patience_ms, self._to_come(), self._being_read()
        while not (quiet := self._is_quiet()) and self.world.now_ms < end_ms:
            progress(plan.duration_ms, plan.duration_ms)
            self._run(min(_SAMPLE_MS, end_ms - self.world.now_ms))
            to_come = self._to_come()
            before, read = read, self._being_read()
            if to_come < least or any(up_to_ms > before.get(name, up_to_ms) for name, up_to_ms in read.items()):
                least = min(least, to_come)
                end_ms = min(self.world.now_ms, began_ms + _LONGEST_SETTLING * patience_ms) + patience_ms
        return quiet

    def _start_all_again(self) -> list[Violation]:
        """End all faults, kill and restart every program; return the differences between stored and true state."""
        self.is_healed = True
        self.world.network.faults = _HEALED
        for participant in self.world.participants.values():
            participant.habits = replace(participant.habits, raises=0.0)
        for name in self.world.participants:
            self.world.network.limit_uplink(name, None)
        return [violation for name in list(self.world.participants) for violation in self._start_again(name)]

    def _start_again(self, name: str) -> list[Violation]:
        channel = self.world.participants[name].channel
        if channel is None or not self.world.run(_AT_REST_MS, lambda: channel.statistics().uncommitted == 0):
            return []
        self.ledger.note(self.world.now_ms, name, Deed.CRASH.value)
        self.ledger.troubled(self.world.now_ms, name)
        return self._crash(name)

    def _crash(self, name: str) -> list[Violation]:
        """Kill a program and start it again; return the differences between its stored and its true state."""
        participant = self.world.participants[name]
        channel = participant.channel
        if channel is None or channel.statistics().uncommitted:
            self.world.crash(name)
            return []
        held = self._held(participant)
        found: list[Violation] = []

        def look(stored: Stored) -> None:
            kept = {(row.table, row.key): row.row for row in stored.changes}
            found.extend(self._unkept(name, held, kept, len(stored.inbox)))

        self.world.crash(name, look)
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
        name = sorted(self.world.participants)[self._looks % len(self.world.participants)]
        participant = self.world.participants[name]
        if participant.channel is None or participant.channel.statistics().uncommitted:
            return
        if self._waits_for(participant.stack.statistics()) or self._looks % _IDLE_LOOKS == 0:
            held, kept = self._held(participant), participant.kept
            self._unkept_before += self._unkept(name, held, kept.rows, len(kept.inbox))
            self._unkept_before += self._uncounted(name, held[0], participant.stack.statistics())

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
        tables = {table for table, _ in places} - _UNSTEADY - self._told_unkept[name]
        self._told_unkept[name] |= tables
        for table in sorted(tables):
            rows = [key for of, key in places if of == table]
            told = f"{len(rows)} rows of {table!r} that {name} kept are not what they were, such as {rows[0][:40]!r}"
            yield self._kept_violation(name, told)
        if unread != unfinished and _INBOX not in self._told_unkept[name]:
            self._told_unkept[name].add(_INBOX)
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
            if tables[table] != count and table not in self._told_unkept[name]:
                self._told_unkept[name].add(table)
                yield self._kept_violation(name, f"{name} holds {count} and keeps {tables[table]} rows of {table!r}")

    def _miscounted(self, participant: Participant, told: ChannelStatistics) -> Iterator[Violation]:
        """Yield what a channel says of itself and is not so, and bounds that it does not keep to without a word."""
        name, options, kept = participant.name, participant.options, participant.kept
        unread_bytes = sum(len(message.payload) for message in kept.inbox.values())
        is_full = told.unfinished >= options.max_unread_messages or unread_bytes >= options.max_unread_bytes
        # What cannot be this channel's, by its carrier alone, is counted apart.
        turned_away = told.protocol.unmarked + told.protocol.oversized + told.protocol.foreign_topic
        taken_in = told.protocol.received + turned_away - told.retrieved + told.dropped
        found = {}
        if not told.uncommitted and told.unfinished_bytes != unread_bytes:
            found["bytes"] = f"{name} says that it holds {told.unfinished_bytes} unread bytes, which are {unread_bytes}"
        if not is_full and not told.uncommitted and taken_in + participant.node.waiting != participant.node.heard:
            found["heard"] = f"{name} heard {participant.node.heard} messages and took notice of {taken_in}"
        if told.store_mismatches < participant.node.belied:
            told_of = f"{told.store_mismatches} of {participant.node.belied}"
            found["belied"] = f"{name} took notice of {told_of} messages that a store gave under a hash not theirs"
        spoken_for = self.mallory.spoken_for(name, self.world.now_ms - _MOMENT_MS)
        is_behind = is_full or told.dropped or told.uncommitted or participant.node.waiting
        if not is_behind and told.protocol.forged < spoken_for:
            found["forged"] = f"{name} took notice of {told.protocol.forged} of {spoken_for} words forged in its name"
        said = self.ledger.status_told.get(name)
        status = participant.stack.status
        if not told.uncommitted and said not in {None, status}:
            found["status"] = f"{name} is {status.value}, and what it last said is that it is {said}"
        most = max(options.max_unread_messages, kept.unread_at_opening)
        if told.unfinished > most and Limit.UNREAD_MESSAGES not in self.ledger.limits_told[name]:
            found["unread"] = f"{name} holds {told.unfinished} unread messages of {most} and was not told so"
        for what in found.keys() - self._told_unkept[name]:
            self._told_unkept[name].add(what)
            yield self._kept_violation(name, found[what])

    def _kept_violation(self, name: str, sentence: str) -> Violation:
        return self._violation(Invariant.KEPT, name, sentence)

    def _violation(self, invariant: Invariant, name: str, sentence: str) -> Violation:
        at_ms = self.world.now_ms - self.start_ms
        return Violation(invariant=invariant, at_ms=at_ms, participant=name, request_id=None, sentence=sentence)

    def _call_the_roll(self) -> list[str]:
        """Let some participants send a last message to some others by name; return the request ids."""
        world = self.world
        names = sorted(world.participants)
        some = self._dice.sample(names, min(_CALLED, len(names)))
        called = []
        for name in some:
            asked, payload = frozenset(some) - {name}, f"{name} is here".encode()
            request_id = world.send(name, payload, by=asked)
            self.ledger.tried(world.now_ms, name, request_id, payload, asked)
            called.append(request_id)
        # Where the rate limit holds acknowledgements back for an epoch, retries may be over before.
        return called if self.plan.rate_limit is None else []

    def _ask_again(self) -> list[Violation]:
        """Ask each restarted program for the results of its latest sends."""
        asked: list[tuple[SimulatedSend, list[tuple[str, ...] | None]]] = []
        for name in self.world.participants:
            ended = [sent for sent in self.ledger.sent if sent.sender == name and sent.ends and not sent.refused]
            asked += [(sent, self.world.ask_again(name, sent.request_id)) for sent in ended[-_ASKED_AGAIN:]]
        self._run(_MOMENT_MS)
        found = []
        for sent, answers in asked:
            # What was delivered stays so when more was asked of it in vain.
            is_delivered = any(isinstance(event, MessageDelivered) for _, event in sent.ends)
            if len(answers) != 1 or bool(answers[0]) != is_delivered:
                told = "nothing" if not answers else "failure" if answers[0] is None else f"delivery to {answers[0]}"
                text = (
                    f"the receipt of {sent.request_id} of {sent.sender}, asked again after a restart, says {told}, "
                    f"while the event was {type(sent.ends[-1][1]).__name__}"
                )
                found.append(
                    Violation(
                        invariant=Invariant.WORD,
                        at_ms=self.world.now_ms - self.start_ms,
                        participant=sent.sender,
                        request_id=sent.request_id,
                        sentence=text,
                    )
                )
        return found

    def _part(self) -> Iterator[Violation]:
        """Let somebody end its program in order, right after it read a message: its goodbye acknowledges that."""
        world = self.world
        speaker, *_, reader = sorted(world.participants)
        is_late = self.plan.disk_ms > _DISK_IN_TIME_MS or self.plan.cipher_delay_ms > _CIPHER_IN_TIME_MS
        is_slow = is_late or world.participants[reader].habits.slow_ms
        if self.plan.rate_limit is not None or is_slow or world.participants[reader].channel is None:
            return
        payload = f"until soon, {reader}".encode()
        request_id = world.send(speaker, payload, by=(reader,))
        self.ledger.tried(world.now_ms, speaker, request_id, payload, (reader,))
        sent = self.ledger.request(request_id)
        sent.is_staged = True
        self._run(_MOMENT_MS)
        # Where sealing and opening take a while.
        world.run(_MOMENT_MS * 4, lambda: reader in sent.deliveries)
        world.stop(reader)
        self.ledger.troubled(world.now_ms, reader)
        world.run(_GOODBYE_MS, lambda: bool(sent.ends))
        if not sent.ends:
            yield Violation(
                invariant=Invariant.HEALED,
                at_ms=world.now_ms - self.start_ms,
                participant=reader,
                request_id=request_id,
                sentence=f"{reader} stopped after it was sent {request_id} and never told {speaker} that it has it",
            )

    def _away(self) -> Iterator[Violation]:
        """Let somebody be away while others speak: who comes back to a healed world has it all at once, and says so."""
        world = self.world
        *speakers, absent = sorted(world.participants)[: _SPEAKERS + 1]
        participant = world.participants[absent]
        if participant.habits.slow_ms or participant.channel is None or self.plan.rate_limit is not None:
            return
        if 2 * self.plan.clock_skew_ms > _CLOCKS_APART_MS or self.plan.clock_jumps_per_hour:
            # A store is asked for a time by one clock, and keeps what others stamped by theirs.
            return
        world.go_offline(absent)
        self.ledger.troubled(world.now_ms, absent)
        said = []
        for name in speakers:
            payload = f"{name} speaks while {absent} is away".encode()
            request_id = world.send(name, payload)
            self.ledger.tried(world.now_ms, name, request_id, payload)
            said.append(self.ledger.request(request_id))
            said[-1].is_staged = True
        self._run(_AWAY_MS)
        world.go_online(absent)
        self.ledger.troubled(world.now_ms, absent)
        seen = len(participant.events)
        world.run(_CAUGHT_UP_MS, lambda: all(absent in sent.deliveries for sent in said))
        synced = [
            at_ms
            for at_ms, event in participant.events[seen:]
            if isinstance(event, StatusChanged) and event.status is ChannelStatus.SYNCED
        ]
        for sent in said:
            if sent.accepted_ms is None or sent.refused:
                continue
            times = sent.deliveries.get(absent)
            text = None
            if times is None:
                text = (
                    f"{absent} was back for {_CAUGHT_UP_MS // 1_000} s and had not got {sent.request_id} from the store"
                )
            elif synced and synced[0] < times[0]:
                text = f"{absent} said that it is synced before it had got {sent.request_id}"
            if text is not None:
                at_ms = world.now_ms - self.start_ms
                yield Violation(
                    invariant=Invariant.HEALED,
                    at_ms=at_ms,
                    participant=absent,
                    request_id=sent.request_id,
                    sentence=text,
                )

    @property
    def _has_heirs(self) -> bool:
        """Whether what somebody said who left is looked for: where nothing else is amiss, and a loss is soon told."""
        plan, timeout_ms = self.plan, self.plan.lost_timeout_ms
        amiss = plan.rate_limit or plan.hostile or plan.encrypted or plan.clock_skew_ms or plan.clock_jumps_per_hour
        is_sound = all(each.channel is not None for each in self.world.participants.values())
        return not amiss and plan.repairs and is_sound and 2 * _INHERITED_MS > timeout_ms > _INHERITED_MS

    def _inherit(self) -> Iterator[Violation]:
        """Let somebody speak and leave, of whom each other one heard a part: they must have it from one another.

        Nobody has the first message, one has the second, which waits for it, and another one the third. No store has
        any. At last the loss of the first is told, and all have the others.
        """
        world, plan = self.world, self.plan
        one, other, *_ = sorted(world.participants)
        world.network.faults = replace(_HEALED, store_loss=1.0)
        self.ledger.joined(_HEIR)
        world.join(_HEIR)
        self._run(_MOMENT_MS * 5)
        said = []
        for hearers in ((), (one,), (other,)):
            world.sever((_HEIR, *hearers))
            request_id = world.send(_HEIR, payload := f"for {hearers} alone".encode())
            self.ledger.tried(world.now_ms, _HEIR, request_id, payload)
            said.append(self.ledger.request(request_id))
            said[-1].is_staged = True
            self._run(_MOMENT_MS)
        world.leave(_HEIR)
        self.ledger.left(world.now_ms, _HEIR)
        world.mend()

        def is_inherited() -> bool:
            return all(self._holds(other, sds_id) for sds_id in said[1].sds_ids)

        if said[1].sds_ids and not world.run(_INHERITED_MS, is_inherited):
            text = f"{other} lacks for {_INHERITED_MS // 1_000} s what {one} has, whose sender has left"
            yield self._violation(Invariant.HEALED, other, text)
        self._run(plan.lost_timeout_ms + _INHERITED_MS)

    def _break_silence(self) -> Iterator[Violation]:
        """Let somebody speak after a long silence and leave: who alone heard it must not wait long to tell the others.

        The first that he says of it gets lost.
        """
        world = self.world
        one, *others = sorted(world.participants)
        name = f"{_HEIR} of silence"
        self.ledger.joined(name)
        world.join(name)
        self._run(_SILENT_MS)
        world.sever((name, one))
        request_id = world.send(name, b"is anybody there?")
        self.ledger.tried(world.now_ms, name, request_id, b"is anybody there?")
        sent = self.ledger.request(request_id)
        sent.is_staged = True
        self._run(_MOMENT_MS)
        world.leave(name)
        self.ledger.left(world.now_ms, name)
        world.sever((one,))
        self._run(_HEARD_ALONE_MS)
        world.mend()

        def is_known() -> bool:
            # Some learn of it first, and tell the rest.
            stacks = (world.participants[other].stack.sds for other in others)
            return any(sds.has(sds_id) or sds_id in sds.missing for sds in stacks for sds_id in sent.sds_ids)

        if sent.sds_ids and not world.run(_LEARNT_MS, is_known):
            text = f"after a silence {one} heard something and did not tell of it again for {_LEARNT_MS // 1_000} s"
            yield self._violation(Invariant.HEALED, one, text)
        self._run(_INHERITED_MS)

    def _rest(self) -> Iterator[Violation]:
        """Go on for a while in which nothing is left to do; yield what was done all the same, or not."""
        before = TrafficSoFar.until_now(self.ledger, self.world.now_ms)
        names = sorted(self.world.participants)[:_CALLED]
        # Where a limit holds, ephemeral messages are the first that are dropped.
        said = [] if self.plan.rate_limit is not None or self.plan.tight_quotas or self.plan.tiny_quotas else names
        for name in said:
            self.ledger.ephemeral_sent += 1
            self.world.send_ephemeral(name, f"{name} says in passing".encode())
        self._run(_GRACE_MS)
        yield from unrest(before, self.ledger, self.world)
        for name in said:
            message_id = logical_message_id(f"{name} says in passing".encode())
            for other in self.world.participants:
                habits = self.world.participants[other].habits
                if other != name and not habits.slow_ms and (other, message_id) not in self.ledger.ephemeral_heard:
                    yield Violation(
                        invariant=Invariant.HEALED,
                        at_ms=None,
                        participant=other,
                        request_id=None,
                        sentence=f"{other} never heard the ephemeral message that {name} sent in a healed world",
                    )

    def _run(self, for_ms: int) -> None:
        self.world.run(for_ms)
        for participant in self.world.participants.values():
            if not self.world.is_reachable(participant.name):
                self.ledger.troubled(self.world.now_ms, participant.name)
            if participant.channel is not None:
                told = participant.channel.statistics()
                self.peaks.note(told.protocol)
                self._unkept_before += self._unreleased(participant.name, told.protocol)
                self._unkept_before += self._miscounted(participant, told)
                self._unkept_before += self._unsought(participant)
        self._look_into_one()
        self._look_for_sends_left_alone()
        self._look_for_what_nobody_is_asked_for()

    def _unsought(self, participant: Participant) -> Iterator[Violation]:
        """Yield what a participant lacks, knows by a hint, and never asks the store for though it could."""
        name, now_ms, options, sought = participant.name, self.world.now_ms, participant.options, self.ledger.sought
        hints = {
            sds_id: message.entry.retrieval_hint
            for sds_id, message in participant.stack.sds.missing.items()
            # What came and waits for something else itself is not asked for.
            if message.lacks is None and message.entry.retrieval_hint is not None
        }
        before, ever = self._unsought_since.get(name, {}), self._ever_sought[name]
        # A later hint of a message waits for the pauses that queries by an earlier one earned.
        ever |= {sds_id for sds_id, hint in hints.items() if (name, hint) in sought}
        since = {sds_id: before.get(sds_id, now_ms) for sds_id in hints if sds_id not in ever}
        self._unsought_since[name] = since
        # What is asked by each query waits for the one before.
        overdue_ms = now_ms - 2 * options.retrieve_frequency_ms - _SOUGHT_WITHIN_MS
        is_able = not (self.plan.silence or self.plan.clock_jumps_per_hour or self.plan.hostile)
        is_able = is_able and Limit.STORE_QUERIES not in self.ledger.limits_told[name]
        if not is_able or self.ledger.troubled_ms.get(name, 0) > overdue_ms:
            return
        for sds_id, since_ms in since.items():
            if since_ms < overdue_ms and sds_id not in self._told_unkept[name]:
                self._told_unkept[name].add(sds_id)
                text = f"{name} has not asked the store for {sds_id[:12]}, which it lacks and has a hint for"
                yield self._violation(Invariant.SOUGHT, name, text)

    def _look_for_sends_left_alone(self) -> None:
        """See that of each open send something is handed over in every interval of retries, wherever that is possible.

        SDS, "Periodic Outgoing Buffer Sweep": what is unacknowledged MUST be rebroadcast, what is possibly acknowledged
        SHOULD wait longer.
        """
        if self.plan.clock_jumps_per_hour and not self.is_healed:
            # Intervals are those of the sender's clock.
            return
        slow = names_of(self.plan)[: self.plan.slow_uplinks] if not self.is_healed else ()
        for name, participant in self.world.participants.items():
            interval_ms = participant.options.retry_interval_ms
            if participant.channel is None or name in slow or not interval_ms:
                continue
            before_ms = self.world.now_ms - 2 * interval_ms - _REPEATED_WITHIN_MS
            held = participant.stack.statistics()
            if held.queued:
                # The rate limit or the pace of the node comes first, and what left the queue just now is on its way.
                self._queued_ms[name] = self.world.now_ms
            left_alone = self.ledger.left_alone(name, before_ms)
            if not left_alone or self._queued_ms.get(name, 0) >= before_ms:
                continue
            takes_turns = Limit.ACTIVE_RETRIES in self.ledger.limits_told[name]
            if takes_turns and len(left_alone) < held.open_requests:
                # More is to be sent again than may be at once, and some of it was.
                continue
            for request_id in left_alone:
                if request_id not in self._left_alone:
                    self._left_alone.add(request_id)
                    text = f"{name} handed nothing over of {request_id}, which is open, for {interval_ms // 500 + 60} s"
                    self._unkept_before.append(self._violation(Invariant.REPEATED, name, text))

    def _look_for_what_nobody_is_asked_for(self) -> None:
        """See that whoever lacks something asks for it, whatever others ask for (SDS, "SDS Repair (SDS-R)")."""
        plan = self.plan
        if plan.clock_jumps_per_hour or plan.tight_quotas or plan.tiny_quotas or not plan.repairs:
            # Of what found no room what it lacks itself is asked for first.
            return
        for name, participant in self.world.participants.items():
            told = self._told_unkept[name]
            if participant.channel is None or participant.stack.statistics().queued or _ASKED in told:
                continue
            within_ms = _LONGEST_WAITS * participant.options.sds.repair.t_max_ms
            lacking = self.ledger.asks_nobody(name, self.world.now_ms - within_ms)
            if lacking is not None:
                told.add(_ASKED)
                text = f"{name} lacks {lacking[:12]} and asked nobody for anything for {within_ms // 60_000} min"
                self._unkept_before.append(self._violation(Invariant.ASKED, name, text))

    def _unreleased(self, name: str, held: StackStatistics) -> Iterator[Violation]:
        """Yield what takes room although it is gone."""
        for what, count, size in (
            ("messages that wait", held.parked, held.parked_bytes),
            ("whole messages that wait for their place", held.awaiting, held.awaiting_bytes),
            ("segments", held.reassembly.open_segments, held.reassembly.buffered_bytes),
        ):
            if (size if count == 0 else size < 0) and what not in self._told_unkept[name]:
                self._told_unkept[name].add(what)
                yield self._kept_violation(name, f"{name} holds {count} {what}, and counts {size} bytes for them")

    def _watch_epochs(self) -> None:
        """See that what the rate limit holds back leaves when an epoch begins."""
        first_ms = self.start_ms + RATE_EPOCH_MS - self.start_ms % RATE_EPOCH_MS
        for begins_ms in range(first_ms, self.start_ms + self.plan.duration_ms, RATE_EPOCH_MS):
            self.world.at(begins_ms - _MOMENT_MS, partial(self._before_epoch, begins_ms))

    def _before_epoch(self, begins_ms: int) -> None:
        waiting = {
            name: (participant.lives, self._left_around(name, begins_ms))
            for name, participant in self.world.participants.items()
            if participant.channel is not None and participant.stack.statistics().queued
        }
        noticed_ms = _EPOCH_NOTICED_MS
        if self.plan.answer_loss or self.plan.silence:
            noticed_ms += _NO_ANSWER_MS
        self.world.at(begins_ms + noticed_ms, partial(self._after_epoch, begins_ms, waiting))

    def _left_around(self, name: str, begins_ms: int) -> int:
        """Return what left in an epoch and in the one before: what waits only while a node rests may leave in that."""
        epochs, epoch = self.ledger.rules.epochs, begins_ms // RATE_EPOCH_MS
        return epochs[name, epoch - 1] + epochs[name, epoch]

    def _after_epoch(self, begins_ms: int, waiting: dict[str, tuple[int, int]]) -> None:
        for name, (lives, had_left) in waiting.items():
            participant = self.world.participants.get(name)
            if participant is None or participant.lives != lives or participant.machine.skew_ms:
                continue
            is_there = self.world.is_reachable(name) and self.ledger.troubled_ms.get(name, 0) < begins_ms - _AT_REST_MS
            if is_there and self._wall_ms(name) and self._left_around(name, begins_ms) == had_left:
                ago_s = (self.world.now_ms - begins_ms) // 1_000
                text = f"{name} let nothing out of what waited for the epoch that began {ago_s} s ago"
                self._unkept_before.append(self._violation(Invariant.WAKES, name, text))

    def _recover(self) -> Iterator[Violation]:
        """Heal the network only, and let some say much at once: programs that live on must make use of it."""
        plan, world = self.plan, self.world
        world.network.faults = _HEALED
        for name in world.participants:
            world.network.limit_uplink(name, None)
        if plan.rate_limit is not None or plan.encrypted or plan.storage_faults_per_hour:
            return
        if self._recovered_ms < _RECOVERED_MS:
            # After a refusal one message at a time is tried, until one is taken.
            for name in list(world.participants)[:_SPEAKERS]:
                self._send(name, f"{name} tries again".encode(), ask_all=True)
            self._run(_TRIED_MS)
            world.network.faults = _FAR
        said: list[SimulatedSend] = []
        # Who had a slow uplink has learned to wait.
        speakers = sorted(world.participants.keys() - set(names_of(plan)[: plan.slow_uplinks]))[:_SPEAKERS]
        for name in speakers:
            if world.participants[name].channel is None:
                continue
            for number in range(_SAID_AT_ONCE):
                payload = f"{name} can be heard again {number}".encode()
                request_id = world.send(name, payload)
                self.ledger.tried(world.now_ms, name, request_id, payload)
                said.append(self.ledger.request(request_id))
                said[-1].is_staged = True
        world.run(self._recovered_ms, lambda: all(sent.times_sent or sent.ends for sent in said))
        world.network.faults = _HEALED
        for name in sorted(world.participants):
            late = [
                sent for sent in said if sent.sender == name and sent.accepted_ms and not (sent.times_sent or sent.ends)
            ]
            if late and not any(sent.refused for sent in late):
                within_s = self._recovered_ms // 1_000
                text = f"{len(late)} of {_SAID_AT_ONCE} messages of {name} had not left {within_s} s later"
                yield self._violation(Invariant.WAKES, name, f"when nodes took everything again, {text}")

    @property
    def _recovered_ms(self) -> int:
        """Within what time much that is said at once leaves, where nothing goes wrong any more."""
        plan = self.plan
        was_told_to_slow_down = plan.refusals or plan.node_rate is not None or plan.slow_uplinks
        is_slow = plan.silence or plan.disk_ms > FAST_DISK_MS or plan.slow_readers or plan.tiny_quotas
        # Who hands over one message at a time waits for each answer.
        is_slow = is_slow or plan.mixed_options or plan.option_changes
        return _RECOVERED_MS if was_told_to_slow_down or is_slow else _AT_ONCE_MS

    def _act(self, action: Action) -> None:
        world, now_ms = self.world, self.world.now_ms
        if action.deed is Deed.JOIN:
            self.ledger.joined(action.names[0])
        elif not set(action.names) <= world.participants.keys():
            return
        self.ledger.note(now_ms, " ".join(action.names), action.deed.value)
        if action.deed not in _HARMLESS:
            for name in action.names:
                self.ledger.troubled(now_ms, name)
        match action:
            case Action(deed=Deed.SEVER, sides=sides):
                world.sever(*sides)
            case Action(deed=Deed.FORGE, number=number):
                self.mallory.forge(number)
            case Action(deed=Deed.MEND):
                world.mend()
            case Action(deed=deed, names=(name,)):
                self._do(deed, name, action)

    def _last_words(self) -> None:
        """Let a few participants send when all faults are over: all must get these messages and acknowledge them."""
        self._run(_SAMPLE_MS)
        for name in list(self.world.participants)[:_LAST_SPEAKERS]:
            self._send(name, f"{name} is back".encode(), ask_all=True)

    def _send(self, name: str, payload: bytes, *, ask_all: bool, count: int = 1, more: Asking | None = None) -> None:
        world = self.world
        if world.participants[name].channel is None:
            # Its program is being started again, and cannot be asked to.
            return
        others = frozenset(world.participants) - {name}
        asked, count = others if ask_all else frozenset[str](), max(1, min(count, len(others)))
        further: list[str] = []
        if more is not None and others:
            # Where all are asked for at first, somebody is asked for twice.
            further = [self._dice.choice(sorted(others - asked or others))]
        request_id = world.send(name, payload, count=count, by=asked, more=further, when=more or Asking.DELIVERED)
        self.ledger.tried(world.now_ms, name, request_id, payload, asked, count)

    def _do(self, deed: Deed, name: str, action: Action) -> None:
        world = self.world
        match deed:
            case Deed.SEND:
                self._send(name, action.payload, ask_all=action.ask_all, count=action.ask_count, more=action.more)
            case Deed.EPHEMERAL:
                self.ledger.ephemeral_sent += 1
                world.send_ephemeral(name, action.payload)
            case Deed.CRASH:
                self._unkept_before += self._crash(name)
            case Deed.CUT:
                world.cut(name)
            case Deed.CUT_OFF:
                world.cut_off(name)
            case Deed.OFFLINE:
                world.go_offline(name)
            case Deed.ONLINE:
                world.go_online(name)
            case Deed.NODE_DIES:
                world.lose_node(name, silently=bool(action.number))
            case Deed.NODE_BACK:
                world.find_node(name)
            case Deed.DEAF:
                world.deafen(name)
            case Deed.CLOCK:
                self._blips.pop(name, None)
                self._clocks_set[name] = world.now_ms
                world.set_clock(name, action.number)
            case Deed.BLIP:
                self._blip(name, action.number)
            case Deed.DISK if self._disk is not None:
                faults = list(DiskFault)
                self._disk.strike(name, faults[action.number % len(faults)])
            case Deed.PAUSE:
                world.pause(name, action.number)
            case Deed.JOIN:
                world.join(name)
            case Deed.LEAVE:
                world.leave(name)
                self.ledger.left(world.now_ms, name)

    def _blip(self, name: str, ahead_ms: int) -> None:
        """Set a clock wrongly, until a call with 0 sets it right; no channel should follow it meanwhile."""
        participant = self.world.participants[name]
        skew_ms = participant.machine.skew_ms
        if ahead_ms and name not in self._blips:
            self._blips[name] = skew_ms, participant.lives
            self.world.set_clock(name, skew_ms + ahead_ms)
        elif not ahead_ms and name in self._blips:
            was_behind = skew_ms < self._blips[name][0]
            skew_ms, lives = self._blips.pop(name)
            self.world.set_clock(name, skew_ms)
            if was_behind and (self.plan.disk_ms > FAST_DISK_MS or self.plan.cipher_delay_ms):
                # What was stamped amid it is still with the disk or the cipher.
                self._held_back_until_ms[name] = self.world.now_ms + MISDATED_MS
            changed_ms = max(self._clocks_set.get(name, 0), self._blipped.get(name, 0))
            self._blipped[name] = self.world.now_ms
            if lives != participant.lives or self.world.now_ms - changed_ms < _CLOCK_NOTICED_MS:
                # Whoever began amid it knows no other time, and of several changes in a row nobody knows which lasts.
                self._clocks_set[name] = self.world.now_ms

    def _bring_back(self) -> None:
        self.world.mend()
        for name, participant in list(self.world.participants.items()):
            self._blip(name, 0)
            self.world.find_node(name)
            if abs(participant.machine.skew_ms) > self.plan.clock_skew_ms:
                self._clocks_set[name] = self.world.now_ms
                self.world.set_clock(name, 0)
            if not participant.online:
                self.ledger.note(self.world.now_ms, name, Deed.ONLINE.value)
                self.world.go_online(name)

    def _options_of(self, _name: str, life: int) -> ReliableChannelOptions:
        plan = self.plan
        if plan.mixed_options if life == 1 else self._dice.random() < plan.option_changes:
            return plan.other_options(self._dice)
        return plan.options()

    def _habits_of(self, name: str) -> Habits:
        is_slow = name in names_of(self.plan)[: self.plan.slow_readers]
        reading = self._dice.choice(list(Reading))
        if self.plan.handler_failures:
            # Only handlers are called again: where they fail, every other program has some.
            self._readers += 1
            reading = Reading.HANDLERS if self._readers % 2 else self._dice.choice(list(Reading))
        # Where nobody is killed it makes no difference, but to figures.
        is_killed = self.plan.crashes_per_hour or self.plan.cuts_per_hour or self.plan.storage_faults_per_hour
        busy_ms = self._dice.choice((0, 0, _BUSY_MS)) if is_killed else 0
        slow_ms = _SLOW_MS if is_slow else busy_ms
        return Habits(
            reading=reading,
            slow_ms=slow_ms,
            raises=self.plan.handler_failures,
            is_direct=self.plan.direct_readers and bool(self._dice.randrange(2)),
        )

    def _cipher_of(self, name: str) -> Encryption | None:
        plan = self.plan
        if not plan.encrypted:
            return None
        dice = random.Random(f"cipher/{plan.seed}/{name}")  # noqa: S311 - reproducible, and guards nothing
        sealed = AesGcm(_KEY, random_bytes=dice.randbytes)
        failures = 0.0 if self.is_healed else plan.cipher_failures
        if not (plan.cipher_delay_ms or failures):
            return sealed
        return TroubledCipher(sealed, dice, plan.cipher_delay_ms, failures)

    def _opened(self, payload: bytes) -> bytes:
        return AesGcm(_KEY).decrypt(payload) if self.plan.encrypted else payload

    def _is_quiet(self) -> bool:
        return not self._waiting() and self._lacking() == 0

    def _to_come(self) -> int:
        """Return the number of lacking deliveries and of messages known to be missing."""
        running = (each for each in self.world.participants.values() if each.channel is not None)
        return self._lacking() + sum(each.stack.statistics().missing for each in running)

    def _being_read(self) -> dict[str, int]:
        """Return how far each participant has read a store that waits for nothing else.

        With small pages, few queries a minute and answers that get lost this takes hours.
        """
        return {
            name: self.ledger.read_up_to_ms[name]
            for name, participant in self.world.participants.items()
            if name in self.ledger.read_up_to_ms
            and participant.channel is not None
            and participant.channel.status is ChannelStatus.SYNCING
            and not participant.stack.statistics().missing
        }

    def _lacking(self) -> int:
        return Checks(self.ledger, self.world, self.start_ms).lacking()

    def _waiting(self) -> list[str]:
        """Return for each participant a sentence on what it waits for."""
        waiting = []
        for name, participant in self.world.participants.items():
            if participant.channel is None:
                waiting.append(f"the program of {name} does not run")
                continue
            held = participant.stack.statistics()
            if participant.channel.status is not ChannelStatus.SYNCED:
                waiting.append(f"{name} says that it is {participant.channel.status.value}")
            elif self._waits_for(held):
                waiting.append(
                    f"{name} has {held.open_requests} open sends, {held.missing} missing, {held.parked} parked and "
                    f"{held.queued} queued messages"
                )
        return waiting

    @staticmethod
    def _waits_for(held: StackStatistics) -> int:
        return held.open_requests or held.missing or held.parked or held.queued

    def _unrest(self) -> Violation:
        text = "; ".join([f"{self._lacking()} deliveries are lacking", *self._waiting()])
        return Violation(
            invariant=Invariant.QUIET,
            at_ms=self.world.now_ms - self.start_ms,
            participant=None,
            request_id=None,
            sentence=f"nothing came for {_patience_ms(self.plan) / 60_000:.0f} minutes, and it is not quiet: {text}",
        )

    def _wall_ms(self, name: str) -> int | None:
        participant = self.world.participants.get(name)
        if participant is None or self.world.now_ms - self._clocks_set.get(name, 0) < _CLOCK_NOTICED_MS:
            return None
        if self.world.now_ms < self._held_back_until_ms.get(name, 0):
            return None
        ahead_ms = 0
        if name in self._blips:
            # No channel that ran before follows a clock that is ahead for a moment; one that is behind it follows.
            skew_ms, lives = self._blips[name]
            ahead_ms = participant.machine.skew_ms - skew_ms
            if lives != participant.lives or ahead_ms < 0:
                return None
        return participant.machine.time_ns() // NS_PER_MS - ahead_ms

    def _holds(self, name: str, sds_id: str) -> bool:
        """Return whether a participant has an SDS message, received or rebuilt, as far as that can be seen."""
        participant = self.world.participants.get(name) or self.world.departed[name]
        if participant.channel is None:
            # Between two lives, and of a channel that is stopped, nobody can be asked.
            return True
        return participant.stack.sds.has(sds_id)
