"""Finding the length of a payload from its Keccak-256 (`fairway.wire.hashing.keccak256`), where no segment names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def trailing_zeros_for(digest: bytes, prefix: Iterable[bytes | memoryview], counts: range) -> int | None:
    """Return how many zero bytes after the prefix give this Keccak-256; None if no count in the range does.

    ``counts`` ascends in steps of 1. The prefix is hashed once, then each candidate costs one more byte.
    """
    from Crypto.Hash import keccak  # noqa: PLC0415 - see `fairway.wire.hashing.keccak256`

    state = keccak.new(digest_bits=256, update_after_digest=True)
    for piece in prefix:
        state.update(piece)
    state.update(bytes(counts.start))
    for count in counts:
        if state.digest() == digest:
            return count
        state.update(b"\0")
    return None
