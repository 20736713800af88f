"""The registry of the tables of a batch; docs/outgoing.md has the same list."""

from __future__ import annotations

from typing import Final

from fairway.pipeline.outgoing.outgoing_messages import OUTGOING_MESSAGES, PAYLOADS, REFUSED
from fairway.pipeline.outgoing.scheduled import SCHEDULED
from fairway.pipeline.tables import Table

OUTGOING_RECEIPTS: Final = (
    "sender_id string, place bigint, channel_id string, seq bigint, message_id string, chunk_index int,"
    " message_hash binary, timestamp timestamp, timestamp_ns bigint, status string, detail string, attempts int,"
    " first_at timestamp, first_at_ms bigint, settled_at timestamp, settled_at_ms bigint, sent_timestamp timestamp,"
    " sent_timestamp_ns bigint, sent_hash binary"
)
"""The table of receipts. ``status`` is a `ReceiptStatus`, or ``waiting`` for a message that was not tried yet;
``sent_timestamp`` and ``sent_hash`` are those of a message that left so late that it got a new timestamp, else null."""

OUTGOING_TABLES: Final[tuple[Table, ...]] = (
    Table(
        name="payloads",
        schema=PAYLOADS,
        keys=(),
        layout="as they were given",
        meaning="something to be sent, good or bad, and where it comes from",
    ),
    Table(
        name="refused",
        schema=REFUSED,
        keys=(),
        layout="by hash of (channel_id, sender_id)",
        meaning="a payload that gives no message, and why",
    ),
    Table(
        name="outgoing_messages",
        schema=OUTGOING_MESSAGES,
        keys=("channel_id", "message_id"),
        layout="by hash of (channel_id, sender_id), sorted by seq and chunk_index",
        meaning="an SDS message, encrypted and ready to be stamped; a payload in segments has several",
    ),
    Table(
        name="scheduled",
        schema=SCHEDULED,
        keys=("message_hash",),
        layout="by hash of sender_id, sorted by epoch and place",
        meaning="a WakuMessage, and the epoch of the rate limit in which it leaves",
    ),
    Table(
        name="receipts",
        schema=OUTGOING_RECEIPTS,
        keys=("message_hash",),
        layout="as in scheduled, one file",
        meaning="a WakuMessage, and what became of it",
    ),
)
"""All tables, in the order in which they are written."""
