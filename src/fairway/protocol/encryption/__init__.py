"""The encryption hook (LIP-173, "Encryption Hook") and the ciphers that ship.

`hook` is what the stack calls: fail-closed in both directions, synchronous or not. `aead` has the ciphers
for a group that shares one key; `payload_v1` those of 26/WAKU2-PAYLOAD, which js-waku reads, and `encoder`
the encoder and decoder of RELIABLE-CHANNEL-API around them. Below lie `payload_frame`, `ecies`, `secp256k1` and
`entropy`, one layout or primitive each.
"""

from __future__ import annotations

from fairway.protocol.encryption.aead import AesGcm, ChaCha20Poly1305, generate_key
from fairway.protocol.encryption.encoder import Decoder, Encoder
from fairway.protocol.encryption.hook import (
    Encryption,
    check_encryption,
    decrypt,
    decrypt_at_once,
    encrypt,
    encrypt_at_once,
    waku_version_of,
)
from fairway.protocol.encryption.payload_frame import DecodedPayload
from fairway.protocol.encryption.payload_v1 import EciesPayload, PayloadKeyRing, SymmetricPayload
from fairway.protocol.encryption.secp256k1 import generate_private_key, get_public_key

__all__ = [
    "AesGcm",
    "ChaCha20Poly1305",
    "DecodedPayload",
    "Decoder",
    "EciesPayload",
    "Encoder",
    "Encryption",
    "PayloadKeyRing",
    "SymmetricPayload",
    "check_encryption",
    "decrypt",
    "decrypt_at_once",
    "encrypt",
    "encrypt_at_once",
    "generate_key",
    "generate_private_key",
    "get_public_key",
    "waku_version_of",
]
