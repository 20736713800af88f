"""`LocalNetwork`: a Waku network inside one process, with faults on demand.

`connect("local:")` joins it, and programs that use channels are tested with it. It has relay, store and health behind
the `WakuNode` interface, and seeded random faults: loss, delay, duplication, reordering, partitions, refusals, slow
uplinks, size and rate limits, and a store that is late, lacks messages or lies.

The network draws once per message and receiver, in the order in which the receivers joined; a fault that is off draws
nothing. So the same seed and the same order of sends give the same run. A network belongs to one thread. Its nodes may
belong to event loops that run one after the other; nodes of an ended loop are removed. A message under way arrives even
if the program that sent it has ended.
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

from fairway.environment import time_ns
from fairway.errors import ConfigurationError, EventLoopError, StorageError, StoreQueryError
from fairway.nodes.archive_store import ArchiveStore
from fairway.nodes.local.faults import NO_FAULTS, FaultDice, NetworkFaults
from fairway.nodes.local.lies import false_page
from fairway.nodes.local.node import NO_ANSWER, REQUEST_TIMEOUT_S, LocalNode
from fairway.nodes.local.partition import Partition
from fairway.nodes.message_store import MemoryMessageStore, MessageStore
from fairway.nodes.node import NodeQuota, RoutedMessage, SendResult, StorePage, StoreQuery
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.type_checks import check_type
from fairway.units import MS_PER_S, NS_PER_MS
from fairway.wire.lightpush import client_action

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
    """A network of nodes (`LocalNode`). A context manager that closes them and the store."""

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
        archive: NwakuArchive | None = None,
        max_stored: int = _MAX_STORED,
        max_stored_bytes: int = _MAX_STORED_BYTES,
        clock_ns: Callable[[], int] = time_ns,
    ) -> None:
        """Make a network without nodes.

        ``faults`` are the faults of the network, by default `NO_FAULTS`. ``archive`` keeps published messages, for
        instance ``NwakuArchive("messages.sqlite")`` of `fairway.storage`, and is closed with the network; without it
        memory keeps the newest ``max_stored`` messages of at most ``max_stored_bytes``. ``clock_ns``
        returns Unix nanoseconds.
        """
        check_type("faults", faults, NetworkFaults | None)
        check_type("seed", seed, int)
        check_type("archive", archive, NwakuArchive | None, "NwakuArchive(path) is one")
        check_type("clock_ns", clock_ns, Callable[[], int], "it returns Unix nanoseconds")
        self.observers = []
        self.hearing_observers = []
        self.sending_observers = []
        self.query_observers = []
        self._dice = FaultDice(faults or NO_FAULTS, seed)
        self._clock_ns = clock_ns
        memory = MemoryMessageStore(max_messages=max_stored, max_bytes=max_stored_bytes)
        self._store: MessageStore = memory if archive is None else ArchiveStore(archive)
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
        """Close all nodes and the store. Can be called twice."""
        self._closed = True
        for node in list(self._nodes.values()):
            node.leave()
        self._store.close()

    # The interface for nodes (`fairway.nodes.local.node.Medium`).

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
        partition = self._partition
        self.later(self.faults.store_lag_ms, lambda: self._store_now(publisher.name, message, received_ns, partition))

    def _store_now(self, publisher: str, message: RoutedMessage, received_ns: int, partition: Partition | None) -> None:
        """Put a message into the store; ``partition`` is the partition at the time of its publication."""
        if self._closed:
            return
        try:
            kept = self._store.put(message, received_ns)
        except StorageError:
            self._counts["store_missed"] += 1
            return
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

    def _now_ns(self) -> int:
        """Return the time on the network's own machine, not the caller's."""
        return self._context.copy().run(self._clock_ns)


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
