"""From ``waku_messages`` to ``sds_messages``: decrypts, decodes, and reads the segment header, in one pass.

Every input row gives one output row: a message that cannot be decoded has another ``status`` than ``ok``, and ``error``
says why. A mapper that raised an error would end the job, and any participant could cause that with a bad message.

Bloom filters (18 kB each) are left out: the stage that needs them reads ``waku_messages`` again. ``content`` is the
content of the SDS message, for a segment the whole encoded segment. Its header has columns of its own, so that later
stages need not shuffle payloads to find complete messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from fairway.options import Profile
from fairway.pipeline.exchange import BatchMapper
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.stages.decoding import INPUT, BatchDecoder, Status, joined
from fairway.protocol.encryption.hook import Encryption
from fairway.wire.segment import MAX_SEGMENTS

__all__ = ["SDS_MESSAGES", "BatchMapper", "Status", "sds_mapper", "sds_messages"]

_ENTRIES: Final = "array<struct<message_id: string, retrieval_hint: binary, sender_id: string>>"
_CARRIER: Final = "message_hash binary, timestamp bigint, content_topic string,"
_SOURCES: Final = " sources array<string>,"
_DECODED: Final = (
    " payload_bytes int, status string, error string, profile string,"
    " kind string, sender_id string, message_id string, channel_id string, lamport bigint,"
    f" causal_history {_ENTRIES}, repair_request {_ENTRIES}, history_bytes int, repair_bytes int, bloom_bytes int,"
    " content_bytes int, content binary,"
    " segment_hash binary, segment_index int, is_parity boolean, data_segments int, parity_segments int"
)

SDS_MESSAGES: Final = _CARRIER + _DECODED
"""The table of SDS messages, one row for each row of ``waku_messages``; columns from ``kind`` on are null unless
``status`` is ``ok``, those of the segment header also when the content is no segment. Behind ``content_topic`` comes
``sources array<string>`` when the input has it, as `deduplicated` gives it."""


def sds_messages(
    waku_messages: DataFrame,
    profile: Profile | None = Profile.WAKU,
    *,
    encryption: Encryption | None = None,
    keys: ChannelKeys | None = None,
    max_total_segments: int = MAX_SEGMENTS,
) -> DataFrame:
    """Return ``sds_messages`` (`SDS_MESSAGES`).

    Without a ``profile``, the ``meta`` of each message determines it. ``encryption`` decrypts all messages, or ``keys``
    those of their channels; both must be picklable for the executors.
    """
    mapper = sds_mapper(profile, encryption=encryption, keys=keys, max_total_segments=max_total_segments)
    remembered = "sources" in waku_messages.columns
    names = [name for name in INPUT if name != "meta" or profile is None]
    schema = _CARRIER + (_SOURCES if remembered else "") + _DECODED
    return waku_messages.select(*names, *(["sources"] if remembered else [])).mapInArrow(mapper, schema)


def sds_mapper(
    profile: Profile | None = Profile.WAKU,
    *,
    encryption: Encryption | None = None,
    keys: ChannelKeys | None = None,
    max_total_segments: int = MAX_SEGMENTS,
) -> BatchMapper:
    """Return the function that turns batches of ``waku_messages`` into batches of ``sds_messages``."""

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = BatchDecoder(profile, encryption, keys, max_total_segments)
        for batch in joined(batches):
            yield decoder.batch(batch)

    return decode
