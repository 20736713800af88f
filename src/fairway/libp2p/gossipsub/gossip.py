"""`Gossip`: IHAVE announces messages to peers outside the mesh, and IWANT requests lost messages (gossipsub 1.0, 1.1).

`MessageCache` holds the messages of the last heartbeats, bounded in time and in bytes. Invariant: the IHAVEs and IWANTs
that a peer sends and gets between two heartbeats are bounded.
"""

from __future__ import annotations

import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from fairway.libp2p.gossipsub.codec import MAX_IDS_PER_RPC, MAX_IHAVE_LENGTH, MAX_IHAVE_MESSAGES, IHave, IWant
from fairway.libp2p.gossipsub.score import GOSSIP_THRESHOLD, PeerScores
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.seen_messages import SeenMessages

_WINDOWS: Final = 6
"""Heartbeats for which a message can be requested: the specification's mcache_len."""
_GOSSIP_WINDOWS: Final = 3
"""Heartbeats for which a message is announced: the specification's mcache_gossip."""
_MAX_CACHED_BYTES: Final = 67_108_864
"""Size of all messages in the cache."""


@dataclass(slots=True)
class _Cached:
    topic: str
    frame: bytes
    served: dict[PeerId, int] = field(default_factory=dict)


class MessageCache:
    """The messages of the last heartbeats; a window is the time between two heartbeats."""

    def __init__(self) -> None:
        self._messages: dict[bytes, _Cached] = {}
        self._windows: deque[list[bytes]] = deque([[] for _ in range(_WINDOWS)], maxlen=_WINDOWS)
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def size_bytes(self) -> int:
        """Size of all messages in the cache."""
        return self._bytes

    def put(self, message_id: bytes, topic: str, frame: bytes) -> None:
        """Add a message as a frame; all peers get the same bytes object."""
        if message_id in self._messages:
            return
        self._messages[message_id] = _Cached(topic, frame)
        self._windows[-1].append(message_id)
        self._bytes += len(frame)
        while self._bytes > _MAX_CACHED_BYTES:
            self._drop_oldest()

    def served(self, message_id: bytes, peer: PeerId) -> tuple[bytes, int] | None:
        """Return a requested message, and how often the peer has requested it; None if it is not in the cache."""
        cached = self._messages.get(message_id)
        if cached is None:
            return None
        count = cached.served[peer] = cached.served.get(peer, 0) + 1
        return cached.frame, count

    def gossip_ids(self, topic: str) -> list[bytes]:
        """Return the ids of the messages of a topic to announce."""
        recent = list(self._windows)[-_GOSSIP_WINDOWS:]
        return [
            message_id
            for window in recent
            for message_id in window
            if (cached := self._messages.get(message_id)) is not None and cached.topic == topic
        ]

    def shift(self) -> None:
        """Begin a new window, and remove the messages of the oldest one."""
        for message_id in self._windows[0]:
            self._forget(message_id)
        self._windows.append([])

    def _drop_oldest(self) -> None:
        window = next(window for window in self._windows if window)
        self._forget(window.pop(0))

    def _forget(self, message_id: bytes) -> None:
        cached = self._messages.pop(message_id, None)
        if cached is not None:
            self._bytes -= len(cached.frame)


_D_LAZY: Final = 6
"""Smallest number of peers outside the mesh that get IHAVEs."""
_GOSSIP_FACTOR: Final = 0.25
"""Share of the peers outside the mesh that get IHAVEs, if that is more than `_D_LAZY`."""
_GOSSIP_RETRANSMISSION: Final = 3
"""Number of times that a peer may request one message."""
_MAX_AWAITED: Final = 20_000
"""Requested messages that count as recovered when they arrive; the oldest are evicted."""


def seen_key(topic: str, message_id: bytes) -> bytes:
    """Return the key under which a message counts as seen: its id and topic.

    Message ids of Waku are hashes of the data alone. Otherwise a peer could suppress a message by sending its data on
    another topic first.
    """
    return message_id + topic.encode()


