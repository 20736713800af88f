"""`MembershipTree`: the Merkle tree of a group. `RootWindow`: the roots that a validator accepts.

The tree has 2**20 places, filled from the left; a place without a member holds 0. It stores only the nodes that differ
from those of an empty tree: a tree of n members has at most 2n + 20 nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from fairway.errors import ConfigurationError
from fairway.rln.field import ZERO, number_of, poseidon

TREE_DEPTH: Final = 20
"""Depth of the circuit; another depth needs other keys."""
TREE_PLACES: Final = 1 << TREE_DEPTH
RECENT_ROOTS: Final = 50
"""Roots that nodes of The Waku Network accept."""


@cache
def empty_root(depth: int) -> bytes:
    """Return the root of a tree of this depth without members."""
    if depth == 0:
        return ZERO
    below = empty_root(depth - 1)
    return poseidon(below, below)


@dataclass(frozen=True, slots=True, kw_only=True)
class MerklePath:
    """The path from a leaf to the root, in the form that the circuit takes."""

    root: bytes
    siblings: tuple[bytes, ...]
    """The 20 nodes beside the path, from the leaf up."""
    bits: bytes
    """A byte for each level: 1 if the path is the right node of the two."""


class MembershipTree:
    """The rate commitments of a group, by place."""

    __slots__ = ("_levels", "_size")

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        """Make a tree of n leaves with about n hashes.

        Raises `DecodeError` for a leaf that is no field element, `ConfigurationError` for more than 2**20.
        """
        first = list(leaves)
        if len(first) > TREE_PLACES:
            raise ConfigurationError(f"a group has {TREE_PLACES} places, not {len(first)}")
        for leaf in first:
            number_of(leaf, "a leaf")
        self._size = len(first)
        self._levels: list[dict[int, bytes]] = [dict(enumerate(first))]
        for level in range(TREE_DEPTH):
            below = self._levels[level]
            self._levels.append({index: self._hash(level, index) for index in dict.fromkeys(at >> 1 for at in below)})

    def __len__(self) -> int:
        """Return one more than the last place that was filled."""
        return self._size

    @property
    def root(self) -> bytes:
        """The root."""
        return self._node(TREE_DEPTH, 0)

    def leaf(self, index: int) -> bytes:
        """Return the leaf at a place, `ZERO` if no member has it."""
        return self._node(0, self._checked(index))

    def append(self, leaf: bytes) -> int:
        """Put a member at the next place; return the place. Raises `ConfigurationError` if the group is full."""
        index = self._size
        self.put(index, leaf)
        return index

    def put(self, index: int, leaf: bytes) -> None:
        """Put a leaf at a place; `ZERO` removes the member."""
        number_of(leaf, "a leaf")
        self._levels[0][self._checked(index)] = leaf
        self._size = max(self._size, index + 1)
        for level in range(TREE_DEPTH):
            self._levels[level + 1][index >> level + 1] = self._hash(level, index >> level + 1)

    def path(self, index: int) -> MerklePath:
        """Return the path from a place to the root."""
        self._checked(index)
        return MerklePath(
            root=self.root,
            siblings=tuple(self._node(level, index >> level ^ 1) for level in range(TREE_DEPTH)),
            bits=bytes(index >> level & 1 for level in range(TREE_DEPTH)),
        )

    def _node(self, level: int, index: int) -> bytes:
        found = self._levels[level].get(index)
        return empty_root(level) if found is None else found

    def _hash(self, level: int, index: int) -> bytes:
        """Return the hash of the two nodes of a level that are below place ``index`` of the next one."""
        return poseidon(self._node(level, 2 * index), self._node(level, 2 * index + 1))

    @staticmethod
    def _checked(index: int) -> int:
        if not 0 <= index < TREE_PLACES:
            raise ConfigurationError(f"a place in the group is 0 to {TREE_PLACES - 1}, not {index}")
        return index


class RootWindow:
    """The newest `RECENT_ROOTS` roots: members may prove with a root that is a little older than the validator's."""

    __slots__ = ("_roots",)

    def __init__(self, roots: Iterable[bytes] = ()) -> None:
        self._roots: deque[bytes] = deque(maxlen=RECENT_ROOTS)
        for root in roots:
            self.add(root)

    def __contains__(self, root: object) -> bool:
        return root in self._roots

    def __len__(self) -> int:
        return len(self._roots)

    def add(self, root: bytes) -> None:
        """Accept a root from now on, and evict the oldest if there are too many. The newest again changes nothing."""
        if not self._roots or self._roots[-1] != root:
            self._roots.append(root)
