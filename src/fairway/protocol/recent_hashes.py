"""The most recent message hashes, so that a message that arrives twice is processed once."""

from __future__ import annotations

from typing import Final

from fairway.bounded import BoundedDict

MAX_HASHES: Final = 100_000


class RecentHashes(BoundedDict[bytes, None]):
    """At most ``max_hashes`` hashes; the oldest one is evicted first."""

    def __init__(self, max_hashes: int = MAX_HASHES) -> None:
        super().__init__(max_hashes)

    def discard(self, message_hash: bytes) -> None:
        """Forget a hash, if it is remembered."""
        self.pop(message_hash, None)

    def add(self, message_hash: bytes) -> bool:
        """Remember a hash, and return whether it is new."""
        new = message_hash not in self
        self.put(message_hash, None)
        return new
