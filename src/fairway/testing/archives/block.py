"""`make_block`: makes one block of a generated archive with the real codecs, and the facts about it; without Spark.

The messages of a block cite those of the block before, so `make_block` also draws the last units before it, without
output. It also draws the first units after it, which may cite messages of this block: a lost message is missing only if
another one cites it.

Invariant: rows and facts of all blocks together do not depend on the process that makes a block. Citations across the
border of two blocks have no retrieval hint, because a hint depends on all messages before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from fairway.options import IdRule
from fairway.testing.archives.plan import MAX_UNIT_MESSAGES, Block, GeneratorPlan, layout_of
from fairway.testing.archives.units import (
    CONTENT,
    DAMAGES,
    EPHEMERAL,
    SYNC,
    DrawnMessage,
    Fate,
    Maker,
    Unit,
    damaged,
)
from fairway.wire.sds import HistoryEntry, SdsCodec, SdsMessage
from fairway.wire.waku_message import message_hash

SHARD: Final = "/waku/2/rs/1/0"
OK: Final = "ok"


class GeneratedRow(NamedTuple):
    """One row of ``waku_messages``, its fields in the order of the columns."""

    message_hash: bytes
    pubsub_topic: str
    content_topic: str
    payload: bytes
    version: int
    timestamp_ns: int
    meta: bytes | None
    rate_limit_proof: None
    source: str


@dataclass(slots=True)
class StoredCopy:
    """One WakuMessage in a store."""

    message_hash: bytes
    payload: bytes
    message: SdsMessage
    """The SDS message that was sent; a damaged payload does not decode to it."""
    drawn: DrawnMessage
    fate: Fate

    @property
    def status(self) -> str:
        """The status that the pipeline should give it."""
        return OK if self.fate.damage is None else DAMAGES[self.fate.damage]

    def sizes(self, codec: SdsCodec) -> dict[str, int]:
        """Return the sizes of the parts of the message; that of the history is the length that it adds."""
        without_history = codec.encode(replace(self.message, causal_history=()))
        return {
            "content_bytes": len(self.message.content or b""),
            "history_bytes": len(self.payload) - len(without_history),
            "bloom_bytes": len(self.message.bloom_filter or b""),
        }


@dataclass(slots=True)
class MadeBlock:
    """A block with its units and stored messages."""

    maker: Maker
    units: list[Unit] = field(default_factory=list)
    carriers: list[StoredCopy] = field(default_factory=list)

    def rows(self) -> Iterator[GeneratedRow]:
        """Yield the messages of the stores."""
        maker = self.maker
        for carrier in self.carriers:
            stores = carrier.fate.stores
            for store in (*stores, *stores[:1] * carrier.fate.repeats):
                yield GeneratedRow(
                    carrier.message_hash,
                    SHARD,
                    maker.content_topic,
                    carrier.payload,
                    0,
                    carrier.fate.timestamp_ns,
                    maker.profile.marker,
                    None,
                    store_name(store),
                )

    def facts(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the table of facts for the block (`fairway.testing.archives.FACTS`)."""
        yield from self._carrier_facts()
        # An id that depends on the sender's clock cannot be computed from the stored messages.
        is_rebuildable = self.maker.id_rule is not IdRule.KECCAK_TIMESTAMP
        for unit in self.units:
            is_complete = False
            if unit.payload:
                outcome = self._outcome(unit)
                is_complete = outcome is not None and outcome["fact"] == "delivered"
                if outcome is not None:
                    yield outcome
            for drawn in unit.messages:
                if drawn.kind == CONTENT:
                    yield from self._message_facts(drawn, is_rebuilt=is_complete and is_rebuildable)

    def _carrier_facts(self) -> Iterator[dict[str, Any]]:
        for carrier in self.carriers:
            drawn, fate = carrier.drawn, carrier.fate
            is_ok = carrier.status == OK
            yield {
                "fact": "carrier",
                "channel_id": self.maker.channel_id,
                "message_id": drawn.message_id if is_ok else None,
                "sender_id": drawn.sender_id if is_ok else None,
                "message_hash": carrier.message_hash,
                "timestamp_ns": fate.timestamp_ns,
                "status": carrier.status,
                "kind": drawn.kind if is_ok else None,
                "lamport": drawn.lamport if is_ok else None,
                "payload_bytes": len(carrier.payload),
                "sources": [store_name(store) for store in fate.stores],
                "rows": len(fate.stores) + fate.repeats,
                "is_retransmission": is_ok and fate.timestamp_ns != drawn.seen_at,
            } | (carrier.sizes(self.maker.profile.codec) if is_ok else {})

    def _outcome(self, unit: Unit) -> dict[str, Any] | None:
        """Return the fact about the payload of a unit; None if no store has a message of it."""
        seen = [(index, at) for index, drawn in enumerate(unit.messages) if (at := drawn.seen_at) is not None]
        if not seen:
            return None
        data_held = sum(index < unit.data_count for index, _ in seen)
        # Parity segments of SEGMENTATION do not have the number of data segments.
        is_told = data_held > 0 or self.maker.profile.segments.self_describing
        common = {"channel_id": self.maker.channel_id, "sender_id": unit.messages[0].sender_id}
        if len(seen) < unit.data_count or not is_told:
            return common | {
                "fact": "incomplete",
                "segment_hash": unit.payload_hash,
                "held": len(seen),
                "segments": unit.data_count if is_told else None,
            }
        return common | {
            "fact": "delivered",
            "message_id": hashlib.sha256(unit.payload).hexdigest(),
            "timestamp_ns": max(at for _, at in seen),
            "segments": unit.data_count,
            "is_recovered": data_held < unit.data_count,
            "size_bytes": len(unit.payload),
        }

    def _message_facts(self, drawn: DrawnMessage, *, is_rebuilt: bool) -> Iterator[dict[str, Any]]:
        common = {
            "channel_id": self.maker.channel_id,
            "message_id": drawn.message_id,
            "sender_id": drawn.sender_id,
            "lamport": drawn.lamport,
        }
        if drawn.seen_at is not None:
            for name, at_ns in drawn.citers.items():
                yield common | {"fact": "acknowledged", "acknowledged_by": name, "timestamp_ns": at_ns}
        elif drawn.cited_at:
            yield common | {
                "fact": "missing",
                "retrieval_hint": drawn.hint if drawn.is_hinted else None,
                "cited_by": len(drawn.cited_at),
                "first_cited_ns": min(drawn.cited_at),
                "last_cited_ns": max(drawn.cited_at),
                "is_rebuilt": is_rebuilt,
            }
        else:
            yield common | {"fact": "unnoticed", "is_rebuilt": is_rebuilt}


