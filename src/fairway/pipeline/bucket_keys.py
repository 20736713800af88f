"""`BucketKeys`: which bucket a row belongs to, by some of its columns, under keys that are drawn for each run.

Rows that are equal in these columns are in one bucket. Other rows may be there as well, so what needs exact equality
compares the values (`fairway.pipeline.codes`).

The hash is multilinear (Lemire and Kaser, "Strongly universal string hashing is fast"): the sum of the words of 32 bits
of a value, each multiplied by a random number of 64 bits, of which the upper 32 bits count. Under unknown keys two
values meet with a probability of 2^-32. So participants, who choose ids as they like, cannot fill one bucket.
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
"""Bytes of a message hash that `BucketKeys.heads` reads."""
_MESSAGE_HASH_BYTES: Final = 32

_SEED_BYTES: Final = 32
_LONG_BYTES: Final = 256
"""Longer values are hashed one by one: no id of an honest participant is so long."""
_WORDS: Final = _LONG_BYTES // 8
_LOW: Final = np.uint64(0xFFFF_FFFF)
_HALF: Final = np.uint64(32)
_MIXER: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
"""2^64 by the golden ratio: neighbours times this are far apart (Knuth, "The Art of Computer Programming", 6.4)."""


@dataclass(frozen=True, slots=True)
class BucketKeys:
    """The keys of one run, made from 32 random bytes."""

    seed: bytes

    @classmethod
    def drawn(cls) -> BucketKeys:
        """Return new keys."""
        return cls(secrets.token_bytes(_SEED_BYTES))

    def by_hash(self, message_hash: pa.Array | pa.ChunkedArray, count: int) -> Buckets:
        """Return the bucket of each row, by its message hash."""
        return self.by_columns([message_hash], count)

    def heads(self, message_hash: pa.Array) -> Hashes | None:
        """Return the first 8 bytes of each message hash, as other numbers under each key; None if one has not 32 bytes.

        Different heads are different numbers.
        """
        hashes = packed(message_hash)
        if (hashes.ends - hashes.starts != _MESSAGE_HASH_BYTES).any():
            return None
        words = hashes.data[: len(message_hash) * _MESSAGE_HASH_BYTES].view("<u8")
        heads: Hashes = words[:: _MESSAGE_HASH_BYTES // HEAD_BYTES] * (_multipliers(self.seed, 0)[0] | np.uint64(1))
        return heads

    def by_number(self, numbers: Hashes, count: int) -> Buckets:
        """Return the bucket of each of the numbers that `heads` or `hashes` gives."""
        return _of_upper_half(numbers, count)

    def by_key(
        self, channel_id: pa.Array | pa.ChunkedArray, message_id: pa.Array | pa.ChunkedArray, count: int
    ) -> Buckets:
        """Return the bucket of each row, by the SDS message that it is."""
        return self.by_columns([channel_id, message_id], count)

    def by_columns(self, columns: Sequence[pa.Array | pa.ChunkedArray], count: int) -> Buckets:
        """Return the bucket of each row, from 0 and below ``count``, by columns of text or binary.

        The last column is taken to have many values, the others few; null counts as empty. A bucket has 16 bits, so
        that `ValueError` is raised for more than `MAX_BUCKETS`.
        """
        if not 0 < count <= MAX_BUCKETS:
            raise ValueError(f"a table is cut into 1 to {MAX_BUCKETS} buckets, not {count}")
        return _of_upper_half(self.hashes(columns), count)

    def hashes(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Hashes:
        """Return a hash of each row, equal where the row is, by columns as those of `by_columns`."""
        *few, many = columns
        total = np.zeros(len(many), np.uint64)
        for number, column in enumerate(columns):
            multipliers = _multipliers(self.seed, number)
            hashes = _of_few_values(column, multipliers, self.seed) if number < len(few) else None
            if hashes is None:
                hashes = _of_each_value(column, multipliers, self.seed)
            total += hashes * multipliers[-1]
        # Ids that count up have sums that lie in rows: mixed, these too are spread evenly.
        total ^= total >> _HALF
        total *= _MIXER
        return total


def found_in(known: Hashes, numbers: Hashes) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return which numbers are among known ones, which ascend, and the place of each that is."""
    if not len(known):
        return np.zeros(len(numbers), np.bool_), np.zeros(len(numbers), np.intp)
    places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return known[places] == numbers, places


def _of_upper_half(numbers: Hashes, count: int) -> Buckets:
    # The upper half of a product of 32 bits and the count, which takes no division.
    buckets: Buckets = (((numbers >> _HALF) * np.uint64(count)) >> _HALF).astype(np.uint16)
    return buckets


def _multipliers(seed: bytes, column: int) -> Hashes:
    """Return the numbers for a column: two of the length, one for each word of 32 bits, one of the whole hash."""
    drawn = hashlib.shake_256(seed + column.to_bytes(2, "little")).digest(8 * (2 * _WORDS + 3))
    return np.frombuffer(drawn, "<u8")


def _of_few_values(column: pa.Array | pa.ChunkedArray, multipliers: Hashes, seed: bytes) -> Hashes:
    encoded = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):  # more than one array holds
        return np.concatenate([_of_few_values(chunk, multipliers, seed) for chunk in column.chunks])
    # A null is not in the dictionary; its place is behind the values, with the hash of an empty one.
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
    # Words of 64 bits at any place, of which each half is multiplied; what lies behind a value is masked away.
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
