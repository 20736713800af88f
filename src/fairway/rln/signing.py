"""`SignalSigner`: proves the signals of one membership, each under a message id of its own.

All channels and processes of a membership share its message ids. An id is reserved before the proof is begun; what
fails after that costs the id, unless the identical signal is tried again.
"""

from __future__ import annotations

from typing import Protocol

from fairway.errors import RlnError, RlnErrorKind, StorageError
from fairway.protocol.ratelimit import EpochQuota
from fairway.rln.epochs import RlnNetwork
from fairway.rln.identity import Identity
from fairway.rln.message_ids import MessageIds
from fairway.rln.proof import SignalProof
from fairway.rln.proving import Prover, RlnMember


class MembershipSource(Protocol):
    """Where a member is looked up: what a signer asks of a `fairway.rln.group.RlnGroup`."""

    @property
    def network(self) -> RlnNetwork:
        """The network of the group."""

    def member(self, identity: Identity) -> RlnMember:
        """Return the member with its path to the newest root. Raises `RlnError` (not ready) if it is none."""


class SignalSigner:
    """Proves the signals of one identity. It computes and writes, so call it from a worker thread."""

    def __init__(self, identity: Identity, group: MembershipSource, ids: MessageIds, prover: Prover) -> None:
        self._identity = identity
        self._group = group
        self._ids = ids
        self._prover = prover

    def prepare(self) -> None:
        """Compute what all proofs share. Raises `RlnError` (not ready) if the identity is in no group."""
        self._prover.prepare(self._group.member(self._identity))

    def quota(self, now_ms: int) -> EpochQuota:
        """Return what is left of the epoch of ``now_ms``; a limit of 0 if the identity is in no group.

        Raises `RlnError` (transient) if the count cannot be read.
        """
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

    def sign(self, signal: bytes, now_ms: int) -> SignalProof:
        """Return the proof for a signal in the epoch of ``now_ms``.

        Raises `RlnError`: not ready if the identity is in no group, exhausted when the epoch has no id left, transient
        if the id cannot be kept.
        """
        epoch = self._group.network.epoch(now_ms)
        member = self._group.member(self._identity)
        try:
            message_id = self._ids.reserve(self._identity.commitment, epoch, member.limit, signal)
        except StorageError as error:
            raise RlnError(RlnErrorKind.TRANSIENT, str(error)) from error
        return self._prover.prove(member, message_id, signal, epoch)
