"""How good a peer is to its mesh: gossipsub 1.1, "Peer scoring", without the mesh delivery rates P3.

P3 punishes peers that bring too little, which needs a message rate known in advance; Waku nodes leave it at 0 as well.
Invariant: what a peer does badly is remembered for `ScoreOptions.retain_score_s` after it left, so reconnecting washes
nothing off, and at most `MAX_RETAINED` of those that left are remembered. Time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import Final

from fairway.waku.libp2p.gossipsub.options import ScoreOptions
from fairway.waku.libp2p.peer_id import PeerId

MAX_RETAINED: Final = 10_000
"""Peers that left with a bad score and are remembered."""


@dataclass(slots=True)
class _TopicCounters:
    grafted_s: float | None = None
    first_deliveries: float = 0.0
    invalid_deliveries: float = 0.0


@dataclass(slots=True)
class _PeerCounters:
    address: str | None
    topics: defaultdict[str, _TopicCounters] = field(default_factory=lambda: defaultdict(_TopicCounters))
    penalty: float = 0.0
    left_s: float = 0.0


class PeerScores:
    """The counters of all peers, and the scores that follow from them."""

    def __init__(self, options: ScoreOptions) -> None:
        self._options: Final = options
        self._peers: dict[PeerId, _PeerCounters] = {}
        self._left: OrderedDict[PeerId, _PeerCounters] = OrderedDict()
        self._by_address: defaultdict[str, int] = defaultdict(int)
        self._decayed_s: float | None = None

    def add_peer(self, peer: PeerId, address: str | None) -> None:
        """Begin, or go on, with a peer that connected; ``address`` is its IP address."""
        if peer in self._peers:
            return
        counters = self._peers[peer] = self._left.pop(peer) if peer in self._left else _PeerCounters(address)
        counters.address = address
        if address is not None:
            self._by_address[address] += 1

    def remove_peer(self, peer: PeerId, now_s: float) -> None:
        """Note that a peer left; a score that is not bad is forgotten at once."""
        if peer not in self._peers:
            return
        bad = self.score(peer, now_s) < 0
        counters = self._peers.pop(peer)
        if counters.address is not None:
            self._by_address[counters.address] -= 1
            if not self._by_address[counters.address]:
                del self._by_address[counters.address]
        if not bad:
            return
        for topic in counters.topics.values():
            topic.grafted_s, topic.first_deliveries = None, 0.0
        counters.left_s = now_s
        self._left[peer] = counters
        if len(self._left) > MAX_RETAINED:
            self._left.popitem(last=False)

    def grafted(self, peer: PeerId, topic: str, now_s: float) -> None:
        """Note that a peer came into a mesh."""
        if peer in self._peers:
            self._peers[peer].topics[topic].grafted_s = now_s

    def pruned(self, peer: PeerId, topic: str) -> None:
        """Note that a peer left a mesh."""
        if peer in self._peers:
            self._peers[peer].topics[topic].grafted_s = None

    def delivered_first(self, peer: PeerId, topic: str) -> None:
        """Note that a peer was the first to bring a valid message."""
        counters = self._peers.get(peer)
        if counters is not None:
            cap = self._options.first_message_deliveries_cap
            topic_counters = counters.topics[topic]
            topic_counters.first_deliveries = min(cap, topic_counters.first_deliveries + 1)

    def delivered_invalid(self, peer: PeerId, topic: str) -> None:
        """Note that a peer brought an invalid message."""
        if peer in self._peers:
            self._peers[peer].topics[topic].invalid_deliveries += 1

    def misbehaved(self, peer: PeerId, times: int = 1) -> None:
        """Note a broken promise or a graft during a backoff."""
        if peer in self._peers:
            self._peers[peer].penalty += times

    def score(self, peer: PeerId, now_s: float) -> float:
        """Return the score of a peer; 0 for one that is not known."""
        counters = self._peers.get(peer) or self._left.get(peer)
        if counters is None:
            return 0.0
        options = self._options
        total = 0.0
        for topic in counters.topics.values():
            if topic.grafted_s is not None:
                total += options.time_in_mesh_weight * min(options.time_in_mesh_cap_s, now_s - topic.grafted_s)
            total += options.first_message_deliveries_weight * topic.first_deliveries
            total += options.invalid_message_deliveries_weight * topic.invalid_deliveries**2
        if counters.address is not None:
            surplus = self._by_address.get(counters.address, 0) - options.ip_colocation_threshold
            total += options.ip_colocation_weight * max(0, surplus) ** 2
        excess = max(0.0, counters.penalty - options.behaviour_penalty_threshold)
        return total + options.behaviour_penalty_weight * excess**2

    def decay(self, now_s: float) -> None:
        """Let the counters fade, once in an interval, and forget those who left long ago."""
        options = self._options
        if self._decayed_s is None:
            self._decayed_s = now_s
        if now_s - self._decayed_s < options.decay_interval_s:
            return
        self._decayed_s = now_s
        while self._left and now_s - next(iter(self._left.values())).left_s > options.retain_score_s:
            self._left.popitem(last=False)
        for counters in (*self._peers.values(), *self._left.values()):
            counters.penalty = self._faded(counters.penalty, options.behaviour_penalty_decay)
            for name, topic in list(counters.topics.items()):
                topic.first_deliveries = self._faded(topic.first_deliveries, options.first_message_deliveries_decay)
                topic.invalid_deliveries = self._faded(
                    topic.invalid_deliveries, options.invalid_message_deliveries_decay
                )
                if topic == _TopicCounters():
                    del counters.topics[name]

    def _faded(self, value: float, decay: float) -> float:
        value *= decay
        return value if value >= self._options.decay_to_zero else 0.0
