"""Random numbers for timers, as a function of a seed of the caller and a counter."""

from __future__ import annotations

import hashlib

_SCALE = 1 << 64


class Jitter:
    """A reproducible stream of numbers; ``counter`` is its whole state."""

    __slots__ = ("_seed", "counter")

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self.counter = 0

    def _next(self, purpose: bytes) -> bytes:
        self.counter += 1
        return hashlib.sha256(purpose + self.counter.to_bytes(8, "big") + self._seed).digest()

    def fraction(self) -> float:
        """Return the next number in [0, 1)."""
        return int.from_bytes(self._next(b"fraction")[:8], "big") / _SCALE

    def identifier(self) -> str:
        """Return the next identifier: 10 bytes as 20 hex digits (a RequestId of MESSAGING-API)."""
        return self._next(b"identifier")[:10].hex()
