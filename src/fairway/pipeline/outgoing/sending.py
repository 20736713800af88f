"""`send`: sends a batch: payloads through all outgoing stages into a folder of tables, and from there through a node.

The tables are complete before the first message is sent, so that a start after a crash sends the rest of the same
messages. The folder is a `RunFolder`; beside its tables it has ``receipts.db``, the messages that were sent
(`ReceiptLedger`). After the first message was sent, the folder accepts no other batch, because that could send the same
payloads again in other messages.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from fairway.errors import ConfigurationError
from fairway.nodes.connecting import connect
from fairway.pipeline.instants import with_instants
from fairway.pipeline.keys import ChannelKeys, digest_of
from fairway.pipeline.location import local_path
from fairway.pipeline.outgoing.channel_state import ChannelState, state_of_store, states_of_run
from fairway.pipeline.outgoing.dispatching import Dispatch, DispatchProgress
from fairway.pipeline.outgoing.options import KIND, SendOptions
from fairway.pipeline.outgoing.outgoing_messages import COMPOSED, composed, outgoing_messages, refused
from fairway.pipeline.outgoing.reading import PayloadSource, write_payloads
from fairway.pipeline.outgoing.scheduled import scheduled
from fairway.pipeline.outgoing.summary import SendSummary, status_without_receipt, summary_of
from fairway.pipeline.outgoing.tables import OUTGOING_RECEIPTS, OUTGOING_TABLES, PAYLOADS
from fairway.pipeline.run.failures import named_failures
from fairway.pipeline.run.folder import RUN, RunFolder, kind_of, read_run
from fairway.pipeline.run.progress import Progress, Steps
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.schema import arrow_schema, exact_schema
from fairway.pipeline.session import SHORT_JOB_BYTES, WRITTEN_TIMES, session_or_own
from fairway.pipeline.sinks.dispatch import DispatchCounts
from fairway.pipeline.sinks.ledger import ReceiptLedger
from fairway.units import NS_PER_MS
from fairway.wire.topics import default_topic

RECEIPTS_FILE: Final = "receipts.db"


def send(
    payloads: str | PathLike[str],
    out: str | PathLike[str],
    *,
    node: str | None,
    options: SendOptions | None = None,
    keys: ChannelKeys | None = None,
    attempts: int = 5,
    longest_wait_s: float | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    planned: Callable[[SendSummary], None] | None = None,
    dispatching: Callable[[DispatchProgress], None] | None = None,
) -> SendSummary:
    """Send the payloads in a file or folder (`PayloadSource`), or continue an earlier attempt; return the summary.

    ``node`` is an address for `fairway.connect`; with None the tables are written, but no message is sent. Each message
    has ``attempts`` attempts before its sender stops. The attempt ends before an epoch beyond ``longest_wait_s``.
    ``planned`` is called with the schedule before the first message is sent. Tables are written in a clone of
    ``spark`` or of the active session, or in a new session. Raises `ConfigurationError` for invalid payloads or options
    or an unusable folder, and `NetworkError` if the node cannot be reached.
    """
    options = options or SendOptions()
    if attempts < 1:
        raise ConfigurationError(f"attempts must be at least 1, not {attempts}")
    if options.after is not None:
        local_path(options.after, "--after")
    source = PayloadSource(
        path=local_path(payloads, "--payloads").absolute(),
        channel_id=options.channel_id,
        sender_id=options.sender_id,
        content_topic=options.content_topic,
        max_bytes=options.channel.segmentation.max_message_size_bytes,
    )
    folder = local_path(out, "--out").absolute()
    described = source.described()
    start_ms = _start_ms(folder, options)
    told = options.as_json(start_ms)
    _refuse_another_batch(folder, described, told, keys)
    with closing(RunFolder.open_for(folder, described, told, keys, tables=OUTGOING_TABLES)) as run:
        TableMaker(run, source, options, start_ms, keys).make(spark, progress)
        files = run.files("scheduled")
        with ReceiptLedger(folder / RECEIPTS_FILE) as ledger:
            if planned is not None:
                planned(summary_of(run, ledger, files, DispatchCounts()))
            outcome = DispatchCounts()
            if node is not None:
                outcome = asyncio.run(
                    _dispatch(node, files, ledger, options, attempts, longest_wait_s, dispatching or (lambda _: None))
                )
            write_receipts(run, files, ledger)
            summary = summary_of(run, ledger, files, outcome)
        if summary.is_settled:
            run.finish({"sent": summary.as_json()})
        return summary


async def _dispatch(
    address: str,
    files: Sequence[Path],
    ledger: ReceiptLedger,
    options: SendOptions,
    attempts: int,
    longest_wait_s: float | None,
    tell: Callable[[DispatchProgress], None],
) -> DispatchCounts:
    async with await connect(address) as node:
        try:
            return await Dispatch(
                files=files,
                node=node,
                ledger=ledger,
                rate_limit=options.rate_limit,
                epoch_ms=options.epoch_ms,
                attempts=attempts,
                longest_wait_s=longest_wait_s,
                tell=tell,
            ).run()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group


def _start_ms(folder: Path, options: SendOptions) -> int:
    if options.start_ms is not None:
        return options.start_ms
    begun = _begun(folder)
    if begun is None:
        return time.time_ns() // NS_PER_MS
    return int(begun["options"]["start_ms"])


def _begun(folder: Path) -> dict[str, Any] | None:
    """Return the description of a batch, None if the folder has none; raise an error for that of another command."""
    if not (folder / RUN).is_file():
        return None
    begun = read_run(folder)
    if (kind := kind_of(begun)) != KIND:
        raise ConfigurationError(f"{folder} holds the tables of 'fairway pipeline {kind}': choose another folder")
    return begun


def _refuse_another_batch(
    folder: Path, described: Sequence[dict[str, Any]], told: dict[str, Any], keys: ChannelKeys | None
) -> None:
    begun = _begun(folder)
    if begun is None or not (folder / RECEIPTS_FILE).is_file():
        return
    changed = [name for name in sorted(told) if begun["options"].get(name) != told[name]]
    changed += ["payloads"] if begun["sources"] != json.loads(json.dumps(described)) else []
    changed += ["keys"] if begun["keys"] != digest_of(keys, begun["salt"]) else []
    if not changed:
        return
    with ReceiptLedger(folder / RECEIPTS_FILE) as ledger:
        if not ledger.may_have_sent():
            ledger.clear()
            return
        raise ConfigurationError(
            f"messages of another batch were sent from {folder} ({', '.join(changed)} differ): what that one carried "
            "would be sent twice. Repeat it with what it was begun with, or give a new batch a folder of its own"
        )


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
_SETTINGS: Final = {
    **WRITTEN_TIMES,
    # A payload may have many megabytes, so the number of rows does not bound the memory of a batch.
    "spark.sql.execution.arrow.maxBytesPerBatch": "8388608",
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
            named_failures(self.run.path),
            session_or_own(spark, "fairway pipeline send", little_java=small, settings=_SETTINGS) as session,
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
    make().write.options(**_PARQUET_OPTIONS).parquet(str(place))
