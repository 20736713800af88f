"""Leopard-RS: Reed-Solomon shards, byte for byte those of the Leopard library (SEGMENTATION, "Reed-Solomon").

The reference implementation of segmentation uses Leopard through nim-leopard. Peers can use each other's parity only if
the code is the same. `encode` computes parity by a fast transform. `recover` computes lost data by the inverse of a
Cauchy matrix in closed form.

Invariant: `recover` returns the data from any ``len(data)`` shards of one encoding. It does not check that the shards
belong to one encoding: the caller verifies a hash.

**The field.** GF(2^8), or GF(2^16) if the padded number of points exceeds 256. Leopard writes an element as its
coordinates in a Cantor basis. Evaluation point number j is then the element j, and the difference of two points is the
XOR of their numbers. The basis follows from the field's polynomial: b(0) = 1, and b(i + 1) is the even one of the two
roots of y^2 + y = b(i).

**The code.** M is the smallest power of two that is at least the number of parity shards. x(i) = M + i is the point of
data shard i. The code is a Cauchy matrix with scaled columns::

    parity[j] = XOR over i of  G[j, i] * data[i],     G[j, i] = S(x(i)) / (S' * (x(i) ^ j))
    S(x) = product over v < M of (x ^ v),             S' = product over 0 < v < M of v

**The transform** is the additive FFT of Lin, Chung and Han. A block starts at point p, and the halves of its layer have
length d. Its twiddle factor is ``p // d`` with the lowest bit cleared. Parity is computed in four steps: split the data
shards into groups of M; transform each group from its points M + first, ... to coefficients (inverse transform); add
the groups; evaluate the sum at the points 0, 1, ... (forward transform).

**Speed.** Shards are coded in stripes that fit the processor's cache. A row is one stripe of one shard. Multiplication
by a constant is ``bytearray.translate`` with a table of products. Addition is an XOR of 64-bit words. Over GF(2^16)
each block of 64 bytes has the low bytes of 32 elements, then their high bytes; a row separates these planes.
"""

from __future__ import annotations

import threading
from functools import cache, lru_cache, reduce
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from fairway.errors import ErasureCodeError, NotEnoughShardsError

if TYPE_CHECKING:
    from collections.abc import Sequence

Shard: TypeAlias = bytes | bytearray | memoryview
Integers: TypeAlias = npt.NDArray[np.int64]
_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Words: TypeAlias = npt.NDArray[np.uint64]
"""A shard or a stripe of it: 64-bit words in the machine's byte order, which does not affect moves and XOR."""

SHARD_ALIGNMENT: Final = 64
"""Divisor of the length of a shard, in bytes."""
MAX_SHARDS: Final = 65_536
"""Data and parity shards in total."""

_POLYNOMIALS: Final = {8: 0x11D, 16: 0x1002D}
"""Leopard's irreducible polynomial for each number of bits."""
_BLOCK_WORDS: Final = 8
"""Words in a block of 64 bytes; the length of a shard, and of each of its stripes, is a multiple of this."""
_CACHE_WORDS: Final = 1 << 18
"""Approximate number of words in all rows of a computation: 2 MiB fit a processor's cache."""
_MAX_STRIPE_WORDS: Final = 1 << 13
"""Words of the longest stripe: with 64 KiB the overhead of each call is small."""
_MAX_WIDTH: Final = 32
"""Bytes of the widest entry that numpy gathers as one unit."""
_MAX_SINGLE_LANES: Final = 2
"""Most lanes for which single lookups are faster than gathering and separating."""
_MAX_BATCH_BLOCKS: Final = 240
"""Blocks in a batch. The index of each byte has 8 bytes: beyond 128 KiB a C library may allocate from the system each
time."""


