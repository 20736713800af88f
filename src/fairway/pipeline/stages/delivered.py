"""To ``delivered`` and ``incomplete``: the messages for an application, and the incomplete ones.

A message of an application is one SDS message whose content is not a segment, or a reassembled set of segments. Its
message id is the lower-case hex SHA-256 of its payload. Message ids may repeat: "ok" sent twice is delivered twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from fairway.pipeline.codes import starts_of_runs
from fairway.pipeline.exchange import PIECE_BYTES, filtered, mapped, taken
from fairway.pipeline.schema import exact_schema

DELIVERED: Final = (
    "channel_id string, sender_id string, message_id string, lamport bigint, sds_ids array<string>,"
    " timestamp timestamp, timestamp_ns bigint, segments int, recovered boolean, size_bytes bigint, payload binary"
)
"""The table of delivered messages. ``lamport`` is that of the first segment, null for ephemeral messages; ``sds_ids``
are the SDS messages that carried it. ``timestamp_ns`` is that of the last message needed. ``segments`` counts data
segments, 1 for a whole message. ``recovered`` is true if Reed-Solomon computed lost ones."""

INCOMPLETE: Final = (
    "channel_id string, sender_id string, segment_hash binary, first_id string, outcome string, held int,"
    " data_segments int,"
    " first_seen timestamp, first_seen_ns bigint, last_seen timestamp, last_seen_ns bigint"
)
"""The table of sets of segments that give no message. ``first_id`` is the id of the first SDS message of the set, for
``excess`` that of another set of the same payload. ``held`` counts the segments in the archive. ``data_segments`` is
the number needed; null if the archive has only parity that does not state it."""

WHOLE_COLUMNS: Final = ("channel_id", "sender_id", "message_id", "lamport", "timestamp_ns", "content")
"""The columns of ``sds_messages`` for whole messages, beside ``kind`` and ``segment_hash``."""
JOINED_COLUMNS: Final = (
    "outcome",
    "channel_id",
    "sender_id",
    "lamport",
    "sds_ids",
    "last_seen_ns",
    "data_segments",
    "recovered",
    "payload",
)
"""The columns of ``reassembled`` for messages in segments."""

_SCHEMA: Final = exact_schema(DELIVERED)
_INCOMPLETE_SCHEMA: Final = exact_schema(INCOMPLETE)
_HASHED_ROWS: Final = 1_000


def delivered(sds_messages: DataFrame, reassembled: DataFrame) -> DataFrame:
    """Return ``delivered`` (`DELIVERED`), one row for each message that can be read from the archive."""
    whole = sds_messages.where("segment_hash IS NULL AND kind <> 'sync'").select(*WHOLE_COLUMNS)
    joined = reassembled.where("outcome = 'complete'").select(*JOINED_COLUMNS)
    return mapped(whole, whole_messages, DELIVERED).unionAll(mapped(joined, joined_messages, DELIVERED))


def incomplete(reassembled: DataFrame) -> DataFrame:
    """Return ``incomplete`` (`INCOMPLETE`), one row for each set of segments that gives no message."""
    read = [name for name in _INCOMPLETE_SCHEMA.names if name != "first_id"]
    return mapped(reassembled.select(*read, "sds_ids"), incomplete_sets, INCOMPLETE)


def are_whole(sds_messages: pa.Table) -> pa.ChunkedArray:
    """Return for each message whether it is delivered as it is: it has content, which is not a segment."""
    return pc.and_(pc.is_null(sds_messages.column("segment_hash")), pc.not_equal(sds_messages.column("kind"), "sync"))


def whole_messages(messages: pa.Table) -> pa.Table:
    """Return ``delivered`` of whole messages, from their `WHOLE_COLUMNS`."""
    count = messages.num_rows
    ids = messages.column("message_id").combine_chunks()
    columns = {
        **{name: messages.column(name) for name in ("channel_id", "sender_id", "lamport", "timestamp_ns")},
        "sds_ids": pa.ListArray.from_arrays(pa.array(np.arange(count + 1), pa.int32()), ids),
        "segments": pa.array(np.ones(count), pa.int32()),
        "recovered": pa.array(np.zeros(count, np.bool_)),
    }
    return _delivered(columns, messages.column("content"))


def joined_messages(reassembled: pa.Table) -> pa.Table:
    """Return ``delivered`` of the complete reassembled messages, from their `JOINED_COLUMNS`."""
    joined = filtered(reassembled, pc.equal(reassembled.column("outcome"), "complete"))
    columns = {
        **{name: joined.column(name) for name in ("channel_id", "sender_id", "lamport", "sds_ids", "recovered")},
        "timestamp_ns": joined.column("last_seen_ns"),
        "segments": joined.column("data_segments"),
    }
    return _delivered(columns, joined.column("payload"))


def in_order(delivered: pa.Table, *, piece_bytes: int = PIECE_BYTES) -> Iterator[pa.Table]:
    """Yield delivered messages sorted by (channel_id, lamport, sds_ids), ephemeral ones first in their channel.

    The tables have about ``piece_bytes`` of payloads each.
    """
    # An SDS message carries only one message, so the first id is a unique sort key.
    keys = pa.table(
        {
            **{name: delivered.column(name) for name in ("channel_id", "lamport")},
            "first_id": pc.list_element(delivered.column("sds_ids"), 0),
        }
    )
    by_place = [(name, "ascending", "at_start") for name in keys.schema.names]
    order = pc.sort_indices(keys, by_place).to_numpy().astype(np.int64)
    behind = np.cumsum(delivered.column("size_bytes").fill_null(0).to_numpy()[order])
    for start, end in pairwise([*starts_of_runs(behind // piece_bytes).tolist(), len(order)]):
        yield taken(delivered, order[start:end])


def incomplete_sets(reassembled: pa.Table) -> pa.Table:
    """Return ``incomplete`` of reassembled messages."""
    sets = reassembled.filter(pc.not_equal(reassembled.column("outcome"), "complete"))
    return sets.append_column("first_id", pc.list_element(sets["sds_ids"], 0)).select(_INCOMPLETE_SCHEMA.names)


def _delivered(columns: dict[str, pa.ChunkedArray], payloads: pa.ChunkedArray) -> pa.Table:
    # In pieces, because each payload is copied.
    digests = (
        None if payload is None else hashlib.sha256(payload).hexdigest()
        for chunk in payloads.chunks
        for start in range(0, len(chunk), _HASHED_ROWS)
        for payload in chunk.slice(start, _HASHED_ROWS).to_pylist()
    )
    columns |= {
        "message_id": pa.array(digests, pa.string()),
        "size_bytes": pc.binary_length(payloads).cast(pa.int64()),
        "payload": payloads,
    }
    return pa.table(columns).select(_SCHEMA.names).cast(_SCHEMA)
