"""AES-256-GCM and ChaCha20-Poly1305: the ciphers for a group that shares one key.

Both hide and authenticate (AEAD): the hook encrypts whole SDS messages, whose fields must not be changed on their way
(LIP-173, "Encryption Hook", leaves the scheme to the caller). The encrypted form is

    nonce (12 bytes) || ciphertext || tag (16 bytes)

Associated data is authenticated but not sent: a channel id given here makes ciphertexts of one channel
unreadable in another that has the same key.

Invariant: every message gets a nonce of its own, drawn at random. Two messages of one key under one nonce
give away the XOR of their contents and let anybody forge messages. Random 96-bit nonces collide with
probability at most 2**-32 as long as a key encrypts at most **2**32 messages, by all participants together**
(NIST SP 800-38D, 8.3; the bound is the birthday's, so it holds for ChaCha20-Poly1305 as well). Change the
key before that: at one message per millisecond it takes 49 days.
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
"""No cipher here encrypts or opens more at once: 32 times the largest message that a channel takes by default."""


def generate_key(*, random_bytes: RandomBytes = os.urandom) -> bytes:
    """Return a new 32-byte key for any of the symmetric ciphers."""
    return draw(random_bytes, KEY_BYTES)


def require_key(key: bytes) -> None:
    """Raise `ConfigurationError` unless ``key`` is 32 bytes; the text never shows it."""
    if not isinstance(key, bytes):
        raise ConfigurationError(f"the key must be {KEY_BYTES} bytes, not a {type(key).__name__}")
    if len(key) != KEY_BYTES:
        raise ConfigurationError(
            f"the key must have {KEY_BYTES} bytes, this one has {len(key)}; generate_key() makes one"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _SharedKeyCipher:
    """One AEAD under one shared key. Pickles with its key, so that Spark executors can use it."""

    _primitive: ClassVar[type[primitives.AESGCM | primitives.ChaCha20Poly1305]]

    key: bytes = field(repr=False)
    """32 secret bytes that every participant has."""
    associated_data: bytes = field(default=b"", kw_only=True)
    """Authenticated with every message and not sent, e.g. the channel id; all participants must agree."""
    random_bytes: RandomBytes = field(default=os.urandom, kw_only=True, repr=False)
    """Where nonces come from; must be unpredictable and never repeat outside tests."""

    def __post_init__(self) -> None:
        require_key(self.key)
        if not isinstance(self.associated_data, bytes):
            raise ConfigurationError(f"associated_data must be bytes, not a {type(self.associated_data).__name__}")

    def encrypt(self, plaintext: bytes, /) -> bytes:
        """Encrypt ``plaintext`` under a fresh nonce; 28 bytes longer. `EncryptionError` if it cannot be."""
        if len(plaintext) > MAX_CIPHERTEXT_BYTES - NONCE_BYTES - TAG_BYTES:
            raise EncryptionError(f"{len(plaintext)} bytes are more than one message may have")
        nonce = draw(self.random_bytes, NONCE_BYTES)
        return nonce + self._primitive(self.key).encrypt(nonce, plaintext, self.associated_data)

    def decrypt(self, ciphertext: bytes, /) -> bytes:
        """Open what `encrypt` made under the same key and associated data, else raise `DecryptionError`."""
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
    """AES-256-GCM: the usual choice, fast wherever the processor has AES instructions."""

    _primitive = primitives.AESGCM


@dataclass(frozen=True, slots=True, eq=False)
class ChaCha20Poly1305(_SharedKeyCipher):
    """ChaCha20-Poly1305 (RFC 8439): fast in constant time on processors without AES instructions."""

    _primitive = primitives.ChaCha20Poly1305
