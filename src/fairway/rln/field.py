"""Elements of the scalar field of BN254, in which RLN computes, as 32 bytes little-endian, below the field's order.

`poseidon` and `fairway.rln.proving.circuit` load the compiled package fairway-rln when they are first called. Without
it they raise `MissingExtraError`.
"""

from __future__ import annotations

from typing import Final

from fairway.errors import ConfigurationError, DecodeError
from fairway.extras import needing
from fairway.wire.hashing import keccak256

FIELD_ORDER: Final = 21888242871839275222246405745257275088548364400416034343698204186575808495617
ELEMENT_BYTES: Final = 32
ZERO: Final = bytes(ELEMENT_BYTES)
"""The element 0; in a tree, the leaf of a place without a member."""


def element(number: int) -> bytes:
    """Return a number as an element. Raises `ConfigurationError` unless it is 0 to `FIELD_ORDER` - 1."""
    if not 0 <= number < FIELD_ORDER:
        raise ConfigurationError(f"a field element is 0 to {FIELD_ORDER} - 1, not {number}")
    return number.to_bytes(ELEMENT_BYTES, "little")


def number_of(data: bytes, name: str = "a field element") -> int:
    """Return the number that an element holds.

    Raises `DecodeError` for another length and for numbers that are not below the order. Its text has ``name`` and not
    the bytes. An element has exactly one encoding; otherwise a repeated nullifier would look like a new one.
    """
    if len(data) != ELEMENT_BYTES:
        raise DecodeError(f"{name} has {ELEMENT_BYTES} bytes, not {len(data)}")
    number = int.from_bytes(data, "little")
    if number >= FIELD_ORDER:
        raise DecodeError(f"{name} is not below the order of the field")
    return number


def hash_to_field(data: bytes) -> bytes:
    """Return Keccak-256 of data, read little-endian, modulo the order."""
    return element(int.from_bytes(keccak256(data), "little") % FIELD_ORDER)


def poseidon(*inputs: bytes) -> bytes:
    """Return the Poseidon hash of one to eight elements as an element. Raises `ValueError` for other input."""
    with needing("rln", "RLN"):
        import fairway_rln  # noqa: PLC0415 - an extra

    hashed: bytes = fairway_rln.poseidon(list(inputs))
    return hashed
