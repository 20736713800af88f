"""`LocalNode`: a node of a `LocalNetwork`.

It models a light client and the service node behind it: light push, filter, store and health. Tests can cut it off
(`go_offline`), take its store away (`store_available`), end its service node (`die`), or make the service node forget
the filter subscriptions (`go_deaf`). Its status follows as that of a light client does (`fairway.nodes.light`). Without
faults and delays, messages are in the receivers' queues when `send` returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final, Protocol

from fairway.errors import NodeUnavailableError, StoreQueryError
from fairway.nodes.listeners import NodeSubscriptions, criteria_of
from fairway.nodes.local.faults import Allowance
from fairway.nodes.node import NodeHealth, NodeQuota, NodeStatus, RoutedMessage, SendResult, StorePage, StoreQuery
from fairway.nodes.status_board import WatchedNode
from fairway.subscription import Subscription

REQUEST_TIMEOUT_S: Final = 10.0
"""How long a client waits for an answer (`LightOptions.request_timeout_s`)."""
SILENCE_MS: Final = 3_000
"""After what time a client notices that a service node does not answer (`fairway.nodes.light.liveness`)."""
PING_INTERVAL_MS: Final = 60_000
"""Interval between the filter pings of a client (`LightOptions.ping_interval_s`)."""
NO_ANSWER: Final = "no response in time"
_NO_SUBSCRIPTION: Final = "no node has the filter subscription"


class Medium(Protocol):
    """The network of a node, as the node uses it."""

    def handed_over(self, publisher: LocalNode, message: RoutedMessage, /) -> None:
        """Note a message that a program handed to its node."""

    def publish(self, publisher: LocalNode, message: RoutedMessage, /) -> tuple[SendResult, int]:
        """Deliver a message to subscribers and the store; return the answer and its delay in milliseconds."""

    def answer(self, asker: LocalNode, query: StoreQuery, cursor: bytes | None, /) -> StorePage:
        """Return a page of the store, as the partition lets the asker see it; raises `StoreQueryError`."""

    def quota_of(self, node: LocalNode, /) -> NodeQuota | None:
        """Return the rate limit of a node."""

    def is_silent(self) -> bool:
        """Return whether the request in hand is never answered."""

    def hop_ms(self) -> int:
        """Return the delay of the next hop in milliseconds."""

    def uplink_s(self, name: str, /) -> float:
        """Return how many seconds a message occupies the uplink of a node."""

    def within_ms(self, longest_ms: int, /) -> int:
        """Return a random number of milliseconds, at most ``longest_ms``."""

    def later(self, delay_ms: int, action: Callable[[], object], /) -> None:
        """Call ``action`` after a delay, even if the program that asked for it has ended."""

    def forget(self, node: LocalNode, /) -> None:
        """Remove a node that left."""

    def check_loops(self) -> None:
        """Raise `EventLoopError` if the event loop of a node runs in another thread."""


class LocalNode(WatchedNode):
    """A node of a `LocalNetwork`; made by `LocalNetwork.node`."""

    def __init__(self, network: Medium, name: str) -> None:
        super().__init__()
        self.name = name
        """Name of the node in its network, for instance for `LocalNetwork.partition`."""
        self.allowance = Allowance()
        """Use of the network's rate limit in the current epoch."""
        self._network = network
        self._health = NodeHealth.SUFFICIENTLY_HEALTHY
        self._store_available = True
        self._closed = False
        self._service_nodes = 1
        """Number of service nodes so far, the present one included."""
        self._served = True
        """Whether the present service node runs."""
        self._deaf = False
        """Whether the service node has no filter subscription and pushes nothing."""
        self._trouble = ""
        """Why the node receives nothing, once it has noticed that."""
        self._turns = 0
        """Number of changes of the service node; timers of earlier changes are ignored."""
        self._uplink_free_s = 0.0
        self._listeners: Final = NodeSubscriptions()
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
        """Id of the service node behind this node; a new one after each `come_back`."""
        return f"{self.name}#{self._service_nodes}"

    @property
    def online(self) -> bool:
        """Whether the node can send and query."""
        return not self._closed and self._health is not NodeHealth.UNHEALTHY and self._served

    @property
    def silent(self) -> bool:
        """Whether the service node has ended and the node has not noticed."""
        return not self._closed and not self._served and not self._trouble

    @property
    def is_subscribed(self) -> bool:
        """Whether the service node pushes the subscribed messages to the node."""
        return self.online and not self._deaf

    @property
    def runs_elsewhere(self) -> bool:
        """Whether the event loop of the node runs in another thread."""
        return self._binding.runs_elsewhere

    @property
    def closed(self) -> bool:
        """Whether the node was closed, or its event loop has ended."""
        return self._closed or self._binding.has_ended

    @property
    def store_available(self) -> bool:
        """Whether this node finds a store node; can be set."""
        return self._store_available

    @store_available.setter
    def store_available(self, available: bool) -> None:
        self._store_available = available
        self._show_status()

    def go_offline(self) -> None:
        """Cut the node off, and set its status to unhealthy. It misses what others send until `go_online`."""
        self.go_online(NodeHealth.UNHEALTHY)

    def go_online(self, health: NodeHealth = NodeHealth.SUFFICIENTLY_HEALTHY) -> None:
        """Connect the node again, with the given health. Only the store has the messages that it missed."""
        if self._health is NodeHealth.UNHEALTHY and self._served and self._deaf:
            self._subscribed(self._next_turn())
        self._health = health
        self._show_status()

    def die(self, *, silently: bool = False) -> None:
        """End the service node behind this node: the node can neither send nor receive until `come_back`.

        The status changes at once. With ``silently``, as after a loss of power, it changes after `SILENCE_MS`, and
        requests before that get no answer. Answers under way are lost.
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
        """Start a new service node behind this node, which subscribes there.

        A round trip later the node is healthy again. Only the store has the messages that it missed.
        """
        if self._closed or self._served:
            return
        turn = self._next_turn()
        self._find_out(turn, self._trouble or f"the connection with {self.service_node} has ended")
        self._service_nodes += 1
        self._served, self._deaf = True, True
        self._network.later(self._round_trip_ms(), lambda: self._subscribed(turn))

    def go_deaf(self, *, noticed_after_ms: int | None = None) -> None:
        """Make the service node forget the filter subscriptions: the node receives nothing, and its status is healthy.

        It notices at its next filter ping, after ``noticed_after_ms``, by default a random time within
        `PING_INTERVAL_MS`. Then it is unhealthy for a round trip, until it has subscribed again.
        """
        if self._closed or not self._served or self._deaf:
            return
        self._deaf = True
        turn = self._next_turn()
        if noticed_after_ms is None:
            noticed_after_ms = self._network.within_ms(PING_INTERVAL_MS)
        self._network.later(noticed_after_ms, lambda: self._subscribe_anew(turn))

    async def send(self, message: RoutedMessage) -> SendResult:
        """Send a message to the network; return the answer after the delay of a hop.

        Raises `ConnectionResetError` as `NetworkFaults.answer_errors` sets.
        """
        loop = self._binding.check()
        self._network.handed_over(self, message)
        wait_s = self._wait_for_uplink(loop.time())
        if wait_s > REQUEST_TIMEOUT_S:
            await asyncio.sleep(REQUEST_TIMEOUT_S)
            return SendResult(accepted=False, detail=f"{self.service_node}: {NO_ANSWER}")
        if wait_s:
            await asyncio.sleep(wait_s)
        if self._network.is_silent():
            if self._network.within_ms(1):
                self._network.publish(self, message)
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
        self._binding.check()
        if self._closed:
            raise NodeUnavailableError(f"node {self.name!r} is closed; make another one with LocalNetwork.node()")
        self._network.check_loops()
        return self._listeners.add(criteria_of(pubsub_topic, content_topics))

    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the network's store; raises `StoreQueryError` if it does not answer."""
        self._binding.check()
        # Even without a delay, let other tasks run: reading a large store must not block them.
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
        """Leave the network; subscriptions end. Can be called twice."""
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

    def is_shared(self, message: RoutedMessage) -> bool:
        """Return whether several subscriptions of this node ask for a message: those of several participants."""
        return len(self._listeners.asking_for(message)) > 1

    def receive(self, message: RoutedMessage) -> bool:
        """Receive a message; return whether a subscription asks for it."""
        if not self.is_subscribed:
            return False
        return bool(self._listeners.deliver(message))

    def _wait_for_uplink(self, now_s: float) -> float:
        """Return how many seconds a message waits for the uplink; beyond the timeout it is not sent."""
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
