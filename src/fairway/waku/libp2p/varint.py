"""Unsigned varints of multiformats: the lengths, codes and stream headers of every libp2p layer.

Seven bits a byte, least significant first, at most nine bytes (63 bits), and always in the shortest form:
"implementations MUST restrict the size of the varint to a max of 9 bytes" and "varints MUST be encoded in the
minimum number of bytes" (multiformats, unsigned-varint). The invariant: what is too large is refused at the first
byte that shows it, so a length is never believed before it was checked.
"""

from __future__ import annotations

from typing import Final

from fairway.errors import ConfigurationError
from fairway.waku.libp2p.errors import FrameError, FrameTooLongError

MAX_UVARINT: Final = 2**63 - 1
"""The largest value that nine bytes hold."""

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


def decode_uvarint(
    data: bytes | bytearray | memoryview, offset: int = 0, *, max_value: int = MAX_UVARINT
) -> tuple[int, int] | None:
    """Return the value that begins at ``offset`` and the offset behind it; None when more bytes are needed.

    Raises `FrameTooLongError` for a value above ``max_value``, `FrameError` for more than nine bytes and for a form
    that is not the shortest.
    """
    value = shift = 0
    for position in range(offset, min(len(data), offset + MAX_UVARINT_BYTES)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if value > max_value:
            raise FrameTooLongError(f"a number of {value} or more, at most {max_value} is read")
        if byte < 0x80:
            if byte == 0 and shift:
                raise FrameError("a varint that is not in its shortest form")
            return value, position + 1
        shift += 7
    if shift == 7 * MAX_UVARINT_BYTES:
        raise FrameError(f"a varint of more than {MAX_UVARINT_BYTES} bytes")
    return None


def length_prefixed(data: bytes) -> bytes:
    """Return ``data`` behind its length: the frame of multistream-select and of most libp2p protocols."""
    return encode_uvarint(len(data)) + data
