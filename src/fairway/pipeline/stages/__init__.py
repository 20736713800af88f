"""The stages: functions from DataFrame to DataFrame, for use with ``DataFrame.transform``, one small file each.

::

    a source -> waku_messages -> decoded -> sds_messages -+-> missing_messages -> sds_ordered
                  |                |             |        +-> acknowledgements -> ack_latency
                  v                v             v                    ^
          store_completeness    repeats,    reassembled -+-> delivered | bloom_evidence, of waku_messages
                               quarantine                +-> incomplete

    and from these sender_stats -> channel_stats, bandwidth, rate_utilisation; segments that reassembled computed from
    parity are not missing, and no message waits for them in sds_ordered

No stage starts a job, uses ``sparkContext`` or depends on the kind of its source. `decoded` takes a stream as well;
stages that group rows raise `ConfigurationError` for a stream, because they need all rows of a table. Code that works
on bytes is a pure function over Arrow batches, and needs no Spark. `fairway.pipeline.tables` describes each table.
"""

from __future__ import annotations

from fairway.pipeline.stages.acknowledgements import ack_latency, acknowledgements
from fairway.pipeline.stages.bandwidth import bandwidth
from fairway.pipeline.stages.bloom_evidence import bloom_evidence
from fairway.pipeline.stages.citations import citations
from fairway.pipeline.stages.decoded import DECODED, decoded, decoding_mapper
from fairway.pipeline.stages.decoding import Status
from fairway.pipeline.stages.deduplicated import deduplicated
from fairway.pipeline.stages.delivered import delivered, incomplete
from fairway.pipeline.stages.missing_messages import missing_messages
from fairway.pipeline.stages.quarantine import quarantine
from fairway.pipeline.stages.rate_utilisation import rate_utilisation
from fairway.pipeline.stages.reassembled import reassembled
from fairway.pipeline.stages.sds_messages import REPEATS, SDS_MESSAGES, repeats, sds_messages
from fairway.pipeline.stages.sds_ordered import sds_ordered
from fairway.pipeline.stages.statistics import channel_stats, sender_stats
from fairway.pipeline.stages.store_completeness import store_completeness

__all__ = [
    "DECODED",
    "REPEATS",
    "SDS_MESSAGES",
    "Status",
    "ack_latency",
    "acknowledgements",
    "bandwidth",
    "bloom_evidence",
    "channel_stats",
    "citations",
    "decoded",
    "decoding_mapper",
    "deduplicated",
    "delivered",
    "incomplete",
    "missing_messages",
    "quarantine",
    "rate_utilisation",
    "reassembled",
    "repeats",
    "sds_messages",
    "sds_ordered",
    "sender_stats",
    "store_completeness",
]
