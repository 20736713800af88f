"""The inner frame of 26/WAKU2-PAYLOAD, the plaintext of its ciphers.

    flags (1) || payload length (1 to 3, little-endian) || payload || padding || [signature (65)]

Flags: bits 0 and 1 are the size of the length field; bit 2 is set if the frame has a signature. 26/WAKU2-PAYLOAD does
not define the byte order of the length; implementations write the lowest byte first. The signature covers the
Keccak-256 of all bytes before it.

Invariants:

* The size of a written frame is a multiple of 256, with 1 to 256 bytes of random padding as in js-waku, to hide the
  payload's size ("Padding").
* The payload of a read frame is complete and ends before padding and signature; otherwise `decode_frame` raises
  `DecryptionError`. The padding may have any size and content. js-waku truncates the payload if its length is too long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairway.errors import DecryptionError, EncryptionError
from fairway.protocol.encryption.entropy import RandomBytes, draw
from fairway.protocol.encryption.secp256k1 import SIGNATURE_BYTES, PrivateKey, recover_public_key
from fairway.wire.hashing import keccak256

MAX_PAYLOAD_BYTES: Final = 2**24 - 1
"""Longest payload: the length field has at most 3 bytes, because two bits give its size."""
PADDING_TARGET_BYTES: Final = 256

_LENGTH_SIZE_MASK: Final = 0b011
_SIGNED_FLAG: Final = 0b100


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedPayload:
    """A decrypted payload and its signature. ``bytes()`` of it is the payload."""

    payload: bytes
    """The plaintext."""
    signature: bytes | None = None
    """r, s and recovery id, 65 bytes; None without a signature."""
    signer_public_key: bytes | None = None
    """Public key of the signature, 65 bytes. It does not identify a participant; the reader must know the key."""

    def __bytes__(self) -> bytes:
        """Return the payload."""
        return self.payload


def encode_frame(payload: bytes, signer: PrivateKey | None, random_bytes: RandomBytes) -> bytes:
    """Return the padded frame of ``payload``, signed if a signer is given."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise EncryptionError(
            f"26/WAKU2-PAYLOAD holds at most {MAX_PAYLOAD_BYTES} bytes, this payload has {len(payload)}"
        )
    # A length of 0 takes one byte as well: the field is never empty.
    length_size = max(1, (len(payload).bit_length() + 7) // 8)
    flags = length_size if signer is None else length_size | _SIGNED_FLAG
    head = bytes([flags]) + len(payload).to_bytes(length_size, "little")
    unpadded_size = len(head) + len(payload) + (0 if signer is None else SIGNATURE_BYTES)
    # "Padding": the size "SHOULD be a multiple of 256 bytes". A multiple gets 256 more bytes, as in js-waku.
    padding = draw(random_bytes, PADDING_TARGET_BYTES - unpadded_size % PADDING_TARGET_BYTES)
    frame = head + payload + padding
    return frame if signer is None else frame + signer.sign(keccak256(frame))


def decode_frame(frame: bytes) -> DecodedPayload:
    """Return the payload and signature of a frame, or raise `DecryptionError` if the frame is invalid."""
    length_size = frame[0] & _LENGTH_SIZE_MASK if frame else 0
    if not length_size:
        raise DecryptionError("the encrypted frame has no payload length")
    start = 1 + length_size
    end = start + int.from_bytes(frame[1:start], "little")
    signed = bool(frame[0] & _SIGNED_FLAG)
    covered_size = len(frame) - SIGNATURE_BYTES if signed else len(frame)
    # A truncated length field fails here too: it ends beyond the frame.
    if end > covered_size:
        raise DecryptionError("the encrypted frame is shorter than its payload length says")
    if not signed:
        return DecodedPayload(payload=frame[start:end])
    signature = frame[covered_size:]
    return DecodedPayload(
        payload=frame[start:end],
        signature=signature,
        signer_public_key=recover_public_key(keccak256(frame[:covered_size]), signature),
    )
