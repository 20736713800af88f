"""Proves and verifies signals with the circuit.

A proof takes 0.1 to 0.4 s and a verification 2 ms of one core, with the GIL released. So event loops call neither
directly; both may be called from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

from fairway.errors import RlnError, RlnErrorKind
from fairway.extras import needing
from fairway.rln.epochs import RlnNetwork
from fairway.rln.field import ELEMENT_BYTES, element, hash_to_field
from fairway.rln.identity import RlnIdentity
from fairway.rln.proof import PROOF_BYTES, SignalProof
from fairway.rln.tree import MerklePath


@cache
def circuit() -> Any:
    """Return the circuit of RLN-V2 for trees of depth 20; the process loads it once.

    Every method releases the GIL, and threads may share the circuit. A witness is secret | limit | message id | x |
    external nullifier | 20 elements and 20 bits (a byte each) of the path. ``proven`` is proof (128 bytes) | root | x |
    y | nullifier. ``prove_partially`` returns the part that all witnesses with the same secret, limit and path share.
    ``finish`` returns ``proven`` from a witness and this part, in a third of the time of ``prove``.

    Raises `MissingExtraError` without fairway-rln.
    """
    with needing("rln", "RLN"):
        import fairway_rln  # noqa: PLC0415 - an extra

    return fairway_rln.Circuit()


@dataclass(frozen=True, slots=True, kw_only=True)
class RlnMember:
    """A member of a group with its path, as a proof needs them."""

    identity: RlnIdentity
    limit: int
    """Messages in an epoch."""
    path: MerklePath
    """From the member's leaf to the root."""


class CircuitProver:
    """Makes proofs. The caller must not use a message id for two signals of one epoch.

    Two thirds of the work of a proof depend on the member and its path alone. The prover keeps that part for the latest
    member and path. So only the first proof after a change of the group takes the whole time.
    """

    def __init__(self, network: RlnNetwork | None = None) -> None:
        """Load the circuit. Raises `MissingExtraError` without fairway-rln."""
        self._network = network or RlnNetwork()
        self._circuit = circuit()
        self._partial: tuple[RlnMember, Any] | None = None
        self._lock = Lock()

    def prepare(self, member: RlnMember) -> None:
        """Compute the part of proofs that depends on the member and its path alone, in 0.25 s of CPU."""
        self._partial_for(member, self._witness(member, 0, b"", 0))

    def prove(self, member: RlnMember, message_id: int, signal: bytes, epoch: int) -> SignalProof:
        """Return the proof for a signal.

        Raises `RlnError`: permanent for a message id that is not below the limit, not ready if the path begins at
        another leaf than the member's.
        """
        if not 0 <= message_id < member.limit:
            raise RlnError(RlnErrorKind.PERMANENT, f"message id {message_id} of a limit of {member.limit}")
        witness = self._witness(member, message_id, signal, epoch)
        try:
            proven = self._circuit.finish(self._partial_for(member, witness), witness)
        except ValueError as error:
            raise RlnError(RlnErrorKind.PERMANENT, str(error)) from error
        proof, root, x, y, nullifier = _parts(proven)
        if root != member.path.root:
            raise RlnError(RlnErrorKind.NOT_READY, "the group has another identity or limit at the place of the member")
        return SignalProof(
            proof=proof,
            root=root,
            epoch=epoch,
            share_x=x,
            share_y=y,
            nullifier=nullifier,
            identifier=self._network.padded_identifier,
        )

    def _witness(self, member: RlnMember, message_id: int, signal: bytes, epoch: int) -> bytes:
        return b"".join(
            (
                member.identity.secret,
                element(member.limit),
                element(message_id),
                hash_to_field(signal),
                self._network.external_nullifier(epoch),
                *member.path.siblings,
                member.path.bits,
            )
        )

    def _partial_for(self, member: RlnMember, witness: bytes) -> Any:
        with self._lock:
            if self._partial is None or self._partial[0] != member:
                self._partial = (member, self._circuit.prove_partially(witness))
            return self._partial[1]


class CircuitVerifier:
    """Verifies proofs."""

    def __init__(self, network: RlnNetwork | None = None) -> None:
        """Load the circuit. Raises `MissingExtraError` without fairway-rln."""
        self._network = network or RlnNetwork()
        self._circuit = circuit()

    def verify(self, proof: SignalProof, signal: bytes) -> bool:
        """Return whether a proof is valid for this network and signal and for its own root and epoch."""
        if proof.identifier != self._network.padded_identifier or proof.share_x != hash_to_field(signal):
            return False
        proven = b"".join((proof.proof, proof.root, proof.share_x, proof.share_y, proof.nullifier))
        try:
            return bool(self._circuit.verify(proven, self._network.external_nullifier(proof.epoch)))
        except ValueError:  # 128 bytes that are no points of the curve
            return False


def _parts(proven: bytes) -> tuple[bytes, ...]:
    """Return proof, root, x, y and nullifier."""
    return (
        proven[:PROOF_BYTES],
        *(proven[at : at + ELEMENT_BYTES] for at in range(PROOF_BYTES, len(proven), ELEMENT_BYTES)),
    )
