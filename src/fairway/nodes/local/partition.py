"""`Partition`: which nodes of a split network reach each other, and which messages the store shows them.

Each side has a store of its own. Until the partition heals, a node sees no message of another side, not even from the
store. Messages from before the partition stay visible to all.

In a new partition a node still sees all messages that the store showed it before. Sides that join exchange their
messages, as nwaku's stores do. Each part of a split side keeps all messages. So a side keeps its messages when their
authors change sides.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from fairway.bounded import BoundedDict
from fairway.errors import ConfigurationError

_THE_OTHERS: Final = -1
"""The side of all nodes that are not named."""
_MAX_NOTED: Final = 100_000
"""Messages whose sides are kept; beyond it the oldest are evicted, and shown to all."""


class Partition:
    """Sides of a network. Nodes that are not named form a side of their own."""

    def __init__(self, sides: tuple[Collection[str], ...], former: Partition | None = None) -> None:
        """Make a partition that replaces ``former``; raises `ConfigurationError` for a node on two sides."""
        self._side_of: dict[str, int] = {}
        for number, names in enumerate(sides):
            if isinstance(names, str):
                raise ConfigurationError(f"a side is a set of names of nodes, like {{{names!r}}}, not a string")
            for name in set(names):
                if name in self._side_of:
                    raise ConfigurationError(f"node {name!r} stands on two sides of the partition; name it once")
                self._side_of[name] = number
        self._shown_to: BoundedDict[bytes, frozenset[int]] = BoundedDict(_MAX_NOTED)
        """Message hash -> the sides whose stores have it, of the messages since the first partition in a row."""
        self._next: Partition | None = None
        """The partition that replaced this one; a message may reach the store only after that."""
        self._becomes: dict[int, set[int]] = {}
        """Side -> where its nodes are in the partition that replaced this one."""
        if former is not None:
            former._give_way_to(self)  # noqa: SLF001 - another partition

    def connects(self, one: str, other: str) -> bool:
        """Return whether two nodes reach each other."""
        return self._side(one) == self._side(other)

    def note(self, message_hash: bytes, publisher: str) -> None:
        """Note that a message of a publisher entered the store."""
        self._show(message_hash, frozenset({self._side(publisher)}))

    def saw(self, message_hash: bytes) -> bool:
        """Return whether a message was published since this partition, or since the partitions before it."""
        return message_hash in self._shown_to

    def shows(self, message_hash: bytes, asker: str) -> bool:
        """Return whether the store shows a message to a node."""
        shown_to = self._shown_to.get(message_hash)
        return shown_to is None or self._side(asker) in shown_to

    def _give_way_to(self, successor: Partition) -> None:
        self._next = successor
        # Nodes that are named in neither partition stay among the others.
        self._becomes = {_THE_OTHERS: {_THE_OTHERS}}
        for name in self._side_of.keys() | successor._side_of.keys():
            self._becomes.setdefault(self._side(name), set()).add(successor._side(name))
        for message_hash, sides in self._shown_to.items():
            self._pass_on(successor, message_hash, sides)

    def _show(self, message_hash: bytes, sides: frozenset[int]) -> None:
        self._shown_to[message_hash] = self._shown_to.get(message_hash, frozenset()) | sides
        if self._next is not None:
            self._pass_on(self._next, message_hash, sides)

    def _pass_on(self, successor: Partition, message_hash: bytes, sides: frozenset[int]) -> None:
        successor._show(message_hash, frozenset().union(*(self._becomes.get(side, ()) for side in sides)))

    def _side(self, name: str) -> int:
        return self._side_of.get(name, _THE_OTHERS)
