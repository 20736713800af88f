"""The Spark sink ``waku``: each row of a table or a stream becomes a message that a Waku node sends, once.

Name: ``waku``

Columns: ``content_topic``, ``payload`` and ``timestamp_ns`` are required; ``pubsub_topic``, ``version``, ``meta``,
``ephemeral`` and ``message_hash`` are optional; others are ignored. `message_of` describes them. A row is not sent
before its ``not_before_ms`` (milliseconds since the Unix epoch), nor are the rows after it. An ephemeral message is
tried once. It is dropped after ``not_after_ms``, or if ``dropped`` has a reason.

Options (their names in any case):

- ``node``: address of the node, as `fairway.connect` takes it.
- ``receipts``: a SQLite file, created if it is missing, with the receipts of sent messages. All tasks need the same
  file: if they run on several machines, write from one of them (``coalesce(1)``).
- ``attempts``: number of attempts after which a message has failed (default 3).
- ``failOnError``: whether a task fails if messages fail (default), so that Spark retries them.
- ``maxWaitMs``: longest wait for the time of a row (default 3,600,000); another run sends later rows.
- ``restampAfterMs``: age at which an unsent message gets the present time as its timestamp, because relays and stores
  reject old timestamps (default never). Both are milliseconds, or ISO text such as ``PT1H``.
- ``cluster``, ``shards``: cluster and number of shards for rows without a pubsub topic (default 1 and 8, The Waku
  Network).

Each partition sends its rows in order, one after the other; partitions run in parallel. Put each sender in one
partition to keep the order of its messages. A repeated job sends only unsettled messages. Speculative execution
(``spark.speculation``) must be off.

Sent messages cannot be recalled: the sink appends, and rejects the mode ``overwrite``, or ``complete`` for a stream.

`read_receipts` returns the receipts as a table.

Example::

    register(spark)
    options = {"node": "/ip4/127.0.0.1/tcp/60000", "receipts": "sent.db"}
    table.write.format("waku").options(**options).mode("append").save()
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from fairway.errors import ConfigurationError, NetworkError
from fairway.nodes.connecting import connect
from fairway.pipeline.location import local_path
from fairway.pipeline.sinks.dispatch import REQUIRED_COLUMNS, DispatchCounts, Dispatcher
from fairway.pipeline.sinks.ledger import ReceiptLedger
from fairway.pipeline.times import duration_ms
from fairway.pipeline.versions import OneVersion
from fairway.storage.lip76 import Shards
from fairway.units import MS_PER_S

_LOG: Final = logging.getLogger(__name__)
_NAMES: Final = ("node", "receipts", "attempts", "failOnError", "maxWaitMs", "restampAfterMs", "cluster", "shards")
_LONGEST_WAIT_MS: Final = "3600000"
_OF_SPARK: Final = frozenset({"path", "checkpointlocation"})
"""Options that Spark adds to those of the user."""


@dataclass(frozen=True)
class TaskOutcome(WriterCommitMessage):
    """The result of a task, for the driver."""

    outcome: DispatchCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of the sink; the docstring of the module describes each."""

    node: str
    receipts: str
    attempts: int
    fail_on_error: bool
    longest_wait_s: float
    restamp_after_ms: int | None
    shards: Shards

    @classmethod
    def parse(cls, options: Mapping[str, str], columns: Collection[str]) -> SinkOptions:
        """Return the options, or raise `ConfigurationError`, also for a table that lacks a column."""
        given = {name.lower(): value for name, value in options.items()}
        if unknown := given.keys() - {name.lower() for name in _NAMES} - _OF_SPARK:
            raise ConfigurationError(
                f"the sink 'waku' has no option {', '.join(sorted(unknown))}; it has {', '.join(_NAMES)}"
            )
        if lacking := [name for name in REQUIRED_COLUMNS if name not in columns]:
            raise ConfigurationError(f"the table has no column {', '.join(lacking)}, which the sink 'waku' needs")
        node = given.get("node") or given.get("path")
        if not node:
            raise ConfigurationError("the sink 'waku' needs a node: .option('node', '/ip4/127.0.0.1/tcp/60000')")
        if not given.get("receipts"):
            raise ConfigurationError(
                "the sink 'waku' needs a file that remembers what was sent: .option('receipts', 'receipts.db')"
            )
        try:
            attempts, cluster_id, shard_count = (
                int(given.get(name, default)) for name, default in (("attempts", 3), ("cluster", 1), ("shards", 8))
            )
        except ValueError as error:
            raise ConfigurationError(f"attempts, cluster and shards are whole numbers: {error}") from error
        longest_wait_ms = duration_ms(given.get("maxwaitms", _LONGEST_WAIT_MS), "option maxWaitMs")
        restamp_after = given.get("restampafterms")
        if attempts < 1:
            raise ConfigurationError(f"attempts must be at least 1, not {attempts}")
        if (fail_on_error := given.get("failonerror", "true").lower()) not in {"true", "false"}:
            raise ConfigurationError(f"failOnError must be true or false, not {fail_on_error!r}")
        return cls(
            node=node,
            receipts=str(local_path(given["receipts"], "option receipts").absolute()),
            attempts=attempts,
            fail_on_error=fail_on_error == "true",
            longest_wait_s=longest_wait_ms / MS_PER_S,
            restamp_after_ms=None if restamp_after is None else duration_ms(restamp_after, "option restampAfterMs"),
            shards=Shards(cluster_id=cluster_id, shard_count=shard_count),
        )


