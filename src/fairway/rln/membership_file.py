"""`MembershipFile`: a group in a file. All members and validators of a network have a copy of it.

::

    {"format": "fairway-rln-group", "version": 1, "identifier": "rln/my-network", "epoch_ms": 600000,
     "members": [{"commitment": "<64 hex digits>", "limit": 20}, null, ...]}

A member's place in the list is its place in the tree; null is a removed member. Commitments are the 32 bytes of the
field element in lower-case hex digits. The file holds no secret. A change replaces the whole file, so that a reader
finds the old or the new one. A writer holds a lock file during a change.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from fairway.errors import ConfigurationError, DecodeError, RlnError, RlnErrorKind, StorageError, StoreCorruptError
from fairway.json_reading import read_json
from fairway.rln.epochs import NETWORK_EPOCH_MS, NETWORK_IDENTIFIER, RlnNetwork
from fairway.rln.field import ZERO
from fairway.rln.identity import RlnIdentity, rate_commitment
from fairway.rln.proving import RlnMember
from fairway.rln.tree import RECENT_ROOTS, TREE_PLACES, MembershipTree, RootWindow
from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.whole_file import changing, replace_whole

_FORMAT: Final = "fairway-rln-group"
MAX_GROUP_BYTES: Final = 1 << 28
"""Size limit of the file; 2**20 members take half of it."""


class GroupMember(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member in the file."""

    commitment: str
    limit: int


class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["fairway-rln-group"]
    version: Literal[1]
    identifier: str
    epoch_ms: int
    members: tuple[GroupMember | None, ...]


