"""The messages that stage 1 could not decode: ``quarantine``. Their payloads are in ``waku_messages``, by hash."""

from __future__ import annotations

from pyspark.sql import DataFrame


def quarantine(sds_messages: DataFrame) -> DataFrame:
    """Return message_hash, timestamp, content_topic, payload_bytes, status and error of what is not an SDS message."""
    return sds_messages.where("status <> 'ok'").select(
        "message_hash", "timestamp", "content_topic", "payload_bytes", "status", "error"
    )
