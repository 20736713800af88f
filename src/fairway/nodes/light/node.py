"""`LightNode`: a light client, which uses service nodes for light push, filter and store.

It uses two service nodes at once, as WAKU-P2P-RELIABILITY recommends, and replaces a failing one if it knows another.
`LightNode.status` always says whether messages can be sent and received. When `LightNode.close` returns, all its tasks
and connections have ended.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from fairway.environment import monotonic_s, random_bytes
from fairway.errors import ConfigurationError, NodeUnavailableError
from fairway.libp2p.host import Host
from fairway.libp2p.keeper import PeerKeeper
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_book import HostEvent
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.discovery.network import Network
from fairway.nodes.discovery.node_records import NodeRecords
from fairway.nodes.discovery.peer_finder import PeerFinder
from fairway.nodes.discovery.peer_memory import PeerMemory
from fairway.nodes.light.filter_client import FilterClient
from fairway.nodes.light.liveness import Liveness
from fairway.nodes.light.options import LightOptions
from fairway.nodes.light.peer_pool import PeerPool
from fairway.nodes.light.push_client import PUSH_PROTOCOLS, PushClient
from fairway.nodes.light.sent_confirmation import SentConfirmation
from fairway.nodes.light.store_client import StoreClient
from fairway.nodes.listeners import Criterion, NodeSubscriptions, criteria_of
from fairway.nodes.node import (
    NetworkRules,
    NodeHealth,
    NodeQuota,
    NodeStatus,
    RoutedMessage,
    SendResult,
    StorePage,
    StoreQuery,
)
from fairway.nodes.protocols.filter_service import MAX_CRITERIA
from fairway.nodes.protocols.metadata import MetadataExchange
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.nodes.proving import prepare_soon, with_proof
from fairway.nodes.status_board import WatchedNode
from fairway.owned_tasks import OwnedTasks
from fairway.protocol.ratelimit import RlnProofProvider
from fairway.subscription import Subscription
from fairway.wire.filter import FILTER_SUBSCRIBE_PROTOCOL
from fairway.wire.metadata import WakuMetadata
from fairway.wire.store import STORE_QUERY_PROTOCOL

_LOG: Final = logging.getLogger(__name__)
_TICK_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 3.0
"""Longest pause between two attempts to reach a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LightStatistics:
    """Counts of a light client since its start."""

    confirmed: int
    """Sent messages that a store returned."""
    resent: int
    """Messages that were pushed once more because no store had them."""
    unwanted: int
    """Pushed messages without a matching subscription, or that could not be decoded."""


