"""`ServiceNode`: relay, light push, filter and store for other nodes, and a `WakuNode` for the program it runs in.

A message enters by relay, light push, the REST API or the program itself. The node passes it once to the archive, to
matching filter subscribers and to the program's subscriptions. It also sends it to the relay peers, unless it arrived
by relay. In a network with RLN a `ProofGate` verifies the proof first; the node adds proofs only to the messages of its
own program.

The node handles a message once while `SeenMessages` remembers it. It serves the shards of its options, and further ones
between `ServiceNode.join` and `ServiceNode.leave`. No request of a peer stops the node. When `ServiceNode.close`
returns, all its tasks have ended and the archive is on disk.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, KeysView
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, Self

from fairway.environment import monotonic_s, time_ns
from fairway.errors import NodeUnavailableError, StoreQueryError
from fairway.libp2p.gossipsub.router import Deliver
from fairway.libp2p.host import Host
from fairway.libp2p.keeper import KeptPeer
from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_book import HostEvent, PeerDisconnected
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.transports.certificate import ServerCertificate
from fairway.nodes.discovery.node_record import Capability, NodeRecord
from fairway.nodes.listeners import criteria_of
from fairway.nodes.node import NodeHealth, NodeStatus, RoutedMessage, SendResult, StorePage, StoreQuery
from fairway.nodes.protocols.exchange import answering
from fairway.nodes.protocols.rules import Refusal
from fairway.nodes.proving import prepare_soon, with_proof
from fairway.nodes.status_board import WatchedNode
from fairway.owned_tasks import OwnedTasks
from fairway.protocol.ratelimit import RlnProofProvider
from fairway.service.archives import NodeArchive
from fairway.service.distribution import DistributionStatistics
from fairway.service.open_archive import open_archive
from fairway.service.options import ServiceOptions
from fairway.service.parts import NodeParts, publish
from fairway.service.proof_gate import ProofGate
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

_EXCHANGE_STREAMS: Final = 128
"""Streams of one protocol that a peer may hold open; js-waku opens some in advance."""
_SWEEP_S: Final = 30.0
_AGENT: Final = "fairway"
_OWN: Final = "this program"


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
        """Use `start`. ``exits`` closes the host and the archive; the node adds its own parts."""
        super().__init__()
        self.options: Final = options
        self._rln: Final = rln
        self._exits: Final = exits
        self._tasks: Final = OwnedTasks()
        self._closed = False
        self._relayed: dict[str, Subscription[Deliver]] = {}
        self._record: NodeRecord | None = None
        self._parts: Final = NodeParts.assemble(
            options,
            host,
            archive=archive,
            gate=gate,
            certificate=certificate,
            rng=rng,
            own_record=lambda: self._record,
            on_admitted=lambda: self._board.show(self._status_now()),
        )
        self._record = self._new_record()

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

        Without ``key`` the node gets a new identity. ``archive`` replaces the archive of the options, and is closed
        with the node. With a ``gate``, only messages with a valid RLN proof pass; the gate is closed with the node.
        ``rln`` is the membership that proves the messages of this program. Raises `ConfigurationError` for options that
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
        return self._parts.topics.now

    @property
    def shards(self) -> tuple[int, ...]:
        """The shards of its cluster that the node serves now, in order."""
        return self._parts.topics.shards()

    @property
    def peer_id(self) -> PeerId:
        """The peer id of the node."""
        return self._parts.host.peer_id

    @property
    def addresses(self) -> tuple[Multiaddr, ...]:
        """The multiaddrs at which others reach the node, with its peer id."""
        return self._parts.host.addresses

    @property
    def listening(self) -> tuple[Multiaddr, ...]:
        """The addresses that the node listens on, without its peer id."""
        return tuple(address.without_peer_id() for address in self._parts.host.listening)

    @property
    def record(self) -> NodeRecord | None:
        """The node's signed record of its addresses and services; None if its key is Ed25519, which signs none."""
        return self._record

    @property
    def verifies_proofs(self) -> bool:
        """Whether only messages with a valid RLN proof pass."""
        return self._parts.gate is not None

    @property
    def rln(self) -> RlnProofProvider | None:
        """The membership for messages of this program."""
        return self._rln

    async def send(self, message: RoutedMessage) -> SendResult:
        """Publish a message of this program, with a proof if the node has a membership."""
        self._binding.check()
        if self._closed:
            return SendResult(accepted=False, detail="the node is closed")
        proven = await with_proof(self._rln, message)
        if isinstance(proven, SendResult):
            return proven
        judged = self._parts.rules.judge(proven.pubsub_topic, proven.encoded, time_ns())
        if isinstance(judged, Refusal):
            too_large = judged.status is StatusCode.PAYLOAD_TOO_LARGE
            return SendResult(accepted=False, permanent=True, too_large=too_large, detail=judged.detail)
        if self._parts.gate is not None:
            fault = await self._parts.gate.judge(_OWN, proven)
            if fault is not None:
                return SendResult.refused(client_action(Refusal.of_proof(fault).status), fault.detail)
        relay_peer_count = await publish(
            self._parts.distribution, self._parts.relay, proven.pubsub_topic, proven.encoded, judged
        )
        if self.options.needs_peers and not relay_peer_count:
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
        return self._parts.distribution.listen(
            lambda message: (message.pubsub_topic, message.message.content_topic) in criteria
        )

    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the answer to a query; raise `StoreQueryError` if the node has no archive."""
        self._binding.check()
        if self._parts.archive is None or self._closed:
            raise StoreQueryError("this node keeps no archive; start it with one")
        return await self._parts.archive.page(query, cursor)

    def join(self, pubsub_topics: AbstractSet[str]) -> None:
        """Relay and serve shards until `leave`; each `join` needs one `leave`.

        Raises `ConfigurationError` and joins none if a topic is no shard, or beyond `MAX_PUBSUB_TOPICS`;
        `NodeUnavailableError` if the node is closed.
        """
        if self._closed:
            raise NodeUnavailableError("the node is closed; start another one")
        if new := self._parts.topics.join(pubsub_topics):
            for topic in new:
                self._relay_topic(topic)
            self._announce_shards()

    def leave(self, pubsub_topics: AbstractSet[str]) -> None:
        """Undo a `join`. The shards of the options are served until the node closes."""
        gone = self._parts.topics.leave(pubsub_topics)
        if gone and not self._closed:
            for topic in gone:
                self._relayed.pop(topic).close()
                self._parts.distribution.forget_shard(topic)
            self._announce_shards()

    def watch_peers(self) -> Subscription[KeptPeer]:
        """Return a subscription to the state of each configured peer and its changes, until the node closes."""
        return self._parts.keeper.watch()

    def statistics(self) -> DistributionStatistics:
        """Return counts of the messages since the start."""
        return self._parts.distribution.statistics()

    @property
    def is_healthy(self) -> bool:
        """Whether the node is connected as its options require, and its archive can be written."""
        return self.status.connected and (self._parts.archive is None or self._parts.archive.problem is None)

    async def close(self) -> None:
        """Leave the network, and write the archive. Can be called twice."""
        self._binding.check()
        if self._closed:
            return
        self._closed = True
        self._board.close()
        await self._exits.aclose()

    async def _serve(self) -> None:
        parts = self._parts
        if parts.gate is not None:
            parts.gate.start()
        handle = partial(parts.host.handle, max_streams_per_peer=_EXCHANGE_STREAMS)
        push_bytes = parts.lightpush.max_request_bytes
        answer = partial(answering, pending=parts.pending_responses)
        handle(LIGHTPUSH_PROTOCOL, answer(self._push, max_request_bytes=push_bytes))
        handle(LIGHTPUSH_V2_PROTOCOL, answer(self._push_v2, max_request_bytes=push_bytes))
        handle(FILTER_SUBSCRIBE_PROTOCOL, answer(self._filter, max_request_bytes=MAX_FILTER_REQUEST_BYTES))
        exchange = answer(self._exchange_peers, max_request_bytes=MAX_PEER_EXCHANGE_REQUEST_BYTES)
        handle(PEER_EXCHANGE_PROTOCOL, exchange)
        if parts.store is not None:
            handle(STORE_QUERY_PROTOCOL, answer(self._query, max_request_bytes=MAX_STORE_REQUEST_BYTES))
        if parts.store_sync is not None:
            self._exits.push_async_callback(parts.store_sync.close)
            parts.store_sync.start()
        self._exits.callback(parts.distribution.close)
        await self._exits.enter_async_context(parts.relay)
        for close in (parts.pusher.close, parts.keeper.close, parts.introductions.close, self._tasks.close):
            self._exits.push_async_callback(close)
        self._tasks.spawn(self._follow(parts.host.watch()))
        self._tasks.spawn(self._sweep())
        for topic in self.pubsub_topics:
            self._relay_topic(topic)
        parts.keeper.start()
        if parts.finder is not None:
            self._exits.push_async_callback(parts.finder.close)
            parts.finder.start()
        self._board.show(self._status_now())

    def _relay_topic(self, pubsub_topic: str) -> None:
        subscription = self._relayed[pubsub_topic] = self._parts.relay.subscribe(pubsub_topic)
        self._tasks.spawn(self._receive(pubsub_topic, subscription))

    def _announce_shards(self) -> None:
        shards = self._parts.topics.shards()
        self._parts.introductions.announce(WakuMetadata(cluster_id=self.options.cluster_id, shards=shards))
        self._record = self._new_record()

    async def _receive(self, pubsub_topic: str, subscription: Subscription[Deliver]) -> None:
        async for delivered in subscription:
            judged = self._parts.rules.judge(pubsub_topic, delivered.message.data, time_ns())
            if isinstance(judged, WakuMessage):
                routed = RoutedMessage.of(pubsub_topic, judged, delivered.message.data)
                self._parts.distribution.hand_out(routed, now_s=monotonic_s(), now_ns=time_ns())

    async def _follow(self, events: Subscription[HostEvent]) -> None:
        async for event in events:
            self._parts.introductions.take(event)
            if isinstance(event, PeerDisconnected):
                # The subscription remains: js-waku reconnects and pings before it subscribes again.
                peer = str(event.peer_id)
                self._parts.pusher.forget(peer)
                self._parts.filters.left(peer)
            self._board.show(self._status_now())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = monotonic_s()
            self._parts.distribution.sweep(now_s)
            if self._parts.certificate is not None:
                self._parts.certificate.refresh()
            for peer in self._parts.filters.expire(now_s):
                self._parts.pusher.forget(peer)
            self._board.show(self._status_now())

    async def _push(self, peer: str, request: bytes) -> bytes:
        return await self._parts.lightpush.respond(peer, request, now_s=monotonic_s(), now_ns=time_ns())

    async def _push_v2(self, peer: str, request: bytes) -> bytes:
        return await self._parts.lightpush.respond_v2(peer, request, now_s=monotonic_s(), now_ns=time_ns())

    async def _filter(self, peer: str, request: bytes) -> bytes:
        return self._parts.filters.respond(peer, request, monotonic_s())

    async def _exchange_peers(self, peer: str, request: bytes) -> bytes:
        return self._parts.peer_exchange.respond(peer, request, monotonic_s())

    def _new_record(self) -> NodeRecord | None:
        if self._parts.host.key.public_key.type is not KeyType.SECP256K1:
            return None
        served = Capability.RELAY | Capability.FILTER | Capability.LIGHT_PUSH
        if self._parts.archive is not None:
            served |= Capability.STORE
        if self._parts.store_sync is not None:
            served |= Capability.SYNC
        now_ms = time_ns() // 1_000_000  # larger after each start
        return NodeRecord.sign(
            self._parts.host.key,
            sequence=now_ms if self._record is None else max(now_ms, self._record.sequence + 1),
            addresses=self._parts.host.addresses,
            relay_shards=RelayShards(cluster_id=self.options.cluster_id, shards=frozenset(self._parts.topics.shards())),
            capabilities=served,
        )

    async def _query(self, peer: str, request: bytes) -> bytes:
        assert self._parts.store is not None
        return await self._parts.store.respond(peer, request, now_s=monotonic_s())

    def _status_now(self) -> NodeStatus:
        # A node without configured peers and without a network to find is its own network, and healthy.
        found = self._parts.finder is not None and self._parts.finder.connected()
        lonely = self.options.needs_peers and not found and not self._parts.keeper.connected()
        health = NodeHealth.UNHEALTHY if lonely else NodeHealth.SUFFICIENTLY_HEALTHY
        return NodeStatus(health=health, store=self._parts.archive is not None)


def parts_of(node: ServiceNode) -> NodeParts:
    """Return the parts of a node, for the other modules of this package."""
    return node._parts  # noqa: SLF001 - of this package


def _listen(options: ServiceOptions) -> list[str]:
    kind = "ip6" if ":" in options.host else "ip4"
    listen = []
    if options.tcp_port is not None:
        listen.append(f"/{kind}/{options.host}/tcp/{options.tcp_port}")
    if options.ws_port is not None:
        listen.append(f"/{kind}/{options.host}/tcp/{options.ws_port}{'/tls' if options.tls_cert else ''}/ws")
    return listen
