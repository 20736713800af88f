"""`write_script`: draws all actions of the participants of a world from its seed, before the world begins.

Joins and leaves are drawn first, because they decide which participants can act. All times are milliseconds since the
beginning of the world. Actions are sorted by time. The network has generators of its own, so that other network faults
do not change the actions.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import Final

from fairway.simulation.plan import SimulationPlan
from fairway.units import HOUR_MS

_TEXT_BYTES: Final = (1, 8, 40, 120, 400)
"""Lengths of texts; a zero-padded number in front makes each its own."""
_SEGMENTS: Final = (2, 3, 4, 6)
_REPEATED: Final = b"ok"
_NOTICED_AFTER_MS: Final = 20_000
"""Latest that somebody notices to be offline."""
_LONGEST_JUMP_MS: Final = 600_000
_CLOCK_WRONG_MS: Final = 300_000
"""Longest time for which a clock that somebody set wrongly stays so."""
_BLIPS: Final = 0.4
"""Share of the jumps of a clock that are over in a moment."""
_BLIP_MS: Final = (100, 4_000)
_BLIP_BEFORE_MS: Final = 1_000
_BLIP_AHEAD_MS: Final = 120_000
_BLIPS_APART_MS: Final = 150_000
"""After so long it is known again what a clock has to show."""
_PAUSES_MS: Final = (0, 1_000, 20_000)
_FORGERIES_PER_HOUR: Final = 120
_LATEST_JOIN: Final = 0.9
"""Part of the duration in which people come and go, so that something is said afterwards."""


class Deed(Enum):
    """What can happen in a world."""

    SEND = "send"
    EPHEMERAL = "send ephemeral"
    CRASH = "crash"
    CUT = "crash amid handing over"
    CUT_OFF = "cut off unawares"
    OFFLINE = "go offline"
    ONLINE = "come back"
    NODE_DIES = "lose its node"
    NODE_BACK = "find another node"
    DEAF = "be forgotten by its node"
    CLOCK = "set its clock"
    BLIP = "misread its clock"
    DISK = "have its disk fail"
    PAUSE = "stop its channel for a while"
    FORGE = "forge"
    JOIN = "join"
    LEAVE = "leave"
    RESET = "lose connections"
    STALL = "have silent links"
    SEVER = "sever"
    MEND = "mend"


_MOMENTARY: Final = frozenset(
    {Deed.CRASH, Deed.CUT, Deed.PAUSE, Deed.DISK, Deed.DEAF, Deed.FORGE, Deed.RESET, Deed.STALL}
)
_AMID_SENDS: Final = 0.5
_SOON: Final = (0.0, 4.5)
"""How soon after a send, as powers of ten of milliseconds: from before it is kept until it has been repeated."""


class Asking(Enum):
    """When an application asks that somebody more acknowledges a message that it sent."""

    OPEN = "while nobody is known to have it"
    DELIVERED = "when it counts as delivered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that happens."""

    at_ms: int
    deed: Deed
    names: tuple[str, ...]
    """The participants that act; several for a partition, none for its end."""
    payload: bytes = b""
    ask_all: bool = False
    """Whether all present participants are asked to acknowledge."""
    ask_count: int = 1
    """Number of participants that are asked to acknowledge."""
    more: Asking | None = None
    """When a further participant is asked for; None if none is."""
    number: int = 0
    """How far a clock is ahead afterwards in ms, of a blip for how much it jumps, with 0 at its end; and where else
    there is something to choose, which."""
    sides: tuple[tuple[str, ...], ...] = ()
    """Of a partition, without those who are on none."""


def longest_jump_ms(plan: SimulationPlan) -> int:
    """Return how far from the true time a clock is set at most."""
    return max(plan.clock_skew_ms, _LONGEST_JUMP_MS)


def names_of(plan: SimulationPlan) -> tuple[str, ...]:
    """Return the participants at the beginning."""
    return tuple(_name(number) for number in range(plan.participants))


