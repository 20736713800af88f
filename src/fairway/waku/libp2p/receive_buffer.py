"""Bytes that arrived in pieces of any size and are taken in others, with as few copies as that allows."""

from __future__ import annotations

from typing import Final

_COMPACT_AT_BYTES: Final = 65_536


class ReceiveBuffer:
    """A queue of bytes. A piece that arrives when nothing waits is kept as it is; only a backlog is copied together."""

    __slots__ = ("data", "size", "start")

    def __init__(self) -> None:
        self.data: bytes | bytearray = b""
        """What is held; the part before ``start`` was taken already."""
        self.start = 0
        """Where the first byte that waits stands in ``data``."""
        self.size = 0
        """How many bytes wait."""

    def append(self, piece: bytes) -> None:
        """Add what arrived."""
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
        """Put back what was taken."""
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
        """Throw everything away."""
        self.data = b""
        self.start = 0
        self.size = 0
