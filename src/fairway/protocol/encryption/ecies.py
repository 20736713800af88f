"""ECIES on secp256k1: encryption to a public key.

26/WAKU2-PAYLOAD, "ECIES" (from Ethereum's RLPx), in the format of js-waku and go-ethereum:

    R (65) || iv (16) || c = AES-128-CTR(kE, iv, message) || HMAC-SHA-256(SHA-256(kM), iv || c) (32)

R is the public key of an ephemeral private key, which is made for this message and forgotten. kE || kM (16 bytes each)
is the NIST SP 800-56 concatenation KDF of the shared x coordinate; for 32 bytes of output it is one SHA-256.

Invariant: the MAC is verified in constant time before decryption, and R must be a point of the curve. The scheme
authenticates the message, not its sender: any participant can encrypt to a public key, so sign if that matters. Only
the x coordinate of R is used. Replacing R by its mirror image -R is therefore not detected, and decrypts to the same
message.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fairway.errors import ConfigurationError, DecryptionError, EncryptionError
from fairway.protocol.encryption.entropy import RandomBytes, draw
from fairway.protocol.encryption.secp256k1 import PRIVATE_KEY_BYTES, PUBLIC_KEY_BYTES, PrivateKey

_IV_BYTES: Final = 16
_AES_KEY_BYTES: Final = 16
_MAC_BYTES: Final = 32
OVERHEAD_BYTES: Final = PUBLIC_KEY_BYTES + _IV_BYTES + _MAC_BYTES
"""Length of the encrypted form minus the length of the message."""


def ecies_encrypt(public_key: bytes, message: bytes, random_bytes: RandomBytes) -> bytes:
    """Encrypt ``message`` to a checked ``public_key``."""
    try:
        ephemeral = PrivateKey(draw(random_bytes, PRIVATE_KEY_BYTES))
    except ConfigurationError as cause:
        # A sound source fails here once in 2**128 draws; a source of zeros fails always.
        raise EncryptionError("the source of random bytes gave no usable ephemeral key") from cause
    iv = draw(random_bytes, _IV_BYTES)
    encryption_key, mac_key = _derive(ephemeral.shared_x(public_key))
    body = iv + _aes_ctr(encryption_key, iv, message)
    return ephemeral.public_key + body + hmac.digest(mac_key, body, "sha256")


def ecies_decrypt(private_key: PrivateKey, encrypted: bytes) -> bytes:
    """Decrypt a message to the public key of ``private_key``, or raise `DecryptionError`."""
    if len(encrypted) < OVERHEAD_BYTES:
        raise DecryptionError(f"{len(encrypted)} bytes are too few for an ECIES message")
    try:
        shared_x = private_key.shared_x(encrypted[:PUBLIC_KEY_BYTES])
    except ValueError as cause:
        raise DecryptionError("an ECIES message must begin with a point of secp256k1") from cause
    encryption_key, mac_key = _derive(shared_x)
    body, mac = encrypted[PUBLIC_KEY_BYTES:-_MAC_BYTES], encrypted[-_MAC_BYTES:]
    if not hmac.compare_digest(hmac.digest(mac_key, body, "sha256"), mac):
        raise DecryptionError("not encrypted to this key, or altered on the way")
    return _aes_ctr(encryption_key, body[:_IV_BYTES], body[_IV_BYTES:])


def _derive(shared_x: bytes) -> tuple[bytes, bytes]:
    """Return kE and the hash of kM (26/WAKU2-PAYLOAD, "ECIES": ``kE || kM = KDF(S, 32)``)."""
    # The only block of the KDF: a 32-bit counter that starts at 1, then the secret.
    key_material = hashlib.sha256(b"\x00\x00\x00\x01" + shared_x).digest()
    return key_material[:_AES_KEY_BYTES], hashlib.sha256(key_material[_AES_KEY_BYTES:]).digest()


def _aes_ctr(key: bytes, iv: bytes, data: bytes) -> bytes:
    stream = Cipher(algorithms.AES(key), modes.CTR(iv)).encryptor()
    return stream.update(data) + stream.finalize()