def write_script(plan: SimulationPlan) -> tuple[Action, ...]:
    """Draw all actions of a world, in the order of time."""
    rng = random.Random(f"script/{plan.seed}")  # noqa: S311 - reproducible, and guards nothing
    asking = random.Random(f"asking/{plan.seed}")  # noqa: S311
    stays = _stays(plan, rng)
    actions = [
        *(Action(at_ms=first, deed=Deed.JOIN, names=(name,)) for name, (first, _) in stays.items() if first),
        *(
            Action(at_ms=last, deed=Deed.LEAVE, names=(name,))
            for name, (_, last) in stays.items()
            if last < plan.duration_ms
        ),
    ]
    for name, (first, last) in stays.items():
        actions += (_asking(plan, asking, action) for action in _talk(plan, rng, name, first, last))
        for at_ms in _times(rng, plan.crashes_per_hour, first, last):
            actions.append(Action(at_ms=at_ms, deed=Deed.CRASH, names=(name,)))
        actions += _absences(plan, rng, name, first, last)
        actions += _failing_nodes(plan, rng, name, first, last)
        actions += _clocks(plan, rng, name, first, last)
        for at_ms in _times(rng, plan.pauses_per_hour, first, last):
            actions.append(Action(at_ms=at_ms, deed=Deed.PAUSE, names=(name,), number=rng.choice(_PAUSES_MS)))
        for at_ms in _times(rng, plan.storage_faults_per_hour, first, last):
            actions.append(Action(at_ms=at_ms, deed=Deed.DISK, names=(name,), number=rng.randrange(1 << 32)))
    cuts = random.Random(f"cuts/{plan.seed}")  # noqa: S311 - reproducible, and guards nothing
    for name, (first, last) in stays.items():
        for at_ms in _times(cuts, plan.cuts_per_hour, first, last):
            actions.append(Action(at_ms=at_ms, deed=Deed.CUT, names=(name,)))
    actions += _lost_links(plan, stays)
    actions += _partitions(plan, rng, stays)
    actions += _bursts(plan, rng, stays)
    actions += _forgeries(plan, rng)
    actions = _amid_sends(plan, actions, stays)
    actions += _blips(plan, actions, stays)
    # The sort is stable, so that what happens at one moment does so in the order in which it was drawn.
    return tuple(sorted(actions, key=lambda action: action.at_ms))


def _amid_sends(plan: SimulationPlan, actions: list[Action], stays: dict[str, tuple[int, int]]) -> list[Action]:
    """Move every other momentary fault to a time soon after a send, when messages are under way."""
    dice = random.Random(f"amid/{plan.seed}")  # noqa: S311 - reproducible, and guards nothing
    sends = sorted(action.at_ms for action in actions if action.deed is Deed.SEND)
    moved = []
    for action in actions:
        first, last = stays[action.names[0]] if len(action.names) == 1 else (0, plan.duration_ms)
        if action.deed in _MOMENTARY and sends and dice.random() < _AMID_SENDS:
            # Where many send at once, much can go wrong.
            at_ms = dice.choice(sends) + int(10 ** dice.uniform(*_SOON))
            moved.append(replace(action, at_ms=at_ms) if first < at_ms < last else action)
        else:
            moved.append(action)
    return moved


def _stays(plan: SimulationPlan, rng: random.Random) -> dict[str, tuple[int, int]]:
    """Return for each participant the time of its join and of its leave."""
    latest = max(1, int(plan.duration_ms * _LATEST_JOIN))
    stays = dict.fromkeys(names_of(plan), (0, plan.duration_ms))
    for name in sorted(rng.sample(sorted(stays), plan.leaves)):
        stays[name] = (0, rng.randint(1, latest))
    for number in range(plan.joins):
        stays[_name(plan.participants + number)] = (rng.randint(1, latest), plan.duration_ms)
    return stays


