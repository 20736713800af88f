"""Worlds drawn at random: `draw_plan` makes of a seed a whole `SimulationPlan`, from calm to everything at once.

Each world switches a random part of the kinds of trouble on (Groce et al., "Swarm Testing", ISSTA 2012), so that one
does not hide what another shows. Every kind draws from a generator of its own: what a seed means stays as it is when a
kind is added. A world's duration follows from how much is transmitted in it, so that worlds cost about the same.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

from fairway.options import BloomPolicy, Delivery, Profile, SegmentationConfig
from fairway.simulation.plan import NOT_OF_LIGHT_CLIENTS, SimulationPlan, StoreKind
from fairway.units import HOUR_MS

CALM: Final = SimulationPlan(
    loss=0.0,
    duplication=0.0,
    min_delay_ms=20,
    max_delay_ms=20,
    long_share=0.0,
    ephemeral_share=0.0,
    repeat_share=0.0,
    ask_all_share=0.0,
    ask_some_share=0.0,
    ask_more_share=0.0,
    crashes_per_hour=0.0,
    absences_per_hour=0.0,
    joins=0,
    leaves=0,
    partitions=0,
)
"""A world in which nothing goes wrong: what each field is when its kind of trouble is off."""

_RECEPTIONS: Final = 3_000
"""About as many receptions of messages make a world, over all participants."""
_BURST_BYTES: Final = 80_000_000
"""About as many bytes all participants receive of bursts; more cost minutes, and say no more."""
_A_BURST: Final = 5
"""Fewer messages at once are none."""
_TO_EACH_SYNC: Final = 1.25
"""About as many messages a participant transmits for each interval of its sync timer, without sending anything."""
_MOST_IDLE_PER_HOUR: Final = 2_000
"""More it does not transmit, since at short intervals what others say often comes first."""
_PER_LONG: Final = 4
"""About as many segments a message of several has."""
_EPOCHS_OF_A_BURST: Final = 4
"""In so many epochs of the rate limit what was sent in bursts is to get out."""
_SLOW_PER_HOUR: Final = 900
"""What a slow uplink lets out in half an hour; where more is to be said in an hour it would never come to rest."""
_SHORT_PATIENCE_MS: Final = 900_000
"""Longer than a repair takes: a request and its answer wait up to five minutes each."""
_FORGED_MS: Final = 600_000
"""How long is waited at least for what was forged: longer than anything honest is out of reach."""
_HOSTILE_KEPT_UP_WITH: Final = 2
"""Each invents some five messages a minute, and a participant asks for about twelve."""
_READ_AMONG_MANY: Final = 20
"""Messages on a page, at least, with which a store is read faster than it fills by who may ask for a dozen pages a
minute, where more forgers than that invent messages and all ask for these (docs/worlds.md)."""
_ASKING_PER_FORGER: Final = 25
"""Transmissions in an epoch that ask for what one of them invents meanwhile: each for two messages that are new."""
_REPAIRED_MS: Final = 300_000
"""Within this time a repair is asked for and answered once, unless the timers of the profile are longer."""
_UNREPAIRED: Final = 1e-3
"""Chance that an honest message is given up with what was forged, since all requests for it or answers got lost."""
_MOST_TRIES: Final = 15
"""Among thousands of inventions a participant asks for each message a few times an hour. Where a request
or its answer gets lost so often that more is needed, ciphers fail seldom."""
_SELDOM_FAILING: Final = 0.02
_MOST_TRIES_IN_TURN: Final = 20
"""Of a burst that no store has, a participant with tight quotas asks for a part after the other. Where each has to be
asked for more often than this, the last ones are given up before they are asked for."""
_ALWAYS_THERE: Final = ("store_gaps", "store_lag_ms", "store_lies", "partitions", "hostile", "cipher_failures")
"""Troubles without which the store has what anybody may miss."""
_DELAYING: Final = (
    "absences_per_hour",
    "joins",
    "node_deaths_per_hour",
    "deaf_per_hour",
    "slow_uplinks",
    "bursts",
    "refusals",
    "tight_quotas",
    "rate_limit",
    "node_rate",
    "storage_faults_per_hour",
    "long_share",
)
"""Troubles by which a message may come long after others that were sent later."""
_LONGEST_MS: Final = 4 * HOUR_MS
_LONG_SHARE: Final = 0.25
"""Share of worlds that last for days: of few who say little, so that they cost little for each hour."""
_LONG_RECEPTIONS: Final = 15 * _RECEPTIONS
_LONGEST_OF_ALL_MS: Final = 7 * 24 * HOUR_MS
_SHORTEST_MS: Final = 120_000
_DEFAULT_SEGMENT: Final = SegmentationConfig().segment_size_bytes

_SIZES: Final = {
    range(2, 4): 0.25,
    range(4, 8): 0.55,
    range(8, 13): 0.185,
    range(13, 41): 0.0138,
    range(41, 151): 0.001,
    range(151, 1_001): 0.0005,
}
"""How likely a world has how many participants. One of 1,000 costs as much as hundreds of 5."""

_CROWDED: Final = 0.025
"""Share of the worlds that are not long which are of very many, who say little, so that they cost minutes at most."""
_FEW: Final = 12
_OFTEN: Final = 0.5
_FEW_LOGOS: Final = 4
_SLIGHT: Final = 0.3
_SHARES: Final = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8)
"""Share of the kinds of trouble that a world has: with all of them at once, one hides what another shows."""
_SHARES_OF_MANY: Final = (0.0, 0.1, 0.2)
"""That of worlds of more than a few participants: their number is trouble enough."""
_SELDOM: Final = 0.5
"""How often a world has a special trouble, compared to a common one."""

_MOST_LIGHT_CLIENTS: Final = 8
_FOR_TINY_QUOTAS: Final = 12
"""Long messages said at once that buffers of a few segments take in before any is given up."""
_LIGHT_MINUTES: Final = 90.0
"""Minutes of all light clients of a world together, at most: each costs a second and a half for ten of them."""
_SIZE: Final = frozenset({"participants", "messages_per_hour", "duration_ms"})
"""Fields that say how large a world is; where one is given, none is long."""
_HAPPENING: Final = (
    "crashes_per_hour",
    "cuts_per_hour",
    "absences_per_hour",
    "node_deaths_per_hour",
    "deaf_per_hour",
    "clock_jumps_per_hour",
    "blips_per_hour",
    "storage_faults_per_hour",
    "pauses_per_hour",
)

_Draw = Callable[[random.Random, dict[str, Any]], dict[str, Any]]


def draw_plan(seed: int, **given: Any) -> SimulationPlan:
    """Return the plan that a seed makes, with the fields that are given in place of what is drawn."""
    # What cannot be is refused before anything follows from it.
    replace(CALM, **_fitting({"participants": CALM.participants} | given) | given)
    rng = _generator(seed, "swarm")
    plan: dict[str, Any] = {"seed": seed}
    for draw in _ALWAYS:
        plan |= draw(_generator(seed, draw.__name__), plan | given) | given
    is_light = bool(given.get("service_nodes"))
    is_long = _generator(seed, "whether long").random() < _LONG_SHARE and _SIZE.isdisjoint(given) and not is_light
    if is_long:
        plan |= _few_and_quiet(_generator(seed, "few and quiet"))
    is_crowded = (
        not (is_long or is_light)
        and _generator(seed, "whether crowded").random() < _CROWDED
        and _SIZE.isdisjoint(given)
    )
    if is_crowded:
        plan |= _many_who_say_little(_generator(seed, "crowded"), plan)
    share = rng.choice(_SHARES if plan["participants"] <= _FEW else _SHARES_OF_MANY)
    for draw in _TROUBLES:
        if _generator(seed, f"whether {draw.__name__}").random() < share:
            plan |= draw(_generator(seed, draw.__name__), plan) | given
    for draw in _SPECIAL_TROUBLES:
        if _generator(seed, f"whether {draw.__name__}").random() < share * _SELDOM:
            plan |= draw(_generator(seed, draw.__name__), plan) | given
    if not is_long and _generator(seed, "whether _short_patience").random() < _OFTEN:
        # Few worlds are such that this and the next can be on, so that in those it often is.
        plan |= _short_patience(_generator(seed, "_short_patience"), plan) | given
    if not is_long and _generator(seed, "whether _short_history").random() < _OFTEN:
        plan |= _short_history(_generator(seed, "_short_history"), plan) | given
    if is_long or is_crowded:
        # A member that forges two messages a minute for days, or for hundreds of others, costs as much as all else.
        plan |= {"hostile": 0} | given
    if is_crowded:
        plan |= {"bursts": 0} | given
    if plan.get("hostile"):
        # What forgers invent takes the few places for hours, and what finds none meanwhile is given up in the end.
        plan |= {"tiny_quotas": False} | _among_forgers(plan) | given
    if plan.get("bursts") and plan.get("store_gaps") == 1 and _tries_of_repair(plan) > _MOST_TRIES_IN_TURN:
        plan |= {"tight_quotas": False} | given
    for draw in _PARTS_OF_OTHERS:
        if _generator(seed, f"whether {draw.__name__}").random() < _OFTEN:
            plan |= draw(_generator(seed, draw.__name__), plan) | given
    if is_light:
        plan |= _among_light_clients(seed, plan) | given
    plan.setdefault("duration_ms", _duration_ms(rng, plan, is_long=is_long))
    if is_long:
        plan |= _now_and_then(plan) | given
    return replace(CALM, **plan | _fitting(plan) | given)


def calm_but(given: dict[str, Any]) -> dict[str, Any]:
    """Return fields by which, given to `draw_plan`, nothing goes wrong but what is given."""
    drawn = {"seed", "settle_ms", *(name for draw in _ALWAYS for name in draw(_generator(0, ""), {}))}
    calm = {each.name: getattr(CALM, each.name) for each in fields(CALM) if each.name not in drawn | _SIZE}
    return calm | given


def _among_light_clients(seed: int, plan: dict[str, Any]) -> dict[str, Any]:
    """Draw troubles that only light clients have, leave out those that they cannot have, and let worlds be short."""
    changes = {name: getattr(CALM, name) for name in NOT_OF_LIGHT_CLIENTS} | {"hostile": 0, "haste": False}
    changes["participants"] = participants = min(plan["participants"], _MOST_LIGHT_CLIENTS)
    share = _generator(seed, "swarm of light clients").choice(_SHARES)
    for draw in _LIGHT_TROUBLES:
        if _generator(seed, f"whether {draw.__name__}").random() < share:
            changes |= draw(_generator(seed, draw.__name__), plan)
    minutes = _generator(seed, "duration of light clients").uniform(2, _LIGHT_MINUTES) / participants
    changes["duration_ms"] = int(max(_SHORTEST_MS, minutes * HOUR_MS / 60))
    return changes | {
        "leaves": min(plan.get("leaves", 0), participants - 2),
        "slow_readers": min(plan.get("slow_readers", 0), participants),
    }


def _fitting(plan: dict[str, Any]) -> dict[str, Any]:
    """Return what has to change of a plan so that there can be such a world, where some of it was not drawn."""
    fitting: dict[str, Any] = {
        "leaves": min(plan.get("leaves", 0), plan["participants"] - 2),
        "partition_sides": min(plan.get("partition_sides", 2), plan["participants"]),
        "max_delay_ms": max(plan.get("max_delay_ms", CALM.max_delay_ms), plan.get("min_delay_ms", 0)),
    }
    if plan.get("disk_ms", CALM.disk_ms) != CALM.disk_ms and "store" not in plan:
        fitting |= {"store": StoreKind.DISK}
    if plan.get("storage_faults_per_hour"):
        fitting |= {"store": StoreKind.DISK}
        fitting |= {"storage_faults_per_hour": 0.0} if plan.get("store") is StoreKind.MEMORY else {}
    if plan.get("cipher_delay_ms") or plan.get("cipher_failures"):
        fitting |= {"encrypted": True}
        fitting |= {"cipher_delay_ms": 0, "cipher_failures": 0.0} if plan.get("encrypted") is False else {}
    return fitting


def _generator(seed: int, what: str) -> random.Random:
    return random.Random(f"plan/{seed}/{what}")  # noqa: S311 - reproducible, and guards nothing


def _duration_ms(rng: random.Random, plan: dict[str, Any], *, is_long: bool) -> int:
    """Return how long a world may last to cost about what others of its kind do."""
    bursts = _transmissions_in_bursts(plan) * plan["participants"]
    worth, longest_ms = (_LONG_RECEPTIONS, _LONGEST_OF_ALL_MS) if is_long else (_RECEPTIONS, _LONGEST_MS)
    receptions = max(worth - bursts, worth / 4)
    hours = receptions * rng.uniform(0.5, 1.5) / (plan["participants"] ** 2 * _transmissions_per_hour(plan))
    return min(max(int(hours * HOUR_MS) // 1_000 * 1_000, _SHORTEST_MS), longest_ms)


def _few_and_quiet(rng: random.Random) -> dict[str, Any]:
    return {"participants": rng.choice((2, 2, 3)), "messages_per_hour": rng.choice((0.1, 0.5, 2.0))}


def _many_who_say_little(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    # A world costs as the square of its participants, and as what they transmit without sending anything.
    times = 3 if _idle_per_hour(plan) >= _MOST_IDLE_PER_HOUR else 5
    participants = round(40 * times ** rng.random())
    return {"participants": participants, "messages_per_hour": rng.choice((1.0, 4.0, 10.0))}


def _now_and_then(plan: dict[str, Any]) -> dict[str, Any]:
    """Let of what happens at a rate as much happen in a long world as in others."""
    slower = min(1.0, _LONGEST_MS / plan["duration_ms"])
    return {name: round(plan[name] * slower, 4) for name in _HAPPENING if name in plan}


def _among_forgers(plan: dict[str, Any]) -> dict[str, Any]:
    """Let waits for messages that do not exist be short, and absences clearly shorter; and let repairs come through.

    And let a store be read faster than it fills.
    """
    failures = plan.get("cipher_failures", 0.0)
    if _tries_of_repair(plan) > _MOST_TRIES:
        failures = min(failures, _SELDOM_FAILING)
    tries = _tries_of_repair(plan | {"cipher_failures": failures})
    repaired_ms = max(_REPAIRED_MS, 2 * plan["profile"].options().sds.repair.t_max_ms)
    patience_ms = max(_FORGED_MS, tries * repaired_ms)
    # Where little gets out, an answer waits behind much else; where more is invented than can be asked for, a request.
    is_slow = any(plan.get(name) for name in ("rate_limit", "node_rate", "slow_uplinks"))
    are_many = plan["hostile"] > _HOSTILE_KEPT_UP_WITH
    is_slow = is_slow or are_many
    is_hardly_read = are_many and plan.get("tight_quotas") and plan.get("store_page")
    changes: dict[str, Any] = {"cipher_failures": failures} if failures else {}
    changes |= {"store_page": max(plan["store_page"], _READ_AMONG_MANY)} if is_hardly_read else {}
    return changes | {
        "lost_timeout_ms": CALM.lost_timeout_ms if is_slow else min(patience_ms, CALM.lost_timeout_ms),
        "absence_ms": min(plan.get("absence_ms", CALM.absence_ms), _FORGED_MS // 6),
        "partition_ms": min(plan.get("partition_ms", CALM.partition_ms), _FORGED_MS // 5),
    }


def _tries_of_repair(plan: dict[str, Any]) -> int:
    """Return how often to ask for a message until it comes, but for a small chance."""
    # A request and its answer have to come through, and to be opened.
    repaired = ((1 - plan.get("loss", 0)) * (1 - plan.get("cipher_failures", 0))) ** 2
    return math.ceil(math.log(_UNREPAIRED) / math.log(1 - repaired)) if repaired < 1 else 1


def _transmissions_per_hour(plan: dict[str, Any]) -> float:
    """Return about how many transmissions of a participant a plan makes."""
    segments = 1 + _PER_LONG * plan.get("long_share", 0)
    return _idle_per_hour(plan) + float(plan["messages_per_hour"] * segments * _transmissions_each(plan))


def _idle_per_hour(plan: dict[str, Any]) -> float:
    """Return about how many messages a participant transmits in an hour without sending anything."""
    interval_ms: int = plan["profile"].options().sync_min_interval_ms
    return min(_MOST_IDLE_PER_HOUR, _TO_EACH_SYNC * HOUR_MS / interval_ms)


def _transmissions_in_bursts(plan: dict[str, Any]) -> float:
    """Return about how many transmissions all bursts of a plan take together."""
    return float(plan.get("bursts", 0) * plan.get("burst_messages", 0) * _PER_LONG * _transmissions_each(plan))


def _transmissions_each(plan: dict[str, Any]) -> float:
    """Return about how often a segment is transmitted until it came and its sender knows it."""
    arrives = 1.0
    for name in ("loss", "refusals", "answer_loss", "silence", "cipher_failures"):
        arrives *= 1 - plan.get(name, 0)
    return float((1 + (plan.get("parity_rate") or 0)) * (1 + 1 / arrives))


def _participants(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    sizes = rng.choices(list(_SIZES), list(_SIZES.values()))[0]
    return {"participants": rng.choice(sizes)}


def _talk(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {
        "messages_per_hour": rng.choice((4.0, 10.0, 30.0, 60.0, 120.0, 300.0)),
        "ephemeral_share": rng.choice((0.0, 0.1, 0.3)),
        "repeat_share": rng.choice((0.0, 0.1, 0.4)),
        "ask_all_share": rng.choice((0.0, 0.3, 0.7, 1.0)),
        "ask_some_share": rng.choice((0.0, 0.3, 0.7)),
        "ask_more_share": rng.choice((0.0, 0.1, 0.4)),
    }


def _channel(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {
        "profile": rng.choice(list(Profile)),
        "delivery": rng.choices(list(Delivery), (0.8, 0.2))[0],
        "bloom_capacity": rng.choice((200, 500, 500, 1_000, 10_000)),
    }


def _bloom_policy(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"bloom_policy": rng.choices(list(BloomPolicy), (0.2, 0.7, 0.1))[0]}


def _long_messages(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    size = rng.choice((200, 500, 1_000, 5_000, _DEFAULT_SEGMENT))
    share = rng.choice((0.05, 0.2, 0.6))
    most = 10 if size == _DEFAULT_SEGMENT else 120
    return {
        "segment_size_bytes": size,
        "long_share": share,
        "parity_rate": rng.choice((0.0, 0.125, 0.125, 0.5, 1.0)),
        "messages_per_hour": min(plan["messages_per_hour"], round(most / (1 + _PER_LONG * share), 1)),
    }


def _loss(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"loss": round(rng.choice((rng.uniform(0.01, 0.1), rng.uniform(0.1, 0.6), 0.3, 0.5)), 2)}


def _duplication(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"duplication": rng.choice((0.05, 0.2, 0.5))}


def _reordering(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"max_delay_ms": rng.choice((100, 250, 1_000, 5_000))}


def _store_gaps(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"store_gaps": rng.choice((0.05, 0.2, 0.5, 1.0))}


def _crashes(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"crashes_per_hour": rng.choice((1.0, 5.0, 20.0))}


def _cuts(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"cuts_per_hour": rng.choice((1.0, 5.0, 20.0))}


def _absences(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"absences_per_hour": rng.choice((1.0, 4.0, 12.0)), "absence_ms": rng.choice((20_000, 180_000, 900_000))}


def _short_patience(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    """Give up missing messages before an absent participant comes back, where the others can have all messages."""
    if any(plan.get(name) for name in _ALWAYS_THERE) or plan.get("loss", 0) > _SLIGHT:
        return {}
    return {
        "absences_per_hour": rng.choice((2.0, 6.0)),
        "absence_ms": 2 * _SHORT_PATIENCE_MS,
        "lost_timeout_ms": _SHORT_PATIENCE_MS,
        "clock_jumps_per_hour": rng.choice((0.0, 4.0)),
    }


def _comings(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    return {"joins": rng.randint(1, max(1, plan["participants"] // 3))}


def _goings(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    return {"leaves": rng.randint(1, max(1, plan["participants"] // 3))}


def _partitions(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {
        "partitions": rng.randint(1, 4),
        "partition_ms": rng.choice((30_000, 180_000, 600_000)),
        "partition_sides": rng.choice((2, 2, 3, 4)),
    }


def _refusals(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"refusals": rng.choice((0.02, 0.1, 0.4))}


def _busy_nodes(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    return {"node_rate": max(1.0, round(_transmissions_per_hour(plan) / 3_600 * rng.choice((3, 10)), 2))}


def _lost_answers(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"answer_loss": rng.choice((0.05, 0.2, 0.5))}


def _silent_nodes(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"silence": rng.choice((0.01, 0.05, 0.2))}


def _pauses(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"pauses_per_hour": rng.choice((1.0, 5.0, 20.0))}


def _direct_readers(_: random.Random, __: dict[str, Any]) -> dict[str, Any]:
    return {"direct_readers": True}


def _slow_uplinks(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    if _transmissions_per_hour(plan) > _SLOW_PER_HOUR:
        return {}
    return {"slow_uplinks": rng.randint(1, max(1, plan["participants"] // 2))}


def _dying_nodes(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"node_deaths_per_hour": rng.choice((1.0, 4.0, 12.0)), "absence_ms": rng.choice((20_000, 180_000))}


def _deaf_nodes(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"deaf_per_hour": rng.choice((1.0, 4.0, 12.0))}


def _late_store(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"store_lag_ms": rng.choice((1_000, 10_000, 60_000))}


def _small_pages(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"store_page": rng.choice((2, 5, 20))}


def _lying_store(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"store_lies": rng.choice((0.05, 0.2, 0.5))}


def _store_cuts(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"store_cuts": rng.choice((0.1, 0.3, 0.6))}


def _restamping(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"restamped": rng.choice((0.05, 0.3, 1.0))}


def _blips(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"blips_per_hour": rng.choice((2.0, 10.0, 30.0))}


def _no_repairs(_: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    """Turn repairs off, where the store has all messages: what one participant has acknowledged is not sent again."""
    return {} if plan.get("store_gaps") else {"repairs": False}


def _short_waits_for_segments(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"reassembly_timeout_ms": rng.choice((40_000, 300_000, 1_800_000))}


def _repeats_in_bursts(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    return {"burst_repeats": rng.choice((0.1, 0.5, 1.0))} if plan.get("bursts") else {}


def _haste(_: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    """Let forgers answer at once, where they read what they hear as it comes; and leave room for what they forge.

    Of a burst they forge more segments than tight quotas have room for, and what is taken in may not give way
    (docs/worlds.md).
    """
    if not plan.get("hostile") or plan.get("encrypted"):
        return {}
    return {"haste": True} | ({"tight_quotas": False} if plan.get("bursts") else {})


def _impatient_senders(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"impatience": rng.choice((0.1, 0.5, 1.0))}


def _tiny_quotas(_: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    """Take buffers that are soon full, where hints lead to what a store has, and bursts are short (docs/worlds.md)."""
    is_much = plan.get("burst_messages", 0) > _FOR_TINY_QUOTAS
    return {} if plan.get("restamped") or is_much else {"tiny_quotas": True}


def _gap_timeouts(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    """Deliver around gaps, but not with the smallest buffers (docs/worlds.md)."""
    return {} if plan.get("tiny_quotas") else {"gap_timeout_ms": rng.choice((5_000, 60_000, 600_000))}


def _careless_blooms(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"bloom_error_rate": rng.choice((0.01, 0.1, 0.3))}


def _disk(_: random.Random, __: dict[str, Any]) -> dict[str, Any]:
    return {"store": StoreKind.DISK}


def _slow_disk(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"store": StoreKind.DISK, "disk_ms": rng.choice((100, 500, 3_000))}


def _failing_disk(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"store": StoreKind.DISK, "storage_faults_per_hour": rng.choice((1.0, 5.0, 20.0))}


def _wrong_clocks(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"clock_skew_ms": rng.choice((1_000, 60_000, 600_000))}


def _jumping_clocks(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"clock_jumps_per_hour": rng.choice((1.0, 5.0))}


def _encryption(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {
        "encrypted": True,
        "cipher_delay_ms": rng.choice((0, 10, 200, 3_000)),
        "cipher_failures": rng.choice((0.0, 0.0, 0.02, 0.2)),
    }


def _changing_options(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    return {
        "option_changes": rng.choice((0.3, 1.0)),
        "crashes_per_hour": plan.get("crashes_per_hour", 0) or rng.choice((2.0, 10.0)),
    }


def _mixed_options(_: random.Random, __: dict[str, Any]) -> dict[str, Any]:
    return {"mixed_options": True}


def _tight_quotas(_: random.Random, __: dict[str, Any]) -> dict[str, Any]:
    return {"tight_quotas": True}


def _slow_readers(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    return {"slow_readers": rng.randint(1, max(1, plan["participants"] // 2))}


def _failing_handlers(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"handler_failures": rng.choice((0.02, 0.1, 0.5))}


def _bursts(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    bursts = rng.choice((1, 1, 2, 4))
    each = _transmissions_in_bursts(plan | {"bursts": bursts, "burst_messages": 1})
    most = max(10, int(_RECEPTIONS / (each * plan["participants"])))
    segment_bytes = plan.get("segment_size_bytes", CALM.segment_size_bytes)
    fitting = int(_BURST_BYTES / (each * plan["participants"] * segment_bytes))
    if fitting < _A_BURST:
        bursts, fitting = 1, max(_A_BURST, fitting * bursts)
    return {"bursts": bursts, "burst_messages": min(rng.choice((10, 30, 100, 300)), most, fitting)}


def _hostile(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    if _idle_per_hour(plan) >= _MOST_IDLE_PER_HOUR and plan["participants"] > _FEW_LOGOS:
        # Until inventions are given up, everybody speaks every other second.
        return {}
    return {"hostile": rng.choice((1, 1, 2, 4))}


def _rate_limit(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    in_an_epoch = _transmissions_per_hour(plan) / 6 + _transmissions_in_bursts(plan) / _EPOCHS_OF_A_BURST
    # Who may not ask for as much as is invented asks for what exists too late.
    in_an_epoch += plan.get("hostile", 0) * _ASKING_PER_FORGER
    return {"rate_limit": int(in_an_epoch * rng.uniform(1.2, 4))}


def _short_history(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    """Forget all but the newest, where nothing comes so late that it counts as forgotten."""
    if any(plan.get(name) for name in (*_ALWAYS_THERE, *_DELAYING)) or plan.get("loss", 0) > _SLIGHT:
        return {}
    return {"max_history": rng.choice((60, 130)), "messages_per_hour": rng.choice((60.0, 120.0))}


def _lost_connections(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"resets_per_hour": rng.choice((2.0, 10.0, 60.0))}


def _silent_links(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"stalls_per_hour": rng.choice((2.0, 10.0, 30.0))}


def _garbled_answers(rng: random.Random, _: dict[str, Any]) -> dict[str, Any]:
    return {"garbled": rng.choice((0.02, 0.1, 0.3))}


def _bad_nodes(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    return {"bad_nodes": 1} if plan["service_nodes"] > 1 and rng.random() < _OFTEN else {}


_ALWAYS: Final[tuple[_Draw, ...]] = (_participants, _talk, _channel, _bloom_policy)
_TROUBLES: Final[tuple[_Draw, ...]] = (
    _long_messages,
    _loss,
    _duplication,
    _reordering,
    _store_gaps,
    _crashes,
    _cuts,
    _absences,
    _comings,
    _goings,
    _partitions,
    _refusals,
    _lost_answers,
    _slow_uplinks,
    _dying_nodes,
    _deaf_nodes,
    _late_store,
    _lying_store,
    _disk,
    _failing_disk,
    _wrong_clocks,
    _jumping_clocks,
    _encryption,
    _changing_options,
    _mixed_options,
    _tight_quotas,
    _slow_readers,
    _failing_handlers,
    _bursts,
    _hostile,
    _rate_limit,
    _busy_nodes,
    _small_pages,
    _slow_disk,
    _silent_nodes,
    _pauses,
    _direct_readers,
)
_LIGHT_TROUBLES: Final[tuple[_Draw, ...]] = (_lost_connections, _silent_links, _garbled_answers, _bad_nodes)
"""What only worlds of light clients have."""
_SPECIAL_TROUBLES: Final[tuple[_Draw, ...]] = (
    _store_cuts,
    _restamping,
    _blips,
    _no_repairs,
    _short_waits_for_segments,
    _careless_blooms,
    _impatient_senders,
    _tiny_quotas,
    _gap_timeouts,
)
"""What fewer worlds have, so that worlds with a few of the common troubles stay as they are."""
_PARTS_OF_OTHERS: Final[tuple[_Draw, ...]] = (_repeats_in_bursts, _haste)
"""What half of those worlds have in which another trouble makes it possible."""
