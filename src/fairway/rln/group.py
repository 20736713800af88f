"""`RlnGroup`: what a node and a member ask of a group, wherever it is kept.

`fairway.rln.membership_file.MembershipFile` is a group in a file, `fairway.rln.contract.ContractMembership` one in a
contract of a chain.
"""

from __future__ import annotations

from typing import Protocol

from fairway.rln.signing import MembershipSource
from fairway.rln.tree import RootWindow


class RlnGroup(MembershipSource, Protocol):
    """A group. Its properties are at hand; its methods read a disk or a network, so call them in a worker thread."""

    @property
    def roots(self) -> RootWindow:
        """The roots that a validator accepts; `refresh` changes this very object, so that validators can hold it."""

    def refresh(self) -> bool:
        """Look at the group again, and return whether it has changed.

        Call it every few seconds, and when a proof has an unknown root. Raises a `FairwayError` if the group cannot be
        read or is damaged, such as `StorageError`, `NodeUnavailableError` and `DecodeError`; the roots stay then.
        """
