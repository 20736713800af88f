"""An SDS message and a segment; a test changes the fields that it needs."""

from __future__ import annotations

from typing import Any

from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.segment import Segment


def message(**changes: Any) -> SdsMessage:
    """Return a message with all fields set; the given fields replace the defaults."""
    fields: dict[str, Any] = {
        "message_id": "m1",
        "sender_id": "alice",
        "channel_id": "team",
        "lamport_timestamp": 7,
        "causal_history": (HistoryEntry("m0", b"hint", "bob"), HistoryEntry("m-1")),
        "bloom_filter": bytes(100),
        "repair_request": (HistoryEntry("lost"),),
        "content": b"hello",
    }
    return SdsMessage(**(fields | changes))


def segment(**changes: Any) -> Segment:
    """Return the second of three data segments; the given fields replace the defaults."""
    fields: dict[str, Any] = {
        "payload_hash": b"k" * 32,
        "index": 1,
        "data_count": 3,
        "parity_count": 0,
        "is_parity": False,
        "payload": b"piece",
        "payload_length": None,
    }
    return Segment(**(fields | changes))
