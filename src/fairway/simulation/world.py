"""Participants of one channel, a network between them, and a clock that jumps from event to event."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from fairway.events import Event
from fairway.options import ReliableChannelOptions
from fairway.protocol.effects import AwaitCipher, Change, Effect, Emit, Persist, Publish, Purpose, QueryStore
from fairway.protocol.encryption import Encryption
from fairway.protocol.stack import Accepted, Stack
from fairway.simulation.network import LossyNetwork, NetworkFaults
from fairway.simulation.store_client import StoreClient
from fairway.wire.waku_message import WakuMessage

START_MS: Final = 1_760_000_000_000
"""Where virtual time begins, in milliseconds since the Unix epoch."""
DEFAULT_CHANNEL_ID: Final = "harbour"

Observer = Callable[[int, str, Event], None]
"""Called with (virtual time in ms, participant, event)."""
EffectObserver = Callable[[int, str, Effect], None]
"""Called with (virtual time in ms, participant, effect), before the effect is carried out."""
_MAX_STEPS: Final = 50_000_000


@dataclass(slots=True)
class Participant:
    """One stack in a world."""

    name: str
    stack: Stack
    place: int
    """In which order participants joined."""
    store: StoreClient
    online: bool = True
    rows: dict[tuple[str, str], Change] = field(default_factory=dict)
    """What the participant made durable so far, as a store on disk would hold it."""
    events: list[tuple[int, Event]] = field(default_factory=list)
    deadline: int | None = None
    """When its stack wants to be called next."""
    dies_amid_next: bool = False
    """Whether its next operation that transmits anything lasting is its last: recorded, and ended before it left."""


class World:
    """Runs participants under virtual time."""

    def __init__(
        self,
        names: Iterable[str],
        *,
        seed: int,
        faults: NetworkFaults | None = None,
        options: ReliableChannelOptions | None = None,
        channel_id: str = DEFAULT_CHANNEL_ID,
        content_topic: str = "/fairway/1/harbour/proto",
        encryption: Callable[[str], Encryption | None] = lambda _: None,
        start_ms: int = START_MS,
    ) -> None:
        """Make a world in which everybody is online. ``encryption`` gives each participant its hook."""
        self.now_ms = start_ms
        self.network = LossyNetwork(faults or NetworkFaults(), seed)
        self.observers: list[Observer] = []
        self.effect_observers: list[EffectObserver] = []
        self.restarted: Callable[[str], None] = lambda _: None
        """Called with the name of whoever begins a new life after a crash."""
        self.options = options or ReliableChannelOptions()
        self._seed = seed
        self._channel_id = channel_id
        self._content_topic = content_topic
        self._encryption = encryption
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._deadlines: list[tuple[int, int, str]] = []
        self._sequence = 0
        self._lives = 0
        self._joined = 0
        self._severed: frozenset[str] = frozenset()
        self.participants: dict[str, Participant] = {}
        self.departed: dict[str, Participant] = {}
        """Who left for good, as they were when they did."""
        for name in names:
            self.join(name)

    def join(self, name: str) -> Participant:
        """Add a participant without a past."""
        participant = self._begin(name, self._new_stack(name), self._joined)
        self._joined += 1
        self._keep(participant, participant.stack.snapshot())
        self._carry_out(participant, participant.stack.store_connected(self.now_ms))
        return participant

    def leave(self, name: str) -> Participant:
        """Take a participant away for good; whatever is still on its way to it is lost."""
        participant = self.participants.pop(name)
        self.departed[name] = participant
        return participant

    def send(self, name: str, payload: bytes, **wanted: Any) -> Accepted:
        """Let a participant send; ``wanted`` goes to `Stack.send`."""
        participant = self.participants[name]
        accepted = participant.stack.send(payload, self.now_ms, **wanted)
        self._carry_out(participant, accepted.effects)
        return accepted

    def send_ephemeral(self, name: str, payload: bytes) -> Accepted:
        """Let a participant send an ephemeral message."""
        participant = self.participants[name]
        accepted = participant.stack.send_ephemeral(payload, self.now_ms)
        self._carry_out(participant, accepted.effects)
        return accepted

    def at(self, at_ms: int, action: Callable[[], None]) -> None:
        """Do something at a virtual time."""
        self._sequence += 1
        heapq.heappush(self._queue, (at_ms, self._sequence, action))

    def cut_off(self, name: str) -> None:
        """Cut a participant off without its knowing; its node takes nothing from it."""
        self.participants[name].online = False

    def go_offline(self, name: str) -> None:
        """Cut a participant off; it knows that it is."""
        participant = self.participants[name]
        participant.online = False
        self._carry_out(participant, participant.stack.set_connected(False, self.now_ms))

    def go_online(self, name: str) -> None:
        """Bring a participant back; what was sent meanwhile it has to find by itself."""
        participant = self.participants[name]
        participant.online = True
        self._carry_out(participant, participant.stack.set_connected(True, self.now_ms))
        self._carry_out(participant, participant.stack.store_connected(self.now_ms))

    def sever(self, names: Collection[str]) -> None:
        """Part these from everybody else until `mend`. The store hears both sides, and answers the others only."""
        self._severed = frozenset(names)

    def mend(self) -> None:
        """End the partition."""
        self._severed = frozenset()

    def crash(self, name: str) -> None:
        """End a participant at once and start it again from what it had made durable."""
        old = self.participants[name]
        stack = self._new_stack(name)
        effects = stack.restore(tuple(old.rows.values()), self.now_ms)
        participant = self._begin(name, stack, old.place)
        participant.online, participant.rows, participant.events = old.online, old.rows, old.events
        self.restarted(name)
        self._carry_out(participant, effects)
        if participant.online:
            self._carry_out(participant, stack.store_connected(self.now_ms))
        else:
            self._carry_out(participant, stack.set_connected(False, self.now_ms))

    def crash_amid_next(self, name: str) -> None:
        """End a participant in its next operation that transmits: after it was recorded, before anything left."""
        self.participants[name].dies_amid_next = True

    def run(self, for_ms: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass, at most ``for_ms``; return True as soon as ``until`` holds, else False."""
        end_ms = self.now_ms + for_ms
        for _ in range(_MAX_STEPS):
            if until():
                return True
            next_ms = self._next_ms()
            if next_ms is None or next_ms > end_ms:
                self.now_ms = end_ms
                return until()
            self.now_ms = max(self.now_ms, next_ms)
            self._step()
        raise RuntimeError(f"the world of seed {self._seed} took {_MAX_STEPS} steps without an end")

    def _next_ms(self) -> int | None:
        deadlines = self._deadlines
        while deadlines and not self._is_planned(deadlines[0]):
            heapq.heappop(deadlines)
        if self._queue and (not deadlines or self._queue[0][0] <= deadlines[0][0]):
            return self._queue[0][0]
        return deadlines[0][0] if deadlines else None

    def _step(self) -> None:
        while self._queue and self._queue[0][0] <= self.now_ms:
            _, _, action = heapq.heappop(self._queue)
            action()
        due: set[tuple[int, str]] = set()
        while self._deadlines and self._deadlines[0][0] <= self.now_ms:
            entry = heapq.heappop(self._deadlines)
            if self._is_planned(entry):
                due.add(entry[1:])
        for _, name in sorted(due):
            participant = self.participants[name]
            self._carry_out(participant, participant.stack.tick(self.now_ms))

    def _plan(self, participant: Participant) -> None:
        """Note when a stack wants to be called next; to be repeated after every call of it."""
        deadline = participant.stack.next_deadline()
        participant.deadline = deadline
        if deadline is not None:
            heapq.heappush(self._deadlines, (deadline, participant.place, participant.name))

    def _is_planned(self, entry: tuple[int, int, str]) -> bool:
        participant = self.participants.get(entry[2])
        return participant is not None and (participant.deadline, participant.place) == entry[:2]

    def _carry_out(self, participant: Participant, effects: tuple[Effect, ...]) -> None:
        if self.participants.get(participant.name) is not participant:
            # A life that ended amid an operation, while something was still being done for it.
            return
        self._plan(participant)
        dies = participant.dies_amid_next and any(map(_must_arrive, effects))
        if dies:
            effects = tuple(effect for effect in effects if isinstance(effect, Persist | Emit))
        for effect in effects:
            for observer in self.effect_observers:
                observer(self.now_ms, participant.name, effect)
            match effect:
                case Persist(changes=changes):
                    self._keep(participant, changes)
                case Publish():
                    self._publish(participant, effect)
                case QueryStore():
                    participant.store.put(effect, self.now_ms)
                case AwaitCipher(token=token, awaitable=awaitable):
                    self._later(participant, partial(_cipher_done, token, _drive(awaitable)))
                case Emit(event=event):
                    participant.events.append((self.now_ms, event))
                    for told in self.observers:
                        told(self.now_ms, participant.name, event)
        if dies:
            self.crash(participant.name)

    def _publish(self, participant: Participant, publication: Publish) -> None:
        self._later(participant, partial(_answer, publication.token, participant.online))
        if not participant.online:
            return
        others = [other for other in self.participants if other != participant.name]
        for receiver, delay_ms in self.network.deliveries_of(publication, others):
            self.at(self.now_ms + delay_ms, partial(self._deliver, participant.name, receiver, publication))

    def _ask_store(self, name: str, query: QueryStore) -> Iterable[WakuMessage]:
        reachable = self.participants[name].online and name not in self._severed
        return self.network.query(query) if reachable else ()

    def _deliver(self, sender: str, name: str, publication: Publish) -> None:
        participant = self.participants.get(name)
        apart = (sender in self._severed) != (name in self._severed)
        if participant is not None and participant.online and not apart:
            self._carry_out(participant, participant.stack.receive(publication.message, self.now_ms))

    def _later(self, participant: Participant, call: Callable[[Stack, int], tuple[Effect, ...]]) -> None:
        """Call the stack after one hop of the network, unless the participant crashed or left meanwhile."""
        stack = participant.stack
        self._while_alive(
            participant, self.network.delay_ms(), lambda now_ms: self._carry_out(participant, call(stack, now_ms))
        )

    def _while_alive(self, participant: Participant, delay_ms: int, act: Callable[[int], None]) -> None:
        """Do something after a while, unless the participant crashed or left meanwhile."""

        def action() -> None:
            if self.participants.get(participant.name) is participant:
                act(self.now_ms)

        self.at(self.now_ms + delay_ms, action)

    def _begin(self, name: str, stack: Stack, place: int) -> Participant:
        """Begin a life of a participant."""
        store = StoreClient(
            stack,
            ask=partial(self._ask_store, name),
            carry_out=lambda effects: self._carry_out(participant, effects),
            later=lambda delay_ms, act: self._while_alive(participant, delay_ms, act),
            hop_ms=self.network.delay_ms,
        )
        participant = Participant(name, stack, place, store)
        self.participants[name] = participant
        return participant

    def _new_stack(self, name: str) -> Stack:
        self._lives += 1
        return Stack(
            self._channel_id,
            name,
            self._content_topic,
            self.options,
            now_ms=self.now_ms,
            seed=f"{self._seed}/{name}/{self._lives}".encode(),
            encryption=self._encryption(name),
        )

    @staticmethod
    def _keep(participant: Participant, changes: tuple[Change, ...]) -> None:
        for change in changes:
            if change.row is None:
                participant.rows.pop((change.table, change.key), None)
            else:
                participant.rows[change.table, change.key] = change


def _must_arrive(effect: Effect) -> bool:
    return isinstance(effect, Publish) and effect.purpose is not Purpose.EPHEMERAL


def _answer(token: int, accepted: bool, stack: Stack, now_ms: int) -> tuple[Effect, ...]:
    return stack.published(token, now_ms, accepted=accepted)


def _cipher_done(token: int, result: bytes | Exception, stack: Stack, now_ms: int) -> tuple[Effect, ...]:
    return stack.cipher_done(token, result, now_ms)


def _drive(awaitable: Any) -> bytes | Exception:
    """Run an encryption hook's coroutine, which in a simulation has nothing to wait for, to its end."""
    steps = awaitable.__await__()
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        result: bytes = stop.value
        return result
    except Exception as error:  # noqa: BLE001 - the stack decides what a failing hook means
        return error
