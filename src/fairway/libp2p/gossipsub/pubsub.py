"""`PubSub`: runs a gossipsub `Router` on a `Host`: a stream each way for every peer, a heartbeat, and subscriptions.

Invariants: a peer that reads slowly takes at most the memory of one outbox. If the outbox is full, a publisher waits
once, for a short time, and then the oldest messages are dropped. A subscriber that reads slowly loses the oldest
messages of its queue. A peer that sends an invalid RPC loses its stream; other peers lose nothing. When `PubSub.close`
returns, all tasks have ended.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from fairway.environment import monotonic_s
from fairway.libp2p.errors import FrameError, Libp2pError
from fairway.libp2p.gossipsub.codec import MAX_RPC_BYTES, Message
from fairway.libp2p.gossipsub.mesh import HEARTBEAT_INTERVAL_S
from fairway.libp2p.gossipsub.options import GossipsubOptions
from fairway.libp2p.gossipsub.outbox import PeerOutbox, SharedBytes
from fairway.libp2p.gossipsub.router import (
    Deliver,
    Effect,
    Judge,
    Router,
    RouterStatistics,
    Send,
    ValidationResult,
    Validator,
)
from fairway.libp2p.host import Host
from fairway.libp2p.peer_book import HostEvent, PeerDisconnected, PeerIdentified
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.stream import Stream
from fairway.owned_tasks import OwnedTasks
from fairway.subscription import Subscription

_LOG: Final = logging.getLogger(__name__)
MAX_OUTBOX_BYTES: Final = 16_777_216
"""Size of the messages that wait for one peer; beyond it the oldest are dropped."""
MAX_WAITING_BYTES: Final = 134_217_728
"""Size of the messages that wait for any peer, each counted once; beyond it the longest queue is dropped."""
_WRITE_BYTES: Final = 65_536
_OPEN_TIMEOUT_S: Final = 10.0
_MAX_INBOUND_STREAMS: Final = 4
"""A peer uses one stream, and a second one while it replaces the first."""
_FRAMES_PER_TURN: Final = 64
_ROOM_TIMEOUT_S: Final = 1.0
_FIRST_REST_S: Final = 1.0
_LONGEST_REST_S: Final = 60.0


Judging = Callable[[Message, PeerId], Awaitable[ValidationResult]]
"""(message, peer that sent it) -> result, for messages for which a `Validator` returned `ValidationResult.LATER`."""


@dataclass(frozen=True, slots=True, eq=False)
class _Link:
    outbox: PeerOutbox
    writer: asyncio.Task[None]


class PubSub:
    """Publishes and subscribes on the topics of one protocol. An async context manager."""

    def __init__(
        self,
        host: Host,
        protocol: str,
        *,
        validator: Validator,
        judging: Judging | None = None,
        options: GossipsubOptions | None = None,
        rng: random.Random,
    ) -> None:
        """``judging`` validates the messages for which ``validator`` returns `ValidationResult.LATER`.

        It bounds how many of them wait at a time.
        """
        self._host: Final = host
        self._protocol: Final = protocol
        self._router: Final = Router(validator, options, rng=rng)
        self._judging: Final = judging
        self._links: dict[PeerId, _Link] = {}
        self._held: Final = SharedBytes()
        self._readers: dict[str, Subscription[Deliver]] = {}
        self._tasks: Final = OwnedTasks()
        self._events: Subscription[HostEvent] | None = None
        self._closed = False

    def start(self) -> None:
        """Begin to exchange RPCs with every peer that serves the protocol."""
        self._host.handle(self._protocol, self._inbound, max_streams_per_peer=_MAX_INBOUND_STREAMS)
        self._events = self._host.watch()
        self._tasks.spawn(self._follow(self._events))
        self._tasks.spawn(self._beat())
        self._sync_peers()

    async def close(self) -> None:
        """End all streams, tasks and subscriptions. Can be called twice."""
        if self._events is not None:
            self._events.close()
        for reader in list(self._readers.values()):
            reader.close()
        self._closed = True
        await self._tasks.close()

    async def __aenter__(self) -> Self:
        """Start."""
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    def subscribe(self, topic: str) -> Subscription[Deliver]:
        """Join a topic and return a subscription to the valid messages of peers; closing it leaves the topic.

        Raises `ConfigurationError` for a topic that is subscribed to already.
        """
        effects = self._router.subscribe(topic)
        reader: Subscription[Deliver] = Subscription(
            on_close=lambda: self._leave(topic), size_of=lambda delivered: len(delivered.message.data)
        )
        self._readers[topic] = reader
        self._run(effects)
        return reader

    async def publish(self, topic: str, data: bytes) -> int:
        """Send a message to the peers of its topic, and return their number.

        Waits up to `_ROOM_TIMEOUT_S` for peers that read slowly.
        """
        effects = self._router.publish(Message(topic=topic, data=data), monotonic_s())
        self._run(effects)
        links = {
            peer: link
            for effect in effects
            if isinstance(effect, Send)
            for peer in effect.peers
            if (link := self._links.get(peer)) is not None
        }
        behind = [link.outbox for link in links.values() if not (link.outbox.has_room or link.outbox.lags)]
        if not behind:
            return len(links)
        try:
            async with asyncio.timeout(_ROOM_TIMEOUT_S):
                for outbox in behind:
                    await outbox.room()
        except TimeoutError:
            # A peer that reads slowly must not delay the next messages: do not wait for it again.
            for outbox in behind:
                outbox.lags = not outbox.has_room
        return len(links)

    def passed_on(self, topic: str, data: bytes) -> bool:
        """Return whether a message was received or sent to a peer before, so that publishing it has no effect."""
        return self._router.passed_on(Message(topic=topic, data=data))

    def peers_of(self, topic: str) -> frozenset[PeerId]:
        """Return the peers that are subscribed to a topic."""
        return self._router.peers_of(topic)

    def mesh_of(self, topic: str) -> frozenset[PeerId]:
        """Return the mesh of a topic."""
        return self._router.mesh_of(topic)

    def score_of(self, peer: PeerId) -> float:
        """Return the present score of a peer; bad scores are below 0."""
        return self._router.score_of(peer)

    def statistics(self) -> RouterStatistics:
        """Return the counts of the router."""
        return self._router.statistics()

    @property
    def held_bytes(self) -> int:
        """Size of the messages that wait for peers, each counted once."""
        return self._held.size_bytes

    @property
    def dropped(self) -> int:
        """Messages to connected peers that were dropped because the peer was slow."""
        return sum(link.outbox.dropped for link in self._links.values())

    async def _follow(self, events: Subscription[HostEvent]) -> None:
        async for event in events:
            match event:
                case PeerIdentified() if self._protocol in event.protocols:
                    self._add(event.peer_id)
                case PeerDisconnected():
                    self._remove(event.peer_id)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            for peer in self._router.graylisted():
                self._disconnect(peer, "its score is too low")
            self._sync_peers()
            behind = {peer for peer, link in self._links.items() if link.outbox.dropped_since_asked()}
            self._run(self._router.heartbeat(monotonic_s(), behind))

    def _sync_peers(self) -> None:
        """Add the connected peers that serve the protocol, and remove the others, in case an event was missed."""
        here = {connection.peer_id for connection in self._host.connections()}
        for peer in self._links.keys() - here:
            self._remove(peer)
        for peer in here - self._links.keys():
            if self._protocol in self._host.protocols_of(peer):
                self._add(peer)

    def _add(self, peer: PeerId) -> None:
        if peer in self._links or self._closed:
            return
        connection = next((known for known in self._host.connections() if known.peer_id == peer), None)
        if connection is None:
            return
        outbox = PeerOutbox(max_bytes=MAX_OUTBOX_BYTES, held=self._held)
        self._links[peer] = _Link(outbox, self._tasks.spawn(self._write(peer, outbox)))
        self._run(self._router.add_peer(peer, dialled=connection.dialled))

    def _remove(self, peer: PeerId) -> None:
        link = self._links.pop(peer, None)
        if link is not None:
            self._tasks.cancel(link.writer)
            link.outbox.drop_messages()
            self._router.remove_peer(peer)

    def _disconnect(self, peer: PeerId, reason: str) -> None:
        _LOG.debug("disconnecting %s: %s", peer, reason)
        self._remove(peer)
        self._tasks.spawn(self._host.disconnect(peer))

    async def _write(self, peer: PeerId, outbox: PeerOutbox) -> None:
        """Write the frames for a peer until it disconnects; after an error open a new stream, after a pause.

        Frames that were not written go to the new stream: nim-libp2p resets a stream that was idle for 5 minutes,
        js-libp2p for 2, and the next write notices it.
        """
        pause_s = _FIRST_REST_S
        piece = b""
        while True:
            try:
                stream = await self._host.open_stream(peer, [self._protocol], timeout_s=_OPEN_TIMEOUT_S)
                pause_s = _FIRST_REST_S
                try:
                    while True:
                        piece = piece or await outbox.take(_WRITE_BYTES)
                        await stream.write(piece)
                        piece = b""
                finally:
                    await stream.reset()
            except (Libp2pError, TimeoutError) as error:
                _LOG.debug("the stream to %s has ended: %s", peer, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_REST_S)
            outbox.forget_control()
            self._run(self._router.renew_peer(peer))

    async def _inbound(self, stream: Stream) -> None:
        peer = stream.peer_id
        frames = 0
        try:
            while (frame := await stream.read_frame(MAX_RPC_BYTES)) is not None and not self._closed:
                self._add(peer)
                self._run(self._router.receive(peer, frame, monotonic_s()))
                frames += 1
                # Reading buffered data does not yield, so let other tasks run.
                if frames % _FRAMES_PER_TURN == 0 or len(frame) > _WRITE_BYTES:
                    await asyncio.sleep(0)
        except FrameError as error:
            _LOG.debug("%s sent what is no RPC: %s", peer, error)
            await stream.reset()
            return
        await stream.close()

    def _run(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver):
                reader = self._readers.get(effect.message.topic)
                if reader is not None:
                    reader.put(effect)
                continue
            if isinstance(effect, Judge):
                self._tasks.spawn(self._judge(effect))
                continue
            for peer in effect.peers:
                link = self._links.get(peer)
                if link is not None:
                    link.outbox.put(effect.frame, control=effect.control)
                    if link.outbox.stuck:
                        self._disconnect(peer, "it does not read")
        while self._held.size_bytes > MAX_WAITING_BYTES:
            fullest = max((link.outbox for link in self._links.values()), key=lambda outbox: outbox.message_bytes)
            if not fullest.drop_messages():
                return

    async def _judge(self, undecided: Judge) -> None:
        verdict = ValidationResult.IGNORE
        try:
            if self._judging is not None:
                verdict = await self._judging(undecided.message, undecided.peer)
        finally:
            self._run(self._router.judged(undecided.ticket, verdict))

    def _leave(self, topic: str) -> None:
        del self._readers[topic]
        self._run(self._router.unsubscribe(topic, monotonic_s()))
