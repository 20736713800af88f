"""secp256k1 as in Ethereum: keys, ECDH, and signatures from which the signer's public key is recovered.

26/WAKU2-PAYLOAD, "Signature" and "ECIES", need three operations. The `cryptography` package does all operations with a
private key (its public key, the shared x coordinate, the ECDSA nonce and signature) in constant time. It cannot
*recover* the public key from a signature; this module does that in Python integers (SEC 1, section 4.1.6). The time of
the recovery depends on its input, which is harmless: each reader of the message knows the signature, the digest and the
public key. No secret is an input.

Keys are 32 bytes (private) and 65 bytes (public: 0x04, x, y). Signatures are 65 bytes: r, s, recovery id.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fairway.errors import ConfigurationError, DecryptionError, EncryptionError
from fairway.protocol.encryption.entropy import RandomBytes, draw

PRIVATE_KEY_BYTES: Final = 32
PUBLIC_KEY_BYTES: Final = 65
SIGNATURE_BYTES: Final = 65
_UNCOMPRESSED: Final = 4

# SEC 2, section 2.4.1: y**2 = x**3 + 7 over the field of P, generator (GX, GY) of order N.
_P: Final = 2**256 - 2**32 - 977
_N: Final = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
_GX: Final = 0x79BE667E_F9DCBBAC_55A06295_CE870B07_029BFCDB_2DCE28D9_59F2815B_16F81798
_GY: Final = 0x483ADA77_26A3C465_5DA4FBFC_0E1108A8_FD17B448_A6855419_9C47D08F_FB10D4B8

# "v should be either 27 or 28" (26/WAKU2-PAYLOAD, "Signature"); js-waku writes and reads
# only 0 or 1. Both pairs mean the parity of the y coordinate of the signature's point.
_PARITY_OF_V: Final = {0: 0, 1: 1, 27: 0, 28: 1}


def generate_private_key(*, random_bytes: RandomBytes = os.urandom) -> bytes:
    """Return a new 32-byte private key, for `EciesPayload` or for signing."""
    key = draw(random_bytes, PRIVATE_KEY_BYTES)
    PrivateKey(key)
    return key


def get_public_key(private_key: bytes) -> bytes:
    """Return the 65-byte public key of a 32-byte private key."""
    return PrivateKey(private_key).public_key


class PrivateKey:
    """A checked private key. Its repr shows only the public key; its pickle contains the secret."""

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes) or len(secret) != PRIVATE_KEY_BYTES:
            given = f"{len(secret)} bytes" if isinstance(secret, bytes) else f"a {type(secret).__name__}"
            raise ConfigurationError(f"a private key must be {PRIVATE_KEY_BYTES} bytes, not {given}")
        scalar = int.from_bytes(secret, "big")
        if not 0 < scalar < _N:
            raise ConfigurationError("these bytes are no private key: outside the order of secp256k1")
        self._secret = secret
        self._key = ec.derive_private_key(scalar, ec.SECP256K1())
        self.public_key: bytes = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        """65 bytes: 0x04, x, y."""

    def __repr__(self) -> str:
        return f"PrivateKey(public_key={self.public_key.hex()})"

    def __reduce__(self) -> tuple[type[PrivateKey], tuple[bytes]]:
        return PrivateKey, (self._secret,)

    def shared_x(self, public_key: bytes) -> bytes:
        """Return the x coordinate of the ECDH point, 32 bytes; raise ValueError if ``public_key`` is not a point."""
        return self._key.exchange(ec.ECDH(), _point_of(public_key))

    def sign(self, digest: bytes) -> bytes:
        """Return r, s and the recovery id (0 or 1) of the ECDSA signature of a 32-byte digest, 65 bytes."""
        compact = self.sign_compact(digest)
        for recovery_id in (b"\x00", b"\x01"):
            if recover_public_key(digest, compact + recovery_id) == self.public_key:
                return compact + recovery_id
        raise EncryptionError("the signature's recovery id could not be found")

    def sign_compact(self, digest: bytes) -> bytes:
        """Return r and s of the ECDSA signature of a 32-byte digest, 64 bytes."""
        r, s = utils.decode_dss_signature(self._key.sign(digest, _ecdsa()))
        # The lower one of the two valid s, as in every Ethereum library.
        return r.to_bytes(32, "big") + min(s, _N - s).to_bytes(32, "big")


def require_public_key(public_key: bytes) -> None:
    """Raise `ConfigurationError` unless these are the 65 bytes of a point on the curve."""
    try:
        _point_of(public_key)
    except (TypeError, ValueError) as cause:
        raise ConfigurationError(
            f"a public key must be {PUBLIC_KEY_BYTES} bytes, 0x04 and the coordinates of a point of secp256k1"
        ) from cause


def recover_public_key(digest: bytes, signature: bytes) -> bytes:
    """Return the 65-byte public key that verifies ``signature`` for the 32-byte ``digest``.

    Recovering *is* verifying: compare the result with the expected key. Raises `DecryptionError` for a signature
    without such a key.
    """
    parity = _PARITY_OF_V.get(signature[64]) if len(signature) == SIGNATURE_BYTES else None
    if parity is None:
        raise DecryptionError("a signature must be 65 bytes that end in 0, 1, 27 or 28")
    r = int.from_bytes(signature[:32], "big")
    s = int.from_bytes(signature[32:64], "big")
    if not (0 < r < _N and 0 < s < _N):
        raise DecryptionError("the signature lies outside the order of secp256k1")
    y_squared = (pow(r, 3, _P) + 7) % _P
    y = pow(y_squared, (_P + 1) // 4, _P)
    if y * y % _P != y_squared:
        raise DecryptionError("the signature's r is not the coordinate of a point of secp256k1")
    if y % 2 != parity:
        y = _P - y
    r_inverse = pow(r, -1, _N)
    z = int.from_bytes(digest, "big")
    point = _sum_of_products(-z * r_inverse % _N, (_GX, _GY, 1), s * r_inverse % _N, (r, y, 1))
    if not point[2]:
        raise DecryptionError("the signature recovers to no public key")
    z_inverse = pow(point[2], -1, _P)
    x = point[0] * z_inverse**2 % _P
    y = point[1] * z_inverse**3 % _P
    return bytes([_UNCOMPRESSED]) + x.to_bytes(32, "big") + y.to_bytes(32, "big")


def verifier(public_key: bytes) -> Callable[[bytes, bytes], bool]:
    """Return a function of r and s (64 bytes) and a 32-byte digest: whether this key signed the digest.

    It rejects the higher one of the two valid s, so a message has one signature. Raises ValueError if ``public_key`` is
    not a point.
    """
    key, scheme = _point_of(public_key), ec.ECDSA(utils.Prehashed(hashes.SHA256()))

    def verifies(compact: bytes, digest: bytes) -> bool:
        r, s = int.from_bytes(compact[:32], "big"), int.from_bytes(compact[32:], "big")
        if not (0 < r < _N and 0 < s <= _N // 2):
            return False
        try:
            key.verify(utils.encode_dss_signature(r, s), digest, scheme)
        except InvalidSignature:
            return False
        return True

    return verifies


def _ecdsa() -> ec.ECDSA:
    # The digest is a Keccak-256; SHA-256 gives its length and the hash of the RFC 6979 nonce. Signatures are
    # deterministic: a weak source of random bytes cannot reveal the key, and js-waku makes the same signature.
    try:
        return ec.ECDSA(utils.Prehashed(hashes.SHA256()), deterministic_signing=True)
    except UnsupportedAlgorithm as cause:
        raise EncryptionError("signing needs a cryptography package built on OpenSSL 3.2 or newer") from cause


def _point_of(public_key: bytes) -> ec.EllipticCurvePublicKey:
    # Compressed forms are valid encodings, but js-waku rejects them.
    if len(public_key) != PUBLIC_KEY_BYTES:
        raise ValueError("not an uncompressed point")
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), public_key)


_Point = tuple[int, int, int]
"""Jacobian coordinates: the point (X / Z**2, Y / Z**3) of the curve, or the point at infinity if Z is 0."""

_INFINITY: Final[_Point] = (1, 1, 0)


def _sum_of_products(a: int, p: _Point, b: int, q: _Point) -> _Point:
    """Return a*p + b*q, computed in one pass over the bits (Shamir's trick)."""
    addends = {(0, 1): q, (1, 0): p, (1, 1): _add(p, q)}
    total = _INFINITY
    for bit in range(max(a.bit_length(), b.bit_length()) - 1, -1, -1):
        total = _double(total)
        addend = addends.get((a >> bit & 1, b >> bit & 1))
        if addend is not None:
            total = _add(total, addend)
    return total


def _double(point: _Point) -> _Point:
    x, y, z = point
    y_squared = y * y % _P
    slope = 3 * x * x
    s = 4 * x * y_squared
    x_out = (slope * slope - 2 * s) % _P
    return x_out, (slope * (s - x_out) - 8 * y_squared * y_squared) % _P, 2 * y * z % _P


def _add(p: _Point, q: _Point) -> _Point:
    if not p[2]:
        return q
    if not q[2]:
        return p
    pz_squared, qz_squared = p[2] * p[2] % _P, q[2] * q[2] % _P
    u = p[0] * qz_squared % _P
    v = p[1] * qz_squared * q[2] % _P
    h = (q[0] * pz_squared - u) % _P
    slope = (q[1] * pz_squared * p[2] - v) % _P
    if not h:
        # The same x coordinate: the points are equal or opposite.
        return _INFINITY if slope else _double(p)
    h_squared = h * h % _P
    h_cubed = h * h_squared % _P
    x_out = (slope * slope - h_cubed - 2 * u * h_squared) % _P
    return x_out, (slope * (u * h_squared - x_out) - v * h_cubed) % _P, h * p[2] * q[2] % _P
