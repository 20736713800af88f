"""To ``quarantine``: what `sds_messages` could not decode. The payloads are in ``waku_messages``, by hash."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

_COLUMNS: Final = ("message_hash", "timestamp", "content_topic", "sources", "status", "error", "payload_bytes")


def quarantine(sds_messages: DataFrame) -> DataFrame:
    """Return the messages of which ``status`` is not ok, and why.

    Columns: message_hash, timestamp, content_topic, sources (if the input tells them), status, error, payload_bytes.
    """
    known = set(sds_messages.columns)
    return sds_messages.where("status <> 'ok'").select(*(name for name in _COLUMNS if name in known))
