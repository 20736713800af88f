"""`ProofValidator`: what a relay, a service node or a REST server thinks of the proof of a message.

17/WAKU2-RLN-RELAY: the epoch is near, the proof is of the message, the root is a recent one, the proof holds, and the
nullifier is new. The cheap questions come first, because anybody can send proofs that do not hold. `examine`, `verify`
and `admit` are the three steps, of which a server does the second in another thread; `judge` is all three.

Other nodes take every repeated nullifier for spam. Here another proof of the same signal is a duplicate: a client that
sends a message again unchanged, because it missed the answer, gives nothing away and is no spammer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from fairway.errors import DecodeError
from fairway.protocol.ratelimit import rln_signal
from fairway.rln.epochs import RlnNetwork
from fairway.rln.field import hash_to_field
from fairway.rln.nullifiers import DoubleSignal, NullifierLog
from fairway.rln.proof import SignalProof
from fairway.rln.proving import Verifier
from fairway.rln.tree import RootWindow
from fairway.wire.waku_message import WakuMessage


class ProofFault(Enum):
    """Why a message is not relayed."""

    MISSING = "missing"
    """It has no proof."""
    MALFORMED = "malformed"
    """The bytes are no proof."""
    OTHER_NETWORK = "other-network"
    """The proof has another RLN identifier."""
    EPOCH_GAP = "epoch-gap"
    """The proof is of an epoch too far from the validator's."""
    UNKNOWN_ROOT = "unknown-root"
    """The group has, or recently had, no such root."""
    INVALID = "invalid"
    """The proof does not hold, or is of another message."""
    DUPLICATE = "duplicate"
    """The same message was admitted before."""
    DOUBLE_SIGNAL = "double-signal"
    """Another message was admitted under the same message id."""
    NOT_VERIFIED = "not-verified"
    """So many proofs wait for verification that this one was not verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRefusal:
    """A message that is not relayed."""

    fault: ProofFault
    detail: str
    """For people."""
    double_signal: DoubleSignal | None = None
    """What a double signal gives away."""


_DUPLICATE: Final = ProofRefusal(fault=ProofFault.DUPLICATE, detail="the message was sent before")


class ProofValidator:
    """Judges the proofs of one network, whose group has these roots."""

    def __init__(
        self,
        network: RlnNetwork,
        roots: RootWindow,
        verifier: Verifier,
        log: NullifierLog | None = None,
    ) -> None:
        self._network = network
        self._roots = roots
        self._verifier = verifier
        self._log = NullifierLog() if log is None else log

    def judge(self, message: WakuMessage, now_ms: int) -> SignalProof | ProofRefusal:
        """Return the proof of a message that may be relayed, or why it may not be."""
        proof = self.examine(message, now_ms)
        if isinstance(proof, ProofRefusal):
            return proof
        return self.repeated(proof) or self.verify(message, proof) or self.admit(proof, now_ms) or proof

    def examine(self, message: WakuMessage, now_ms: int) -> SignalProof | ProofRefusal:
        """Return the proof of a message if all but its mathematics is right."""
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
        """Return a refusal if this signal was admitted before. Whether this proof of it holds makes no difference."""
        if self._log.has(proof):
            return _DUPLICATE
        return None

    def verify(self, message: WakuMessage, proof: SignalProof) -> ProofRefusal | None:
        """Return a refusal unless the proof holds for the message. Takes 2 ms, and may run in any thread."""
        if self._verifier.verify(proof, _signal_of(message)):
            return None
        return ProofRefusal(fault=ProofFault.INVALID, detail="the RLN proof does not hold for this message")

    def admit(self, proof: SignalProof, now_ms: int) -> ProofRefusal | None:
        """Note a proof that holds; return a refusal if its nullifier was used before."""
        self._log.keep_from(self._network.epoch(now_ms) - self._network.max_epoch_gap)
        match self._log.note(proof):
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
