"""`PeerScores`: the scores of peers (gossipsub 1.1, "Peer scoring"), without the mesh delivery rates P3.

P3 penalises peers that deliver too few messages, which requires a message rate known in advance; Waku nodes set its
weight to 0 as well. Invariant: a bad score is kept for `RETAIN_SCORE_S` after the peer disconnected, so that
reconnecting does not reset it; at most `MAX_RETAINED` such scores are kept. Time is an argument.

Penalties have negative weights. All values are nwaku's, except `_IP_COLOCATION_THRESHOLD`.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import Final

from fairway.libp2p.peer_id import PeerId

GOSSIP_THRESHOLD: Final = -100.0
"""Below this score no gossip is exchanged with a peer."""
PUBLISH_THRESHOLD: Final = -1_000.0
"""Below this score messages of this node are not sent to a peer."""
GRAYLIST_THRESHOLD: Final = -10_000.0
"""Below this score RPCs of a peer are ignored, and it is disconnected."""
OPPORTUNISTIC_GRAFT_THRESHOLD: Final = 0.0
"""A mesh whose median score is below this grafts better peers."""
MAX_RETAINED: Final = 10_000
"""Bad scores of disconnected peers that are kept."""
RETAIN_SCORE_S: Final = 600.0
"""Time for which the bad score of a disconnected peer is kept."""

_TIME_IN_MESH_WEIGHT: Final = 0.01
"""P1, for each second that a peer has been in a mesh."""
_TIME_IN_MESH_CAP_S: Final = 10.0
"""Seconds after which P1 does not grow."""
_FIRST_DELIVERIES_WEIGHT: Final = 1.0
"""P2, for each message that a peer was the first to deliver."""
_FIRST_DELIVERIES_CAP: Final = 10.0
"""Messages after which P2 does not grow."""
_FIRST_DELIVERIES_DECAY: Final = 0.5
"""Factor of P2's counter for each decay interval."""
_INVALID_DELIVERIES_WEIGHT: Final = -100.0
"""P4, for the square of the number of invalid messages."""
_INVALID_DELIVERIES_DECAY: Final = 0.5
"""Factor of P4's counter for each decay interval."""
_IP_COLOCATION_WEIGHT: Final = -50.0
"""P6, for the square of the number of peers of one address above the threshold."""
_IP_COLOCATION_THRESHOLD: Final = 20
"""Peers of one address without a penalty; nwaku's 5 is too few for several nodes behind one NAT."""
_BEHAVIOUR_PENALTY_WEIGHT: Final = -10.0
"""P7, for the square of the number of broken promises and of grafts during a backoff above the threshold."""
_BEHAVIOUR_PENALTY_THRESHOLD: Final = 2.0
"""Faults without a penalty."""
_BEHAVIOUR_PENALTY_DECAY: Final = 0.986
"""Factor of P7's counter for each decay interval."""
_DECAY_INTERVAL_S: Final = 12.0
"""Time between two decays of the counters."""
_DECAY_TO_ZERO: Final = 0.01
"""Counters below this become 0."""


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
    """The counters of all peers, from which their scores are computed."""

    def __init__(self) -> None:
        self._peers: dict[PeerId, _PeerCounters] = {}
        self._left: OrderedDict[PeerId, _PeerCounters] = OrderedDict()
        self._by_address: defaultdict[str, int] = defaultdict(int)
        self._decayed_s: float | None = None

    def add_peer(self, peer: PeerId, address: str | None) -> None:
        """Add a peer that connected, with its kept counters if there are any; ``address`` is its IP address."""
        if peer in self._peers:
            return
        counters = self._peers[peer] = self._left.pop(peer) if peer in self._left else _PeerCounters(address)
        counters.address = address
        if address is not None:
            self._by_address[address] += 1

    def remove_peer(self, peer: PeerId, now_s: float) -> None:
        """Remove a peer that disconnected; keep its counters if its score is bad."""
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
        """Note that a peer was added to a mesh."""
        if peer in self._peers:
            self._peers[peer].topics[topic].grafted_s = now_s

    def pruned(self, peer: PeerId, topic: str) -> None:
        """Note that a peer was removed from a mesh."""
        if peer in self._peers:
            self._peers[peer].topics[topic].grafted_s = None

    def delivered_first(self, peer: PeerId, topic: str) -> None:
        """Note that a peer was the first to deliver a valid message."""
        counters = self._peers.get(peer)
        if counters is not None:
            topic_counters = counters.topics[topic]
            topic_counters.first_deliveries = min(_FIRST_DELIVERIES_CAP, topic_counters.first_deliveries + 1)

    def delivered_invalid(self, peer: PeerId, topic: str) -> None:
        """Note that a peer delivered an invalid message."""
        if peer in self._peers:
            self._peers[peer].topics[topic].invalid_deliveries += 1

    def misbehaved(self, peer: PeerId, times: int = 1) -> None:
        """Note ``times`` faults of a peer: a broken promise, a graft during a backoff, an invalid or excessive RPC."""
        if peer in self._peers:
            self._peers[peer].penalty += times

    def score(self, peer: PeerId, now_s: float) -> float:
        """Return the score of a peer; 0 for an unknown one."""
        counters = self._peers.get(peer) or self._left.get(peer)
        if counters is None:
            return 0.0
        total = 0.0
        for topic in counters.topics.values():
            if topic.grafted_s is not None:
                total += _TIME_IN_MESH_WEIGHT * min(_TIME_IN_MESH_CAP_S, now_s - topic.grafted_s)
            total += _FIRST_DELIVERIES_WEIGHT * topic.first_deliveries
            total += _INVALID_DELIVERIES_WEIGHT * topic.invalid_deliveries**2
        if counters.address is not None:
            surplus = self._by_address.get(counters.address, 0) - _IP_COLOCATION_THRESHOLD
            total += _IP_COLOCATION_WEIGHT * max(0, surplus) ** 2
        excess = max(0.0, counters.penalty - _BEHAVIOUR_PENALTY_THRESHOLD)
        return total + _BEHAVIOUR_PENALTY_WEIGHT * excess**2

    def decay(self, now_s: float) -> None:
        """Decay the counters, once in an interval, and remove those kept for longer than `RETAIN_SCORE_S`."""
        if self._decayed_s is None:
            self._decayed_s = now_s
        if now_s - self._decayed_s < _DECAY_INTERVAL_S:
            return
        self._decayed_s = now_s
        while self._left and now_s - next(iter(self._left.values())).left_s > RETAIN_SCORE_S:
            self._left.popitem(last=False)
        for counters in (*self._peers.values(), *self._left.values()):
            counters.penalty = _faded(counters.penalty, _BEHAVIOUR_PENALTY_DECAY)
            for name, topic in list(counters.topics.items()):
                topic.first_deliveries = _faded(topic.first_deliveries, _FIRST_DELIVERIES_DECAY)
                topic.invalid_deliveries = _faded(topic.invalid_deliveries, _INVALID_DELIVERIES_DECAY)
                if topic == _TopicCounters():
                    del counters.topics[name]


def _faded(value: float, decay: float) -> float:
    value *= decay
    return value if value >= _DECAY_TO_ZERO else 0.0
