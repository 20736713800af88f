"""Encoding of unsigned varints (multiformats): the lengths and codes of libp2p, the tags and lengths of protobuf.

A varint has seven bits per byte, least significant first. The specification (unsigned-varint) limits its size, to 63
bits, and its form: "implementations MUST restrict the size of the varint to a max of 9 bytes" and "varints MUST be
encoded in the minimum number of bytes".
"""

from __future__ import annotations

from typing import Final

from fairway.errors import ConfigurationError

MAX_UVARINT: Final = 2**63 - 1
"""Largest value of nine bytes."""
MAX_UVARINT_BYTES: Final = 9

_ONE_BYTE: Final = tuple(bytes([value]) for value in range(0x80))


def encode_uvarint(value: int) -> bytes:
    """Return ``value`` (0 to 2**63 - 1) in its shortest form, or raise `ConfigurationError`."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if not 0 <= value <= MAX_UVARINT:
        raise ConfigurationError(f"an unsigned varint holds 0 to 2**63 - 1, not {value}")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def length_prefixed(data: bytes) -> bytes:
    """Return ``data`` after its length: the frame of multistream-select and of most libp2p protocols."""
    return encode_uvarint(len(data)) + data
