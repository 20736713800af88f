"""The registry of the tables of a batch; docs/outgoing.md has the same list."""

from __future__ import annotations

from typing import Final

from fairway.pipeline.tables import Table

PAYLOADS: Final = (
    "channel_id string, sender_id string, seq bigint, payload binary, content_topic string, ephemeral boolean,"
    " not_before timestamp, not_before_ms bigint, origin string, fault string"
)
"""The table of payloads. ``origin`` is the file, line or row of a payload, ``fault`` the reason if it is unreadable."""

OUTGOING_MESSAGES: Final = (
    "channel_id string, sender_id string, seq bigint, message_id string, payload_id string, lamport bigint,"
    " payload_number bigint, chunk_index int, chunks int, is_parity boolean, content_topic string, pubsub_topic string,"
    " payload binary, version int, meta binary, ephemeral boolean, release timestamp, release_ms bigint"
)
"""The table of encrypted SDS messages. ``payload`` is the encrypted message, ``payload_id`` the SHA-256 of the user's
payload. ``payload_number`` counts the sender's payloads in the channel from 0. ``release_ms`` is the earliest time of
sending."""

REFUSED: Final = (
    "channel_id string, sender_id string, seq bigint, origin string, size_bytes bigint, reason string, detail string"
)
"""The table of refused payloads. ``reason`` is one of `REASONS`."""

SCHEDULED: Final = (
    "sender_id string, place bigint, epoch bigint, epoch_start timestamp, epoch_start_ms bigint, not_before timestamp,"
    " not_before_ms bigint, channel_id string, seq bigint, message_id string, chunk_index int,"
    " message_hash binary, timestamp timestamp, timestamp_ns bigint, content_topic string, pubsub_topic string,"
    " payload binary, version int, meta binary, ephemeral boolean, not_after timestamp, not_after_ms bigint,"
    " dropped string"
)
"""The table of the schedule: ``place`` is the order of a sender's messages, from 0; ``not_after_ms`` and
``dropped`` are null unless the message is ephemeral. The sink ``waku`` takes it."""

OUTGOING_RECEIPTS: Final = (
    "sender_id string, place bigint, channel_id string, seq bigint, message_id string, chunk_index int,"
    " message_hash binary, timestamp timestamp, timestamp_ns bigint, status string, detail string, attempts int,"
    " first_at timestamp, first_at_ms bigint, settled_at timestamp, settled_at_ms bigint, sent_timestamp timestamp,"
    " sent_timestamp_ns bigint, sent_hash binary"
)
"""The table of receipts. ``status`` is a `ReceiptStatus`, or ``waiting`` for a message that was not tried yet;
``sent_timestamp`` and ``sent_hash`` are those of a message that was sent with a new timestamp, else null."""

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
