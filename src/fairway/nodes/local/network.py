"""`LocalNetwork` and `LocalNode`: a Waku network inside one process, with faults on demand.

`connect("local:")` joins it, and programs that use channels are tested with it. It has relay, store and health behind
the `WakuNode` interface, and seeded random faults: loss, delay, duplication, reordering, partitions, refusals, slow
uplinks, size and rate limits, and a store that is late, misses messages or gives false answers.

The network draws once per message and receiver, in the order in which the receivers joined; a fault that is off draws
nothing. So the same seed and the same order of sends give the same run. A network belongs to one thread. Its nodes may
belong to event loops that run one after the other; nodes of an ended loop are removed. A message under way arrives even
if the program that sent it has ended.

A `LocalNode` models a light client and the service node behind it. Tests can cut it off (`go_offline`), make its store
unavailable (`store_available`), or end its service node (`die`). They can make the service node forget the filter
subscriptions (`go_deaf`). Its status changes as that of a light client (`fairway.nodes.light`). Without faults and
delays, messages are in the receivers' queues when `send` returns.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from types import TracebackType
from typing import Final, Self

from fairway.environment import environment
from fairway.errors import ConfigurationError, EventLoopError, NodeUnavailableError, StoreQueryError
from fairway.nodes.listeners import NodeSubscriptions, criteria_of
from fairway.nodes.local.faults import NO_FAULTS, Allowance, FaultDice, NetworkFaults
from fairway.nodes.local.lies import false_page
from fairway.nodes.local.partition import Partition
from fairway.nodes.message_store import MemoryMessageStore
from fairway.nodes.node import NodeHealth, NodeQuota, NodeStatus, RoutedMessage, SendResult, StorePage, StoreQuery
from fairway.nodes.status_board import WatchedNode
from fairway.subscription import Subscription
from fairway.type_checks import check_type
from fairway.units import MS_PER_S, NS_PER_MS
from fairway.wire.lightpush import client_action

REQUEST_TIMEOUT_S: Final = 10.0
"""Time that a client waits for an answer (`LightOptions.request_timeout_s`)."""
SILENCE_MS: Final = 3_000
"""Time after which a client notices a silent service node (`fairway.nodes.light.liveness`)."""
PING_INTERVAL_MS: Final = 60_000
"""Interval between the filter pings of a client (`fairway.nodes.light.filter_client`)."""
NO_ANSWER: Final = "no response in time"
_NO_SUBSCRIPTION: Final = "no node has the filter subscription"
_MAX_STORED: Final = 100_000
_MAX_STORED_BYTES: Final = 268_435_456


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkStatistics:
    """Counts of a network."""

    published: int = 0
    """Messages that the network accepted."""
    published_bytes: int = 0
    """Encoded size of these messages."""
    refused: int = 0
    """Messages that the network refused."""
    unanswered: int = 0
    """Messages that the network accepted without an answer to the sender."""
    delivered: int = 0
    """Messages that reached a receiver, copies included."""
    lost: int = 0
    """Messages that did not reach a receiver, copies included."""
    duplicated: int = 0
    """Publications that were sent to a receiver twice."""
    stored: int = 0
    """Messages that entered the store."""
    store_missed: int = 0
    """Messages that should have entered the store and did not."""
    queries: int = 0
    """Pages asked of the store."""
    queries_failed: int = 0
    """Pages that the store did not return."""
    queries_belied: int = 0
    """Pages that the store returned falsified."""


class LocalNetwork:
    """A network of nodes (`LocalNode`). A context manager that closes them."""

    observers: list[Callable[[str, RoutedMessage], None]]
    """Called with (name of the publishing node, message) for each message that the network accepts."""
    hearing_observers: list[Callable[[str, RoutedMessage], None]]
    """Called with (name of the receiving node, message) for each copy that a subscription receives."""
    sending_observers: list[Callable[[str, RoutedMessage], None]]
    """Called with (name of the node, message) for each message that a program hands to its node."""
    query_observers: list[Callable[[str, StoreQuery, bytes | None], None]]
    """Called with (name of the node, query, cursor) for each page asked of the store."""

    def __init__(
        self,
        faults: NetworkFaults | None = None,
        *,
        seed: int = 0,
        clock_ns: Callable[[], int] | None = None,
    ) -> None:
        """Make a network without nodes.

        ``faults`` are the faults of the network, by default `NO_FAULTS`. ``clock_ns`` returns Unix nanoseconds;
        the default is the clock of the machine on which the network is made.
        """
        check_type("faults", faults, NetworkFaults | None)
        check_type("seed", seed, int)
        check_type("clock_ns", clock_ns, Callable[[], int] | None, "it returns Unix nanoseconds")
        self.observers = []
        self.hearing_observers = []
        self.sending_observers = []
        self.query_observers = []
        self._dice = FaultDice(faults or NO_FAULTS, seed)
        self._now_ns = environment().time_ns if clock_ns is None else clock_ns
        self._store: Final = MemoryMessageStore(max_messages=_MAX_STORED, max_bytes=_MAX_STORED_BYTES)
        self._partition: Partition | None = None
        self._uplinks: dict[str, float] = {}
        self._nodes: dict[str, LocalNode] = {}
        self._joined = 0
        self._counts: dict[str, int] = asdict(NetworkStatistics())
        self._closed = False
        self._context: Final = contextvars.copy_context()
        """The network's own context: messages under way arrive even if the program that sent them has ended."""

    def __repr__(self) -> str:
        return f"<LocalNetwork of {len(self._nodes)} nodes, {self._dice.faults}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def faults(self) -> NetworkFaults:
        """The faults of the network; can be set at any time."""
        return self._dice.faults

    @faults.setter
    def faults(self, faults: NetworkFaults) -> None:
        check_type("faults", faults, NetworkFaults)
        self._dice.faults = faults

    @property
    def closed(self) -> bool:
        """Whether the network was closed."""
        return self._closed

    @property
    def nodes(self) -> tuple[LocalNode, ...]:
        """The nodes that have not left, in the order in which they joined."""
        self._forget_ended()
        return tuple(self._nodes.values())

    def node(self, name: str | None = None) -> LocalNode:
        """Add a node and return it. ``name`` must be unused; the default is a new name.

        Raises `ConfigurationError` if the name is in use or the network is closed, `EventLoopError` if a node of the
        network works in another thread.
        """
        check_type("name", name, str | None)
        if self._closed:
            raise ConfigurationError("the network is closed; make another LocalNetwork")
        self.check_loops()
        self._forget_ended()
        if name is None:
            name = next(free for number in count(self._joined + 1) if (free := f"node-{number}") not in self._nodes)
        if name in self._nodes:
            raise ConfigurationError(
                f"there is a node {name!r} in the network already; close it or choose another name"
            )
        self._joined += 1
        self._nodes[name] = LocalNode(self, name)
        return self._nodes[name]

    def partition(self, *sides: Collection[str]) -> None:
        """Split the network into sides, given as collections of node names; all other nodes form one more side.

        Messages under way arrive. A new partition replaces an earlier one.
        """
        for side in sides:
            check_type("each side", side, Collection[str], "such as ['alice', 'bob']")
        self._partition = Partition(sides, self._partition)

    def heal(self) -> None:
        """End a partition; the store then shows all messages to all nodes."""
        self._partition = None

    def limit_uplink(self, name: str, per_second: float | None) -> None:
        """Limit the messages per second that a node can send; None removes the limit."""
        check_type("per_second", per_second, float | None)
        if per_second is None:
            self._uplinks.pop(name, None)
        elif per_second > 0:
            self._uplinks[name] = per_second
        else:
            raise ConfigurationError(f"an uplink needs more than 0 messages per second, not {per_second}")

    def statistics(self) -> NetworkStatistics:
        """Return the counts so far."""
        return NetworkStatistics(**self._counts)

    def stored(self) -> Iterator[RoutedMessage]:
        """Yield all messages of the store, oldest first."""
        return iter(self._store)

    def close(self) -> None:
        """Close all nodes. Can be called twice."""
        self._closed = True
        for node in list(self._nodes.values()):
            node.leave()

    # For the nodes.

    def handed_over(self, publisher: LocalNode, message: RoutedMessage) -> None:
        """Pass a message that a program handed to its node to the observers."""
        for observer in self.sending_observers:
            observer(publisher.name, message)

    def publish(self, publisher: LocalNode, message: RoutedMessage) -> tuple[SendResult, int]:
        """Deliver a message to subscribers and the store; return the answer and its delay in milliseconds.

        Raises `ConnectionResetError` as the faults set.
        """
        now_ns = self._now_ns()
        refusal = self._refusal(publisher, message, now_ns // NS_PER_MS)
        if refusal is not None:
            self._counts["refused"] += 1
            return refusal
        self._counts["published"] += 1
        self._counts["published_bytes"] += len(message.encoded)
        for observer in self.observers:
            observer(publisher.name, message)
        self._keep(publisher, message, now_ns)
        for receiver in list(self._nodes.values()):
            echoed = receiver is not publisher or publisher.is_shared(message)
            if echoed and self._connects(publisher, receiver) and receiver.is_subscribed and receiver.wants(message):
                self._spread(receiver, message)
        if not self._dice.is_confirmed():
            self._counts["unanswered"] += 1
            if self._dice.is_raised():
                raise ConnectionResetError(f"the connection with {publisher.service_node} broke before it answered")
            return _unanswered(publisher)
        return SendResult(accepted=True), self.hop_ms()

    def answer(self, asker: LocalNode, query: StoreQuery, cursor: bytes | None) -> StorePage:
        """Return a page of the store, as the partition lets the asker see it; raises `StoreQueryError`."""
        partition = self._partition

        def visible(message_hash: bytes) -> bool:
            return partition is None or partition.shows(message_hash, asker.name)

        self._counts["queries"] += 1
        for observer in self.query_observers:
            observer(asker.name, query, cursor)
        if not self._dice.is_answered():
            self._counts["queries_failed"] += 1
            raise StoreQueryError("the query or its answer was lost; ask again")
        try:
            most = self.faults.store_page
            query = query if most is None else replace(query, page_size=min(query.page_size, most))
            page = self._store.page(query, cursor, visible)
        except StoreQueryError:
            self._counts["queries_failed"] += 1
            raise
        if self._dice.is_false():
            self._counts["queries_belied"] += 1
            newest = StoreQuery(newest_first=True)
            return false_page(
                page,
                query,
                cursor,
                anything=lambda: self._store.page(newest, None, visible).messages,
                dice=self._dice.random,
            )
        return page

    def quota_of(self, node: LocalNode) -> NodeQuota | None:
        """Return the rate limit of a node."""
        faults = self.faults
        if faults.messages_per_epoch is None:
            return None
        remaining = node.allowance.remaining(faults, self._now_ms())
        if remaining is None:
            return None
        return NodeQuota(limit=faults.messages_per_epoch, epoch_ms=faults.epoch_ms, remaining=remaining)

    def is_silent(self) -> bool:
        """Return whether the request in hand is never answered."""
        return self._dice.is_silent()

    def hop_ms(self) -> int:
        """Return the delay of the next hop in milliseconds."""
        return self._dice.delay_ms()

    def uplink_s(self, name: str) -> float:
        """Return how many seconds a message occupies the uplink of a node."""
        per_second = self._uplinks.get(name)
        return 0.0 if per_second is None else 1 / per_second

    def within_ms(self, longest_ms: int) -> int:
        """Return a random number of milliseconds, at most ``longest_ms``."""
        return self._dice.random.randint(0, longest_ms)

    def later(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Call ``action`` after a delay, even if the program that asked for it has ended."""
        if delay_ms == 0:
            action()
        else:
            # Only the event loop holds the handle, so it ends with the loop.
            asyncio.get_running_loop().call_later(delay_ms / MS_PER_S, action, context=self._context)

    def check_loops(self) -> None:
        """Raise `EventLoopError` if the event loop of a node runs in another thread."""
        for node in self._nodes.values():
            if node.runs_elsewhere:
                raise EventLoopError(
                    f"the network has node {node.name!r} in another thread, and works in one thread only: do all in "
                    "one event loop, or give each thread a network of its own, such as connect('local:NAME')"
                )

    def forget(self, node: LocalNode) -> None:
        """Remove a node that left."""
        if self._nodes.get(node.name) is node:
            del self._nodes[node.name]

    def _refusal(self, publisher: LocalNode, message: RoutedMessage, now_ms: int) -> tuple[SendResult, int] | None:
        size, limit = len(message.encoded), self.faults.max_message_bytes
        if publisher.closed:
            return SendResult(accepted=False, detail=f"node {publisher.name!r} is closed"), 0
        if publisher.silent:
            return _unanswered(publisher)
        if size > limit:
            detail = f"the message has {size} bytes, the network takes {limit}"
            return SendResult(accepted=False, permanent=True, too_large=True, detail=detail), 0
        if not publisher.online:
            return SendResult(accepted=False, detail=f"node {publisher.name!r} is offline"), 0
        if not publisher.allowance.take(self.faults, now_ms):
            detail = f"the rate limit of {self.faults.messages_per_epoch} messages is reached"
            return SendResult(accepted=False, detail=detail), 0
        code = self._dice.refusal()
        if code is not None:
            detail = f"{publisher.service_node}: {code.value} {code.name}"
            return SendResult.refused(client_action(code), detail), self.hop_ms()
        return None

    def _keep(self, publisher: LocalNode, message: RoutedMessage, received_ns: int) -> None:
        if message.message.ephemeral:
            return
        if not self._dice.is_stored():
            self._counts["store_missed"] += 1
            return
        store = partial(self._store_now, publisher.name, message, received_ns, self._partition)
        self.later(self.faults.store_lag_ms, store)

    def _store_now(self, publisher: str, message: RoutedMessage, received_ns: int, partition: Partition | None) -> None:
        """Put a message into the store; ``partition`` is the partition at the time of its publication."""
        if self._closed:
            return
        kept = self._store.put(message, received_ns)
        self._counts["stored"] += kept
        # A message stored before the partition stays visible to all nodes.
        if partition is not None and (kept or partition.saw(message.message_hash)):
            partition.note(message.message_hash, publisher)

    def _spread(self, receiver: LocalNode, message: RoutedMessage) -> None:
        copies = self._dice.copies()
        self._counts["duplicated"] += len(copies) - 1
        for delay_ms in copies:
            if delay_ms is None:
                self._counts["lost"] += 1
            else:
                self.later(delay_ms, partial(self._deliver, receiver, message))

    def _deliver(self, receiver: LocalNode, message: RoutedMessage) -> None:
        if not receiver.receive(message):
            self._counts["lost"] += 1
            return
        self._counts["delivered"] += 1
        for observer in self.hearing_observers:
            observer(receiver.name, message)

    def _connects(self, one: LocalNode, other: LocalNode) -> bool:
        return self._partition is None or self._partition.connects(one.name, other.name)

    def _forget_ended(self) -> None:
        for node in list(self._nodes.values()):
            if node.closed:
                node.leave()

    def _now_ms(self) -> int:
        return self._now_ns() // NS_PER_MS


class LocalNode(WatchedNode):
    """A node of a `LocalNetwork`; made by `LocalNetwork.node`."""

    def __init__(self, network: LocalNetwork, name: str) -> None:
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
        """Reason why the node receives nothing, once the node has noticed it."""
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
        """Cut the node off, and set its status to unhealthy. It misses the messages of others until `go_online`."""
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
        """Receive the messages of others on content topics, from now on, until the subscription is closed.

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


def _unanswered(publisher: LocalNode) -> tuple[SendResult, int]:
    """Return the result of a request without an answer, and the time that the client waits, in milliseconds."""
    detail = f"{publisher.service_node}: {NO_ANSWER}"
    return SendResult(accepted=False, detail=detail), int(REQUEST_TIMEOUT_S * MS_PER_S)


_OF_THE_PROCESS: Final[dict[str, LocalNetwork]] = {}


def process_network(name: str = "") -> LocalNetwork:
    """Return the network that ``connect("local:NAME")`` joins; each name is one network per process."""
    network = _OF_THE_PROCESS.get(name)
    if network is None or network.closed:
        network = _OF_THE_PROCESS[name] = LocalNetwork()
    return network
