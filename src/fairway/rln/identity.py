"""`RlnIdentity`: the secrets of a member, and its public commitment (RLN-V2).

::

    secret     = Poseidon(trapdoor, nullifier)
    commitment = Poseidon(secret)
    leaf       = Poseidon(commitment, message limit)

The text of an identity shows its commitment only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from fairway.errors import ConfigurationError
from fairway.rln.field import FIELD_ORDER, element, number_of, poseidon

_DRAWN_BYTES = 48
"""128 bits more than an element, so that the remainder is practically uniform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RlnIdentity:
    """One member's secrets; each is a field element."""

    trapdoor: bytes = field(repr=False)
    nullifier: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    """Two signals under one message id reveal it."""
    commitment: bytes
    """Public: the member's name in the group."""

    @classmethod
    def create(cls, draw: Callable[[int], bytes] = os.urandom) -> Self:
        """Return a new identity. ``draw`` returns the given number of random bytes."""
        trapdoor, nullifier = (
            element(int.from_bytes(draw(_DRAWN_BYTES), "little") % FIELD_ORDER) for _ in ("trapdoor", "nullifier")
        )
        return cls.of(trapdoor, nullifier)

    @classmethod
    def of(cls, trapdoor: bytes, nullifier: bytes) -> Self:
        """Return the identity with these two secrets. Raises `DecodeError` if one is no field element."""
        for name, value in (("the trapdoor", trapdoor), ("the nullifier", nullifier)):
            number_of(value, name)
        secret = poseidon(trapdoor, nullifier)
        return cls(trapdoor=trapdoor, nullifier=nullifier, secret=secret, commitment=poseidon(secret))


def rate_commitment(commitment: bytes, limit: int) -> bytes:
    """Return the leaf of a member that may send ``limit`` messages in an epoch.

    Raises `ConfigurationError` for a limit below 1, `DecodeError` for a commitment that is no field element.
    """
    if limit < 1:
        raise ConfigurationError(f"a member's limit is 1 message in an epoch or more, not {limit}")
    number_of(commitment, "an identity commitment")
    return poseidon(commitment, element(limit))