class MembershipFile:
    """The group in a file, its tree, and the roots that validators accept."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file.

        Raises `StorageError` if it cannot be read, `StoreCorruptError` if it is no group or has a wrong value. Needs
        fairway-rln.
        """
        self._path = Path(path).absolute()
        group = self._read()
        self._members = group.members
        self._places = _places_of(group.members)
        try:
            self._network = RlnNetwork(identifier=group.identifier.encode(), epoch_ms=group.epoch_ms)
        except ConfigurationError as error:
            raise StoreCorruptError(f"{self._path} has a value that cannot be: {error}") from error
        # Adding the latest members one by one gives the roots before them, with which other members may still prove.
        early = max(0, len(group.members) - RECENT_ROOTS + 1)
        leaves = self._leaves(group.members)
        if len(leaves) > TREE_PLACES:
            raise StoreCorruptError(f"{self._path} has {len(leaves)} members, a group has {TREE_PLACES} places")
        self._tree = MembershipTree(leaves[:early])
        self._roots = RootWindow([self._tree.root])
        for leaf in leaves[early:]:
            self._tree.append(leaf)
            self._roots.add(self._tree.root)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        identifier: str = NETWORK_IDENTIFIER.decode(),
        epoch_ms: int = NETWORK_EPOCH_MS,
    ) -> MembershipFile:
        """Write a group without members. Raises `ConfigurationError` for wrong values, and if there is a file."""
        whole = Path(path).absolute()
        RlnNetwork(identifier=identifier.encode(), epoch_ms=epoch_ms)
        with changing(whole):
            if whole.exists():
                raise ConfigurationError(f"{whole} exists: give another path")
            empty = _Group(format=_FORMAT, version=1, identifier=identifier, epoch_ms=epoch_ms, members=())
            replace_whole(whole, _encoded(empty))
        return cls(whole)

    def __len__(self) -> int:
        """Return the number of members."""
        return sum(member is not None for member in self._members)

    @property
    def network(self) -> RlnNetwork:
        """The network of the group."""
        return self._network

    @property
    def root(self) -> bytes:
        """The newest root."""
        return self._tree.root

    @property
    def roots(self) -> RootWindow:
        """The newest roots; `refresh` changes this object."""
        return self._roots

    @property
    def members(self) -> tuple[GroupMember | None, ...]:
        """The members by place; None for a removed member."""
        return self._members

    def refresh(self) -> bool:
        """Read the file again; return whether the group has changed.

        Raises the errors of the constructor, also for a file of another network; then the group does not change.
        """
        group = self._read()
        if (group.identifier.encode(), group.epoch_ms) != (self._network.identifier, self._network.epoch_ms):
            raise StoreCorruptError(f"{self._path} is of another network now: restart the program with it")
        return self._take(group.members)

    def register(self, commitment: bytes, limit: int) -> int:
        """Add a member to the file; return its place.

        Raises `ConfigurationError` for a limit below 1, a full group, or an existing member; `StoreLockedError` while
        another process changes the file.
        """
        rate_commitment(commitment, limit)
        new = GroupMember(commitment.hex(), limit)
        with changing(self._path):
            self.refresh()
            if new.commitment in self._places:
                raise ConfigurationError(f"{new.commitment} is a member of {self._path} already")
            if len(self._members) == TREE_PLACES:
                raise ConfigurationError(f"{self._path} is full: a group has {TREE_PLACES} places")
            self._write((*self._members, new))
        return len(self._members) - 1

    def remove(self, index: int) -> None:
        """Remove the member at a place; the place stays empty.

        Raises `ConfigurationError` if the place has no member, and `StoreLockedError` as `register` does.
        """
        with changing(self._path):
            self.refresh()
            if not 0 <= index < len(self._members) or self._members[index] is None:
                raise ConfigurationError(f"{self._path} has no member at place {index}")
            self._write((*self._members[:index], None, *self._members[index + 1 :]))

    def member(self, identity: RlnIdentity) -> RlnMember:
        """Return the member with its path to the newest root. Raises `RlnError` (not ready) for any other identity."""
        text = identity.commitment.hex()
        index = self._places.get(text)
        member = None if index is None else self._members[index]
        if index is None or member is None:
            raise RlnError(RlnErrorKind.NOT_READY, f"{self._path} has no member {text}: register it first")
        return RlnMember(identity=identity, limit=member.limit, path=self._tree.path(index))

    def place(self, commitment: bytes) -> int | None:
        """Return the place of the member with an identity commitment; None if it is no member."""
        return self._places.get(commitment.hex())

    def _write(self, members: tuple[GroupMember | None, ...]) -> None:
        group = _Group(
            format=_FORMAT,
            version=1,
            identifier=self._network.identifier.decode(),
            epoch_ms=self._network.epoch_ms,
            members=members,
        )
        replace_whole(self._path, _encoded(group))
        self._take(members)

    def _take(self, members: tuple[GroupMember | None, ...]) -> bool:
        """Apply the changes to the tree, and add each new root."""
        if len(members) < len(self._members):
            raise StoreCorruptError(f"{self._path} has fewer places than before: members are removed, places are not")
        known = (*self._members, *[None] * (len(members) - len(self._members)))
        changed = [index for index, member in enumerate(members) if member != known[index]]
        for index, leaf in zip(changed, self._leaves(tuple(members[index] for index in changed)), strict=True):
            self._tree.put(index, leaf)
            self._roots.add(self._tree.root)
        self._members = members
        if changed:
            self._places = _places_of(members)
        return bool(changed)

    def _read(self) -> _Group:
        if not self._path.exists():
            raise StorageError(
                f"there is no group {self._path}: give that of the network, or make one by "
                "'fairway rln group FILE --create'"
            )
        with typed_errors(self._path, "reading"):
            if self._path.stat().st_size > MAX_GROUP_BYTES:
                raise StoreCorruptError(f"{self._path} has more than {MAX_GROUP_BYTES} bytes: it is no group")
            data = self._path.read_bytes()
        try:
            return read_json(data, _Group)
        except DecodeError as error:
            raise StoreCorruptError(f"{self._path} is no group of fairway: {error}") from error

    def _leaves(self, members: tuple[GroupMember | None, ...]) -> list[bytes]:
        try:
            return [ZERO if member is None else _leaf(member) for member in members]
        except (ConfigurationError, DecodeError, ValueError) as error:
            raise StoreCorruptError(f"{self._path} has a member that cannot be: {error}") from error


def _places_of(members: Sequence[GroupMember | None]) -> dict[str, int]:
    """Return the first place of each commitment."""
    places: dict[str, int] = {}
    for place, member in enumerate(members):
        if member is not None:
            places.setdefault(member.commitment, place)
    return places


def _leaf(member: GroupMember) -> bytes:
    commitment = bytes.fromhex(member.commitment)
    if commitment.hex() != member.commitment:  # one member has one text
        raise ValueError(f"{member.commitment!r} is not in lower-case hex digits")
    return rate_commitment(commitment, member.limit)


def _encoded(group: _Group) -> bytes:
    return msgspec.json.format(msgspec.json.encode(group), indent=1) + b"\n"