class Gossip:
    """The IHAVEs and IWANTs of a node and its peers since the last heartbeat."""

    def __init__(self, scores: PeerScores, cache: MessageCache, seen: SeenMessages, rng: random.Random) -> None:
        self._scores: Final = scores
        self._cache: Final = cache
        self._seen: Final = seen
        self._rng: Final = rng
        self._heard: defaultdict[PeerId, int] = defaultdict(int)
        self._asked: defaultdict[PeerId, int] = defaultdict(int)
        self._answered: defaultdict[PeerId, int] = defaultdict(int)
        self._awaited: OrderedDict[bytes, set[PeerId]] = OrderedDict()
        self.asked_for = 0
        """Messages requested with IWANT."""
        self.recovered = 0
        """Messages that a peer delivered first after a request."""
        self.served = 0
        """Messages sent to peers on request."""

    def request_for(self, peer: PeerId, have: IHave) -> IWant | None:
        """Return the request for the missing messages of an IHAVE; None for no request."""
        if self._scores.score(peer) < GOSSIP_THRESHOLD:
            return None
        self._heard[peer] += 1
        room = MAX_IHAVE_LENGTH - self._asked[peer]
        if self._heard[peer] > MAX_IHAVE_MESSAGES or room <= 0:
            return None
        requested = [
            message_id
            for message_id in dict.fromkeys(have.message_ids)
            if seen_key(have.topic, message_id) not in self._seen
        ]
        self._rng.shuffle(requested)  # beyond the bound, several nodes together request all messages of a peer
        requested = requested[: min(room, MAX_IDS_PER_RPC)]
        if not requested:
            return None
        self._asked[peer] += len(requested)
        self.asked_for += len(requested)
        for message_id in requested:
            self._awaited.setdefault(message_id, set()).add(peer)
        while len(self._awaited) > _MAX_AWAITED:
            self._awaited.popitem(last=False)
        return IWant(message_ids=tuple(requested))

    def requested(self, peer: PeerId, want: IWant) -> Iterator[bytes]:
        """Yield the messages that a peer requests, within the bounds."""
        if self._scores.score(peer) < GOSSIP_THRESHOLD:
            return
        for message_id in want.message_ids:
            if self._answered[peer] >= MAX_IHAVE_LENGTH:
                return
            # A look-up of an unknown message costs as much, so it counts as well.
            self._answered[peer] += 1
            found = self._cache.served(message_id, peer)
            if found is None or found[1] > _GOSSIP_RETRANSMISSION:
                continue
            self.served += 1
            yield found[0]

    def arrived(self, message_id: bytes, peer: PeerId) -> None:
        """Note that a message arrived, and count it as recovered if it was requested from that peer."""
        self.recovered += peer in self._awaited.pop(message_id, ())

    def announcements(
        self, topic: str, outsiders: Sequence[PeerId], behind_members: tuple[PeerId, ...] = ()
    ) -> Iterator[tuple[tuple[PeerId, ...], IHave]]:
        """Yield the IHAVEs of a topic, each with its peers: some of ``outsiders``, and all of ``behind_members``."""
        message_ids = self._cache.gossip_ids(topic)
        fit = [peer for peer in outsiders if self._scores.score(peer) >= GOSSIP_THRESHOLD]
        count = max(_D_LAZY, int(_GOSSIP_FACTOR * len(fit)))
        if not message_ids or not (fit or behind_members):
            return
        chosen = [*self._rng.sample(fit, min(count, len(fit))), *behind_members]
        if len(message_ids) <= MAX_IDS_PER_RPC:
            yield tuple(chosen), IHave(topic=topic, message_ids=tuple(message_ids))
            return
        for peer in chosen:  # a sample for each, so that together they learn of all messages
            yield (peer,), IHave(topic=topic, message_ids=tuple(self._rng.sample(message_ids, MAX_IDS_PER_RPC)))

    def begin_interval(self) -> None:
        """Reset the counts."""
        for counts in (self._heard, self._asked, self._answered):
            counts.clear()
