"""Stage 3, ``unique_messages`` to ``reassembled``: put segments together, each sending of a payload by one sender once.

Segments are grouped by channel, sender and the hash that they promise (the hash alone would let anybody spoil a
stranger's message), and each group goes through the very reassembler that a live channel uses, Reed-Solomon and the
check of the Keccak-256 included; the profile tells in which format. An archive is complete, so nothing expires here,
and data goes before parity: ``recovered`` means that lost segments had to be computed, not that parity happened to
come first.

A lost segment that was computed is no loss. With fairway's rule for SDS ids its very id is known (`IdRule.UNIQUE`): it
stands in ``rebuilt_ids``, so that a message cited and not found can be told from a message that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.errors import FairwayError
from fairway.options import IdRule, Profile, SegmentationConfig
from fairway.pipeline.stages.sds_messages import SEGMENT_FORMATS
from fairway.protocol.sds.message_id import make_message_id
from fairway.protocol.segmentation.outcomes import (
    MessageCompleted,
    SegmentStored,
    SegmentSurplus,
    SetKey,
    SetRejected,
)
from fairway.protocol.segmentation.reassembler import MAX_REMEMBERED_SENDINGS, Reassembler
from fairway.protocol.segmentation.segmenter import LIP_243_HEADROOM_BYTES, Segmenter
from fairway.wire.sds import MAX_SDS_BYTES
from fairway.wire.segment import SegmentFormat

ARCHIVE_SEGMENTATION: Final = SegmentationConfig(
    segment_size_bytes=MAX_SDS_BYTES,
    max_message_size_bytes=2**31 - 1,
    max_buffered_bytes_per_sender=2**31 - 1,
    max_buffered_bytes=2**31 - 1,
)
"""A group is in memory as a whole, so the quotas of a live channel have nothing to protect; and whatever size a sender
chose is read."""

REASSEMBLED: Final = (
    "channel_id string, sender_id string, segment_hash binary, outcome string, payload binary, recovered boolean,"
    " held int, data_segments int, sds_ids array<string>, rebuilt_ids array<string>, lamport bigint,"
    " first_seen bigint, last_seen bigint"
)
"""The table of reassembled messages, one row for each sending. ``outcome`` is ``complete``, ``incomplete``,
``hash-mismatch``, ``discarded`` for segments that contradict the rest of their set, or ``excess`` for those that nobody
looked at because the group has more than can be told apart; ``held`` counts segments, ``data_segments`` is null when no
data segment tells, ``lamport`` is the least."""

_GROUP: Final = ("channel_id", "sender_id", "segment_hash")
_INPUT: Final = (*_GROUP, "message_id", "lamport", "timestamp", "is_parity", "segment_index", "content")
_ARROW_SCHEMA: Final = pa.schema(
    [
        ("channel_id", pa.string()),
        ("sender_id", pa.string()),
        ("segment_hash", pa.binary()),
        ("outcome", pa.string()),
        ("payload", pa.binary()),
        ("recovered", pa.bool_()),
        ("held", pa.int32()),
        ("data_segments", pa.int32()),
        ("sds_ids", pa.list_(pa.string())),
        ("rebuilt_ids", pa.list_(pa.string())),
        ("lamport", pa.int64()),
        ("first_seen", pa.int64()),
        ("last_seen", pa.int64()),
    ]
)
_NEVER_EXPIRES_MS: Final = 0
_LAMPORT_END: Final = 2**64

GroupMapper = Callable[[pa.Table], pa.Table]
"""What Spark's ``applyInArrow`` takes."""


def reassembled(
    unique_messages: DataFrame,
    profile: Profile | None = Profile.WAKU,
    *,
    config: SegmentationConfig = ARCHIVE_SEGMENTATION,
) -> DataFrame:
    """Return ``reassembled`` (`REASSEMBLED`). Without a ``profile`` each message is read by its column of that name."""
    # A group has to fit in memory, so of one payload no more segments are taken than the reassembler can tell apart.
    # The order of the window is the order in which the segments reach it.
    keys = [*_GROUP, *(["profile"] if profile is None else [])]
    group = Window.partitionBy(*keys)
    ordered = group.orderBy("is_parity", "lamport", "message_id")
    limit = config.max_total_segments * MAX_REMEMBERED_SENDINGS
    return (
        unique_messages.where("segment_hash IS NOT NULL")
        .select(
            *dict.fromkeys([*keys, *_INPUT]),
            F.row_number().over(ordered).alias("rank"),
            (F.count("*").over(group) - limit).alias("excess"),
        )
        .where(F.col("rank") <= limit)
        .drop("rank")
        .groupBy(*keys)
        .applyInArrow(group_mapper(profile, config=config), REASSEMBLED)
    )


def group_mapper(
    profile: Profile | None = Profile.WAKU, *, config: SegmentationConfig = ARCHIVE_SEGMENTATION
) -> GroupMapper:
    """Return the function that turns the segments of one group into rows of ``reassembled``."""

    def reassemble_group(table: pa.Table) -> pa.Table:
        spoken = Profile(table.column("profile")[0].as_py()) if profile is None else profile
        rows = list(_reassemble(table, SEGMENT_FORMATS[spoken], config))
        excess = table.column("excess")[0].as_py() if "excess" in table.schema.names else 0
        if excess > 0:
            rows.append(_excess(rows[0], excess))
        return pa.Table.from_pylist(rows, schema=_ARROW_SCHEMA)

    return reassemble_group


