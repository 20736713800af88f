"""A broadcast network under virtual time, and a store that keeps what was broadcast.

What becomes of a message the dice of `fairway.waku.local.faults` decide, as in the local network of live programs. The
store is a node's archive (13/WAKU2-STORE): it has everything that is not ephemeral.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairway.protocol.effects import Publish, QueryStore
from fairway.waku.local.faults import FaultDice, NetworkFaults
from fairway.wire.waku_message import WakuMessage

__all__ = ["LossyNetwork", "NetworkFaults"]


class LossyNetwork:
    """Decides, from a seed, what becomes of each publication."""

    def __init__(self, faults: NetworkFaults, seed: int) -> None:
        self.published = 0
        """Publications so far."""
        self.deliveries = 0
        """Deliveries that will happen, copies included."""
        self.lost = 0
        """Deliveries that never happen."""
        self._dice = FaultDice(faults, seed)
        self._store: dict[bytes, Publish] = {}

    @property
    def faults(self) -> NetworkFaults:
        """How bad the network is; may be set at any time."""
        return self._dice.faults

    @faults.setter
    def faults(self, faults: NetworkFaults) -> None:
        self._dice.faults = faults

    def deliveries_of(self, publication: Publish, receivers: list[str]) -> Iterator[tuple[str, int]]:
        """Yield (receiver, delay in ms) of each delivery of a publication."""
        self.published += 1
        if not publication.message.ephemeral and self._dice.is_stored():
            self._store.setdefault(publication.message_hash, publication)
        for receiver in receivers:
            for delay_ms in self._dice.copies():
                if delay_ms is None:
                    self.lost += 1
                else:
                    self.deliveries += 1
                    yield receiver, delay_ms

    def delay_ms(self) -> int:
        """Return how long the next hop takes."""
        return self._dice.delay_ms()

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
        if found and not self._dice.is_answered():
            return
        for publication in found:
            yield publication.message
