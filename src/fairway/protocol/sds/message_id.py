"""SDS message ids: making them, and checking whether a received id is a digest of its message.

If an id is a digest of its message, no other message can have it. Any other id is opaque: several messages may have it,
and a fingerprint of sender and content distinguishes them.
"""

from __future__ import annotations

import hashlib
from typing import Final

from fairway.options import IdRule
from fairway.units import NS_PER_MS
from fairway.wire.hashing import keccak256
from fairway.wire.sds import SdsMessage

SYNC_PREFIX: Final = "sync-"
"""Prefix of the id of a sync message, in js-waku as well. No message waits for an id with this prefix."""
FINGERPRINT_BYTES: Final = 16
_DIGEST_LENGTH: Final = 64


def make_message_id(rule: IdRule, *, sender_id: str, lamport: int, content: bytes, now_ms: int, sequence: int) -> str:
    """Return a lower-case hex id (SDS, "Message": a message_id MUST be globally unique and immutable).

    ``sequence`` counts own messages. If the rule uses nanoseconds, it distinguishes messages of one millisecond.
    """
    if rule is IdRule.PAYLOAD:
        return hashlib.sha256(content).hexdigest()
    sender = sender_id.encode()
    if rule is IdRule.UNIQUE:
        return hashlib.sha256(sender + b"\0" + lamport.to_bytes(8, "big") + content).hexdigest()
    nanoseconds = now_ms * NS_PER_MS + sequence % NS_PER_MS
    return keccak256(sender + str(nanoseconds).encode() + content).hex()


def follows_a_rule(message: SdsMessage) -> bool:
    """Return whether the id of a content message is a digest of it, by a rule that needs only the message.

    An id by any other rule is opaque.
    """
    content, lamport = message.content or b"", message.lamport_timestamp or 0
    if not 0 <= lamport < 1 << 64:
        return False
    for rule in (IdRule.UNIQUE, IdRule.PAYLOAD):
        made = make_message_id(
            rule, sender_id=message.sender_id, lamport=lamport, content=content, now_ms=0, sequence=0
        )
        if made == message.message_id:
            return True
    return False


def looks_like_a_digest(message_id: str) -> bool:
    """Return whether an id has the form that the known rules give it: 64 lower-case hex digits."""
    return len(message_id) == _DIGEST_LENGTH and not message_id.strip("0123456789abcdef")


def fingerprint(message: SdsMessage) -> bytes:
    """Return a digest of sender and content, 16 bytes, that distinguishes messages with the same id."""
    return hashlib.sha256(message.sender_id.encode() + b"\0" + (message.content or b"")).digest()[:FINGERPRINT_BYTES]


def make_ephemeral_id(sender_id: str, content: bytes, now_ms: int, count: int) -> str:
    """Return the id of an ephemeral message, which has no Lamport timestamp.

    ``count`` counts the ephemeral messages of this process: the same content sent twice has two ids.
    """
    moment = now_ms.to_bytes(8, "big") + count.to_bytes(8, "big")
    return hashlib.sha256(sender_id.encode() + b"\0ephemeral\0" + moment + content).hexdigest()
