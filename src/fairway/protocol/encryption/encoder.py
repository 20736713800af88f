"""Encoder and decoder of RELIABLE-CHANNEL-API: a content topic with a cipher.

The first text of RELIABLE-CHANNEL-API ("Create Reliable Channel") gives a channel an encoder and a decoder. Its later
text gives it a content topic, and LIP-173 adds an encryption. `Encoder` and `Decoder` have the names of js-waku. A
channel uses their ``content_topic`` and ``encryption`` ("All messages sent and received in the channel MUST use the
same encoder and decoder"). Alone they convert a payload to a `WakuMessage` and back.

Invariant: `Decoder.decode` returns only payloads with its content topic and its cipher's WakuMessage version that were
decrypted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from fairway.errors import ConfigurationError, DecryptionError
from fairway.protocol.encryption.hook import (
    Encryption,
    check_encryption,
    decrypt_at_once,
    encrypt_at_once,
    waku_version_of,
)
from fairway.protocol.encryption.payload_frame import DecodedPayload
from fairway.protocol.encryption.payload_v1 import (
    EciesPayload,
    PayloadCipher,
    PayloadKeyRing,
    SymmetricPayload,
)
from fairway.type_checks import check_type
from fairway.wire.waku_message import WakuMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairway.protocol.encryption.entropy import RandomBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopicAndCipher:
    """The common fields of `Encoder` and `Decoder`."""

    content_topic: str
    """Content topic of the messages."""
    encryption: Encryption | None = None
    """Cipher of the messages; None for plaintext."""

    def __post_init__(self) -> None:
        check_type("content_topic", self.content_topic, str, "give one such as /my-app/1/team/proto")
        if not self.content_topic:
            raise ConfigurationError("a content topic must be given, e.g. /my-app/1/team/proto")
        check_encryption(self.encryption)
        waku_version_of(self.encryption)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder(_TopicAndCipher):
    """Encodes WakuMessages for one content topic (RELIABLE-CHANNEL-API, "Create Reliable Channel").

    `symmetric` and `ecies` return an encoder for 26/WAKU2-PAYLOAD; give any other cipher as ``encryption``.
    """

    ephemeral: bool = False
    """Whether the messages are marked as ephemeral, so that stores do not keep them."""

    @classmethod
    def symmetric(
        cls,
        content_topic: str,
        key: bytes,
        *,
        sign_with: bytes | None = None,
        ephemeral: bool = False,
        random_bytes: RandomBytes = os.urandom,
    ) -> Self:
        """Return an encoder that encrypts with a shared key (26/WAKU2-PAYLOAD, "Symmetric")."""
        cipher = SymmetricPayload(key, sign_with=sign_with, random_bytes=random_bytes)
        return cls(content_topic=content_topic, encryption=cipher, ephemeral=ephemeral)

    @classmethod
    def ecies(
        cls,
        content_topic: str,
        public_key: bytes,
        *,
        sign_with: bytes | None = None,
        ephemeral: bool = False,
        random_bytes: RandomBytes = os.urandom,
    ) -> Self:
        """Return an encoder that encrypts to a public key (26/WAKU2-PAYLOAD, "Asymmetric")."""
        cipher = EciesPayload(public_key, sign_with=sign_with, random_bytes=random_bytes)
        return cls(content_topic=content_topic, encryption=cipher, ephemeral=ephemeral)

    def encode(
        self,
        payload: bytes,
        timestamp_ns: int,
        *,
        meta: bytes | None = None,
        rate_limit_proof: bytes | None = None,
    ) -> WakuMessage:
        """Return the WakuMessage of ``payload``, or raise `EncryptionError`."""
        encryption = self.encryption
        encrypted = payload if encryption is None else encrypt_at_once(encryption, payload)
        return WakuMessage(
            payload=encrypted,
            content_topic=self.content_topic,
            version=waku_version_of(encryption),
            timestamp_ns=timestamp_ns,
            meta=meta,
            rate_limit_proof=rate_limit_proof,
            ephemeral=self.ephemeral,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder(_TopicAndCipher):
    """Decodes the WakuMessages of one content topic (RELIABLE-CHANNEL-API, "Create Reliable Channel")."""

    @classmethod
    def symmetric(cls, content_topic: str, key: bytes, *, trusted_signers: Iterable[bytes] | None = None) -> Self:
        """Return a decoder that decrypts with a shared key (26/WAKU2-PAYLOAD, "Symmetric")."""
        return cls(content_topic=content_topic, encryption=SymmetricPayload(key, trusted_signers=trusted_signers))

    @classmethod
    def ecies(cls, content_topic: str, private_key: bytes, *, trusted_signers: Iterable[bytes] | None = None) -> Self:
        """Return a decoder that decrypts with a private key (26/WAKU2-PAYLOAD, "Asymmetric")."""
        cipher = EciesPayload(private_key=private_key, trusted_signers=trusted_signers)
        return cls(content_topic=content_topic, encryption=cipher)

    def decode(self, message: WakuMessage) -> DecodedPayload:
        """Return the payload of ``message`` and, if it is signed, the signer; or raise `DecryptionError`."""
        if message.content_topic != self.content_topic:
            raise DecryptionError("the message is on another content topic")
        encryption = self.encryption
        expected, version = waku_version_of(encryption), message.version or 0
        if version != expected:
            raise DecryptionError(f"the message has version {version}, this decoder opens version {expected}")
        if encryption is None:
            return DecodedPayload(payload=message.payload)
        if isinstance(encryption, PayloadCipher | PayloadKeyRing):
            return encryption.open(message.payload)
        return DecodedPayload(payload=decrypt_at_once(encryption, message.payload))
