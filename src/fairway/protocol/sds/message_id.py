"""How the SDS id of an own message is made; on receipt an id is opaque (design.md 5.2)."""

from __future__ import annotations

import hashlib
from typing import Final

from fairway.options import IdRule
from fairway.wire.hashing import keccak256

SYNC_PREFIX: Final = "sync-"
"""Begins the id of a sync message, in js-waku as well. Nobody has to have those, so that nobody waits for one."""
_NANOSECONDS_PER_MILLISECOND: Final = 1_000_000


def make_message_id(rule: IdRule, *, sender_id: str, lamport: int, content: bytes, now_ms: int, sequence: int) -> str:
    """Return a lower-case hex id (SDS spec: a message_id MUST be globally unique and immutable).

    ``sequence`` counts own messages; it tells those of one millisecond apart where nanoseconds are asked for.
    """
    if rule is IdRule.PAYLOAD:
        return hashlib.sha256(content).hexdigest()
    sender = sender_id.encode()
    if rule is IdRule.UNIQUE:
        return hashlib.sha256(sender + b"\0" + lamport.to_bytes(8, "big") + content).hexdigest()
    nanoseconds = now_ms * _NANOSECONDS_PER_MILLISECOND + sequence % _NANOSECONDS_PER_MILLISECOND
    return keccak256(sender + str(nanoseconds).encode() + content).hex()


def make_ephemeral_id(rule: IdRule, *, sender_id: str, content: bytes, now_ms: int, count: int) -> str:
    """Return the id of an ephemeral message, which has no Lamport timestamp that could tell it from others.

    ``count`` counts the ephemeral messages of this process; what is said twice is two messages, also when the same
    content was sent as a lasting message before. Only with `IdRule.PAYLOAD` is it the same everywhere.
    """
    if rule is IdRule.PAYLOAD:
        return hashlib.sha256(content).hexdigest()
    moment = now_ms.to_bytes(8, "big") + count.to_bytes(8, "big")
    return hashlib.sha256(sender_id.encode() + b"\0ephemeral\0" + moment + content).hexdigest()
