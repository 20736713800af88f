"""The stages: functions from DataFrame to DataFrame, for use with ``DataFrame.transform``, one small file each.

::

    waku_messages -> sds_messages -> unique_messages -+-> missing_messages -> sds_ordered
                          |                 |         +-> acknowledgements
                          v                 v
                      quarantine       reassembled -+-> delivered
                                                    +-> incomplete

None of them starts a job, touches ``sparkContext`` or knows where its input came from. What works on bytes is a pure
function over Arrow batches, so it can be tested, and used, without Spark.
"""

from __future__ import annotations

from fairway.pipeline.stages.acknowledgements import acknowledgements
from fairway.pipeline.stages.delivered import delivered, incomplete
from fairway.pipeline.stages.missing_messages import citations, missing_messages, without_rebuilt
from fairway.pipeline.stages.quarantine import quarantine
from fairway.pipeline.stages.reassembled import reassembled
from fairway.pipeline.stages.sds_messages import SDS_MESSAGES, Status, sds_mapper, sds_messages
from fairway.pipeline.stages.sds_ordered import sds_ordered
from fairway.pipeline.stages.unique_messages import unique_messages

__all__ = [
    "SDS_MESSAGES",
    "Status",
    "acknowledgements",
    "citations",
    "delivered",
    "incomplete",
    "missing_messages",
    "quarantine",
    "reassembled",
    "sds_mapper",
    "sds_messages",
    "sds_ordered",
    "unique_messages",
    "without_rebuilt",
]
