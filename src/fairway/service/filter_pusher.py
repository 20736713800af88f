"""`FilterPusher`: pushes messages to filter subscribers, over one stream or a stream for each message.

12/WAKU2-FILTER, "Message Push". js-waku and nwaku read all messages from one stream. A stream for each message would
fail with js-waku at the hundredth: it allows a hundred inbound streams, and its push handler never closes its half.
go-waku reads one message from a stream and closes it. So each subscriber first gets one stream for all messages. For
`PROBATION_S` the messages written to it are kept. If the subscriber ends the stream within that time, it gets a stream
for each later message. The unread messages are sent first.

Invariants:

- The messages that wait for a subscriber are bounded in number and bytes; beyond it the oldest are dropped.
- The messages that wait for all subscribers are bounded in bytes; beyond it the longest queue is dropped.
- A slow or dead subscriber does not delay the others.
- The subscription of a connected subscriber ends after `MAX_FAILURES` failed attempts in a row. A subscriber that has
  disconnected keeps its subscription, because it may reconnect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from fairway.errors import copy_of
from fairway.libp2p.errors import ConnectionClosedError, Libp2pError, StreamResetError
from fairway.libp2p.gossipsub.outbox import SharedBytes
from fairway.libp2p.host import Host
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.stream import Stream
from fairway.owned_tasks import OwnedTasks
from fairway.service.push_queue import PushQueue
from fairway.wire.filter import FILTER_PUSH_PROTOCOL
from fairway.wire.varint import length_prefixed

MAX_FAILURES: Final = 3
"""Failed attempts in a row, to open a stream or to write to it, that end a subscription."""
MAX_WAITING: Final = 1_000
"""Messages that wait for one subscriber."""
MAX_WAITING_BYTES: Final = 16_777_216
"""Size of the messages that wait for one subscriber."""
MAX_HELD_BYTES: Final = 268_435_456
"""Size of the messages that wait for any subscriber, each counted once."""

_OPEN_TIMEOUT_S: Final = 10.0
_WRITE_TIMEOUT_S: Final = 60.0
_WRITE_BYTES: Final = 65_536
PAUSE_S: Final = 1.0
"""Pause after a failed attempt; it grows with each failure in a row."""
PROBATION_S: Final = 10.0
"""Time after which a subscriber with an open stream counts as reading all messages from it. Messages do not wait for
this."""
_MAX_REFUSALS: Final = 10
"""Refusals of a message by one subscriber, which accepts others, before it is dropped."""
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PusherStatistics:
    """Counts of a pusher."""

    subscribers: int
    """Peers with a stream or with messages that wait."""
    pushed: int
    waiting_bytes: int
    """Size of the messages that wait; a message that waits for several subscribers counts for each."""
    held_bytes: int
    """Size of the messages that wait, each counted once."""
    dropped: int
    """Messages that a subscriber missed: a bound was reached, or it refused them or failed."""


class FilterPusher:
    """Writes messages to the peers that subscribed to them."""

    def __init__(self, host: Host, *, on_gone: Callable[[str], object]) -> None:
        """``on_gone`` is called with each connected subscriber that failed `MAX_FAILURES` times."""
        self._host: Final = host
        self._on_gone: Final = on_gone
        self._held: Final = SharedBytes()
        self._queues: dict[str, PushQueue] = {}
        self._tasks: Final = OwnedTasks()
        self._pushed = self._dropped = 0

    def push(self, peers: Iterable[str], push: bytes) -> None:
        """Queue an encoded `MessagePush` for peers, given by their ids as text; returns at once."""
        frame = length_prefixed(push)
        for peer in peers:
            queue = self._queues.get(peer)
            if queue is None:
                queue = self._queues[peer] = PushQueue(
                    self._held, max_messages=MAX_WAITING, max_bytes=MAX_WAITING_BYTES
                )
                self._tasks.spawn(self._serve(peer, queue))
            queue.put(frame)
        while self._held.size_bytes > MAX_HELD_BYTES and self._make_room():
            continue

    def forget(self, peer: str) -> None:
        """End the stream to a peer that unsubscribed or disconnected, and drop its messages without counting them."""
        queue = self._queues.pop(peer, None)
        if queue is not None:
            self._dropped += queue.dropped
            queue.close()

    def statistics(self) -> PusherStatistics:
        """Return the counts."""
        return PusherStatistics(
            subscribers=len(self._queues),
            pushed=self._pushed,
            waiting_bytes=sum(queue.waiting_bytes for queue in self._queues.values()),
            held_bytes=self._held.size_bytes,
            dropped=self._dropped + sum(queue.dropped for queue in self._queues.values()),
        )

    async def close(self) -> None:
        """End all streams. Can be called twice."""
        for peer in list(self._queues):
            self.forget(peer)
        await self._tasks.close()

    def _make_room(self) -> bool:
        """Drop kept messages, then the longest queue; return whether bytes were freed."""
        for queue in self._queues.values():
            queue.forget_kept()
        fullest = max(self._queues.values(), key=lambda queue: queue.waiting_bytes)
        before = self._held.size_bytes
        if before > MAX_HELD_BYTES:
            fullest.give_way()
        return self._held.size_bytes < before

    async def _serve(self, peer: str, queue: PushQueue) -> None:
        way: _LongStream | _StreamEach | None = None
        failures = 0
        left = False
        try:
            while failures < MAX_FAILURES and (
                piece := await queue.next_piece(_WRITE_BYTES, None if way is None else way.max_messages)
            ):
                try:
                    if way is None:
                        way = _LongStream(await self._open(peer), queue, self._tasks)
                    self._pushed += await way.push(piece)
                except (Libp2pError, TimeoutError) as error:
                    if isinstance(way, _LongStream) and way.read_one:
                        way = _StreamEach(partial(self._open, peer), queue)
                        continue
                    failures += 1
                    left = isinstance(error, ConnectionClosedError)
                    _LOG.debug("a push to %s failed: %s", peer, error)
                    if isinstance(way, _LongStream):
                        await way.end()
                        way = None
                    await asyncio.sleep(PAUSE_S * (failures - 1))
                else:
                    if way.proven:
                        failures = 0
        finally:
            if isinstance(way, _LongStream):
                await way.end()
            if self._queues.get(peer) is queue:
                if not left:
                    queue.count_dropped(len(queue))
                    self._on_gone(peer)
                self.forget(peer)

    async def _open(self, peer: str) -> Stream:
        return await self._host.open_stream(PeerId.parse(peer), [FILTER_PUSH_PROTOCOL], timeout_s=_OPEN_TIMEOUT_S)


class _LongStream:
    """One stream for all messages to a subscriber, and a task that notices when the subscriber ends it."""

    max_messages: Final = None

    def __init__(self, stream: Stream, queue: PushQueue, tasks: OwnedTasks) -> None:
        self.proven = False
        """Whether the subscriber has left the stream open for `PROBATION_S`."""
        self.read_one = False
        """Whether the subscriber ended the stream before, and so reads one message from each stream."""
        self._stream: Final = stream
        self._queue: Final = queue
        self._first: bytes | None = None
        self._fault: Libp2pError | None = None
        self._tasks: Final = tasks
        self._watching: Final = tasks.spawn(self._watch())

    async def push(self, piece: Sequence[bytes]) -> int:
        """Write messages, and return their number; raise `Libp2pError` if the stream has ended."""
        if self._fault is None:
            self._first = self._first or piece[0]
            await self._stream.write(b"".join(piece), _WRITE_TIMEOUT_S)
        if self._fault is not None:
            raise copy_of(self._fault)
        if self.proven:
            self._queue.settle()
        else:
            self._queue.keep()
        return len(piece)

    async def end(self) -> None:
        """End the stream; messages that the subscriber may not have read wait again."""
        self._tasks.cancel(self._watching)
        await self._stream.reset()
        self._queue.settle(self._queue.unread())

    async def _watch(self) -> None:
        try:
            try:
                async with asyncio.timeout(PROBATION_S):
                    await _until_closed(self._stream)
            except TimeoutError:
                self.proven = True
                self._queue.forget_kept()
                await _until_closed(self._stream)
            self._fault = StreamResetError(f"{self._stream.peer_id} ended the stream")
            self.read_one = not self.proven
        except Libp2pError as error:
            self._fault = error
        self._queue.settle([frame for frame in self._queue.unread() if not (self.read_one and frame is self._first)])
        await self._stream.reset()  # otherwise a writer waits for room without end


class _StreamEach:
    """A stream for each message, from which the subscriber reads the message and which it closes; a few at a time."""

    max_messages: Final = 16
    proven: Final = True

    def __init__(self, open_stream: Callable[[], Awaitable[Stream]], queue: PushQueue) -> None:
        self._open: Final = open_stream
        self._queue: Final = queue
        self._refusals: dict[int, int] = {}

    async def push(self, piece: Sequence[bytes]) -> int:
        """Push messages, and return how many the subscriber accepted; raise `Libp2pError` or `TimeoutError` if none."""
        faults = await asyncio.gather(*map(self._push_one, piece))
        refused = [frame for frame, fault in zip(piece, faults, strict=True) if fault is not None]
        self._refusals = {id(frame): self._refusals.get(id(frame), 0) + 1 for frame in refused}
        # go-waku refuses messages that arrive too fast; these are sent again. It refuses other messages for their
        # content.
        again = [frame for frame in refused if self._refusals[id(frame)] < _MAX_REFUSALS]
        self._queue.count_dropped(len(refused) - len(again))
        self._queue.settle(again)
        if len(refused) == len(piece):
            raise next(fault for fault in faults if fault is not None)
        if refused:
            await asyncio.sleep(PAUSE_S)
        return len(piece) - len(refused)

    async def _push_one(self, frame: bytes) -> Libp2pError | TimeoutError | None:
        """Push a message; return None if the subscriber accepted it, else the error."""
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT_S), await self._open() as stream:
                await stream.write(frame)
                await stream.close_write()
                await _until_closed(stream)
        except (Libp2pError, TimeoutError) as error:
            return error
        return None


async def _until_closed(stream: Stream) -> None:
    """Wait until a subscriber ends its half of a stream, and ignore its data."""
    while await stream.read():
        continue
