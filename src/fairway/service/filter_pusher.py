"""Pushing messages to filter subscribers: one long-lived stream for each (12/WAKU2-FILTER, "Message Push").

One stream for each message would end at the hundredth: js-waku allows a hundred inbound streams and its push handler
never closes its half. Invariants: what waits for a subscriber is bounded in number and bytes, the oldest gives way;
what waits for all of them is bounded, too, and gives way where the most waits; a slow or dead subscriber delays nobody
else; one that is connected and cannot be reached `MAX_FAILURES` times in a row is given up, and one that left is not,
for it may come back to its subscription.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from fairway.service.push_queue import PushQueue
from fairway.waku.libp2p.errors import ConnectionClosedError, Libp2pError
from fairway.waku.libp2p.host import Host
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.libp2p.shared_bytes import SharedBytes
from fairway.waku.libp2p.stream import Stream
from fairway.waku.owned_tasks import OwnedTasks
from fairway.wire.filter import FILTER_PUSH_PROTOCOL
from fairway.wire.protobuf import encode_frame

MAX_FAILURES: Final = 3
"""Attempts to open a stream, or to write to one, after which a subscriber is given up."""
MAX_WAITING: Final = 1_000
"""Messages that wait for one subscriber."""
MAX_WAITING_BYTES: Final = 16_777_216
"""Bytes of them."""
MAX_HELD_BYTES: Final = 268_435_456
"""Bytes of the messages that wait for all subscribers together, each counted once."""

_OPEN_TIMEOUT_S: Final = 10.0
_WRITE_TIMEOUT_S: Final = 60.0
_WRITE_BYTES: Final = 65_536
_PAUSE_S: Final = 1.0
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PusherStatistics:
    """What a pusher holds and has done."""

    subscribers: int
    """Peers with a stream or with messages that wait."""
    pushed: int
    waiting_bytes: int
    """Bytes of the messages that wait; a message that waits for several counts for each."""
    held_bytes: int
    """Bytes of the messages that wait, each counted once."""
    dropped: int
    """Messages that gave way, or were waiting for a subscriber that was given up."""


class FilterPusher:
    """Writes messages to the peers that subscribed to them."""

    def __init__(self, host: Host, *, on_gone: Callable[[PeerId], None], max_held_bytes: int = MAX_HELD_BYTES) -> None:
        """``on_gone`` is told of each subscriber that was given up though it is connected."""
        self._host: Final = host
        self._on_gone: Final = on_gone
        self._max_held_bytes: Final = max_held_bytes
        self._held: Final = SharedBytes()
        self._queues: dict[PeerId, PushQueue] = {}
        self._tasks: Final = OwnedTasks()
        self._pushed = self._dropped = 0

    def push(self, peers: Iterable[PeerId], push: bytes) -> None:
        """Have an encoded `MessagePush` written to peers; returns at once."""
        frame = encode_frame(push)
        for peer in peers:
            queue = self._queues.get(peer)
            if queue is None:
                queue = self._queues[peer] = PushQueue(
                    self._held, max_messages=MAX_WAITING, max_bytes=MAX_WAITING_BYTES
                )
                self._tasks.spawn(self._serve(peer, queue))
            queue.put(frame)
        while self._held.size_bytes > self._max_held_bytes and self._make_room():
            continue

    def forget(self, peer: PeerId) -> None:
        """End the stream to a peer that unsubscribed or left."""
        queue = self._queues.pop(peer, None)
        if queue is not None:
            queue.close()
            self._dropped += queue.dropped

    def statistics(self) -> PusherStatistics:
        """Return what the pusher holds and has done."""
        return PusherStatistics(
            subscribers=len(self._queues),
            pushed=self._pushed,
            waiting_bytes=sum(queue.waiting_bytes for queue in self._queues.values()),
            held_bytes=self._held.size_bytes,
            dropped=self._dropped + sum(queue.dropped for queue in self._queues.values()),
        )

    async def close(self) -> None:
        """End all streams. May be called twice."""
        for peer in list(self._queues):
            self.forget(peer)
        await self._tasks.close()

    def _make_room(self) -> bool:
        """Have the subscriber give way for which the most waits, and return whether it could."""
        fullest = max(self._queues.values(), key=lambda queue: queue.waiting_bytes)
        before = fullest.dropped
        fullest.give_way()
        return fullest.dropped > before

    async def _serve(self, peer: PeerId, queue: PushQueue) -> None:
        stream: Stream | None = None
        failures = 0
        left = False
        try:
            while failures < MAX_FAILURES and (piece := await queue.next_piece(_WRITE_BYTES)):
                try:
                    stream = stream or await self._host.open_stream(
                        peer, [FILTER_PUSH_PROTOCOL], timeout_s=_OPEN_TIMEOUT_S
                    )
                    async with asyncio.timeout(_WRITE_TIMEOUT_S):
                        await stream.write(b"".join(piece))
                except (Libp2pError, TimeoutError) as error:
                    failures += 1
                    left = isinstance(error, ConnectionClosedError)
                    _LOG.debug("a push to %s failed: %s", peer, error)
                    await _end(stream)
                    stream = None
                    await asyncio.sleep(_PAUSE_S * (failures - 1))
                else:
                    self._pushed += len(piece)
                    failures = 0
                    queue.written()
        finally:
            await _end(stream)
            if self._queues.get(peer) is queue:
                self.forget(peer)
                if not left:
                    self._on_gone(peer)


async def _end(stream: Stream | None) -> None:
    if stream is not None:
        await stream.reset()
