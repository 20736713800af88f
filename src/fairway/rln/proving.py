"""Proves and verifies signals: the interfaces, and their implementations with the circuit.

A proof takes 0.1 to 0.4 s and a verification 2 ms of one core, with the GIL released. So event loops call neither
directly; both may be called from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from fairway.errors import RlnError, RlnErrorKind
from fairway.rln.epochs import RlnNetwork
from fairway.rln.field import ELEMENT_BYTES, element, hash_to_field
from fairway.rln.identity import Identity
from fairway.rln.native import Circuit, PartialProof, circuit
from fairway.rln.proof import PROOF_BYTES, SignalProof
from fairway.rln.tree import MerklePath


@dataclass(frozen=True, slots=True, kw_only=True)
class RlnMember:
    """A member of a group, as the circuit wants to know it."""

    identity: Identity
    limit: int
    """Messages in an epoch."""
    path: MerklePath
    """From the member's leaf to the root."""


class Prover(Protocol):
    """Makes proofs. The caller sees to it that no message id proves two signals in one epoch."""

    def prepare(self, member: RlnMember) -> None:
        """Compute what all proofs of a member share, so that the first one takes no longer than the others."""

    def prove(self, member: RlnMember, message_id: int, signal: bytes, epoch: int) -> SignalProof:
        """Return the proof for a signal. Raises `RlnError`."""


class Verifier(Protocol):
    """Says whether proofs hold."""

    def verify(self, proof: SignalProof, signal: bytes) -> bool:
        """Return whether a proof is of this signal and holds for its root and epoch."""


class CircuitProver:
    """Makes proofs with the circuit.

    Two thirds of a proof depend on the member and its path alone. They are computed once and kept for the latest of
    them, so that only the first proof after the group has changed takes the whole time.
    """

    def __init__(self, network: RlnNetwork | None = None) -> None:
        """Load the circuit. Raises `MissingExtraError` without fairway-rln."""
        self._network = network or RlnNetwork()
        self._circuit: Circuit = circuit()
        self._partial: tuple[RlnMember, PartialProof] | None = None
        self._lock = Lock()

    def prepare(self, member: RlnMember) -> None:
        """Compute the part of proofs that depends on the member and its path alone; takes 0.25 s of CPU."""
        self._partial_for(member, self._witness(member, 0, b"", 0))

    def prove(self, member: RlnMember, message_id: int, signal: bytes, epoch: int) -> SignalProof:
        """Return the proof for a signal.

        Raises `RlnError`, permanent for a message id that is not below the limit, and not ready for a member whose leaf
        is not where the path begins.
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
            raise RlnError(RlnErrorKind.NOT_READY, "the group has another identity or limit at the member's place")
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

    def _partial_for(self, member: RlnMember, witness: bytes) -> PartialProof:
        with self._lock:
            if self._partial is None or self._partial[0] != member:
                self._partial = (member, self._circuit.prove_partially(witness))
            return self._partial[1]


class CircuitVerifier:
    """Verifies proofs with the circuit."""

    def __init__(self, network: RlnNetwork | None = None) -> None:
        """Load the circuit. Raises `MissingExtraError` without fairway-rln."""
        self._network = network or RlnNetwork()
        self._circuit: Circuit = circuit()

    def verify(self, proof: SignalProof, signal: bytes) -> bool:
        """Return whether a proof is of this network and signal and holds for its root and epoch."""
        if proof.identifier != self._network.padded_identifier or proof.share_x != hash_to_field(signal):
            return False
        proven = b"".join((proof.proof, proof.root, proof.share_x, proof.share_y, proof.nullifier))
        try:
            return self._circuit.verify(proven, self._network.external_nullifier(proof.epoch))
        except ValueError:  # 128 bytes that are no points of the curve
            return False


def _parts(proven: bytes) -> tuple[bytes, ...]:
    """Return proof, root, x, y and nullifier."""
    return (
        proven[:PROOF_BYTES],
        *(proven[at : at + ELEMENT_BYTES] for at in range(PROOF_BYTES, len(proven), ELEMENT_BYTES)),
    )