def _excess(row: dict[str, Any], held: int) -> dict[str, Any]:
    """Return the row of the segments of a group that were not looked at."""
    told = (*_GROUP, "lamport", "first_seen", "last_seen")
    return {
        **{name: row[name] for name in told},
        "outcome": "excess",
        "recovered": False,
        "held": held,
        "sds_ids": [],
        "rebuilt_ids": [],
    }


@dataclass(frozen=True, slots=True)
class _Seen:
    """A segment as the archive has it."""

    sds_id: str
    lamport: int
    timestamp: int
    is_parity: bool
    index: int
    content: bytes

    def order(self, data_count: int) -> int:
        """Return the chunk order: data segments from 0, then parity segments."""
        return self.index + (data_count if self.is_parity else 0)


@dataclass(slots=True, kw_only=True)
class _Sending:
    """What is known of one sending of the payload."""

    outcome: str = "incomplete"
    data_count: int | None = None
    payload: bytes | None = None
    recovered: bool = False
    seen: list[_Seen] = field(default_factory=list)


def _reassemble(table: pa.Table, segment_format: SegmentFormat, config: SegmentationConfig) -> Iterator[dict[str, Any]]:
    table = table.sort_by([("is_parity", "ascending"), ("lamport", "ascending"), ("message_id", "ascending")])
    rows: list[dict[str, Any]] = table.to_pylist()
    for sending in _sendings(rows, Reassembler(config, segment_format)):
        yield {
            **{name: rows[0][name] for name in _GROUP},
            "outcome": sending.outcome,
            "payload": sending.payload,
            "recovered": sending.recovered,
            "held": len(sending.seen),
            "data_segments": sending.data_count,
            "sds_ids": [seen.sds_id for seen in sending.seen],
            "rebuilt_ids": list(_rebuilt_ids(sending, rows[0]["sender_id"], segment_format, config)),
            "lamport": min(seen.lamport for seen in sending.seen),
            "first_seen": min(seen.timestamp for seen in sending.seen),
            "last_seen": max(seen.timestamp for seen in sending.seen),
        }


def _sendings(rows: Sequence[dict[str, Any]], reassembler: Reassembler) -> list[_Sending]:
    sendings: dict[SetKey, _Sending] = {}
    rejected: list[_Sending] = []
    discarded = _Sending(outcome="discarded")
    for row in rows:
        seen = _Seen(
            row["message_id"],
            row["lamport"] or 0,
            row["timestamp"],
            row["is_parity"],
            row["segment_index"],
            row["content"],
        )
        outcome = reassembler.add(row["sender_id"], seen.sds_id, seen.lamport, seen.content, _NEVER_EXPIRES_MS)
        if not isinstance(outcome, SegmentStored | SegmentSurplus | MessageCompleted | SetRejected):
            discarded.seen.append(seen)
            continue
        sending = sendings.setdefault(outcome.set_key, _Sending())
        sending.seen.append(seen)
        match outcome:
            case SegmentStored():
                sending.data_count = outcome.needed
            case MessageCompleted():
                sending.outcome = "complete"
                sending.payload = outcome.payload
                sending.recovered = outcome.recovered
                sending.data_count = outcome.data_count
            case SetRejected():
                sending.outcome = "hash-mismatch"
                rejected.append(sendings.pop(outcome.set_key))
    return [*sendings.values(), *rejected, *([discarded] if discarded.seen else [])]


def _rebuilt_ids(
    sending: _Sending, sender_id: str, segment_format: SegmentFormat, config: SegmentationConfig
) -> Iterator[str]:
    """Yield the SDS ids that fairway's rule gives the segments of a complete sending that the archive lacks.

    A sender makes all segments of a message in one go, so that their Lamport timestamps are consecutive. The ids of a
    sender with other rules come out as ids that nobody cites.
    """
    if sending.payload is None or sending.data_count is None:
        return
    last = sending.data_count - 1  # the one segment that may be shorter than the others
    piece = next((seen for seen in sending.seen if seen.order(sending.data_count) != last), None)
    if piece is None:
        return  # one segment is the whole message, and it is here
    size = len(segment_format.decode(piece.content, config.max_total_segments).payload)
    headroom = LIP_243_HEADROOM_BYTES if segment_format.self_describing else 0
    try:
        parts = (
            Segmenter(replace(config, segment_size_bytes=size + headroom), segment_format).split(sending.payload).parts
        )
    except FairwayError:
        return
    present = {seen.order(sending.data_count) for seen in sending.seen}
    base = piece.lamport - piece.order(sending.data_count)
    for part in parts:
        lamport = base + part.chunk_index
        if part.chunk_index not in present and 0 <= lamport < _LAMPORT_END:
            yield make_message_id(
                IdRule.UNIQUE, sender_id=sender_id, lamport=lamport, content=part.content, now_ms=0, sequence=0
            )
