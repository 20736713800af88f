"""Participants of one channel, a network between them, and a clock that jumps from event to event."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from fairway.events import Event
from fairway.options import ReliableChannelOptions
from fairway.protocol.effects import AwaitCipher, Change, Effect, Emit, Persist, Publish, QueryStore
from fairway.protocol.encryption import Encryption
from fairway.protocol.stack import Accepted, Stack
from fairway.simulation.network import LossyNetwork, NetworkFaults
from fairway.wire.waku_message import WakuMessage

START_MS: Final = 1_760_000_000_000
"""Where virtual time begins, in milliseconds since the Unix epoch."""

Observer = Callable[[int, str, Event], None]
"""Called with (virtual time in ms, participant, event)."""
_MAX_STEPS: Final = 50_000_000


@dataclass(slots=True)
class Participant:
    """One stack in a world."""

    name: str
    stack: Stack
    online: bool = True
    rows: dict[tuple[str, str], Change] = field(default_factory=dict)
    """What the participant made durable so far, as a store on disk would hold it."""
    events: list[tuple[int, Event]] = field(default_factory=list)


class World:
    """Runs participants under virtual time."""

    def __init__(
        self,
        names: Iterable[str],
        *,
        seed: int,
        faults: NetworkFaults | None = None,
        options: ReliableChannelOptions | None = None,
        channel_id: str = "harbour",
        content_topic: str = "/fairway/1/harbour/proto",
        encryption: Callable[[str], Encryption | None] = lambda _: None,
        start_ms: int = START_MS,
    ) -> None:
        """Make a world in which everybody is online. ``encryption`` gives each participant its hook."""
        self.now_ms = start_ms
        self.network = LossyNetwork(faults or NetworkFaults(), seed)
        self.observers: list[Observer] = []
        self._seed = seed
        self._options = options or ReliableChannelOptions()
        self._channel_id = channel_id
        self._content_topic = content_topic
        self._encryption = encryption
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._lives = 0
        self.participants: dict[str, Participant] = {}
        for name in names:
            self.join(name)

    def join(self, name: str) -> Participant:
        """Add a participant without a past."""
        participant = Participant(name, self._new_stack(name))
        self.participants[name] = participant
        self._keep(participant, participant.stack.snapshot())
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

    def crash(self, name: str) -> None:
        """End a participant at once and start it again from what it had made durable."""
        old = self.participants[name]
        stack = self._new_stack(name)
        effects = stack.restore(tuple(old.rows.values()), self.now_ms)
        self.participants[name] = Participant(name, stack, old.online, old.rows, old.events)
        self._carry_out(self.participants[name], effects)

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
        times = [self._queue[0][0]] if self._queue else []
        for participant in self.participants.values():
            deadline = participant.stack.next_deadline()
            if deadline is not None:
                times.append(deadline)
        return min(times, default=None)

    def _step(self) -> None:
        while self._queue and self._queue[0][0] <= self.now_ms:
            _, _, action = heapq.heappop(self._queue)
            action()
        for participant in list(self.participants.values()):
            deadline = participant.stack.next_deadline()
            if deadline is not None and deadline <= self.now_ms:
                self._carry_out(participant, participant.stack.tick(self.now_ms))

    def _carry_out(self, participant: Participant, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case Persist(changes=changes):
                    self._keep(participant, changes)
                case Publish():
                    self._publish(participant, effect)
                case QueryStore():
                    for message in self.network.query(effect):
                        self._later(participant, partial(_receive, message))
                case AwaitCipher(token=token, awaitable=awaitable):
                    self._later(participant, partial(_cipher_done, token, _drive(awaitable)))
                case Emit(event=event):
                    participant.events.append((self.now_ms, event))
                    for observer in self.observers:
                        observer(self.now_ms, participant.name, event)

    def _publish(self, participant: Participant, publication: Publish) -> None:
        self._later(participant, partial(_answer, publication.token, participant.online))
        if not participant.online:
            return
        others = [other for other in self.participants if other != participant.name]
        for receiver, delay_ms in self.network.deliveries_of(publication, others):
            self.at(self.now_ms + delay_ms, partial(self._deliver, receiver, publication))

    def _deliver(self, name: str, publication: Publish) -> None:
        participant = self.participants[name]
        if participant.online:
            self._carry_out(participant, participant.stack.receive(publication.message, self.now_ms))

    def _later(self, participant: Participant, call: Callable[[Stack, int], tuple[Effect, ...]]) -> None:
        """Call the stack after one hop of the network, unless the participant crashed meanwhile."""
        stack = participant.stack

        def action() -> None:
            present = self.participants[participant.name]
            if present.stack is stack:
                self._carry_out(present, call(stack, self.now_ms))

        self.at(self.now_ms + self.network.delay_ms(), action)

    def _new_stack(self, name: str) -> Stack:
        self._lives += 1
        return Stack(
            self._channel_id,
            name,
            self._content_topic,
            self._options,
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


def _receive(message: WakuMessage, stack: Stack, now_ms: int) -> tuple[Effect, ...]:
    return stack.receive(message, now_ms)


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
