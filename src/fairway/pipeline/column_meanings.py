"""What every column of every table of a run is; docs/pipeline.md has the same for people.

A name means the same wherever it stands, unless its table says otherwise in `OF_ONE_TABLE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EVERYWHERE: Final[Mapping[str, str]] = {
    "channel_id": "the channel, as its participants call it",
    "sender_id": "the participant who wrote the message, by his own word",
    "message_id": "id of the SDS message; opaque, chosen by its sender",
    "lamport": "Lamport timestamp; null for ephemeral messages",
    "timestamp": "of the WakuMessage, by its sender's clock",
    "message_hash": "deterministic hash of the WakuMessage (14/WAKU2-MESSAGE)",
    "content_topic": "of the WakuMessage",
    "payload_bytes": "size of the WakuMessage's payload, as it travelled",
    "segment_hash": "hash of the whole message that the segment is a part of; null if it is no segment",
    "first_seen": "the least timestamp of its messages",
    "last_seen": "the greatest timestamp of its messages",
    "content": "SDS messages with content, each counted once; a segment is one",
    "sync": "sync messages, each counted once",
    "ephemeral": "ephemeral messages, each counted once",
    "repeats": "further WakuMessages with the same SDS messages: retries, repairs, replays",
    "acknowledged": "of `content`, those that at least one other participant acknowledged",
    "delivered": "rows in the table `delivered`",
    "delivered_bytes": "their size",
    "reassembled": "of `delivered`, those that came in segments",
    "recovered": "of `reassembled`, those that needed Reed-Solomon",
    "incomplete": "rows in the table `incomplete`",
    "missing": "rows in the table `missing_messages`",
    "latency_p50_ms": "from a message's timestamp to its first acknowledgement: the median; null if there is none",
    "latency_p95_ms": "likewise, which 95 % do not exceed",
    "latency_p99_ms": "likewise, which 99 % do not exceed",
}

OF_ONE_TABLE: Final[Mapping[str, Mapping[str, str]]] = {
    "waku_messages": {
        "pubsub_topic": "the shard that it travelled on",
        "payload": "as it travelled, encrypted or not",
        "version": "of the payload's encryption, as the WakuMessage tells (26/WAKU2-PAYLOAD)",
        "meta": "of the WakuMessage; null if it has none",
        "sources": "names of the stores that had it, sorted",
        "copies": "rows of the input with this hash",
    },
    "sds_messages": {
        "profile": "the wire that it was read as: `waku` or `logos`",
        "kind": "`content`, `sync` or `ephemeral`",
        "causal_history": "what it cites, newest last: the newest 1,000 entries, each message once",
        "repair_request": "messages that its sender asks others for",
        "history_bytes": "what the whole causal history takes in it",
        "repair_bytes": "what the repair requests take in it",
        "bloom_bytes": "size of its bloom filter",
        "content_bytes": "size of `content`; 0 if there is none",
        "content": "what SDS carried, for a segment header and all; null if nothing",
        "segment_index": "place of the segment, from 0, data and parity each by themselves",
        "is_parity": "whether the segment is a Reed-Solomon shard",
        "data_segments": "how many data segments there are, by its header; 0 if that does not tell",
        "parity_segments": "how many parity segments there are, by its header; 0 if that does not tell",
        "sightings": "rows with this SDS message",
        "sighting": "which of these it is, from 1, in the order of timestamp and hash",
    },
    "quarantine": {
        "sources": "names of the stores that had it, sorted",
        "status": "`not-for-us`, `not-sds`, `no-id`, `lamport-range`, `bad-segment` or `forged`",
        "error": "what is wrong with it, in words",
    },
    "delivered": {
        "message_id": "SHA-256 of the payload, lower-case hex; may repeat",
        "lamport": "of its first segment; null for ephemeral messages",
        "sds_ids": "ids of the SDS messages that carried it",
        "timestamp": "of the last WakuMessage that was needed",
        "segments": "data segments; 1 for a message that was sent whole",
        "recovered": "whether Reed-Solomon filled in lost segments",
        "size_bytes": "size of the payload",
        "payload": "what the application sent",
    },
    "incomplete": {
        "outcome": (
            "`incomplete`; `hash-mismatch`: there are enough, but what they give, by Reed-Solomon too, is not what they"
            " promise; `discarded`: they contradict the others, or are forged; `excess`: more than is looked at"
        ),
        "held": "segments that are there",
        "data_segments": "how many would do; null when only parity is there, which does not tell",
    },
    "missing_messages": {
        "sender_id": "its author, if a citation told",
        "retrieval_hint": "hash of a WakuMessage to ask a store for, if a citation told",
        "cited_by": "messages that cite it",
        "first_cited": "the least timestamp of these",
        "last_cited": "the greatest timestamp of these",
        "first_cited_by": "who cited it then: a participant who has it",
        "last_cited_by": "who cited it then",
    },
    "sds_ordered": {
        "position": "place in the channel's log, from 1",
        "missing_parents": "how many of the messages that it cites are missing",
        "status": "`complete`, `waiting`, `circular` or `not-computed`, see below",
        "waits_for": "the missing message that is given up last of those that it depends on; null for none",
    },
    "acknowledgements": {
        "acknowledged_by": "the participant who has it",
        "how": "`cited`, `descendant` or `bloom` (only with `--blooms`)",
        "at": "timestamp of the message that tells",
    },
    "ack_latency": {
        "sent_at": "timestamp of the message",
        "ackers": "participants who acknowledged it",
        "first_by": "the first of these; null for none",
        "acked_at": "when, by his clock",
        "latency_ms": "from `sent_at` to `acked_at`, at least 0: the difference of two clocks",
    },
    "sender_stats": {
        "sender_id": "the participant; null for missing messages whose author nobody told",
        "payload_bytes": "of his SDS messages, each as it came first",
    },
    "channel_stats": {
        "senders": "participants of whom there is a message",
        "payload_bytes": "of its SDS messages, each as it came first",
    },
    "bandwidth": {
        "part": (
            "`retransmission` and `sync` are whole messages; of all others `content`, `history`, `bloom`, `repair`, and"
            " `envelope` for what remains: ids, Lamport timestamp, tags, what the cipher added"
        ),
        "bytes": "its size in all messages together",
        "messages": "WakuMessages that have it",
    },
    "rate_utilisation": {
        "sender_id": "the participant; equal names in several channels count as one",
        "epoch_start_ms": "beginning of the epoch; epochs are aligned to the Unix epoch",
        "messages": "WakuMessages of his with a timestamp in it: every transmission is charged",
        "channels": "in how many channels they were",
        "limit": "`--rate-limit`; null if that was not given",
        "pct": "`messages` in per cent of `limit`; null likewise",
    },
    "store_completeness": {
        "source": "the store",
        "messages": "WakuMessages that it had",
        "of": "WakuMessages that any store had",
        "missing": "the difference",
    },
}


def meaning_of(table: str, column: str) -> str:
    """Return what a column of a table is; raises `KeyError` for one that nobody described."""
    return OF_ONE_TABLE.get(table, {}).get(column) or EVERYWHERE[column]
