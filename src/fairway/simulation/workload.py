"""The random workload: `write_script` draws all actions and faults of a world before it begins.

Half of the momentary faults strike within half a minute after a send, while messages are in flight. Faults drawn evenly
over the time would mostly strike a channel at rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from fairway.simulation.plan import MINUTE_MS, Plan, Trouble
from fairway.testing import DiskFault
from fairway.units import HOUR_MS

_LONG: Final = 0.1
"""Share of messages of several segments."""
_EPHEMERAL: Final = 0.1
_REPEATED: Final = 0.1
"""Share of messages with the repeated payload."""
_TO_ALL: Final = 0.5
"""Share of sends that ask for the acknowledgement of every participant."""
_DEADLINE: Final = 0.05
"""Share of sends with a deadline."""
_DEADLINE_S: Final = (5.0, 120.0)
_OFTEN: Final = {
    Trouble.CRASH: 4.0,
    Trouble.POWER_CUT: 4.0,
    Trouble.DISK_FAULT: 4.0,
    Trouble.ABSENCE: 3.0,
    Trouble.CLOCK_JUMP: 2.0,
}
"""Rate of each trouble for each participant and hour."""
_FORGERIES_PER_HOUR: Final = 60.0
_JOINING: Final = 2
_SOON_S: Final = (-2.0, 1.5)
"""Exponents to 10 of the time in seconds from a send to a fault."""
OK: Final = b"ok"
"""The payload that is sent repeatedly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action or a fault of a participant, at a time in milliseconds since the world began."""

    at_ms: int
    name: str


class Join(Action):
    """A participant joins."""


class Leave(Action):
    """A participant leaves for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage(Action):
    """An application sends a message."""

    payload: bytes
    to_all: bool
    """Whether all participants must acknowledge it; otherwise one suffices."""
    deadline_s: float | None = None
    """Deadline in seconds; None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendEphemeral(Action):
    """An application sends an ephemeral message."""

    payload: bytes


class Crash(Action):
    """A program is killed and starts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingDisk(Action):
    """The disk fails at its next sync."""

    fault: DiskFault


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence(Action):
    """A node is offline, has no service node, or receives nothing."""

    kind: str
    """"offline", "lost", "silent" or "deaf"."""
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(Action):
    """The network is split: ``side`` cannot reach the others."""

    side: frozenset[str]
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockJump(Action):
    """A clock is ahead, or behind, for a while."""

    ahead_ms: int
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forge(Action):
    """The forger sends something."""

    number: int
    """The number that selects its forgery."""


def first_names(plan: Plan) -> list[str]:
    """Return the participants at the start."""
    return [_name(number) for number in range(plan.participants)]


def all_names(plan: Plan) -> list[str]:
    """Return the participants at the start, and those that may join."""
    return [_name(number) for number in range(plan.participants + _JOINING)]


def write_script(plan: Plan) -> list[Action]:
    """Draw the actions of a world, in the order of their times."""
    dice = Random(f"script/{plan.seed}")  # noqa: S311 - reproducible, not secret
    actions: list[Action] = []
    stays = dict.fromkeys(first_names(plan), (0, plan.duration_ms))
    if Trouble.LEAVE in plan.troubles:
        for name in dice.sample(sorted(stays), min(2, plan.participants - 2)):
            stays[name] = (0, dice.randint(1, plan.duration_ms))
            actions.append(Leave(at_ms=stays[name][1], name=name))
    if Trouble.JOIN in plan.troubles:
        for number in range(plan.participants, plan.participants + _JOINING):
            stays[_name(number)] = (dice.randint(1, plan.duration_ms), plan.duration_ms)
            actions.append(Join(at_ms=stays[_name(number)][0], name=_name(number)))
    for name, (first, last) in stays.items():
        actions += _talk(plan, dice, name, first, last)
    sends = [action for action in actions if isinstance(action, SendMessage)]
    for name, (first, last) in stays.items():
        for trouble in sorted(plan.troubles & _OFTEN.keys(), key=lambda each: each.value):
            for drawn_ms in _times(dice, _OFTEN[trouble], first, last):
                at_ms = _soon_after(dice, sends, drawn_ms)
                if first < at_ms < last:
                    actions.append(_fault(dice, trouble, at_ms, name))
    if Trouble.PARTITION in plan.troubles:
        side = frozenset(dice.sample(sorted(stays), dice.randint(1, len(stays) - 1)))
        at_ms = dice.randint(1, plan.duration_ms)
        actions.append(Split(at_ms=at_ms, name="", side=side, for_ms=dice.randint(1, 8) * MINUTE_MS))
    if plan.has_forger:
        for at_ms in _times(dice, _FORGERIES_PER_HOUR, 0, plan.duration_ms):
            actions.append(Forge(at_ms=at_ms, name="", number=dice.randrange(1 << 32)))
    return sorted(actions, key=lambda action: action.at_ms)


