"""Sealing that gives the same bytes for the same message, so that doing a batch again makes no other messages.

A cipher that draws its nonce at random would turn one SDS message into another WakuMessage, with another hash, each
time a task is tried again. Here what a cipher draws (nonce, padding) is computed from the key and the message itself:
HMAC-SHA-256 under a key of its own, derived from the channel's, over the plaintext, stretched as HKDF-Expand does
(RFC 5869). It is the construction of SIV (RFC 5297, "synthetic initialization vector").

Invariant: two messages that differ get nonces that are as independent as random ones, so the bound on messages per key
of `fairway.protocol.encryption.aead` holds unchanged, together with participants who draw theirs at random. Equal
nonces mean equal messages, which are sealed to equal bytes and so give away nothing but that they are one message: an
SDS message has its sender and Lamport timestamp in it.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from fairway.errors import EncryptionError
from fairway.pipeline.keys import ChannelKeys
from fairway.protocol.encryption import Encryption, seal_at_once, waku_version_of

_PURPOSE: Final = b"fairway outgoing synthetic nonce v1"


class _Synthetic:
    """A source of bytes that depend on a key, on the message that is being sealed and on nothing else."""

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
        # What is drawn twice for one message, such as padding and nonce, must differ.
        drawn = b""
        while len(drawn) < size:
            self._count += 1
            drawn += hmac.digest(self._seed, self._count.to_bytes(4, "big"), "sha256")
        return drawn[:size]


class Sealer:
    """Seals the messages of one channel on one content topic."""

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

    def seal(self, plaintext: bytes) -> bytes:
        """Return a message sealed, or as it is if there are no keys; raises `EncryptionError`."""
        if self._cipher is None or self._source is None:
            return plaintext
        self._source.begin(plaintext)
        return seal_at_once(self._cipher, plaintext)

    def _synthetic(self, key: bytes, context: bytes) -> _Synthetic:
        self._source = _Synthetic(key, context)
        return self._source
