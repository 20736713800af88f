"""`Mesh`: the peers in the mesh of each topic (gossipsub 1.0, "Mesh maintenance", with the backoffs of 1.1).

Invariant: a member of a mesh is connected and subscribed to its topic. A pruned peer is not grafted before its backoff
has passed, at either side's request. After `maintain` a mesh has between ``d_low`` and ``d_high`` members if there are
enough suitable peers. Time and randomness are arguments.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from fairway.bounded import BoundedDict
from fairway.libp2p.gossipsub.codec import Prune
from fairway.libp2p.gossipsub.options import GossipsubOptions
from fairway.libp2p.gossipsub.score import PUBLISH_THRESHOLD, PeerScores
from fairway.libp2p.peer_id import PeerId

HEARTBEAT_INTERVAL_S: Final = 1.0
"""Time between two calls of `Mesh.maintain`."""
UNSUBSCRIBE_BACKOFF_S: Final = 5
"""Time for which peers must not graft again after this node has unsubscribed."""
PRUNE_BACKOFF_S: Final = 60
"""Time for which a pruned peer must not graft again."""
MAX_BACKOFFS: Final = 100_000
"""Pairs of a peer and a topic whose backoff is kept; beyond it the oldest is dropped."""
_GRAFT_FLOOD_THRESHOLD_S: Final = 10
"""A graft this soon after a prune is penalised twice."""
_MAX_TOPICS_PER_PEER: Final = 1_024
"""Subscriptions that are kept for each peer."""
_MAX_BACKOFF_S: Final = 3_600
"""Longest backoff that a peer can ask for."""


@dataclass(slots=True)
class _Peer:
    dialled: bool
    topics: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Topic:
    members: dict[PeerId, None] = field(default_factory=dict)
    newcomers: set[PeerId] = field(default_factory=set)


class Mesh:
    """The meshes of all topics of one node."""

    def __init__(self, options: GossipsubOptions, scores: PeerScores, rng: random.Random) -> None:
        self._options: Final = options
        self._scores: Final = scores
        self._rng: Final = rng
        self._peers: dict[PeerId, _Peer] = {}
        self._subscribers: dict[str, dict[PeerId, None]] = {}
        self._topics: dict[str, _Topic] = {}
        self._backoffs: BoundedDict[tuple[PeerId, str], float] = BoundedDict(MAX_BACKOFFS)

    @property
    def interests(self) -> int:
        """Subscriptions of all peers: pairs of a peer and a topic."""
        return sum(map(len, self._subscribers.values()))

    @property
    def backoffs(self) -> int:
        """Pairs of a peer and a topic that must not be grafted yet."""
        return len(self._backoffs)

    @property
    def peers(self) -> tuple[PeerId, ...]:
        """All peers."""
        return tuple(self._peers)

    def has(self, peer: PeerId) -> bool:
        """Return whether a peer was added and not removed."""
        return peer in self._peers

    def add_peer(self, peer: PeerId, *, dialled: bool) -> None:
        """Add a peer; ``dialled`` says whether this node opened the connection."""
        self._peers.setdefault(peer, _Peer(dialled))

    def remove_peer(self, peer: PeerId) -> None:
        """Remove a peer; its backoffs stay, because it may reconnect at once."""
        known = self._peers.pop(peer, None)
        for topic in known.topics if known else ():
            self._lose_interest(peer, topic)

    def leave_meshes(self, peer: PeerId) -> None:
        """Remove a peer from all meshes, without a prune or a backoff; its subscriptions stay."""
        for mesh in self._topics.values():
            mesh.members.pop(peer, None)

    def interest(self, peer: PeerId, topic: str, *, subscribed: bool) -> None:
        """Note that a peer subscribed to a topic or unsubscribed from it."""
        known = self._peers[peer]
        if subscribed and topic not in known.topics and len(known.topics) < _MAX_TOPICS_PER_PEER:
            known.topics.add(topic)
            self._subscribers.setdefault(topic, {})[peer] = None
        elif not subscribed and topic in known.topics:
            known.topics.remove(topic)
            self._lose_interest(peer, topic)

    def subscribers(self, topic: str) -> frozenset[PeerId]:
        """Return the peers that are subscribed to a topic."""
        return frozenset(self._subscribers.get(topic, ()))

    def members(self, topic: str) -> frozenset[PeerId]:
        """Return the mesh of a topic."""
        known = self._topics.get(topic)
        return frozenset(known.members) if known else frozenset()

    def take_newcomers(self, topic: str) -> frozenset[PeerId]:
        """Return the members that joined since the last call."""
        mesh = self._topics[topic]
        newcomers = mesh.newcomers.intersection(mesh.members)
        mesh.newcomers.clear()
        return frozenset(newcomers)

    def outsiders(self, topic: str) -> tuple[PeerId, ...]:
        """Return the subscribers of a topic that are not in its mesh."""
        members = self._topics[topic].members
        return tuple(peer for peer in self._subscribers.get(topic, ()) if peer not in members)

    def join(self, topic: str) -> tuple[PeerId, ...]:
        """Begin the mesh of a topic, and return the peers in it, which must be grafted."""
        self._topics[topic] = _Topic()
        return self._graft(self._choose(topic, self._options.d), topic)

    def leave(self, topic: str, now_s: float) -> tuple[PeerId, ...]:
        """End the mesh of a topic, and return its peers, which must be pruned."""
        members = tuple(self._topics.pop(topic).members)
        for peer in members:
            self._back_off(peer, topic, now_s + UNSUBSCRIBE_BACKOFF_S)
        return members

    def takers_of_own(self, topic: str) -> tuple[PeerId, ...]:
        """Return the peers that get a message of this node (1.1, "Flood publishing")."""
        if self._options.flood_publish:
            takers = self._subscribers.get(topic, {})
            return tuple(peer for peer in takers if self._scores.score(peer) >= PUBLISH_THRESHOLD)
        return tuple(self._topics[topic].members) if topic in self._topics else ()

    def grafted_by(self, peer: PeerId, topic: str, now_s: float) -> Prune | None:
        """Add a peer that sent a graft to the mesh; return None, or the prune if it is refused."""
        mesh = self._topics.get(topic)
        if mesh is None:
            return None  # 1.1, "Spam protection": a graft for an unknown topic is ignored
        if peer in mesh.members:
            return None
        due_s = self._backoffs.get((peer, topic))
        if due_s is not None and now_s < due_s:
            early = now_s < due_s - PRUNE_BACKOFF_S + _GRAFT_FLOOD_THRESHOLD_S
            self._scores.misbehaved(peer, 2 if early else 1)
        elif self._scores.score(peer) >= 0 and (len(mesh.members) < self._options.d_high or self._peers[peer].dialled):
            self.interest(peer, topic, subscribed=True)
            if topic in self._peers[peer].topics:
                self._graft((peer,), topic)
                return None
        self._back_off(peer, topic, now_s + PRUNE_BACKOFF_S)
        return Prune(topic=topic, backoff_s=PRUNE_BACKOFF_S)

    def pruned_by(self, peer: PeerId, topic: str, backoff_s: int | None, now_s: float) -> None:
        """Remove a peer that sent a prune from the mesh, and do not graft it for ``backoff_s``.

        A backoff of 0 means the default, as in go-libp2p and js-libp2p.
        """
        mesh = self._topics.get(topic)
        if mesh is None:
            return
        mesh.members.pop(peer, None)
        asked_s = min(backoff_s, _MAX_BACKOFF_S) if backoff_s else PRUNE_BACKOFF_S
        self._back_off(peer, topic, now_s + asked_s)

    def maintain(self, topic: str, now_s: float) -> tuple[tuple[PeerId, ...], tuple[PeerId, ...]]:
        """Bring a mesh to its size, and return the peers to graft and the peers to prune."""
        options, mesh = self._options, self._topics[topic]
        pruned = [peer for peer in mesh.members if self._scores.score(peer) < 0]
        grafted: tuple[PeerId, ...] = ()
        remaining = len(mesh.members) - len(pruned)
        if remaining > options.d_high:
            pruned += self._surplus([peer for peer in mesh.members if peer not in pruned])
        for peer in pruned:
            del self._topics[topic].members[peer]
            self._back_off(peer, topic, now_s + PRUNE_BACKOFF_S)
        if remaining < options.d_low:
            grafted += self._graft(self._choose(topic, options.d - remaining), topic)
        if len(mesh.members) >= options.d_low:
            lacking = options.d_out - sum(self._peers[peer].dialled for peer in mesh.members)
            grafted += self._graft(self._choose(topic, lacking, dialled_only=True), topic)
        return grafted, tuple(pruned)

    def expire(self, now_s: float) -> None:
        """Remove backoffs that have passed."""
        # The clocks of two peers differ by up to a heartbeat, so a backoff lasts one longer here.
        for key in [key for key, due_s in self._backoffs.items() if due_s + HEARTBEAT_INTERVAL_S < now_s]:
            del self._backoffs[key]

    def _choose(self, topic: str, count: int, *, dialled_only: bool = False) -> tuple[PeerId, ...]:
        members = self._topics[topic].members
        fit = [
            peer
            for peer in self._subscribers.get(topic, ())
            if peer not in members
            and (peer, topic) not in self._backoffs
            and self._scores.score(peer) >= 0
            and (self._peers[peer].dialled or not dialled_only)
        ]
        return tuple(self._rng.sample(fit, min(len(fit), max(0, count))))

    def _graft(self, peers: tuple[PeerId, ...], topic: str) -> tuple[PeerId, ...]:
        for peer in peers:
            self._topics[topic].members[peer] = None
            self._topics[topic].newcomers.add(peer)
        return peers

    def _surplus(self, members: list[PeerId]) -> list[PeerId]:
        """Return the members to prune from a mesh so that ``d`` stay, at least ``d_out`` of them dialled."""
        self._rng.shuffle(members)
        dialled = [peer for peer in members if self._peers[peer].dialled][: self._options.d_out]
        others = [peer for peer in members if peer not in dialled]
        return others[self._options.d - len(dialled) :]

    def _back_off(self, peer: PeerId, topic: str, due_s: float) -> None:
        self._backoffs[peer, topic] = max(due_s, self._backoffs.pop((peer, topic), due_s))

    def _lose_interest(self, peer: PeerId, topic: str) -> None:
        subscribers = self._subscribers[topic]
        del subscribers[peer]
        if not subscribers:
            del self._subscribers[topic]
        if topic in self._topics:
            self._topics[topic].members.pop(peer, None)
