"""From ``unique_messages`` to ``reassembled``: reassembles segments, each sending of a payload by one sender once.

Segments are grouped by channel, sender and the payload hash in their headers (with the hash alone, another participant
could spoil a message). Each group goes through the reassembler of a live channel, with Reed-Solomon and the check of
the Keccak-256; the profile determines the segment format. An archive is complete, so nothing expires here, and data
segments go before parity segments: ``recovered`` means that lost segments had to be computed.

A lost segment that was computed is no loss. If its id is known, it is in ``rebuilt_ids``, so that its citation is not
counted as a missing message. If the id is a guess, it is in ``guessed_ids``: it counts as missing, but no message waits
for it (`fairway.pipeline.stages.lost_segments`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.options import Profile, SegmentationConfig
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.stages.lost_segments import SIBLINGS_CITED, Cited, LackingSegments, Seen, Whole, lost_segments
from fairway.protocol.segmentation.outcomes import (
    MessageCompleted,
    SegmentSetAside,
    SegmentStored,
    SegmentSurplus,
    SetKey,
)
from fairway.protocol.segmentation.reassembler import MAX_REMEMBERED_SENDINGS, Reassembler
from fairway.wire.sds import MAX_SDS_BYTES
from fairway.wire.segment import SegmentFormat

ARCHIVE_SEGMENTATION: Final = SegmentationConfig(
    segment_size_bytes=MAX_SDS_BYTES,
    max_message_size_bytes=2**31 - 1,
    max_buffered_bytes_per_sender=2**31 - 1,
    max_buffered_bytes=2**31 - 1,
)
"""Without the quotas of a live channel, because a group is in memory anyway, and for segments of any size."""

REASSEMBLED: Final = (
    "channel_id string, sender_id string, segment_hash binary, outcome string, payload binary, recovered boolean,"
    " held int, data_segments int, sds_ids array<string>, rebuilt_ids array<string>,"
    " guessed_ids array<string>, lamport bigint, first_seen bigint, last_seen bigint"
)
"""The table of reassembled messages, one row for each sending. ``outcome`` is ``complete``, ``incomplete``,
``hash-mismatch`` where there are enough but give something else than promised, by Reed-Solomon or without,
``discarded`` for segments that contradict the rest of their set or are forged, or ``excess`` for those that nobody
looked at because the group has more than can be told apart; ``held`` counts segments, ``data_segments`` is null when no
data segment tells, ``lamport`` is the least."""

_GROUP: Final = ("channel_id", "sender_id", "segment_hash")
_INPUT: Final = (
    *_GROUP,
    "message_id",
    "lamport",
    "timestamp",
    "is_parity",
    "segment_index",
    "content",
)
_ARROW_SCHEMA: Final = arrow_schema(REASSEMBLED)
_NEVER_EXPIRES_MS: Final = 0
_ENDED: Final = frozenset({"complete", "hash-mismatch"})

GroupMapper = Callable[[pa.Table], pa.Table]
"""What Spark's ``applyInArrow`` takes."""


def reassembled(
    unique_messages: DataFrame,
    profile: Profile | None = Profile.WAKU,
    *,
    config: SegmentationConfig = ARCHIVE_SEGMENTATION,
) -> DataFrame:
    """Return ``reassembled`` (`REASSEMBLED`). Without a ``profile`` each message is read by its column of that name."""
    # A group has to fit in memory, so it has at most as many segments of a payload as the reassembler can distinguish.
    # The order of the window is the order in which the segments reach it.
    keys = [*_GROUP, *(["profile"] if profile is None else [])]
    group = Window.partitionBy(*keys)
    ordered = group.orderBy("is_parity", "lamport", "message_id")
    limit = config.max_total_segments * MAX_REMEMBERED_SENDINGS
    return (
        unique_messages.where("segment_hash IS NOT NULL")
        .select(
            *dict.fromkeys([*keys, *_INPUT]),
            _newest("causal_history"),
            F.row_number().over(ordered).alias("rank"),
            (F.count("*").over(group) - limit).alias("excess"),
        )
        .where(F.col("rank") <= limit)
        .drop("rank")
        .groupBy(*keys)
        .applyInArrow(group_mapper(profile, config=config), REASSEMBLED)
    )


def _newest(history: str) -> Column:
    """Return the newest entries of a causal history, because all entries of all segments may not fit in memory."""
    excess = F.size(history) > SIBLINGS_CITED
    newest = F.when(excess, F.slice(history, -SIBLINGS_CITED, SIBLINGS_CITED)).otherwise(F.col(history))
    return newest.alias(history)


def group_mapper(
    profile: Profile | None = Profile.WAKU, *, config: SegmentationConfig = ARCHIVE_SEGMENTATION
) -> GroupMapper:
    """Return the function that turns the segments of one group into rows of ``reassembled``."""

    def reassemble_group(table: pa.Table) -> pa.Table:
        spoken = Profile(table.column("profile")[0].as_py()) if profile is None else profile
        rows = list(_reassemble(table, spoken.segments, config))
        excess = table.column("excess")[0].as_py() if "excess" in table.schema.names else 0
        if excess > 0:
            rows.append(_excess(rows[0], excess))
        return pa.Table.from_pylist(rows, schema=_ARROW_SCHEMA)

    return reassemble_group


def _excess(row: dict[str, Any], held: int) -> dict[str, Any]:
    """Return the row for the segments of a group that were not read."""
    told = (*_GROUP, "lamport", "first_seen", "last_seen")
    return {
        **{name: row[name] for name in told},
        "outcome": "excess",
        "recovered": False,
        "held": held,
        "sds_ids": [],
        "rebuilt_ids": [],
        "guessed_ids": [],
    }


