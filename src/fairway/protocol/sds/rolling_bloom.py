"""The bloom filter that a participant attaches to its messages, kept within its capacity.

SDS, "Participant state": the filter holds ids of received messages and SHOULD roll over so that it stays bounded. When
the capacity is reached, the filter is rebuilt from the newest 80 % of its ids. So the rate of false positives never
exceeds the one that the filter is made for, and recent messages are always in it. js-waku never rolls its filter over:
beyond 10,000 messages its false positives become false acknowledgements.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

import numpy as np

from fairway.wire.bloom import BloomFilter, BloomParameters, BloomWire

_KEPT_SHARE: Final = 0.8
"""nim-sds keeps the same share."""


class RollingBloom:
    """A bloom filter over the newest message ids."""

    def __init__(self, parameters: BloomParameters, wire: BloomWire) -> None:
        self.parameters = parameters
        self._filter = BloomFilter(parameters, wire)
        self._positions = array("I")
        self._words: bytes | None = None

    def __len__(self) -> int:
        """Return how many insertions the filter holds."""
        return len(self._positions) // self.parameters.hash_count

    def insert(self, message_id: str) -> list[int]:
        """Put an id in, rolling over when the filter is full, and return the bit positions of the id."""
        if len(self) >= self.parameters.capacity:
            self._roll_over()
        positions = self._filter.insert(message_id)
        self._positions.extend(positions)
        self._words = None
        return positions

    def positions(self, message_id: str) -> list[int]:
        """Return the bit positions of an id, whether it is in the filter or not."""
        return self._filter.wire.positions(message_id, self.parameters)

    def refill(self, message_ids: Iterable[str]) -> None:
        """Make the newest of the given ids, oldest first, the content of the filter."""
        self._positions = array("I")
        self._filter = BloomFilter(self.parameters, self._filter.wire)
        self._words = None
        for message_id in message_ids:
            self.insert(message_id)

    def words(self) -> bytes:
        """Return the filter's words as they are sent; the same object until an id is inserted."""
        if self._words is None:
            self._words = bytes(self._filter)
        return self._words

    def set_positions(self) -> list[int]:
        """Return the indices of all set bits."""
        return self._filter.set_positions()

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._filter

    def _roll_over(self) -> None:
        keep = int(self.parameters.capacity * _KEPT_SHARE) * self.parameters.hash_count
        self._positions = self._positions[len(self._positions) - keep :] if keep else array("I")
        self._filter.reset(np.frombuffer(self._positions, np.uint32) if keep else np.empty(0, np.uint32))