def _talk(plan: SimulationPlan, rng: random.Random, name: str, first: int, last: int) -> Iterator[Action]:
    for number, at_ms in enumerate(_times(rng, plan.messages_per_hour, first, last)):
        mark = f"{name} {number:04} ".encode()
        if rng.random() < plan.ephemeral_share:
            yield Action(at_ms=at_ms, deed=Deed.EPHEMERAL, names=(name,), payload=mark + rng.randbytes(8))
            continue
        if rng.random() < plan.repeat_share:
            payload = _REPEATED
        elif rng.random() < plan.long_share:
            size = rng.choice(_SEGMENTS) * plan.segment_size_bytes - rng.randrange(plan.segment_size_bytes // 2 + 1)
            payload = mark + rng.randbytes(size)
        else:
            payload = mark + rng.randbytes(rng.choice(_TEXT_BYTES))
        yield Action(
            at_ms=at_ms, deed=Deed.SEND, names=(name,), payload=payload, ask_all=rng.random() < plan.ask_all_share
        )


def _asking(plan: SimulationPlan, rng: random.Random, action: Action) -> Action:
    """Draw how many participants a send asks for, and whether it asks for a further one later."""
    if action.deed is not Deed.SEND:
        return action
    count = rng.choice((2, 3)) if rng.random() < plan.ask_some_share else 1
    more = rng.choice(list(Asking)) if rng.random() < plan.ask_more_share else None
    return replace(action, ask_count=1 if action.ask_all else count, more=more)


def _absences(plan: SimulationPlan, rng: random.Random, name: str, first: int, last: int) -> Iterator[Action]:
    back_ms = first
    for drawn_ms in _times(rng, plan.absences_per_hour, first, last):
        at_ms = max(drawn_ms, back_ms + 1)
        noticed_ms = at_ms + rng.randint(0, _NOTICED_AFTER_MS)
        back_ms = min(noticed_ms + 1 + int(rng.expovariate(1 / plan.absence_ms)), last - 1)
        if back_ms <= noticed_ms:
            return
        yield Action(at_ms=at_ms, deed=Deed.CUT_OFF, names=(name,))
        yield Action(at_ms=noticed_ms, deed=Deed.OFFLINE, names=(name,))
        yield Action(at_ms=back_ms, deed=Deed.ONLINE, names=(name,))


def _lost_links(plan: SimulationPlan, stays: dict[str, tuple[int, int]]) -> Iterator[Action]:
    dice = random.Random(f"links/{plan.seed}")  # noqa: S311 - reproducible, and guards nothing
    for name, (first, last) in stays.items():
        for deed, rate in ((Deed.RESET, plan.resets_per_hour), (Deed.STALL, plan.stalls_per_hour)):
            for at_ms in _times(dice, rate, first, last):
                yield Action(at_ms=at_ms, deed=deed, names=(name,), number=dice.randrange(1 << 32))


def _partitions(plan: SimulationPlan, rng: random.Random, stays: dict[str, tuple[int, int]]) -> Iterator[Action]:
    over_ms = 0
    for drawn_ms in sorted(rng.randint(1, plan.duration_ms) for _ in range(plan.partitions)):
        at_ms = max(drawn_ms, over_ms + 1)
        over_ms = min(at_ms + plan.partition_ms, plan.duration_ms - 1)
        if over_ms <= at_ms:
            return
        names = sorted(stays)
        rng.shuffle(names)
        cuts = sorted(rng.sample(range(1, len(names)), min(plan.partition_sides, len(names)) - 1))
        sides = tuple(tuple(names[a:b]) for a, b in pairwise((0, *cuts)))
        yield Action(at_ms=at_ms, deed=Deed.SEVER, names=(), sides=sides)
        yield Action(at_ms=over_ms, deed=Deed.MEND, names=())


def _failing_nodes(plan: SimulationPlan, rng: random.Random, name: str, first: int, last: int) -> Iterator[Action]:
    back_ms = first
    for drawn_ms in _times(rng, plan.node_deaths_per_hour, first, last):
        at_ms = max(drawn_ms, back_ms + 1)
        back_ms = min(at_ms + 1 + int(rng.expovariate(1 / plan.absence_ms)), last - 1)
        if back_ms <= at_ms:
            return
        yield Action(at_ms=at_ms, deed=Deed.NODE_DIES, names=(name,), number=rng.randrange(2))
        yield Action(at_ms=back_ms, deed=Deed.NODE_BACK, names=(name,))
    for at_ms in _times(rng, plan.deaf_per_hour, first, last):
        yield Action(at_ms=at_ms, deed=Deed.DEAF, names=(name,))


def _clocks(plan: SimulationPlan, rng: random.Random, name: str, first: int, last: int) -> Iterator[Action]:
    most = longest_jump_ms(plan)
    for at_ms in _times(rng, plan.clock_jumps_per_hour, first, last):
        if rng.random() < _BLIPS:
            yield Action(at_ms=at_ms, deed=Deed.BLIP, names=(name,), number=rng.randint(-most, most))
            yield Action(at_ms=at_ms + rng.randint(*_BLIP_MS), deed=Deed.BLIP, names=(name,))
            continue
        yield Action(at_ms=at_ms, deed=Deed.CLOCK, names=(name,), number=rng.randint(-most, most))
        # Somebody notices.
        mended_ms = at_ms + rng.randint(1_000, _CLOCK_WRONG_MS)
        if mended_ms < last:
            skew_ms = rng.randint(-plan.clock_skew_ms, plan.clock_skew_ms)
            yield Action(at_ms=mended_ms, deed=Deed.CLOCK, names=(name,), number=skew_ms)


def _blips(plan: SimulationPlan, actions: list[Action], stays: dict[str, tuple[int, int]]) -> Iterator[Action]:
    """Let clocks be ahead for a few seconds around what their participants send, not twice within minutes."""
    dice = random.Random(f"blips/{plan.seed}")  # noqa: S311 - reproducible, and guards nothing
    for name, (first, last) in stays.items() if plan.blips_per_hour else ():
        sends = sorted(action.at_ms for action in actions if action.deed is Deed.SEND and action.names == (name,))
        over_ms = first
        for drawn_ms in _times(dice, plan.blips_per_hour, first, last):
            place = bisect_left(sends, max(drawn_ms, over_ms))
            if place == len(sends):
                break
            at_ms = max(over_ms, sends[place] - dice.randint(1, _BLIP_BEFORE_MS))
            ahead_ms = dice.randint(_BLIP_AHEAD_MS, _LONGEST_JUMP_MS)
            yield Action(at_ms=at_ms, deed=Deed.BLIP, names=(name,), number=ahead_ms)
            yield Action(at_ms=at_ms + dice.randint(_BLIP_BEFORE_MS, _BLIP_MS[1]), deed=Deed.BLIP, names=(name,))
            over_ms = at_ms + _BLIPS_APART_MS


def _bursts(plan: SimulationPlan, rng: random.Random, stays: dict[str, tuple[int, int]]) -> Iterator[Action]:
    dice = random.Random(f"repeats/{plan.seed}")  # noqa: S311 - reproducible, and guards nothing
    for burst in range(plan.bursts):
        name = rng.choice(sorted(stays))
        at_ms = rng.randint(*stays[name])
        for number in range(plan.burst_messages):
            size = rng.choice((1, *_SEGMENTS)) * plan.segment_size_bytes - rng.randrange(plan.segment_size_bytes // 2)
            payload = f"{name} burst {burst} {number:04} ".encode() + rng.randbytes(size)
            if plan.burst_repeats and dice.random() < plan.burst_repeats:
                payload = _REPEATED
            yield Action(at_ms=at_ms + number, deed=Deed.SEND, names=(name,), payload=payload)


def _forgeries(plan: SimulationPlan, rng: random.Random) -> Iterator[Action]:
    for _ in range(plan.hostile):
        for at_ms in _times(rng, _FORGERIES_PER_HOUR, 0, plan.duration_ms):
            yield Action(at_ms=at_ms, deed=Deed.FORGE, names=(), number=rng.randrange(1 << 32))


def _times(rng: random.Random, per_hour: float, first: int, last: int) -> list[int]:
    """Draw the times of random events with a rate per hour."""
    times: list[int] = []
    at_ms = float(first)
    while per_hour > 0:
        at_ms += rng.expovariate(per_hour / HOUR_MS)
        if at_ms >= last:
            break
        times.append(int(at_ms))
    return times


def _name(number: int) -> str:
    return f"p{number:02}"
