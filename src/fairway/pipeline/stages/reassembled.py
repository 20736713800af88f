"""From ``sds_messages`` to ``reassembled``: reassembles segments, each sending of a payload by one sender once.

Segments are grouped by channel, sender and the payload hash in their headers (with the hash alone, another participant
could spoil a message). Each group goes through the reassembler of a live channel, with Reed-Solomon and the check of
the Keccak-256; the profile determines the segment format. Nothing expires here. Data segments are processed before
parity segments, so ``recovered`` means that lost segments were computed.

A computed segment is not a loss. If its id is known, it is in ``rebuilt_ids``, so that its citation is not counted as a
missing message. If the id is a guess, it is in ``guessed_ids``: it counts as missing, but no message waits for it
(`fairway.pipeline.stages.lost_segments`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from fairway.options import Profile, SegmentationConfig
from fairway.pipeline.codes import codes_of, starts_of_runs
from fairway.pipeline.exchange import Bucket, Cut, bucketed, filtered, taken
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.lost_segments import SIBLINGS_CITED, Cited, LackingSegments, Seen, Whole, lost_segments
from fairway.protocol.segmentation.outcomes import MessageComplete, Refused, SegmentKept
from fairway.protocol.segmentation.reassembler import MAX_REMEMBERED_SENDINGS, Reassembler
from fairway.protocol.segmentation.segment_set import SegmentSet, SetKey
from fairway.wire.sds import MAX_SDS_BYTES
from fairway.wire.segment import MAX_SEGMENTS, SegmentFormat

ARCHIVE_SEGMENTATION: Final = SegmentationConfig(
    segment_size_bytes=MAX_SDS_BYTES,
    max_message_size_bytes=2**31 - 1,
    max_buffered_bytes=2**34,
)
"""Options without the quotas of a live channel (a group is in memory anyway), and for segments of any size."""

REASSEMBLED: Final = (
    "channel_id string, sender_id string, segment_hash binary, outcome string, payload binary, recovered boolean,"
    " held int, data_segments int, sds_ids array<string>, rebuilt_ids array<string>,"
    " guessed_ids array<string>, lamport bigint, first_seen timestamp, first_seen_ns bigint, last_seen timestamp,"
    " last_seen_ns bigint"
)
"""The table of reassembled messages, one row for each sending. ``outcome`` is ``complete``, ``incomplete``,
``hash-mismatch`` (enough segments, but their content has another hash than promised), ``discarded`` (segments that
contradict their set or are forged), or ``excess`` (segments that were not read because the group has more than the
reassembler can distinguish). ``held`` counts segments, ``data_segments`` is null if no segment states it, ``lamport``
is the least."""

_GROUP: Final = ("channel_id", "sender_id", "segment_hash")
_ARROW_SCHEMA: Final = exact_schema(REASSEMBLED)
_CITED: Final = pa.struct([("message_id", pa.string()), ("sender_id", pa.string())])

SEGMENTS: Final = pa.schema(
    [
        *(_ARROW_SCHEMA.field(name) for name in _GROUP),
        ("profile", pa.string()),
        ("message_id", pa.string()),
        ("lamport", pa.int64()),
        ("timestamp_ns", pa.int64()),
        ("is_parity", pa.bool_()),
        ("segment_index", pa.int32()),
        ("content", pa.binary()),
        ("causal_history", pa.list_(_CITED)),
    ]
)
"""A segment with the columns to reassemble it; ``causal_history`` has only the newest entries."""

COMPUTED_SEGMENTS: Final = (
    "channel_id string, sender_id string, segment_hash binary, message_id string, told_by string, is_guess boolean"
)
"""The table of lost segments that were computed: the id of each, known or a guess, and ``told_by``, the first segment
of the same sending in the archive."""

COMPUTED_INPUT: Final = (*_GROUP, "sds_ids", "rebuilt_ids", "guessed_ids")
"""The columns of ``reassembled`` that `computed_segments_in` reads."""
_COMPUTED_SCHEMA: Final = exact_schema(COMPUTED_SEGMENTS)
_ORDER: Final = ("is_parity", "lamport", "message_id")
_NEVER_EXPIRES_MS: Final = 0
_ENDED: Final = frozenset({"complete", "hash-mismatch"})
_READ_BYTES: Final = 16_777_216
"""Bytes of segments that are split into groups at once, beside those of one group."""


def reassembled(
    sds_messages: DataFrame,
    profile: Profile | None = None,
    *,
    config: SegmentationConfig = ARCHIVE_SEGMENTATION,
) -> DataFrame:
    """Return ``reassembled`` (`REASSEMBLED`), one row for each message that was sent in segments, whole or not.

    ``outcome`` is the result of reassembly, with Reed-Solomon if segments are lost; only complete messages have a
    ``payload``. Without a ``profile`` the column of that name decides for each message. ``config`` has the bounds.
    """

    def work(bucket: Bucket) -> Iterator[pa.Table]:
        yield from reassembled_rows(bucket.table("segments", SEGMENTS), profile, config)

    segments = Cut(
        frame=sds_messages.where("segment_hash IS NOT NULL").select(*SEGMENTS.names),
        by=_GROUP,
        prepare=lambda table: {"segments": segments_in(table)},
    )
    return bucketed([segments], work, REASSEMBLED)


def segments_in(sds_messages: pa.Table) -> pa.Table:
    """Return the segments (`SEGMENTS`) among some messages."""
    segments = filtered(sds_messages.select(SEGMENTS.names), pc.is_valid(sds_messages.column("segment_hash")))
    place = segments.schema.get_field_index("causal_history")
    return segments.set_column(place, "causal_history", _newest(segments.column(place))).cast(SEGMENTS)


def computed_segments_in(reassembled: pa.Table) -> pa.Table:
    """Return the lost segments (`COMPUTED_SEGMENTS`) that were computed, of reassembled messages."""
    return pa.concat_tables(
        _computed(reassembled, name, is_guess) for name, is_guess in (("rebuilt_ids", False), ("guessed_ids", True))
    )


def _computed(reassembled: pa.Table, name: str, is_guess: bool) -> pa.Table:
    some = reassembled.filter(pc.greater(pc.list_value_length(reassembled.column(name)), 0))
    ids = some.column(name)
    of_message = pa.array(np.repeat(np.arange(len(ids)), pc.list_value_length(ids).to_numpy()))
    columns = {
        **{field: some.column(field).take(of_message) for field in _GROUP},
        "message_id": pc.list_flatten(ids),
        "told_by": pc.list_element(some.column("sds_ids"), 0).take(of_message),
        "is_guess": pa.repeat(is_guess, len(of_message)),
    }
    return pa.table(columns, schema=_COMPUTED_SCHEMA)


def _newest(histories: pa.ChunkedArray) -> pa.ListArray:
    """Return the newest entries of causal histories, because all entries of all segments may not fit in memory."""
    counts = pc.list_value_length(histories).fill_null(0).to_numpy()
    entries = pc.list_flatten(histories.combine_chunks())
    behind = np.repeat(np.cumsum(counts), counts) - np.arange(len(entries))
    kept = entries.filter(pa.array(behind <= SIBLINGS_CITED))
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.minimum(counts, SIBLINGS_CITED))])
    fields = [kept.field(field.name) for field in _CITED]
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.StructArray.from_arrays(fields, fields=list(_CITED)))


def reassembled_rows(segments: pa.Table, profile: Profile | None, config: SegmentationConfig) -> Iterator[pa.Table]:
    """Yield ``reassembled`` of segments (`SEGMENTS`), in tables of some MiB; groups must be complete.

    Beside the given table, memory holds one group, with at most as many segments of a payload as the reassembler can
    distinguish.
    """
    keys = [*_GROUP, *(["profile"] if profile is None else [])]
    groups = codes_of(*(segments.column(name) for name in keys))
    by = pa.table({"group": groups, **{name: segments.column(name) for name in _ORDER}})
    order = pc.sort_indices(by, [(name, "ascending", "at_start") for name in by.schema.names])
    order = order.to_numpy().astype(np.int64)
    starts = starts_of_runs(groups[order])
    limit = MAX_SEGMENTS * MAX_REMEMBERED_SENDINGS
    sizes = pc.binary_length(segments.column("content")).fill_null(0).to_numpy()
    held: list[_Group] = []
    held_bytes = 0
    for start, end in pairwise([*starts.tolist(), len(order)]):
        read = order[start : min(end, start + limit)]
        held.append(_Group(read, end - start - len(read)))
        held_bytes += int(sizes[read].sum())
        if held_bytes >= _READ_BYTES:
            yield _reassembled_groups(segments, held, profile, config)
            held, held_bytes = [], 0
    if held:
        yield _reassembled_groups(segments, held, profile, config)


class _Group(NamedTuple):
    """The segments of one payload of one sender."""

    rows: NDArray[np.int64]
    """The segments that are read, in the order for the reassembler."""
    excess: int
    """Number of segments that are not read."""


def _reassembled_groups(
    segments: pa.Table, groups: Sequence[_Group], profile: Profile | None, config: SegmentationConfig
) -> pa.Table:
    read = _rows_of(taken(segments, np.concatenate([group.rows for group in groups])))
    rows: list[dict[str, Any]] = []
    for group in groups:
        rows += _reassembled_group(list(islice(read, len(group.rows))), group.excess, profile, config)
    return pa.Table.from_pylist(rows, schema=_ARROW_SCHEMA)


def _rows_of(segments: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield segments with their fields by name; Arrow converts lists of structs slowly."""
    histories = segments.column("causal_history").cast(pa.list_(_CITED)).combine_chunks()
    entries = pc.list_flatten(histories)
    cited = list(map(Cited, *(entries.field(field.name).to_pylist() for field in _CITED)))
    ends = np.cumsum(pc.list_value_length(histories).fill_null(0).to_numpy()).tolist()
    names = [name for name in segments.schema.names if name in SEGMENTS.names and name != "causal_history"]
    columns = (segments.column(name).to_pylist() for name in names)
    for start, end, *values in zip([0, *ends], ends, *columns, strict=False):
        yield {**dict(zip(names, values, strict=True)), "causal_history": tuple(cited[start:end])}


