"""Elements of the scalar field of BN254, in which RLN computes, as 32 bytes little-endian, below the field's order."""

from __future__ import annotations

from typing import Final

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.hashing import keccak256

FIELD_ORDER: Final = 21888242871839275222246405745257275088548364400416034343698204186575808495617
ELEMENT_BYTES: Final = 32
ZERO: Final = bytes(ELEMENT_BYTES)
"""The element 0, which is also a place of a tree without a member."""


def element(number: int) -> bytes:
    """Return a number as an element. Raises `ConfigurationError` unless it is 0 to `FIELD_ORDER` - 1."""
    if not 0 <= number < FIELD_ORDER:
        raise ConfigurationError(f"a field element is 0 to {FIELD_ORDER} - 1, not {number}")
    return number.to_bytes(ELEMENT_BYTES, "little")


def number_of(data: bytes, name: str = "a field element") -> int:
    """Return the number that an element holds.

    Raises `DecodeError`, which gives ``name`` and not the bytes, for another length and for numbers that are not below
    the order: one element has one encoding, or a repeated nullifier would look like a new one.
    """
    if len(data) != ELEMENT_BYTES:
        raise DecodeError(f"{name} has {ELEMENT_BYTES} bytes, not {len(data)}")
    number = int.from_bytes(data, "little")
    if number >= FIELD_ORDER:
        raise DecodeError(f"{name} is not below the order of the field")
    return number


def hash_to_field(data: bytes) -> bytes:
    """Return the element that data is hashed to: Keccak-256, read little-endian, modulo the order."""
    return element(int.from_bytes(keccak256(data), "little") % FIELD_ORDER)