def store_name(number: int) -> str:
    """Return the name of a store, the value of the column ``source``."""
    return f"store-{number}"


def make_block(plan: GeneratorPlan, number: int) -> MadeBlock:
    """Make a block by its number, from 0 to ``layout_of(plan).block_count`` - 1."""
    block = layout_of(plan).block(number)
    made = MadeBlock(Maker(plan, block.channel))
    log = _Log(plan.history)
    for unit in _units_before(made.maker, block):
        log.append(unit)
    for at in range(block.first, block.end):
        unit, rng = made.maker.draw(at)
        made.maker.fill(unit, rng)
        made.units.append(unit)
        for drawn, cited in log.citations(unit):
            message = _message(made.maker, drawn, cited)
            payload = made.maker.profile.codec.encode(message)
            drawn.hint = message_hash(SHARD, made.maker.waku(payload, drawn.fates[0].timestamp_ns))
            for fate in drawn.fates:
                if fate.stores:
                    sent = payload if fate.damage is None else damaged(fate.damage, message, made.maker, rng)
                    waku = made.maker.waku(sent, fate.timestamp_ns)
                    made.carriers.append(StoredCopy(message_hash(SHARD, waku), sent, message, drawn, fate))
        log.append(unit)
    _look_ahead(made.maker, block, log)
    return made


class _Log:
    """The newest content messages of a channel, which later ones may cite."""

    def __init__(self, history: int) -> None:
        self._history = history
        self._messages: list[DrawnMessage] = []
        self._last_count = 0
        self.appended = 0

    def append(self, unit: Unit) -> None:
        """Add a unit that was sent."""
        is_logged = unit.messages[0].kind == CONTENT
        self._last_count = len(unit.messages) if is_logged else 0
        if is_logged:
            self._messages += unit.messages
            self.appended += len(unit.messages)
            del self._messages[: -(self._history + 2 * MAX_UNIT_MESSAGES)]

    def citations(self, unit: Unit) -> Iterator[tuple[DrawnMessage, Sequence[DrawnMessage]]]:
        """Yield each SDS message of the next unit with its cited messages, oldest first, and note the citations."""
        messages = self._messages
        known = messages[: len(messages) - self._last_count] if unit.is_concurrent else messages
        visible = list(known)
        for drawn in unit.messages:
            cited = visible[-self._history :] if self._history and drawn.kind != EPHEMERAL else []
            seen_at = drawn.seen_at
            if seen_at is not None:
                for other in cited:
                    _note_citation(other, drawn, seen_at)
            yield drawn, cited
            if drawn.kind == CONTENT:
                visible.append(drawn)


def _note_citation(cited: DrawnMessage, citing: DrawnMessage, seen_at: int) -> None:
    cited.cited_at.append(seen_at)
    cited.is_hinted |= cited.hint is not None and bool(citing.message_id)
    if cited.sender_id != citing.sender_id:
        cited.citers[citing.sender_id] = min(seen_at, cited.citers.get(citing.sender_id, seen_at))


def _message(maker: Maker, drawn: DrawnMessage, cited: Sequence[DrawnMessage]) -> SdsMessage:
    is_ephemeral = drawn.kind == EPHEMERAL
    return SdsMessage(
        message_id=drawn.message_id,
        sender_id=drawn.sender_id,
        channel_id=maker.channel_id,
        lamport_timestamp=drawn.lamport,
        causal_history=tuple(HistoryEntry(other.message_id, other.hint, other.sender_id) for other in cited),
        bloom_filter=None if is_ephemeral else maker.bloom,
        content=None if drawn.kind == SYNC else drawn.content,
    )


def _units_before(maker: Maker, block: Block) -> list[Unit]:
    """Return the last units before a block, oldest first: all units that the block can cite."""
    units: list[Unit] = []
    count = 0
    for at in range(block.first - 1, -1, -1):
        if count >= maker.plan.history + MAX_UNIT_MESSAGES:
            break
        unit, rng = maker.draw(at)
        maker.fill(unit, rng)
        units.append(unit)
        count += len(unit.messages) if unit.messages[0].kind == CONTENT else 0
    return units[::-1]


def _look_ahead(maker: Maker, block: Block, log: _Log) -> None:
    """Note the citations of a block's messages after its end. The citing messages are not made, and have no ids."""
    before = log.appended
    for at in range(block.end, block.channel_end):
        if log.appended - before >= maker.plan.history + MAX_UNIT_MESSAGES:
            break
        unit, _ = maker.draw(at)
        for _ in log.citations(unit):
            continue
        log.append(unit)
