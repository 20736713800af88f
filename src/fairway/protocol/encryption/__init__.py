"""The encryption hook (LIP-173, "Encryption Hook") and the included ciphers.

* `hook` calls a cipher for the stack, synchronous or asynchronous, and fails closed in both directions.
* `aead` has the ciphers for a group with a shared key.
* `payload_v1` has the ciphers of 26/WAKU2-PAYLOAD, which js-waku reads.
* `encoder` has the encoder and the decoder of RELIABLE-CHANNEL-API.
* `payload_frame`, `ecies`, `secp256k1` and `entropy` each have one layout or primitive.
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