def encode(data: Sequence[Shard], parity_count: int) -> list[bytes]:
    """Return parity shards for data shards of one length.

    Raises `ErasureCodeError` unless ``parity_count`` is 1 to ``len(data)``, the shards are at most `MAX_SHARDS` in
    total, and the length is a positive multiple of `SHARD_ALIGNMENT`.
    """
    _check_counts(len(data), parity_count)
    shards = _as_words(data)
    if parity_count == 1:
        return [_sum(shards)]
    workspace = _workspace_for(len(data), parity_count, len(shards[0]))
    for stripe in workspace.stripes:
        rows = workspace.parity([shard[stripe] for shard in shards], range(parity_count))
        for row, shard in zip(rows, workspace.results, strict=False):
            row.store(shard[stripe])
    return [shard.tobytes() for shard in workspace.results]


def recover(data: Sequence[Shard | None], parity: Sequence[Shard | None]) -> dict[int, bytes]:
    """Return the lost data shards, by index.

    Both sequences have the length that they had when encoded; a lost shard is None. Raises `NotEnoughShardsError` if
    fewer than ``len(data)`` shards are present, and `ErasureCodeError` as `encode`.

    Each lost shard is a sum of products of syndromes. A syndrome is a parity shard minus the parity of present data.
    """
    _check_counts(len(data), len(parity))
    lost = [index for index, shard in enumerate(data) if shard is None]
    if not lost:
        return {}
    rows = [index for index, shard in enumerate(parity) if shard is not None][: len(lost)]
    if len(rows) < len(lost):
        raise NotEnoughShardsError(
            f"{len(lost)} of {len(data)} data shards are lost and only {len(rows)} parity shards are left"
        )
    words = iter(_as_words([shard for shard in (*data, *(parity[row] for row in rows)) if shard is not None]))
    if len(parity) == 1:
        return {lost[0]: _sum(list(words))}
    present = [None if shard is None else next(words) for shard in data]
    given = list(words)
    workspace = _workspace_for(len(data), len(parity), len(given[0]))
    field = field_for(len(data), len(parity))
    matrix = _Matrix(field.bits, _inverse(field, workspace.size, lost, rows))
    results = workspace.results[: len(lost)]
    for stripe in workspace.stripes:
        of_present = workspace.parity([None if shard is None else shard[stripe] for shard in present], rows)
        syndromes = [shard[stripe] for shard in results]
        for row, shard, syndrome in zip(rows, given, syndromes, strict=True):
            of_present[row].store(syndrome)
            np.bitwise_xor(syndrome, shard[stripe], out=syndrome)
        matrix.multiply(syndromes)
    return {index: shard.tobytes() for index, shard in zip(lost, results, strict=True)}


def _sum(shards: Sequence[_Words]) -> bytes:
    """Return the XOR of shards: with one parity shard every coefficient of the code is 1."""
    total = shards[0].copy()
    for shard in shards[1:]:
        np.bitwise_xor(total, shard, out=total)
    return total.tobytes()


def _check_counts(data_count: int, parity_count: int) -> None:
    if not 1 <= parity_count <= data_count or data_count + parity_count > MAX_SHARDS:
        raise ErasureCodeError(
            f"{data_count} data and {parity_count} parity shards: there must be at least 1 parity shard, "
            f"at most as many as data shards, and at most {MAX_SHARDS} in all"
        )


def _as_words(shards: Sequence[Shard]) -> list[_Words]:
    sizes = {memoryview(shard).nbytes for shard in shards}
    size = max(sizes)
    if len(sizes) > 1 or size == 0 or size % SHARD_ALIGNMENT:
        raise ErasureCodeError(
            f"shards of {sorted(sizes)} bytes: all must have one length, a positive multiple of {SHARD_ALIGNMENT}"
        )
    return [np.frombuffer(shard, np.uint64) for shard in shards]


