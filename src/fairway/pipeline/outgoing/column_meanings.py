"""What every column of every table of a batch is; docs/pipeline.md, "Outgoing tables", has the same for people.

A name means the same wherever it stands, unless its table says otherwise in `OF_ONE_OUTGOING_TABLE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

IN_A_BATCH: Final[Mapping[str, str]] = {
    "channel_id": "the channel",
    "sender_id": "who sends in it",
    "seq": "the place of the payload among those of its sender in the channel",
    "origin": "the row, the line or the file that the payload is from",
    "message_id": "id of the SDS message",
    "chunk_index": "which of the payload's messages it is, from 0; parity comes last",
    "content_topic": "of the WakuMessage",
    "pubsub_topic": "the shard that its content topic is on",
    "payload": "what travels: the SDS message, sealed if there are keys",
    "version": "of the payload's encryption, as the WakuMessage tells (26/WAKU2-PAYLOAD)",
    "meta": "of the WakuMessage; null if the profile has none",
    "ephemeral": "whether no store should keep it",
    "place": "of the message among all of its sender, in the order of sending, from 0",
    "message_hash": "hash of the WakuMessage as planned (14/WAKU2-MESSAGE)",
    "timestamp": "of the WakuMessage as planned",
    "status": "`sending`, `sent`, `refused` (a faulty message), `failed` (the node could not),"
    " `dropped` (ephemeral, and not in time), `waiting`: nobody tried",
    "detail": "what the node said, or what is wrong, in words",
    "attempts": "how often it was given to a node",
    "first_at_ms": "when that was first",
    "settled_at_ms": "when the last attempt at it ended, sent or not; null until then",
    "sent_timestamp": "the timestamp that it left with, if that is not the planned one, else null",
    "sent_hash": "its hash with that timestamp, else null",
}

OF_ONE_OUTGOING_TABLE: Final[Mapping[str, Mapping[str, str]]] = {
    "payloads": {
        "payload": "what is to be sent",
        "content_topic": "the topic to send on; null is `/fairway/1/CHANNEL/proto`",
        "ephemeral": "whether nobody needs to keep it or wait for it",
        "not_before_ms": "when it may leave at the earliest; null is at once",
        "fault": "why it could not be read; null if it could",
    },
    "refused": {
        "size_bytes": "size of the payload",
        "reason": "one of those listed above",
    },
    "outgoing_messages": {
        "payload_id": "SHA-256 of the payload that was given, lower-case hex",
        "lamport": "Lamport timestamp; null for ephemeral messages",
        "payload_number": "which of the sender's payloads in the channel it carries, from 0",
        "chunks": "messages of the payload, parity included",
        "is_parity": "whether it carries a Reed-Solomon shard",
        "release_ms": "when it may leave at the earliest",
    },
    "scheduled": {
        "epoch": "of the rate limit, counted from the Unix epoch, in which it leaves",
        "epoch_start_ms": "when that begins",
        "not_before_ms": "when it leaves at the earliest",
        "not_after_ms": "when it is dropped if it has not left; null unless it is ephemeral",
        "dropped": "why it does not leave at all; null unless it is ephemeral",
        "counted": "whether it is charged to the rate limit",
    },
}


def outgoing_meaning_of(table: str, column: str) -> str:
    """Return what a column of a batch's table is; raises `KeyError` for one that nobody described."""
    return OF_ONE_OUTGOING_TABLE.get(table, {}).get(column) or IN_A_BATCH[column]
