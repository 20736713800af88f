"""Ciphers for the messages of a channel, and the interface of a custom cipher (`Encryption`).

`AesGcm` and `ChaCha20Poly1305` are for a group with a shared key (`generate_key`). `SymmetricPayload` and
`EciesPayload` are the ciphers of 26/WAKU2-PAYLOAD, which js-waku reads. `PayloadKeyRing` decrypts with several keys.
`Encoder` and `Decoder` belong to RELIABLE-CHANNEL-API.
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
