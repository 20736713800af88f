"""The additive fast Fourier transform behind Leopard-RS, over rows of shard stripes.

It is the transform of Lin, Chung and Han. In Cantor coordinates the twiddle factor of the block that starts
at point p, in the layer whose halves are d long, is ``p // d`` with its lowest bit cleared: no table is needed.

Parity is: cut the data shards into groups of M, take each group from its points M + first, ... back to
coefficients (inverse transform), add the groups up, and evaluate the sum at the points 0, 1, ... (forward
transform). M is a power of two, the number of parity shards or the next above.

A product takes ten times as long as a sum, and multiplication distributes over XOR in both its operands. So the last
inverse layer, which has one twiddle factor for a whole group, is not multiplied group by group: for each bit of the
factors, the rows whose factor has it are added up first, and their sum is multiplied once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.protocol.segmentation.stripes import Row, Words, make_rows

if TYPE_CHECKING:
    from collections.abc import Sequence


def cost_in_products(data_count: int, size: int) -> float:
    """Return about how many products of a row take as long as the parity of so many shards."""
    groups = -(-data_count // size)
    layers = size.bit_length() - 1
    products = (size // 2) * ((groups + 1) * (layers - 1) + (2 * groups).bit_length() - 1)
    return products + 0.4 * data_count


class ParityTransform:
    """Computes parity for stripes of ``word_count`` words, of ``data_count`` shards in groups of ``size``."""

    def __init__(self, field_bits: int, data_count: int, size: int, word_count: int) -> None:
        self._size = size
        self._group = make_rows(field_bits, size, word_count)
        self._sum = make_rows(field_bits, size, word_count)
        # The groups begin at the points 1, 2, ... times size: that number, doubled, is their last factor.
        last_factor = 2 * -(-data_count // size)
        self._by_bit = [
            (1 << bit, make_rows(field_bits, size // 2, word_count)) for bit in range(1, last_factor.bit_length())
        ]

    def parity(self, stripes: Sequence[Words | None], wanted: Sequence[int]) -> list[Row]:
        """Return rows of which the wanted ones are parity, until the next call; None is a shard of zeros."""
        for row in (*self._sum, *(row for _, rows in self._by_bit for row in rows)):
            row.is_zero = True
        for first in range(0, len(stripes), self._size):
            for row in self._group:
                row.is_zero = True
            for row, stripe in zip(self._group, stripes[first : first + self._size], strict=False):
                if stripe is not None:
                    row.load(stripe)
            self._inverse_but_last_layer(self._size + first)
            self._add_last_layer(2 * (first // self._size + 1))
        for factor, rows in self._by_bit:
            for low, row in zip(self._sum, rows, strict=False):
                low.add_product(factor, row)
        self._forward(wanted)
        return self._sum

    def _inverse_but_last_layer(self, first_point: int) -> None:
        """Turn the group's values at the points from first_point on almost into coefficients, in place."""
        rows = self._group
        half = 1
        while 2 * half < self._size:
            for block in range(0, self._size, 2 * half):
                twiddle = (first_point + block) // half & ~1
                for low, high in _butterflies(rows, block, half):
                    high.add(low)
                    low.add_product(twiddle, high)
            half *= 2

    def _add_last_layer(self, twiddle: int) -> None:
        """Add the group's coefficients to the sum, the products of its twiddle factor apart by bits."""
        half = self._size // 2
        accumulators = [rows for factor, rows in self._by_bit if factor & twiddle]
        for index, (low, high) in enumerate(_butterflies(self._group, 0, half)):
            high.add(low)
            self._sum[index].add(low)
            self._sum[index + half].add(high)
            for rows in accumulators:
                rows[index].add(high)

    def _forward(self, wanted: Sequence[int]) -> None:
        """Turn the sum's coefficients into values at the points from 0 on, in place, where wanted."""
        rows = self._sum
        half = self._size // 2
        while half:
            # In each layer the value at a point depends on no block but the one around it.
            for block in sorted({point // (2 * half) * 2 * half for point in wanted}):
                twiddle = block // half & ~1
                for low, high in _butterflies(rows, block, half):
                    low.add_product(twiddle, high)
                    high.add(low)
            half //= 2


def _butterflies(rows: Sequence[Row], block: int, half: int) -> zip[tuple[Row, Row]]:
    """Return the pairs of rows that meet in a block."""
    return zip(rows[block : block + half], rows[block + half : block + 2 * half], strict=True)
