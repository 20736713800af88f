"""What all peers together can make a host hold of what they sent: bytes unread, and of messages that are not whole.

Invariant: they are at most ``limit_bytes``, or nobody has anything to give. Whoever holds the most gives way, so that
one who holds less than an equal share of the limit never does, whatever the others do.
"""

from __future__ import annotations

from typing import Final, Protocol


class Holder(Protocol):
    """A connection, as far as it matters here."""

    def give_way(self) -> None:
        """Let go of some of what it holds, and say so to the budget."""
        ...


class ByteBudget:
    """The bytes that all connections of a host hold together."""

    def __init__(self, limit_bytes: int) -> None:
        self.used_bytes = 0
        """How many there are."""
        self._limit_bytes: Final = limit_bytes
        self._held: dict[Holder, int] = {}

    def hold(self, holder: Holder, size_bytes: int) -> None:
        """Note how many bytes a holder has now."""
        before = self._held.get(holder, 0)
        if size_bytes == before:
            return
        if size_bytes:
            self._held[holder] = size_bytes
        else:
            del self._held[holder]
        self.used_bytes += size_bytes - before

    def enforce(self) -> None:
        """Have those who hold the most give way until the limit is kept."""
        while self.used_bytes > self._limit_bytes:
            before = self.used_bytes
            max(self._held, key=self._held.__getitem__).give_way()
            if self.used_bytes >= before:
                return
