"""A service node: relay, light push, filter and store for others, and a `WakuNode` for the program it runs in.

The one place where the parts meet. A message enters by relay, by light push, by the REST API or by the program itself,
and from there goes the same way: once into the archive, to the subscribers whose filters match, to the program's own
subscriptions, and, unless it came by relay, to the relay peers.

Invariants: a message is handled once, however often and by whatever way it comes, while it counts as seen; what a peer
asks for never stops the node; when `ServiceNode.close` returns nothing of it is left, and everything that it archived
is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, Self

from fairway.errors import NodeUnavailableError, StoreQueryError
from fairway.service.archives import NodeArchive
from fairway.service.distribution import Distribution
from fairway.service.filter_pusher import FilterPusher
from fairway.service.open_archive import open_archive
from fairway.service.options import ServiceOptions
from fairway.waku.libp2p.errors import Libp2pError
from fairway.waku.libp2p.host import Host, HostEvent, PeerDisconnected, PeerIdentified
from fairway.waku.libp2p.keeper import PeerKeeper
from fairway.waku.libp2p.keys import PrivateKey
from fairway.waku.libp2p.multiaddr import Multiaddr
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.node import (
    NodeHealth,
    NodeQuota,
    NodeStatus,
    RoutedMessage,
    SendResult,
    StorePage,
    StoreQuery,
    WakuNode,
)
from fairway.waku.protocols.exchange import answering, ask
from fairway.waku.protocols.filter_service import FilterService
from fairway.waku.protocols.lightpush import AutoSharding, LightPushService, Published
from fairway.waku.protocols.metadata import mismatch
from fairway.waku.protocols.pending_responses import PendingResponses
from fairway.waku.protocols.relay import Relay
from fairway.waku.protocols.request_limiter import RequestLimiter
from fairway.waku.protocols.rules import Refusal
from fairway.waku.protocols.store_service import StoreService
from fairway.waku.status_board import StatusBoard
from fairway.waku.subscription import Subscription
from fairway.wire.filter import FILTER_SUBSCRIBE_PROTOCOL
from fairway.wire.filter import MAX_REQUEST_BYTES as MAX_FILTER_REQUEST_BYTES
from fairway.wire.lightpush import LIGHTPUSH_PROTOCOL, LIGHTPUSH_V2_PROTOCOL
from fairway.wire.metadata import MAX_METADATA_BYTES, METADATA_PROTOCOL, WakuMetadata, encode_metadata
from fairway.wire.store import MAX_REQUEST_BYTES as MAX_STORE_REQUEST_BYTES
from fairway.wire.store import STORE_QUERY_PROTOCOL
from fairway.wire.waku_message import WakuMessage, message_hash

_LOG: Final = logging.getLogger(__name__)
_EXCHANGE_STREAMS: Final = 64
"""Streams of one protocol that a peer may hold open; js-waku opens some ahead of need."""
_SWEEP_S: Final = 30.0
_METADATA_TIMEOUT_S: Final = 10.0
_AGENT: Final = "fairway"


class ServiceNode(WakuNode):
    """A node that serves others. Made by `ServiceNode.start`."""

    def __init__(self, options: ServiceOptions, host: Host, archive: NodeArchive | None, rng: random.Random) -> None:
        self.options: Final = options
        self.host: Final = host
        self.archive: Final = archive
        rules = options.rules
        self._rules: Final = rules
        self._exits: Final = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._introducing: set[PeerId] = set()
        self._closed = False
        self._metadata: Final = WakuMetadata(cluster_id=options.cluster_id, shards=options.shards)
        self.limiters: Final = {name: RequestLimiter(options.request_rate) for name in ("lightpush", "filter", "store")}
        """By service; what the metrics show."""
        self.filters: Final = FilterService(
            pubsub_topics=options.pubsub_topics, limiter=self.limiters["filter"], limits=options.filter_limits
        )
        self.pusher: Final = FilterPusher(host, on_gone=lambda peer: _forgotten(self.filters, peer))
        self.relay: Final = Relay(host, rules, rng=rng)
        self.distribution: Final = Distribution(
            archive=archive, filters=self.filters, pusher=self.pusher, loss=options.loss, rng=rng
        )
        self.lightpush: Final = LightPushService(
            rules=rules,
            limiter=self.limiters["lightpush"],
            publish=self.publish,
            sharding=AutoSharding(cluster_id=options.cluster_id, shard_count=options.shard_count),
            needs_relay_peers=bool(options.peers),
        )
        self.pending_responses: Final = PendingResponses()
        """Answers to all protocols that peers have not read yet."""
        self.store: Final = None if archive is None else StoreService(archive.page, self.limiters["store"])
        self._keeper: Final = PeerKeeper(host, [Multiaddr.parse(peer) for peer in options.peers], rng=rng)
        self._board: Final = StatusBoard(self._status_now())

    @classmethod
    async def start(cls, options: ServiceOptions | None = None, *, key: PrivateKey | None = None) -> Self:
        """Open the archive, listen, and serve until `close`.

        Without ``key`` the node gets a new identity. Raises `ConfigurationError` and `StorageError` for options and
        archives that cannot be, `OSError` for a port that is taken.
        """
        chosen = options or ServiceOptions()
        rng = random.Random(chosen.seed)  # noqa: S311 - chooses peers and losses, no secrets
        archive = None if chosen.archive is None else await open_archive(chosen.archive, chosen.retention)
        try:
            host = await Host.start(key=key, listen=_listen(chosen), agent=_AGENT, limits=chosen.host_limits)
        except BaseException:
            if archive is not None:
                await archive.close()
            raise
        node = cls(chosen, host, archive, rng)
        try:
            await node._serve()
        except BaseException:
            await node.close()
            raise
        return node

    @property
    def peer_id(self) -> PeerId:
        """Whom others connect to."""
        return self.host.peer_id

    @property
    def addresses(self) -> tuple[Multiaddr, ...]:
        """Where: complete multiaddrs."""
        return self.host.addresses

    @property
    def status(self) -> NodeStatus:
        """How the node is now."""
        return self._board.status

    def status_changes(self) -> AsyncIterator[NodeStatus]:
        """Yield every status from now on, the present one first."""
        return self._board.watch()

    @property
    def quota(self) -> NodeQuota | None:
        """None: this node makes no RLN proofs."""
        return None

    async def send(self, message: RoutedMessage) -> SendResult:
        """Publish a message of this program."""
        if self._closed:
            return SendResult(accepted=False, detail="the node is closed")
        judged = self._rules.judge(message.pubsub_topic, message.encoded, time.time_ns())
        if isinstance(judged, Refusal):
            return SendResult(accepted=False, permanent=True, detail=judged.detail)
        published = await self.publish(message.pubsub_topic, message.encoded, judged)
        if self.options.peers and not published.relay_peer_count:
            return SendResult(accepted=False, detail="no relay peer has the topic now")
        return SendResult(accepted=True)

    async def subscribe(self, pubsub_topic: str, content_topics: Collection[str]) -> Subscription[RoutedMessage]:
        """Receive what others send on content topics; raises `NodeUnavailableError` if the node is closed."""
        if self._closed:
            raise NodeUnavailableError("the node is closed; start another one")
        topics = frozenset(content_topics)
        return self.distribution.listen(
            lambda message: message.pubsub_topic == pubsub_topic and message.message.content_topic in topics
        )

    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of this node's own archive; raises `StoreQueryError` if it has none."""
        if self.archive is None or self._closed:
            raise StoreQueryError("this node keeps no archive; start it with one")
        return await self.archive.page(query, cursor)

    async def publish(self, pubsub_topic: str, encoded: bytes, message: WakuMessage) -> Published:
        """Hand out a message that passed the rules, and relay it."""
        routed = RoutedMessage(
            pubsub_topic=pubsub_topic,
            message=message,
            encoded=encoded,
            message_hash=message_hash(pubsub_topic, message),
        )
        new = self.distribution.hand_out(routed, now_s=time.monotonic(), now_ns=time.time_ns())
        # A client that uses two nodes hands each of them what the other has relayed already: that is no failure.
        known = self.relay.peer_count(pubsub_topic)
        if not new or (known and self.distribution.loses()):
            return Published(relay_peer_count=known)
        return Published(relay_peer_count=await self.relay.publish(pubsub_topic, encoded))

    async def close(self) -> None:
        """Leave the network and write what is not yet written. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._board.close(self._status_now())
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._keeper.close()
        await self.pusher.close()
        await self._exits.aclose()
        self.distribution.close()
        await self.host.close()
        if self.archive is not None:
            await self.archive.close()

    async def _serve(self) -> None:
        handle = partial(self.host.handle, max_streams_per_peer=_EXCHANGE_STREAMS)
        request_bytes = 2 * self.options.max_message_bytes + 65_536
        answer = partial(answering, pending=self.pending_responses)
        handle(METADATA_PROTOCOL, answer(self._tell, max_request_bytes=MAX_METADATA_BYTES))
        handle(LIGHTPUSH_PROTOCOL, answer(self._push, max_request_bytes=request_bytes))
        handle(LIGHTPUSH_V2_PROTOCOL, answer(self._push_v2, max_request_bytes=request_bytes))
        handle(FILTER_SUBSCRIBE_PROTOCOL, answer(self._filter, max_request_bytes=MAX_FILTER_REQUEST_BYTES))
        if self.store is not None:
            handle(STORE_QUERY_PROTOCOL, answer(self._query, max_request_bytes=MAX_STORE_REQUEST_BYTES))
        await self._exits.enter_async_context(self.relay)
        self._spawn(self._follow(self.host.watch()))
        self._spawn(self._sweep())
        for topic in self.options.pubsub_topics:
            self._spawn(self._hear(topic))
        self._keeper.start()
        self._board.show(self._status_now())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hear(self, pubsub_topic: str) -> None:
        async for delivered in self.relay.subscribe(pubsub_topic):
            judged = self._rules.judge(pubsub_topic, delivered.message.data, time.time_ns())
            if isinstance(judged, WakuMessage):
                routed = RoutedMessage(
                    pubsub_topic=pubsub_topic,
                    message=judged,
                    encoded=delivered.message.data,
                    message_hash=message_hash(pubsub_topic, judged),
                )
                self.distribution.hand_out(routed, now_s=time.monotonic(), now_ns=time.time_ns())

    async def _follow(self, events: Subscription[HostEvent]) -> None:
        async for event in events:
            match event:
                case PeerIdentified(peer_id=peer, protocols=protocols) if METADATA_PROTOCOL in protocols:
                    # A peer may say as often as it likes what it serves; it is asked once at a time.
                    if peer not in self._introducing:
                        self._introducing.add(peer)
                        self._spawn(self._introduce(peer))
                case PeerDisconnected():
                    # The subscription itself lasts: js-waku reconnects and pings before it subscribes again.
                    self.pusher.forget(event.peer_id)
            self._board.show(self._status_now())

    async def _introduce(self, peer: PeerId) -> None:
        """Part with a peer of another cluster (66/WAKU2-METADATA)."""
        ours = encode_metadata(self._metadata)
        try:
            theirs = await ask(
                self.host,
                peer,
                METADATA_PROTOCOL,
                ours,
                max_response_bytes=MAX_METADATA_BYTES,
                timeout_s=_METADATA_TIMEOUT_S,
            )
        except (Libp2pError, TimeoutError) as error:
            _LOG.debug("%s told no metadata: %s", peer, error)
            return
        finally:
            self._introducing.discard(peer)
        problem = mismatch(self._metadata, theirs)
        if problem is not None:
            _LOG.info("parting with %s: %s", peer, problem)
            await self.host.disconnect(peer)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = time.monotonic()
            self.distribution.sweep(now_s)
            for peer in self.filters.expire(now_s):
                self.pusher.forget(PeerId.parse(peer))
            self._board.show(self._status_now())

    async def _tell(self, peer: str, request: bytes) -> bytes:
        problem = mismatch(self._metadata, request)
        if problem is not None:
            _LOG.debug("%s: %s", peer, problem)
        return encode_metadata(self._metadata)

    async def _push(self, peer: str, request: bytes) -> bytes:
        return await self.lightpush.respond(peer, request, now_s=time.monotonic(), now_ns=time.time_ns())

    async def _push_v2(self, peer: str, request: bytes) -> bytes:
        return await self.lightpush.respond_v2(peer, request, now_s=time.monotonic(), now_ns=time.time_ns())

    async def _filter(self, peer: str, request: bytes) -> bytes:
        return self.filters.respond(peer, request, time.monotonic())

    async def _query(self, peer: str, request: bytes) -> bytes:
        assert self.store is not None
        return await self.store.respond(peer, request, now_s=time.monotonic())

    def _status_now(self) -> NodeStatus:
        if self._closed:
            return NodeStatus(health=NodeHealth.UNHEALTHY)
        # A node without peers to keep to is its own network, and well.
        lonely = bool(self.options.peers) and not self._keeper.connected()
        health = NodeHealth.UNHEALTHY if lonely else NodeHealth.SUFFICIENTLY_HEALTHY
        return NodeStatus(health=health, store=self.archive is not None)


def _listen(options: ServiceOptions) -> list[str]:
    kind = "ip6" if ":" in options.host else "ip4"
    listen = []
    if options.tcp_port is not None:
        listen.append(f"/{kind}/{options.host}/tcp/{options.tcp_port}")
    if options.ws_port is not None:
        listen.append(f"/{kind}/{options.host}/tcp/{options.ws_port}/ws")
    return listen


def _forgotten(filters: FilterService, peer: PeerId) -> None:
    filters.forget(str(peer))
