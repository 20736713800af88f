"""`ServiceNode`: relay, light push, filter and store for other nodes, and a `WakuNode` for the program it runs in.

A message enters by relay, light push, the REST API or the program itself. It goes once into the archive, to matching
filter subscribers, to the program's subscriptions and, unless it came by relay, to the relay peers. In a network with
RLN all of them pass a `ProofGate` first; the node adds proofs only to what its own program sends.

A message is handled once while `SeenMessages` remembers it. The node serves the shards of its options, and further ones
from `ServiceNode.join` to `ServiceNode.leave`. No request of a peer stops the node. When
`ServiceNode.close` returns, all its tasks have ended and the archive is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, KeysView
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Final, Self

from fairway.environment import monotonic_s, time_ns
from fairway.errors import NodeUnavailableError, StoreQueryError
from fairway.libp2p.gossipsub.router import Deliver
from fairway.libp2p.host import Host
from fairway.libp2p.keeper import KeptPeer, PeerKeeper
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_book import HostEvent, PeerDisconnected
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.public_keys import KeyType
from fairway.libp2p.transports.certificate import ServerCertificate
from fairway.nodes.discovery.node_record import Capability, NodeRecord
from fairway.nodes.discovery.node_records import NodeRecords
from fairway.nodes.discovery.peer_finder import PeerFinder
from fairway.nodes.discovery.peer_memory import PeerMemory
from fairway.nodes.listeners import criteria_of
from fairway.nodes.node import NodeHealth, NodeStatus, RoutedMessage, SendResult, StorePage, StoreQuery
from fairway.nodes.protocols.exchange import answering
from fairway.nodes.protocols.filter_service import FilterService
from fairway.nodes.protocols.lightpush import LightPushService
from fairway.nodes.protocols.metadata import MetadataExchange
from fairway.nodes.protocols.peer_exchange import PeerExchangeService
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.nodes.protocols.pending_responses import PendingResponses
from fairway.nodes.protocols.relay import Relay
from fairway.nodes.protocols.request_limiter import RequestLimiter
from fairway.nodes.protocols.rules import Refusal
from fairway.nodes.protocols.store_service import StoreService
from fairway.nodes.proving import prepare_soon, with_proof
from fairway.nodes.status_board import WatchedNode
from fairway.owned_tasks import OwnedTasks
from fairway.protocol.ratelimit import RlnProofProvider
from fairway.service.archives import NodeArchive
from fairway.service.distribution import Distribution
from fairway.service.filter_pusher import FilterPusher
from fairway.service.open_archive import open_archive
from fairway.service.options import ServiceOptions
from fairway.service.proof_gate import ProofGate
from fairway.service.served_topics import ServedTopics
from fairway.subscription import Subscription
from fairway.wire.filter import FILTER_SUBSCRIBE_PROTOCOL
from fairway.wire.filter import MAX_REQUEST_BYTES as MAX_FILTER_REQUEST_BYTES
from fairway.wire.lightpush import LIGHTPUSH_PROTOCOL, LIGHTPUSH_V2_PROTOCOL, StatusCode, client_action
from fairway.wire.metadata import WakuMetadata
from fairway.wire.peer_exchange import MAX_REQUEST_BYTES as MAX_PEER_EXCHANGE_REQUEST_BYTES
from fairway.wire.peer_exchange import PEER_EXCHANGE_PROTOCOL
from fairway.wire.relay_shards import RelayShards
from fairway.wire.store import MAX_REQUEST_BYTES as MAX_STORE_REQUEST_BYTES
from fairway.wire.store import STORE_QUERY_PROTOCOL
from fairway.wire.waku_message import WakuMessage

_LOG: Final = logging.getLogger(__name__)
_EXCHANGE_STREAMS: Final = 128
"""Streams of one protocol that a peer may hold open; js-waku opens some in advance."""
_SWEEP_S: Final = 30.0
_METADATA_TIMEOUT_S: Final = 10.0
_AGENT: Final = "fairway"
_OWN: Final = "this program"
_LIMITED: Final = ("lightpush", "filter", "store", "peer_exchange")
"""Services with a rate limiter."""


class ServiceNode(WatchedNode):
    """A service node; made by `ServiceNode.start`. It is unhealthy while none of its configured peers is connected."""

    def __init__(
        self,
        options: ServiceOptions,
        host: Host,
        archive: NodeArchive | None,
        *,
        rng: random.Random,
        exits: AsyncExitStack,
        gate: ProofGate | None = None,
        rln: RlnProofProvider | None = None,
        certificate: ServerCertificate | None = None,
    ) -> None:
        """Use `start`. ``exits`` closes the host and the archive; the node adds what must be closed before them."""
        super().__init__()
        self.options: Final = options
        self.host: Final = host
        self.requests: Final = PeerRequests(host)
        """What the node asks other service nodes for REST clients."""
        self.archive: Final = archive
        self.gate: Final = gate
        """What judges RLN proofs; None if the network has none."""
        self._rln: Final = rln
        judge_proof = None if gate is None else gate.judge
        self.certificate: Final = certificate
        """The certificate of the WebSocket port; None without TLS."""
        self.topics: Final = ServedTopics(options.cluster_id, options.pubsub_topics)
        """The pubsub topics that the node serves."""
        self._relayed: dict[str, Subscription[Deliver]] = {}
        self.rules: Final = replace(options.rules, pubsub_topics=self.topics.now)
        """The rules for messages that the node accepts."""
        self._needs_peers: Final = bool(options.peers) or options.network is not None
        self._exits: Final = exits
        self._tasks: Final = OwnedTasks()
        self._closed = False
        self.pending_responses: Final = PendingResponses()
        """Responses that peers have not read yet."""
        self._introductions: Final = MetadataExchange(
            host,
            WakuMetadata(cluster_id=options.cluster_id, shards=options.shards),
            timeout_s=_METADATA_TIMEOUT_S,
            admitted=lambda: self._board.show(self._status_now()),
            pending=self.pending_responses,
        )
        self.limiters: Final = {name: RequestLimiter(options.request_rate) for name in _LIMITED}
        """The rate limiter of each service."""
        self.filters: Final = FilterService(
            pubsub_topics=self.topics.now, limiter=self.limiters["filter"], limits=options.filter_limits
        )
        self.pusher: Final = FilterPusher(host, on_gone=lambda peer: self.filters.forget(str(peer)))
        self.relay: Final = Relay(host, self.rules, rng=rng, judge_proof=judge_proof)
        self.distribution: Final = Distribution(
            archive=archive, filters=self.filters, pusher=self.pusher, loss=options.loss, rng=rng
        )
        self.lightpush: Final = LightPushService(
            rules=self.rules,
            limiter=self.limiters["lightpush"],
            publish=self.publish,
            sharding=options.pubsub_topic_of,
            needs_relay_peers=self._needs_peers,
            judge_proof=judge_proof,
        )
        self.store: Final = None if archive is None else StoreService(archive.page, self.limiters["store"])
        self.record: NodeRecord | None = None
        """What the node says of itself, signed; None if its key is Ed25519, which signs no records."""
        self.record = self._new_record()
        self.records: Final = NodeRecords(cluster_id=options.cluster_id, shards=options.shards)
        """Records of other nodes of its network, for peer exchange."""
        self.peer_exchange: Final = PeerExchangeService(
            records=self._records_to_give, limiter=self.limiters["peer_exchange"], rng=rng
        )
        self.finder: Final = _finder_of(host, options, self._introductions.admits, self.records, rng)
        """Finds nodes of the network; None if only the configured peers count."""
        self._keeper: Final = PeerKeeper(host, [Multiaddr.parse(peer) for peer in options.peers], rng=rng)

    @classmethod
    async def start(
        cls,
        options: ServiceOptions | None = None,
        *,
        key: IdentityKey | None = None,
        archive: NodeArchive | None = None,
        gate: ProofGate | None = None,
        rln: RlnProofProvider | None = None,
    ) -> Self:
        """Open the archive, listen, and serve until `close`.

        Without ``key`` the node gets a new identity. ``archive`` takes the place of that of the options, and is closed
        with the node. With a ``gate``, which is closed with the node, only messages with a good RLN proof pass, and
        ``rln`` is the membership that proves what this program sends. Raises `ConfigurationError` for options that
        cannot work, `StorageError` if the archive cannot be opened, and `OSError` if a port is in use.
        """
        chosen = options or ServiceOptions()
        rng = random.Random(chosen.seed)  # noqa: S311 - chooses peers and losses, no secrets
        prepare_soon(rln)
        exits = AsyncExitStack()
        try:
            if archive is None and chosen.archive is not None:
                archive = await open_archive(chosen.archive, chosen.retention)
            if archive is not None:
                exits.push_async_callback(archive.close)
            if gate is not None:
                exits.push_async_callback(gate.close)
            certificate = None
            if chosen.tls_cert is not None and chosen.tls_key is not None:
                certificate = ServerCertificate(chosen.tls_cert, chosen.tls_key)
            host = await Host.start(
                key=key or IdentityKey.generate(KeyType.SECP256K1),
                listen=_listen(chosen),
                agent=_AGENT,
                limits=chosen.host_limits,
                web_origins=chosen.ws_origins,
                announce=chosen.announce,
                certificate=certificate,
                tls_ca_file=chosen.tls_ca_file,
            )
            exits.push_async_callback(host.close)
            node = cls(chosen, host, archive, rng=rng, exits=exits, gate=gate, rln=rln, certificate=certificate)
            await node._serve()
        except BaseException:
            await exits.aclose()
            raise
        return node

    @property
    def pubsub_topics(self) -> KeysView[str]:
        """The pubsub topics that the node serves now."""
        return self.topics.now

    @property
    def shards(self) -> tuple[int, ...]:
        """The shards of its cluster that the node serves now, in order."""
        return self.topics.shards()

    @property
    def peer_id(self) -> PeerId:
        """The peer id of the node."""
        return self.host.peer_id

    @property
    def addresses(self) -> tuple[Multiaddr, ...]:
        """The multiaddrs at which others reach the node, with its peer id."""
        return self.host.addresses

    @property
    def rln(self) -> RlnProofProvider | None:
        """The membership that proves what this program sends."""
        return self._rln

    async def send(self, message: RoutedMessage) -> SendResult:
        """Publish a message of this program, with a proof if the node has a membership."""
        self._binding.check()
        if self._closed:
            return SendResult(accepted=False, detail="the node is closed")
        proven = await with_proof(self._rln, message)
        if isinstance(proven, SendResult):
            return proven
        judged = self.rules.judge(proven.pubsub_topic, proven.encoded, time_ns())
        if isinstance(judged, Refusal):
            too_large = judged.status is StatusCode.PAYLOAD_TOO_LARGE
            return SendResult(accepted=False, permanent=True, too_large=too_large, detail=judged.detail)
        if self.gate is not None:
            fault = await self.gate.judge(_OWN, proven)
            if fault is not None:
                return SendResult.refused(client_action(Refusal.of_proof(fault).status), fault.detail)
        relay_peer_count = await self.publish(proven.pubsub_topic, proven.encoded, judged)
        if self._needs_peers and not relay_peer_count:
            return SendResult(accepted=False, detail="no relay peer has the topic now")
        return SendResult(accepted=True)

    async def subscribe(self, pubsub_topic: str, content_topics: Collection[str]) -> Subscription[RoutedMessage]:
        """Return a subscription to the messages of other nodes on content topics.

        Raises `NodeUnavailableError` if the node is closed, `ConfigurationError` without a content topic.
        """
        self._binding.check()
        if self._closed:
            raise NodeUnavailableError("the node is closed; start another one")
        criteria = criteria_of(pubsub_topic, content_topics)
        return self.distribution.listen(
            lambda message: (message.pubsub_topic, message.message.content_topic) in criteria
        )

    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the answer to a query; raise `StoreQueryError` if the node has no archive."""
        self._binding.check()
        if self.archive is None or self._closed:
            raise StoreQueryError("this node keeps no archive; start it with one")
        return await self.archive.page(query, cursor)

    def join(self, pubsub_topics: AbstractSet[str]) -> None:
        """Relay and serve shards until `leave`; each call needs one.

        Raises `ConfigurationError` and joins none if a topic is no shard, or beyond `MAX_PUBSUB_TOPICS`;
        `NodeUnavailableError` if the node is closed.
        """
        if self._closed:
            raise NodeUnavailableError("the node is closed; start another one")
        if new := self.topics.join(pubsub_topics):
            for topic in new:
                self._relay_topic(topic)
            self._announce_shards()

    def leave(self, pubsub_topics: AbstractSet[str]) -> None:
        """Undo a `join`. The shards of the options are served until the node closes."""
        gone = self.topics.leave(pubsub_topics)
        if gone and not self._closed:
            for topic in gone:
                self._relayed.pop(topic).close()
                self.distribution.traffic.forget_shard(topic)
            self._announce_shards()

    def watch_peers(self) -> Subscription[KeptPeer]:
        """Return a subscription to the state of each configured peer, and to every change, until the node closes."""
        return self._keeper.watch()

    async def publish(self, pubsub_topic: str, encoded: bytes, message: WakuMessage) -> int:
        """Distribute and relay a message that `MessageRules.judge` has accepted; return to how many peers."""
        routed = RoutedMessage.of(pubsub_topic, message, encoded)
        new = self.distribution.hand_out(routed, now_s=monotonic_s(), now_ns=time_ns())
        known = self.relay.peer_count(pubsub_topic)
        # A client that uses two nodes sends each message to both. So a message that was relayed before is a success,
        # and one that reached no peer before is relayed now.
        relayed = not new and self.relay.passed_on(pubsub_topic, encoded)
        if relayed or (known and self.distribution.loses()):
            return known
        return await self.relay.publish(pubsub_topic, encoded)

    @property
    def is_healthy(self) -> bool:
        """Whether the node is connected as its options ask, and its archive can be written."""
        return self.status.connected and (self.archive is None or self.archive.problem is None)

    async def close(self) -> None:
        """Leave the network, and write the archive. Can be called twice."""
        self._binding.check()
        if self._closed:
            return
        self._closed = True
        self._board.close()
        await self._exits.aclose()

    async def _serve(self) -> None:
        if self.gate is not None:
            self.gate.start()
        handle = partial(self.host.handle, max_streams_per_peer=_EXCHANGE_STREAMS)
        push_bytes = self.lightpush.max_request_bytes
        answer = partial(answering, pending=self.pending_responses)
        handle(LIGHTPUSH_PROTOCOL, answer(self._push, max_request_bytes=push_bytes, refuse=self._refuse_push))
        handle(LIGHTPUSH_V2_PROTOCOL, answer(self._push_v2, max_request_bytes=push_bytes, refuse=self._refuse_push_v2))
        handle(FILTER_SUBSCRIBE_PROTOCOL, answer(self._filter, max_request_bytes=MAX_FILTER_REQUEST_BYTES))
        exchange = answer(self._exchange_peers, max_request_bytes=MAX_PEER_EXCHANGE_REQUEST_BYTES)
        handle(PEER_EXCHANGE_PROTOCOL, exchange)
        if self.store is not None:
            handle(STORE_QUERY_PROTOCOL, answer(self._query, max_request_bytes=MAX_STORE_REQUEST_BYTES))
        self._exits.callback(self.distribution.close)
        await self._exits.enter_async_context(self.relay)
        for close in (self.pusher.close, self._keeper.close, self._introductions.close, self._tasks.close):
            self._exits.push_async_callback(close)
        self._tasks.spawn(self._follow(self.host.watch()))
        self._tasks.spawn(self._sweep())
        for topic in self.pubsub_topics:
            self._relay_topic(topic)
        self._keeper.start()
        if self.finder is not None:
            self._exits.push_async_callback(self.finder.close)
            self.finder.start()
        self._board.show(self._status_now())

    def _relay_topic(self, pubsub_topic: str) -> None:
        subscription = self._relayed[pubsub_topic] = self.relay.subscribe(pubsub_topic)
        self._tasks.spawn(self._hear(pubsub_topic, subscription))

    def _announce_shards(self) -> None:
        shards = self.topics.shards()
        self._introductions.ours = WakuMetadata(cluster_id=self.options.cluster_id, shards=shards)
        self.record = self._new_record()

    async def _hear(self, pubsub_topic: str, subscription: Subscription[Deliver]) -> None:
        async for delivered in subscription:
            judged = self.rules.judge(pubsub_topic, delivered.message.data, time_ns())
            if isinstance(judged, WakuMessage):
                routed = RoutedMessage.of(pubsub_topic, judged, delivered.message.data)
                self.distribution.hand_out(routed, now_s=monotonic_s(), now_ns=time_ns())

    async def _follow(self, events: Subscription[HostEvent]) -> None:
        async for event in events:
            self._introductions.take(event)
            if isinstance(event, PeerDisconnected):
                # The subscription remains: js-waku reconnects and pings before it subscribes again.
                self.pusher.forget(event.peer_id)
                self.filters.left(str(event.peer_id))
            self._board.show(self._status_now())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = monotonic_s()
            self.distribution.sweep(now_s)
            if self.certificate is not None:
                self.certificate.refresh()
            for peer in self.filters.expire(now_s):
                self.pusher.forget(PeerId.parse(peer))
            self._board.show(self._status_now())

    async def _push(self, peer: str, request: bytes) -> bytes:
        return await self.lightpush.respond(peer, request, now_s=monotonic_s(), now_ns=time_ns())

    async def _push_v2(self, peer: str, request: bytes) -> bytes:
        return await self.lightpush.respond_v2(peer, request, now_s=monotonic_s(), now_ns=time_ns())

    async def _refuse_push(self, peer: str, beginning: bytes) -> bytes:
        return self.lightpush.refuse_length(peer, beginning, now_s=monotonic_s())

    async def _refuse_push_v2(self, peer: str, beginning: bytes) -> bytes:
        return self.lightpush.refuse_length_v2(peer, beginning, now_s=monotonic_s())

    async def _filter(self, peer: str, request: bytes) -> bytes:
        return self.filters.respond(peer, request, monotonic_s())

    async def _exchange_peers(self, peer: str, request: bytes) -> bytes:
        return self.peer_exchange.respond(peer, request, monotonic_s())

    def _new_record(self) -> NodeRecord | None:
        if self.host.key.public_key.type is not KeyType.SECP256K1:
            return None
        served = Capability.RELAY | Capability.FILTER | Capability.LIGHT_PUSH
        now_ms = time_ns() // 1_000_000  # larger after each start
        return NodeRecord.sign(
            self.host.key,
            sequence=now_ms if self.record is None else max(now_ms, self.record.sequence + 1),
            addresses=self.host.addresses,
            relay_shards=RelayShards(cluster_id=self.options.cluster_id, shards=frozenset(self.topics.shards())),
            capabilities=served if self.archive is None else served | Capability.STORE,
        )

    def _records_to_give(self) -> tuple[NodeRecord, ...]:
        return (*((self.record,) if self.record is not None else ()), *self.records.records())

    async def _query(self, peer: str, request: bytes) -> bytes:
        assert self.store is not None
        return await self.store.respond(peer, request, now_s=monotonic_s())

    def _status_now(self) -> NodeStatus:
        # A node without configured peers and without a network to find is its own network, and healthy.
        found = self.finder is not None and self.finder.connected()
        lonely = self._needs_peers and not found and not self._keeper.connected()
        health = NodeHealth.UNHEALTHY if lonely else NodeHealth.SUFFICIENTLY_HEALTHY
        return NodeStatus(health=health, store=self.archive is not None)


def _finder_of(
    host: Host, options: ServiceOptions, admits: Callable[[PeerId], bool], records: NodeRecords, rng: random.Random
) -> PeerFinder | None:
    if options.network is None:
        return None
    memory = None
    if options.peer_memory is not None:
        memory = PeerMemory(options.peer_memory, cluster_id=options.cluster_id)
    return PeerFinder(
        host, options.network, wanted=options.peers_to_find, admits=admits, records=records, rng=rng, memory=memory
    )


def _listen(options: ServiceOptions) -> list[str]:
    kind = "ip6" if ":" in options.host else "ip4"
    listen = []
    if options.tcp_port is not None:
        listen.append(f"/{kind}/{options.host}/tcp/{options.tcp_port}")
    if options.ws_port is not None:
        listen.append(f"/{kind}/{options.host}/tcp/{options.ws_port}{'/tls' if options.tls_cert else ''}/ws")
    return listen
