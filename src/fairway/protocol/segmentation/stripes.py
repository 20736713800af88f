"""Stripes of shards as rows of field elements, and the operations that a transform needs on them.

Multiplication by a constant is ``bytearray.translate`` with a table of products, addition is an XOR of 64-bit
words: the two fastest ways to touch a byte that Python and numpy have. A row knows when it is zero, so that
absent shards and the padding of a transform cost nothing.

In a shard over GF(2^8) each byte is an element. Over GF(2^16) each block of 64 bytes holds the low bytes of 32
elements, then their high bytes; a row keeps these planes apart, so that each is one buffer to translate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from fairway.protocol.segmentation.galois import translation

Words: TypeAlias = npt.NDArray[np.uint64]
"""A shard or a stripe of it: 64-bit words in the machine's byte order, which does not matter to moves and XOR."""

BLOCK_WORDS: Final = 8
"""Leopard's unit of 64 bytes: the length of a shard, and of each stripe of it, is a multiple of this."""

CACHE_WORDS: Final = 1 << 18
"""What all rows of a computation take together, about: 2 MiB stay in a processor's cache."""

MAX_STRIPE_WORDS: Final = 1 << 13
"""Longest stripe, however few the rows: 64 KiB are long enough to make the cost of each call small."""


class Row(ABC):
    """One stripe of one shard: a vector of field elements, zero at first."""

    __slots__ = ("is_zero",)

    def __init__(self) -> None:
        self.is_zero = True
        """If set, the row is zero, whatever its memory holds: that is not overwritten for a row to become zero."""

    @abstractmethod
    def load(self, words: Words) -> None:
        """Take the value of a stripe."""

    @abstractmethod
    def store(self, words: Words) -> None:
        """Write the value to a stripe."""

    @abstractmethod
    def add(self, other: Self) -> None:
        """Add another row to this one."""

    @abstractmethod
    def add_product(self, constant: int, other: Self) -> None:
        """Add another row, multiplied by a constant, to this one."""


class _Row8(Row):
    """A row over GF(2^8)."""

    __slots__ = ("buffer", "words")

    def __init__(self, word_count: int) -> None:
        super().__init__()
        self.buffer = bytearray(word_count * 8)
        self.words: Words = np.frombuffer(self.buffer, np.uint64)

    def load(self, words: Words) -> None:
        self.words[:] = words
        self.is_zero = False

    def store(self, words: Words) -> None:
        words[:] = 0 if self.is_zero else self.words

    def add(self, other: Self) -> None:
        if not other.is_zero:
            self._add(other.words)

    def add_product(self, constant: int, other: Self) -> None:
        if constant and not other.is_zero:
            ((table,),) = translation(8, constant)
            self._add(np.frombuffer(other.buffer.translate(table), np.uint64))

    def _add(self, words: Words) -> None:
        if self.is_zero:
            self.words[:] = words
            self.is_zero = False
        else:
            np.bitwise_xor(self.words, words, out=self.words)


class _Row16(Row):
    """A row over GF(2^16)."""

    __slots__ = ("high", "high_words", "low", "low_words")

    def __init__(self, word_count: int) -> None:
        super().__init__()
        self.low = bytearray(word_count * 4)
        self.high = bytearray(word_count * 4)
        self.low_words: Words = np.frombuffer(self.low, np.uint64)
        self.high_words: Words = np.frombuffer(self.high, np.uint64)

    def load(self, words: Words) -> None:
        low, high = plane_views(words, 16)
        self.low_words.reshape(low.shape)[:] = low
        self.high_words.reshape(high.shape)[:] = high
        self.is_zero = False

    def store(self, words: Words) -> None:
        low, high = plane_views(words, 16)
        low[:] = 0 if self.is_zero else self.low_words.reshape(low.shape)
        high[:] = 0 if self.is_zero else self.high_words.reshape(high.shape)

    def add(self, other: Self) -> None:
        if not other.is_zero:
            self._add(other.low_words, other.high_words)

    def add_product(self, constant: int, other: Self) -> None:
        if constant and not other.is_zero:
            from_low, from_high = translation(16, constant)
            for source, tables in ((other.low, from_low), (other.high, from_high)):
                low, high = (np.frombuffer(source.translate(table), np.uint64) for table in tables)
                self._add(low, high)

    def _add(self, low: Words, high: Words) -> None:
        if self.is_zero:
            self.low_words[:] = low
            self.high_words[:] = high
            self.is_zero = False
        else:
            np.bitwise_xor(self.low_words, low, out=self.low_words)
            np.bitwise_xor(self.high_words, high, out=self.high_words)


def make_rows(field_bits: int, count: int, word_count: int) -> list[Row]:
    """Return rows of zeros over GF(2^field_bits), each for a stripe of so many words."""
    if field_bits == 8:
        return [_Row8(word_count) for _ in range(count)]
    return [_Row16(word_count) for _ in range(count)]


def plane_views(words: Words, field_bits: int) -> list[Words]:
    """Return a view of each plane of a stripe, [block, word]."""
    plane_count = field_bits // 8
    blocks = words.reshape(-1, plane_count, BLOCK_WORDS // plane_count)
    return [blocks[:, plane] for plane in range(plane_count)]


def stripes_of(word_count: int, row_count: int) -> list[slice]:
    """Cut a shard into stripes of one length, of whole blocks, that suit a computation on so many rows.

    The last stripe overlaps the one before it, so that rows of one length serve for all.
    """
    suitable = min(MAX_STRIPE_WORDS, max(BLOCK_WORDS, CACHE_WORDS // row_count))
    stripe_count = -(-word_count // suitable)
    length = -(-word_count // BLOCK_WORDS // stripe_count) * BLOCK_WORDS
    starts = [*range(0, word_count - length, length), word_count - length]
    return [slice(start, start + length) for start in starts]