@dataclass(slots=True, kw_only=True)
class _Sending:
    """One sending of a payload: its segments and its outcome."""

    outcome: str = "incomplete"
    data_count: int | None = None
    parity_count: int | None = None
    payload: bytes | None = None
    recovered: bool = False
    seen: list[Seen] = field(default_factory=list)


def _reassembled_group(
    rows: list[dict[str, Any]], excess: int, profile: Profile | None, config: SegmentationConfig
) -> Iterator[dict[str, Any]]:
    """Yield ``reassembled`` of the segments of one group, and of the number of segments not read."""
    segment_format = (Profile(rows[0]["profile"]) if profile is None else profile).segments
    rows.sort(key=_reading_order)
    told: dict[str, Any] = {}
    for sending in _sendings(rows, Reassembler(config, segment_format)):
        lost = _lost(sending, rows[0]["sender_id"], segment_format, config)
        row = {
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
            "first_seen_ns": min(seen.timestamp for seen in sending.seen),
            "last_seen_ns": max(seen.timestamp for seen in sending.seen),
        }
        told = told or row
        yield row
    if excess:
        yield told | {
            "outcome": "excess",
            "payload": None,
            "recovered": False,
            "held": excess,
            "data_segments": None,
            "sds_ids": told["sds_ids"][:1],
            **dict.fromkeys(("rebuilt_ids", "guessed_ids"), ()),
        }