class _Sending(OneVersion):
    """The common part of both writers. It is pickled to the tasks, which share the name of the run."""

    def __init__(self, options: Mapping[str, str], columns: Collection[str], *, overwrite: bool = False) -> None:
        if overwrite:
            raise ConfigurationError(
                "the sink 'waku' cannot overwrite what is on a network: use .mode('append'), for a stream "
                ".outputMode('append'); what the receipts have as sent is not sent again"
            )
        self._options = SinkOptions.parse(options, columns)
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutcome:
        """Send the rows of one task; raise `NetworkError` if messages failed, unless ``failOnError`` is off."""
        context = TaskContext.get()
        outcome = asyncio.run(self._send(iterator, 0 if context is None else context.partitionId()))
        if outcome.failed and self._options.fail_on_error:
            raise NetworkError(
                f"{outcome.failed} of {outcome.rows} messages were not sent; {self._options.receipts} says which "
                "and why, and running again sends only those"
            )
        return TaskOutcome(outcome)

    async def _send(self, batches: Iterator[pa.RecordBatch], task: int) -> DispatchCounts:
        options = self._options
        with ReceiptLedger(options.receipts) as ledger:
            async with await connect(options.node) as node:
                dispatcher = Dispatcher(
                    node=node,
                    ledger=ledger,
                    run=self._run,
                    task=task,
                    shards=options.shards,
                    attempts=options.attempts,
                    longest_wait_s=options.longest_wait_s,
                    restamp_after_ms=options.restamp_after_ms,
                )
                return await dispatcher.send_all(_rows(batches))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: ARG002, N803 - Spark's
        """Log the results of the rows; the tasks have written the receipts."""
        total = sum((message.outcome for message in messages if isinstance(message, TaskOutcome)), DispatchCounts())
        _LOG.info(
            "%d rows: %d sent, %d sent before, %d refused, %d failed, %d left for later, %d ephemeral ones dropped",
            total.rows,
            total.sent,
            total.found,
            total.refused,
            total.failed,
            total.later,
            total.dropped,
        )

    abort = commit
    """Log the results so far: sent messages cannot be recalled, and are not sent again."""


class WakuWriter(_Sending, DataSourceArrowWriter):
    """Sends a table."""


class WakuStreamWriter(_Sending, DataSourceStreamArrowWriter):
    """Sends a stream; a repeated micro-batch sends only unsettled messages."""


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Mapping[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()
