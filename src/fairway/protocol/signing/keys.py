"""Keys of members: Ed25519 (RFC 8032), or secp256k1 as in 26/WAKU2-PAYLOAD.

A public key is 32 bytes (Ed25519), or 65 bytes (secp256k1: 0x04, x, y); its size names its kind. Signatures of both
kinds have 64 bytes and are deterministic. That of secp256k1 is ECDSA over the SHA-256 of the data: r and s, with the
lower one of the two valid s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fairway.errors import ConfigurationError
from fairway.protocol.encryption import secp256k1

ED25519: Final = "ed25519"
SECP256K1: Final = "secp256k1"
KINDS: Final = {32: ED25519, secp256k1.PUBLIC_KEY_BYTES: SECP256K1}
"""Size of a public key -> kind of key."""
_ED25519_SECRET_BYTES: Final = 32
_CACHED_KEYS: Final = 1_024
SMALL_ORDER: Final = frozenset(
    bytes.fromhex(encoding)
    for encoding in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)
"""The points of Ed25519 whose order divides 8, without the sign bit. A signature of such a key needs no secret."""

_Verify = Callable[[bytes, bytes], bool]
"""Takes the signature and the data."""


class SigningKey:
    """The private key of a member. Its repr shows only the public key."""

    def __init__(self, secret: bytes, kind: str = ED25519) -> None:
        """``secret`` is 32 bytes. Raises `ConfigurationError` if they are no private key of that kind."""
        if kind not in KINDS.values():
            raise ConfigurationError(f"a signing key is of the kind {ED25519} or {SECP256K1}, not {kind!r}")
        self.kind = kind
        self.secret = secret
        if kind == SECP256K1:
            private = secp256k1.PrivateKey(secret)
            self.public_key: bytes = private.public_key
            self._sign: Callable[[bytes], bytes] = lambda data: private.sign_compact(_digest(data))
            return
        if not isinstance(secret, bytes) or len(secret) != _ED25519_SECRET_BYTES:
            given = f"{len(secret)} bytes" if isinstance(secret, bytes) else f"a {type(secret).__name__}"
            raise ConfigurationError(f"a private key must be {_ED25519_SECRET_BYTES} bytes, not {given}")
        key = ed25519.Ed25519PrivateKey.from_private_bytes(secret)
        self.public_key = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self._sign = key.sign

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {public_key_text(self.public_key)}>"

    def sign(self, data: bytes) -> bytes:
        """Return the signature of ``data``, 64 bytes."""
        return self._sign(data)


def verify(public_key: bytes, signature: bytes, data: bytes) -> bool:
    """Return whether a signature of 64 bytes was made for ``data`` with the private key of a valid public key."""
    return _verifier(public_key)(signature, data)


def public_key_of(given: bytes | str) -> bytes:
    """Return a public key of 32 or 65 bytes, from bytes or from text such as ``ed25519:1f0c...``.

    The text is hexadecimal; the kind before the colon is optional. Raises `ConfigurationError` for anything else.
    """
    key = _from_text(given) if isinstance(given, str) else given
    if not isinstance(key, bytes) or len(key) not in KINDS:
        what = f"{len(key)} bytes" if isinstance(key, bytes) else f"a {type(key).__name__}"
        raise ConfigurationError(
            f"a public key of a member is 32 bytes (ed25519) or 65 bytes (secp256k1), or its text as 'fairway identity "
            f"show' prints it, not {what}"
        )
    try:
        _verifier(key)
    except ValueError as error:
        raise ConfigurationError(f"these {len(key)} bytes are no public key of {KINDS[len(key)]}") from error
    return key


def public_key_text(public_key: bytes) -> str:
    """Return a public key as text: its kind, a colon, and hexadecimal digits."""
    return f"{KINDS[len(public_key)]}:{public_key.hex()}"


def _from_text(text: str) -> bytes:
    kind, _, digits = text.strip().rpartition(":")
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        raise ConfigurationError(f"a public key in text has hexadecimal digits, not {text[:20]!r}") from None
    if kind and KINDS.get(len(key)) != kind:
        raise ConfigurationError(f"{text[:20]!r}... has {len(key)} bytes, which is no {kind or 'public'} key")
    return key


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@lru_cache(_CACHED_KEYS)
def _verifier(public_key: bytes) -> _Verify:
    """Return the function that verifies with a key; raise ValueError if the bytes are no key."""
    if KINDS[len(public_key)] == SECP256K1:
        verify_digest = secp256k1.verifier(public_key)
        return lambda signature, data: verify_digest(signature, _digest(data))
    if public_key[:-1] + bytes([public_key[-1] & 0x7F]) in SMALL_ORDER:
        raise ValueError("a point of small order")
    key = ed25519.Ed25519PublicKey.from_public_bytes(public_key)

    def verifies(signature: bytes, data: bytes) -> bool:
        try:
            key.verify(signature, data)
        except InvalidSignature:
            return False
        return True

    return verifies
