"""`ReceiveBuffer`: received bytes, added and taken in pieces of any size with few copies."""

from __future__ import annotations

from typing import Final

_COMPACT_AT_BYTES: Final = 65_536


class ReceiveBuffer:
    """A queue of bytes. A piece added to an empty queue is not copied; further pieces are copied together."""

    __slots__ = ("data", "size", "start")

    def __init__(self) -> None:
        self.data: bytes | bytearray = b""
        """The bytes; those before ``start`` were taken already."""
        self.start = 0
        """Position of the first waiting byte in ``data``."""
        self.size = 0
        """Number of waiting bytes."""

    def append(self, piece: bytes) -> None:
        """Add received bytes at the end."""
        if not self.size:
            self.data = piece
            self.start = 0
        else:
            if not isinstance(self.data, bytearray):
                self.data = bytearray(memoryview(self.data)[self.start :])
                self.start = 0
            self.data += piece
        self.size += len(piece)

    def prepend(self, piece: bytes) -> None:
        """Put bytes back at the front."""
        self.data = piece + bytes(memoryview(self.data)[self.start :])
        self.start = 0
        self.size += len(piece)

    def take(self, size: int, skip: int = 0) -> bytes:
        """Remove ``size`` bytes, which must be there, and return them without the first ``skip``."""
        first, self.start = self.start, self.start + size
        self.size -= size
        with memoryview(self.data) as view:
            taken = bytes(view[first + skip : self.start])
        if not self.size:
            self.data = b""
            self.start = 0
        elif self.start >= _COMPACT_AT_BYTES and isinstance(self.data, bytearray):
            del self.data[: self.start]
            self.start = 0
        return taken

    def clear(self) -> None:
        """Remove all bytes."""
        self.data = b""
        self.start = 0
        self.size = 0
