"""Public identity keys of peers (libp2p "Peer Ids and Keys").

Signatures of all four types are verified: Ed25519, secp256k1, ECDSA (P-256) and RSA. A public key has exactly one valid
encoding, because the peer id is made of it; any other encoding of the same key is refused.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fairway.libp2p.errors import FrameError, IdentityError
from fairway.libp2p.proto import keys_pb2
from fairway.libp2p.protobuf import parse_message

MAX_KEY_BYTES: Final = 4096
"""Longer encodings are not parsed; an RSA key of 8,192 bits needs a good kilobyte."""

RSA_BITS: Final = range(2048, 8192 + 1)
"""Accepted sizes of RSA keys, as in go-libp2p: smaller ones are weak, larger ones take too long to verify."""

_KEY_FAULTS: Final = (ValueError, UnsupportedAlgorithm)

_VerifyingKey = Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey


class KeyType(IntEnum):
    """The key types of libp2p with their numbers on the wire."""

    RSA = 0
    ED25519 = 1
    SECP256K1 = 2
    ECDSA = 3


class PublicKey:
    """A public identity key; ``data`` is what its type prescribes.

    Ed25519: 32 bytes. secp256k1: the compressed point, 33 bytes. ECDSA and RSA: DER, SubjectPublicKeyInfo.
    Raises `IdentityError` for data that is no key of that type.
    """

    __slots__ = ("_key", "data", "type")

    def __init__(self, key_type: KeyType, data: bytes) -> None:
        self.type = key_type
        self.data = bytes(data)
        try:
            self._key = _load(key_type, self.data)
        except _KEY_FAULTS as error:
            raise IdentityError(f"{len(data)} bytes are no {key_type.name} public key: {error}") from error

    @classmethod
    def from_bytes(cls, data: bytes) -> PublicKey:
        """Read the protobuf encoding, or raise `IdentityError`."""
        try:
            message = parse_message(keys_pb2.PublicKey, bytes(data), max_bytes=MAX_KEY_BYTES)
        except FrameError as error:
            raise IdentityError(f"no public key: {error}") from error
        key = cls(key_type_of(message.type), message.data)
        if key.to_bytes() != data:
            raise IdentityError("a public key whose encoding is not the one that libp2p prescribes")
        return key

    def to_bytes(self) -> bytes:
        """Return the one protobuf encoding: type, then data, both always present."""
        return keys_pb2.PublicKey(type=self.type, data=self.data).SerializeToString(deterministic=True)

    def verify(self, signature: bytes, message: bytes) -> None:
        """Raise `IdentityError` unless ``signature`` is this key's signature of ``message``."""
        try:
            _verify(self._key, signature, message)
        except (InvalidSignature, *_KEY_FAULTS) as error:
            raise IdentityError(f"not a signature of this {self.type.name} key") from error

    def __eq__(self, other: object) -> bool:
        return (self.type, self.data) == (other.type, other.data) if isinstance(other, PublicKey) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.type, self.data))

    def __repr__(self) -> str:
        return f"PublicKey({self.type.name}, sha256 {hashlib.sha256(self.data).hexdigest()[:16]})"


def key_type_of(number: int) -> KeyType:
    """Return the key type with that number on the wire, or raise `IdentityError`."""
    try:
        return KeyType(number)
    except ValueError as error:
        known = ", ".join(f"{kind.value} {kind.name}" for kind in KeyType)
        raise IdentityError(f"key type {number} is unknown; known are {known}") from error


def _load(key_type: KeyType, data: bytes) -> _VerifyingKey:
    if key_type is KeyType.ED25519:
        return Ed25519PublicKey.from_public_bytes(data)
    if key_type is KeyType.SECP256K1:
        if len(data) != 33:
            raise ValueError("a compressed point has 33 bytes")
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), data)
    key = serialization.load_der_public_key(data)
    if key_type is KeyType.RSA and isinstance(key, rsa.RSAPublicKey):
        if key.key_size not in RSA_BITS:
            raise ValueError(f"{key.key_size} bits; {RSA_BITS[0]} to {RSA_BITS[-1]} are verified")
        return key
    if key_type is KeyType.ECDSA and isinstance(key, ec.EllipticCurvePublicKey):
        if not isinstance(key.curve, ec.SECP256R1):
            raise ValueError(f"curve {key.curve.name}; only P-256 is verified")
        return key
    raise ValueError("the DER data holds another kind of key")


def _verify(key: _VerifyingKey, signature: bytes, message: bytes) -> None:
    if isinstance(key, Ed25519PublicKey):
        key.verify(signature, message)
    elif isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
    else:
        key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
