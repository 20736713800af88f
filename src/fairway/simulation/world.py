"""Participants of one channel under virtual time: programs on machines, a network between them.

What runs is what ships: each participant is a `Program` on a `ReliableChannel` with its engine, commit queue, inbox,
retriever and publisher, over a `LocalNode` and a store, in a `Process` that can be killed at any moment. A world is
used from outside, between two calls of `run`, or by actions that were planned with `at`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self

from fairway.channel.reliable_channel import ReliableChannel
from fairway.environment import set_environment
from fairway.errors import StorageError
from fairway.events import Event, MessageReceived, MessageSetAside, OrderKey
from fairway.options import ReliableChannelOptions
from fairway.protocol.effects import Change
from fairway.protocol.encryption import Encryption
from fairway.protocol.ratelimit import RlnProofProvider
from fairway.protocol.stack import Stack
from fairway.simulation.keeping import Kept
from fairway.simulation.light import LightNetwork, LightSeat
from fairway.simulation.light.troubles import Vice
from fairway.simulation.program import ChannelArguments, Habits, Program, Wish, is_expected
from fairway.simulation.script import Asking
from fairway.storage.channel_store import (
    ChannelStore,
    HistoryPage,
    SendOutcome,
    Stored,
    StoredRequest,
    TracePoint,
    Write,
)
from fairway.storage.memory_store import MemoryStore
from fairway.testing import Machine, Process, SimulatedDisk, VirtualLoop
from fairway.testing.internet import LOOPBACK
from fairway.units import NS_PER_MS
from fairway.waku.local import LocalNetwork, LocalNode, NetworkFaults
from fairway.waku.node import RoutedMessage, StoreQuery

START_MS: Final = 1_760_000_000_000
"""Where virtual time begins, in milliseconds since the Unix epoch."""
DEFAULT_CHANNEL_ID: Final = "harbour"
_STARTED_AGAIN_MS: Final = 10_000
"""Pause before a program whose disk or node failed is started again."""


class Observer:
    """An observer of a world; each method is called at the moment of its event, with the time in ms."""

    def told(self, at_ms: int, name: str, event: Event) -> None:
        """Note an event that a participant was told."""

    def received(self, at_ms: int, name: str, message: MessageReceived) -> None:
        """Note a message that was handed to a participant's application."""

    def looked_at(self, at_ms: int, name: str, message: MessageReceived) -> None:
        """Note that a second handler of a participant handled a message."""

    def finished(self, at_ms: int, name: str, message: MessageReceived) -> None:
        """Note that a participant's application has finished with a message."""

    def set_aside(self, at_ms: int, name: str, waiting: Collection[MessageSetAside]) -> None:
        """Note the messages that a participant's channel holds as set aside when it has started."""

    def taken_back(self, at_ms: int, name: str, message: MessageSetAside) -> None:
        """Note that an application has a message that was set aside handed over again, or discards it."""

    def stopping(self, at_ms: int, name: str) -> None:
        """Note that a participant's program asks its channel to stop."""

    def stopped(self, at_ms: int, name: str) -> None:
        """Note that the channel stopped, in order."""

    def raised(self, at_ms: int, name: str, message: MessageReceived) -> None:
        """Note that a participant's handler raised on a message, which so comes again."""

    def accepted(self, at_ms: int, name: str, request_id: str) -> None:
        """Note a send that was accepted."""

    def asked(self, at_ms: int, name: str, request_id: str, more: frozenset[str]) -> None:
        """Note that an application asks others to acknowledge a send, too; no names if it could not."""

    def answered(self, at_ms: int, name: str, request_id: str, delivered_to: tuple[str, ...] | None) -> None:
        """Note what the receipt of a send says in the end; None if it failed."""

    def told_late(self, at_ms: int, name: str, request_id: str) -> None:
        """Note that a receipt that knew that all of a message was sent said so only later."""

    def unknown(self, at_ms: int, name: str, request_id: str) -> None:
        """Note that a send, which was accepted in an earlier life, is not known any more."""

    def published(self, at_ms: int, name: str, message: RoutedMessage) -> None:
        """Note what the network took from a participant."""

    def lost(self, at_ms: int, name: str, message: RoutedMessage) -> None:
        """Note that the network lost what it should have brought to a participant."""

    def heard(self, at_ms: int, name: str, message: RoutedMessage) -> None:
        """Note what the network brings to a participant, whether it reads that or not."""

    def kept(self, at_ms: int, name: str, changes: Sequence[Change]) -> None:
        """Note rows of the protocol's state that a participant gives to its store."""

    def restored(self, at_ms: int, name: str, changes: Sequence[Change]) -> None:
        """Note the rows that a participant finds in its store when a life begins."""

    def written(self, at_ms: int, name: str, write: Write) -> None:
        """Note that what a participant gave to its store is durable."""

    def miskept(self, at_ms: int, name: str, fault: str) -> None:
        """Note what a participant's store does that no store may do."""

    def handed_over(self, at_ms: int, name: str, message: RoutedMessage) -> None:
        """Note what a participant hands to its node, whether the network takes it or not."""

    def refused(self, at_ms: int, name: str, message: RoutedMessage, answer_ms: int) -> None:
        """Note that a node does not take what it was handed, of which its participant hears after a while."""

    def queried(self, at_ms: int, name: str, query: StoreQuery, cursor: bytes | None) -> None:
        """Note that a participant asks the store for a page."""

    def began(self, at_ms: int, name: str) -> None:
        """Note that a life of a participant begins."""

    def ended(self, at_ms: int, name: str) -> None:
        """See a life of a participant end."""

    def failed(self, at_ms: int, name: str, error: BaseException) -> None:
        """Note what no program may end with."""