class Field:
    """GF(2^bits). Elements are integers, read as Cantor coordinates; addition is XOR."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.order = (1 << bits) - 1
        """Number of non-zero elements; logarithms count modulo this."""
        self.logs = _logarithms(bits)
        """Logarithm of each element; undefined for 0."""
        self.powers = np.zeros(2 * self.order, np.int64)
        """Element of each logarithm, repeated once: the sum of two logarithms needs no reduction."""
        self.powers[self.logs[1:]] = np.arange(1, self.order + 1)
        self.powers[self.order :] = self.powers[: self.order]

    def products(self, constants: Integers, elements: Integers) -> Integers:
        """Return [constant, element]: each element times each constant."""
        products = self.powers[self.logs[constants][:, None] + self.logs[elements]]
        products[constants == 0, :] = 0
        products[:, elements == 0] = 0
        return np.asarray(products)


@cache
def _field(bits: int) -> Field:
    return Field(bits)


def field_for(data_count: int, parity_count: int) -> Field:
    """Return the field that Leopard uses for these counts; its tables are computed once, in milliseconds.

    It is GF(2^16) if the padded number of points exceeds 256. That is possible with fewer than 256 shards: 225 data and
    29 parity shards have 32 + 225 points, padded to 512.
    """
    points = next_power_of_two(next_power_of_two(parity_count) + data_count)
    return _field(8 if points <= 256 else 16)


def next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least a positive number."""
    return 1 << (number - 1).bit_length()


def _logarithms(bits: int) -> Integers:
    """Return the logarithm, base x, of each element given by its Cantor coordinates."""
    size = 1 << bits
    log_of_polynomial = np.zeros(size, np.int64)
    power = 1
    for exponent in range(size - 1):
        log_of_polynomial[power] = exponent
        power = _reduce(power << 1, bits)
    return log_of_polynomial[_span(_cantor_basis(bits))]


def _cantor_basis(bits: int) -> list[int]:
    """Return the Cantor basis, as polynomials over GF(2)."""
    # y^2 + y is linear in y, so each of its values is a sum of its values at powers of two.
    values = _span([_reduce(1 << 2 * position, bits) ^ 1 << position for position in range(bits)])
    basis = [1]
    while len(basis) < bits:
        basis.append(2 * int(np.flatnonzero(values[::2] == basis[-1])[0]))
    return basis


def _span(vectors: list[int]) -> Integers:
    """Return the sums of all subsets of the vectors: entry i sums the vectors whose bit is set in i."""
    sums = np.zeros(1 << len(vectors), np.int64)
    for position, vector in enumerate(vectors):
        half = 1 << position
        sums[half : 2 * half] = sums[:half] ^ vector
    return sums


def _reduce(polynomial: int, bits: int) -> int:
    """Return a polynomial over GF(2) modulo the field's polynomial."""
    while (excess := polynomial.bit_length() - 1 - bits) >= 0:
        polynomial ^= _POLYNOMIALS[bits] << excess
    return polynomial


def _byte_products(bits: int, constants: Integers) -> list[_Bytes]:
    """Return lookup tables that multiply by constants, one byte at a time.

    An element has as many planes as bytes: plane 0 is the low byte. Table p is [byte, constant, plane]: that
    plane of the product of the constant and the element whose plane p is the byte and whose other plane is 0.
    """
    planes = bits // 8
    shifts = 8 * np.arange(planes)
    return [
        (_field(bits).products(constants, np.arange(256) << shift).T[:, :, None] >> shifts).astype(np.uint8)
        for shift in shifts.tolist()
    ]


