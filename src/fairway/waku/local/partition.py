"""`Partition`: which nodes of a split network reach each other, and which messages the store shows them.

Until the partition heals, a node sees no message of another side, not even from the store. Messages from before the
partition stay visible to all. After a new partition, a node sees the messages of publishers that it now reaches, and
those that it saw before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from fairway.errors import ConfigurationError

_THE_OTHERS: Final = -1
"""The side of all nodes that are not named."""
_MAX_NOTED: Final = 100_000
"""Messages whose publishers are remembered; beyond that the oldest are forgotten."""


class Partition:
    """Sides of a network. Nodes that are not named form a side of their own."""

    def __init__(self, sides: tuple[Collection[str], ...], former: Partition | None = None) -> None:
        """Make a partition, in place of a former one; raises `ConfigurationError` for a node on two sides."""
        self._former = former
        self._side_of: dict[str, int] = {}
        for number, names in enumerate(sides):
            if isinstance(names, str):
                raise ConfigurationError(f"a side is a set of names of nodes, like {{{names!r}}}, not a string")
            for name in set(names):
                if name in self._side_of:
                    raise ConfigurationError(f"node {name!r} stands on two sides of the partition; name it once")
                self._side_of[name] = number
        self._publishers: dict[bytes, dict[str, None]] = {}
        """Message hash -> names of its publishers during this partition."""

    def connects(self, one: str, other: str) -> bool:
        """Return whether two nodes reach each other."""
        return self._side(one) == self._side(other)

    def note(self, message_hash: bytes, publisher: str) -> None:
        """Remember that a message of a publisher entered the store."""
        self._publishers.setdefault(message_hash, {})[publisher] = None
        if len(self._publishers) > _MAX_NOTED:
            del self._publishers[next(iter(self._publishers))]

    def publishers(self, message_hash: bytes) -> Iterator[str]:
        """Yield the publishers of a message since the partition."""
        yield from self._publishers.get(message_hash, ())
        if self._former is not None:
            yield from self._former.publishers(message_hash)

    def saw(self, message_hash: bytes) -> bool:
        """Return whether a message was published since the partition."""
        return next(self.publishers(message_hash), None) is not None

    def shows(self, message_hash: bytes, asker: str) -> bool:
        """Return whether the store shows a message to a node."""
        if not self.saw(message_hash) or any(self.connects(one, asker) for one in self.publishers(message_hash)):
            return True
        return self._former is not None and self._former.saw(message_hash) and self._former.shows(message_hash, asker)

    def _side(self, name: str) -> int:
        return self._side_of.get(name, _THE_OTHERS)
