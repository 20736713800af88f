"""The tables of a batch, one after the other, each from those that are whole; and the receipts, when it was sent."""

from __future__ import annotations

import time
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
from fairway.options import ReliableChannelOptions
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.outgoing.channel_state import ChannelState, state_of_store, states_of_run
from fairway.pipeline.outgoing.composing import default_topic
from fairway.pipeline.outgoing.outgoing_messages import COMPOSED, PAYLOADS, composed, outgoing_messages, refused
from fairway.pipeline.outgoing.reading import PayloadSource, write_payloads
from fairway.pipeline.outgoing.scheduled import Counting, scheduled
from fairway.pipeline.outgoing.summary import WAITING
from fairway.pipeline.outgoing.tables import OUTGOING_TABLES
from fairway.pipeline.run_folder import RunFolder
from fairway.pipeline.run_summary import Progress, RunProgress
from fairway.pipeline.run_tables import RunTables
from fairway.pipeline.session import session_or_own
from fairway.pipeline.sinks.ledger import ReceiptLedger

_WORK: Final = "composed"
"""Messages and refusals together; removed when both have tables of their own."""
_STEPS: Final = ("payloads", _WORK, "refused", "outgoing_messages", "scheduled")
_PARQUET_OPTIONS: Final = {
    # Small row groups: dispatch reads one epoch at a time, and skips those of others.
    "parquet.block.size": "8388608",
    "parquet.page.size.row.check.min": "4",
    "parquet.block.size.row.check.min": "4",
    "compression": "zstd",
}
_SMALL_INPUT_BYTES: Final = 268_435_456
_RECEIPT_BATCH_ROWS: Final = 4_096
_RECEIPTS_SCHEMA: Final = pa.schema(
    [
        ("sender_id", pa.string()),
        ("place", pa.int64()),
        ("channel_id", pa.string()),
        ("seq", pa.int64()),
        ("message_id", pa.string()),
        ("chunk_index", pa.int32()),
        ("message_hash", pa.binary()),
        ("timestamp", pa.int64()),
        ("status", pa.string()),
        ("detail", pa.string()),
        ("attempts", pa.int32()),
        ("first_at_ms", pa.int64()),
        ("settled_at_ms", pa.int64()),
        ("sent_timestamp", pa.int64()),
        ("sent_hash", pa.binary()),
    ]
)
_OF_THE_SCHEDULE: Final = _RECEIPTS_SCHEMA.names[:8]
_OF_THE_LEDGER: Final = _RECEIPTS_SCHEMA.names[9:]


