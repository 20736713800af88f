"""The matrices of Leopard-RS in closed form.

Leopard's transform is a Cauchy matrix with scaled columns. With elements in Cantor coordinates (`galois`), M the
power of two at or above the number of parity shards, and x(i) = M + i the point of data shard i::

    parity[j] = XOR over i of  G[j, i] * data[i],     G[j, i] = S(x(i)) / (S' * (x(i) ^ j))
    S(x) = product over v < M of (x ^ v),             S' = product over 0 < v < M of v

Lost data are unique, so to invert G gives what Leopard gives; and the inverse of a Cauchy matrix has a
closed form too, so nothing is eliminated. Products are sums of logarithms here, arrays of them at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairway.protocol.segmentation.galois import Field, Integers, field

if TYPE_CHECKING:
    from collections.abc import Sequence


def next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below a positive number."""
    return 1 << (number - 1).bit_length()


def field_for(data_count: int, parity_count: int) -> Field:
    """Return the field that Leopard uses for these counts.

    It changes silently to GF(2^16) when the padded number of points exceeds 256. That can happen with fewer
    than 256 shards: 225 data and 29 parity shards stand for 32 + 225 points, hence 512.
    """
    points = next_power_of_two(next_power_of_two(parity_count) + data_count)
    return field(8 if points <= 256 else 16)


class Recovery:
    """Coefficients that make the ``lost`` data shards of what is left and as many parity shards, the ``rows``."""

    def __init__(self, data_count: int, parity_count: int, lost: Sequence[int], rows: Sequence[int]) -> None:
        self._field = field_for(data_count, parity_count)
        self._first_point = next_power_of_two(parity_count)
        self._lost = np.array(lost, np.int64) + self._first_point
        self._rows = np.array(rows, np.int64)
        # Cauchy's inverse at [lost x, row y]: (product over all rows r of (x ^ r)) * (product over all lost l of
        # (l ^ y)) / (x ^ y) / (product over the other lost l of (x ^ l)) / (product over the other rows r of
        # (y ^ r)); and the column's scale comes off.
        differences = self._differences(self._lost, self._rows)
        self._lost_scale = differences.sum(axis=1) - self._mutual_products(self._lost) - self._column_scale(self._lost)
        self._row_scale = differences.sum(axis=0) - self._mutual_products(self._rows)

    @property
    def field_bits(self) -> int:
        """Bits of an element."""
        return self._field.bits

    def of_parity(self) -> Integers:
        """Return for each row the coefficients of its syndrome: its parity less that of the present data."""
        logs = self._lost_scale + self._row_scale[:, None] - self._differences(self._rows, self._lost)
        return self._elements(logs)

    def of_data(self, present: Sequence[int]) -> Integers:
        """Return for each present data shard its coefficients, to be used beside those of the parity shards."""
        points = np.array(present, np.int64) + self._first_point
        # What a present shard adds to each row, carried through the inverse. The sum over the rows is a Lagrange
        # interpolation, so it too is a product.
        to_lost = self._differences(points, self._lost)
        scale = self._column_scale(points) + to_lost.sum(axis=1) - self._differences(points, self._rows).sum(axis=1)
        return self._elements(self._lost_scale + scale[:, None] - to_lost)

    def _differences(self, points: Integers, others: Integers) -> Integers:
        """Return the logarithm of each difference of two disjoint sets of points."""
        return np.asarray(self._field.logs[points[:, None] ^ others])

    def _mutual_products(self, points: Integers) -> Integers:
        """Return for each point the logarithm of the product of its differences to the other points."""
        differences = self._differences(points, points)
        np.fill_diagonal(differences, 0)
        return np.asarray(differences.sum(axis=1))

    def _column_scale(self, points: Integers) -> Integers:
        """Return the logarithm of S(x) / S' for each point."""
        roots = np.arange(self._first_point)
        return np.asarray(self._differences(points, roots).sum(axis=1) - self._field.logs[roots[1:]].sum())

    def _elements(self, logs: Integers) -> Integers:
        return np.asarray(self._field.powers[logs % self._field.order])
