"""The most recent message hashes, so that a message that arrives twice is processed once."""

from __future__ import annotations

from typing import Final

from fairway.bounded import BoundedDict

MAX_HASHES: Final = 100_000


class RecentHashes:
    """At most ``max_hashes`` hashes; the oldest one is evicted first."""

    def __init__(self, max_hashes: int = MAX_HASHES) -> None:
        self._hashes: BoundedDict[bytes, None] = BoundedDict(max_hashes)

    def __contains__(self, message_hash: bytes) -> bool:
        return message_hash in self._hashes

    def __len__(self) -> int:
        return len(self._hashes)

    def discard(self, message_hash: bytes) -> None:
        """Forget a hash, if it is remembered."""
        self._hashes.pop(message_hash, None)

    def add(self, message_hash: bytes) -> bool:
        """Remember a hash, and return whether it is new."""
        new = message_hash not in self._hashes
        self._hashes[message_hash] = None
        return new
