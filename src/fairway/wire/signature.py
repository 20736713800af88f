"""The signature of an SDS message, at the end of its bytes.

A signed message is an SDS message of either wire with one or two further protobuf fields::

    SDS message || [ signer_key (field 50001, bytes) ] || signature (field 50002, 64 bytes)

An SDS message that says goodbye contains field 50003 (`fairway.wire.sds`), so that stands before these two.

js-waku and nim-sds skip all these fields, as protobuf requires of unknown fields. The signature covers the bytes of
`signed_bytes`: all bytes of the message before field 50002, with the channel and the sender that it is for. Nobody
encodes the message again to verify it.

Invariant: field 50002 is the last one. A message with anything after it counts as unsigned.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SIGNATURE_BYTES: Final = 64
KEY_SIZES: Final = (32, 65)
"""Bytes of a public key: Ed25519, and secp256k1 as an uncompressed point."""
SIGNATURE_FIELD: Final = 50_002
SIGNER_KEY_FIELD: Final = 50_001

_LENGTH_DELIMITED: Final = 2
_DOMAIN: Final = b"fairway SDS signature 1\x00"


def _head(field: int, size_bytes: int) -> bytes:
    """Return the tag and the length of a protobuf field with bytes, both as varints."""
    head = bytearray()
    for number in (field << 3 | _LENGTH_DELIMITED, size_bytes):
        rest = number
        while rest > 0x7F:
            head.append(rest & 0x7F | 0x80)
            rest >>= 7
        head.append(rest)
    return bytes(head)


_SIGNATURE_HEAD: Final = _head(SIGNATURE_FIELD, SIGNATURE_BYTES)
_KEY_HEADS: Final = {size: _head(SIGNER_KEY_FIELD, size) for size in KEY_SIZES}
_TAIL_BYTES: Final = len(_SIGNATURE_HEAD) + SIGNATURE_BYTES


class Signed(NamedTuple):
    """The parts of a signed message. Nothing is verified yet."""

    covered: bytes
    """All bytes before the signature."""
    signature: bytes
    signer_key: bytes | None
    """Public key that the message names; None if it names none."""


def with_signer_key(message: bytes, public_key: bytes) -> bytes:
    """Return an encoded SDS message that names the public key of its signature."""
    return message + _KEY_HEADS[len(public_key)] + public_key


def with_signature(covered: bytes, signature: bytes) -> bytes:
    """Return an encoded SDS message with its signature."""
    return covered + _SIGNATURE_HEAD + signature


def read_signature(data: bytes) -> Signed | None:
    """Return the parts of a signed message; None for a message without a signature at its end."""
    if data[-_TAIL_BYTES:-SIGNATURE_BYTES] != _SIGNATURE_HEAD:
        return None
    covered = data[:-_TAIL_BYTES]
    key = next((covered[-size:] for size, head in _KEY_HEADS.items() if covered[:-size].endswith(head)), None)
    return Signed(covered, data[-SIGNATURE_BYTES:], key)


def signed_bytes(channel_id: str, sender_id: str, covered: bytes) -> bytes:
    """Return what a signature is made of.

    It is the text "fairway SDS signature 1" and a zero byte; then channel id and sender id in UTF-8, each after its
    length in two bytes, big-endian; then the bytes before the signature. So a signature holds for one channel, one
    sender and one message, and for no other use of the key.
    """
    channel, sender = channel_id.encode(), sender_id.encode()
    sizes = len(channel).to_bytes(2, "big"), len(sender).to_bytes(2, "big")
    return b"".join((_DOMAIN, sizes[0], channel, sizes[1], sender, covered))
