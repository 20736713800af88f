"""From ``waku_messages`` to ``decoded``: decrypts, decodes, and reads the segment header, in one pass.

Every input row gives one output row: a message that cannot be decoded has another ``status`` than ``ok``, and ``error``
says why. An error in a mapper would end the job, so that any participant could stop a run with a bad message. The rows
with status ok become ``sds_messages``, the others ``quarantine``.

Bloom filters (18 kB each) are left out: the stage that needs them reads ``waku_messages`` again. ``content`` is the
content of the SDS message, for a segment the whole encoded segment. Its header has columns of its own, so that later
stages need not shuffle payloads to find complete messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.options import Profile
from fairway.pipeline.channel_topics import ChannelTopics
from fairway.pipeline.exchange import BatchMapper, in_tasks
from fairway.pipeline.instants import batches_with_instants
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.stages.decoding import INPUT, BatchDecoder, check_columns, joined
from fairway.pipeline.stages.proof_columns import PROOF
from fairway.protocol.encryption.hook import Encryption

_ENTRIES: Final = "array<struct<message_id: string, retrieval_hint: binary, sender_id: string>>"
CARRIER: Final = (
    "message_hash binary, timestamp timestamp, timestamp_ns bigint, pubsub_topic string, content_topic string,"
    " rln_epoch bigint, nullifier binary, share_x binary"
)
"""Columns of the WakuMessage that carried an SDS message; the last three are of its RLN proof, which is not
verified."""
READ: Final = (
    "payload_bytes int, profile string, kind string, sender_id string, message_id string, channel_id string,"
    f" lamport bigint, causal_history {_ENTRIES}, repair_request {_ENTRIES}, history_bytes int, repair_bytes int,"
    " bloom_bytes int, content_bytes int,"
    " segment_hash binary, segment_index int, is_parity boolean, data_segments int, parity_segments int"
)
"""Columns of the decoded SDS message, without its content."""
CONTENT: Final = "content binary"

DECODED: Final = f"{CARRIER}, sources array<string>, status string, error string, {READ}, {CONTENT}"
"""The table of decoded messages, one row for each row of ``waku_messages``. Columns from ``kind`` on are null unless
``status`` is ``ok``. Columns of the segment header are also null if the content is not a segment."""


def decoded(
    waku_messages: DataFrame,
    profile: Profile | None = None,
    *,
    encryption: Encryption | None = None,
    keys: ChannelKeys | None = None,
    channel_topics: ChannelTopics | None = None,
) -> DataFrame:
    """Return ``decoded`` (`DECODED`), one row for each of ``waku_messages``, undecodable ones included.

    ``status`` (`Status`) is the result, and ``error`` its cause. The input needs the columns ``message_hash``,
    ``content_topic``, ``payload``, ``timestamp_ns`` and, without a ``profile``, ``meta``. ``pubsub_topic`` is optional.

    Without a ``profile``, the ``meta`` of each message determines it. ``encryption`` decrypts all messages, or ``keys``
    those of their channels; both must be picklable for the executors. A message of a channel in ``channel_topics`` on
    another content topic is ``wrong-topic``. A message whose hash does not match its contents is ``hash-mismatch``;
    without the columns that a hash covers, hashes are not checked. ``sources`` is copied from the input, or made of its
    ``source``; null if it has neither.
    """
    decode = decoding_mapper(
        profile,
        encryption=encryption,
        keys=keys,
        channel_topics=channel_topics,
    )
    sources = F.col("sources") if "sources" in waku_messages.columns else F.lit(None).cast("array<string>")
    if "sources" not in waku_messages.columns and "source" in waku_messages.columns:
        sources = F.array("source")
    names = [name for name in INPUT if name != "meta" or profile is None]
    columns = [F.col(name) for name in names]
    optional = dict.fromkeys([PROOF, "pubsub_topic", *check_columns(waku_messages.columns)])
    columns += [F.col(name) for name in optional if name in waku_messages.columns and name not in {*names, "sources"}]
    messages = waku_messages.select(*columns, sources.alias("sources"))
    return in_tasks(messages, lambda batches: batches_with_instants(decode(batches), DECODED), DECODED)


def decoding_mapper(
    profile: Profile | None = None,
    *,
    encryption: Encryption | None = None,
    keys: ChannelKeys | None = None,
    channel_topics: ChannelTopics | None = None,
) -> BatchMapper:
    """Return the function that turns batches of ``waku_messages`` into batches of ``decoded``, without instants."""

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = BatchDecoder(profile, encryption, keys, channel_topics=channel_topics)
        for batch in joined(batches):
            yield decoder.batch(batch)

    return decode
