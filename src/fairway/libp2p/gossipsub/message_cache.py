"""`MessageCache`: the messages of the last heartbeats, for peers that request them (gossipsub 1.0, "Message cache").

Invariant: the cache is bounded in time and in bytes; the oldest messages are removed first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from fairway.libp2p.peer_id import PeerId

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
