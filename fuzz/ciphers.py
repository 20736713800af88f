"""Opening what was encrypted: by nobody, by a member who is up to no good, and by a member whose message was altered.

Promises: `DecryptionError` or a payload; what was altered never opens to something else; what a member encrypted is
taken apart in one way by all ciphers; a payload that opened can be encrypted and opened again.

An input is used three times: as encrypted bytes; as the inner frame that a member encrypts; and as the choice of a
cipher, a place, a difference, and a payload of which the byte at that place is altered after encrypting.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairway.errors import DecryptionError
from fairway.protocol.encryption import (
    AesGcm,
    ChaCha20Poly1305,
    Decoder,
    EciesPayload,
    Encryption,
    PayloadKeyRing,
    SymmetricPayload,
    decrypt_at_once,
)
from fairway.protocol.encryption.ecies import ecies_encrypt
from fairway.protocol.encryption.payload_frame import DecodedPayload, decode_frame
from fairway.protocol.encryption.payload_v1 import PayloadCipher
from fairway.wire.waku_message import WakuMessage
from fuzz.decoders import BrokenPromiseError

KEY: Final = bytes(range(32))
PRIVATE_KEY: Final = bytes(range(1, 33))
SIGNING_KEY: Final = bytes(range(2, 34))
_IV: Final = bytes(12)
_TOPIC: Final = "/fuzz/1/ciphers/proto"


def _counted(size: int) -> bytes:
    """Stand for random bytes, so that an input always does the same."""
    return bytes(1 + index % 255 for index in range(size))


SYMMETRIC: Final = SymmetricPayload(KEY, sign_with=SIGNING_KEY, random_bytes=_counted)
ECIES: Final = EciesPayload(private_key=PRIVATE_KEY, random_bytes=_counted)
_PAYLOAD_CIPHERS: Final = (SYMMETRIC, ECIES, PayloadKeyRing(ECIES, SYMMETRIC))
_AEADS: Final = (
    AesGcm(KEY, associated_data=b"fuzz", random_bytes=_counted),
    ChaCha20Poly1305(KEY, associated_data=b"fuzz", random_bytes=_counted),
)

_ALTERABLE: Final = (*_AEADS, SYMMETRIC, ECIES)
_ALTERATION_BYTES: Final = 4


def check_ciphers(data: bytes) -> None:
    """Open whatever data can stand for."""
    for cipher in (*_AEADS, *_PAYLOAD_CIPHERS):
        _open(cipher, data)
    _check_frame(data)
    if len(data) >= _ALTERATION_BYTES:
        which, place, difference = data[0], int.from_bytes(data[1:3], "little"), data[3]
        _check_altered(_ALTERABLE[which % len(_ALTERABLE)], data[_ALTERATION_BYTES:], place, difference)


def encrypt_frame(cipher: PayloadCipher, frame: bytes) -> bytes:
    """Encrypt an inner frame of the caller's making, as a member of the group can."""
    if cipher is SYMMETRIC:
        return AESGCM(KEY).encrypt(_IV, frame, None) + _IV
    return ecies_encrypt(ECIES.public_key, frame, _counted)


def _open(cipher: Encryption, encrypted: bytes) -> bytes | None:
    try:
        opened = decrypt_at_once(cipher, encrypted)
    except DecryptionError:
        return None
    if decrypt_at_once(cipher, encrypted_by(cipher, opened)) != opened:
        raise BrokenPromiseError(f"{cipher!r}: {opened!r} does not survive being encrypted and opened")
    return opened


def encrypted_by(cipher: Encryption, plaintext: bytes) -> bytes:
    """Return what a cipher that answers at once makes of a plaintext."""
    encrypted = cipher.encrypt(plaintext)
    assert isinstance(encrypted, bytes), "none of these ciphers is asynchronous"
    return encrypted


def _check_frame(frame: bytes) -> None:
    try:
        expected: DecodedPayload | None = decode_frame(frame)
    except DecryptionError:
        expected = None
    for cipher in (SYMMETRIC, ECIES):
        encrypted = encrypt_frame(cipher, frame)
        opened = None
        with suppress(DecryptionError):
            message = WakuMessage(payload=encrypted, content_topic=_TOPIC, version=1)
            opened = Decoder(content_topic=_TOPIC, encryption=cipher).decode(message)
        if opened != expected:
            raise BrokenPromiseError(f"the frame holds {expected!r}, {cipher!r} opens {opened!r}")
    if expected is not None and expected.payload not in frame:
        raise BrokenPromiseError("the payload is not part of the frame")


def _check_altered(cipher: Encryption, payload: bytes, place: int, difference: int) -> None:
    encrypted = bytearray(encrypted_by(cipher, payload))
    encrypted[place % len(encrypted)] ^= difference
    opened = _open(cipher, bytes(encrypted))
    if opened not in {None, payload} or (not difference and opened != payload):
        raise BrokenPromiseError(f"{cipher!r}: encrypted {payload!r}, altered, opened {opened!r}")
