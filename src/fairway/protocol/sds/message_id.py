"""How the SDS id of an own message is made; on receipt an id is opaque (design.md 5.2)."""

from __future__ import annotations

import hashlib

from fairway.options import IdRule
from fairway.wire.hashing import keccak256

_NANOSECONDS_PER_MILLISECOND = 1_000_000


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
