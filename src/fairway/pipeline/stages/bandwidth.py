"""From ``sds_messages`` and ``repeats`` to ``bandwidth``: the bytes of each channel, by their purpose.

Every byte of the payload of every decodable WakuMessage is counted once, so that the parts add up to the whole:

- ``retransmission``: the whole message, sent again by its author or as a repair by another participant;
- ``other-shard``: the whole message, sent on a further shard at the same time;
- ``sync``: the whole sync message;
- of other messages, which carry content for the first time: ``content``, causal ``history``, ``bloom`` filter,
  ``repair`` requests, and ``envelope`` for the rest: ids, Lamport timestamp, tags, and the overhead of the cipher.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from fairway.pipeline.exchange import Cut, bucketed
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.sums import as_numbers, grouped, ones

BANDWIDTH: Final = "channel_id string, part string, bytes bigint, messages bigint"
"""The table of bandwidth; ``messages`` counts the WakuMessages that have the part."""

_SCHEMA: Final = exact_schema(BANDWIDTH)
_MEASURED: Final = ("content", "history", "bloom", "repair")
"""Parts with a column of sizes in ``sds_messages``, such as ``content_bytes``."""
BANDWIDTH_INPUT: Final = ("channel_id", "kind", "payload_bytes", *(f"{part}_bytes" for part in _MEASURED))
"""The columns of ``sds_messages`` that are read."""
REPEATED_INPUT: Final = ("channel_id", "reason", "payload_bytes")
"""The columns of ``repeats`` that are read."""


def bytes_by_part(sds_messages: pa.Table) -> pa.Table:
    """Return ``bandwidth`` of some rows of ``sds_messages``."""
    is_sync = pc.equal(sds_messages.column("kind"), "sync")
    is_body = pc.invert(is_sync)
    whole = sds_messages.column("payload_bytes").cast(pa.int64())
    measured = {part: sds_messages.column(f"{part}_bytes").cast(pa.int64()) for part in _MEASURED}
    # The computed size of an entry in an unusual encoding can be too large; the envelope is then smaller by the same
    # amount.
    envelope = whole
    for size in measured.values():
        envelope = pc.subtract(envelope, size)
    shares = {part: (is_body, size) for part, size in measured.items()}
    shares |= {"sync": (is_sync, whole), "envelope": (is_body, envelope)}
    columns = {"channel_id": sds_messages.column("channel_id")}
    for part, (condition, size) in shares.items():
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
        for part in shares
    ]
    parts = pa.concat_tables(rows)
    return parts.filter(pc.greater(parts.column("messages"), 0))


def repeated_bytes(repeats: pa.Table) -> pa.Table:
    """Return ``bandwidth`` of some rows of ``repeats``; the reason of each is its part."""
    counted = repeats.select(["channel_id", "reason", "payload_bytes"]).append_column("messages", ones(repeats))
    figures = {"payload_bytes": ("payload_bytes", "sum"), "messages": ("messages", "sum")}
    return grouped(counted, ["channel_id", "reason"], figures).rename_columns(_SCHEMA.names).cast(_SCHEMA)


def added_bytes(parts: pa.Table) -> pa.Table:
    """Return ``bandwidth`` of the parts of many channels, any number of rows for each."""
    figures = {name: (name, "sum") for name in ("bytes", "messages")}
    return grouped(parts, ["channel_id", "part"], figures)


def bandwidth(sds_messages: DataFrame, repeats: DataFrame) -> DataFrame:
    """Return ``bandwidth`` (`BANDWIDTH`), one row for each channel and part that occurs."""
    parts = [
        Cut(
            frame=sds_messages.select(*BANDWIDTH_INPUT),
            by=["channel_id"],
            prepare=lambda table: {"parts": bytes_by_part(table)},
        ),
        Cut(
            frame=repeats.select(*REPEATED_INPUT),
            by=["channel_id"],
            prepare=lambda table: {"parts": repeated_bytes(table)},
        ),
    ]
    return bucketed(parts, lambda bucket: [added_bytes(bucket.tables["parts"])], BANDWIDTH)
