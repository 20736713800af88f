"""To ``quarantine``: messages that cannot be decoded or are forged. ``waku_messages`` has their payloads, by hash."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from fairway.pipeline.stages.unique_messages import forged

_COLUMNS: Final = ("message_hash", "timestamp", "content_topic", "sources", "status", "error", "payload_bytes")


def quarantine(sds_messages: DataFrame, sighted: DataFrame | None = None) -> DataFrame:
    """Return the messages of which ``status`` is not ok, and why; those that ``sighted`` left out are ``forged``.

    Columns: message_hash, timestamp, content_topic, sources (if the input tells them), status, error, payload_bytes.
    """
    columns = [name for name in _COLUMNS if name in sds_messages.columns]
    undecoded = sds_messages.where("status <> 'ok'").select(*columns)
    return undecoded if sighted is None else undecoded.unionByName(forged(sds_messages, sighted).select(*columns))
