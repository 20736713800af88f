"""How a participant's process takes part in a network with RLN: a membership of a group that is a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairway.rln.membership import RlnMembership


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRln:
    """What the command line says about the membership."""

    group: Path
    """The file of the group."""
    keystore: Path
    password: str = field(repr=False)
    """Of the keystore."""

    def open(self) -> RlnMembership:
        """Return the membership, to be closed; it reads files and decrypts, so call it in a worker thread.

        Raises `WrongPasswordError`, a `StorageError` for files that cannot be used, and `MissingExtraError` without
        fairway-rln.
        """
        from fairway.rln.membership import RlnMembership  # noqa: PLC0415 - most participants need no RLN

        return RlnMembership.load(self.keystore, self.password, self.group)
