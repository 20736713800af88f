"""The compiled part: the package fairway-rln, loaded when it is first needed.

It has the circuit of RLN-V2 for trees of depth 20, with its keys, and the Poseidon hash. Without it each function here
raises `MissingExtraError`.
"""

from __future__ import annotations

from functools import cache
from typing import Protocol

from fairway.extras import needing


class PartialProof(Protocol):
    """What of a proof depends on the membership and its path alone; it holds the identity secret."""


class Circuit(Protocol):
    """Makes and verifies proofs; every method releases the GIL, and threads may share one circuit.

    A witness is secret | limit | message id | x | external nullifier | 20 elements and 20 bits (a byte each) of the
    path, ``proven`` is proof (128 bytes) | root | x | y | nullifier. Both `ValueError` and a false result are for
    others' bytes; see `fairway.rln.proving`.
    """

    def prove(self, witness: bytes, /) -> bytes:
        """Return ``proven``. Raises `ValueError` for a message id that is not below the limit."""

    def prove_partially(self, witness: bytes, /) -> PartialProof:
        """Return what serves every witness with this secret, limit and path."""

    def finish(self, partial: PartialProof, witness: bytes, /) -> bytes:
        """Return ``proven`` in a third of the time of `prove`."""

    def verify(self, proven: bytes, external_nullifier: bytes, /) -> bool:
        """Return whether a proof holds for its values. Raises `ValueError` for what is no proof."""


def poseidon(*inputs: bytes) -> bytes:
    """Return the Poseidon hash of one to eight field elements, as 32 bytes. Raises `ValueError` for others."""
    with needing("rln", "RLN"):
        import fairway_rln  # noqa: PLC0415 - an extra

    hashed: bytes = fairway_rln.poseidon(list(inputs))
    return hashed


@cache
def circuit() -> Circuit:
    """Return the circuit, which this process loads once."""
    with needing("rln", "RLN"):
        import fairway_rln  # noqa: PLC0415 - an extra

    loaded: Circuit = fairway_rln.Circuit()
    return loaded
