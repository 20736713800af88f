"""`World`: participants of one channel under virtual time, on a network that loses, delays and duplicates messages.

Each participant is an `Application` on a `ReliableChannel` over a node of a `LocalNetwork`. It has a machine of its own
and a store that survives its crashes. A world

1. plays its script (`fairway.simulation.workload`),
2. brings all participants back and waits, with the same network faults, until every message is delivered,
3. ends the faults of the network, and lets some participants send a last message to all,
4. kills and starts all programs again, and
5. watches the channel at rest.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from fairway.channel.reliable_channel import ReliableChannel
from fairway.encryption import AesGcm
from fairway.environment import environment
from fairway.errors import ChannelClosedError, NodeUnavailableError, StorageError
from fairway.events import ChannelStatus, DeliveryError, MessageDelivered
from fairway.identity import Identity, Members
from fairway.nodes.local import LocalNetwork, LocalNode, NetworkFaults
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.options import ReliableChannelOptions
from fairway.simulation.application import Application, ChannelArguments, Wish
from fairway.simulation.forger import NAME as FORGER
from fairway.simulation.forger import Forger
from fairway.simulation.history import History, Invariant, Traffic
from fairway.simulation.invariants import exceeded, judge, sizes, unequal
from fairway.simulation.plan import MINUTE_MS, Plan, Trouble
from fairway.simulation.report import Report
from fairway.simulation.store_watch import Kept, WatchedStore
from fairway.simulation.workload import (
    Absence,
    Action,
    ClockJump,
    Crash,
    FailingDisk,
    Forge,
    Join,
    Leave,
    SendEphemeral,
    SendMessage,
    Split,
    all_names,
    first_names,
    write_script,
)
from fairway.storage.channel_store import ChannelStore
from fairway.storage.memory_store import MemoryStore
from fairway.testing import Machine, Process, SimulatedDisk, VirtualLoop, run
from fairway.units import NS_PER_MS

CONTENT_TOPIC: Final = "/fairway/1/harbour/proto"
_STEP_MS: Final = 30_000
"""Interval between two looks at the channels."""
_SETTLE_MS: Final = 6 * 60 * MINUTE_MS
"""Time in which a channel must come to rest."""
_LAST_WORDS: Final = 4
_LAST_WORDS_MS: Final = 40 * MINUTE_MS
"""Time for the last messages, which may wait for a new epoch of the rate limit."""
_RESTARTED_MS: Final = 10 * MINUTE_MS
_REST_MS: Final = 10 * MINUTE_MS
_SYNCS_AT_REST: Final = 20
"""Allowed sync messages of a participant at rest: one in 30 s."""
_OVERDUE: Final = 20
"""Allowed copies of failed sends at rest."""
_SLOW_MS: Final = 2_000
_DOWN_MS: Final = 20_000
"""Longest time until a program that ended is started again."""
_MAX_LOG: Final = 10_000
"""Messages that a store keeps: all of a world, because logs are compared from their beginning."""
_COLLECTED_AFTER: Final = 50_000
"""Objects until Python collects garbage; its default of 700 costs 7 % of the time of a world."""

Progress = Callable[[int], object]
"""Called repeatedly with the virtual time so far, in milliseconds."""


@dataclass(slots=True, kw_only=True)
class Participant:
    """A participant over all its lives."""

    name: str
    machine: Machine
    slow_ms: int
    dice: Random
    memory: MemoryStore = field(default_factory=lambda: MemoryStore(kept_messages=_MAX_LOG))
    kept: Kept = field(default_factory=Kept)
    wishes: dict[str, Wish] = field(default_factory=dict)
    absence: str | None = None
    is_running: bool = False
    node: LocalNode
    process: Process
    application: Application | None = None

    @property
    def channel(self) -> ReliableChannel | None:
        """The channel of the present life, while it is started."""
        channel = self.application.channel if self.application is not None and self.is_running else None
        return channel if channel is not None and channel.is_started() else None


class _WatchedNetwork(LocalNetwork):
    """A network that reports the answers of its store."""

    answered: Callable[[str, RoutedMessage], None]

    def answer(self, asker: LocalNode, query: StoreQuery, cursor: bytes | None) -> StorePage:
        page = super().answer(asker, query, cursor)
        for message in page.messages:
            self.answered(asker.name, message)
        return page


class World:
    """One run of a plan."""

    network: _WatchedNetwork

    def __init__(
        self,
        plan: Plan,
        *,
        options: ReliableChannelOptions | None = None,
        channel_id: str = "harbour",
    ) -> None:
        """Make a world that has not begun; ``options`` replace those of the plan."""
        self.plan = plan
        self.options = plan.options() if options is None else options
        self.channel_id = channel_id
        self.participants: dict[str, Participant] = {}
        self.departed: dict[str, Participant] = {}
        """Participants that left for good."""
        self.stored: tuple[RoutedMessage, ...] = ()
        """Messages in the store of the network at the end."""
        is_encrypted = Trouble.ENCRYPTION in plan.troubles
        # Machines draw nonces from their own randomness, which is that of the seed.
        random_bytes = lambda count: environment().random_bytes(count)  # noqa: E731
        self._encryption = AesGcm(bytes(range(32)), random_bytes=random_bytes) if is_encrypted else None
        self._members = self._listed_members() if Trouble.SIGNATURES in plan.troubles else None
        self.history = History(self.options, self._now_ms, self._encryption, is_signed=self._members is not None)
        self._dice = Random(f"world/{plan.seed}")  # noqa: S311 - reproducible, not secret
        self._disk = SimulatedDisk(plan.seed) if plan.on_disk else None
        self._max_delay_ms = plan.faults().max_delay_ms
        self._forger: Forger | None = None
        self._loop: VirtualLoop | None = None
        self._queries: defaultdict[tuple[str, int], deque[int]] = defaultdict(deque)
        self._context = copy_context()
        self._sends = 0

    def run(self, progress: Progress = lambda _: None) -> Report:
        """Run to the end."""
        with _quiet_log(), _seldom_collected():
            try:
                return run(self._live(progress), seed=self.plan.seed)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - an error is the outcome of the world
                self.history.violate(Invariant.RUNS, f"the world ended with {error!r}")
                return Report.of(self.plan, self.history).judged(self.history)
            finally:
                if self._disk is not None:
                    self._disk.close()

    def clock_ns(self) -> int:
        """Return the true time, in Unix nanoseconds."""
        return self._machine.time_ns()

    async def _live(self, progress: Progress) -> Report:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop, self._machine, self._context = loop, Machine(loop), copy_context()
        self._open_network()
        for name in first_names(self.plan):
            self._join(name)
        for action in write_script(self.plan):
            self._later(action.at_ms, self._act, action)
        for passed_ms in range(0, self.plan.duration_ms, _STEP_MS):
            progress(passed_ms)
            await asyncio.sleep(_STEP_MS / 1_000)
            self._look()
        self._end_troubles()
        settled = await self._wait(self._is_at_rest, _SETTLE_MS)
        report = Report.of(self.plan, self.history)
        if settled:
            self.network.faults = NetworkFaults()
            await self._last_words()
            await self._restart_all()
            await self._rest()
        else:
            self.history.violate(Invariant.QUIET, f"the channel does not come to rest: {self._unrest()}")
        judge(self.history)
        for participant in self.participants.values():
            self._kill(participant)
        for context in loop.errors:
            self.history.violate(Invariant.RUNS, f"nobody awaited {context.get('exception') or context['message']!r}")
        loop.errors.clear()
        self.stored = tuple(self.network.stored())
        self.network.close()
        return report.judged(self.history)

    def _open_network(self) -> None:
        self.network = _WatchedNetwork(self.plan.faults(), seed=self.plan.seed, clock_ns=self._machine.time_ns)
        self.network.answered = self.history.heard
        self.network.hearing_observers.append(self.history.heard)
        self.network.sending_observers.append(self.history.handed_to_node)
        self.network.observers.append(self.history.published)
        self.network.query_observers.append(self._queried)
        if self._disk is not None:
            self._disk.on_crash = self._crash
        if self.plan.has_forger:
            self._forger = Forger(
                self.network.node(FORGER),
                self.channel_id,
                self.options,
                self.history,
                self._machine.time_ns,
                reads=Trouble.ENCRYPTION not in self.plan.troubles,
                identity=self._identity_of(FORGER) if self._members is not None else None,
                is_member=self._members is None or FORGER in self._members,
            )
            self.network.observers.append(self._forger.heard)

    def _identity_of(self, name: str) -> Identity:
        return Identity(hashlib.sha256(f"{self.plan.seed}/{name}".encode()).digest())

    def _listed_members(self) -> Members:
        """Return the keys of all participants, and of a hostile member."""
        names = all_names(self.plan) + ([FORGER] if Trouble.FORGERY in self.plan.troubles else [])
        return Members({name: self._identity_of(name).public_key for name in names})

    # The script.

    def _act(self, action: Action) -> None:
        self.history.note(type(action).__name__, action.name, str(action.at_ms))
        match action:
            case Join(name=name):
                self._join(name)
            case Split(side=side, for_ms=for_ms):
                self.network.partition(side)
                self._later(for_ms, self.network.heal)
            case Forge(number=number) if self._forger is not None:
                self._spawn(self._forger.forge(number))
            case _ if action.name in self.participants:
                self._act_on(self.participants[action.name], action)

    def _act_on(self, participant: Participant, action: Action) -> None:
        match action:
            case SendMessage(payload=payload, to_all=to_all, deadline_s=deadline_s):
                self._send(participant, payload, to_all=to_all, deadline_s=deadline_s)
            case SendEphemeral(payload=payload):
                if participant.is_running and participant.application is not None:
                    participant.process.spawn(participant.application.send_ephemeral(payload))
            case Leave():
                self._kill(participant)
                self.history.left.add(participant.name)
                self.departed[participant.name] = self.participants.pop(participant.name)
            case Crash():
                self._crash(participant.name)
            case FailingDisk(fault=fault) if self._disk is not None:
                self._disk.strike(participant.name, fault)
            case Absence(kind=kind, for_ms=for_ms) if participant.absence is None:
                participant.absence = kind
                self._apply_absence(participant)
                self._later(for_ms, self._return, participant)
            case ClockJump(ahead_ms=ahead_ms, for_ms=for_ms):
                participant.machine.skew_ms = ahead_ms
                self._later(for_ms, setattr, participant.machine, "skew_ms", 0)

    def _send(self, participant: Participant, payload: bytes, *, to_all: bool, deadline_s: float | None = None) -> str:
        name, request_id = participant.name, f"{participant.name}-{self._sends}"
        self._sends += 1
        by = frozenset(self.participants.keys() - {name}) if to_all else frozenset()
        participant.wishes[request_id] = Wish(payload=payload, by=by, deadline_s=deadline_s)
        self.history.sending(name, request_id, payload, by, has_deadline=deadline_s is not None)
        if participant.is_running and participant.application is not None:
            participant.process.spawn(participant.application.follow(request_id))
        return request_id

    def _apply_absence(self, participant: Participant) -> None:
        match participant.absence:
            case "offline":
                participant.node.go_offline()
            case "lost":
                participant.node.die()
            case "silent":
                participant.node.die(silently=True)
            case "deaf":
                participant.node.go_deaf()

    def _return(self, participant: Participant) -> None:
        if participant.absence is not None:
            participant.absence = None
            participant.node.come_back()
            participant.node.go_online()

    def _end_troubles(self) -> None:
        self.network.heal()
        for participant in self.participants.values():
            participant.machine.skew_ms = 0
            self._return(participant)

    # Lives.

    def _join(self, name: str) -> None:
        machine = Machine(self._running_loop)
        is_slow = Trouble.SLOW_READER in self.plan.troubles and self._dice.random() < 0.5
        self.history.joined[name] = None
        self.participants[name] = Participant(
            name=name,
            machine=machine,
            slow_ms=_SLOW_MS if is_slow else 0,
            dice=Random(f"{self.plan.seed}/{name}"),  # noqa: S311 - reproducible, not secret
            node=self.network.node(name),
            process=Process(name, machine),
        )
        self._start(self.participants[name])

    def _start(self, participant: Participant) -> None:
        name = participant.name
        self.history.lives[name] += 1
        participant.is_running = True
        participant.node.store_available = self.plan.store
        self._apply_absence(participant)
        store: ChannelStore = participant.memory if self._disk is None else self._disk.store(name)
        arguments = ChannelArguments(
            node=participant.node,
            channel_id=self.channel_id,
            content_topic=CONTENT_TOPIC,
            options=self.options,
            store=WatchedStore(name, store, participant.kept, self.history),
            encryption=self._encryption,
            identity=self._identity_of(name) if self._members is not None else None,
            members=self._members,
        )
        participant.application = Application(
            name, arguments, participant.wishes, self.history, participant.slow_ms, participant.dice
        )
        task = participant.process.spawn(participant.application.run())
        task.add_done_callback(partial(self._ended, participant, self.history.lives[name]), context=self._context)

    def _ended(self, participant: Participant, life: int, task: asyncio.Task[None]) -> None:
        """Start a program again whose channel failed."""
        if task.cancelled() or not participant.is_running or self.history.lives[participant.name] != life:
            return
        error = task.exception()
        if not isinstance(error, StorageError | NodeUnavailableError | ChannelClosedError):
            self.history.violate(Invariant.RUNS, f"the program of {participant.name} ended with {error!r}")
        self._crash(participant.name)

    def _crash(self, name: str) -> None:
        participant = self.participants.get(name)
        if participant is not None and participant.is_running:
            self._kill(participant)
            self._later(self._dice.randint(0, _DOWN_MS), self._start_again, participant)

    def _start_again(self, participant: Participant) -> None:
        if self.participants.get(participant.name) is participant and not participant.is_running:
            participant.node = self.network.node(participant.name)
            participant.process = Process(participant.name, participant.machine)
            self._start(participant)

    def _kill(self, participant: Participant) -> None:
        """End a program at once: first its outputs, then its tasks."""
        participant.is_running = False
        participant.process.is_alive = False
        if self._disk is None:
            participant.memory.close()
        else:
            self._disk.power_loss(participant.name)
        participant.node.leave()
        participant.process.kill()

    # The end.

    async def _wait(self, until: Callable[[], bool], for_ms: int) -> bool:
        for _ in range(0, for_ms, _STEP_MS):
            if until():
                return True
            await asyncio.sleep(_STEP_MS / 1_000)
            self._look()
        return until()

    def _channels(self) -> Iterator[tuple[str, ReliableChannel]]:
        for name, participant in self.participants.items():
            if (channel := participant.channel) is not None:
                yield name, channel

    def _look(self) -> None:
        for name, channel in self._channels():
            for text in exceeded(channel.statistics(), self.options):
                self.history.violate(Invariant.BOUNDED, f"{name} holds {text}")

    def _is_at_rest(self) -> bool:
        return not self._unrest()

    def _unrest(self) -> str:
        """Return why the world is not at rest; an empty text if it is."""
        for send in self.history.sends:
            if lacking := self.history.owed_to(send) - send.received_ms.keys():
                return f"{', '.join(sorted(lacking))} lacks {send}"
            if send.sender not in self.history.left and not send.results:
                return f"{send} has not ended"
        if len(list(self._channels())) < len(self.participants):
            return "a channel does not run"
        for name, channel in self._channels():
            statistics = channel.statistics()
            protocol = statistics.protocol
            busy = {
                "unfinished": statistics.unfinished,
                "publishing": statistics.publishing,
                "missing": protocol.missing,
                "parked": protocol.parked,
                "awaiting": protocol.awaiting,
                "queued": protocol.queued,
            }
            if any(busy.values()):
                return f"{name} has {', '.join(f'{count} {what}' for what, count in busy.items() if count)}"
        return ""

    async def _last_words(self) -> None:
        speakers = sorted(self.participants)[:_LAST_WORDS]
        sent = [self._send(self.participants[name], f"goodbye from {name}".encode(), to_all=True) for name in speakers]
        words = [send for send in self.history.sends if send.request_id in sent]

        def are_delivered() -> bool:
            # An invented dependency delays these messages until it is given up.
            return all(any(isinstance(end, MessageDelivered) for end in send.ends) for send in words)

        await self._wait(lambda: are_delivered() and self._is_at_rest(), _LAST_WORDS_MS)
        for send in words:
            if not any(isinstance(end, MessageDelivered) for end in send.ends):
                self.history.violate(Invariant.DELIVERED, f"{send}, in a healed world, ended with {send.ends}")

    async def _restart_all(self) -> None:
        before = {name: sizes(channel.statistics()) for name, channel in self._channels()}
        logs = {name: await self._log(channel) for name, channel in self._channels()}
        for name in list(self.participants):
            self._crash(name)
        await asyncio.sleep(_RESTARTED_MS / 1_000)
        for name, channel in self._channels():
            after = sizes(channel.statistics())
            if name in before and (before[name] != after or logs[name] != await self._log(channel)):
                text = f"{name} had {before[name]} before its last restart, and has {after}"
                self.history.violate(Invariant.RESTART, text)
        whole = {name: log for name, log in logs.items() if name in first_names(self.plan)}
        for text in unequal(whole):
            self.history.violate(Invariant.LOGS, text)

    async def _log(self, channel: ReliableChannel) -> list[tuple[str, str]]:
        """Return sender and message id of the messages that all participants received, in the order of the channel.

        Messages of several segments are excluded: the first received segment gives the place, and others may have lost
        it.
        """
        names = set(first_names(self.plan)) - self.history.left
        sends = self.history.sends
        partial = {
            (one.sender, one.payload_id)
            for one in sends
            if len(one.sds_ids) != 1 or names - one.received_ms.keys() - {one.sender}
        }
        everywhere = {(one.sender, one.payload_id) for one in sends} - partial
        kept = [(message.sender_id, message.message_id) for message in await channel.history(_MAX_LOG)]
        return [each for each in kept if each in everywhere]

    async def _rest(self) -> None:
        before, queries = self.history.transmissions.copy(), self.network.statistics().queries
        allowed = sum(map(self._queries_allowed_at_rest, self.participants.values()))
        await asyncio.sleep(_REST_MS / 1_000)
        for (name, purpose), count in (self.history.transmissions - before).items():
            if count > self._allowed_at_rest(name, purpose):
                text = f"{name} sent {count} {purpose.value} messages in ten quiet minutes"
                self.history.violate(Invariant.QUIET, text)
        asked = self.network.statistics().queries - queries
        if asked > allowed:
            self.history.violate(Invariant.QUIET, f"stores were asked {asked} times in ten quiet minutes")

    def _queries_allowed_at_rest(self, participant: Participant) -> int:
        """Return how often a participant may query stores; one that still reads the time offline has its budget."""
        advanced = self.options.advanced
        if participant.channel is not None and participant.channel.status is ChannelStatus.SYNCING:
            return advanced.max_store_queries_per_minute * _REST_MS // MINUTE_MS
        return 1 + _REST_MS // advanced.query_on_connect_interval_ms

    def _allowed_at_rest(self, name: str, purpose: Traffic) -> int:
        if purpose is Traffic.SYNC:
            return _SYNCS_AT_REST
        # A failed send is sent again at a falling rate.
        failed = any(
            send.sender == name and send.ends and isinstance(send.ends[-1], DeliveryError)
            for send in self.history.sends
        )
        return _OVERDUE if purpose is Traffic.RETRY and failed else 0

    def _queried(self, name: str, _query: StoreQuery, _cursor: bytes | None) -> None:
        times = self._queries[name, self.history.lives[name]]
        times.append(self._now_ms())
        # A query reaches the store after a delay.
        while times[0] <= times[-1] - MINUTE_MS + self._max_delay_ms:
            times.popleft()
        # A minute of a jumping clock has no fixed length.
        is_counted = Trouble.CLOCK_JUMP not in self.plan.troubles
        if is_counted and len(times) > self.options.advanced.max_store_queries_per_minute:
            self.history.violate(Invariant.BOUNDED, f"{name} asked the store {len(times)} times in a minute")

    # Time.

    @property
    def _running_loop(self) -> VirtualLoop:
        if self._loop is None:
            raise RuntimeError("the world has not begun; call run()")
        return self._loop

    def _now_ms(self) -> int:
        return 0 if self._loop is None else self._loop.time_ns() // NS_PER_MS

    def _later(self, after_ms: int, call: Callable[..., object], *arguments: object) -> None:
        """Call a function after a delay, even if programs end until then."""
        self._running_loop.call_later(after_ms / 1_000, call, *arguments, context=self._context)

    def _spawn(self, work: object) -> None:
        self._running_loop.create_task(work, context=self._context)


def simulate(plan: Plan) -> Report:
    """Run a world, and return its report. Equal plans give equal reports."""
    return World(plan).run()


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Silence the log of channels."""
    log = logging.getLogger("fairway")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Collect garbage seldom, because a world creates few cycles."""
    before = gc.get_threshold()
    gc.set_threshold(_COLLECTED_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
