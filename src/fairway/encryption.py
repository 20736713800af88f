"""Ciphers for the messages of a channel, and the interface for one of your own (`Encryption`).

`AesGcm` and `ChaCha20Poly1305` are for a group that shares one key (`generate_key`). `SymmetricPayload` and
`EciesPayload` are those of 26/WAKU2-PAYLOAD, which js-waku reads; `PayloadKeyRing` decrypts with several keys.
`Encoder` and `Decoder` are those of RELIABLE-CHANNEL-API.
"""

from fairway.protocol.encryption import (
    AesGcm,
    ChaCha20Poly1305,
    Decoder,
    EciesPayload,
    Encoder,
    Encryption,
    PayloadKeyRing,
    SymmetricPayload,
    generate_key,
    generate_private_key,
    get_public_key,
)

__all__ = [
    "AesGcm",
    "ChaCha20Poly1305",
    "Decoder",
    "EciesPayload",
    "Encoder",
    "Encryption",
    "PayloadKeyRing",
    "SymmetricPayload",
    "generate_key",
    "generate_private_key",
    "get_public_key",
]