def _talk(plan: Plan, dice: Random, name: str, first: int, last: int) -> Iterator[Action]:
    for number, at_ms in enumerate(_times(dice, plan.messages_per_hour, first, last)):
        payload = f"{name} {number}: ".encode() + dice.randbytes(dice.randint(1, 200))
        kind = dice.random()
        if kind < _EPHEMERAL:
            yield SendEphemeral(at_ms=at_ms, name=name, payload=payload)
            continue
        if kind < _EPHEMERAL + _LONG:
            payload += dice.randbytes(dice.randint(2_000, 6_000))
        elif kind < _EPHEMERAL + _LONG + _REPEATED:
            payload = OK
        # Equal payloads have no deadline, because the wire does not show which one expired.
        deadline_s = dice.uniform(*_DEADLINE_S) if payload != OK and dice.random() < _DEADLINE else None
        to_all = dice.random() < _TO_ALL
        yield SendMessage(at_ms=at_ms, name=name, payload=payload, to_all=to_all, deadline_s=deadline_s)


def _fault(dice: Random, trouble: Trouble, at_ms: int, name: str) -> Action:
    match trouble:
        case Trouble.POWER_CUT:
            fault = dice.choice((DiskFault.CRASH_BEFORE, DiskFault.CRASH_AFTER))
            return FailingDisk(at_ms=at_ms, name=name, fault=fault)
        case Trouble.DISK_FAULT:
            fault = dice.choice((DiskFault.FULL, DiskFault.SYNC_ERROR))
            return FailingDisk(at_ms=at_ms, name=name, fault=fault)
        case Trouble.ABSENCE:
            kind = dice.choice(("offline", "lost", "silent", "deaf"))
            return Absence(at_ms=at_ms, name=name, kind=kind, for_ms=int(dice.expovariate(1 / (3 * MINUTE_MS))))
        case Trouble.CLOCK_JUMP:
            ahead_ms = dice.choice((-1, 1)) * dice.choice((2_000, 60_000, 600_000))
            return ClockJump(at_ms=at_ms, name=name, ahead_ms=ahead_ms, for_ms=dice.randint(1_000, 5 * MINUTE_MS))
    return Crash(at_ms=at_ms, name=name)


def _soon_after(dice: Random, sends: list[SendMessage], drawn_ms: int) -> int:
    if not sends or dice.random() < 0.5:
        return drawn_ms
    return dice.choice(sends).at_ms + int(1_000 * 10 ** dice.uniform(*_SOON_S))


def _times(dice: Random, per_hour: float, first: int, last: int) -> Iterator[int]:
    """Draw the times of random events with a rate per hour."""
    at_ms = float(first)
    while (at_ms := at_ms + dice.expovariate(per_hour / HOUR_MS)) < last:
        yield int(at_ms)


def _name(number: int) -> str:
    return f"p{number:02}"
