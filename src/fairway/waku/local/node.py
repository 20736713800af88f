"""A node of an in-process network.

It stands for the whole way between a program and the network, as a light client has it: relay or light push, filter,
store, the service node behind them, and the health that goes with them. Tests cut it off (`go_offline`), take its store
away (`store_available`), end its service node (`die`) or have that forget the filter subscriptions (`go_deaf`); what
its status says of that, and when, is what a light client finds out (`fairway.waku.light`). Without faults and delays
what is sent is in the receivers' queues when `send` returns, without a turn of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final, Protocol

from fairway.errors import NodeUnavailableError, StoreQueryError
from fairway.waku.listeners import Listeners, criteria_of
from fairway.waku.local.faults import Allowance, Pace
from fairway.waku.node import NodeHealth, NodeQuota, NodeStatus, RoutedMessage, SendResult, StorePage, StoreQuery
from fairway.waku.status_board import WatchedNode
from fairway.waku.subscription import Subscription

REQUEST_TIMEOUT_S: Final = 10.0
"""How long a client waits for an answer that does not come (`LightOptions.request_timeout_s`)."""
SILENCE_MS: Final = 3_000
"""When a client finds that a service node does not answer any more (`fairway.waku.light.pulse`)."""
PING_INTERVAL_MS: Final = 60_000
"""How often a client asks whether its filter subscriptions are known (`LightOptions.ping_interval_s`)."""
NO_ANSWER: Final = "no response in time"
_NO_SUBSCRIPTION: Final = "no node has the filter subscription"


class Medium(Protocol):
    """What a node asks of the network that it is in."""

    def handed_over(self, publisher: LocalNode, message: RoutedMessage, /) -> None:
        """Take note of what a program handed to its node."""

    def publish(
        self, publisher: LocalNode, message: RoutedMessage, /, *, is_answered: bool = True
    ) -> tuple[SendResult, int]:
        """Spread a message, and return the answer, if any is given, and how many milliseconds that takes."""

    def answer(self, asker: LocalNode, query: StoreQuery, cursor: bytes | None, /) -> StorePage:
        """Return a page of what the store keeps, as far as the asker may see it; raises `StoreQueryError`."""

    def quota_of(self, node: LocalNode, /) -> NodeQuota | None:
        """Return the rate limit of a node."""

    def is_silent(self) -> bool:
        """Return whether a node never answers what it is asked now."""

    def hop_ms(self) -> int:
        """Return how long the next hop takes."""

    def uplink_s(self, name: str, /) -> float:
        """Return how long a message keeps the uplink of a node busy."""

    def within_ms(self, longest_ms: int, /) -> int:
        """Return a random time, at most so long."""

    def later(self, delay_ms: int, action: Callable[[], object], /) -> None:
        """Do something after a while, whatever becomes of the program that asked for it."""

    def forget(self, node: LocalNode, /) -> None:
        """Drop a node that left."""


class LocalNode(WatchedNode):
    """A node of a `LocalNetwork`; made by `LocalNetwork.node`."""

    def __init__(self, network: Medium, name: str) -> None:
        super().__init__()
        self.name = name
        """How the network calls this node, for instance in `LocalNetwork.partition`."""
        self.allowance = Allowance()
        """What this node may still publish under the network's rate limit."""
        self.pace = Pace()
        """What this node takes each second, where the network limits that."""
        self._network = network
        self._health = NodeHealth.SUFFICIENTLY_HEALTHY
        self._store_available = True
        self._closed = False
        self._service_nodes = 1
        """How many stood behind this node so far, the present one included."""
        self._served = True
        """Whether the present one lives."""
        self._deaf = False
        """Whether it pushes nothing, for want of a subscription."""
        self._trouble = ""
        """Why nothing comes in, as soon as that was found out."""
        self._newest: Subscription[RoutedMessage] | None = None
        self.heard = 0
        """Messages that were put into the newest subscription."""
        self.belied = 0
        """Messages that the store gave since then under a hash that is not theirs."""
        self._turns = 0
        """What became of the service nodes so far; what was planned before the latest turn is void."""
        self._uplink_free_s = 0.0
        self._listeners: Final = Listeners()
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
    def service_node(self) -> str:
        """The id of the service node behind this node: another one after each `come_back`."""
        return f"{self.name}#{self._service_nodes}"

    @property
    def waiting(self) -> int:
        """Messages in the newest subscription that nobody has taken yet."""
        return 0 if self._newest is None else len(self._newest)

    @property
    def online(self) -> bool:
        """Whether the node takes part."""
        return not self._closed and self._health is not NodeHealth.UNHEALTHY and self._served

    @property
    def silent(self) -> bool:
        """Whether the service node is dead and the node has not found out."""
        return not self._closed and not self._served and not self._trouble

    @property
    def hears(self) -> bool:
        """Whether the node is pushed what it subscribed to."""
        return self.online and not self._deaf

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
        if self._health is NodeHealth.UNHEALTHY and self._served and self._deaf:
            self._subscribed(self._next_turn())
        self._health = health
        self._show_status()

    def die(self, *, silently: bool = False) -> None:
        """End the service node behind this node: nothing goes out or comes in until `come_back`.

        Its connection ends and the status says so at once; ``silently``, as when a machine lost its power, the node
        finds out after `SILENCE_MS`, and what it sends or asks before that is not answered. What it was about to be
        told, it is not.
        """
        if self._closed or not self._served:
            return
        self._served = False
        turn = self._next_turn()
        if silently:
            detail = f"{self.service_node} does not answer"
            self._network.later(SILENCE_MS, lambda: self._find_out(turn, detail))
        else:
            self._find_out(turn, f"the connection with {self.service_node} has ended")

    def come_back(self) -> None:
        """Put a service node with another id behind this node, which then subscribes anew.

        The node is healthy again when that is done, a round trip later. What it missed only the store can tell.
        """
        if self._closed or self._served:
            return
        turn = self._next_turn()
        self._find_out(turn, self._trouble or f"the connection with {self.service_node} has ended")
        self._service_nodes += 1
        self._served, self._deaf = True, True
        self._network.later(self._round_trip_ms(), lambda: self._subscribed(turn))

    def go_deaf(self, *, noticed_after_ms: int | None = None) -> None:
        """Have the service node forget the filter subscriptions: the node hears nothing more, and seems well.

        It finds out at its next filter ping, after ``noticed_after_ms``, by default at some time within
        `PING_INTERVAL_MS`. Then it is unhealthy until it has subscribed anew, a round trip later.
        """
        if self._closed or not self._served or self._deaf:
            return
        self._deaf = True
        turn = self._next_turn()
        if noticed_after_ms is None:
            noticed_after_ms = self._network.within_ms(PING_INTERVAL_MS)
        self._network.later(noticed_after_ms, lambda: self._subscribe_anew(turn))

    async def send(self, message: RoutedMessage) -> SendResult:
        """Broadcast a message. Where hops take time, so does the answer; the message is on its way before."""
        self._loop = asyncio.get_running_loop()
        self._network.handed_over(self, message)
        wait_s = self._wait_for_uplink(self._loop.time())
        if wait_s > REQUEST_TIMEOUT_S:
            await asyncio.sleep(REQUEST_TIMEOUT_S)
            return SendResult(accepted=False, detail=f"{self.service_node}: {NO_ANSWER}")
        if wait_s:
            await asyncio.sleep(wait_s)
        if self._network.is_silent():
            if self._network.within_ms(1):
                self._network.publish(self, message, is_answered=False)
            await asyncio.Event().wait()
        service_node = self.service_node
        result, answer_ms = self._network.publish(self, message)
        if answer_ms:
            await asyncio.sleep(answer_ms / 1000)
        if result.accepted and not (self._served and self.service_node == service_node):
            return SendResult(accepted=False, detail=f"the connection with {service_node} ended before it answered")
        return result

    async def subscribe(self, pubsub_topic: str, content_topics: Collection[str]) -> Subscription[RoutedMessage]:
        """Receive what others send on content topics, from now on, until the subscription is closed.

        Raises `NodeUnavailableError` if the node is closed, `ConfigurationError` without a content topic.
        """
        if self._closed:
            raise NodeUnavailableError(f"node {self.name!r} is closed; make another one with LocalNetwork.node()")
        self._loop = asyncio.get_running_loop()
        self._newest = self._listeners.add(criteria_of(pubsub_topic, content_topics))
        self.heard = self.belied = 0
        return self._newest

    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of what the network's store keeps; raises `StoreQueryError` if that cannot be had now."""
        self._loop = asyncio.get_running_loop()
        # Also without a delay other tasks get their turn: whoever pages through a large store must not stop them.
        await asyncio.sleep(self._network.hop_ms() / 1000)
        if self._network.is_silent():
            await asyncio.Event().wait()
        if self.silent:
            await asyncio.sleep(REQUEST_TIMEOUT_S)
            raise StoreQueryError(f"store node {self.service_node}: {NO_ANSWER}")
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
        if not ended:
            self._board.close()
        self._listeners.close()

    def wants(self, message: RoutedMessage) -> bool:
        """Return whether any subscription of this node asks for a message."""
        return bool(self._listeners.asking_for(message))

    def hear(self, message: RoutedMessage) -> bool:
        """Take what arrives, and return whether anybody here listened."""
        if not self.hears:
            return False
        self.heard += self._newest in self._listeners.asking_for(message)
        return self._listeners.hear(message)

    def _wait_for_uplink(self, now_s: float) -> float:
        """Return how long what is sent now takes to get out; what would take too long is not sent at all."""
        free_s = max(now_s, self._uplink_free_s) + self._network.uplink_s(self.name)
        if free_s - now_s <= REQUEST_TIMEOUT_S:
            self._uplink_free_s = free_s
        return free_s - now_s

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns

    def _find_out(self, turn: int, detail: str) -> None:
        if turn == self._turns:
            self._trouble = detail
            self._show_status()

    def _subscribe_anew(self, turn: int) -> None:
        if turn == self._turns:
            self._find_out(turn, _NO_SUBSCRIPTION)
            self._network.later(self._round_trip_ms(), lambda: self._subscribed(turn))

    def _subscribed(self, turn: int) -> None:
        if turn == self._turns:
            self._deaf, self._trouble = False, ""
            self._show_status()

    def _round_trip_ms(self) -> int:
        return self._network.hop_ms() + self._network.hop_ms()

    def _status_now(self) -> NodeStatus:
        health = NodeHealth.UNHEALTHY if self._closed or self._trouble else self._health
        store = self._store_available and health is not NodeHealth.UNHEALTHY
        return NodeStatus(health=health, store=store, detail=self._trouble)

    def _show_status(self) -> None:
        self._board.show(self._status_now())
