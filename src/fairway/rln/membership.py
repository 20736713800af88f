"""`RlnMembership`: makes the RLN proofs of a program. `RlnGroup`: the interface of groups of members.

::

    membership = RlnMembership.load("alice.keystore", password, "group.json")
    node = await fairway.connect(address, rln=membership)

A membership is an identity, its group, and the file that counts its message ids. All channels of a node share it.
Several nodes and processes of one machine may each open a `RlnMembership` with the same file of message ids. Never use
two such files for one identity: both would count from the same number and so reveal the secret.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from fairway.environment import monotonic_s, time_ns
from fairway.errors import FairwayError, RlnError, RlnErrorKind, StorageError
from fairway.protocol.ratelimit import EpochQuota
from fairway.rln.epochs import RlnNetwork
from fairway.rln.identity import RlnIdentity
from fairway.rln.keystore import Keystore
from fairway.rln.membership_file import MembershipFile
from fairway.rln.message_ids import MessageIds
from fairway.rln.proving import CircuitProver, RlnMember
from fairway.rln.tree import RootWindow
from fairway.units import NS_PER_MS

_LOG: Final = logging.getLogger(__name__)
_REFRESH_S: Final = 10.0
"""Interval between two refreshes of the group; validators accept its last roots."""


class RlnGroup(Protocol):
    """A group: `fairway.rln.membership_file.MembershipFile` or `fairway.rln.contract.ContractMembership`.

    The properties return at once. The methods read a disk or a network: call them in a worker thread.
    """

    @property
    def network(self) -> RlnNetwork:
        """The network of the group."""

    @property
    def roots(self) -> RootWindow:
        """The roots that a validator accepts. `refresh` changes this object, so that validators can keep it."""

    def member(self, identity: RlnIdentity) -> RlnMember:
        """Return the member with its path to the newest root. Raises `RlnError` (not ready) for any other identity."""

    def refresh(self) -> bool:
        """Read the group again, and return whether it has changed.

        Call it every few seconds, and when a proof has an unknown root. If the group cannot be read or is damaged, the
        roots stay, and a `FairwayError` is raised, such as `StorageError`, `NodeUnavailableError` or `DecodeError`.
        """


def ids_beside(keystore: str | os.PathLike[str]) -> Path:
    """Return the path of the file with the message ids of the identities in a keystore."""
    path = Path(keystore)
    return path.with_name(f"{path.name}.ids")


class RlnMembership:
    """Makes the proofs of one identity; a `fairway.protocol.ratelimit.RlnProofProvider`.

    Its methods compute, and read and write files: nodes and channels call them in a thread of their own. An id is
    reserved before its proof is begun; a failure after that costs the id, unless the identical signal is tried again.
    """

    def __init__(
        self,
        identity: RlnIdentity,
        group: RlnGroup,
        ids: MessageIds,
        prover: CircuitProver | None = None,
    ) -> None:
        """``ids`` is closed with the membership; ``group`` must not be in use elsewhere.

        Raises `MissingExtraError` without fairway-rln, unless a ``prover`` is given.
        """
        self._identity: Final = identity
        self._group: Final = group
        self._ids: Final = ids
        self._refreshed_s = monotonic_s()
        self._prover: Final = CircuitProver(group.network) if prover is None else prover

    @classmethod
    def open(
        cls,
        identity: RlnIdentity,
        group: RlnGroup | str | os.PathLike[str],
        ids: str | os.PathLike[str],
        *,
        never_used: bool = False,
    ) -> Self:
        """Open or create the file of message ids, and return the membership.

        ``group`` can be the path of a `MembershipFile`. A new file of message ids starts with the next epoch, because
        ids of the present epoch may be used. With ``never_used``, for an identity that never sent, it starts at once.

        Raises `MissingExtraError` without fairway-rln, and a `StorageError` if a file cannot be used.
        """
        group = MembershipFile(group) if isinstance(group, str | os.PathLike) else group
        prover = CircuitProver(group.network)
        if Path(ids).exists():
            kept = MessageIds(ids)
        else:
            next_epoch = group.network.epoch(time_ns() // NS_PER_MS) + 1
            kept = MessageIds.create(ids, first_epoch=0 if never_used else next_epoch)
            if not never_used:
                _LOG.warning(
                    "%s did not exist. Message ids of this epoch may be used, so nothing is sent before the next "
                    "epoch, in at most %g s",
                    ids,
                    group.network.epoch_ms / 1_000,
                )
        return cls(identity, group, kept, prover)

    @classmethod
    def load(
        cls,
        keystore: str | os.PathLike[str],
        password: str,
        group: RlnGroup | str | os.PathLike[str],
        *,
        membership_hash: str | None = None,
    ) -> Self:
        """Return the membership of an identity in a keystore. `ids_beside` is its file of message ids.

        If that file is lost, nothing is sent before the next epoch. ``membership_hash`` chooses one of several
        memberships that the password opens. Raises the errors of `open`, and `WrongPasswordError`.
        """
        identity = Keystore(keystore).membership(password, membership_hash).identity
        return cls.open(identity, group, ids_beside(keystore))

    def __repr__(self) -> str:
        """Show the identity commitment, and no secret."""
        return f"<RlnMembership {self._identity.commitment.hex()}>"

    @property
    def network(self) -> RlnNetwork:
        """The network of the group."""
        return self._group.network

    def prepare(self) -> None:
        """Compute the shared part of all proofs, so that the first proof takes no longer than the others.

        Nodes call it when they start. It does nothing while the identity is not in the group.
        """
        with suppress(RlnError):
            self._prover.prepare(self._group.member(self._identity))

    def epoch_quota(self, now_ms: int) -> EpochQuota:
        """Return the quota of the epoch of ``now_ms``; its limit is 0 while the identity is not in the group.

        Raises `RlnError` (transient) if the count or the group cannot be read.
        """
        self._refresh()
        network = self._group.network
        epoch = network.epoch(now_ms)
        try:
            limit = self._group.member(self._identity).limit
        except RlnError:
            return EpochQuota(epoch_index=epoch, rate_limit=0, epoch_ms=network.epoch_ms)
        try:
            used = self._ids.used(self._identity.commitment, epoch)
        except StorageError as error:
            raise RlnError(RlnErrorKind.TRANSIENT, str(error)) from error
        return EpochQuota(
            epoch_index=epoch, rate_limit=limit, remaining=max(0, limit - used), epoch_ms=network.epoch_ms
        )

    def generate_proof(self, signal: bytes, now_ms: int) -> bytes:
        """Return the proof for a signal in the epoch of ``now_ms``, for field 21 of a WakuMessage.

        Raises `RlnError`: not ready while the identity is not in the group, and exhausted when all ids of the epoch are
        used. It is transient if the id cannot be written or the group cannot be read.
        """
        self._refresh()
        epoch = self._group.network.epoch(now_ms)
        member = self._group.member(self._identity)
        try:
            message_id = self._ids.reserve(self._identity.commitment, epoch, member.limit, signal)
        except StorageError as error:
            raise RlnError(RlnErrorKind.TRANSIENT, str(error)) from error
        return self._prover.prove(member, message_id, signal, epoch).encode()

    def close(self) -> None:
        """Close the file of message ids. Can be called twice."""
        self._ids.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refresh(self) -> None:
        """Read the group again if `_REFRESH_S` have passed."""
        now_s = monotonic_s()
        if now_s - self._refreshed_s < _REFRESH_S:
            return
        self._refreshed_s = now_s
        try:
            self._group.refresh()
        except FairwayError as error:
            raise RlnError(RlnErrorKind.TRANSIENT, f"the group cannot be read: {error}") from error
