"""How large the log of each channel is: what a worker would have to hold to order all of it at once."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.stages.sums import grouped, ones

CHANNEL_SIZES: Final = "channel_id string, messages bigint, log_bytes bigint"
"""A channel that has content messages, how many, and the size of their ids and citations."""

SIZES_INPUT: Final = ("channel_id", "kind", "message_id", "history_bytes")
"""The columns of ``unique_messages`` that are read."""

ROW_BYTES: Final = 160
"""Size of a message without its id and its causal history: hashes, times and the sender id."""


def channel_sizes(unique_messages: pa.Table) -> pa.Table:
    """Return the sizes (`CHANNEL_SIZES`) of the logs that some messages make."""
    content = unique_messages.filter(pc.equal(unique_messages["kind"], "content")).select(SIZES_INPUT)
    ids = pc.binary_length(content["message_id"]).cast(pa.int64())
    cited = pc.fill_null(content["history_bytes"].cast(pa.int64()), 0)
    return added_channel_sizes(
        pa.table(
            {
                "channel_id": content["channel_id"],
                "messages": ones(content),
                "log_bytes": pc.add(pc.add(ids, cited), ROW_BYTES),
            },
            schema=arrow_schema(CHANNEL_SIZES),
        )
    )


def added_channel_sizes(sizes: pa.Table) -> pa.Table:
    """Return one row for each channel, of any number of rows for each."""
    return grouped(sizes, ["channel_id"], {name: (name, "sum") for name in ("messages", "log_bytes")})
