"""`TableMaker`: writes the tables of a batch, each from the complete ones before it; `write_receipts` the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from fairway.errors import ConfigurationError
from fairway.pipeline.instants import with_instants
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.location import local_path
from fairway.pipeline.outgoing.channel_state import ChannelState, state_of_store, states_of_run
from fairway.pipeline.outgoing.options import SendOptions
from fairway.pipeline.outgoing.outgoing_messages import COMPOSED, composed, outgoing_messages, refused
from fairway.pipeline.outgoing.reading import PayloadSource, write_payloads
from fairway.pipeline.outgoing.scheduled import scheduled
from fairway.pipeline.outgoing.summary import status_without_receipt
from fairway.pipeline.outgoing.tables import OUTGOING_RECEIPTS, OUTGOING_TABLES, PAYLOADS
from fairway.pipeline.run.failures import named_failures
from fairway.pipeline.run.folder import RunFolder
from fairway.pipeline.run.progress import Progress, Steps
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.schema import arrow_schema, exact_schema
from fairway.pipeline.session import SHORT_JOB_BYTES, WRITTEN_TIMES, lent_settings, session_or_own
from fairway.pipeline.sinks.ledger import ReceiptLedger
from fairway.wire.topics import default_topic

_WORK: Final = "composed"
"""Messages and refusals together; removed when both have tables of their own."""
_OF_SPARK: Final = ("refused", "outgoing_messages", "scheduled")
_STEPS: Final = ("payloads", _WORK, *_OF_SPARK)
_PARQUET_OPTIONS: Final = {
    # Small row groups: dispatch reads one epoch at a time, and skips those of others.
    "parquet.block.size": "8388608",
    "parquet.page.size.row.check.min": "4",
    "parquet.block.size.row.check.min": "4",
    "compression": "zstd",
}
_RECEIPT_BATCH_ROWS: Final = 4_096
_RECEIPTS_SCHEMA: Final = exact_schema(OUTGOING_RECEIPTS)
_TABLE_SCHEMA: Final = arrow_schema(OUTGOING_RECEIPTS)
_OF_THE_SCHEDULE: Final = _RECEIPTS_SCHEMA.names[:8]
_OF_THE_LEDGER: Final = _RECEIPTS_SCHEMA.names[9:]


@dataclass(frozen=True, slots=True)
class TableMaker:
    """Writes the tables of one folder that are not complete."""

    run: RunFolder
    source: PayloadSource
    options: SendOptions
    start_ms: int
    keys: ChannelKeys | None

    def make(self, spark: SparkSession | None, progress: Progress | None) -> None:
        """Write all tables except the receipts; Spark is started only if one of its tables is missing."""
        steps = Steps(folder=self.run, names=_STEPS, progress=progress)
        steps.take("payloads", partial(write_payloads, self.source))
        if all(map(self.run.is_whole, _OF_SPARK)):
            for name in _OF_SPARK:
                steps.keep(name)
            return
        small = sum(file.stat().st_size for file in self.source.files()) < SHORT_JOB_BYTES
        with (
            session_or_own(spark, "fairway pipeline send", little_java=small) as session,
            named_failures(self.run.path),
        ):
            self._make_with(session, steps)
        self.run.drop_work(_WORK)

    def _make_with(self, spark: SparkSession, steps: Steps) -> None:
        makers: dict[str, Callable[[], DataFrame]] = {
            _WORK: lambda: self._composed(spark),
            "refused": lambda: refused(self._table(spark, _WORK)),
            "outgoing_messages": lambda: outgoing_messages(self._table(spark, _WORK)),
            "scheduled": lambda: self._scheduled(spark),
        }
        for name, maker in makers.items():
            done = name == _WORK and self.run.is_whole("refused") and self.run.is_whole("outgoing_messages")
            if not done:
                steps.take(name, partial(_write, maker), work=name == _WORK)

    def _composed(self, spark: SparkSession) -> DataFrame:
        return composed(
            self._table(spark, "payloads"),
            self.options.channel,
            start_ms=self.start_ms,
            keys=self.keys,
            states=self._states(),
            shard=self.options.shard,
        )

    def _scheduled(self, spark: SparkSession) -> DataFrame:
        table = scheduled(
            self._table(spark, "outgoing_messages"),
            self.options.rate_limit,
            epoch_ms=self.options.epoch_ms,
            start_ms=self.start_ms,
            counting=self.options.counting,
        )
        return table.sortWithinPartitions("epoch", "sender_id", "place")

    def _table(self, spark: SparkSession, name: str) -> DataFrame:
        schemas = {table.name: table.schema for table in OUTGOING_TABLES} | {_WORK: COMPOSED, "payloads": PAYLOADS}
        files = [str(file) for file in self.run.files(name)]
        if not files:
            return spark.createDataFrame([], schemas[name])
        return spark.read.schema(schemas[name]).parquet(*files)

    def _states(self) -> dict[str, ChannelState]:
        """Return the states of the channels that the batch continues; none for new channels."""
        if self.options.after is None:
            return {}
        path = local_path(self.options.after, "--after")
        if path.is_dir():
            return states_of_run(RunTables(path), self._channels(), self.options.channel, self.start_ms)
        channel_id, sender_id = self.source.channel_id, self.source.sender_id
        if channel_id is None or sender_id is None or self._channels() - {channel_id}:
            raise ConfigurationError(
                f"{path} is the store of one participant in one channel: give both, and only payloads of that channel"
            )
        topic = self.source.content_topic or default_topic(channel_id)
        return {channel_id: state_of_store(path, channel_id, sender_id, topic, self.options.channel)}

    def _channels(self) -> set[str]:
        dataset = ds.dataset([str(file) for file in self.run.files("payloads")], format="parquet")
        found: set[str | None] = set()
        for batch in dataset.to_batches(columns=["channel_id"]):
            found.update(batch.column("channel_id").unique().to_pylist())
        return {channel_id for channel_id in found if channel_id}


def scheduled_files(run: RunFolder) -> list[Path]:
    """Return the files of the table ``scheduled``, in the order of its rows."""
    return run.files("scheduled")


def write_receipts(run: RunFolder, files: Sequence[Path], ledger: ReceiptLedger) -> None:
    """Write the table ``receipts`` from the ledger; it replaces that of an earlier attempt."""
    run.write_table("receipts", partial(_write_receipts, files, ledger))


def _write_receipts(files: Sequence[Path], ledger: ReceiptLedger, place: Path) -> None:
    place.mkdir(parents=True)
    with pq.ParquetWriter(place / "part-0.parquet", _TABLE_SCHEMA, compression="zstd") as writer:
        for batch in ds.dataset([str(file) for file in files], format="parquet").to_batches(
            columns=[*_OF_THE_SCHEDULE, "dropped"], batch_size=_RECEIPT_BATCH_ROWS
        ):
            rows = list(_with_receipts(batch.to_pylist(), ledger))
            writer.write_table(with_instants(pa.Table.from_pylist(rows, schema=_RECEIPTS_SCHEMA), _TABLE_SCHEMA))


def _with_receipts(rows: Sequence[dict[str, Any]], ledger: ReceiptLedger) -> Iterator[dict[str, Any]]:
    for row in rows:
        receipt = ledger.find(row["message_hash"])
        if receipt is None:
            yield {**row, "status": status_without_receipt(row), "detail": row["dropped"]}
        else:
            told = {name: getattr(receipt, name) for name in _OF_THE_LEDGER}
            yield {**row, "status": receipt.status.value, **told}


def _write(make: Callable[[], DataFrame], place: Path) -> None:
    frame = make()
    with lent_settings(frame.sparkSession, WRITTEN_TIMES):
        frame.write.options(**_PARQUET_OPTIONS).parquet(str(place))
