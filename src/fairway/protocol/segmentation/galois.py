"""The finite fields of Leopard-RS, GF(2^8) and GF(2^16), in Cantor coordinates.

Leopard writes a field element as its coordinates in a Cantor basis. Evaluation point number j is then simply
the element j, and the difference of two points is the XOR of their numbers. The basis follows from the field's
polynomial: b(0) = 1, and b(i + 1) is the even one of the two roots of y^2 + y = b(i). So no table of
constants is needed.

Invariant: elements and bytes mean the same here as in Leopard, whose field polynomials these are.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]

_POLYNOMIALS: Final = {8: 0x11D, 16: 0x1002D}
# Leopard's irreducible polynomial for each number of bits.


class Field:
    """GF(2^bits). Elements are integers, read as Cantor coordinates; addition is XOR."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.order = (1 << bits) - 1
        """Number of non-zero elements; logarithms count modulo this."""
        self.logs = _logarithms(bits)
        """Logarithm of each element; the one of 0 has no meaning."""
        self.powers = np.zeros(2 * self.order, np.int64)
        """Element of each logarithm, twice over: the sum of two logarithms needs no reduction."""
        self.powers[self.logs[1:]] = np.arange(1, self.order + 1)
        self.powers[self.order :] = self.powers[: self.order]

    def products(self, constants: Integers, elements: Integers) -> Integers:
        """Return [constant, element]: each element times each constant."""
        products = self.powers[self.logs[constants][:, None] + self.logs[elements]]
        products[constants == 0, :] = 0
        products[:, elements == 0] = 0
        return np.asarray(products)


@cache
def field(bits: int) -> Field:
    """Return the field of 8 or 16 bits; its tables are computed once, in milliseconds."""
    return Field(bits)


def byte_products(bits: int, constants: Integers) -> list[npt.NDArray[np.uint8]]:
    """Return lookup tables that multiply by constants, one byte at a time.

    An element has as many planes as bytes: plane 0 is the low byte. Table p is [byte, constant, plane]: that
    plane of the product of the constant and the element whose plane p is the byte and whose other plane is 0.
    """
    planes = bits // 8
    shifts = 8 * np.arange(planes)
    return [
        (field(bits).products(constants, np.arange(256) << shift).T[:, :, None] >> shifts).astype(np.uint8)
        for shift in shifts.tolist()
    ]


@lru_cache(maxsize=4096)
def translation(bits: int, constant: int) -> tuple[tuple[bytes, ...], ...]:
    """Return [p][q]: the table that takes plane p of an element to plane q of its product with a constant.

    Each is 256 bytes long and fits ``bytearray.translate``.
    """
    return tuple(
        tuple(table[:, 0, plane].tobytes() for plane in range(bits // 8))
        for table in byte_products(bits, np.array([constant]))
    )


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
    # y^2 + y is linear in y, so its value anywhere is a sum of its values at the powers of two.
    values = _span([_reduce(1 << 2 * position, bits) ^ 1 << position for position in range(bits)])
    basis = [1]
    while len(basis) < bits:
        basis.append(2 * int(np.flatnonzero(values[::2] == basis[-1])[0]))
    return basis


def _span(vectors: list[int]) -> Integers:
    """Return the sums of all subsets of the vectors: entry i sums those whose number is a bit set in i."""
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