class LightNode(WatchedNode):
    """A light client; made by `LightNode.start`.

    It is unhealthy while it has no light push peer, or while no filter peer has its subscriptions.
    """

    def __init__(
        self,
        host: Host,
        addresses: Sequence[Multiaddr],
        options: LightOptions,
        *,
        network: Network | None = None,
        memory: PeerMemory | None = None,
        rln: RlnProofProvider | None = None,
    ) -> None:
        super().__init__()
        self.host: Final = host
        self._rln: Final = rln
        self._options: Final = options
        self._network: Final = network
        self._closed = False
        self._tasks: Final = OwnedTasks()
        self._metadata: Final = MetadataExchange(
            host,
            WakuMetadata(cluster_id=options.cluster_id),
            timeout_s=options.request_timeout_s,
            log_level=logging.WARNING,
            admitted=self._peers_changed,
        )
        self._liveness: Final = Liveness(host, changed=self._peers_changed)
        self._pool: Final = PeerPool(host, clock=monotonic_s, admits=self._admits)
        requests = PeerRequests(host)
        self._push: Final = PushClient(host, requests, self._pool, options, self._tasks)
        self._store: Final = StoreClient(requests, self._pool, options)
        self._listeners: Final = NodeSubscriptions(gone=self._unsubscribed)
        self._filter: Final = FilterClient(
            host, requests, self._pool, options, deliver=self._listeners.deliver, changed=self._show_status
        )
        self._confirmation: Final = SentConfirmation(self._store.present, self._push.push, self._tasks)
        rng = random.Random(random_bytes(16))  # noqa: S311 - spreads attempts to connect, guards nothing
        self._keeper: Final = PeerKeeper(host, addresses, rng=rng, longest_pause_s=_LONGEST_PAUSE_S)
        self.finder: Final = None if network is None else self._finder_of(network, memory, rng)
        """Finds service nodes of a network; None if their addresses were given."""

    @classmethod
    async def start(
        cls,
        peers: Sequence[Multiaddr | str],
        options: LightOptions | None = None,
        *,
        key: IdentityKey | None = None,
        connect_timeout_s: float | None = 10.0,
        network: Network | None = None,
        memory: Path | None = None,
        rln: RlnProofProvider | None = None,
    ) -> Self:
        """Connect to service nodes and stay connected to them.

        With ``network`` the node also finds nodes by itself, and replaces those that fail; ``memory`` is the file in
        which it remembers them. ``rln`` proves the sent messages, for service nodes that require RLN proofs.

        Returns when one of them serves light push and filter; with ``connect_timeout_s`` None at once. Raises
        `ConfigurationError` without a peer or a network, for an invalid address, or for options of another cluster.
        Raises `NodeUnavailableError` if no peer serves in time, or if no certificate of the peers is trusted.
        """
        if not peers and network is None:
            raise ConfigurationError("a light client needs at least one service node; give its multiaddr")
        addresses = [Multiaddr.parse(peer) if isinstance(peer, str) else peer for peer in peers]
        chosen = options or LightOptions()
        if network is not None:
            chosen = chosen.of_cluster(network.cluster)
        remembered = None if network is None or memory is None else PeerMemory(memory, cluster_id=network.cluster)
        prepare_soon(rln)
        host = await Host.start(key=key, tls_ca_file=chosen.tls_ca_file)
        node = cls(host, addresses, chosen, network=network, memory=remembered, rln=rln)
        try:
            node._run()
            if connect_timeout_s is not None:
                await node._until_served(connect_timeout_s)
        except BaseException:
            await node.close()
            raise
        return node

    @property
    def network(self) -> NetworkRules | None:
        """The parameters of the network; None if the node was given addresses and no network."""
        known = self._network
        if known is None:
            return None
        return NetworkRules(
            cluster_id=known.cluster, shard_count=known.shards, max_message_bytes=known.max_message_bytes
        )

    @property
    def quota(self) -> NodeQuota | None:
        """The RLN rate limit of the network, as the table of networks or its file has it; None if it has none."""
        limit = None if self._network is None else self._network.rln
        return None if limit is None else NodeQuota(limit=limit.messages_per_epoch, epoch_ms=limit.epoch_s * 1_000)

    @property
    def rln(self) -> RlnProofProvider | None:
        """The membership that proves the sent messages."""
        return self._rln

    async def send(self, message: RoutedMessage) -> SendResult:
        """Send by light push, with a proof if the node has a membership.

        Stores are queried for an accepted message, and it is pushed once more if none has it. `SendResult.stored` is
        the result.
        """
        self._binding.check()
        if self._closed:
            return SendResult(accepted=False, detail="the node is closed")
        if self._network is not None and len(message.encoded) > self._network.max_message_bytes:
            detail = f"{len(message.encoded)} bytes, and the network relays {self._network.max_message_bytes} at most"
            return SendResult(accepted=False, permanent=True, too_large=True, detail=detail)
        proven = await with_proof(self._rln, message)
        if isinstance(proven, SendResult):
            return proven
        result = await self._push.push(proven)
        if not result.accepted or message.message.ephemeral:
            return result
        return SendResult(accepted=True, stored=self._confirmation.watch(proven))

    async def subscribe(self, pubsub_topic: str, content_topics: Collection[str]) -> Subscription[RoutedMessage]:
        """Return the messages of others on content topics.

        Raises `NodeUnavailableError` if the node is closed, `ConfigurationError` without a content topic, or for more
        content topics than service nodes keep for one client.
        """
        self._binding.check()
        if self._closed:
            raise NodeUnavailableError("the node is closed; connect again")
        criteria = criteria_of(pubsub_topic, content_topics)
        if not self._filter.has_room(criteria):
            raise ConfigurationError(
                f"service nodes keep at most {MAX_CRITERIA:,} content topics for one client: connect another client, "
                "or close channels"
            )
        subscription = self._listeners.add(criteria)
        self._filter.want(criteria)
        try:
            # A task of the node completes a request even if the caller is cancelled.
            await asyncio.wait([self._tasks.spawn(self._filter.look())])
        except BaseException:
            subscription.close()
            raise
        self._show_status()
        return subscription

    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the messages that the store nodes have; raises `StoreQueryError` if none answers."""
        self._binding.check()
        return await self._store.query(query, cursor)

    def statistics(self) -> LightStatistics:
        """Return counts since the start."""
        return LightStatistics(
            confirmed=self._confirmation.confirmed, resent=self._confirmation.resent, unwanted=self._filter.unwanted
        )

    async def close(self) -> None:
        """Leave the network; subscriptions end. Can be called twice."""
        if self._closed or self._binding.has_ended:
            self._closed = True
            return
        self._binding.check()
        self._closed = True
        self._board.close()
        self._listeners.close()
        self._confirmation.close()
        async with AsyncExitStack() as exits:  # closes all even if one fails or the caller is cancelled
            parts = (self.host, self._filter, self._keeper, self._tasks, self._metadata, self._liveness)
            for part in parts:
                exits.push_async_callback(part.close)
            if self.finder is not None:
                exits.push_async_callback(self.finder.close)

    def _finder_of(self, network: Network, memory: PeerMemory | None, rng: random.Random) -> PeerFinder:
        return PeerFinder(
            self.host,
            network,
            wanted=self._options.peers_to_use,
            admits=self._admits,
            records=NodeRecords(cluster_id=network.cluster),
            rng=rng,
            memory=memory,
        )

    def _run(self) -> None:
        self._tasks.spawn(self._follow(self.host.watch()))
        self._tasks.spawn(self._filter.run())
        self._tasks.spawn(self._confirmation.run())
        self._tasks.spawn(self._liveness.run())
        self._tasks.spawn(self._tick())
        self._keeper.start()
        if self.finder is not None:
            self.finder.start()

    async def _until_served(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                async for status in self.status_changes():
                    if status.connected:
                        return
                    if self.finder is None and self._keeper.all_untrusted:
                        raise NodeUnavailableError(self._reasons())
        except TimeoutError:
            raise NodeUnavailableError(
                f"no service node to work with after {timeout_s:g} s ({self._reasons()}); "
                "start one, or give the address of one that runs: 'fairway node' prints its own"
            ) from None

    def _admits(self, peer: PeerId) -> bool:
        return self._metadata.admits(peer) and self._liveness.is_alive(peer)

    async def _follow(self, events: Subscription[HostEvent]) -> None:
        async for event in events:
            self._metadata.take(event)
            self._peers_changed()

    def _peers_changed(self) -> None:
        self._filter.peers_changed()
        self._show_status()

    async def _tick(self) -> None:
        while True:
            self._show_status()
            await asyncio.sleep(_TICK_S)

    def _unsubscribed(self, criteria: frozenset[Criterion]) -> None:
        self._filter.unwant(criteria)

    def _status_now(self) -> NodeStatus:
        pushing = len(self._pool.serving(*PUSH_PROTOCOLS))
        filtering = len(self._pool.serving(FILTER_SUBSCRIBE_PROTOCOL)) if self._filter.idle else self._filter.holders
        worst = min(pushing, filtering)
        store = bool(self._pool.serving(STORE_QUERY_PROTOCOL))
        if not worst:
            return NodeStatus(health=NodeHealth.UNHEALTHY, store=store, detail=self._reasons())
        enough = worst >= self._options.peers_to_use
        health = NodeHealth.SUFFICIENTLY_HEALTHY if enough else NodeHealth.MINIMALLY_HEALTHY
        return NodeStatus(health=health, store=store)

    def _reasons(self) -> str:
        """Return why no service node can be used, as text for people."""
        reasons = [*self._keeper.failures(), *(self.finder.failures() if self.finder is not None else ())]
        if silent := self._liveness.silent:
            reasons.insert(0, f"{', '.join(sorted(map(str, silent)))} does not answer")
        elif self._pool.serving(FILTER_SUBSCRIBE_PROTOCOL) and not self._filter.idle and not self._filter.holders:
            refusal = f": {self._filter.refusal}" if self._filter.refusal else ""
            reasons.insert(0, f"no node has the filter subscription{refusal}")
        elif connected := len(self.host.connections()):
            reasons.insert(0, f"{connected} connected, which serve no light push and filter to this cluster")
        elif self._metadata.last_mismatch is not None:
            reasons.insert(0, self._metadata.last_mismatch)
        return "; ".join(reasons) or "still connecting"

    def _show_status(self) -> None:
        self._board.show(self._status_now())
