"""ECDSA signatures over Keccak-256 with secp256k1, as node records (EIP-778, "v4") and node lists (EIP-1459) have them.

A signature is r and s, 32 bytes each. Of the two valid s only the lower one is accepted, as in libsecp256k1, which
other nodes use: otherwise anyone could make a second valid signature from a known one.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

from fairway.wire.hashing import keccak256

COMPRESSED_BYTES: Final = 33
"""Length of a compressed public key."""
SIGNATURE_BYTES: Final = 64

_HALF_OF_ORDER: Final = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141 // 2
# The digest comes ready made (Keccak-256); SHA-256 names only its length.
_ECDSA: Final = ec.ECDSA(utils.Prehashed(hashes.SHA256()))


def point_of(compressed: bytes) -> ec.EllipticCurvePublicKey:
    """Return the public key in 33 bytes; raise `ValueError` if they are none."""
    if len(compressed) != COMPRESSED_BYTES:
        raise ValueError(f"a compressed public key has {COMPRESSED_BYTES} bytes, not {len(compressed)}")
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), compressed)


def has_signed(key: ec.EllipticCurvePublicKey, signature: bytes, content: bytes) -> bool:
    """Return whether ``signature`` (r and s) is the key's signature of the Keccak-256 of ``content``."""
    r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
    if len(signature) != SIGNATURE_BYTES or s > _HALF_OF_ORDER:
        return False
    try:
        key.verify(utils.encode_dss_signature(r, s), keccak256(content), _ECDSA)
    except InvalidSignature:
        return False
    return True
