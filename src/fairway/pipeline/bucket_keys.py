"""`BucketKeys`: the bucket of a row, by some of its columns, under random keys of each run.

Rows that are equal in these columns are in one bucket. The bucket may also have other rows, so code that needs exact
equality compares the values (`fairway.pipeline.codes`).

The hash is multilinear (Lemire and Kaser, "Strongly universal string hashing is fast"). Each 32-bit word of a value is
multiplied by a random 64-bit number; the hash is the upper 32 bits of the sum. Two values collide with a probability of
2^-32 under unknown keys. So participants cannot fill one bucket by their choice of ids.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairway.pipeline.columnar.cursor import Packed, rows_of
from fairway.pipeline.packing import packed

Hashes = NDArray[np.uint64]
Buckets = NDArray[np.uint16]

MAX_BUCKETS: Final = 1 << 16
HEAD_BYTES: Final = 8
"""Length of the part of a message hash that `BucketKeys.heads` reads."""
_MESSAGE_HASH_BYTES: Final = 32

_SEED_BYTES: Final = 32
_LONG_BYTES: Final = 256
"""Longest value for the multilinear hash. Longer values, which honest participants do not write, are hashed singly."""
_WORDS: Final = _LONG_BYTES // 8
_LOW: Final = np.uint64(0xFFFF_FFFF)
_HALF: Final = np.uint64(32)
_MIXER: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
"""2^64 divided by the golden ratio; it spreads neighbouring numbers (Knuth, "The Art of Computer Programming", 6.4)."""


@dataclass(frozen=True, slots=True)
class BucketKeys:
    """The keys of one run, made from 32 random bytes."""

    seed: bytes

    @classmethod
    def drawn(cls) -> BucketKeys:
        """Return new keys."""
        return cls(secrets.token_bytes(_SEED_BYTES))

    def heads(self, message_hash: pa.Array) -> Hashes | None:
        """Return a number for the first 8 bytes of each message hash; None if a hash does not have 32 bytes.

        Different heads have different numbers. The numbers depend on the keys.
        """
        hashes = packed(message_hash)
        if (hashes.ends - hashes.starts != _MESSAGE_HASH_BYTES).any():
            return None
        words = hashes.data[: len(message_hash) * _MESSAGE_HASH_BYTES].view("<u8")
        heads: Hashes = words[:: _MESSAGE_HASH_BYTES // HEAD_BYTES] * (_multipliers(self.seed, 0)[0] | np.uint64(1))
        return heads

    def by_number(self, numbers: Hashes, count: int) -> Buckets:
        """Return the bucket of each number from `heads` or `hashes`."""
        return _of_upper_half(numbers, count)

    def by_columns(self, columns: Sequence[pa.Array | pa.ChunkedArray], count: int) -> Buckets:
        """Return the bucket of each row, from 0 and below ``count``, by columns of text or binary.

        The code is fast if the last column has many values and the others few; null counts as empty. A bucket has 16
        bits, so more than `MAX_BUCKETS` raise `ValueError`.
        """
        if not 0 < count <= MAX_BUCKETS:
            raise ValueError(f"a table is cut into 1 to {MAX_BUCKETS} buckets, not {count}")
        return _of_upper_half(self.hashes(columns), count)

    def hashes(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Hashes:
        """Return a hash of each row, by columns as in `by_columns`; equal rows have equal hashes."""
        *few, many = columns
        total = np.zeros(len(many), np.uint64)
        for number, column in enumerate(columns):
            multipliers = _multipliers(self.seed, number)
            hashes = _of_few_values(column, multipliers, self.seed) if number < len(few) else None
            if hashes is None:
                hashes = _of_each_value(column, multipliers, self.seed)
            total += hashes * multipliers[-1]
        # Consecutive ids have evenly spaced sums; mixing spreads these over the buckets.
        total ^= total >> _HALF
        total *= _MIXER
        return total


def found_in(known: Hashes, numbers: Hashes) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return which numbers are in ``known``, which must ascend, and their places in it."""
    if not len(known):
        return np.zeros(len(numbers), np.bool_), np.zeros(len(numbers), np.intp)
    places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return known[places] == numbers, places


def _of_upper_half(numbers: Hashes, count: int) -> Buckets:
    # The upper half of the product of 32 bits and the count: a range without a division.
    buckets: Buckets = (((numbers >> _HALF) * np.uint64(count)) >> _HALF).astype(np.uint16)
    return buckets


def _multipliers(seed: bytes, column: int) -> Hashes:
    """Return the multipliers of a column: two for the length, one for each 32-bit word, one for the whole hash."""
    drawn = hashlib.shake_256(seed + column.to_bytes(2, "little")).digest(8 * (2 * _WORDS + 3))
    return np.frombuffer(drawn, "<u8")


def _of_few_values(column: pa.Array | pa.ChunkedArray, multipliers: Hashes, seed: bytes) -> Hashes:
    encoded = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):  # the column does not fit in one array
        return np.concatenate([_of_few_values(chunk, multipliers, seed) for chunk in column.chunks])
    # A null is not in the dictionary; its code is the one after the values, with the hash of an empty value.
    values = pa.concat_arrays([encoded.dictionary, pa.array([""], pa.string()).cast(column.type)])
    hashes: Hashes = _of_each_value(values, multipliers, seed)[encoded.indices.fill_null(len(values) - 1).to_numpy()]
    return hashes


def _of_each_value(column: pa.Array | pa.ChunkedArray, multipliers: Hashes, seed: bytes) -> Hashes:
    """Return a hash of 32 bits of each value."""
    if isinstance(column, pa.ChunkedArray):
        each = [_of_each_value(chunk, multipliers, seed) for chunk in column.chunks]
        return np.concatenate([np.zeros(0, np.uint64), *each])
    values = packed(column.cast(pa.large_binary()))
    lengths = values.ends - values.starts
    found = _multilinear(values, np.minimum(lengths, _LONG_BYTES), multipliers)
    for row in rows_of(lengths > _LONG_BYTES).tolist():
        value = values.data[values.starts[row] : values.ends[row]].tobytes()
        found[row] = int.from_bytes(hashlib.blake2b(value, digest_size=4, key=seed).digest())
    return found


def _multilinear(values: Packed, lengths: NDArray[np.int64], multipliers: Hashes) -> Hashes:
    # 64-bit words at any position, whose halves are multiplied separately; bytes after a value are masked out.
    words = np.ndarray((len(values.data) - 7,), "<u8", values.data, 0, (1,))
    total: Hashes = lengths.astype(np.uint64) * multipliers[0] + multipliers[1]
    for number in range(-(-int(lengths.max(initial=0)) // 8)):
        left = lengths - 8 * number
        some = rows_of(left > 0)
        rows = some if len(some) < len(left) else slice(None)  # a slice selects without a copy
        word = words[values.starts[rows] + 8 * number]
        bits = np.minimum(left[rows], 8).astype(np.uint64) * np.uint64(8)
        word &= ~np.uint64(0) >> (np.uint64(64) - bits)
        low, high = multipliers[2 + 2 * number], multipliers[3 + 2 * number]
        total[rows] += (word & _LOW) * low + (word >> _HALF) * high
    return total >> _HALF
