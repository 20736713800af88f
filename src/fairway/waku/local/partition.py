"""A network that fell apart: who reaches whom, and what the store shows to whom.

Invariant: nobody sees anything of another side before the network has healed, not even by way of the store; what was
published before the network fell apart everybody sees.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from fairway.errors import ConfigurationError

_THE_OTHERS: Final = -1
"""The side of everybody who was not named."""
_MAX_NOTED: Final = 100_000
"""Publications whose side is on record; of the oldest ones beyond that it is forgotten."""


class Partition:
    """Sides of a network. Nodes that are not named form a side of their own."""

    def __init__(self, sides: tuple[Collection[str], ...]) -> None:
        """Make a partition; raises `ConfigurationError` for a node on two sides."""
        self._side_of: dict[str, int] = {}
        for number, names in enumerate(sides):
            if isinstance(names, str):
                raise ConfigurationError(f"a side is a set of names of nodes, like {{{names!r}}}, not a string")
            for name in set(names):
                if name in self._side_of:
                    raise ConfigurationError(f"node {name!r} stands on two sides of the partition; name it once")
                self._side_of[name] = number
        self._seen_by: dict[bytes, set[int]] = {}

    def connects(self, one: str, other: str) -> bool:
        """Return whether two nodes reach each other."""
        return self._side(one) == self._side(other)

    def note(self, message_hash: bytes, publisher: str) -> None:
        """Remember on which side a message entered the store."""
        self._seen_by.setdefault(message_hash, set()).add(self._side(publisher))
        if len(self._seen_by) > _MAX_NOTED:
            del self._seen_by[next(iter(self._seen_by))]

    def saw(self, message_hash: bytes) -> bool:
        """Return whether a message was published since the network fell apart."""
        return message_hash in self._seen_by

    def shows(self, message_hash: bytes, asker: str) -> bool:
        """Return whether the store shows a message to a node."""
        sides = self._seen_by.get(message_hash)
        return sides is None or self._side(asker) in sides

    def _side(self, name: str) -> int:
        return self._side_of.get(name, _THE_OTHERS)
