"""`Mesh`: the peers in the mesh of each topic (gossipsub 1.0, "Mesh maintenance", with the backoffs of 1.1).

Invariant: a member of a mesh is connected and subscribed to its topic. A pruned peer is not grafted before its backoff
has passed, at either side's request. After `maintain` a mesh has between ``d_low`` and ``d_high`` members if there are
enough suitable peers. Time and randomness are arguments.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from fairway.libp2p.gossipsub.codec import Prune
from fairway.libp2p.gossipsub.options import GossipsubOptions
from fairway.libp2p.gossipsub.score import OPPORTUNISTIC_GRAFT_THRESHOLD, PUBLISH_THRESHOLD, PeerScores
from fairway.libp2p.peer_id import PeerId

PRUNE_BACKOFF_S: Final = 60
"""Time for which a pruned peer must not graft again."""
MAX_BACKOFFS: Final = 100_000
"""Pairs of a peer and a topic whose backoff is kept; beyond it the oldest is dropped."""
_GRAFT_FLOOD_THRESHOLD_S: Final = 10
"""A graft this soon after a prune is penalised twice."""
_OPPORTUNISTIC_GRAFT_TICKS: Final = 60
"""Heartbeats between two checks of the median score of a mesh."""
_OPPORTUNISTIC_GRAFT_PEERS: Final = 2
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
    ticks: int = 0


class Mesh:
    """The meshes of all topics of one node."""

    def __init__(self, options: GossipsubOptions, scores: PeerScores, rng: random.Random) -> None:
        self._options: Final = options
        self._scores: Final = scores
        self._rng: Final = rng
        self._peers: dict[PeerId, _Peer] = {}
        self._subscribers: dict[str, dict[PeerId, None]] = {}
        self._topics: dict[str, _Topic] = {}
        self._backoffs: dict[tuple[PeerId, str], float] = {}

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
        """Remove a peer; its backoffs stay, because it may come back at once."""
        known = self._peers.pop(peer, None)
        for topic in known.topics if known else ():
            self._lose_interest(peer, topic)

    def leave_meshes(self, peer: PeerId) -> None:
        """Remove a peer from all meshes, without a prune or a backoff; its subscriptions stay."""
        for topic, mesh in self._topics.items():
            if peer in mesh.members:
                self._drop(peer, topic)

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

    def join(self, topic: str, now_s: float) -> tuple[PeerId, ...]:
        """Begin the mesh of a topic, and return the peers in it, which must be grafted."""
        self._topics[topic] = _Topic()
        return self.graft(self._choose(topic, self._options.d, now_s), topic, now_s)

    def leave(self, topic: str, now_s: float) -> tuple[PeerId, ...]:
        """End the mesh of a topic, and return its peers, which must be pruned."""
        members = tuple(self._topics.pop(topic).members)
        for peer in members:
            self._scores.pruned(peer, topic)
            self._back_off(peer, topic, now_s + self._options.unsubscribe_backoff_s)
        return members

    def takers_of_own(self, topic: str, now_s: float) -> tuple[PeerId, ...]:
        """Return the peers that get a message of this node (1.1, "Flood publishing")."""
        if self._options.flood_publish:
            takers = self._subscribers.get(topic, {})
            return tuple(peer for peer in takers if self._scores.score(peer, now_s) >= PUBLISH_THRESHOLD)
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
        elif self._scores.score(peer, now_s) >= 0 and (
            len(mesh.members) < self._options.d_high or self._peers[peer].dialled
        ):
            self.interest(peer, topic, subscribed=True)
            if topic in self._topics_of(peer):
                self.graft((peer,), topic, now_s)
                return None
        self._back_off(peer, topic, now_s + PRUNE_BACKOFF_S)
        return Prune(topic=topic, backoff_s=PRUNE_BACKOFF_S)

    def pruned_by(self, peer: PeerId, topic: str, backoff_s: int | None, now_s: float) -> None:
        """Remove a peer that sent a prune from the mesh, and do not graft it for ``backoff_s``.

        A backoff of 0 stands for the default, as in go-libp2p and js-libp2p.
        """
        mesh = self._topics.get(topic)
        if mesh is None:
            return
        if peer in mesh.members:
            self._drop(peer, topic)
        asked_s = min(backoff_s, _MAX_BACKOFF_S) if backoff_s else PRUNE_BACKOFF_S
        self._back_off(peer, topic, now_s + asked_s)

    def maintain(self, topic: str, now_s: float) -> tuple[tuple[PeerId, ...], tuple[PeerId, ...]]:
        """Bring a mesh to its size, and return the peers to graft and the peers to prune."""
        options, mesh = self._options, self._topics[topic]
        pruned = [peer for peer in mesh.members if self._scores.score(peer, now_s) < 0]
        for peer in pruned:
            self._prune(peer, topic, now_s)
        grafted: tuple[PeerId, ...] = ()
        if len(mesh.members) < options.d_low:
            grafted += self.graft(self._choose(topic, options.d - len(mesh.members), now_s), topic, now_s)
        elif len(mesh.members) > options.d_high:
            pruned += self._let_go(topic, now_s)
        grafted += self._more_dialled(topic, now_s)
        mesh.ticks += 1
        if mesh.ticks % _OPPORTUNISTIC_GRAFT_TICKS == 0:
            grafted += self._better(topic, now_s)
        return grafted, tuple(pruned)

    def expire(self, now_s: float) -> None:
        """Remove backoffs that have passed."""
        # The clocks of two peers differ by up to a heartbeat, so a backoff lasts one longer here.
        slack_s = self._options.heartbeat_interval_s
        for key in [key for key, due_s in self._backoffs.items() if due_s + slack_s < now_s]:
            del self._backoffs[key]

    def _topics_of(self, peer: PeerId) -> set[str]:
        known = self._peers.get(peer)
        return known.topics if known else set()

    def _may_graft(self, peer: PeerId, topic: str, now_s: float) -> bool:
        return (
            topic in self._topics_of(peer)
            and (peer, topic) not in self._backoffs
            and self._scores.score(peer, now_s) >= 0
        )

    def _choose(self, topic: str, count: int, now_s: float, *, dialled_only: bool = False) -> tuple[PeerId, ...]:
        members = self._topics[topic].members
        fit = [
            peer
            for peer in self._subscribers.get(topic, ())
            if peer not in members
            and self._may_graft(peer, topic, now_s)
            and (self._peers[peer].dialled or not dialled_only)
        ]
        return tuple(self._rng.sample(fit, min(len(fit), max(0, count))))

    def graft(self, peers: tuple[PeerId, ...], topic: str, now_s: float) -> tuple[PeerId, ...]:
        """Add peers to the mesh of a topic, without a check, and return them."""
        for peer in peers:
            self._topics[topic].members[peer] = None
            self._topics[topic].newcomers.add(peer)
            self._scores.grafted(peer, topic, now_s)
        return peers

    def _let_go(self, topic: str, now_s: float) -> list[PeerId]:
        """Reduce a mesh to ``d`` members, and return the others.

        The ``d_score`` best stay, the rest is drawn, and at least ``d_out`` of those that stay were dialled.
        """
        options, members = self._options, list(self._topics[topic].members)
        self._rng.shuffle(members)
        members.sort(key=lambda peer: self._scores.score(peer, now_s), reverse=True)
        rest = members[options.d_score :]
        self._rng.shuffle(rest)
        members[options.d_score :] = rest
        staying, others = members[: options.d], members[options.d :]
        # 1.1, "Heartbeat Maintenance": dialled peers replace the last of those that were not dialled.
        spare = [peer for peer in staying if not self._peers[peer].dialled]
        lacking = options.d_out - (len(staying) - len(spare))
        for peer in [peer for peer in others if self._peers[peer].dialled][: max(0, min(lacking, len(spare)))]:
            staying.remove(spare.pop())
            staying.append(peer)
        gone = [peer for peer in members if peer not in staying]
        for peer in gone:
            self._prune(peer, topic, now_s)
        return gone

    def _more_dialled(self, topic: str, now_s: float) -> tuple[PeerId, ...]:
        mesh, options = self._topics[topic], self._options
        if len(mesh.members) < options.d_low:
            return ()
        lacking = options.d_out - sum(self._peers[peer].dialled for peer in mesh.members)
        return self.graft(self._choose(topic, lacking, now_s, dialled_only=True), topic, now_s)

    def _better(self, topic: str, now_s: float) -> tuple[PeerId, ...]:
        """Graft peers with a better score than the median, if that is too low (1.1, "Opportunistic grafting")."""
        members = self._topics[topic].members
        if not members:
            return ()
        middle = median(self._scores.score(peer, now_s) for peer in members)
        if middle >= OPPORTUNISTIC_GRAFT_THRESHOLD:
            return ()
        count = len(self._subscribers.get(topic, ()))
        candidates = self._choose(topic, count, now_s)
        better = tuple(peer for peer in candidates if self._scores.score(peer, now_s) > middle)
        return self.graft(better[:_OPPORTUNISTIC_GRAFT_PEERS], topic, now_s)

    def _prune(self, peer: PeerId, topic: str, now_s: float) -> None:
        self._drop(peer, topic)
        self._back_off(peer, topic, now_s + PRUNE_BACKOFF_S)

    def _drop(self, peer: PeerId, topic: str) -> None:
        del self._topics[topic].members[peer]
        self._scores.pruned(peer, topic)

    def _back_off(self, peer: PeerId, topic: str, due_s: float) -> None:
        self._backoffs[peer, topic] = max(due_s, self._backoffs.pop((peer, topic), due_s))
        if len(self._backoffs) > MAX_BACKOFFS:
            del self._backoffs[next(iter(self._backoffs))]

    def _lose_interest(self, peer: PeerId, topic: str) -> None:
        subscribers = self._subscribers[topic]
        del subscribers[peer]
        if not subscribers:
            del self._subscribers[topic]
        if topic in self._topics and peer in self._topics[topic].members:
            self._drop(peer, topic)
