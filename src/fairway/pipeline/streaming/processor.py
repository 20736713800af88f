"""The operator of the stream: Spark's ``transformWithState``, with one `ChannelCore` for each channel.

Each call to Spark's state is a round trip over a socket. So the processor reads and writes a channel's summary once in
a micro-batch, reads its rows in one pass and only if the micro-batch has segments, and writes each changed row once.
Spark drops repeated SDS messages before, without Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from fairway.pipeline.instants import frame_with_instants
from fairway.pipeline.schema import columns_of, exact_ddl
from fairway.pipeline.streaming.channel_core import EMITTED, ChannelCore, Row, StreamedMessage
from fairway.pipeline.versions import OneVersion
from fairway.storage.records import decode_row, encode

_EXACT: Final = exact_ddl(EMITTED)
_Emitted: Final = SparkRow(*columns_of(_EXACT))


def emitted(decoded: DataFrame) -> DataFrame:
    """Return the rows (`EMITTED`) of the cores of all channels for a stream of ``decoded``.

    The input may repeat SDS messages: the first copy counts.
    """
    cited = F.transform("causal_history", lambda entry: entry["message_id"])
    arrivals = (
        decoded.where("status = 'ok'")
        .withColumn("cited", cited)
        .select("channel_id", *StreamedMessage._fields)
        .dropDuplicates(["channel_id", "message_id"])
    )
    # No timers: with timers in processing time, a query with ``availableNow`` never ends.
    rows = arrivals.groupBy("channel_id").transformWithState(ChannelProcessor(), _EXACT, "Append", "None")
    return frame_with_instants(rows, EMITTED)


class ChannelProcessor(OneVersion, StatefulProcessor):
    """Restores a channel's core from Spark's state and stores its changes."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: one summary, and rows by key."""
        self._summary = handle.getValueState("summary", "row binary")
        self._rows = handle.getMapState("rows", "key string", "row binary")

    def handleInputRows(  # noqa: N802 - as Spark calls it
        self,
        key: Any,
        rows: Iterator[SparkRow],
        timerValues: Any,  # noqa: ARG002, N803 - as Spark calls it, by name
    ) -> Iterator[SparkRow]:
        """Process the rows of a micro-batch for one channel."""
        told = self._summary.get()
        core = ChannelCore(key[0], None if told is None else decode_row(bytes(told[0])), self._load)
        for row in core.take(map(_arrival, rows)):
            yield _Emitted(*row)
        changes = core.changes()
        for name, value in changes.rows.items():
            if value is not None:
                self._rows.updateValue((name,), (encode(value),))
            elif self._rows.containsKey((name,)):
                self._rows.removeKey((name,))
        self._summary.update((encode(changes.summary),))

    def close(self) -> None:
        """Do nothing: Spark owns the state."""

    def _load(self) -> Iterable[tuple[str, Row]]:
        return [(key[0], decode_row(bytes(value[0]))) for key, value in self._rows.iterator()]


def _arrival(row: SparkRow) -> StreamedMessage:
    content, mark = row.content, row.segment_hash
    return StreamedMessage(
        row.message_id,
        row.sender_id,
        row.kind,
        row.lamport,
        row.timestamp_ns,
        row.profile,
        None if content is None else bytes(content),
        None if mark is None else bytes(mark),
        row.is_parity,
        tuple(row.cited or ()),
    )
