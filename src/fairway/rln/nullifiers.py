"""`NullifierLog`: notices two signals under one message id, and computes the secret that they give away.

Invariant: only proofs that hold are noted, so that an epoch has at most as many nullifiers as all members together may
send messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.rln.proof import SignalProof, recover_secret


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleSignal:
    """Two signals of one member in one epoch under one message id."""

    first: SignalProof
    second: SignalProof
    secret: bytes = field(repr=False)
    """The member's identity secret; Poseidon of it is the identity commitment."""


class NullifierLog:
    """The nullifiers of some epochs."""

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: dict[int, dict[bytes, SignalProof]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._epochs.values()))

    def note(self, proof: SignalProof) -> SignalProof | DoubleSignal | None:
        """Note a proof that holds.

        Returns None for a new nullifier, the earlier proof if it was of the same signal (a copy, or a message that was
        sent again unchanged), and a `DoubleSignal` for another signal. The first proof stays on record.
        """
        noted = self._epochs.setdefault(proof.epoch, {})
        earlier = noted.setdefault(proof.nullifier, proof)
        if earlier is proof:
            return None
        secret = recover_secret(earlier, proof)
        return earlier if secret is None else DoubleSignal(first=earlier, second=proof, secret=secret)

    def has(self, proof: SignalProof) -> bool:
        """Return whether a proof of the same signal under the same message id is on record."""
        noted = self._epochs.get(proof.epoch, {}).get(proof.nullifier)
        return noted is not None and noted.share_x == proof.share_x

    def used(self, epoch: int) -> int:
        """Return how many nullifiers an epoch has: the messages of all members in it."""
        return len(self._epochs.get(epoch, ()))

    def keep_from(self, epoch: int) -> None:
        """Forget the epochs before this one."""
        for old in [each for each in self._epochs if each < epoch]:
            del self._epochs[old]