@dataclass(frozen=True, slots=True)
class TableMaker:
    """Makes what is not whole of the tables of one folder."""

    run: RunFolder
    source: PayloadSource
    channel: ReliableChannelOptions
    start_ms: int
    rate_limit: int | None
    epoch_ms: int
    counting: Counting
    after: str | None
    keys: ChannelKeys | None

    def make(self, spark: SparkSession | None, progress: Progress | None) -> None:
        """Write all tables but the receipts; Spark is started only if one of its tables is not there."""
        tell = progress or _nobody_listens
        self._step("payloads", tell, self._write_payloads)
        if all(self.run.is_whole(name) for name in _STEPS if name != _WORK):
            for name in _STEPS[2:]:
                self._step(name, tell, lambda _: None)
            return
        small = sum(file.stat().st_size for file in self.source.files()) < _SMALL_INPUT_BYTES
        with session_or_own(spark, "fairway pipeline send", short_job=small) as session:
            makers: dict[str, Callable[[], DataFrame]] = {
                _WORK: lambda: self._composed(session),
                "refused": lambda: refused(self._table(session, _WORK)),
                "outgoing_messages": lambda: outgoing_messages(self._table(session, _WORK)),
                "scheduled": lambda: self._scheduled(session),
            }
            for name, maker in makers.items():
                done = name == _WORK and self.run.is_whole("refused") and self.run.is_whole("outgoing_messages")
                if not done:
                    self._step(name, tell, partial(_write, maker))
        self.run.drop_work(_WORK)

    def _step(self, name: str, tell: Progress, write: Callable[[Path], None]) -> None:
        number, total = _STEPS.index(name) + 1, len(_STEPS)
        whole = self.run.results.get(name)
        if whole is None:
            tell(RunProgress(step=name, number=number, total=total, result=None))
            began_s = time.monotonic()
            place = self.run.begin_table(name, work=name == _WORK)
            write(place)
            seconds = time.monotonic() - began_s
            result = self.run.finish_table(name, place, seconds=seconds, rows=None, work=name == _WORK)
        tell(RunProgress(step=name, number=number, total=total, result=whole or result, resumed=whole is not None))

    def _write_payloads(self, place: Path) -> None:
        write_payloads(self.source, place)

    def _composed(self, spark: SparkSession) -> DataFrame:
        return composed(
            self._table(spark, "payloads"),
            self.channel,
            start_ms=self.start_ms,
            keys=self.keys,
            states=self._states(),
        )

    def _scheduled(self, spark: SparkSession) -> DataFrame:
        table = scheduled(
            self._table(spark, "outgoing_messages"),
            self.rate_limit,
            epoch_ms=self.epoch_ms,
            start_ms=self.start_ms,
            counting=self.counting,
        )
        return table.sortWithinPartitions("epoch", "sender_id", "place")

    def _table(self, spark: SparkSession, name: str) -> DataFrame:
        schemas = {table.name: table.schema for table in OUTGOING_TABLES} | {_WORK: COMPOSED, "payloads": PAYLOADS}
        return spark.read.schema(schemas[name]).parquet(str(self.run.place_of(name, work=name == _WORK)))

    def _states(self) -> dict[str, ChannelState]:
        """Return where the channels stand that the batch continues; none if it begins new ones."""
        if self.after is None:
            return {}
        path = Path(self.after)
        if path.is_dir():
            return states_of_run(RunTables(path), self._channels(), self.channel, self.start_ms)
        channel_id, sender_id = self.source.channel_id, self.source.sender_id
        if channel_id is None or sender_id is None or self._channels() - {channel_id}:
            raise ConfigurationError(
                f"{path} is the store of one participant in one channel: give both, and only payloads of that channel"
            )
        topic = self.source.content_topic or default_topic(channel_id)
        return {channel_id: state_of_store(path, channel_id, sender_id, topic, self.channel)}

    def _channels(self) -> set[str]:
        dataset = ds.dataset(str(self.run.place_of("payloads")), format="parquet")
        found: set[str | None] = set()
        for batch in dataset.to_batches(columns=["channel_id"]):
            found.update(batch.column("channel_id").unique().to_pylist())
        return {channel_id for channel_id in found if channel_id}


def scheduled_files(run: RunFolder) -> list[Path]:
    """Return the files of the table ``scheduled``, in the order of its rows."""
    return sorted(run.place_of("scheduled").glob("*.parquet"))


def write_receipts(run: RunFolder, files: Sequence[Path], ledger: ReceiptLedger) -> None:
    """Write the table ``receipts`` as the ledger is now, in place of that of an earlier attempt."""
    began_s = time.monotonic()
    written = run.begin_table("receipts")
    written.mkdir(parents=True)
    with pq.ParquetWriter(written / "part-0.parquet", _RECEIPTS_SCHEMA, compression="zstd") as writer:
        for batch in ds.dataset([str(file) for file in files], format="parquet").to_batches(
            columns=_OF_THE_SCHEDULE, batch_size=_RECEIPT_BATCH_ROWS
        ):
            rows = list(_with_receipts(batch.to_pylist(), ledger))
            writer.write_table(pa.Table.from_pylist(rows, schema=_RECEIPTS_SCHEMA))
    run.finish_table("receipts", written, seconds=time.monotonic() - began_s, rows=None, work=False)


def _with_receipts(rows: Sequence[dict[str, Any]], ledger: ReceiptLedger) -> Iterator[dict[str, Any]]:
    for row in rows:
        receipt = ledger.find(row["message_hash"])
        if receipt is None:
            yield {**row, "status": WAITING}
        else:
            told = {name: getattr(receipt, name) for name in _OF_THE_LEDGER}
            yield {**row, "status": receipt.status.value, **told}


def _write(make: Callable[[], DataFrame], place: Path) -> None:
    make().write.options(**_PARQUET_OPTIONS).parquet(str(place))


def _nobody_listens(progress: RunProgress) -> None:
    del progress
