"""Length-prefixed frames, cut into arbitrary pieces.

Promises: the frames and the fault of a stream do not depend on how it was cut; what was yielded is what the stream
begins with, byte for byte; no more is held than one frame of the largest size and the newest piece.

An input is a count, so many sizes of pieces (used in turn), and the stream.
"""

from __future__ import annotations

from itertools import cycle
from typing import Final

from fairway.errors import DecodeError
from fairway.wire.protobuf import FrameDecoder, encode_frame
from fuzz.decoders import BrokenPromiseError

MAX_FRAME_BYTES: Final = 300
_PREFIX_BYTES: Final = 9


def check_frames(data: bytes) -> None:
    """Read a stream at once and in pieces."""
    count = data[0] if data else 0
    sizes, stream = data[1 : 1 + count], data[1 + count :]
    at_once, fault = _read([stream])
    in_pieces, other_fault = _read(_pieces(stream, sizes))
    if (at_once, fault) != (in_pieces, other_fault):
        raise BrokenPromiseError(f"{(at_once, fault)} at once, {(in_pieces, other_fault)} in pieces")
    if not stream.startswith(b"".join(map(encode_frame, at_once))):
        raise BrokenPromiseError(f"the stream does not begin with {at_once}")


def _pieces(stream: bytes, sizes: bytes) -> list[bytes]:
    pieces, position = [], 0
    for size in cycle(sizes or b"\x01"):
        pieces.append(stream[position : position + max(1, size)])
        position += max(1, size)
        if position >= len(stream):
            break
    return pieces


def _read(pieces: list[bytes]) -> tuple[list[bytes], str | None]:
    """Return the frames, and the fault that ended the stream."""
    decoder = FrameDecoder(max_frame_bytes=MAX_FRAME_BYTES)
    frames: list[bytes] = []
    try:
        for piece in pieces:
            frames += decoder.feed(piece)
            if decoder.buffered_bytes > MAX_FRAME_BYTES + _PREFIX_BYTES:
                raise BrokenPromiseError(f"{decoder!r} holds {decoder.buffered_bytes} bytes")
        decoder.finish()
    except DecodeError as error:
        return frames, str(error)
    return frames, None
