"""`ByteBudget`: bounds the bytes that all connections of a host hold: unread bytes, and parts of incomplete messages.

Invariant: connections hold at most ``limit_bytes`` together. Beyond it the connection that holds the most resets a
stream, so that a connection with less than an equal share of the limit never has to.
"""

from __future__ import annotations

from typing import Final, Protocol


class Holder(Protocol):
    """A connection that holds bytes."""

    def give_way(self) -> None:
        """Free some bytes, and call `ByteBudget.hold` with the new number."""


class ByteBudget:
    """The bytes that all connections of a host hold together."""

    def __init__(self, limit_bytes: int) -> None:
        self.used_bytes = 0
        """Bytes that all holders have."""
        self._limit_bytes: Final = limit_bytes
        self._held: dict[Holder, int] = {}

    def hold(self, holder: Holder, size_bytes: int) -> None:
        """Note that a holder has ``size_bytes`` now."""
        before = self._held.get(holder, 0)
        if size_bytes == before:
            return
        if size_bytes:
            self._held[holder] = size_bytes
        else:
            del self._held[holder]
        self.used_bytes += size_bytes - before

    def enforce(self) -> None:
        """While the limit is exceeded, let the holder with the most bytes give way; stop if it frees none."""
        while self.used_bytes > self._limit_bytes:
            before = self.used_bytes
            max(self._held, key=self._held.__getitem__).give_way()
            if self.used_bytes >= before:
                return
