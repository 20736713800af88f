"""`SignalProof`: a `RateLimitProof` with valid fields, and the share of the secret in it.

The share is the point (x, y) on the line y = secret + slope * x. There x is the hash of the signal, and the slope
follows from the secret, the epoch and the message id. One point reveals nothing; two points of one line give the secret
(RLN-V2).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Self

from fairway.errors import DecodeError
from fairway.rln.epochs import decode_epoch, encode_epoch
from fairway.rln.field import ELEMENT_BYTES, FIELD_ORDER, element, number_of
from fairway.wire.waku_message import RateLimitProof, decode_rate_limit_proof, encode_rate_limit_proof

PROOF_BYTES: Final = 128
"""Length of a compressed Groth16 proof."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalProof:
    """The proof of one signal. All elements are canonical; only a `Verifier` shows whether the proof is valid."""

    proof: bytes = field(repr=False)
    """The zero-knowledge proof, 128 bytes."""
    root: bytes
    """Root of the tree of the group."""
    epoch: int
    share_x: bytes
    """Hash of the signal."""
    share_y: bytes
    nullifier: bytes
    """Equal for two signals of one member in one epoch under one message id."""
    identifier: bytes
    """RLN identifier, 32 bytes."""

    def __post_init__(self) -> None:
        if len(self.proof) != PROOF_BYTES:
            raise DecodeError(f"a proof has {PROOF_BYTES} bytes, not {len(self.proof)}")
        for name in ("root", "share_x", "share_y", "nullifier"):
            number_of(getattr(self, name), name)
        if len(self.identifier) != ELEMENT_BYTES:
            raise DecodeError(f"an RLN identifier has {ELEMENT_BYTES} bytes, not {len(self.identifier)}")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the proof in field 21 of a WakuMessage. Raises `DecodeError`, which names the invalid field."""
        wire = decode_rate_limit_proof(data)
        return cls(
            proof=wire.proof,
            root=wire.merkle_root,
            epoch=decode_epoch(wire.epoch),
            share_x=wire.share_x,
            share_y=wire.share_y,
            nullifier=wire.nullifier,
            identifier=wire.rln_identifier,
        )

    def encode(self) -> bytes:
        """Return the bytes for field 21 of a WakuMessage."""
        return encode_rate_limit_proof(
            RateLimitProof(
                proof=self.proof,
                merkle_root=self.root,
                epoch=encode_epoch(self.epoch),
                share_x=self.share_x,
                share_y=self.share_y,
                nullifier=self.nullifier,
                rln_identifier=self.identifier,
            )
        )


def recover_secret(first: SignalProof, second: SignalProof) -> bytes | None:
    """Return the identity secret from two proofs with one nullifier; None if they have the same x."""
    x1, y1, x2, y2 = (number_of(share) for share in (first.share_x, first.share_y, second.share_x, second.share_y))
    if x1 == x2:
        return None
    slope = (y1 - y2) * pow(x1 - x2, -1, FIELD_ORDER)
    return element((y1 - slope * x1) % FIELD_ORDER)
