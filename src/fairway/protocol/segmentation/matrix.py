"""Multiply shard stripes by a small, dense matrix of constants.

No transform shortens this step of decoding. For the smallest matrices, one lookup for each byte and each constant is
fastest. For others one lookup gives a whole column: the table's entry for a byte has its products with up to 32
constants side by side, and to gather 32 bytes takes little longer than to gather one. The sums stand side by side like
that, and are separated at the end. Blocks are worked on in batches, so that memory stays within the processor's cache.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from fairway.protocol.segmentation.galois import Integers, byte_products
from fairway.protocol.segmentation.stripes import Words, plane_views

if TYPE_CHECKING:
    from collections.abc import Sequence

_Bytes: TypeAlias = npt.NDArray[np.uint8]

_MAX_WIDTH: Final = 32
# The widest entry that numpy gathers as one unit.

_MAX_SINGLE_LANES: Final = 2
# Up to here, as many single lookups are faster than gathering and taking apart.

_MAX_BATCH_BLOCKS: Final = 240
# Blocks of 64 bytes that are worked on together. Each byte takes an index of 8 bytes: beyond 128 KiB, a C library
# would get memory for it from the system each time.


class Matrix:
    """A square matrix over GF(2^field_bits). ``coefficients`` is [source, target]."""

    def __init__(self, field_bits: int, coefficients: Integers) -> None:
        self._field_bits = field_bits
        # A lane is one plane of one target. Lanes go side by side in entries of one width, which make a group.
        source_count, target_count = coefficients.shape
        lane_count = target_count * field_bits // 8
        self._width = min(_MAX_WIDTH, 1 << (lane_count - 1).bit_length())
        self._group_count = -(-lane_count // self._width)
        tables = [
            table.reshape(256, source_count, lane_count)
            for table in byte_products(field_bits, coefficients.reshape(-1))
        ]
        self._tables = [self._in_groups(table[:, source]) for source in range(source_count) for table in tables]

    def multiply(self, stripes: Sequence[Words]) -> None:
        """Replace the stripes, one for each row of the matrix, by their products."""
        planes = [view.view(np.uint8) for stripe in stripes for view in plane_views(stripe, self._field_bits)]
        if len(planes) <= _MAX_SINGLE_LANES:
            self._multiply_by_lane(planes)
        else:
            self._multiply_by_group(planes)

    def _multiply_by_lane(self, planes: Sequence[_Bytes]) -> None:
        # Not bytes: their translate looks for changes, and takes twice as long.
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
            self._sum(batch, index[:count], gathered[:count], [total[:count] for total in sums])
            for lane, target in enumerate(batch):
                group, column = divmod(lane, self._width)
                target[:] = sums[group][:count, :, column]

    def _sum(
        self, planes: Sequence[_Bytes], index: npt.NDArray[np.intp], gathered: _Bytes, sums: Sequence[_Bytes]
    ) -> None:
        """Add up the entries of all planes, in each group."""
        gathered_words = _words(gathered)
        for groups, plane in zip(self._tables, planes, strict=True):
            index[:] = plane
            for table, total in zip(groups, sums, strict=True):
                # Every byte is a valid index: "wrap" is chosen for being the fastest of numpy's checks.
                if plane is planes[0]:
                    np.take(table, index, axis=0, out=total, mode="wrap")
                    continue
                np.take(table, index, axis=0, out=gathered, mode="wrap")
                words = _words(total)
                np.bitwise_xor(words, gathered_words, out=words)

    def _in_groups(self, table: _Bytes) -> list[_Bytes]:
        padded = np.zeros((self._group_count, 256, self._width), np.uint8)
        for group, entries in enumerate(padded):
            lanes = table[:, group * self._width : (group + 1) * self._width]
            entries[:, : lanes.shape[1]] = lanes
        return list(padded)


def _words(entries: _Bytes) -> Words:
    return entries.reshape(-1).view(np.uint64)
