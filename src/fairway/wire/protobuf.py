"""Protobuf at the boundary: bytes from outside become values, or one `DecodeError`, and never anything else.

Every decoder of this package reads through `parse`, so that two rules stand in one place: undecodable input
is a `DecodeError`, and what is too long is refused before a byte of it is looked at. Generated types stay
behind that boundary: decoders copy what they need into frozen dataclasses.

Waku's streams prefix each message with its length as an unsigned varint, as node software and js-waku both
do. `encode_frame` writes that prefix and `FrameDecoder` undoes it for input that arrives in arbitrary pieces.
The invariant there: a length beyond the limit is refused as soon as it can be told, so a peer that announces
a gigabyte costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import EncodeError as ProtobufEncodeError
from google.protobuf.message import Message

from fairway.errors import ConfigurationError, DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

_Schema = TypeVar("_Schema", bound=Message)

MAX_VARINT_BYTES: Final = 9
"""multiformats unsigned-varint, "Practical maximum": nine bytes, that is 63 bits."""

_DECODE_FAULTS: Final = (ProtobufDecodeError, ValueError, RecursionError)
"""What the protobuf runtimes raise for bad bytes: upb only the first; pure Python also `UnicodeDecodeError`
(a `ValueError`) for text that is not UTF-8 and, in old versions, `RecursionError` for nested groups."""

ENCODE_FAULTS: Final = (ValueError, TypeError, ProtobufEncodeError)
"""What they raise for a value that its field cannot hold: a number out of range, text with lone surrogates, a
wrong type. Encoders turn these into `not_encodable`."""


def parse(schema: type[_Schema], data: bytes, *, max_bytes: int) -> _Schema:
    """Parse ``data`` as the generated message type ``schema``.

    Unknown fields, and known ones that carry another wire type, are skipped as protobuf prescribes.
    Raises `DecodeError` when ``data`` is longer than ``max_bytes`` (before parsing) or is not valid protobuf.
    """
    if len(data) > max_bytes:
        raise DecodeError(f"{schema.DESCRIPTOR.name}: {len(data)} bytes, at most {max_bytes} are read")
    try:
        return schema.FromString(data)
    except _DECODE_FAULTS as error:
        text = f"{schema.DESCRIPTOR.name}: {len(data)} bytes are not valid protobuf: {error}"
        raise DecodeError(text) from error


def not_encodable(what: str, cause: Exception) -> ConfigurationError:
    """Return the error for a value of the local caller that does not fit the message called ``what``."""
    return ConfigurationError(f"{what} cannot be encoded: {cause}")


def encode_uvarint(value: int) -> bytes:
    """Return ``value`` as an unsigned varint: seven bits a byte, least significant first."""
    if not 0 <= value < 1 << (7 * MAX_VARINT_BYTES):
        raise ConfigurationError(f"an unsigned varint holds 0 to 2**63 - 1, not {value}")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_frame(message: bytes) -> bytes:
    """Return ``message`` behind its length as an unsigned varint."""
    return encode_uvarint(len(message)) + message


class FrameDecoder:
    """Cut a byte stream into length-prefixed messages, whatever the pieces it arrives in.

    Give each piece to `feed` and iterate over what it returns; what is incomplete waits for the next piece.
    As long as frames are taken when they are complete, no more is held than one frame of ``max_frame_bytes``,
    its prefix and the newest piece. After a `DecodeError` the stream has no known frame boundary any more:
    the same error comes back on every later use, and nothing is kept.
    """

    __slots__ = ("_buffer", "_expected", "_fault", "_max_frame_bytes")

    def __init__(self, *, max_frame_bytes: int) -> None:
        if max_frame_bytes < 0:
            raise ConfigurationError(f"max_frame_bytes must not be negative, not {max_frame_bytes}")
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._expected: int | None = None  # length of the frame whose prefix has left the buffer
        self._fault: str | None = None

    def __repr__(self) -> str:
        state = self._fault or f"{len(self._buffer)} bytes wait, {self._expected} expected"
        return f"<FrameDecoder max_frame_bytes={self._max_frame_bytes}: {state}>"

    @property
    def buffered_bytes(self) -> int:
        """Bytes held for frames that are not complete or were not taken."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add ``data`` and return an iterator over the frames that are complete now.

        The iterator raises `DecodeError` at a prefix that announces more than the limit or is no varint. The
        frames before it are yielded first, however the stream was cut.
        """
        if self._fault is None:
            self._buffer += data
        return self._complete_frames()

    def finish(self) -> None:
        """Say that the stream has ended; raise `DecodeError` if that was inside a frame, or after a fault."""
        if self._fault is not None:
            raise DecodeError(self._fault)
        if self._buffer or self._expected is not None:
            wanted = "a length" if self._expected is None else f"{self._expected}"
            raise self._fail(f"the stream ended inside a frame, after {len(self._buffer)} bytes of {wanted}")

    def _complete_frames(self) -> Iterator[bytes]:
        if self._fault is not None:
            raise DecodeError(self._fault)
        while True:
            if self._expected is None:
                self._expected = self._take_prefix()
            if self._expected is None or len(self._buffer) < self._expected:
                return
            frame = bytes(self._buffer[: self._expected])
            del self._buffer[: self._expected]
            self._expected = None
            yield frame

    def _take_prefix(self) -> int | None:
        length = 0
        for position, byte in enumerate(self._buffer):
            length |= (byte & 0x7F) << (7 * position)
            if length > self._max_frame_bytes:
                raise self._fail(f"a frame of {length} bytes or more, at most {self._max_frame_bytes} are read")
            if byte < 0x80:
                if byte == 0 and position > 0:
                    raise self._fail("a frame length that is not minimally encoded")
                del self._buffer[: position + 1]
                return length
            if position + 1 == MAX_VARINT_BYTES:
                raise self._fail(f"a frame length of more than {MAX_VARINT_BYTES} bytes")
        return None

    def _fail(self, fault: str) -> DecodeError:
        self._fault = fault
        self._buffer.clear()
        self._expected = None
        return DecodeError(fault)
