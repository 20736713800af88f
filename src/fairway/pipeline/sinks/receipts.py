"""`read_receipts`: the receipts of a sink as a table, one row for each message."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from fairway.errors import ConfigurationError
from fairway.pipeline.exchange import in_parts
from fairway.pipeline.instants import batches_with_instants
from fairway.pipeline.location import local_path
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.sinks.ledger import DispatchReceipt, ReceiptLedger

RECEIPTS: Final = (
    "message_hash binary, pubsub_topic string, content_topic string, timestamp timestamp, timestamp_ns bigint,"
    " status string, detail string, attempts int, first_at timestamp, first_at_ms bigint, settled_at timestamp,"
    " settled_at_ms bigint, sent_timestamp timestamp, sent_timestamp_ns bigint, sent_hash binary"
)
"""The table of receipts. ``status`` is a `ReceiptStatus`, ``timestamp_ns`` the timestamp of the message.
``sent_timestamp`` and ``sent_hash`` are those of a message that was sent with a new timestamp, else null."""

_ARROW_SCHEMA: Final = exact_schema(RECEIPTS)
_PART_RECEIPTS: Final = 50_000
_BATCH_RECEIPTS: Final = 5_000


def read_receipts(spark: SparkSession, path: str | PathLike[str]) -> DataFrame:
    """Return the receipts that a file has now."""
    file = local_path(path, "the file of receipts").absolute()
    absolute = str(file)
    if not file.is_file():
        raise ConfigurationError(f"{absolute}: there is no such file; give the option 'receipts' of the sink")
    with ReceiptLedger(absolute) as ledger:
        last = ledger.last_number()

    def read(after: int) -> Iterator[pa.RecordBatch]:
        with ReceiptLedger(absolute) as ledger:
            found = receipt_batches(ledger, after, min(last, after + _PART_RECEIPTS))
            yield from batches_with_instants(found, RECEIPTS)

    return in_parts(spark, range(0, max(1, last), _PART_RECEIPTS), read, RECEIPTS)


def receipt_batches(ledger: ReceiptLedger, after: int, through: int) -> Iterator[pa.RecordBatch]:
    """Yield the receipts with numbers above ``after`` up to ``through`` as batches of `RECEIPTS`, without instants."""
    for start in range(after, through, _BATCH_RECEIPTS):
        found = list(ledger.read(start, min(through, start + _BATCH_RECEIPTS)))
        yield pa.RecordBatch.from_pylist([_row(receipt) for receipt in found], schema=_ARROW_SCHEMA)


def _row(receipt: DispatchReceipt) -> dict[str, object]:
    return {**{name: getattr(receipt, name) for name in _ARROW_SCHEMA.names}, "status": receipt.status.value}