@dataclass(slots=True, kw_only=True)
class _Sending:
    """One sending of a payload: its segments and its outcome."""

    outcome: str = "incomplete"
    is_disputed: bool = False
    data_count: int | None = None
    parity_count: int | None = None
    payload: bytes | None = None
    recovered: bool = False
    seen: list[Seen] = field(default_factory=list)


def _reassemble(table: pa.Table, segment_format: SegmentFormat, config: SegmentationConfig) -> Iterator[dict[str, Any]]:
    table = table.sort_by([("is_parity", "ascending"), ("lamport", "ascending"), ("message_id", "ascending")])
    rows: list[dict[str, Any]] = table.to_pylist()
    for sending in _sendings(rows, Reassembler(config, segment_format)):
        lost = _lost(sending, rows[0]["sender_id"], segment_format, config)
        yield {
            **{name: rows[0][name] for name in _GROUP},
            "outcome": sending.outcome,
            "payload": sending.payload,
            "recovered": sending.recovered,
            "held": len(sending.seen),
            "data_segments": sending.data_count,
            "sds_ids": [seen.sds_id for seen in sending.seen],
            "rebuilt_ids": lost.rebuilt,
            "guessed_ids": lost.guessed,
            "lamport": min(seen.lamport for seen in sending.seen),
            "first_seen": min(seen.timestamp for seen in sending.seen),
            "last_seen": max(seen.timestamp for seen in sending.seen),
        }


def _sendings(rows: Sequence[dict[str, Any]], reassembler: Reassembler) -> list[_Sending]:
    sendings: dict[SetKey, _Sending] = {}
    discarded = _Sending(outcome="discarded")
    for row in rows:
        seen = Seen(
            row["message_id"],
            row["lamport"] or 0,
            row["timestamp"],
            row["is_parity"],
            row["segment_index"],
            row["content"],
            tuple(Cited(entry["message_id"], entry["sender_id"]) for entry in row["causal_history"] or ()),
        )
        outcome = reassembler.add(row["sender_id"], seen.sds_id, seen.lamport, seen.content, _NEVER_EXPIRES_MS)
        if not isinstance(outcome, SegmentStored | SegmentSurplus | MessageCompleted | SegmentSetAside):
            discarded.seen.append(seen)
            continue
        sending = sendings.setdefault(outcome.set_key, _Sending())
        sending.seen.append(seen)
        match outcome:
            case SegmentStored():
                sending.data_count = outcome.needed
                sending.is_disputed |= outcome.disputed
            case SegmentSetAside():
                sending.is_disputed |= outcome.disputed
            case MessageCompleted():
                sending.outcome = "complete"
                # What else came for its slots is forged.
                forged = [seen for seen in sending.seen if seen.sds_id not in outcome.segments]
                discarded.seen += forged
                sending.seen = [seen for seen in sending.seen if seen not in forged]
                sending.payload = outcome.payload
                sending.recovered = outcome.recovered
                sending.data_count = outcome.data_count
                sending.parity_count = outcome.parity_count
    for sending in sendings.values():
        if sending.is_disputed and sending.payload is None:
            # Enough segments are in the archive, by Reed-Solomon or without, but not those that the hash promised.
            sending.outcome = "hash-mismatch"
    told = _without_ghosts(list(sendings.values()))
    return [*told, *([discarded] if discarded.seen else [])]


def _without_ghosts(sendings: Sequence[_Sending]) -> list[_Sending]:
    """Add parity segments without data to an ended sending that lacks them; return the other sendings.

    Such parity comes from a sender that sent it later than the reassembler expects, not from another sending of the
    payload: that would have data segments too. A sending that is complete, or whose hash is wrong, needs no parity.
    """
    with_data = [any(not seen.is_parity for seen in sending.seen) for sending in sendings]
    ended = [sending for sending, is_so in zip(sendings, with_data, strict=True) if is_so and sending.outcome in _ENDED]
    for sending, is_so in zip(sendings, with_data, strict=True):
        # As many parity segments as there is data come out whole alone: a ghost as well.
        if not is_so:
            sending.seen = [seen for seen in sending.seen if not _put_with(seen, ended)]
    return [sending for sending in sendings if sending.seen]


def _put_with(parity: Seen, ended: Sequence[_Sending]) -> bool:
    """Add a parity segment to the nearest sending that lacks it; return False if there is none."""
    lacking = [
        sending for sending in ended if not any(seen.is_parity and seen.index == parity.index for seen in sending.seen)
    ]
    if not lacking:
        return False
    nearest = min(lacking, key=lambda sending: min(abs(seen.lamport - parity.lamport) for seen in sending.seen))
    nearest.seen.append(parity)
    return True


def _lost(
    sending: _Sending, sender_id: str, segment_format: SegmentFormat, config: SegmentationConfig
) -> LackingSegments:
    """Return the lost segments of a complete sending."""
    if sending.payload is None or sending.data_count is None:
        return LackingSegments()
    whole = Whole(
        sender_id=sender_id,
        payload=sending.payload,
        data_count=sending.data_count,
        parity_count=_told_parity(sending, segment_format, config),
        seen=sending.seen,
        segment_format=segment_format,
    )
    return lost_segments(whole, config)


def _told_parity(sending: _Sending, segment_format: SegmentFormat, config: SegmentationConfig) -> int | None:
    """Return the parity count in the headers; None if these have none, as data segments of SEGMENTATION."""
    if sending.parity_count or segment_format.self_describing:
        return sending.parity_count
    # Where the data was enough, parity was not looked at.
    parity = next((seen for seen in sending.seen if seen.is_parity), None)
    return None if parity is None else segment_format.decode(parity.content, config.max_total_segments).parity_count