@lru_cache(maxsize=4096)
def _translation(bits: int, constant: int) -> tuple[tuple[bytes, ...], ...]:
    """Return [p][q]: the table from plane p of an element to plane q of its product with a constant."""
    return tuple(
        tuple(table[:, 0, plane].tobytes() for plane in range(bits // 8))
        for table in _byte_products(bits, np.array([constant]))
    )


def _inverse(field: Field, first_point: int, lost: Sequence[int], rows: Sequence[int]) -> Integers:
    """Return [row, lost shard]: the coefficients of the syndromes, the inverse of a submatrix of the code.

    Cauchy's inverse at [lost x, row y] is (product over all rows r of (x ^ r)) * (product over all lost l of (l ^ y)) /
    (x ^ y) / (product over the other lost l of (x ^ l)) / (product over the other rows r of (y ^ r)). The result is
    divided by the column's scale S(x) / S'. The code computes products as sums of logarithms.
    """
    points, parity = np.array(lost, np.int64) + first_point, np.array(rows, np.int64)
    roots = np.arange(first_point)

    def differences(some: Integers, others: Integers) -> Integers:
        return np.asarray(field.logs[some[:, None] ^ others])

    def among(some: Integers) -> Integers:
        """Return the logarithm of the product of each point's differences to the other points."""
        found = differences(some, some)
        np.fill_diagonal(found, 0)
        return np.asarray(found.sum(axis=1))

    between = differences(points, parity)
    column_scale = differences(points, roots).sum(axis=1) - field.logs[roots[1:]].sum()
    of_lost = between.sum(axis=1) - among(points) - column_scale
    of_rows = between.sum(axis=0) - among(parity)
    return np.asarray(field.powers[(of_lost + of_rows[:, None] - between.T) % field.order])


class _Row:
    """One stripe of one shard: a vector of field elements, zero at first."""

    __slots__ = ("_bits", "is_zero", "planes", "words")

    def __init__(self, bits: int, word_count: int) -> None:
        self._bits = bits
        self.planes = [bytearray(word_count * 8 // (bits // 8)) for _ in range(bits // 8)]
        self.words: list[_Words] = [np.frombuffer(plane, np.uint64) for plane in self.planes]
        self.is_zero = True
        """Whether the row is zero; its memory is then ignored, so clearing a row is cheap."""

    def load(self, stripe: _Words) -> None:
        if self._bits == 8:
            self.words[0][:] = stripe
        else:
            for words, plane in zip(self.words, _plane_views(stripe, self._bits), strict=True):
                words.reshape(plane.shape)[:] = plane
        self.is_zero = False

    def store(self, stripe: _Words) -> None:
        for words, plane in zip(self.words, _plane_views(stripe, self._bits), strict=True):
            plane[:] = 0 if self.is_zero else words.reshape(plane.shape)

    def add(self, other: _Row) -> None:
        if not other.is_zero:
            self._add(other.words)

    def add_product(self, constant: int, other: _Row) -> None:
        if constant and not other.is_zero:
            for source, tables in zip(other.planes, _translation(self._bits, constant), strict=True):
                self._add([np.frombuffer(source.translate(table), np.uint64) for table in tables])

    def _add(self, words: list[_Words]) -> None:
        if self.is_zero:
            self.is_zero = False
            for own, others in zip(self.words, words, strict=True):
                own[:] = others
        else:
            for own, others in zip(self.words, words, strict=True):
                np.bitwise_xor(own, others, out=own)


def _rows(bits: int, count: int, word_count: int) -> list[_Row]:
    return [_Row(bits, word_count) for _ in range(count)]


def _plane_views(words: _Words, bits: int) -> list[_Words]:
    """Return a view of each plane of a stripe, [block, word]."""
    plane_count = bits // 8
    blocks = words.reshape(-1, plane_count, _BLOCK_WORDS // plane_count)
    return [blocks[:, plane] for plane in range(plane_count)]


class _Workspace:
    """Memory for shards of ``word_count`` words, and the transform. A use does not depend on earlier ones.

    A product takes ten times as long as a sum, and multiplication distributes over XOR in both operands. The last
    inverse layer has one twiddle factor per group and is not multiplied group by group. Instead, for each bit of the
    factors, the rows whose factor has that bit are added, and the sum is multiplied once.
    """

    def __init__(self, data_count: int, parity_count: int, word_count: int) -> None:
        self.shape = data_count, parity_count, word_count
        self.size = size = next_power_of_two(parity_count)
        self.stripes = _stripes_of(word_count, 2 * size)
        bits, stripe_words = field_for(data_count, parity_count).bits, self.stripes[0].stop
        self.results: _Words = np.empty((parity_count, word_count), np.uint64)
        """Memory of the results: all parity shards, or all recovered shards."""
        self._group = _rows(bits, size, stripe_words)
        self._sum = _rows(bits, size, stripe_words)
        # The groups begin at the points 1, 2, ... times size: that number, doubled, is their last factor.
        last_factor = 2 * -(-data_count // size)
        self._by_bit = [(1 << bit, _rows(bits, size // 2, stripe_words)) for bit in range(1, last_factor.bit_length())]

    def parity(self, stripes: Sequence[_Words | None], wanted: Sequence[int]) -> list[_Row]:
        """Return rows that are parity at the wanted indices, valid until the next call; None is a shard of zeros."""
        for row in (*self._sum, *(row for _, rows in self._by_bit for row in rows)):
            row.is_zero = True
        for first in range(0, len(stripes), self.size):
            for row in self._group:
                row.is_zero = True
            for row, stripe in zip(self._group, stripes[first : first + self.size], strict=False):
                if stripe is not None:
                    row.load(stripe)
            self._inverse_but_last_layer(self.size + first)
            self._add_last_layer(2 * (first // self.size + 1))
        for factor, rows in self._by_bit:
            for low, row in zip(self._sum, rows, strict=False):
                low.add_product(factor, row)
        self._forward(wanted)
        return self._sum

    def _inverse_but_last_layer(self, first_point: int) -> None:
        """Apply all layers of the inverse transform but the last to the group, in place."""
        half = 1
        while 2 * half < self.size:
            for block in range(0, self.size, 2 * half):
                twiddle = (first_point + block) // half & ~1
                for low, high in _butterflies(self._group, block, half):
                    high.add(low)
                    low.add_product(twiddle, high)
            half *= 2

    def _add_last_layer(self, twiddle: int) -> None:
        """Apply the last inverse layer to the group and add it to the sum, its products separated by factor bits."""
        half = self.size // 2
        accumulators = [rows for factor, rows in self._by_bit if factor & twiddle]
        for index, (low, high) in enumerate(_butterflies(self._group, 0, half)):
            high.add(low)
            self._sum[index].add(low)
            self._sum[index + half].add(high)
            for rows in accumulators:
                rows[index].add(high)

    def _forward(self, wanted: Sequence[int]) -> None:
        """Transform the sum's coefficients to values at the wanted points, in place."""
        half = self.size // 2
        while half:
            # In each layer the value at a point depends only on the block that contains it.
            for block in sorted({point // (2 * half) * 2 * half for point in wanted}):
                twiddle = block // half & ~1
                for low, high in _butterflies(self._sum, block, half):
                    low.add_product(twiddle, high)
                    high.add(low)
            half //= 2


def _butterflies(rows: Sequence[_Row], block: int, half: int) -> zip[tuple[_Row, _Row]]:
    """Return the pairs of rows that a block combines."""
    return zip(rows[block : block + half], rows[block + half : block + 2 * half], strict=True)


def _stripes_of(word_count: int, row_count: int) -> list[slice]:
    """Return stripes of a shard for a computation on ``row_count`` rows: whole blocks, all of one length.

    The last stripe may overlap the one before it, so rows of one length are enough.
    """
    suitable = min(_MAX_STRIPE_WORDS, max(_BLOCK_WORDS, _CACHE_WORDS // row_count))
    stripe_count = -(-word_count // suitable)
    length = -(-word_count // _BLOCK_WORDS // stripe_count) * _BLOCK_WORDS
    starts = [*range(0, word_count - length, length), word_count - length]
    return [slice(start, start + length) for start in starts]


class _Kept(threading.local):
    """The workspace that a thread used last. Allocating a new one from the system takes as long as coding."""

    workspace: _Workspace | None = None


_kept = _Kept()


def _workspace_for(data_count: int, parity_count: int, word_count: int) -> _Workspace:
    """Return a workspace for this shape, valid until the next call in this thread."""
    kept = _kept.workspace
    if kept is None or kept.shape != (data_count, parity_count, word_count):
        kept = _kept.workspace = _Workspace(data_count, parity_count, word_count)
    return kept


class _Matrix:
    """A square matrix over GF(2^bits) of ``coefficients`` [source, target], small and dense.

    One lookup returns a whole column: the table's entry for a byte has its products with up to 32 constants. Gathering
    32 bytes takes little longer than gathering one. The sums have the same layout and are separated at the end. Blocks
    are processed in batches that fit the processor's cache.
    """

    def __init__(self, bits: int, coefficients: Integers) -> None:
        self._bits = bits
        # A lane is one plane of one target. A group is the lanes that share an entry of the table.
        source_count, target_count = coefficients.shape
        lane_count = target_count * bits // 8
        self._width = min(_MAX_WIDTH, 1 << (lane_count - 1).bit_length())
        self._group_count = -(-lane_count // self._width)
        tables = [
            table.reshape(256, source_count, lane_count) for table in _byte_products(bits, coefficients.reshape(-1))
        ]
        self._tables = [self._in_groups(table[:, source]) for source in range(source_count) for table in tables]

    def multiply(self, stripes: Sequence[_Words]) -> None:
        """Replace the stripes, one for each row of the matrix, by their products."""
        planes = [view.view(np.uint8) for stripe in stripes for view in _plane_views(stripe, self._bits)]
        if len(planes) <= _MAX_SINGLE_LANES:
            self._multiply_by_lane(planes)
        else:
            self._multiply_by_group(planes)

    def _multiply_by_lane(self, planes: Sequence[_Bytes]) -> None:
        # bytearray, because translate of bytes also looks for changes and takes twice as long.
        sources = [bytearray(plane) for plane in planes]
        for lane, target in enumerate(planes):
            products = (
                np.frombuffer(source.translate(entries[:, lane].tobytes()), np.uint64)
                for source, (entries,) in zip(sources, self._tables, strict=True)
            )
            target[:] = reduce(np.bitwise_xor, products).view(np.uint8).reshape(target.shape)

    def _multiply_by_group(self, planes: Sequence[_Bytes]) -> None:
        block_count, block_bytes = planes[0].shape
        batch_blocks = -(-block_count // -(-block_count // _MAX_BATCH_BLOCKS))
        index = np.empty((batch_blocks, block_bytes), np.intp)
        shape = (batch_blocks, block_bytes, self._width)
        gathered = np.empty(shape, np.uint8)
        sums = [np.empty(shape, np.uint8) for _ in range(self._group_count)]
        for start in range(0, block_count, batch_blocks):
            batch = [plane[start : start + batch_blocks] for plane in planes]
            count = len(batch[0])
            self._add_up(batch, index[:count], gathered[:count], [total[:count] for total in sums])
            for lane, target in enumerate(batch):
                group, column = divmod(lane, self._width)
                target[:] = sums[group][:count, :, column]

    def _add_up(
        self, planes: Sequence[_Bytes], index: npt.NDArray[np.intp], gathered: _Bytes, sums: Sequence[_Bytes]
    ) -> None:
        """Add the entries of all planes, in each group."""
        for groups, plane in zip(self._tables, planes, strict=True):
            index[:] = plane
            for table, total in zip(groups, sums, strict=True):
                # Every byte is a valid index; "wrap" is the fastest mode of numpy.
                if plane is planes[0]:
                    np.take(table, index, axis=0, out=total, mode="wrap")
                    continue
                np.take(table, index, axis=0, out=gathered, mode="wrap")
                words = total.reshape(-1).view(np.uint64)
                np.bitwise_xor(words, gathered.reshape(-1).view(np.uint64), out=words)

    def _in_groups(self, table: _Bytes) -> list[_Bytes]:
        padded = np.zeros((self._group_count, 256, self._width), np.uint8)
        for group, entries in enumerate(padded):
            lanes = table[:, group * self._width : (group + 1) * self._width]
            entries[:, : lanes.shape[1]] = lanes
        return list(padded)
