"""Keccak-256, the hash that names a segmented payload (seed 003, "Sending"; LIP-243).

This is the original Keccak with padding 0x01, as Ethereum uses it: ``hashlib.sha3_256`` pads differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from Crypto.Hash import keccak

if TYPE_CHECKING:
    from collections.abc import Iterable


def keccak256(data: bytes) -> bytes:
    """Return the Keccak-256 of the data, 32 bytes."""
    return keccak.new(digest_bits=256, data=data).digest()


def trailing_zeros_for(digest: bytes, prefix: Iterable[bytes | memoryview], counts: range) -> int | None:
    """Return how many zero bytes after the prefix give this Keccak-256; None if no count in the range does.

    ``counts`` ascends in steps of 1. The prefix is hashed once, then each candidate costs one more byte.
    """
    state = keccak.new(digest_bits=256, update_after_digest=True)
    for part in prefix:
        state.update(part)
    state.update(bytes(counts.start))
    for count in counts:
        if state.digest() == digest:
            return count
        state.update(b"\0")
    return None
