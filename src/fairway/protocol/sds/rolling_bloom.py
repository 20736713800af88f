"""The bloom filter that a participant attaches to its messages, kept within its capacity.

SDS, "Participant state": the filter holds ids of received messages and SHOULD roll over so that it stays bounded. When
the capacity is reached, the filter is rebuilt from the newest 80 % of its ids. So the rate of false positives never
exceeds the configured rate, and recent messages are always in the filter. js-waku never rolls its filter over: beyond
10,000 messages its false positives become false acknowledgements.

Few messages have a filter (`fairway.protocol.sds.vouching`). So all new ids are hashed together when a filter is made.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

import numpy as np

from fairway.wire.bloom import BloomFilter, BloomParameters, BloomWire

_KEPT_SHARE: Final = 0.8
"""Share of the newest ids that a rollover keeps, as in nim-sds."""


class RollingBloom:
    """A bloom filter over the newest message ids."""

    def __init__(self, parameters: BloomParameters, wire: BloomWire) -> None:
        self.parameters = parameters
        self._filter = BloomFilter(parameters, wire)
        self._ids: list[str] = []
        self._positions = array("I")
        """Bit positions of the ids that are already in the filter, concatenated in the order of the ids."""
        self._words: bytes | None = None

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._ids)

    def insert(self, message_id: str) -> None:
        """Insert an id; a full filter rolls over."""
        if len(self._ids) >= self.parameters.capacity:
            self._roll_over()
        self._ids.append(message_id)
        self._words = None

    def refill(self, message_ids: Iterable[str]) -> None:
        """Replace the content by the given ids, oldest first; only the newest that fit are kept."""
        self._ids.clear()
        self._positions = array("I")
        self._filter = BloomFilter(self.parameters, self._filter.wire)
        self._words = None
        for message_id in message_ids:
            self.insert(message_id)

    def words(self) -> bytes:
        """Return the filter's words in wire format; the same object until an id is inserted."""
        if self._words is None:
            self._words = bytes(self._up_to_date())
        return self._words

    def set_positions(self) -> list[int]:
        """Return the indices of all set bits."""
        return self._up_to_date().set_positions()

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._up_to_date()

    def _up_to_date(self) -> BloomFilter:
        """Return the filter with all ids in it."""
        new = self._ids[len(self._positions) // self.parameters.hash_count :]
        if new:
            self._positions.frombytes(self._filter.insert_all(new).tobytes())
        return self._filter

    def _roll_over(self) -> None:
        gone = len(self._ids) - int(self.parameters.capacity * _KEPT_SHARE)
        del self._ids[:gone]
        if self._positions:
            del self._positions[: gone * self.parameters.hash_count]
            self._filter.reset(np.array(self._positions, np.uint32))
