"""The bytes that a channel costs by bloom policy: an idle day, a long burst, and the last message of a burst.

``python -m benchmarks.channel_bytes`` prints a column for each policy. The participants are bare stacks
(`fairway.protocol.stack`) under virtual time. Bytes are those of encoded WakuMessages, each counted once for all
receivers. The figures do not depend on the machine.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

from fairway.options import BloomPolicy, ReliableChannelOptions
from fairway.protocol.effects import Effect, NodeAnswer, Publish
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.stack import Stack
from fairway.simulation.report import S_MS
from fairway.units import DAY_MS
from fairway.wire.waku_message import WakuMessage

START_MS: Final = 1_760_000_000_000
TOPIC: Final = "/fairway-benchmarks/1/bytes/proto"
_HOP_MS: Final = 50
_BURST: Final = 20_000
_BURST_PAYLOAD_BYTES: Final = 32
_BURST_GAP_MS: Final = 10
_SETTLED_MS: Final = 600_000
_TRIALS: Final = 1_200


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
            self._carry_out(name, self.stacks[name].published(effect.token, NodeAnswer(accepted=True), self.now_ms))


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
        last = max(group.stacks["p0"].sds.history).message_id
        receivers = [stack.sds for name, stack in group.stacks.items() if name != "p0"]
        lacking = [channel for channel in receivers if not _has(channel, last)]
        group.pass_time(3 * S_MS - 200)
        missed += len(lacking)
        within += sum(_has(channel, last) or last in channel.missing for channel in lacking)
    return {"missed it": missed, "noticed within 3 S": round(within / missed, 3)}


def _has(channel: MessageChannel, message_id: str) -> bool:
    """Return whether a message was received; it may wait for others."""
    return message_id in channel.history or message_id in channel.dependencies.incoming


def main() -> None:
    """Measure, and print a table for each part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.channel_bytes", description=__doc__)
    parser.add_argument("--policies", nargs="+", default=[policy.value for policy in BloomPolicy])
    policies = [BloomPolicy(value) for value in parser.parse_args().policies]
    parts: dict[str, Callable[[BloomPolicy], dict[str, Any]]] = {
        "3 participants, an idle day": idle_day,
        f"{_BURST:,} messages of 32 bytes": partial(burst, _BURST),
    }
    for count in (2, 3, 8):
        title = f"the last of a burst, {count} participants, 30 % loss"
        parts[title] = partial(last_of_a_burst, count, _TRIALS // count)
    for title, part in parts.items():
        found = [part(policy) for policy in policies]
        print(f"\n{title:<44}" + "".join(f"{policy.value:>18}" for policy in policies))
        for name in dict.fromkeys(chain.from_iterable(found)):
            print(f"{name:<44}" + "".join(f"{figures.get(name, 0):>18,}" for figures in found), flush=True)


if __name__ == "__main__":
    main()