@dataclass(slots=True)
class Participant:
    """One participant in a world, over all its lives."""

    name: str
    machine: Machine
    node: LocalNode | LightSeat
    store: ChannelStore
    process: Process
    program: Program
    habits: Habits
    options: ReliableChannelOptions
    wishes: dict[str, Wish]
    """What its application has on record of its sends, by request id."""
    dice: random.Random
    """By what its application does what it does by chance, in all lives: otherwise each would do the same again."""
    lives: int = 1
    online: bool = True
    """Whether it is not cut off."""
    is_offline: bool = False
    """Whether it knows that it is cut off, as it will after a restart, too."""
    is_running: bool = True
    """Whether its program lives."""
    events: list[tuple[int, Event]] = field(default_factory=list)
    """Everything that its application was told, in all lives."""
    kept: Kept = field(default_factory=Kept)
    """What its store keeps, by what was given to it."""

    @property
    def channel(self) -> ReliableChannel | None:
        """Its channel while that runs."""
        channel = self.program.channel
        return channel if self.is_running and channel is not None and channel.is_started() else None

    @property
    def stack(self) -> Stack:
        """The protocol's state in its channel, which must run."""
        channel = self.program.channel
        if channel is None:
            raise RuntimeError(f"the channel of {self.name} does not run")
        return channel.protocol

    def ending_of(self, request_id: str) -> SendOutcome | None:
        """Return how a send ended, by the store of the channel, which must run; None if nothing is known of it."""
        known = self.store.request(request_id) if self.channel is not None else None
        return None if known is None else known.outcome


