"""A node of an in-process network.

It stands for the whole way between a program and the network: relay or light push, filter, store, and the health that
goes with them. Tests cut it off (`go_offline`), take its store away (`store_available`) and bring both back. Without
faults and delays what is sent is in the receivers' queues when `send` returns, without a turn of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairway.errors import NodeUnavailableError, StoreQueryError
from fairway.waku.listeners import Criterion, criteria_of
from fairway.waku.local.faults import Allowance
from fairway.waku.node import NodeHealth, NodeQuota, NodeStatus, RoutedMessage, SendResult, StorePage, StoreQuery
from fairway.waku.status_board import WatchedNode
from fairway.waku.subscription import Subscription

if TYPE_CHECKING:
    from fairway.waku.local.network import LocalNetwork


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    """One subscription and what it is for; compared by identity."""

    criteria: frozenset[Criterion]
    subscription: Subscription[RoutedMessage]
    loop: asyncio.AbstractEventLoop

    def wants(self, message: RoutedMessage) -> bool:
        return (message.pubsub_topic, message.message.content_topic) in self.criteria


class LocalNode(WatchedNode):
    """A node of a `LocalNetwork`; made by `LocalNetwork.node`."""

    def __init__(self, network: LocalNetwork, name: str) -> None:
        super().__init__()
        self.name = name
        """How the network calls this node, for instance in `LocalNetwork.partition`."""
        self.allowance = Allowance()
        """What this node may still publish under the network's rate limit."""
        self._network = network
        self._health = NodeHealth.SUFFICIENTLY_HEALTHY
        self._store_available = True
        self._closed = False
        self._listeners: list[_Listener] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._show_status()

    def __repr__(self) -> str:
        state = "closed" if self._closed else self._health.value
        return f"<LocalNode {self.name!r}, {state}, {len(self._listeners)} subscriptions>"

    @property
    def quota(self) -> NodeQuota | None:
        """The rate limit among the network's faults, if it has one."""
        return self._network.quota_of(self)

    @property
    def online(self) -> bool:
        """Whether the node takes part."""
        return not self._closed and self._health is not NodeHealth.UNHEALTHY

    @property
    def closed(self) -> bool:
        """Whether the node left for good; that is also so when its event loop has ended."""
        return self._closed or (self._loop is not None and self._loop.is_closed())

    @property
    def store_available(self) -> bool:
        """Whether this node finds a store node; may be set."""
        return self._store_available

    @store_available.setter
    def store_available(self, available: bool) -> None:
        self._store_available = available
        self._show_status()

    def go_offline(self) -> None:
        """Cut the node off; it knows that it is. What others send meanwhile it does not hear."""
        self.go_online(NodeHealth.UNHEALTHY)

    def go_online(self, health: NodeHealth = NodeHealth.SUFFICIENTLY_HEALTHY) -> None:
        """Bring the node back, in the given health. What it missed only the store can tell."""
        self._health = health
        self._show_status()

    async def send(self, message: RoutedMessage) -> SendResult:
        """Broadcast a message. Where hops take time, so does the answer; the message is on its way before."""
        self._loop = asyncio.get_running_loop()
        result, answer_ms = self._network.publish(self, message)
        if answer_ms:
            await asyncio.sleep(answer_ms / 1000)
        return result

    async def subscribe(self, pubsub_topic: str, content_topics: Collection[str]) -> Subscription[RoutedMessage]:
        """Receive what others send on content topics, from now on, until the subscription is closed.

        Raises `NodeUnavailableError` if the node is closed, `ConfigurationError` without a content topic.
        """
        if self._closed:
            raise NodeUnavailableError(f"node {self.name!r} is closed; make another one with LocalNetwork.node()")
        self._loop = asyncio.get_running_loop()
        criteria = criteria_of(pubsub_topic, content_topics)
        subscription: Subscription[RoutedMessage] = Subscription(
            on_close=lambda: self._drop(listener), size_of=lambda message: len(message.encoded)
        )
        listener = _Listener(criteria, subscription, self._loop)
        self._listeners.append(listener)
        return subscription

    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of what the network's store keeps; raises `StoreQueryError` if that cannot be had now."""
        self._loop = asyncio.get_running_loop()
        # Also without a delay other tasks get their turn: whoever pages through a large store must not stop them.
        await asyncio.sleep(self._network.hop_ms() / 1000)
        if not self.online:
            raise StoreQueryError(
                f"node {self.name!r} is {'closed' if self._closed else 'offline'}; ask when it is back"
            )
        if not self._store_available:
            raise StoreQueryError(f"node {self.name!r} finds no store node now; ask again later")
        return self._network.answer(self, query, cursor)

    async def close(self) -> None:
        """Leave the network; subscriptions end. May be called twice."""
        self.leave()

    def leave(self) -> None:
        """Do what `close` does, for callers that cannot await."""
        ended = self.closed
        self._closed = True
        self._network.forget(self)
        if ended:
            # Whoever might still wait there belongs to an event loop that is gone, and must not be woken.
            self._listeners.clear()
            return
        self._board.close()
        for listener in list(self._listeners):
            listener.subscription.close()

    def wants(self, message: RoutedMessage) -> bool:
        """Return whether any subscription of this node asks for a message."""
        if any(listener.loop.is_closed() for listener in self._listeners):
            # Nobody can be reading there any more.
            self._listeners = [listener for listener in self._listeners if not listener.loop.is_closed()]
        return any(listener.wants(message) for listener in self._listeners)

    def hear(self, message: RoutedMessage) -> bool:
        """Take what arrives, and return whether anybody here listened."""
        heard = False
        if self.online:
            for listener in self._listeners:
                if listener.wants(message):
                    listener.subscription.put(message)
                    heard = True
        return heard

    def _drop(self, listener: _Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def _status_now(self) -> NodeStatus:
        health = NodeHealth.UNHEALTHY if self._closed else self._health
        return NodeStatus(health=health, store=self._store_available and health is not NodeHealth.UNHEALTHY)

    def _show_status(self) -> None:
        self._board.show(self._status_now())
