"""A light client: a `WakuNode` that lets others do the work, two at a time, and looks after them.

Messages go out by light push, come in by filter, and what was missed is in a store; seed 002's lower layer says how
much each of them is trusted. Invariants: a peer that fails is replaced while there is another one; `LightNode.status`
says at any time whether messages can go out and come in, so that whoever watches it knows what was missed; when
`LightNode.close` returns nothing of it is left.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
from typing import Any, Final, Self

from fairway.errors import ConfigurationError, NodeUnavailableError
from fairway.waku.libp2p.errors import Libp2pError
from fairway.waku.libp2p.host import Host, HostEvent, PeerDisconnected, PeerIdentified
from fairway.waku.libp2p.keeper import PeerKeeper
from fairway.waku.libp2p.keys import PrivateKey
from fairway.waku.libp2p.multiaddr import Multiaddr
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.light.filter_client import FilterClient, FilterEvent
from fairway.waku.light.options import LightOptions
from fairway.waku.light.peer_pool import PeerPool
from fairway.waku.light.presence import PresenceKeeper
from fairway.waku.light.push_client import PushClient
from fairway.waku.light.store_client import StoreClient
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
from fairway.waku.protocols.exchange import ask
from fairway.waku.protocols.metadata import mismatch
from fairway.waku.status_board import StatusBoard
from fairway.waku.subscription import Subscription
from fairway.wire.filter import FILTER_SUBSCRIBE_PROTOCOL
from fairway.wire.lightpush import LIGHTPUSH_PROTOCOL
from fairway.wire.metadata import MAX_METADATA_BYTES, METADATA_PROTOCOL, WakuMetadata, encode_metadata
from fairway.wire.store import STORE_QUERY_PROTOCOL

_LOG: Final = logging.getLogger(__name__)
_TICK_S: Final = 0.25


class LightNode(WakuNode):
    """Made by `LightNode.start`."""

    def __init__(self, host: Host, addresses: Sequence[Multiaddr], options: LightOptions) -> None:
        self.host: Final = host
        self._options: Final = options
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: dict[Subscription[RoutedMessage], frozenset[tuple[str, str]]] = {}
        self._watchers: Subscription[FilterEvent] | None = None
        self._introduced: set[PeerId] = set()
        self._introducing: set[PeerId] = set()
        self._pool: Final = PeerPool(host, clock=time.monotonic, admits=self._admits)
        self._push: Final = PushClient(host, self._pool, options)
        self._store: Final = StoreClient(host, self._pool, options)
        self._filter: Final = FilterClient(
            host, self._pool, options, clock=time.monotonic, hand_on=self._hear, changed=self._filter_changed
        )
        self._presence: Final = PresenceKeeper(
            present=self._store.present, push=self._push.push, options=options, clock=time.monotonic
        )
        rng = random.Random()  # noqa: S311 - spreads attempts to connect, guards nothing
        self._keeper: Final = PeerKeeper(host, addresses, rng=rng)
        self._board: Final = StatusBoard(self._status_now())

    @classmethod
    async def start(
        cls,
        peers: Sequence[Multiaddr | str],
        options: LightOptions | None = None,
        *,
        key: PrivateKey | None = None,
        connect_timeout_s: float | None = 10.0,
    ) -> Self:
        """Connect to service nodes and stay connected to them.

        Returns when one of them serves light push and filter; with ``connect_timeout_s`` None at once. Raises
        `ConfigurationError` for no peer or an address that is none, `NodeUnavailableError` if no peer serves in time.
        """
        if not peers:
            raise ConfigurationError("a light client needs at least one service node; give its multiaddr")
        addresses = [Multiaddr.parse(peer) if isinstance(peer, str) else peer for peer in peers]
        chosen = options or LightOptions()
        node = cls(await Host.start(key=key, limits=chosen.host_limits), addresses, chosen)
        try:
            node._run()
            if connect_timeout_s is not None:
                await node._until_served(connect_timeout_s)
        except BaseException:
            await node.close()
            raise
        return node

    @property
    def status(self) -> NodeStatus:
        """How the node is now: unhealthy without a light push peer, or while no filter peer has its subscriptions."""
        return self._board.status

    def status_changes(self) -> AsyncIterator[NodeStatus]:
        """Yield every status from now on, the present one first."""
        return self._board.watch()

    @property
    def quota(self) -> NodeQuota | None:
        """None: service nodes do not tell theirs."""
        return None

    def filter_events(self) -> Subscription[FilterEvent]:
        """Return what becomes of filter subscriptions from now on; one watcher at a time."""
        self._watchers = Subscription()
        return self._watchers

    async def send(self, message: RoutedMessage) -> SendResult:
        """Send by light push; a message that was taken is looked for in stores, and sent again if none has it."""
        if self._closed:
            return SendResult(accepted=False, detail="the node is closed")
        result = await self._push.push(message)
        if result.accepted:
            self._presence.add(message)
        return result

    async def subscribe(self, pubsub_topic: str, content_topics: Collection[str]) -> Subscription[RoutedMessage]:
        """Receive what others send on content topics.

        Raises `NodeUnavailableError` if the node is closed, `ConfigurationError` without a content topic.
        """
        if self._closed:
            raise NodeUnavailableError("the node is closed; connect again")
        if isinstance(content_topics, str) or not content_topics:
            raise ConfigurationError(
                "a subscription takes a collection of content topics, like "
                f'["/app/1/room/proto"], not {content_topics!r}'
            )
        criteria = frozenset((pubsub_topic, topic) for topic in content_topics)
        subscription: Subscription[RoutedMessage] = Subscription(
            on_close=lambda: self._unsubscribe(subscription), size_of=lambda message: len(message.encoded)
        )
        self._listeners[subscription] = criteria
        self._filter.want(criteria)
        await self._filter.look()
        self._show_status()
        return subscription

    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of what the store nodes together have; raises `StoreQueryError` if none answers."""
        return await self._store.query(query, cursor)

    async def close(self) -> None:
        """Leave the network; subscriptions end. May be called twice."""
        if self._closed:
            return
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._keeper.close()
        await self._filter.close()
        await self.host.close()
        self._board.close(self._status_now())
        for subscription in list(self._listeners):
            subscription.close()
        if self._watchers is not None:
            self._watchers.close()

    def _run(self) -> None:
        self._spawn(self._follow(self.host.watch()))
        self._spawn(self._filter.run())
        self._spawn(self._presence.run())
        self._spawn(self._tick())
        self._keeper.start()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _until_served(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                async for status in self.status_changes():
                    if status.connected:
                        return
        except TimeoutError:
            raise NodeUnavailableError(
                f"none of the service nodes served within {timeout_s:.0f} s "
                f"({len(self.host.connections())} connected); are their addresses right, and do they serve light push "
                "and filter?"
            ) from None

    async def _follow(self, events: Subscription[HostEvent]) -> None:
        async for event in events:
            match event:
                case PeerIdentified(peer_id=peer, protocols=protocols) if METADATA_PROTOCOL in protocols:
                    # A peer may say as often as it likes what it serves; it is asked once at a time.
                    if self._options.cluster_id is not None and peer not in self._introducing:
                        self._introducing.add(peer)
                        self._spawn(self._introduce(peer))
                case PeerDisconnected():
                    self._introduced.discard(event.peer_id)
            self._filter.peers_changed()
            self._show_status()

    async def _introduce(self, peer: PeerId) -> None:
        """Part with a peer of another cluster (66/WAKU2-METADATA)."""
        ours = WakuMetadata(cluster_id=self._options.cluster_id)
        try:
            theirs = await ask(
                self.host,
                peer,
                METADATA_PROTOCOL,
                encode_metadata(ours),
                max_response_bytes=MAX_METADATA_BYTES,
                timeout_s=self._options.request_timeout_s,
            )
        except (Libp2pError, TimeoutError) as error:
            _LOG.debug("%s told no metadata: %s", peer, error)
            return
        finally:
            self._introducing.discard(peer)
        problem = mismatch(ours, theirs)
        if problem is not None:
            _LOG.warning("parting with %s: %s", peer, problem)
            await self.host.disconnect(peer)
            return
        self._introduced.add(peer)
        self._filter.peers_changed()
        self._show_status()

    def _admits(self, peer: PeerId) -> bool:
        return self._options.cluster_id is None or peer in self._introduced

    async def _tick(self) -> None:
        while True:
            self._show_status()
            await asyncio.sleep(_TICK_S)

    def _hear(self, message: RoutedMessage) -> None:
        criterion = (message.pubsub_topic, message.message.content_topic)
        for subscription, criteria in list(self._listeners.items()):
            if criterion in criteria:
                subscription.put(message)

    def _unsubscribe(self, subscription: Subscription[RoutedMessage]) -> None:
        criteria = self._listeners.pop(subscription, None)
        if criteria is not None:
            self._filter.unwant(criteria)

    def _filter_changed(self, event: FilterEvent) -> None:
        _LOG.debug("filter subscription %s at %s: %s", event.change.value, event.peer_id, event.detail)
        if self._watchers is not None:
            self._watchers.put(event)
        self._show_status()

    def _status_now(self) -> NodeStatus:
        if self._closed:
            return NodeStatus(health=NodeHealth.UNHEALTHY)
        pushing = len(self._pool.serving(LIGHTPUSH_PROTOCOL))
        filtering = len(self._pool.serving(FILTER_SUBSCRIBE_PROTOCOL)) if self._filter.idle else self._filter.holders
        worst = min(pushing, filtering)
        if not worst:
            health = NodeHealth.UNHEALTHY
        else:
            enough = worst >= self._options.peers_to_use
            health = NodeHealth.SUFFICIENTLY_HEALTHY if enough else NodeHealth.MINIMALLY_HEALTHY
        return NodeStatus(health=health, store=bool(self._pool.serving(STORE_QUERY_PROTOCOL)))

    def _show_status(self) -> None:
        self._board.show(self._status_now())