class World:
    """Runs participants under virtual time. A context manager that lets go of them."""

    def __init__(
        self,
        names: Iterable[str],
        *,
        seed: int,
        faults: NetworkFaults | None = None,
        options: ReliableChannelOptions | None = None,
        options_of: Callable[[str, int], ReliableChannelOptions] | None = None,
        habits_of: Callable[[str], Habits] = lambda _: Habits(),
        channel_id: str = DEFAULT_CHANNEL_ID,
        content_topic: str = "/fairway/1/harbour/proto",
        encryption: Callable[[str], Encryption | None] = lambda _: None,
        rln: Callable[[str], RlnProofProvider | None] = lambda _: None,
        disk: SimulatedDisk | None = None,
        skew_ms: Callable[[str], int] = lambda _: 0,
        service_nodes: int = 0,
        garbled: float = 0.0,
        bad_nodes: int = 0,
        vice: Vice | None = None,
    ) -> None:
        """Make a world in which all participants are online.

        ``options_of`` gives the options of a participant's life, by name and number of the life, in place of the same
        ``options`` for all; ``habits_of`` says how its application reads; ``encryption`` gives each participant its
        hook, and ``rln`` each of its lives its membership; ``disk`` keeps their channels, which otherwise are in memory
        that survives crashes; ``skew_ms`` is how far a clock is ahead. With ``service_nodes`` participants are light
        clients of so many, which garble a share of their answers, and of which some are bad, with ``vice`` all alike.
        """
        self._vice = vice
        self.loop = VirtualLoop(seed)
        self._context = copy_context()
        self._machine = Machine(self.loop, start_ns=START_MS * NS_PER_MS)
        self._context.run(set_environment, self._machine)
        self.options = options or ReliableChannelOptions()
        self.network: LocalNetwork | LightNetwork = (
            self._context.run(
                partial(self._light_network, faults, service_nodes, garbled, bad_nodes, content_topic, seed)
            )
            if service_nodes
            else self._context.run(
                partial(LocalNetwork, faults or NetworkFaults(), seed=seed, clock_ns=self._machine.time_ns)
            )
        )
        self.network.observers.append(self._published)
        self.network.loss_observers.append(self._lost)
        self.network.hearing_observers.append(self._heard)
        self.network.sending_observers.append(self._handed_over)
        self.network.refusal_observers.append(self._refused)
        self.network.query_observers.append(self._queried)
        self.observers: list[Observer] = []
        self._options_of = options_of or (lambda _name, _life: self.options)
        self._habits_of = habits_of
        self._seed = seed
        self.channel_id = channel_id
        self.content_topic = content_topic
        self._encryption = encryption
        self._rln = rln
        self._memory: dict[str, MemoryStore] = {}
        self._disk = disk
        if disk is not None:
            disk.on_crash = self.crash
        self._skew_ms = skew_ms
        self._sends = 0
        self._sides: tuple[frozenset[str], ...] = ()
        self._cut_off: dict[str, None] = {}
        self._mended_ms = 0
        """When the last partition ended."""
        self._back_ms: dict[str, int] = {}
        """When participants were last cut off no longer."""
        self._to_cut: set[str] = set()
        self.participants: dict[str, Participant] = {}
        self.departed: dict[str, Participant] = {}
        """Who left for good, as they were when they did."""
        if isinstance(self.network, LightNetwork):
            self._within(self.network.start)
        for name in names:
            self.join(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all programs, and release all files."""
        for participant in self.participants.values():
            self._kill(participant)
        self.network.close()
        self.loop.close()

    @property
    def now_ms(self) -> int:
        """The true time, in milliseconds since the Unix epoch."""
        return START_MS + self.loop.time_ns() // NS_PER_MS

    def _light_network(
        self,
        faults: NetworkFaults | None,
        service_nodes: int,
        garbled: float,
        bad_nodes: int,
        content_topic: str,
        seed: int,
    ) -> LightNetwork:
        return LightNetwork(
            self.loop,
            lambda address: Machine(self.loop, start_ns=START_MS * NS_PER_MS, address=address),
            service_nodes=service_nodes,
            faults=faults or NetworkFaults(),
            garbled=garbled,
            bad=bad_nodes,
            vice=self._vice,
            options=self.options,
            content_topic=content_topic,
            seed=seed,
        )

    # What participants do.

    def join(self, name: str) -> Participant:
        """Add a participant without a past."""
        address = self.network.address_of(name) if isinstance(self.network, LightNetwork) else LOOPBACK
        machine = Machine(self.loop, start_ns=START_MS * NS_PER_MS, skew_ms=self._skew_ms(name), address=address)
        habits, options = self._habits_of(name), self._options_of(name, 1)
        wishes: dict[str, Wish] = {}
        dice = random.Random(f"{self._seed}/{name}")  # noqa: S311 - reproducible, and guards nothing
        participant = Participant(
            name=name,
            machine=machine,
            node=self.network.node(name),
            store=self._store(name),
            process=Process(name, machine),
            program=self._program(name, habits, wishes, dice),
            habits=habits,
            options=options,
            wishes=wishes,
            dice=dice,
        )
        self.participants[name] = participant
        self._start(participant)
        return participant

    def leave(self, name: str) -> Participant:
        """Take a participant away for good; whatever is still on its way to it is lost."""
        participant = self.participants.pop(name)
        self.departed[name] = participant
        self._kill(participant)
        return participant

    def send(
        self,
        name: str,
        payload: bytes,
        *,
        count: int = 1,
        by: Collection[str] = (),
        more: Collection[str] = (),
        when: Asking = Asking.DELIVERED,
    ) -> str:
        """Let a participant's application send, and return the request id; whether it is accepted turns out.

        ``more`` are asked for besides those in ``by``, later.
        """
        self._sends += 1
        request_id = f"{name}-{self._sends}"
        participant = self.participants[name]
        participant.wishes[request_id] = Wish(
            payload=payload, count=count, by=frozenset(by), more=frozenset(more), when=when
        )
        if participant.is_running:
            self._within(participant.process.spawn, participant.program.follow(request_id))
        return request_id

    def ask_again(self, name: str, request_id: str) -> list[tuple[str, ...] | None]:
        """Let a participant's application ask what became of an earlier send; return where the answer will stand.

        That is who has it, or None if it failed; nothing if no answer comes, or if nothing is known of the send.
        """
        answers: list[tuple[str, ...] | None] = []
        participant = self.participants[name]
        if participant.is_running:
            self._within(participant.process.spawn, participant.program.ask_again(request_id, answers))
        return answers

    def send_again(self, name: str, request_id: str, payload: bytes) -> None:
        """Let a participant's application send under an id that may have been used before, and keep no receipt."""
        participant = self.participants[name]
        if participant.is_running:
            self._within(participant.process.spawn, participant.program.send_again(request_id, payload))

    def stop(self, name: str) -> None:
        """Let a participant close its channel; its program then ends, and is started again after a while."""
        participant = self.participants[name]
        if participant.is_running:
            self._within(participant.process.spawn, participant.program.stop())

    def quit_amid(self, name: str) -> None:
        """Let a program that reads in a loop end when it has finished with the message that it reads next."""
        participant = self.participants[name]
        if participant.is_running:
            self._within(participant.process.spawn, participant.program.leave())

    def pause(self, name: str, for_ms: int) -> None:
        """Let a participant's program stop its channel, and start it again after a while."""
        participant = self.participants[name]
        if participant.is_running:
            self._within(participant.process.spawn, participant.program.pause(for_ms / 1_000))

    def send_ephemeral(self, name: str, payload: bytes) -> None:
        """Let a participant's application send an ephemeral message."""
        participant = self.participants[name]
        if participant.is_running:
            self._within(participant.process.spawn, participant.program.send_ephemeral(payload))

    # What happens to them.

    def at(self, at_ms: int, action: Callable[[], object]) -> None:
        """Do something at a virtual time."""
        self._within(self.loop.call_at, (at_ms - START_MS) / 1_000, action)

    def crash(self, name: str, look: Callable[[Stored], object] | None = None) -> None:
        """End a participant at once and start it again from what it had made durable, which is shown to ``look``."""
        participant = self.participants[name]
        self._kill(participant)
        if look is not None:
            store = self._store(name)
            # A fault that is due may strike here as at any other opening: then there is nothing to see.
            with suppress(StorageError):
                look(self._within(store.open, self.channel_id, name, self.content_topic))
            self._within(store.close)
        self._begin_again(participant)

    def cut(self, name: str) -> None:
        """End a participant when it next hands something to its node, which takes nothing of it, and start it again."""
        self._to_cut.add(name)

    def cut_off(self, name: str) -> None:
        """Cut a participant off without its knowing."""
        self.participants[name].online = False
        self._cut_off[name] = None
        self._divide()

    def go_offline(self, name: str) -> None:
        """Cut a participant off; it knows that it is."""
        participant = self.participants[name]
        participant.online = False
        participant.is_offline = True
        self._within(participant.node.go_offline)

    def go_online(self, name: str) -> None:
        """Bring a participant back; what was sent meanwhile it has to find by itself."""
        participant = self.participants[name]
        participant.online = True
        participant.is_offline = False
        if name in self._cut_off:
            del self._cut_off[name]
            self._back_ms[name] = self.now_ms
        self._divide()
        self._within(participant.node.go_online)

    def lose_node(self, name: str, *, silently: bool) -> None:
        """End the service node of a participant, until it finds another one."""
        self._within(self.participants[name].node.die, silently=silently)

    def find_node(self, name: str) -> None:
        """Give a participant another service node."""
        self._within(self.participants[name].node.come_back)

    def deafen(self, name: str) -> None:
        """Have the service node of a participant forget what it subscribed to."""
        self._within(self.participants[name].node.go_deaf)

    def reset(self, name: str, number: int) -> None:
        """End the connections of a light client with a service node, or with all."""
        if isinstance(self.network, LightNetwork):
            self._within(self.network.reset, name, number)

    def stall(self, name: str, number: int, for_ms: int) -> None:
        """Let links of a light client be silent for a while."""
        if isinstance(self.network, LightNetwork):
            self._within(self.network.stall, name, number, for_ms)

    def heal_services(self) -> None:
        """Let service nodes answer as they should."""
        if isinstance(self.network, LightNetwork):
            self.network.garbled, self.network.bad = 0.0, 0

    def set_clock(self, name: str, ahead_ms: int) -> None:
        """Set the clock of a participant."""
        self.participants[name].machine.skew_ms = ahead_ms

    def push(self, name: str, message: RoutedMessage) -> bool:
        """Bring a message to one participant alone, as a neighbour can; return whether it listens."""
        return bool(self._within(self.participants[name].node.hear, message))

    def sever(self, *sides: Collection[str]) -> None:
        """Split the network into sides, apart from all other nodes, until `mend`."""
        self._sides = tuple(frozenset(side) for side in sides)
        self._divide()

    def mend(self) -> None:
        """End the partition."""
        if self._sides:
            self._mended_ms = self.now_ms
        self._sides = ()
        self._divide()

    def was_apart(self, name: str, since_ms: int) -> bool:
        """Return whether a participant had only a part of the network, and of its store, at any time since some."""
        is_apart = bool(self._sides) or name in self._cut_off
        return is_apart or max(self._mended_ms, self._back_ms.get(name, 0)) >= since_ms

    def is_reachable(self, name: str) -> bool:
        """Return whether a participant reaches the others: online, with a node, not on one side of several."""
        participant = self.participants[name]
        return participant.online and participant.node.online and participant.is_running and not self._sides

    # Time.

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run something that is no participant's."""
        self._within(self.loop.create_task, work)

    def run(self, for_ms: int, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass, at most ``for_ms``; return True as soon as ``until`` holds, else False."""
        return self._context.run(self.loop.run_for, for_ms / 1_000, until)

    def _within(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call what needs a running loop, from inside or outside of it."""
        with self._running():
            return self._context.copy().run(partial(call, *arguments, **named))

    @contextmanager
    def _running(self) -> Iterator[None]:
        if self.loop.is_running():
            yield
        else:
            asyncio.events._set_running_loop(self.loop)  # noqa: SLF001 - asyncio has it for programs that run a loop themselves
            try:
                yield
            finally:
                asyncio.events._set_running_loop(None)  # noqa: SLF001

    def _program(self, name: str, habits: Habits, wishes: dict[str, Wish], dice: random.Random) -> Program:
        return Program(name, _Watching(self), habits, dice, wishes, lambda: self._arguments(name))

    def _arguments(self, name: str) -> ChannelArguments:
        participant = self.participants[name]
        return ChannelArguments(
            node=participant.node,
            channel_id=self.channel_id,
            content_topic=self.content_topic,
            options=participant.options,
            store=_WatchedStore(
                participant.store,
                participant.kept,
                partial(self._opened, name),
                partial(self._kept, name),
                partial(self._written, name),
                partial(self._miskept, name),
            ),
            encryption=self._encryption(name),
            rln=self._rln(name),
            connect=participant.node.start if isinstance(participant.node, LightSeat) else None,
        )

    def _start(self, participant: Participant) -> None:
        participant.is_running = True
        for observer in self.observers:
            observer.began(self.now_ms, participant.name)
        task = self._within(participant.process.spawn, participant.program.run())
        self._within(task.add_done_callback, partial(self._ended, participant, participant.lives))

    def _kill(self, participant: Participant) -> None:
        """End a life at once: first nothing of it reaches the outside any more, then nothing of it runs."""
        for observer in self.observers:
            observer.ended(self.now_ms, participant.name)
        participant.is_running = False
        participant.process.is_alive = False
        if self._disk is None:
            self._within(participant.store.close)
        else:
            self._within(self._disk.power_loss, participant.name)
        self._within(participant.node.leave)
        self._within(participant.process.kill)

    def _begin_again(self, participant: Participant) -> None:
        if self.participants.get(participant.name) is not participant or participant.is_running:
            # It left, or it crashed meanwhile and was started at once.
            return
        participant.lives += 1
        participant.node = self.network.node(participant.name)
        if participant.is_offline:
            self._within(participant.node.go_offline)
        participant.store = self._store(participant.name)
        participant.options = self._options_of(participant.name, participant.lives)
        participant.process = Process(participant.name, participant.machine)
        participant.program = self._program(participant.name, participant.habits, participant.wishes, participant.dice)
        self._start(participant)

    def _ended(self, participant: Participant, life: int, task: asyncio.Task[None]) -> None:
        """Start a program again that ended because its disk or its node failed."""
        if participant.lives != life or not participant.is_running or task.cancelled():
            return
        error = task.exception()
        if error is not None and not is_expected(error):
            for observer in self.observers:
                observer.failed(self.now_ms, participant.name, error)
        self._kill(participant)
        self.at(self.now_ms + _STARTED_AGAIN_MS, partial(self._begin_again, participant))

    def _divide(self) -> None:
        """Tell the network who reaches whom."""
        sides = [side - self._cut_off.keys() for side in self._sides]
        self._within(self.network.partition, *(side for side in sides if side), *({name} for name in self._cut_off))
        if not sides and not self._cut_off:
            self._within(self.network.heal)

    def _store(self, name: str) -> ChannelStore:
        """Return the store for the next life of a participant."""
        return self._memory.setdefault(name, MemoryStore()) if self._disk is None else self._disk.store(name)

    def _published(self, node: str, message: RoutedMessage) -> None:
        for observer in self.observers:
            observer.published(self.now_ms, node, message)

    def _lost(self, node: str, message: RoutedMessage) -> None:
        at_ms = self.now_ms
        for observer in self.observers:
            observer.lost(at_ms, node, message)

    def _heard(self, node: str, message: RoutedMessage) -> None:
        at_ms = self.now_ms
        for observer in self.observers:
            observer.heard(at_ms, node, message)

    def _opened(self, name: str, stored: Stored) -> None:
        # A write may be on the disk although the machine crashed before it said so.
        self._written(name, Write(changes=stored.changes, delivered=stored.inbox))
        for observer in self.observers:
            observer.restored(self.now_ms, name, stored.changes)

    def _kept(self, name: str, changes: Sequence[Change]) -> None:
        at_ms = self.now_ms
        for observer in self.observers:
            observer.kept(at_ms, name, changes)

    def _written(self, name: str, write: Write) -> None:
        at_ms = self.now_ms
        for observer in self.observers:
            observer.written(at_ms, name, write)

    def _miskept(self, name: str, faults: Iterable[str]) -> None:
        for fault in faults:
            for observer in self.observers:
                observer.miskept(self.now_ms, name, fault)

    def _handed_over(self, node: str, message: RoutedMessage) -> None:
        for observer in self.observers:
            observer.handed_over(self.now_ms, node, message)
        if node in self._to_cut and node in self.participants:
            # Nothing of what it hands over from here on gets anywhere, until it is gone.
            self._to_cut.remove(node)
            self._within(self.participants[node].node.leave)
            self.at(self.now_ms, partial(self.crash, node))

    def _refused(self, node: str, message: RoutedMessage, answer_ms: int) -> None:
        for observer in self.observers:
            observer.refused(self.now_ms, node, message, answer_ms)

    def _queried(self, node: str, query: StoreQuery, cursor: bytes | None) -> None:
        for observer in self.observers:
            observer.queried(self.now_ms, node, query, cursor)


class _WatchedStore(ChannelStore):
    """The store of a participant, which tells what it is given."""

    def __init__(
        self,
        store: ChannelStore,
        kept: Kept,
        opened: Callable[[Stored], object],
        watch: Callable[[Sequence[Change]], object],
        written: Callable[[Write], object],
        miskept: Callable[[Iterable[str]], object],
    ) -> None:
        self._store = store
        self._kept = kept
        self._opened = opened
        self._watch = watch
        self._written = written
        self._miskept = miskept

    def open(self, channel_id: str, sender_id: str, content_topic: str) -> Stored:
        stored = self._store.open(channel_id, sender_id, content_topic)
        self._miskept(self._kept.opened(stored, self._store))
        self._opened(stored)
        return stored

    def submit(self, write: Write, done: Callable[[StorageError | None], None]) -> None:
        if write.changes:
            self._watch(write.changes)
        self._miskept(self._kept.given(write))
        opening = self._kept.openings

        def told(error: StorageError | None) -> None:
            if error is None:
                if opening == self._kept.openings:
                    # What the last opening found holds this already.
                    self._miskept(self._kept.written(write))
                self._written(write)
            elif opening == self._kept.openings:
                self._kept.failed()
            done(error)

        self._store.submit(write, told)

    def request(self, request_id: str) -> StoredRequest | None:
        return self._store.request(request_id)

    def message(self, number: int) -> MessageReceived | None:
        return self._store.message(number)

    def history(self, before: OrderKey | None, limit: int) -> HistoryPage:
        return self._store.history(before, limit)

    def trace(self, identifier: str) -> Iterable[TracePoint]:
        return self._store.trace(identifier)

    def close(self) -> None:
        self._store.close()


class _Watching:
    """Passes on what programs tell, with the time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def told(self, name: str, event: Event) -> None:
        world = self._world
        world.participants[name].events.append((world.now_ms, event))
        for observer in world.observers:
            observer.told(world.now_ms, name, event)

    def received(self, name: str, message: MessageReceived) -> None:
        world = self._world
        world.participants[name].events.append((world.now_ms, message))
        for observer in world.observers:
            observer.received(world.now_ms, name, message)

    def looked_at(self, name: str, message: MessageReceived) -> None:
        for observer in self._world.observers:
            observer.looked_at(self._world.now_ms, name, message)

    def finished(self, name: str, message: MessageReceived) -> None:
        for observer in self._world.observers:
            observer.finished(self._world.now_ms, name, message)

    def set_aside(self, name: str, waiting: Collection[MessageSetAside]) -> None:
        for observer in self._world.observers:
            observer.set_aside(self._world.now_ms, name, waiting)

    def taken_back(self, name: str, message: MessageSetAside) -> None:
        for observer in self._world.observers:
            observer.taken_back(self._world.now_ms, name, message)

    def stopping(self, name: str) -> None:
        for observer in self._world.observers:
            observer.stopping(self._world.now_ms, name)

    def stopped(self, name: str) -> None:
        for observer in self._world.observers:
            observer.stopped(self._world.now_ms, name)

    def resumed(self, name: str) -> None:
        for observer in self._world.observers:
            observer.began(self._world.now_ms, name)

    def raised(self, name: str, message: MessageReceived) -> None:
        for observer in self._world.observers:
            observer.raised(self._world.now_ms, name, message)

    def accepted(self, name: str, request_id: str) -> None:
        for observer in self._world.observers:
            observer.accepted(self._world.now_ms, name, request_id)

    def asked(self, name: str, request_id: str, more: frozenset[str]) -> None:
        for observer in self._world.observers:
            observer.asked(self._world.now_ms, name, request_id, more)

    def answered(self, name: str, request_id: str, delivered_to: tuple[str, ...] | None) -> None:
        for observer in self._world.observers:
            observer.answered(self._world.now_ms, name, request_id, delivered_to)

    def told_late(self, name: str, request_id: str) -> None:
        for observer in self._world.observers:
            observer.told_late(self._world.now_ms, name, request_id)

    def unknown(self, name: str, request_id: str) -> None:
        for observer in self._world.observers:
            observer.unknown(self._world.now_ms, name, request_id)
