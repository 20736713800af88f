"""From ``payloads`` to ``composed``: every payload becomes messages, or a row with the reason of its refusal.

Spark sorts the payloads by channel, sender and ``seq``, on disk if necessary, and a mapper reads them once, with one
`Composer` for each sender in a channel. (``applyInArrow`` processes one group at a time, but keeps no order within it
and takes time for each.) Memory holds an Arrow batch of payloads, the state of one sender and an Arrow batch of
messages, for any number of payloads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.errors import ConfigurationError, EmptyPayloadError, EncryptionError, FairwayError, MessageTooLargeError
from fairway.options import ReliableChannelOptions
from fairway.pipeline.exchange import BatchMapper, in_tasks
from fairway.pipeline.instants import batches_with_instants
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.outgoing.channel_state import ChannelState
from fairway.pipeline.outgoing.composing import Composed, Composer, Payload
from fairway.pipeline.outgoing.reading import in_batches
from fairway.pipeline.outgoing.tables import OUTGOING_MESSAGES, PAYLOADS, REFUSED
from fairway.pipeline.schema import columns_of, exact_ddl, exact_schema, types_of

_NEEDED: Final = ("channel_id", "sender_id", "seq", "payload")

REASONS: Final = ("unreadable", "no-id", "no-seq", "seq-twice", "empty", "too-large", "not-sealed", "not-usable")

COMPOSED: Final = f"{OUTGOING_MESSAGES}, origin string, size_bytes bigint, reason string, detail string"
"""The result of `composed`: messages and refusals in one table."""
_ARROW_SCHEMA: Final = exact_schema(COMPOSED)

_REASON_OF: Final = (
    (EmptyPayloadError, "empty"),
    (MessageTooLargeError, "too-large"),
    (EncryptionError, "not-sealed"),
)


def composed(
    payloads: DataFrame,
    options: ReliableChannelOptions | None = None,
    *,
    start_ms: int,
    keys: ChannelKeys | None = None,
    states: Mapping[str, ChannelState] | None = None,
    shard: int | None = None,
) -> DataFrame:
    """Return the messages of ``payloads`` (`PAYLOADS`; all but the first four columns may be left out).

    ``start_ms`` is the time of the batch; the same time gives the same messages. ``states`` has the states of channels;
    a channel without one is new. ``shard`` is the network shard of all messages; None leaves it to autosharding.

    The columns are those of `OUTGOING_MESSAGES` and, for refused payloads, ``reason``, ``detail``, ``origin`` and
    ``size_bytes``. `outgoing_messages` and `refused` split the result. Raises `ConfigurationError` for invalid options
    or columns.
    """
    options = options or ReliableChannelOptions()
    if lacking := [name for name in _NEEDED if name not in payloads.columns]:
        raise ConfigurationError(f"the table of payloads has no column {', '.join(lacking)}; it needs {_NEEDED}")
    full = payloads.select(
        *(
            (F.col(name) if name in payloads.columns else F.lit(None)).cast(kind).alias(name)
            for name, kind in types_of(exact_ddl(PAYLOADS)).items()
        )
    )
    same = Window.partitionBy("channel_id", "sender_id", "seq", F.col("fault").isNull())
    digest = F.sha2(F.coalesce("payload", F.lit(b"")), 256)
    compose = composing_mapper(options, start_ms=start_ms, keys=keys, states=states, shard=shard)
    # One shuffle: rows of one channel and sender are in one partition, so also those of one seq.
    in_order = (
        full.repartition("channel_id", "sender_id")
        .withColumn("copy", F.row_number().over(same.orderBy(digest, "origin")))
        .withColumn("differ", F.min(digest).over(same) != F.max(digest).over(same))
        .sortWithinPartitions("channel_id", "sender_id", "seq", "copy")
    )
    return in_tasks(in_order, lambda batches: batches_with_instants(compose(batches), COMPOSED), COMPOSED)


def outgoing_messages(composed: DataFrame) -> DataFrame:
    """Return ``outgoing_messages`` (`OUTGOING_MESSAGES`) of what `composed` made."""
    return composed.where("reason IS NULL").drop("origin", "size_bytes", "reason", "detail")


def refused(composed: DataFrame) -> DataFrame:
    """Return ``refused`` (`REFUSED`) of what `composed` made."""
    return composed.where("reason IS NOT NULL").select(*columns_of(REFUSED))


def composing_mapper(
    options: ReliableChannelOptions,
    *,
    start_ms: int,
    keys: ChannelKeys | None = None,
    states: Mapping[str, ChannelState] | None = None,
    shard: int | None = None,
) -> BatchMapper:
    """Return the function that turns sorted batches of payloads into batches of messages and refusals.

    Rows must be sorted by channel, sender and seq. Rows with ``copy`` above 1, or which ``differ`` from others with
    the same seq, are refused.
    """

    def compose(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = _Composing(options, start_ms, keys, states or {}, shard).rows(batches)
        return (pa.RecordBatch.from_pylist(some, schema=_ARROW_SCHEMA) for some in in_batches(rows))

    return compose


class _Composing:
    """One pass over the payloads of a partition."""

    def __init__(
        self,
        options: ReliableChannelOptions,
        start_ms: int,
        keys: ChannelKeys | None,
        states: Mapping[str, ChannelState],
        shard: int | None,
    ) -> None:
        self._options = options
        self._shard = shard
        self._start_ms = start_ms
        self._keys = keys
        self._states = states
        self._who: tuple[str, str] | None = None
        self._composer: Composer | None = None
        self._number = 0

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
        for batch in batches:
            for index in range(batch.num_rows):
                row = {name: batch.column(name)[index].as_py() for name in batch.schema.names}
                yield from self._of_payload(row)

    def _of_payload(self, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        known = {name: row.get(name) for name in ("channel_id", "sender_id", "seq")}
        refusal = _refusal(row)
        if refusal is None:
            try:
                messages = self._composer_of(row["channel_id"], row["sender_id"]).compose(
                    Payload(
                        seq=row["seq"],
                        data=row["payload"],
                        content_topic=row.get("content_topic"),
                        ephemeral=bool(row.get("ephemeral")),
                        not_before_ms=row.get("not_before_ms"),
                    )
                )
            except FairwayError as error:
                reason = next((name for kind, name in _REASON_OF if isinstance(error, kind)), "not-usable")
                refusal = reason, str(error)
            else:
                yield from (known | _columns(message, self._number) for message in messages)
                self._number += 1
        if refusal is not None:
            size = None if row.get("payload") is None else len(row["payload"])
            reason, detail = refusal
            yield known | {"origin": row.get("origin"), "size_bytes": size, "reason": reason, "detail": detail}

    def _composer_of(self, channel_id: str, sender_id: str) -> Composer:
        if self._composer is None or self._who != (channel_id, sender_id):
            self._composer = None
            self._composer = Composer(
                channel_id,
                sender_id,
                self._options,
                start_ms=self._start_ms,
                keys=self._keys,
                state=self._states.get(channel_id),
                shard=self._shard,
            )
            self._who, self._number = (channel_id, sender_id), 0
        return self._composer


def _refusal(row: Mapping[str, Any]) -> tuple[str, str] | None:
    if row.get("fault"):
        return "unreadable", row["fault"]
    for name in ("channel_id", "sender_id"):
        if not row[name]:
            return "no-id", f"{name} is missing: every payload needs a channel and a sender"
    if row["seq"] is None:
        return "no-seq", "seq is missing: it says where the payload comes among those of its sender in the channel"
    if row.get("differ"):
        return "seq-twice", f"different payloads have seq {row['seq']}: none is sent, for nobody can say which is meant"
    if row.get("copy", 1) > 1:
        return "seq-twice", f"the payload with seq {row['seq']} again"
    if not row["payload"]:
        return "empty", "the payload has no bytes"
    return None


def _columns(composed: Composed, number: int) -> dict[str, Any]:
    return {
        "message_id": composed.message.message_id,
        "payload_id": composed.payload_id,
        "lamport": composed.message.lamport_timestamp,
        "payload_number": number,
        "chunk_index": composed.order,
        "chunks": composed.segment_count,
        "is_parity": composed.is_parity,
        "content_topic": composed.content_topic,
        "pubsub_topic": composed.pubsub_topic,
        "payload": composed.encrypted,
        "version": composed.version,
        "meta": composed.meta,
        "ephemeral": composed.ephemeral,
        "release_ms": composed.release_ms,
    }
