"""How the SDS id of an own message is made; on receipt an id is opaque.

But a message is its id *and* its content: where the id is a digest of the content, no other message can have it, and
where it is not, two messages under one id are told apart by a fingerprint.
"""

from __future__ import annotations

import hashlib
from typing import Final

from fairway.options import IdRule
from fairway.units import NS_PER_MS
from fairway.wire.hashing import keccak256
from fairway.wire.sds import SdsMessage

SYNC_PREFIX: Final = "sync-"
"""Begins the id of a sync message, in js-waku as well. Nobody has to have those, so that nobody waits for one."""
FINGERPRINT_BYTES: Final = 16
_DIGEST_LENGTH: Final = 64


def make_message_id(rule: IdRule, *, sender_id: str, lamport: int, content: bytes, now_ms: int, sequence: int) -> str:
    """Return a lower-case hex id (SDS, "Message": a message_id MUST be globally unique and immutable).

    ``sequence`` counts own messages; it tells those of one millisecond apart where nanoseconds are asked for.
    """
    if rule is IdRule.PAYLOAD:
        return hashlib.sha256(content).hexdigest()
    sender = sender_id.encode()
    if rule is IdRule.UNIQUE:
        return hashlib.sha256(sender + b"\0" + lamport.to_bytes(8, "big") + content).hexdigest()
    nanoseconds = now_ms * NS_PER_MS + sequence % NS_PER_MS
    return keccak256(sender + str(nanoseconds).encode() + content).hex()


def follows_a_rule(message: SdsMessage) -> bool:
    """Return whether the id of a content message is a digest of it, by a rule that needs nothing but the message.

    Then nothing else can have that id. An id by any other rule is opaque: it tells nothing about its message.
    """
    content, lamport = message.content or b"", message.lamport_timestamp or 0
    if not 0 <= lamport < 1 << 64:
        return False
    return any(
        message.message_id
        == make_message_id(rule, sender_id=message.sender_id, lamport=lamport, content=content, now_ms=0, sequence=0)
        for rule in (IdRule.UNIQUE, IdRule.PAYLOAD)
    )


def looks_like_a_digest(message_id: str) -> bool:
    """Return whether an id has the form of those that the known rules make: 64 lower-case hex digits."""
    return len(message_id) == _DIGEST_LENGTH and not message_id.strip("0123456789abcdef")


def fingerprint(message: SdsMessage) -> bytes:
    """Return what tells a message from another one under the same id: 16 bytes over its sender and content."""
    return hashlib.sha256(message.sender_id.encode() + b"\0" + (message.content or b"")).digest()[:FINGERPRINT_BYTES]


def make_ephemeral_id(rule: IdRule, *, sender_id: str, content: bytes, now_ms: int, count: int) -> str:
    """Return the id of an ephemeral message, which has no Lamport timestamp that could tell it from others.

    ``count`` counts the ephemeral messages of this process; what is said twice is two messages, also when the same
    content was sent as a lasting message before. Only with `IdRule.PAYLOAD` is it the same everywhere.
    """
    if rule is IdRule.PAYLOAD:
        return hashlib.sha256(content).hexdigest()
    moment = now_ms.to_bytes(8, "big") + count.to_bytes(8, "big")
    return hashlib.sha256(sender_id.encode() + b"\0ephemeral\0" + moment + content).hexdigest()
