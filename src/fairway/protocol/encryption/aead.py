"""AES-256-GCM and ChaCha20-Poly1305: the ciphers for a group with a shared key.

Both encrypt and authenticate (AEAD), because the fields of an SDS message must not be altered. LIP-173, "Encryption
Hook", leaves the scheme to the caller. The encrypted form is

    nonce (12 bytes) || ciphertext || tag (16 bytes)

Associated data is authenticated but not sent. With the channel id as associated data, a ciphertext of one channel does
not decrypt in another channel with the same key.

Invariant: every message has its own random nonce. Two messages with the same key and nonce reveal the XOR of their
contents and allow forgeries. Random 96-bit nonces collide with probability at most 2**-32 if all participants together
encrypt at most **2**32 messages with a key** (NIST SP 800-38D, 8.3). This is the birthday bound, so it also holds for
ChaCha20-Poly1305. Change the key before that: at one message per millisecond it takes 49 days.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import aead as primitives

from fairway.errors import ConfigurationError, DecryptionError, EncryptionError
from fairway.protocol.encryption.entropy import RandomBytes, draw

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
MAX_CIPHERTEXT_BYTES: Final = 2**25
"""Bound on the size of a ciphertext: 32 times the largest message that a channel accepts by default."""


def generate_key(*, random_bytes: RandomBytes = os.urandom) -> bytes:
    """Return a new 32-byte key for any of the symmetric ciphers."""
    return draw(random_bytes, KEY_BYTES)


def require_key(key: bytes) -> None:
    """Raise `ConfigurationError` unless ``key`` is 32 bytes; the text never shows the key."""
    if not isinstance(key, bytes):
        raise ConfigurationError(f"the key must be {KEY_BYTES} bytes, not a {type(key).__name__}")
    if len(key) != KEY_BYTES:
        raise ConfigurationError(
            f"the key must have {KEY_BYTES} bytes, this one has {len(key)}; generate_key() makes one"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _SharedKeyCipher:
    """An AEAD with a shared key. Its pickle contains the key, so Spark executors can use it."""

    _primitive: ClassVar[type[primitives.AESGCM | primitives.ChaCha20Poly1305]]

    key: bytes = field(repr=False)
    """Shared secret of all participants, 32 bytes."""
    associated_data: bytes = field(default=b"", kw_only=True)
    """Authenticated with every message and not sent, e.g. the channel id; all participants must agree."""
    random_bytes: RandomBytes = field(default=os.urandom, kw_only=True, repr=False)
    """Source of nonces; outside tests it must be unpredictable and never repeat."""

    def __post_init__(self) -> None:
        require_key(self.key)
        if not isinstance(self.associated_data, bytes):
            raise ConfigurationError(f"associated_data must be bytes, not a {type(self.associated_data).__name__}")

    def encrypt(self, plaintext: bytes, /) -> bytes:
        """Encrypt ``plaintext`` with a new nonce; the result is 28 bytes longer. Raise `EncryptionError` on failure."""
        if len(plaintext) > MAX_CIPHERTEXT_BYTES - NONCE_BYTES - TAG_BYTES:
            raise EncryptionError(f"{len(plaintext)} bytes are more than one message may have")
        nonce = draw(self.random_bytes, NONCE_BYTES)
        return nonce + self._primitive(self.key).encrypt(nonce, plaintext, self.associated_data)

    def decrypt(self, ciphertext: bytes, /) -> bytes:
        """Decrypt a result of `encrypt` with the same key and associated data, or raise `DecryptionError`."""
        if not NONCE_BYTES + TAG_BYTES <= len(ciphertext) <= MAX_CIPHERTEXT_BYTES:
            raise DecryptionError(f"{len(ciphertext)} bytes cannot be an encrypted message")
        view = memoryview(ciphertext)
        try:
            return self._primitive(self.key).decrypt(
                bytes(view[:NONCE_BYTES]), view[NONCE_BYTES:], self.associated_data
            )
        except InvalidTag as cause:
            raise DecryptionError("not encrypted with this key and associated data, or altered on the way") from cause


@dataclass(frozen=True, slots=True, eq=False)
class AesGcm(_SharedKeyCipher):
    """AES-256-GCM: the usual choice, fast on processors with AES instructions."""

    _primitive = primitives.AESGCM


@dataclass(frozen=True, slots=True, eq=False)
class ChaCha20Poly1305(_SharedKeyCipher):
    """ChaCha20-Poly1305 (RFC 8439): fast in constant time on processors without AES instructions."""

    _primitive = primitives.ChaCha20Poly1305
