"""The transform against the matrix that it computes, multiplied out the slow way."""

import numpy as np
import pytest

from fairway.protocol.segmentation import leopard
from fairway.protocol.segmentation.leopard import field_for, next_power_of_two

LEOPARD_BASIS = {
    8: [1, 214, 152, 146, 86, 200, 88, 230],
    16: [
        *[0x0001, 0xACCA, 0x3C0E, 0x163E, 0xC582, 0xED2E, 0x914C, 0x4012],
        *[0x6C98, 0x10D8, 0x6A72, 0xB900, 0xFDB8, 0xFB34, 0xFF38, 0x991E],
    ],
}
FIELDS = {8: field_for(2, 2), 16: field_for(225, 29)}
POLYNOMIAL = {8: 0x11D, 16: 0x1002D}


def multiply_polynomials(a, b, bits):
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a, b = a << 1, b >> 1
        a ^= POLYNOMIAL[bits] if a >> bits else 0
    return product


def as_polynomial(element, bits):
    polynomial = 0
    for position, basis_element in enumerate(LEOPARD_BASIS[bits]):
        polynomial ^= basis_element if element >> position & 1 else 0
    return polynomial


def product_of(elements, bits):
    product = 1
    for element in elements:
        product = multiply_polynomials(product, as_polynomial(element, bits), bits)
    return product


def inverse(polynomial, bits):
    power = 1
    for _ in range((1 << bits) - 2):
        power = multiply_polynomials(power, polynomial, bits)
    return power


@pytest.mark.parametrize("bits", [8, 16])
def test_elements_are_coordinates_in_leopards_own_basis(bits):
    elements = np.array([1, 2, 3, 5, 77, 130, 255, (1 << bits) - 1])
    products = FIELDS[bits].products(elements, elements)
    for row, a in enumerate(elements.tolist()):
        for column, b in enumerate(elements.tolist()):
            expected = multiply_polynomials(as_polynomial(a, bits), as_polynomial(b, bits), bits)
            assert as_polynomial(int(products[row, column]), bits) == expected


@pytest.mark.parametrize(
    ("k", "m", "bits"), [(224, 28, 8), (225, 28, 16), (227, 29, 16), (128, 128, 8), (129, 128, 16), (248, 8, 8)]
)
def test_the_field_depends_on_the_padded_number_of_points(k, m, bits):
    assert field_for(k, m).bits == bits


@pytest.mark.parametrize(("k", "m"), [(2, 2), (5, 3), (13, 4), (20, 7)])
def test_parity_is_the_scaled_cauchy_matrix_of_the_closed_form(k, m):
    size = next_power_of_two(m)
    scale = inverse(product_of(range(1, size), 8), 8)
    to_element = {as_polynomial(element, 8): element for element in range(256)}
    # A shard with a single 1 picks a column of the matrix.
    for i in range(k):
        point = size + i
        data = [bytes(64)] * k
        data[i] = b"\x01" + bytes(63)
        column = [shard[0] for shard in leopard.encode(data, m)]
        vanishing = multiply_polynomials(product_of((point ^ v for v in range(size)), 8), scale, 8)
        expected = [
            to_element[multiply_polynomials(vanishing, inverse(as_polynomial(point ^ j, 8), 8), 8)] for j in range(m)
        ]
        assert column == expected
