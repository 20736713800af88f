"""`RlnMembership`: what a program gives to its node, so that what it sends carries RLN proofs.

::

    membership = RlnMembership.load("alice.keystore", password, "group.json")
    node = await fairway.connect(address, rln=membership)

It is an identity, the group that it is a member of, and the file that counts its message ids. All channels of a node
share it, and so can several nodes and processes of one machine, each with a `RlnMembership` of its own for the same
file of message ids. Two files for one identity would give the identity away: they would count from the same number.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from fairway.environment import monotonic_s, time_ns
from fairway.errors import FairwayError, RlnError, RlnErrorKind
from fairway.protocol.ratelimit import EpochQuota
from fairway.rln.epochs import RlnNetwork
from fairway.rln.group import RlnGroup
from fairway.rln.identity import Identity
from fairway.rln.keystore import Keystore
from fairway.rln.membership_file import MembershipFile
from fairway.rln.message_ids import MessageIds
from fairway.rln.proving import CircuitProver, Prover
from fairway.rln.signing import SignalSigner
from fairway.units import NS_PER_MS

_LOG: Final = logging.getLogger(__name__)
_REFRESH_S: Final = 10.0
"""Longest time for which a proof is made with what is known of the group; validators know its last roots."""


def ids_beside(keystore: str | os.PathLike[str]) -> Path:
    """Return the path of the file that counts the message ids of the identities in a keystore."""
    path = Path(keystore)
    return path.with_name(f"{path.name}.ids")


class RlnMembership:
    """Proves what is sent with one identity; a `fairway.protocol.ratelimit.RlnProofProvider`.

    Its methods compute, and read and write files: nodes and channels call them in a thread of their own.
    """

    def __init__(
        self,
        identity: Identity,
        group: RlnGroup,
        ids: MessageIds,
        prover: Prover | None = None,
        *,
        clock_s: Callable[[], float] = monotonic_s,
    ) -> None:
        """``ids`` is closed with the membership; ``group`` must not be in use elsewhere.

        Raises `MissingExtraError` without fairway-rln, unless a ``prover`` is given.
        """
        self._identity: Final = identity
        self._group: Final = group
        self._ids: Final = ids
        self._clock_s: Final = clock_s
        self._looked_s = clock_s()
        prover = CircuitProver(group.network) if prover is None else prover
        self._signer: Final = SignalSigner(identity, group, ids, prover)

    @classmethod
    def open(
        cls,
        identity: Identity,
        group: RlnGroup | str | os.PathLike[str],
        ids: str | os.PathLike[str],
        *,
        never_used: bool = False,
    ) -> Self:
        """Open the file of message ids, or begin one, and return the membership.

        ``group`` can be the path of a `MembershipFile`. If there is no file of message ids, nothing is sent before the
        next epoch, since ids of this one may be used up; with ``never_used`` it may, for an identity that never sent.

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
                    "%s was not there: message ids of this epoch may be used up, so nothing is sent before the "
                    "next one, in at most %g s",
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
        """Return the membership of an identity in a keystore; its message ids are counted beside that (`ids_beside`).

        If that file is lost, nothing is sent before the next epoch. ``membership_hash`` names one of several
        memberships that the password opens. Raises as `open` does, and `WrongPasswordError`.
        """
        identity = Keystore(keystore).membership(password, membership_hash).identity
        return cls.open(identity, group, ids_beside(keystore))

    def __repr__(self) -> str:
        """Show the member's name in the group, and no secret."""
        return f"<RlnMembership {self._identity.commitment.hex()}>"

    @property
    def network(self) -> RlnNetwork:
        """Epochs and identifier of the network that it is for."""
        return self._group.network

    def prepare(self) -> None:
        """Compute what all proofs share, so that the first one takes no longer than the others.

        Nodes call it when they start. It does nothing while the identity is not in the group.
        """
        with suppress(RlnError):
            self._signer.prepare()

    def epoch_quota(self, now_ms: int) -> EpochQuota:
        """Return what is left of the epoch of ``now_ms``; a limit of 0 while the identity is not in the group.

        Raises `RlnError` if the count or the group cannot be read now.
        """
        self._look()
        return self._signer.quota(now_ms)

    def generate_proof(self, signal: bytes, now_ms: int) -> bytes:
        """Return the proof for a signal in the epoch of ``now_ms``, for field 21 of a WakuMessage.

        Raises `RlnError`: not ready while the identity is not in the group, exhausted when the epoch has no id left,
        transient if an id cannot be kept.
        """
        self._look()
        return self._signer.sign(signal, now_ms).encode()

    def close(self) -> None:
        """Close the file of message ids. Can be called twice."""
        self._ids.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _look(self) -> None:
        """Read the group again if that was long ago."""
        now_s = self._clock_s()
        if now_s - self._looked_s < _REFRESH_S:
            return
        self._looked_s = now_s
        try:
            self._group.refresh()
        except FairwayError as error:
            raise RlnError(RlnErrorKind.TRANSIENT, f"the group cannot be read: {error}") from error
