"""`PeerScores`: the penalties of peers (gossipsub 1.1, "Peer scoring", P4 and P7). Time is an argument.

A score is 0, or below 0 for a peer that sent invalid messages or broke the protocol. It outlasts the connection, so
that reconnecting does not reset it. The rewards P1 and P2, the delivery rates P3 and the addresses P6 are not counted:
P3 needs a message rate known in advance, and P6 penalises nodes behind one NAT. All values are nwaku's.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from fairway.libp2p.peer_id import PeerId

GOSSIP_THRESHOLD: Final = -100.0
"""Below this score no gossip is exchanged with a peer."""
PUBLISH_THRESHOLD: Final = -1_000.0
"""Below this score messages of this node are not sent to a peer."""
GRAYLIST_THRESHOLD: Final = -10_000.0
"""Below this score RPCs of a peer are ignored, and it is disconnected."""
MAX_PENALISED: Final = 10_000
"""Peers whose penalties are kept, connected or not; beyond it the oldest are evicted."""

_INVALID_DELIVERIES_WEIGHT: Final = -100.0
"""P4, for the square of the number of invalid messages."""
_INVALID_DELIVERIES_DECAY: Final = 0.5
"""Factor of P4's counter for each decay interval."""
_BEHAVIOUR_PENALTY_WEIGHT: Final = -10.0
"""P7, for the square of the number of invalid RPCs and of grafts during a backoff above the threshold."""
_BEHAVIOUR_PENALTY_THRESHOLD: Final = 2.0
"""Faults without a penalty."""
_BEHAVIOUR_PENALTY_DECAY: Final = 0.986
"""Factor of P7's counter for each decay interval."""
_DECAY_INTERVAL_S: Final = 12.0
"""Time between two decays of the counters."""
_DECAY_TO_ZERO: Final = 0.01
"""Counters below this become 0."""


@dataclass(slots=True)
class _Faults:
    invalid_deliveries: float = 0.0
    behaviour_penalty: float = 0.0


class PeerScores:
    """The faults of peers, from which their scores are computed."""

    def __init__(self) -> None:
        self._faults: OrderedDict[PeerId, _Faults] = OrderedDict()
        self._decayed_s: float | None = None

    def delivered_invalid(self, peer: PeerId) -> None:
        """Note that a peer delivered an invalid message."""
        self._faults_of(peer).invalid_deliveries += 1

    def misbehaved(self, peer: PeerId, times: int = 1) -> None:
        """Note ``times`` faults of a peer: grafts during a backoff, or invalid messages that cannot be read."""
        self._faults_of(peer).behaviour_penalty += times

    def score(self, peer: PeerId) -> float:
        """Return the score of a peer."""
        faults = self._faults.get(peer)
        if faults is None:
            return 0.0
        excess = max(0.0, faults.behaviour_penalty - _BEHAVIOUR_PENALTY_THRESHOLD)
        return _INVALID_DELIVERIES_WEIGHT * faults.invalid_deliveries**2 + _BEHAVIOUR_PENALTY_WEIGHT * excess**2

    def decay(self, now_s: float) -> None:
        """Decay the counters, once in an interval."""
        if self._decayed_s is None:
            self._decayed_s = now_s
        if now_s - self._decayed_s < _DECAY_INTERVAL_S:
            return
        self._decayed_s = now_s
        for peer, faults in list(self._faults.items()):
            faults.invalid_deliveries = _faded(faults.invalid_deliveries, _INVALID_DELIVERIES_DECAY)
            faults.behaviour_penalty = _faded(faults.behaviour_penalty, _BEHAVIOUR_PENALTY_DECAY)
            if faults == _Faults():
                del self._faults[peer]

    def _faults_of(self, peer: PeerId) -> _Faults:
        faults = self._faults.setdefault(peer, _Faults())
        if len(self._faults) > MAX_PENALISED:
            self._faults.popitem(last=False)
        return faults


def _faded(value: float, decay: float) -> float:
    value *= decay
    return value if value >= _DECAY_TO_ZERO else 0.0
