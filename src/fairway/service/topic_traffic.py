"""`TopicTraffic`: the messages and bytes of the last minutes, in total and by content topic.

Pure; time is an argument. Time is divided into slots of `SLOT_S`, of which the last `SLOTS` that are complete are
reported.

Invariant: memory is bounded, whatever topics strangers invent. At most `MAX_TOPICS` content topics have slots of their
own; messages of all others are counted together. Each new slot makes room for new topics: those with the fewest
messages leave, so that topics of one message each cannot displace one that is in use.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from operator import sub
from typing import Final

SLOT_S: Final = 2.0
"""Length of a slot in seconds."""
SLOTS: Final = 90
"""Slots that are reported: three minutes."""
MAX_TOPICS: Final = 2_000
"""Content topics with slots of their own."""
MAX_TOPIC_CHARACTERS: Final = 200
"""Longer names are cut; topics that begin alike then count as one."""
_ROOM: Final = 200
"""Places that are free for new topics when a slot begins."""
_RING: Final = SLOTS + 1
"""The reported slots and the one that is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Messages and bytes in each of the last `SLOTS` slots, the oldest first."""

    messages: tuple[int, ...]
    message_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFlow:
    """The flow of one content topic."""

    pubsub_topic: str
    content_topic: str
    """At most `MAX_TOPIC_CHARACTERS` of it."""
    flow: Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficReport:
    """The traffic of the last `SLOTS` slots."""

    total: Flow
    topics: tuple[TopicFlow, ...]
    """The topics with the most messages, the first of them first."""
    others: Flow
    """All further topics together."""
    topic_count: int
    """Content topics with a message in these slots, as far as they have slots of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTotals:
    """What came on a pubsub topic since the start."""

    messages: int = 0
    message_bytes: int = 0


class _Ring:
    """Counts of `_RING` slots, at the slot's number modulo `_RING`."""

    __slots__ = ("messages", "sizes", "weight")

    def __init__(self) -> None:
        self.weight = 0
        """Messages in all slots."""
        self.messages = array("Q", [0] * _RING)
        self.sizes = array("Q", [0] * _RING)

    def clear(self, place: int) -> None:
        self.weight -= self.messages[place]
        self.messages[place] = self.sizes[place] = 0

    def count(self, place: int, size_bytes: int) -> None:
        self.weight += 1
        self.messages[place] += 1
        self.sizes[place] += size_bytes

    def take_out(self, other: _Ring) -> None:
        self.messages = array("Q", map(sub, self.messages, other.messages))
        self.sizes = array("Q", map(sub, self.sizes, other.sizes))

    def flow(self, place: int) -> Flow:
        """Return the complete slots; ``place`` is that of the slot under way."""
        after = place + 1
        return Flow(
            messages=(*self.messages[after:], *self.messages[:place]),
            message_bytes=(*self.sizes[after:], *self.sizes[:place]),
        )


class TopicTraffic:
    """The counts of one node."""

    def __init__(self) -> None:
        self._slot = 0
        self._total = _Ring()
        self._topics: dict[tuple[str, str], _Ring] = {}
        self._shards: dict[str, list[int]] = {}

    def count(self, pubsub_topic: str, content_topic: str, size_bytes: int, now_s: float) -> None:
        """Count a message. ``now_s`` is a steady clock; ``pubsub_topic`` is one that the node serves now."""
        self._advance(now_s)
        place = self._slot % _RING
        self._total.count(place, size_bytes)
        shard = self._shards.setdefault(pubsub_topic, [0, 0])
        shard[0] += 1
        shard[1] += size_bytes
        key = (pubsub_topic, content_topic[:MAX_TOPIC_CHARACTERS])
        ring = self._topics.get(key)
        if ring is None and len(self._topics) < MAX_TOPICS:
            ring = self._topics[key] = _Ring()
        if ring is not None:
            ring.count(place, size_bytes)

    def report(self, now_s: float, *, max_topics: int) -> TrafficReport:
        """Return the complete slots, with at most ``max_topics`` topics apart."""
        self._advance(now_s)
        place = self._slot % _RING
        ordered = sorted(self._topics.items(), key=lambda item: (-item[1].weight, item[0]))
        # Each message is in the total, whether its topic has slots of its own or not.
        others = _Ring()
        others.messages, others.sizes = self._total.messages, self._total.sizes
        for _, ring in ordered[:max_topics]:
            others.take_out(ring)
        return TrafficReport(
            total=self._total.flow(place),
            topics=tuple(
                TopicFlow(pubsub_topic=pubsub, content_topic=content, flow=ring.flow(place))
                for (pubsub, content), ring in ordered[:max_topics]
            ),
            others=others.flow(place),
            topic_count=len(ordered),
        )

    def shards(self) -> dict[str, ShardTotals]:
        """Return what came on each pubsub topic since the start."""
        return {
            topic: ShardTotals(messages=messages, message_bytes=size)
            for topic, (messages, size) in self._shards.items()
        }

    def forget_shard(self, pubsub_topic: str) -> None:
        """Forget what came on a pubsub topic that the node no longer serves."""
        self._shards.pop(pubsub_topic, None)

    def _advance(self, now_s: float) -> None:
        """Begin the slot of ``now_s``, and empty those that were left out since the last call."""
        slot = int(now_s // SLOT_S)
        if slot <= self._slot:
            return
        rings = (self._total, *self._topics.values())
        for passed in range(max(self._slot + 1, slot - _RING + 1), slot + 1):
            for ring in rings:
                ring.clear(passed % _RING)
        self._slot = slot
        self._make_room()

    def _make_room(self) -> None:
        """Forget topics without a message, and, if there are too many, those with the fewest."""
        surplus = len(self._topics) - (MAX_TOPICS - _ROOM)
        by_weight = sorted(self._topics, key=lambda key: self._topics[key].weight)
        for place, key in enumerate(by_weight):
            if self._topics[key].weight and place >= surplus:
                break
            del self._topics[key]
