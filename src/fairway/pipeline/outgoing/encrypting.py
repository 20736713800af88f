"""`Encrypter`: encrypts the same message to the same bytes, so that repeating a batch makes the same messages.

With a random nonce an SDS message would become another WakuMessage, with another hash, whenever a task is repeated. So
the random bytes of a cipher (nonce, padding) are computed from the key and the message: HMAC-SHA-256 over the
plaintext, under a key derived from that of the channel, expanded as in HKDF-Expand (RFC 5869). This is the construction
of SIV (RFC 5297, "synthetic initialization vector").

Invariant: different messages get nonces that are as independent as random ones, so that the bound on messages per key
of `fairway.protocol.encryption.aead` holds, also together with participants that use random nonces. Equal nonces mean
equal messages, which are encrypted to equal bytes and reveal only that they are equal: an SDS message contains its
sender and Lamport timestamp.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from fairway.errors import EncryptionError
from fairway.pipeline.keys import ChannelKeys
from fairway.protocol.encryption import Encryption, encrypt_at_once, waku_version_of

_PURPOSE: Final = b"fairway outgoing synthetic nonce v1"


class _Synthetic:
    """A source of bytes that depend only on a key and on the message to encrypt."""

    def __init__(self, key: bytes, context: bytes) -> None:
        self._key = hmac.digest(key, _PURPOSE + context, "sha256")
        self._seed: bytes | None = None
        self._count = 0

    def begin(self, plaintext: bytes) -> None:
        self._seed = hmac.digest(self._key, hashlib.sha256(plaintext).digest(), "sha256")
        self._count = 0

    def __call__(self, size: int) -> bytes:
        if self._seed is None:
            raise EncryptionError("there is no message to compute a nonce from")
        # Two draws for one message, such as padding and nonce, must differ.
        drawn = b""
        while len(drawn) < size:
            self._count += 1
            drawn += hmac.digest(self._seed, self._count.to_bytes(4, "big"), "sha256")
        return drawn[:size]


class Encrypter:
    """Encrypts the messages of one channel on one content topic."""

    def __init__(self, keys: ChannelKeys | None, channel_id: str, content_topic: str) -> None:
        """Take the newest key; raise `EncryptionError` if there are keys and none is for this channel."""
        self._source: _Synthetic | None = None
        self._cipher: Encryption | None = None
        if keys is not None:
            self._cipher = keys.cipher_for_sending(channel_id, content_topic, self._synthetic)
            if self._cipher is None:
                raise EncryptionError(
                    f"the key file has no key for the channel {channel_id!r} or its topic {content_topic}: add one, or "
                    "send what is in clear in a batch of its own, without --keys"
                )

    @property
    def waku_version(self) -> int:
        """Return the version that the WakuMessages carry."""
        return waku_version_of(self._cipher)

    def encrypt(self, plaintext: bytes) -> bytes:
        """Return a message encrypted, or as it is if there are no keys; raises `EncryptionError`."""
        if self._cipher is None or self._source is None:
            return plaintext
        self._source.begin(plaintext)
        return encrypt_at_once(self._cipher, plaintext)

    def _synthetic(self, key: bytes, context: bytes) -> _Synthetic:
        self._source = _Synthetic(key, context)
        return self._source
