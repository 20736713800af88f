"""A Waku network inside one process, as bad as it is told to be.

It is what `connect("local:")` joins, and the public test double for programs that use channels: relay, store and
health behind the `WakuNode` interface, with loss, delay, duplication, reordering, partitions, refusals, slow uplinks,
size and rate limits, and a store with gaps, behind, or false, decided by seeded dice.

Invariants: every publication is thrown for once per receiver, in the order in which the receivers joined, so that one
seed gives one run as long as the program's own sends come in one order; a fault that is off draws nothing. A network
belongs to one thread; its nodes may live in event loops one after the other, and those of a loop that has ended are
forgotten. What is on its way belongs to the network: it arrives also when the program that sent it has ended.
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
from fairway.errors import ConfigurationError, StorageError, StoreQueryError
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.units import MS_PER_S, NS_PER_MS
from fairway.waku.archive_store import ArchiveStore
from fairway.waku.local.faults import NO_FAULTS, FaultDice, NetworkFaults
from fairway.waku.local.lies import false_page
from fairway.waku.local.node import NO_ANSWER, REQUEST_TIMEOUT_S, LocalNode
from fairway.waku.local.partition import Partition
from fairway.waku.message_store import MemoryStore, MessageStore
from fairway.waku.node import NodeQuota, RoutedMessage, SendResult, StorePage, StoreQuery
from fairway.wire.lightpush import StatusCode

_MAX_STORED: Final = 100_000
_MAX_STORED_BYTES: Final = 268_435_456


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkStatistics:
    """What happened in a network so far."""

    published: int = 0
    """Messages that the network took."""
    published_bytes: int = 0
    """Their encoded size."""
    refused: int = 0
    """Messages that it did not take; their senders were told."""
    unanswered: int = 0
    """Messages that it took, while their senders waited for the answer in vain."""
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
    """Pages that were asked for."""
    queries_failed: int = 0
    """Pages that did not come."""
    queries_belied: int = 0
    """Pages that were false."""


class LocalNetwork:
    """A network of nodes (`LocalNode`). A context manager that closes them and the store."""

    def __init__(
        self,
        faults: NetworkFaults | None = None,
        *,
        seed: int = 0,
        archive: NwakuArchive | None = None,
        max_stored: int = _MAX_STORED,
        max_stored_bytes: int = _MAX_STORED_BYTES,
        echo: bool = False,
        clock_ns: Callable[[], int] = time_ns,
    ) -> None:
        """Make a network without nodes.

        ``faults`` is how bad it is, by default not at all (`NO_FAULTS`). ``archive`` keeps what is published, for
        instance ``NwakuArchive("messages.sqlite")`` of `fairway.storage`, and is closed with the network; without one
        the newest ``max_stored`` messages of ``max_stored_bytes`` together are kept in memory. With ``echo`` nodes
        hear their own messages too, as some light clients do. ``clock_ns`` gives the nanoseconds since the Unix epoch.
        """
        self.echo = echo
        self.observers: list[Callable[[str, RoutedMessage], None]] = []
        """Called with (name of the publishing node, message) for everything that the network took."""
        self.loss_observers: list[Callable[[str, RoutedMessage], None]] = []
        """Called with (name of the receiving node, message) when no copy of a message is on its way to a node that
        subscribed to it, for the network lost it."""
        self.sending_observers: list[Callable[[str, RoutedMessage], None]] = []
        """Called with (name of the node, message) for everything that a program hands to its node, taken or not."""
        self.refusal_observers: list[Callable[[str, RoutedMessage, int], None]] = []
        """Called with (name of the node, message, milliseconds until its program knows) for what is not taken."""
        self.query_observers: list[Callable[[str, StoreQuery, bytes | None], None]] = []
        """Called with (name of the asking node, question, cursor) for every page that the store is asked for."""
        self._dice = FaultDice(faults or NO_FAULTS, seed)
        self._clock_ns = clock_ns
        self._store: MessageStore = (
            MemoryStore(max_messages=max_stored, max_bytes=max_stored_bytes)
            if archive is None
            else ArchiveStore(archive)
        )
        self._partition: Partition | None = None
        self._uplinks: dict[str, float] = {}
        self._nodes: dict[str, LocalNode] = {}
        self._joined = 0
        self._counts: dict[str, int] = asdict(NetworkStatistics())
        self._closed = False
        self._context: Final = contextvars.copy_context()
        """Where the network lives: a program that sends may end at any time, and what it sent arrives all the same."""

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
        """How bad the network is; may be set at any time."""
        return self._dice.faults

    @faults.setter
    def faults(self, faults: NetworkFaults) -> None:
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
        """Add a node and return it; ``name`` must not be taken, by default it is a new one."""
        if self._closed:
            raise ConfigurationError("the network is closed; make another LocalNetwork")
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
        """Cut the network into sides, given as sets of names; nodes that are not named form one more side.

        Messages that are already on their way arrive. A network that was cut before is cut anew: who reaches each other
        now was perhaps apart before, and the other way round.
        """
        self._partition = Partition(sides, self._partition)

    def heal(self) -> None:
        """Join the sides of a partition; the store then shows everything to everybody."""
        self._partition = None

    def limit_uplink(self, name: str, per_second: float | None) -> None:
        """Let nodes of this name get out no more than so many messages per second; with None as many as they like."""
        if per_second is None:
            self._uplinks.pop(name, None)
        elif per_second > 0:
            self._uplinks[name] = per_second
        else:
            raise ConfigurationError(f"an uplink needs more than 0 messages per second, not {per_second}")

    def statistics(self) -> NetworkStatistics:
        """Return what happened so far."""
        return NetworkStatistics(**self._counts)

    def stored(self) -> Iterator[RoutedMessage]:
        """Yield everything that the store keeps, oldest first."""
        cursor: bytes | None = None
        while True:
            page = self._store.page(StoreQuery(), cursor, lambda _: True)
            yield from page.messages
            cursor = page.cursor
            if cursor is None:
                return

    def close(self) -> None:
        """Close all nodes and the store. May be called twice."""
        self._closed = True
        for node in list(self._nodes.values()):
            node.leave()
        self._store.close()

    # What nodes ask of their network.

    def handed_over(self, publisher: LocalNode, message: RoutedMessage) -> None:
        """Tell observers of what a program handed to its node."""
        for observer in self.sending_observers:
            observer(publisher.name, message)

    def publish(
        self, publisher: LocalNode, message: RoutedMessage, *, is_answered: bool = True
    ) -> tuple[SendResult, int]:
        """Spread a message, and return the answer, if any is given, and how many milliseconds that takes."""
        refusal = self._refusal(publisher, message)
        if refusal is not None:
            self._counts["refused"] += 1
            for told in self.refusal_observers if is_answered else ():
                told(publisher.name, message, refusal[1])
            return refusal
        self._counts["published"] += 1
        self._counts["published_bytes"] += len(message.encoded)
        for observer in self.observers:
            observer(publisher.name, message)
        self._keep(publisher, message)
        for receiver in list(self._nodes.values()):
            echoed = receiver is not publisher or self.echo
            if echoed and self._connects(publisher, receiver) and receiver.hears and receiver.wants(message):
                self._spread(receiver, message)
        if not self._dice.is_confirmed():
            self._counts["unanswered"] += 1
            return _unanswered(publisher)
        return SendResult(accepted=True), self.hop_ms()

    def answer(self, asker: LocalNode, query: StoreQuery, cursor: bytes | None) -> StorePage:
        """Return a page of what the store keeps, as far as the asker may see it; raises `StoreQueryError`."""
        partition = self._partition

        def visible(message_hash: bytes) -> bool:
            return partition is None or partition.shows(message_hash, asker.name)

        self._counts["queries"] += 1
        for told in self.query_observers:
            told(asker.name, query, cursor)
        if not self._dice.is_answered():
            self._counts["queries_failed"] += 1
            raise StoreQueryError("the query or its answer was lost; ask again")
        if self.faults.store_page is not None:
            query = replace(query, page_size=min(query.page_size, self.faults.store_page))
        try:
            page = self._store.page(query, cursor, visible)
        except StoreQueryError:
            self._counts["queries_failed"] += 1
            raise
        if not self._dice.is_false():
            return page
        self._counts["queries_belied"] += 1
        page = false_page(
            page,
            query,
            cursor,
            anything=lambda: self._store.page(StoreQuery(newest_first=True), None, visible).messages,
            dice=self._dice.random,
        )
        asker.belied += sum(not message.is_genuine for message in page.messages)
        return page

    def quota_of(self, node: LocalNode) -> NodeQuota | None:
        """Return the rate limit of a node."""
        remaining = node.allowance.remaining(self.faults, self._now_ms())
        if remaining is None or self.faults.messages_per_epoch is None:
            return None
        return NodeQuota(limit=self.faults.messages_per_epoch, epoch_ms=self.faults.epoch_ms, remaining=remaining)

    def is_silent(self) -> bool:
        """Return whether a node never answers what it is asked now."""
        return self._dice.is_silent()

    def hop_ms(self) -> int:
        """Return how long the next hop takes."""
        return self._dice.delay_ms()

    def uplink_s(self, name: str) -> float:
        """Return how long a message keeps the uplink of a node busy."""
        per_second = self._uplinks.get(name)
        return 0.0 if per_second is None else 1 / per_second

    def within_ms(self, longest_ms: int) -> int:
        """Return a random time, at most so long."""
        return self._dice.random.randint(0, longest_ms)

    def later(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Do something after a while, whatever becomes of the program that asked for it."""
        if delay_ms == 0:
            action()
        else:
            # The handle is the loop's alone: with the loop it is gone.
            asyncio.get_running_loop().call_later(delay_ms / MS_PER_S, action, context=self._context)

    def forget(self, node: LocalNode) -> None:
        """Drop a node that left."""
        if self._nodes.get(node.name) is node:
            del self._nodes[node.name]

    def _refusal(self, publisher: LocalNode, message: RoutedMessage) -> tuple[SendResult, int] | None:
        size, limit = len(message.encoded), self.faults.max_message_bytes
        if publisher.closed:
            return SendResult(accepted=False, detail=f"node {publisher.name!r} is closed"), 0
        if publisher.silent:
            return _unanswered(publisher)
        if size > limit:
            detail = f"the message has {size} bytes, the network takes {limit}"
            return SendResult(accepted=False, permanent=True, detail=detail), 0
        if not publisher.online:
            return SendResult(accepted=False, detail=f"node {publisher.name!r} is offline"), 0
        if not publisher.allowance.take(self.faults, self._now_ms()):
            detail = f"the rate limit of {self.faults.messages_per_epoch} messages is reached"
            return SendResult(accepted=False, detail=detail), 0
        in_time = publisher.pace.take(self.faults, self._now_ms())
        if not self._dice.is_taken():
            return SendResult(accepted=False, detail="no other node took the message"), 0
        code = self._dice.refusal() if in_time else StatusCode.TOO_MANY_REQUESTS
        if code is not None:
            detail = f"{publisher.service_node}: {code.value} {code.name}"
            return SendResult.refused(code, detail), self.hop_ms()
        return None

    def _keep(self, publisher: LocalNode, message: RoutedMessage) -> None:
        if message.message.ephemeral:
            return
        if not self._dice.is_stored():
            self._counts["store_missed"] += 1
            return
        partition, received_ns = self._partition, self._now_ns()
        self.later(self.faults.store_lag_ms, lambda: self._store_now(publisher.name, message, received_ns, partition))

    def _store_now(self, publisher: str, message: RoutedMessage, received_ns: int, partition: Partition | None) -> None:
        """Let a message into the store; ``partition`` is how the network was cut when it was published."""
        if self._closed:
            return
        try:
            kept = self._store.put(message, received_ns)
        except StorageError:
            self._counts["store_missed"] += 1
            return
        self._counts["stored"] += kept
        # A message that was in the store before the network fell apart stays visible to all.
        if partition is not None and (kept or partition.saw(message.message_hash)):
            partition.note(message.message_hash, publisher)

    def _spread(self, receiver: LocalNode, message: RoutedMessage) -> None:
        copies = self._dice.copies()
        self._counts["duplicated"] += len(copies) - 1
        if all(delay_ms is None for delay_ms in copies):
            for observer in self.loss_observers:
                observer(receiver.name, message)
        for delay_ms in copies:
            if delay_ms is None:
                self._counts["lost"] += 1
            else:
                self.later(delay_ms, partial(self._deliver, receiver, message))

    def _deliver(self, receiver: LocalNode, message: RoutedMessage) -> None:
        self._counts["delivered" if receiver.hear(message) else "lost"] += 1

    def _connects(self, one: LocalNode, other: LocalNode) -> bool:
        return self._partition is None or self._partition.connects(one.name, other.name)

    def _forget_ended(self) -> None:
        for node in list(self._nodes.values()):
            if node.closed:
                node.leave()

    def _now_ms(self) -> int:
        return self._now_ns() // NS_PER_MS

    def _now_ns(self) -> int:
        """Return the time on the network's own machine, whoever asks."""
        return self._context.copy().run(self._clock_ns)


def _unanswered(publisher: LocalNode) -> tuple[SendResult, int]:
    """Return what a client says that waited for an answer, and how long it waited."""
    detail = f"{publisher.service_node}: {NO_ANSWER}"
    return SendResult(accepted=False, detail=detail), int(REQUEST_TIMEOUT_S * MS_PER_S)


_OF_THE_PROCESS: Final[dict[str, LocalNetwork]] = {}


def process_network(name: str = "") -> LocalNetwork:
    """Return the network that ``connect("local:NAME")`` joins; within a process a name means one network.

    A program that wants an archive or a network of its own makes a `LocalNetwork`; faults of these can be set as well.
    """
    network = _OF_THE_PROCESS.get(name)
    if network is None or network.closed:
        network = _OF_THE_PROCESS[name] = LocalNetwork()
    return network
