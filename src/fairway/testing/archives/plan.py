"""`GeneratorPlan`: describes a generated archive; the plan and its seed determine every byte.

A channel is a sequence of units; a unit is one send of one participant or one sync message. Channels are split into
blocks of units. The draws for a unit depend only on the seed, the channel and the number of the unit. So each block can
be made alone, on any machine, and several tasks make the largest channel.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Final

from fairway.errors import ConfigurationError
from fairway.options import Profile, SegmentationConfig
from fairway.protocol.segmentation.segmenter import LIP_243_HEADROOM_BYTES, Segmenter

UNITS_PER_BLOCK: Final = 2_000
LARGEST_FILE_SEGMENTS: Final = 10
"""Data segments of the longest message; the shortest segmented message has two."""
MAX_UNIT_MESSAGES: Final = 32
"""Distance of Lamport timestamps between units, above the number of segments of any generated message."""

_MAX_MESSAGES: Final = 10**9
_MAX_CHANNELS: Final = 10**6
_SHARES: Final = (
    "largest_share",
    "logos_share",
    "long_share",
    "sync_share",
    "ephemeral_share",
    "concurrent_share",
    "loss",
    "corruption",
    "retransmission",
    "duplication",
    "store_loss",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorPlan:
    """One archive. Shares lie in 0..1."""

    messages: int = 100_000
    """Approximate number of SDS messages, with lost ones, without retransmissions and copies in other stores."""
    seed: int = 1
    """Seed of the draws; the same plan with the same seed makes the same rows."""
    channels: int = 100
    skew: float = 1.0
    """Channel ``n``, counted from 1, has a share in proportion to ``1 / n ** skew``; 0 makes all shares equal."""
    largest_share: float = 0.0
    """Share of the first channel; 0: the share by ``skew``."""
    senders: int = 5
    """Participants of each channel; they take turns."""
    logos_share: float = 0.0
    """Share of channels with the profile Logos."""
    history: int = 2
    """Messages that each message cites."""
    content_bytes: int = 200
    """Mean length of the content of a message that is not segmented."""
    bloom_bytes: int = 64
    """Length of bloom filters, which are empty and acknowledge no messages."""
    long_share: float = 0.01
    """Share of units that are sent in two to ten data segments."""
    segment_size_bytes: int = 1_024
    """Size of segments: a multiple of 64, as parity requires."""
    parity_rate: float = SegmentationConfig().parity_rate
    """Parity segments per data segment. On the Waku wire a run needs it to compute the ids of lost parity segments."""
    sync_share: float = 0.1
    """Share of units that are sync messages."""
    ephemeral_share: float = 0.0
    """Share of units that are stored ephemeral SDS messages; on the Waku wire only."""
    concurrent_share: float = 0.05
    """Share of units whose sender had not received the unit before: the two have equal Lamport timestamps."""
    loss: float = 0.02
    """Share of WakuMessages that no store has."""
    corruption: float = 0.002
    """Share of WakuMessages that stores have in a form that cannot be decoded."""
    retransmission: float = 0.05
    """Share of SDS messages with content that are sent again in another WakuMessage."""
    duplication: float = 0.01
    """Share of WakuMessages that one store has twice."""
    stores: int = 1
    """Number of stores, named store-0, store-1, ..."""
    store_loss: float = 0.1
    """Share of WakuMessages that each of several stores misses, in addition to ``loss``; a single store misses none."""

    def __post_init__(self) -> None:
        self._require(1 <= self.messages <= _MAX_MESSAGES, "messages", f"1 to {_MAX_MESSAGES:,}")
        self._require(1 <= self.channels <= _MAX_CHANNELS, "channels", f"1 to {_MAX_CHANNELS:,}")
        self._require(0 <= self.skew <= 10, "skew", "0 to 10")
        self._require(1 <= self.senders <= 1_000, "senders", "1 to 1,000")
        self._require(0 <= self.history <= 1_000, "history", "0 to 1,000")
        self._require(0 <= self.bloom_bytes <= 100_000, "bloom_bytes", "0 to 100,000")
        self._require(1 <= self.stores <= 100, "stores", "1 to 100")
        self._require(0 <= self.parity_rate <= 1, "parity_rate", "0 to 1")
        for name in _SHARES:
            self._require(0 <= getattr(self, name) <= 1, name, "a share, 0 to 1")
        self._require(self.loss + self.corruption <= 1, "corruption", "what loss leaves")
        size = self.segment_size_bytes
        self._require(
            256 <= size <= 102_400 and size % 64 == 0, "segment_size_bytes", "256 to 102,400, a multiple of 64"
        )
        longest = (size - LIP_243_HEADROOM_BYTES) // 2 - 16
        self._require(1 <= self.content_bytes <= longest, "content_bytes", f"1 to {longest}, to fit a segment at most")

    def _require(self, condition: bool, name: str, expected: str) -> None:
        if not condition:
            raise ConfigurationError(f"{name} must be {expected}, not {getattr(self, name)}")

    def as_json(self) -> str:
        """Return the plan as a JSON object."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> GeneratorPlan:
        """Return the plan in a JSON object; missing fields have their defaults."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in json.loads(text).items() if name in known})

    @property
    def segmentation(self) -> SegmentationConfig:
        """The segmentation of long messages."""
        return SegmentationConfig(segment_size_bytes=self.segment_size_bytes, parity_rate=self.parity_rate)

    def profile_of(self, channel: int) -> Profile:
        """Return the profile of a channel; channels with the profile Logos are spread evenly."""
        share = self.logos_share
        return Profile.LOGOS if int((channel + 1) * share) > int(channel * share) else Profile.WAKU


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some consecutive units of one channel."""

    channel: int
    first: int
    end: int
    """The unit after the last one."""
    channel_end: int
    """Number of units of the channel."""


