"""`simulate`: plays the script of a plan, brings all participants back, waits until the world is quiet, and checks it.

The network keeps its faults until then. A world is quiet when every participant has all messages that it is owed, and
none waits for anything. Then the faults end, and every program is killed and started again, because its store must have
the state that it had. A last message of several participants must be delivered to all. The world runs on for a while,
because a fault such as a second delivery may come later.
"""

from __future__ import annotations

import gc
import logging
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from fairway.events import ChannelStatus
from fairway.options import BloomPolicy, Delivery, IdRule, ReliableChannelOptions
from fairway.protocol.encryption import Encryption
from fairway.protocol.encryption.aead import AesGcm
from fairway.protocol.ratelimit import RlnProofProvider
from fairway.protocol.sds.dependencies import LONGEST_TURNED_AWAY
from fairway.simulation.cipher import TroubledCipher
from fairway.simulation.clocks import CLOCK_NOTICED_MS, Clocks
from fairway.simulation.costs import Costs
from fairway.simulation.foreign import ForeignTongue
from fairway.simulation.hostile import ASKED_FOR_ALL_EVERY_MS, PESTERED_EVERY_MS, Mallory
from fairway.simulation.invariants import Checks, Invariant, Violation
from fairway.simulation.ledger import Ledger
from fairway.simulation.light import LightNetwork
from fairway.simulation.looks import MOMENT_MS, Looks
from fairway.simulation.memberships import Memberships, ProofRules
from fairway.simulation.plan import FAST_DISK_MS, LONGEST_HISTORY, SHORTEST_INTERVAL_MS, SimulationPlan, StoreKind
from fairway.simulation.program import Habits, Reading
from fairway.simulation.report import SimulationReport, report_conversation
from fairway.simulation.scenes import GRACE_MS, Scenes
from fairway.simulation.script import Action, Asking, Deed, longest_jump_ms, names_of, write_script
from fairway.simulation.wire_rules import RATE_EPOCH_MS, WireRules
from fairway.simulation.world import DEFAULT_CHANNEL_ID, World
from fairway.testing import DiskFault, DiskFaults, SimulatedDisk
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
_CONNECTED_MS: Final = 60_000
"""Within this time a light client that starts has found service nodes, and so has its program opened its channel."""
_SILENT_MS: Final = (1_000, 5_000, 20_000, 40_000, 120_000)
"""How long a link is silent: shorter and longer than what a light client, a request or a keep-alive waits."""
_HARMLESS: Final = frozenset({Deed.SEND, Deed.EPHEMERAL})
_SURE: Final = 1e-4
"""Chance that an acknowledgement, repeated in each sync message, is lost for longer than `_heard_of_ms`."""
_SYNC_MS: Final = 30_000
_KEY: Final = bytes(range(32))
_COLLECTED_AFTER: Final = 50_000
"""Python's collector runs after so many new objects that are held; its own default of 700 takes 7 % of the time."""
_LONGEST_SETTLING: Final = 9
"""How many times the longest wait without a delivery the world may take in all."""
_STORES_TROUBLES: Final = (
    "service_nodes",
    "store_gaps",
    "store_lag_ms",
    "store_lies",
    "clock_skew_ms",
    "clock_jumps_per_hour",
    "cipher_failures",
)
"""Troubles by which a store that was read need not have brought everything."""
_HOLD_BACK: Final = (
    "service_nodes",
    "rate_limit",
    "rln_limit",
    "refusals",
    "answer_loss",
    "silence",
    "node_rate",
    "slow_uplinks",
)
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
_OTHER_CHANCES: Final = 1_000_000_007
"""A seed that is so far away draws otherwise, and is that of no other world."""


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


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Look for cycles of garbage less often: a world makes few, and nearly all that it holds it keeps to its end."""
    before = gc.get_threshold()
    gc.set_threshold(_COLLECTED_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def simulate(plan: SimulationPlan, progress: Progress | None = None, *, chances: int = 0) -> SimulationReport:
    """Run a world and return the report. The same plan gives the same run in every process.

    With other ``chances`` the same is said and goes wrong at the same times, and what is drawn meanwhile is otherwise.
    """
    return Run(plan, chances=chances).through(progress or (lambda _, __: None))


def _patience_ms(plan: SimulationPlan) -> int:
    """Return how long no message may arrive before the world counts as stuck.

    It is longer than a participant waits for messages that never come: those that a forger invents, and the rest of a
    send that its cipher refused amid it. All that time it reports that it is syncing, because it cannot know that there
    is no such message.
    """
    never_come = plan.hostile or plan.cipher_failures
    waited_ms = LONGEST_TURNED_AWAY * plan.lost_timeout_ms + CLOCK_NOTICED_MS if never_come else 0
    return max(plan.settle_ms, waited_ms)


def _heard_of_ms(plan: SimulationPlan) -> int:
    """Return the longest time until an acknowledgement arrives, if no participant is offline."""
    if plan.delivery is Delivery.ARRIVAL:
        # What was handed over on arrival may still wait for its place, and is not acknowledged before.
        return plan.duration_ms + (_LONGEST_SETTLING + 1) * _patience_ms(plan)
    # A sync message that a node refuses is as lost as one that gets lost on its way: the next one is made later.
    loss = 1 - (1 - plan.loss) * (1 - plan.refusals)
    # What a rate limit has no room for waits for the next epoch, which comes later where a clock is set back.
    set_back_ms = 2 * longest_jump_ms(plan) if plan.clock_jumps_per_hour else 0
    held_back_ms = RATE_EPOCH_MS + set_back_ms if plan.is_limited else 0
    return held_back_ms + _SYNC_MS * (4 + (math.ceil(math.log(_SURE) / math.log(loss)) if loss else 0))


class Run:
    """One world while it runs."""

    def __init__(self, plan: SimulationPlan, channel_id: str = DEFAULT_CHANNEL_ID, *, chances: int = 0) -> None:
        """Make a world that has not begun; the name of its channel tells it from others in a common archive."""
        self.plan = plan
        self.channel_id = channel_id
        self._readers = 0
        self._keyless: set[str] = set()
        """Names of those whose cipher encrypts nothing any more."""
        self._dice = random.Random(f"people/{plan.seed}")  # noqa: S311 - reproducible, and guards nothing
        self._disk = SimulatedDisk(plan.seed) if plan.store is StoreKind.DISK else None
        if self._disk is not None:
            is_slow = plan.disk_ms > FAST_DISK_MS
            answer_ms = (1.0, float(plan.disk_ms)) if is_slow else (0.0, 0.0)
            self._disk.faults = DiskFaults(latency_ms=(1.0, float(plan.disk_ms)), answer_ms=answer_ms)
        self._memberships = None if plan.rln_limit is None else Memberships(plan.rln_limit, plan.seed)
        self.world = World(
            (),
            seed=plan.seed + _OTHER_CHANCES * chances,
            faults=plan.faults(),
            options=plan.options(),
            options_of=self._options_of,
            habits_of=self._habits_of,
            channel_id=channel_id,
            encryption=self._hook_of,
            rln=self._membership_of,
            disk=self._disk,
            skew_ms=lambda _: self._dice.randint(-plan.clock_skew_ms, plan.clock_skew_ms),
            service_nodes=plan.service_nodes,
            garbled=plan.garbled,
            bad_nodes=plan.bad_nodes,
            vice=plan.vice,
        )
        rules = WireRules(plan.profile, plan.options().sds)
        rules.order_is_checked = not plan.cipher_delay_ms
        rules.cipher_ms = plan.cipher_delay_ms
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
        if plan.store is StoreKind.DISK:
            # A write takes so long, and with a slow disk as long again until that is known.
            rules.disk_ms = 2 * plan.disk_ms if plan.disk_ms > FAST_DISK_MS else plan.disk_ms
        rules.answers_are_counted = not any(getattr(plan, name) for name in (*_HOLD_BACK, "clock_jumps_per_hour"))
        if not (plan.hostile or plan.clock_jumps_per_hour):
            rules.answers_wait_ms = plan.options().sds.repair.t_max_ms
            is_opened = not (plan.cipher_failures or plan.cipher_delay_ms)
            rules.answers_are_called_off = rules.answers_are_counted and is_opened
        rules.has_filters = self._has_filters
        rules.is_limited = plan.is_limited
        rules.configured = plan.rate_limit
        rules.answers_hang = bool(plan.silence)
        rules.under_way = plan.options().max_concurrent_publishes
        rules.interval_ms = plan.options().sync_min_interval_ms
        if plan.mixed_options or plan.option_changes:
            rules.longest_history = LONGEST_HISTORY
            rules.interval_ms = min(rules.interval_ms, SHORTEST_INTERVAL_MS)
        if not any(getattr(plan, name) for name in _KEEP_FROM_SPEAKING) and plan.disk_ms <= FAST_DISK_MS:
            # RELIABLE-CHANNEL-API, "Synchronization messages": sooner than those for which no sender waits.
            rules.answered_within_ms = plan.options().sync_min_interval_ms // 2 + _ANSWER_LATE_MS
        rules.approached_threshold = plan.options().rate_limit.approached_threshold
        self.ledger = Ledger(self._holds, rules, self._opened, _heard_of_ms(plan))
        if self._memberships is not None:
            self.ledger.proofs = ProofRules(self._memberships.limit_of)
            self._memberships.others_signed = self.ledger.others_signed
            rules.membership_of = self._memberships.limit_of
            rules.used_by_others = self._memberships.used_by_others
        self._clocks = Clocks(self.world, plan)
        self._looks = Looks(self.world, plan, self.ledger, self._clocks, self._spoken_for)
        self.ledger.wall_ms = self._clocks.wall_ms
        self.ledger.hop_ms = plan.max_delay_ms
        self.ledger.lamport_unit_ms = plan.profile.lamport_unit_ms
        self.ledger.lamport_lead_ms = plan.profile.lamport_lead * plan.profile.lamport_unit_ms
        self.ledger.is_on_arrival = self.world.options.delivery is Delivery.ARRIVAL
        self.ledger.hints_are_checked = not (plan.store_lies or plan.restamped)
        self.ledger.can_give = self._can_give
        all_cut_alike = not (plan.mixed_options or plan.option_changes)
        id_rule = self.world.options.sds.id_rule
        self.ledger.lost_ids_follow = all_cut_alike and id_rule is not IdRule.KECCAK_TIMESTAMP
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
        self._scenes = Scenes(
            self.world, plan, self.ledger, self._looks, self._clocks, self._dice, self._holds, self._keyless
        )
        self.start_ms = self.world.now_ms
        self.stored: tuple[RoutedMessage, ...] = ()
        """What the store of the world keeps, once it has run."""
        self._costs = Costs()
        self.world.observers += [self.ledger, self._costs]
        self.ledger.slow_uplinks = frozenset(names_of(plan)[: plan.slow_uplinks])
        for name in names_of(plan)[: plan.slow_uplinks]:
            self.world.network.limit_uplink(name, _SLOW_PER_SECOND)
        for name in names_of(plan):
            self.ledger.joined(name)
            self.world.join(name)
        for action in write_script(plan):
            self.world.at(self.start_ms + action.at_ms, partial(self._act, action))
        if haste is not None:
            self.world.at(self.start_ms + PESTERED_EVERY_MS, self._pester)
            if plan.tight_quotas:
                self.world.at(self.start_ms + plan.duration_ms // 4, self.mallory.flood)
        if plan.hostile and plan.insatiable:
            self.world.at(self.start_ms + ASKED_FOR_ALL_EVERY_MS, self._ask_for_all)
        # A clock that is set lets so much time pass at once.
        jump_ms = 2 * longest_jump_ms(plan) if plan.clock_jumps_per_hour else 0
        self.ledger.segments_expire_ms = plan.reassembly_timeout_ms - jump_ms
        if plan.is_limited:
            self._looks.watch_epochs()

    def through(self, progress: Progress) -> SimulationReport:
        """Run to the end."""
        with _quiet_log(), _seldom_collected(), self.world:
            try:
                report = self._through(progress)
            finally:
                if self._disk is not None:
                    self._disk.close()
                if self._memberships is not None:
                    self._memberships.close()
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
        report = report_conversation(
            plan,
            self.ledger,
            self.world.network.statistics(),
            Checks(self.ledger, self.world, self.start_ms),
            self._looks.peaks,
            over_ms=self.world.now_ms,
            settled_ms=self.world.now_ms - began_ms,
        )
        unkept: list[Violation] = []
        called: list[str] = []
        if quiet:
            unkept += self._scenes.recover()
            quiet = self._settle(progress)
        if quiet:
            unkept += self._looks.hoards()
            unkept += self._scenes.start_all_again()
            self._run(MOMENT_MS)
            if plan.service_nodes:
                self.world.run(_CONNECTED_MS, lambda: all(each.channel for each in self.world.participants.values()))
            unkept += self._scenes.ask_again()
            # A message cites all that is uncited, such as a segment of a participant that has left. This one does so
            # before the messages that all must acknowledge.
            self._send(next(iter(self.world.participants)), b"all are up again", ask_all=False)
            quiet = self._settle(progress)
        if quiet:
            called = self._scenes.call_the_roll()
            quiet = self._settle(progress)
        stirred: list[Violation] = []
        if quiet:
            stirred += self._scenes.part()
            quiet = self._settle(progress)
        if quiet:
            stirred += self._scenes.away()
            quiet = self._settle(progress)
        if quiet:
            stirred += self._scenes.press()
            stirred += self._scenes.halt()
            stirred += self._scenes.arrive_late()
            stirred += self._scenes.exhaust()
            stirred += self._scenes.share_a_node()
            stirred += self._scenes.overtake()
            self._scenes.crowd()
            quiet = self._settle(progress)
        if quiet and self._scenes.has_heirs:
            stirred += self._scenes.inherit()
            stirred += self._scenes.cite_amid()
            stirred += self._scenes.break_silence()
            stirred += self._scenes.fall_behind()
            self._scenes.come_back_late()
            quiet = self._settle(progress)
        # What it waits for is told before the time of grace, in which that may come.
        unrest = [] if quiet else [self._unrest()]
        if quiet:
            stirred += self._scenes.rest()
            if self._scenes.all_answer:
                stirred += self._scenes.answer()
                stirred += self._scenes.lecture()
                stirred += self._scenes.last_word()
            stirred += self._scenes.rebuild()
            stirred += self._scenes.start_again_amid()
            stirred += self._scenes.repeat()
            stirred += self._scenes.fall_offline_amid()
            self._scenes.put_down()
            self._scenes.put_away()
            self._scenes.finish_amid_a_pause()
            if self._scenes.has_heirs:
                stirred += self._scenes.set_right()
                stirred += self._scenes.set_right_unheard()
            stirred += self._scenes.set_right_refused()
            stirred += self._scenes.set_right_amid_two_lives()
            stirred += self._scenes.correct_a_hint()
            stirred += self._scenes.look_back()
            stirred += self._scenes.look_back_twice()
            stirred += self._scenes.ask_for_many()
            stirred += self._scenes.ask_a_silent_store()
            stirred += self._scenes.lose_the_key()
            stirred += self._scenes.hear_another()
            stirred += self._scenes.ask_a_silent_store_again()
            # Who lacks something meanwhile asks stores in vain, and then for a while less often.
            stirred += self._scenes.ask_more()
            self._scenes.hold_up()
            stirred += self._scenes.ask_unheard()
            stirred += self._scenes.miss_a_ping()
            stirred += self._scenes.keep_nothing()
            stirred += self._scenes.turn_down()
            stirred += self._scenes.stand_aside()
            self._scenes.forget_a_doubt()
            # It teaches a pace that it takes long to forget.
            stirred += self._scenes.queue_up()
            stirred += self._scenes.contradict(self.mallory)
            quiet = self._settle(progress)
            unrest = [] if quiet else [self._unrest()]
        else:
            self._run(GRACE_MS)
        checks = Checks(self.ledger, self.world, self.start_ms)
        # A forger uses a name of his own, and that of each participant that receives his messages.
        others = max(1, len(self.ledger.presences) - 1) + 2 * bool(plan.hostile)
        violations = [
            *unrest,
            *self._looks.found,
            *unkept,
            *checks.everything(),
            *self._looks.peaks.beyond(self.world.options, others, queue_is_bounded=not plan.is_anybody_away),
            *stirred,
        ]
        violations += checks.healed(called)
        violations += self._fell_short()
        network = self.world.network
        requests = network.requests if isinstance(network, LightNetwork) else {}
        costs = self._costs.of(report, self.ledger, requests)
        return report.judged(self.ledger, checks, violations, costs, quiet=quiet)

    def _run(self, for_ms: int) -> None:
        self.world.run(for_ms)
        self._looks.look()

    def _settle(self, progress: Progress) -> bool:
        """Run until the world is quiet, or no message has come for too long; return whether it is quiet.

        A delivery is something, also while ever more is known to be missing. So is a page of the time away, also one
        that has nothing new, and another try of a send, which ends after so many. Who walks back through what was said
        while he was away, with no store, takes a while for each step. How long everything took the figures tell.
        """
        plan, began_ms, patience_ms = self.plan, self.world.now_ms, _patience_ms(self.plan)
        # What was just asked of programs has not reached them yet.
        self._run(MOMENT_MS)
        end_ms, least, read = began_ms + patience_ms, self._to_come(), self._being_read()
        delivered, tries = self._delivered(), self._tries()
        while not (quiet := self._is_quiet()) and self.world.now_ms < end_ms:
            progress(plan.duration_ms, plan.duration_ms)
            self._run(min(_SAMPLE_MS, end_ms - self.world.now_ms))
            to_come = self._to_come()
            before, read = read, self._being_read()
            had, delivered = delivered, self._delivered()
            tried, tries = tries, self._tries()
            if (
                to_come < least
                or delivered > had
                or tries != tried
                or any(up_to_ms > before.get(name, up_to_ms) for name, up_to_ms in read.items())
            ):
                least = min(least, to_come)
                end_ms = min(self.world.now_ms, began_ms + _LONGEST_SETTLING * patience_ms) + patience_ms
        return quiet

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
                self._looks.found += self._looks.crash(name)
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
            case Deed.RESET:
                world.reset(name, action.number)
            case Deed.STALL:
                world.stall(name, action.number, _SILENT_MS[action.number % len(_SILENT_MS)])
            case Deed.CLOCK:
                self._clocks.set(name, action.number)
            case Deed.BLIP:
                self._clocks.blip(name, action.number)
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

    def _pester(self) -> None:
        if not self._looks.is_healed:
            self.mallory.pester()
            self.world.at(self.world.now_ms + PESTERED_EVERY_MS, self._pester)

    def _ask_for_all(self) -> None:
        if not self._looks.is_healed:
            self.mallory.ask_for_all()
            self.world.at(self.world.now_ms + ASKED_FOR_ALL_EVERY_MS, self._ask_for_all)

    def _bring_back(self) -> None:
        self.world.mend()
        for name, participant in list(self.world.participants.items()):
            self._clocks.blip(name, 0)
            self.world.find_node(name)
            self._clocks.set_right(name)
            if not participant.online:
                self.ledger.note(self.world.now_ms, name, Deed.ONLINE.value)
                self.world.go_online(name)

    def _options_of(self, _name: str, life: int) -> ReliableChannelOptions:
        plan = self.plan
        if plan.mixed_options if life == 1 else self._dice.random() < plan.option_changes:
            return plan.other_options(self._dice)
        return plan.options()

    def _has_filters(self, name: str) -> bool:
        """Return whether a participant gives each message a bloom filter: with mixed options not all do alike."""
        participant = self.world.participants.get(name) or self.world.departed[name]
        return participant.options.sds.bloom_policy is BloomPolicy.ALWAYS

    def _habits_of(self, name: str) -> Habits:
        is_slow = name in names_of(self.plan)[: self.plan.slow_readers]
        reading = self._dice.choice(list(Reading))
        if self.plan.handler_failures:
            # Only handlers are called again: where they fail, every other program has some.
            self._readers += 1
            reading = Reading.HANDLERS if self._readers % 2 else self._dice.choice(list(Reading))
        # If no program is killed, this changes only figures.
        is_killed = self.plan.crashes_per_hour or self.plan.cuts_per_hour or self.plan.storage_faults_per_hour
        busy_ms = self._dice.choice((0, 0, _BUSY_MS)) if is_killed else 0
        slow_ms = _SLOW_MS if is_slow else busy_ms
        return Habits(
            reading=reading,
            slow_ms=slow_ms,
            raises=self.plan.handler_failures,
            impatience=self.plan.impatience,
            is_direct=self.plan.direct_readers and bool(self._dice.randrange(2)),
        )

    def _hook_of(self, name: str) -> Encryption | None:
        plan, encryption = self.plan, self._cipher_of(name)
        is_foreign = name in names_of(plan)[: plan.foreign]
        return ForeignTongue(name, plan.profile.codec, encryption) if is_foreign else encryption

    def _cipher_of(self, name: str) -> Encryption | None:
        plan = self.plan
        if not plan.encrypted:
            return None
        dice = random.Random(f"cipher/{plan.seed}/{name}")  # noqa: S311 - reproducible, and guards nothing
        encrypted = AesGcm(_KEY, random_bytes=dice.randbytes)
        failures = 0.0 if self._looks.is_healed else plan.cipher_failures
        is_broken = partial(self._keyless.__contains__, name)
        return TroubledCipher(encrypted, dice, plan.cipher_delay_ms, failures, is_broken)

    def _membership_of(self, name: str) -> RlnProofProvider | None:
        if self._memberships is None:
            return None
        if self._looks.is_healed:
            return self._memberships.open(name, is_shared=self.plan.rln_shared)
        return self._memberships.open(name, failures=self.plan.rln_failures, is_shared=self.plan.rln_shared)

    def _spoken_for(self, name: str, before_ms: int) -> int:
        return self.mallory.spoken_for(name, before_ms)

    def _opened(self, payload: bytes) -> bytes:
        return AesGcm(_KEY).decrypt(payload) if self.plan.encrypted else payload

    def _is_quiet(self) -> bool:
        return not self._waiting() and self._lacking() == 0

    def _to_come(self) -> int:
        """Return the number of lacking deliveries and of messages known to be missing."""
        running = (each for each in self.world.participants.values() if each.channel is not None)
        return self._lacking() + sum(each.stack.statistics().missing for each in running)

    def _delivered(self) -> int:
        return sum(len(sent.deliveries) for sent in self.ledger.sent)

    def _tries(self) -> dict[str, int]:
        """Return how often each participant has sent the segments of its open sends.

        Where a node takes little, and nobody keeps segments for as long as they take, they are sent for hours in vain.
        """
        return {
            name: sum(segment.attempts for segment in participant.stack.requests.segments.values())
            for name, participant in self.world.participants.items()
            if participant.channel is not None
        }

    def _being_read(self) -> dict[str, int]:
        """Return how far each participant that reads a store has got.

        With small pages, few queries a minute and answers that get lost this takes hours, more so beside queries for
        what forgers invented. Missing messages are given up only when it is over.
        """
        return {
            name: self.ledger.read_up_to_ms[name]
            for name, participant in self.world.participants.items()
            if name in self.ledger.read_up_to_ms
            and participant.channel is not None
            and participant.channel.status is ChannelStatus.SYNCING
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
            if self._looks.waits_for(held):
                waiting.append(
                    f"{name} has {held.open_requests} open sends, {held.missing} missing, {held.parked} parked and "
                    f"{held.queued} queued messages"
                )
        return waiting

    def _fell_short(self) -> Iterator[Violation]:
        """Yield what light clients did not do for their programs."""
        network = self.world.network
        for at_s, name, sentence in network.watch.found if isinstance(network, LightNetwork) else ():
            at_ms = int(at_s * 1_000)
            yield Violation(
                invariant=Invariant.SERVED, at_ms=at_ms, participant=name, request_id=None, sentence=sentence
            )

    def _unrest(self) -> Violation:
        text = "; ".join([f"{self._lacking()} deliveries are lacking", *self._waiting()])
        return Violation(
            invariant=Invariant.QUIET,
            at_ms=self.world.now_ms - self.start_ms,
            participant=None,
            request_id=None,
            sentence=f"nothing came for {_patience_ms(self.plan) / 60_000:.0f} minutes, and it is not quiet: {text}",
        )

    def _holds(self, name: str, sds_id: str) -> bool:
        """Return whether a participant has an SDS message, received or rebuilt, as far as that can be seen."""
        participant = self.world.participants.get(name) or self.world.departed[name]
        if participant.channel is None:
            # Between two lives, and after a channel was stopped, there is no stack to ask.
            return True
        return participant.stack.sds.has(sds_id)

    def _can_give(self, name: str, sds_id: str) -> bool:
        """Return whether others can have an SDS message because it came to a participant, as far as that can be seen.

        What it does not retain any more it cannot send again; but a store has that, unless it has gaps.
        """
        participant = self.world.participants[name]
        if participant.channel is None:
            return True
        sds = participant.stack.sds
        return sds_id in (sds.retained if self.plan.store_gaps else sds.history) or sds_id in sds.parked
