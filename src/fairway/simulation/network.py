"""A broadcast network with seeded faults, and a store that keeps what was broadcast.

Every publication reaches every other participant independently: it may be lost, it takes a random time, and it may come
twice. Random delays reorder. The store is a node's archive (13/WAKU2-STORE): it has everything that is not ephemeral.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from fairway.errors import ConfigurationError
from fairway.protocol.effects import Publish, QueryStore
from fairway.wire.waku_message import WakuMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFaults:
    """How bad a network is."""

    loss: float = 0.0
    """Share of deliveries that never happen."""
    duplication: float = 0.0
    """Share of deliveries that happen twice."""
    min_delay_ms: int = 20
    """Fastest delivery."""
    max_delay_ms: int = 250
    """Slowest delivery; the span is what reorders."""
    store_loss: float = 0.0
    """Share of publications that the store misses."""

    def __post_init__(self) -> None:
        for name in ("loss", "duplication", "store_loss"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigurationError(f"{name} is a share and must lie in 0..1, not {getattr(self, name)}")
        if not 0 <= self.min_delay_ms <= self.max_delay_ms:
            raise ConfigurationError("delays need 0 <= min_delay_ms <= max_delay_ms")


class LossyNetwork:
    """Decides, from a seed, what becomes of each publication."""

    def __init__(self, faults: NetworkFaults, seed: int) -> None:
        self.faults = faults
        self.published = 0
        """Publications so far."""
        self.deliveries = 0
        """Deliveries that will happen, copies included."""
        self.lost = 0
        """Deliveries that never happen."""
        self._random = random.Random(seed)  # noqa: S311 - reproducible, and guards nothing
        self._store: dict[bytes, Publish] = {}

    def deliveries_of(self, publication: Publish, receivers: list[str]) -> Iterator[tuple[str, int]]:
        """Yield (receiver, delay in ms) of each delivery of a publication."""
        self.published += 1
        if not publication.message.ephemeral and self._random.random() >= self.faults.store_loss:
            self._store.setdefault(publication.message_hash, publication)
        for receiver in receivers:
            copies = 2 if self._random.random() < self.faults.duplication else 1
            for _ in range(copies):
                if self._random.random() < self.faults.loss:
                    self.lost += 1
                else:
                    self.deliveries += 1
                    yield receiver, self.delay_ms()

    def delay_ms(self) -> int:
        """Return how long the next hop takes."""
        return self._random.randint(self.faults.min_delay_ms, self.faults.max_delay_ms)

    def stored(self) -> Iterator[Publish]:
        """Yield everything that the store keeps, in the order of publication."""
        yield from self._store.values()

    def query(self, query: QueryStore) -> Iterator[WakuMessage]:
        """Yield what a store query finds; the way to the store and back is as lossy as any other."""
        if query.message_hashes:
            found = [self._store[h] for h in query.message_hashes if h in self._store]
        else:
            start, end = query.start_ns or 0, query.end_ns
            found = [
                publication
                for publication in self._store.values()
                if start <= (publication.message.timestamp_ns or 0)
                and (end is None or (publication.message.timestamp_ns or 0) <= end)
            ]
        if found and self._random.random() < self.faults.loss:
            return
        for publication in found:
            yield publication.message
