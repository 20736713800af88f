"""Identity keys (libp2p "Peer Ids and Keys"): `PublicKey` of a peer, and `IdentityKey` of a node, which signs.

Signatures of all four types are verified: Ed25519, secp256k1, ECDSA (P-256) and RSA. A public key has exactly one valid
encoding, because the peer id is made of it; any other encoding of the same key is refused.

A node's own key is Ed25519 or secp256k1, as Waku nodes use them. A file holds libp2p's protobuf encoding, which other
implementations read and write, or PEM. The ``repr`` shows only the public key.
"""

from __future__ import annotations

import hashlib
import os
from enum import IntEnum
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import (
    Prehashed,
    decode_dss_signature,
    encode_dss_signature,
)

from fairway.environment import random_bytes
from fairway.errors import ConfigurationError
from fairway.libp2p.decoding import parse_message
from fairway.libp2p.errors import FrameError, IdentityError
from fairway.libp2p.proto import keys_pb2

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
    """A public identity key; its type determines the form of ``data``.

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


_SECP256K1_ORDER: Final = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
_SECRET_BYTES: Final = 32
_RAW: Final = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)
_COMPRESSED: Final = (serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)

_SigningKey = Ed25519PrivateKey | ec.EllipticCurvePrivateKey


class IdentityKey:
    """A private identity key of type Ed25519 or secp256k1. Made by `generate` or one of the ``from_`` methods."""

    __slots__ = ("_key", "public_key")

    public_key: PublicKey
    """The public half."""

    def __init__(self, key: _SigningKey) -> None:
        self._key = key
        if isinstance(key, Ed25519PrivateKey):
            self.public_key = PublicKey(KeyType.ED25519, key.public_key().public_bytes(*_RAW))
        elif isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256K1):
            self.public_key = PublicKey(KeyType.SECP256K1, key.public_key().public_bytes(*_COMPRESSED))
        else:
            raise ConfigurationError("an own identity key is Ed25519 or secp256k1; this is another kind")

    @classmethod
    def generate(cls, key_type: KeyType = KeyType.ED25519) -> IdentityKey:
        """Make a new key from the machine's randomness."""
        # One in 2**127 strings of 32 bytes is no secp256k1 key.
        return cls.from_secret(random_bytes(_SECRET_BYTES), key_type)

    @classmethod
    def from_secret(cls, secret: bytes, key_type: KeyType = KeyType.ED25519) -> IdentityKey:
        """Return the key with these 32 secret bytes (for secp256k1, a node key as node software keeps it in hex)."""
        if len(secret) != _SECRET_BYTES:
            raise ConfigurationError(f"a private key has {_SECRET_BYTES} secret bytes, not {len(secret)}")
        if key_type is KeyType.ED25519:
            return cls(Ed25519PrivateKey.from_private_bytes(secret))
        if key_type is not KeyType.SECP256K1:
            raise ConfigurationError(f"an own identity key is Ed25519 or secp256k1, not {key_type.name}")
        scalar = int.from_bytes(secret)
        if not 0 < scalar < _SECP256K1_ORDER:
            raise ConfigurationError("these bytes are no secp256k1 private key: 0, or not below the curve's order")
        return cls(ec.derive_private_key(scalar, ec.SECP256K1()))

    @classmethod
    def from_bytes(cls, data: bytes) -> IdentityKey:
        """Read the protobuf encoding, or raise `IdentityError`, whose text contains no byte of the key."""
        try:
            message = parse_message(keys_pb2.PrivateKey, bytes(data), max_bytes=MAX_KEY_BYTES)
        except FrameError as error:
            raise IdentityError("not the protobuf encoding of a private key") from error
        key_type, secret = key_type_of(message.type), message.data
        # "Older versions of the libp2p code used the following format: [private key][public key][public key]"
        if key_type is KeyType.ED25519 and len(secret) == 96 and secret[32:64] == secret[64:]:
            secret = secret[:64]
        public = b""
        if key_type is KeyType.ED25519:
            secret, public = secret[:_SECRET_BYTES], secret[_SECRET_BYTES:]
        try:
            key = cls.from_secret(secret, key_type)
        except ConfigurationError as error:
            raise IdentityError(str(error)) from error
        if key_type is KeyType.ED25519 and public != key.public_key.data:
            raise IdentityError("the private key does not belong to the public key beside it")
        return key

    def to_bytes(self) -> bytes:
        """Return the protobuf encoding, which contains the secret."""
        if isinstance(self._key, Ed25519PrivateKey):
            raw = (serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption())
            data = self._key.private_bytes(*raw) + self.public_key.data
        else:
            data = self._key.private_numbers().private_value.to_bytes(_SECRET_BYTES)
        return keys_pb2.PrivateKey(type=self.public_key.type, data=data).SerializeToString(deterministic=True)

    @classmethod
    def from_pem(cls, pem: bytes) -> IdentityKey:
        """Read a PEM text (PKCS #8 or SEC 1), or raise `IdentityError`."""
        try:
            key = serialization.load_pem_private_key(pem, None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            # The text of the cause contains no byte of the key.
            raise IdentityError(f"no private key in PEM form: {error}") from error
        if not isinstance(key, Ed25519PrivateKey | ec.EllipticCurvePrivateKey):
            raise IdentityError("an own identity key is Ed25519 or secp256k1; the PEM text holds another kind")
        try:
            return cls(key)
        except ConfigurationError as error:
            raise IdentityError(str(error)) from error

    @classmethod
    def load(cls, path: Path | str) -> IdentityKey:
        """Read a key file, PEM or protobuf. Raises `IdentityError`, or `OSError` when it cannot be read."""
        with Path(path).open("rb") as file:
            data = file.read(MAX_KEY_BYTES + 1)
        return cls.from_pem(data) if data.startswith(b"-----BEGIN") else cls.from_bytes(data)

    def save(self, path: Path | str) -> None:
        """Write a new protobuf key file that only its owner may read; an existing file is left alone (`OSError`)."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(self.to_bytes())

    def sign(self, message: bytes) -> bytes:
        """Return the signature of ``message``: Ed25519, or ECDSA with SHA-256 in DER with a low ``s``.

        BIP 62 asks for a low ``s``, and js-libp2p refuses signatures with a high one.
        """
        if isinstance(self._key, Ed25519PrivateKey):
            return self._key.sign(message)
        r, s = decode_dss_signature(self._key.sign(message, ec.ECDSA(hashes.SHA256())))
        return encode_dss_signature(r, min(s, _SECP256K1_ORDER - s))

    def sign_digest(self, digest: bytes) -> bytes:
        """Return r and a low s, 64 bytes, of the ECDSA signature of a 32-byte digest, as node records have it.

        Raises `ConfigurationError` for an Ed25519 key.
        """
        if isinstance(self._key, Ed25519PrivateKey):
            raise ConfigurationError("only a secp256k1 key signs node records; this one is Ed25519")
        # Deterministic: the same record has the same bytes (RFC 6979).
        prehashed = ec.ECDSA(Prehashed(hashes.SHA256()), deterministic_signing=True)
        r, s = decode_dss_signature(self._key.sign(digest, prehashed))
        return r.to_bytes(32) + min(s, _SECP256K1_ORDER - s).to_bytes(32)

    def __repr__(self) -> str:
        return f"<PrivateKey of {self.public_key!r}>"
