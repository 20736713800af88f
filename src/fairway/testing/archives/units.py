"""`Maker`: draws the units of a generated archive: their senders, contents, losses and damages; without Spark.

A unit depends only on the plan, the channel and its own number. Its losses are drawn before its content, so they are
known without making the content.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from fairway.protocol.sds.message_id import SYNC_PREFIX, make_message_id
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.testing.archives.plan import LARGEST_FILE_SEGMENTS, MAX_UNIT_MESSAGES, GeneratorPlan
from fairway.wire.bloom import BloomParameters
from fairway.wire.sds import SdsMessage
from fairway.wire.segment import Segment
from fairway.wire.waku_message import WakuMessage

START_MS: Final = 1_760_000_000_000
"""Beginning of the archive, in milliseconds since the Unix epoch."""
UNIT_MS: Final = 1_000
"""Time between two units of a channel."""
RETRANSMISSION_MS: Final = 30_000

_GARBAGE: Final = b"\x07"
"""A byte that begins no protobuf message: field 0 and wire type 7 do not exist."""
_BEYOND_63_BITS: Final = 2**63
_TOO_MANY_SEGMENTS: Final = 300

DAMAGES: Final = ("not-sds", "not-sds", "no-id", "lamport-range", "bad-segment")
"""Kinds of damage, by the resulting status (`fairway.pipeline.stages.Status`): garbage, a truncated payload, no message
id, a Lamport timestamp beyond 63 bits, a segment with too great a count."""

CONTENT: Final = "content"
SYNC: Final = "sync"
EPHEMERAL: Final = "ephemeral"


class Fate(NamedTuple):
    """Losses, copies and damage of one WakuMessage."""

    timestamp_ns: int
    stores: tuple[int, ...]
    """The stores that have it; none if it is lost."""
    repeats: int
    """Number of further copies in the first of these stores."""
    damage: int | None
    """Index of its damage in `DAMAGES`; None if it is undamaged."""


@dataclass(slots=True)
class DrawnMessage:
    """One SDS message: its losses are drawn first, then its content."""

    sender_id: str
    kind: str
    lamport: int | None
    fates: tuple[Fate, ...]
    unit: int
    message_id: str = ""
    hint: bytes | None = None
    content: bytes | None = None
    citers: dict[str, int] = field(default_factory=dict)
    """Other participants that cite it in a stored message, each with the first timestamp."""
    cited_at: list[int] = field(default_factory=list)
    """Timestamps of the stored messages that cite it."""
    is_hinted: bool = False
    """Whether one of these messages has its retrieval hint."""

    @property
    def seen_at(self) -> int | None:
        """Timestamp of the first undamaged copy in a store; None without one."""
        whole = [fate.timestamp_ns for fate in self.fates if fate.stores and fate.damage is None]
        return min(whole, default=None)


@dataclass(slots=True)
class Unit:
    """One send or sync message."""

    number: int
    messages: list[DrawnMessage]
    is_concurrent: bool
    data_count: int = 1
    payload: bytes = b""
    payload_hash: bytes | None = None


class Maker:
    """Makes the units of one channel."""

    def __init__(self, plan: GeneratorPlan, channel: int) -> None:
        self.plan = plan
        self.profile = plan.profile_of(channel)
        self.channel_id = f"channel-{channel:06}"
        self.content_topic = f"/fairway/1/{self.channel_id}-{self.profile.value}/proto"
        self.id_rule = self.profile.id_rule
        self._channel = channel
        self._segmenter = Segmenter(plan.segmentation, self.profile.segments)
        bits = max(1, 8 * plan.bloom_bytes)
        parameters = BloomParameters(capacity=bits, error_rate=0.001, hash_count=10, bit_count=bits)
        self.bloom = self.profile.codec.write_bloom(bytes(plan.bloom_bytes), parameters) if plan.bloom_bytes else None

    def draw(self, number: int) -> tuple[Unit, random.Random]:
        """Draw a unit without its content; return it with the random source for its content."""
        plan = self.plan
        rng = random.Random(f"{plan.seed}/{self._channel}/{number}")  # noqa: S311 - reproducible, and guards nothing
        kind, is_long = CONTENT, False
        dice = rng.random()
        if dice < plan.sync_share:
            kind = SYNC
        elif dice < plan.sync_share + plan.ephemeral_share and not self.profile.ephemeral_is_content:
            kind = EPHEMERAL
        else:
            is_long = rng.random() < plan.long_share
        data_count = rng.randint(2, LARGEST_FILE_SEGMENTS) if is_long else 1
        is_concurrent = rng.random() < plan.concurrent_share and plan.senders > 1 and number > 0
        count = data_count + (self._segmenter.parity_count(data_count) if is_long else 0)
        sender_id = f"{self.channel_id}-{number % plan.senders}"
        turn = number - is_concurrent
        # The clock advances by the duration of a unit, and at least by `MAX_UNIT_MESSAGES`.
        unit_ms = self.profile.lamport_unit_ms
        base = START_MS // unit_ms + max(MAX_UNIT_MESSAGES, UNIT_MS // unit_ms) * turn
        messages = [
            DrawnMessage(
                sender_id=sender_id,
                kind=kind,
                lamport=None if kind == EPHEMERAL else base + index,
                fates=tuple(self._fates(rng, START_MS + UNIT_MS * number + index, kind)),
                unit=number,
            )
            for index in range(count)
        ]
        return Unit(number, messages, is_concurrent, data_count), rng

    def _fates(self, rng: random.Random, at_ms: int, kind: str) -> Iterator[Fate]:
        plan = self.plan
        again = kind == CONTENT and rng.random() < plan.retransmission
        for copy in range(1 + again):
            dice = rng.random()
            stores: tuple[int, ...] = ()
            if dice >= plan.loss:
                stores = tuple(
                    store for store in range(plan.stores) if plan.stores == 1 or rng.random() >= plan.store_loss
                )
            is_damaged = plan.loss <= dice < plan.loss + plan.corruption
            damage = rng.randrange(len(DAMAGES)) if is_damaged else None
            yield Fate(
                timestamp_ns=(at_ms + copy * RETRANSMISSION_MS) * 1_000_000,
                stores=stores,
                repeats=int(rng.random() < plan.duplication) if stores else 0,
                damage=damage,
            )

    def fill(self, unit: Unit, rng: random.Random) -> None:
        """Draw the content of a unit, and compute its ids."""
        kind = unit.messages[0].kind
        if kind == SYNC:
            unit.messages[0].message_id = f"{SYNC_PREFIX}{rng.randbytes(8).hex()}"
            return
        # A text prefix, because entirely random content may look like a segment by chance.
        mark = b"#%d " % unit.number
        if len(unit.messages) == 1:
            unit.payload = mark + rng.randbytes(rng.randrange(2 * self.plan.content_bytes))
        else:
            segment_bytes = self._segmenter.segment_payload_bytes
            size = unit.data_count * segment_bytes - rng.randrange(segment_bytes)
            unit.payload = mark + rng.randbytes(size - len(mark))
        split = self._segmenter.split(unit.payload)
        unit.payload_hash = split.payload_hash
        for drawn, segment in zip(unit.messages, split.segments, strict=True):
            drawn.content = segment.content
        for drawn in unit.messages:
            lamport = drawn.lamport or 0
            drawn.message_id = make_message_id(
                self.id_rule,
                sender_id=drawn.sender_id,
                lamport=lamport,
                content=drawn.content or b"",
                now_ms=START_MS + unit.number * UNIT_MS,
                sequence=lamport % MAX_UNIT_MESSAGES,
            )

    def waku(self, payload: bytes, timestamp_ns: int) -> WakuMessage:
        """Wrap a payload."""
        return WakuMessage(
            payload=payload, content_topic=self.content_topic, timestamp_ns=timestamp_ns, meta=self.profile.marker
        )


def damaged(damage: int, message: SdsMessage, maker: Maker, rng: random.Random) -> bytes:
    """Return the payload of a message after a damage of `DAMAGES`."""
    codec = maker.profile.codec
    match damage:
        case 0:
            return _GARBAGE + rng.randbytes(len(message.content or b""))
        case 1:
            # The last field of either wire is longer than one byte.
            return codec.encode(message)[:-1]
        case 2:
            return codec.encode(replace(message, message_id=""))
        case 3:
            return codec.encode(replace(message, lamport_timestamp=_BEYOND_63_BITS + rng.randrange(1_000)))
        case _:
            segment = Segment(
                payload_hash=rng.randbytes(32),
                index=0,
                data_count=_TOO_MANY_SEGMENTS,
                parity_count=0,
                is_parity=False,
                payload=b"x",
                payload_length=_TOO_MANY_SEGMENTS,
            )
            return codec.encode(replace(message, content=maker.profile.segments.encode(segment)))
