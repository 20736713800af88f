"""To ``quarantine``: messages that cannot be decoded, are forged, or on a wrong topic.

``waku_messages`` has their payloads, by hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from fairway.pipeline.exchange import Bucket, Cut, bucketed
from fairway.pipeline.schema import arrow_schema, columns_of, exact_ddl

QUARANTINE: Final = (
    "message_hash binary, timestamp timestamp, timestamp_ns bigint, content_topic string, sources array<string>,"
    " status string, error string, payload_bytes int"
)
"""The table of messages that no other stage reads."""

_COLUMNS: Final = columns_of(exact_ddl(QUARANTINE))
FORGED_INPUT: Final = ("message_hash", "timestamp_ns", "content_topic", "sources", "message_id", "payload_bytes")
"""The columns of decoded messages that `forged` reads; ``sources`` is optional."""


def quarantine(decoded: DataFrame, *taken: DataFrame) -> DataFrame:
    """Return ``quarantine`` (`QUARANTINE`): the messages whose ``status`` is not ok.

    ``taken`` are ``sds_messages`` and ``repeats`` of the same ``decoded``. Decoded messages in neither table are added
    as ``forged``.
    """
    undecoded = decoded.where("status <> 'ok'").select(*columns_of(QUARANTINE))
    if not taken:
        return undecoded
    known = decoded.where("status = 'ok'").select(*FORGED_INPUT)
    hashes = [
        Cut(frame=frame.select("message_hash"), by=["message_hash"], prepare=lambda rows: {"there": rows})
        for frame in taken
    ]
    rows = Cut(frame=known, by=["message_hash"], prepare=lambda rows: {"decoded": rows})
    return undecoded.unionByName(bucketed([rows, *hashes], _left_out, QUARANTINE))


def forged(decoded: pa.Table) -> pa.Table:
    """Return messages that are forged (`FORGED_INPUT`) as rows of ``quarantine``."""
    columns = {name: decoded[name] for name in _COLUMNS if name in decoded.column_names}
    columns["status"] = pa.repeat("forged", decoded.num_rows)
    columns["error"] = forged_error(decoded["message_id"])
    return pa.table({name: columns[name] for name in _COLUMNS if name in columns})


def forged_error(message_id: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the errors of forged messages, from their ids."""
    return pc.binary_join_element_wise("another message stands under the id ", message_id, "")


def _left_out(bucket: Bucket) -> Iterator[pa.Table]:
    hashes = bucket.table("there", arrow_schema("message_hash binary"))["message_hash"]
    if "decoded" in bucket.tables:
        decoded = bucket.tables["decoded"]
        yield forged(decoded.filter(pc.invert(pc.is_in(decoded["message_hash"], value_set=hashes))))