class Layout:
    """The number of units of each channel, and their blocks. The largest channels come first."""

    def __init__(self, plan: GeneratorPlan) -> None:
        """Compute the layout of an archive; use `layout_of`, which caches it."""
        weights = [1 / (channel + 1) ** plan.skew for channel in range(plan.channels)]
        if plan.largest_share and plan.channels > 1:
            others = sum(weights[1:])
            rest = 1 - plan.largest_share
            weights = [plan.largest_share, *(weight / others * rest for weight in weights[1:])]
        total = sum(weights)
        units = plan.messages / _messages_per_unit(plan)
        self.sizes = [max(1, round(units * weight / total)) for weight in weights]

    @cached_property
    def _ends(self) -> list[int]:
        """Blocks in each channel and all before it."""
        return list(accumulate(-(-size // UNITS_PER_BLOCK) for size in self.sizes))

    @property
    def block_count(self) -> int:
        """The number of blocks."""
        return self._ends[-1]

    def block(self, number: int) -> Block:
        """Return a block by its number, from 0."""
        channel = bisect_right(self._ends, number)
        before = self._ends[channel - 1] if channel else 0
        first = (number - before) * UNITS_PER_BLOCK
        size = self.sizes[channel]
        return Block(channel=channel, first=first, end=min(first + UNITS_PER_BLOCK, size), channel_end=size)


@lru_cache(maxsize=4)
def layout_of(plan: GeneratorPlan) -> Layout:
    """Return the layout of an archive."""
    return Layout(plan)


def _messages_per_unit(plan: GeneratorPlan) -> float:
    counts = range(2, LARGEST_FILE_SEGMENTS + 1)
    segmenter = Segmenter(plan.segmentation, Profile.WAKU.segments)
    messages = sum(count + segmenter.parity_count(count) for count in counts) / len(counts)
    long_share = plan.long_share * max(0.0, 1 - plan.sync_share - plan.ephemeral_share)
    return 1 + long_share * (messages - 1)
