"""From ``sds_messages`` to ``bandwidth``: the bytes of each channel, by their purpose.

Every byte of the payload of every decodable WakuMessage is counted once, so that the parts add up to the whole:

- ``retransmission``: all of a message that was sent again, by its author or as a repair by somebody else;
- ``sync``: all of a sync message;
- of the rest, which carries content for the first time: ``content``, causal ``history``, ``bloom`` filter, ``repair``
  requests, and ``envelope`` for what remains: ids, Lamport timestamp, tags, and what the cipher added.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from fairway.pipeline.exchange import Cut, bucketed
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.sums import as_numbers, grouped

PARTS: Final = ("content", "history", "bloom", "sync", "repair", "retransmission", "envelope")
"""What ``part`` may be."""

BANDWIDTH: Final = "channel_id string, part string, bytes bigint, messages bigint"
"""The table of bandwidth; ``messages`` counts the WakuMessages that have the part."""

_SCHEMA: Final = exact_schema(BANDWIDTH)
_MEASURED: Final = ("content", "history", "bloom", "repair")
"""Parts whose sizes a message tells, in columns such as ``content_bytes``."""
BANDWIDTH_INPUT: Final = ("channel_id", "kind", "sighting", "payload_bytes", *(f"{part}_bytes" for part in _MEASURED))
"""The columns of ``sds_messages`` that are read."""


def bytes_by_part(sds_messages: pa.Table) -> pa.Table:
    """Return ``bandwidth`` of some rows of ``sds_messages``."""
    again = pc.greater(sds_messages.column("sighting"), 1)
    is_sync = pc.equal(sds_messages.column("kind"), "sync")
    sync, first = pc.and_not(is_sync, again), pc.invert(pc.or_(is_sync, again))
    whole = sds_messages.column("payload_bytes").cast(pa.int64())
    measured = {part: sds_messages.column(f"{part}_bytes").cast(pa.int64()) for part in _MEASURED}
    # The computed size of an entry in an unusual encoding can be too large; then the envelope is smaller by as much.
    envelope = whole
    for size in measured.values():
        envelope = pc.subtract(envelope, size)
    shares = {part: (first, size) for part, size in measured.items()}
    shares |= {"sync": (sync, whole), "retransmission": (again, whole), "envelope": (first, envelope)}
    columns = {"channel_id": sds_messages.column("channel_id")}
    for part in PARTS:
        condition, size = shares[part]
        columns[part] = pc.fill_null(pc.if_else(condition, size, 0), 0)
        columns[f"{part} messages"] = as_numbers(pc.not_equal(columns[part], 0))
    sums = grouped(pa.table(columns), ["channel_id"], {name: (name, "sum") for name in columns if name != "channel_id"})
    rows = [
        pa.table(
            {
                "channel_id": sums.column("channel_id"),
                "part": pa.repeat(part, sums.num_rows),
                "bytes": sums.column(part),
                "messages": sums.column(f"{part} messages"),
            },
            schema=_SCHEMA,
        )
        for part in PARTS
    ]
    return occurring(pa.concat_tables(rows))


def added_bytes(parts: pa.Table) -> pa.Table:
    """Return ``bandwidth`` of the parts of many channels, any number of rows for each."""
    figures = {name: (name, "sum") for name in ("bytes", "messages")}
    return grouped(parts, ["channel_id", "part"], figures)


def occurring(parts: pa.Table) -> pa.Table:
    """Return the parts that some message has."""
    return parts.filter(pc.greater(parts.column("messages"), 0))


def bandwidth(sds_messages: DataFrame) -> DataFrame:
    """Return ``bandwidth`` (`BANDWIDTH`) of ``sds_messages``, one row for each channel and part that occurs."""
    parts = Cut(
        frame=sds_messages.select(*BANDWIDTH_INPUT),
        by=["channel_id"],
        prepare=lambda table: {"parts": bytes_by_part(table)},
    )
    return bucketed([parts], lambda bucket: [added_bytes(bucket.tables["parts"])], BANDWIDTH)