def _reading_order(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the key by which segments of a group are sorted: ephemeral ones have no timestamp and are last."""
    return row["is_parity"], row["lamport"] is None, row["lamport"] or 0, row["message_id"]


def _sendings(rows: Sequence[dict[str, Any]], reassembler: Reassembler) -> list[_Sending]:
    sendings: dict[SetKey, _Sending] = {}
    discarded = _Sending(outcome="discarded")
    for row in rows:
        seen = Seen(
            row["message_id"],
            row["lamport"] or 0,
            row["timestamp_ns"],
            row["is_parity"],
            row["segment_index"],
            row["content"],
            row["causal_history"],
        )
        outcome = reassembler.accept(row["sender_id"], seen.sds_id, seen.lamport, seen.content, _NEVER_EXPIRES_MS)
        match outcome:
            case Refused(key=SetKey() as key):
                # The archive has enough segments, with or without Reed-Solomon, but their content has another hash.
                sending = sendings.setdefault(key, _Sending())
                sending.outcome = "hash-mismatch"
            case SegmentKept(segments=segments) | MessageComplete(segments=SegmentSet() as segments):
                sending = sendings.setdefault(segments.key, _Sending())
                sending.data_count = segments.data_count or None
            case _:
                discarded.seen.append(seen)
                continue
        sending.seen.append(seen)
        if isinstance(outcome, MessageComplete):
            sending.outcome = "complete"
            sending.payload = outcome.payload
            sending.recovered = outcome.recovered
            sending.parity_count = None if outcome.segments is None else outcome.segments.parity_count
    told = _without_ghosts(list(sendings.values()))
    return [*told, *([discarded] if discarded.seen else [])]


def _without_ghosts(sendings: Sequence[_Sending]) -> list[_Sending]:
    """Add parity segments without data to an ended sending without that parity; return the other sendings.

    Such parity comes from a sender that sent it later than the reassembler expects, not from another sending of the
    payload: that would have data segments too. A sending that is complete, or whose hash is wrong, needs no parity.
    """
    with_data = [any(not seen.is_parity for seen in sending.seen) for sending in sendings]
    ended = [sending for sending, is_so in zip(sendings, with_data, strict=True) if is_so and sending.outcome in _ENDED]
    for sending, is_so in zip(sendings, with_data, strict=True):
        # Parity segments alone can be complete, if there are as many as data segments: a ghost as well.
        if not is_so:
            sending.seen = [seen for seen in sending.seen if not _put_with(seen, ended)]
    return [sending for sending in sendings if sending.seen]


def _put_with(parity: Seen, ended: Sequence[_Sending]) -> bool:
    """Add a parity segment to the nearest sending without it; return False if there is none."""
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
        parity_count=_told_parity(sending, segment_format),
        seen=sending.seen,
        segment_format=segment_format,
    )
    return lost_segments(whole, config)


def _told_parity(sending: _Sending, segment_format: SegmentFormat) -> int | None:
    """Return the parity count in the headers; None if absent, as in data segments of SEGMENTATION."""
    if sending.parity_count or segment_format.self_describing:
        return sending.parity_count
    # If the data was enough, parity was not read.
    parity = next((seen for seen in sending.seen if seen.is_parity), None)
    return None if parity is None else segment_format.decode(parity.content).parity_count
