"""`ProofValidator`: validates the RLN proofs of messages; `NullifierLog`: notices double signals.

17/WAKU2-RLN-RELAY: the epoch is near, the proof is of the message, the root is recent, the proof is valid, and the
nullifier is new. The cheap checks come first, because anybody can send invalid proofs. `examine`, `verify` and `admit`
are the three steps; a server runs the second in another thread.

Other nodes treat every repeated nullifier as spam. Here another proof of the same signal is a duplicate: a client that
missed the answer may send its message again unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from fairway.errors import DecodeError
from fairway.protocol.ratelimit import rln_signal
from fairway.rln.epochs import RlnNetwork
from fairway.rln.field import hash_to_field
from fairway.rln.proof import SignalProof, recover_secret
from fairway.rln.proving import CircuitVerifier
from fairway.rln.tree import RootWindow
from fairway.wire.waku_message import WakuMessage


class ProofFault(Enum):
    """Reasons for refusing a message."""

    MISSING = "missing"
    """The message has no proof."""
    MALFORMED = "malformed"
    """The bytes are no proof."""
    OTHER_NETWORK = "other-network"
    """The proof has another RLN identifier."""
    EPOCH_GAP = "epoch-gap"
    """The proof is of an epoch too far from the validator's."""
    UNKNOWN_ROOT = "unknown-root"
    """The group has, or recently had, no such root."""
    INVALID = "invalid"
    """The proof is invalid, or is of another message."""
    DUPLICATE = "duplicate"
    """The same message was admitted before."""
    DOUBLE_SIGNAL = "double-signal"
    """Another message was admitted under the same message id."""
    NOT_VERIFIED = "not-verified"
    """Too many proofs wait for verification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleSignal:
    """Two signals of one member in one epoch under one message id."""

    first: SignalProof
    second: SignalProof
    secret: bytes = field(repr=False)
    """The member's identity secret; Poseidon of it is the identity commitment."""


class NullifierLog:
    """The nullifiers of valid proofs, by epoch.

    An epoch has at most as many nullifiers as all members together may send messages.
    """

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: dict[int, dict[bytes, SignalProof]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._epochs.values()))

    def note(self, proof: SignalProof) -> SignalProof | DoubleSignal | None:
        """Note a valid proof.

        Returns None for a new nullifier, the earlier proof if it was of the same signal, and a `DoubleSignal` for
        another signal. The first proof stays on record.
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

    def keep_from(self, epoch: int) -> None:
        """Forget the epochs before this one."""
        for old in [each for each in self._epochs if each < epoch]:
            del self._epochs[old]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRefusal:
    """The refusal of a message, for programs and for people."""

    fault: ProofFault
    detail: str
    double_signal: DoubleSignal | None = None
    """The two signals, if this is the second of them."""


_DUPLICATE: Final = ProofRefusal(fault=ProofFault.DUPLICATE, detail="the message was sent before")


class ProofValidator:
    """Judges the proofs of one network, whose group has these roots."""

    def __init__(self, network: RlnNetwork, roots: RootWindow, verifier: CircuitVerifier) -> None:
        self.log: Final = NullifierLog()
        self._network: Final = network
        self._roots: Final = roots
        self._verifier: Final = verifier

    def examine(self, message: WakuMessage, now_ms: int) -> SignalProof | ProofRefusal:
        """Return the proof of a message after all checks but the verification."""
        if not message.rate_limit_proof:
            return ProofRefusal(fault=ProofFault.MISSING, detail="the message has no RLN proof")
        try:
            proof = SignalProof.decode(message.rate_limit_proof)
        except DecodeError as error:
            return ProofRefusal(fault=ProofFault.MALFORMED, detail=f"the RLN proof cannot be read: {error}")
        if proof.identifier != self._network.padded_identifier:
            return ProofRefusal(fault=ProofFault.OTHER_NETWORK, detail="the RLN proof is of another network")
        own, most = self._network.epoch(now_ms), self._network.max_epoch_gap
        if abs(proof.epoch - own) > most:
            return ProofRefusal(
                fault=ProofFault.EPOCH_GAP,
                detail=f"the RLN proof is of epoch {proof.epoch}, here it is {own}; {most} apart is allowed",
            )
        if proof.share_x != hash_to_field(_signal_of(message)):
            return ProofRefusal(fault=ProofFault.INVALID, detail="the RLN proof is of another message")
        if proof.root not in self._roots:
            return ProofRefusal(fault=ProofFault.UNKNOWN_ROOT, detail="the RLN proof has a root that is not known here")
        return proof

    def repeated(self, proof: SignalProof) -> ProofRefusal | None:
        """Return a refusal if this signal was admitted before, also with another proof."""
        return _DUPLICATE if self.log.has(proof) else None

    def verify(self, message: WakuMessage, proof: SignalProof) -> ProofRefusal | None:
        """Return a refusal unless the proof is valid for the message. Takes 2 ms, and may run in any thread."""
        if self._verifier.verify(proof, _signal_of(message)):
            return None
        return ProofRefusal(fault=ProofFault.INVALID, detail="the RLN proof does not hold for this message")

    def admit(self, proof: SignalProof, now_ms: int) -> ProofRefusal | None:
        """Note a valid proof; return a refusal if its nullifier was used before."""
        self.log.keep_from(self._network.epoch(now_ms) - self._network.max_epoch_gap)
        match self.log.note(proof):
            case None:
                return None
            case DoubleSignal() as double:
                return ProofRefusal(
                    fault=ProofFault.DOUBLE_SIGNAL,
                    detail="another message was sent under the same message id of this epoch",
                    double_signal=double,
                )
            case SignalProof():
                return _DUPLICATE


def _signal_of(message: WakuMessage) -> bytes:
    return rln_signal(message.payload, message.content_topic, message.timestamp_ns or 0)
