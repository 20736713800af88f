"""What a channel costs in bytes, by bloom policy: worlds at the same seeds, an idle day, a long burst.

``python -m benchmarks.channel_bytes`` prints a table with a column for each policy; ``--help`` has the parts. Worlds
are those of ``fairway simulate``, with its checks; idle day and burst are of bare stacks (`fairway.protocol.stack`)
under virtual time, without loss. Bytes are those of encoded WakuMessages, each counted once however many receive it,
which is what an archive keeps. The machine changes none of the figures.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from fairway.options import BloomPolicy, ReliableChannelOptions
from fairway.protocol.effects import Effect, Publish
from fairway.protocol.stack import Stack
from fairway.simulation import Furps, Plan, World
from fairway.simulation.report import S_MS
from fairway.units import DAY_MS, HOUR_MS
from fairway.wire.waku_message import WakuMessage

START_MS: Final = 1_760_000_000_000
TOPIC: Final = "/fairway-benchmarks/1/bytes/proto"
_HOP_MS: Final = 50
_BURST: Final = 20_000
_BURST_PAYLOAD_BYTES: Final = 32
_BURST_GAP_MS: Final = 10
_SETTLED_MS: Final = 600_000
_TRIALS: Final = 1_200
WORLDS: Final = {
    "12 participants, 1 h, 50 % loss": Plan(participants=12, duration_ms=HOUR_MS, loss=0.5),
    "20 participants, 2 h, 30 % loss": Plan(participants=20, duration_ms=2 * HOUR_MS, loss=0.3),
}


class Group:
    """Stacks that hear each other, with loss, under virtual time."""

    def __init__(self, count: int, policy: BloomPolicy, *, loss: float = 0.0, seed: int = 1) -> None:
        """Make ``count`` participants without a past."""
        base = ReliableChannelOptions()
        options = replace(base, sds=replace(base.sds, bloom_policy=policy))
        self.now_ms = START_MS
        self.bytes: Counter[str] = Counter()
        """Bytes transmitted, by purpose."""
        self.transmissions = 0
        self.loses: Callable[[str, str, WakuMessage], bool] = lambda *_: self._dice.random() < loss
        """Whether a message from one participant to another is lost."""
        self._dice = random.Random(seed)
        self._under_way: list[tuple[int, int, str, WakuMessage]] = []
        self._sent = 0
        self.stacks = {
            name: Stack("bytes", name, TOPIC, options, now_ms=START_MS, seed=f"{seed}/{name}".encode().ljust(16, b"."))
            for name in (f"p{number}" for number in range(count))
        }

    def send(self, name: str, payload: bytes) -> None:
        """Let a participant send."""
        self._carry_out(name, self.stacks[name].send(payload, self.now_ms).effects)

    def pass_time(self, for_ms: int, *, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass, or stop sooner ``until`` something is so."""
        end_ms = self.now_ms + for_ms
        while not until():
            deadlines = {name: at for name, stack in self.stacks.items() if (at := stack.next_deadline()) is not None}
            arrives_ms = self._under_way[0][0] if self._under_way else end_ms + 1
            next_ms = min([arrives_ms, *deadlines.values()])
            if next_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, next_ms)
            if arrives_ms <= next_ms:
                _, _, name, message = heapq.heappop(self._under_way)
                self._carry_out(name, self.stacks[name].receive(message, self.now_ms))
                continue
            for name, at_ms in deadlines.items():
                if at_ms <= self.now_ms:
                    self._carry_out(name, self.stacks[name].tick(self.now_ms))
        else:
            return
        self.now_ms = end_ms

    def _carry_out(self, name: str, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if not isinstance(effect, Publish):
                continue
            self.bytes[effect.purpose.value] += len(effect.encoded)
            self.transmissions += 1
            for other in self.stacks:
                if other != name and not self.loses(name, other, effect.message):
                    self._sent += 1
                    heapq.heappush(self._under_way, (self.now_ms + _HOP_MS, self._sent, other, effect.message))
            self._carry_out(name, self.stacks[name].published(effect.token, self.now_ms, accepted=True))


def world_costs(plan: Plan, seeds: Iterable[int], policy: BloomPolicy) -> dict[str, Any]:
    """Run a world at each seed, and return their bytes, their times, and what broke."""
    options = plan.options()
    options = replace(options, sds=replace(options.sds, bloom_policy=policy))
    reports = [World(replace(plan, seed=seed), options=options).run() for seed in seeds]
    parts: Counter[str] = Counter()
    for report in reports:
        parts.update(report.bytes)
    furps = Furps.of(reports)
    return {
        "bytes a message": furps.bytes_per_message,
        **{f"  {name}": size // furps.messages for name, size in sorted(parts.items())},
        "first acknowledgement p50, p90 in ms": [furps.known_p50_ms, furps.known_p90_ms],
        "at everybody's p50, p90 in ms": [furps.everywhere_p50_ms, furps.everywhere_p90_ms],
        "broken worlds": [report.plan.seed for report in reports if not report.ok],
    }


def idle_day(policy: BloomPolicy) -> dict[str, Any]:
    """Return what three participants transmit in a day after a short conversation."""
    group = Group(3, policy)
    for name in group.stacks:
        group.send(name, b"good night")
        group.pass_time(20_000)
    group.pass_time(_SETTLED_MS)
    before, transmissions = sum(group.bytes.values()), group.transmissions
    group.pass_time(DAY_MS)
    size_bytes = sum(group.bytes.values()) - before
    return {
        "bytes a day": size_bytes,
        "messages transmitted": group.transmissions - transmissions,
        "bytes an hour and participant": size_bytes // 24 // len(group.stacks),
    }


def burst(count: int, policy: BloomPolicy) -> dict[str, Any]:
    """Return what one sender's messages cost that another participant hears."""
    group = Group(2, policy)
    dice = random.Random(1)
    for _ in range(count):
        group.send("p0", dice.randbytes(_BURST_PAYLOAD_BYTES))
        group.pass_time(_BURST_GAP_MS)
    group.pass_time(_SETTLED_MS)
    return {
        "bytes": sum(group.bytes.values()),
        **{f"  {purpose}": size for purpose, size in sorted(group.bytes.items())},
        "messages transmitted": group.transmissions,
        "not acknowledged": group.stacks["p0"].statistics().open_requests,
    }


def last_of_a_burst(participants: int, trials: int, policy: BloomPolicy) -> dict[str, Any]:
    """Return how soon those that missed the last message of a burst of five notice it, at 30 % loss."""
    within, missed = 0, 0
    for seed in range(trials):
        group = Group(participants, policy, loss=0.3, seed=seed)
        for number in range(5):
            group.send("p0", b"%d of a burst" % number)
            group.pass_time(200)
        last = max(group.stacks["p0"].sds.log()).message_id
        sds = {name: stack.sds for name, stack in group.stacks.items() if name != "p0"}
        lacking = [name for name, channel in sds.items() if not channel.has(last)]
        group.pass_time(3 * S_MS - 200)
        missed += len(lacking)
        within += sum(sds[name].has(last) or last in sds[name].missing for name in lacking)
    return {"missed it": missed, "noticed within 3 S": round(within / missed, 3) if missed else None}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.channel_bytes", description=__doc__)
    parser.add_argument("--policies", nargs="+", default=[policy.value for policy in BloomPolicy])
    parser.add_argument("--seeds", type=int, default=3, help="worlds of each plan, from seed 1 on")
    parser.add_argument("--parts", nargs="+", default=["worlds", "idle", "burst", "last"])
    parser.add_argument("--burst", type=int, default=_BURST, help="messages of the burst")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    given = parser.parse_args()
    parts: dict[str, Callable[[BloomPolicy], dict[str, Any]]] = {}
    if "worlds" in given.parts:
        seeds = range(1, given.seeds + 1)
        parts |= {title: partial(world_costs, plan, seeds) for title, plan in WORLDS.items()}
    if "idle" in given.parts:
        parts["3 participants, an idle day"] = idle_day
    if "burst" in given.parts:
        parts[f"{given.burst:,} messages of 32 bytes"] = partial(burst, given.burst)
    if "last" in given.parts:
        for count in (2, 3, 8):
            title = f"the last of a burst, {count} participants, 30 % loss"
            parts[title] = partial(last_of_a_burst, count, _TRIALS // count)
    policies = [BloomPolicy(value) for value in given.policies]
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for title, part in parts.items():
        found[title] = {policy.value: part(policy) for policy in policies}
        if not given.json:
            _print(title, found[title])
    if given.json:
        print(json.dumps(found, indent=2))


def _print(title: str, by_policy: dict[str, dict[str, Any]]) -> None:
    print(f"\n{title:<44}" + "".join(f"{policy:>18}" for policy in by_policy))
    names = dict.fromkeys(name for figures in by_policy.values() for name in figures)
    for name in names:
        print(f"{name:<44}" + "".join(f"{_text(figures.get(name)):>18}" for figures in by_policy.values()), flush=True)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_text, value)) or "none"
    return f"{value:,}" if isinstance(value, int | float) else "-"


if __name__ == "__main__":
    main()
