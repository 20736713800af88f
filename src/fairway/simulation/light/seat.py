"""`LightSeat`: the place of a participant in a `LightNetwork`: a machine, on which its program runs a light client.

The light client is the one that ships. The seat starts it in the participant's program, passes everything through, and
tells the observers of the network what comes by.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Final, Protocol

from fairway.errors import NodeUnavailableError, StoreQueryError
from fairway.waku.libp2p.multiaddr import Multiaddr
from fairway.waku.light.node import LightNode
from fairway.waku.light.options import LightOptions
from fairway.waku.listeners import Criterion, criteria_of
from fairway.waku.node import NodeQuota, NodeStatus, RoutedMessage, SendResult, StorePage, StoreQuery, WakuNode
from fairway.waku.owned_tasks import OwnedTasks
from fairway.waku.status_board import AWAY
from fairway.waku.subscription import Subscription

_CONNECT_S: Final = 10.0
"""As long as `fairway.connect` waits by itself."""


class Surroundings(Protocol):
    """The network of a light client, as its seat uses it."""

    cluster_id: int
    """The cluster of the service nodes."""

    def multiaddrs(self) -> list[Multiaddr]:
        """Return where light clients find the service nodes."""

    def handed_over(self, seat: LightSeat, message: RoutedMessage, /) -> None:
        """Note a message that a program hands to its light client."""

    def began(self, seat: LightSeat, /) -> None:
        """Note that a light client starts."""

    def sent(self, seat: LightSeat, message: RoutedMessage, result: SendResult, began_s: float, /) -> None:
        """Note what a light client says of a send that began at a time of the loop."""

    def page_came(
        self, seat: LightSeat, query: StoreQuery, cursor: bytes | None, page: StorePage | None, began_s: float, /
    ) -> None:
        """Note a page that a light client brings, or None if it says that no store answers."""

    def queried(self, seat: LightSeat, query: StoreQuery, cursor: bytes | None, /) -> None:
        """Note that a program asks for a page."""

    def heard(self, seat: LightSeat, message: RoutedMessage, /) -> None:
        """Note a message that a light client brings to its program."""

    def left(self, seat: LightSeat, /) -> None:
        """End all connections of a light client whose program is gone."""

    def is_linked(self, address: str, /) -> bool:
        """Return whether a machine reaches any service node."""

    def hold(self, address: str, /) -> None:
        """Let all links of a machine be silent."""

    def release(self, address: str, /) -> None:
        """End that."""

    def end_a_service(self, name: str, /, *, silently: bool) -> None:
        """End a service node for a participant."""

    def start_a_service(self, name: str, /) -> None:
        """Start the service node again that was ended for a participant."""

    def forget_subscriptions(self, seat: LightSeat, /) -> None:
        """Let service nodes forget what a light client subscribed to."""

    def push_to(self, seat: LightSeat, message: RoutedMessage, /) -> bool:
        """Have a service node push a message to one client; return whether any is connected with it."""

    async def inject(self, name: str, message: RoutedMessage, /) -> SendResult:
        """Publish a message at a service node, for one that needs no light client."""


class LightSeat(WakuNode):
    """One life of a participant's light client; made by `LightNetwork.node`."""

    def __init__(self, network: Surroundings, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.heard = 0
        """Messages that were put into the newest subscription."""
        self.criteria: frozenset[Criterion] = frozenset()
        """What the program subscribed to last."""
        self.belied = 0
        """Always 0: a light client drops what a store returned under a wrong hash."""
        self._network = network
        self._client: LightNode | None = None
        self._newest: Subscription[RoutedMessage] | None = None
        self._tasks: Final = OwnedTasks()
        self._closed = False

    def __repr__(self) -> str:
        return f"<LightSeat {self.name!r} at {self.address}, {self.status.health.value}>"

    # What a program does.

    async def start(self) -> None:
        """Connect to service nodes as `fairway.connect` does; raises `NodeUnavailableError` if none serves in time."""
        self._network.began(self)
        self._client = await LightNode.start(
            self._network.multiaddrs(), LightOptions(cluster_id=self._network.cluster_id), connect_timeout_s=_CONNECT_S
        )

    @property
    def client(self) -> LightNode:
        """The light client; raises `NodeUnavailableError` before it is started."""
        if self._client is None:
            raise NodeUnavailableError(f"the light client of {self.name} was not started")
        return self._client

    @property
    def status(self) -> NodeStatus:
        """The present status."""
        return AWAY if self._client is None or self._closed else self._client.status

    def status_changes(self) -> AsyncIterator[NodeStatus]:
        """Yield the present status, then every change."""
        return self.client.status_changes()

    @property
    def quota(self) -> NodeQuota | None:
        """None: a light client knows of no rate limit."""
        return None

    async def send(self, message: RoutedMessage) -> SendResult:
        """Send a message by light push."""
        if self._client is None:
            return await self._network.inject(self.name, message)
        self._network.handed_over(self, message)
        began_s = asyncio.get_running_loop().time()
        result = await self._client.send(message)
        self._network.sent(self, message, result, began_s)
        return result

    async def subscribe(self, pubsub_topic: str, content_topics: Collection[str]) -> Subscription[RoutedMessage]:
        """Return the messages of others on content topics."""
        # Meanwhile the program has a new subscription, in which nothing is.
        self._newest, self.heard = None, 0
        theirs = await self.client.subscribe(pubsub_topic, content_topics)
        ours: Subscription[RoutedMessage] = Subscription(on_close=theirs.close)
        self._newest, self.heard = ours, 0
        self.criteria = criteria_of(pubsub_topic, content_topics)
        self._tasks.spawn(self._pass_on(theirs, ours))
        return ours

    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the messages that service nodes keep."""
        self._network.queried(self, query, cursor)
        began_s = asyncio.get_running_loop().time()
        try:
            page = await self.client.query(query, cursor)
        except StoreQueryError:
            self._network.page_came(self, query, cursor, None, began_s)
            raise
        self._network.page_came(self, query, cursor, page, began_s)
        return page

    async def close(self) -> None:
        """Leave the network in order."""
        if self._client is not None and not self._closed:
            self._closed = True
            await self._client.close()
            await self._tasks.close()

    async def _pass_on(self, theirs: Subscription[RoutedMessage], ours: Subscription[RoutedMessage]) -> None:
        async for message in theirs:
            if ours is self._newest:
                self.heard += 1
            ours.put(message)
            self._network.heard(self, message)
        ours.close()

    # What happens to it.

    @property
    def online(self) -> bool:
        """Whether it can send and receive, as it sees it."""
        return self.status.connected and self._network.is_linked(self.address)

    @property
    def is_started(self) -> bool:
        """Whether the light client runs."""
        return self._client is not None and not self._closed

    @property
    def waiting(self) -> int:
        """Unread messages in the newest subscription."""
        return 0 if self._newest is None else len(self._newest)

    @property
    def peer_id(self) -> str | None:
        """The peer id of the light client, once it was started."""
        return None if self._client is None else str(self._client.host.peer_id)

    def leave(self) -> None:
        """End with its program at once: the service nodes learn that its connections have ended."""
        self._closed = True
        self._network.left(self)

    def go_offline(self) -> None:
        """Let all its links be silent."""
        self._network.hold(self.address)

    def go_online(self) -> None:
        """End that."""
        self._network.release(self.address)

    def die(self, *, silently: bool = False) -> None:
        """End a service node, until `come_back`."""
        self._network.end_a_service(self.name, silently=silently)

    def come_back(self) -> None:
        """Start the service node again that `die` ended."""
        self._network.start_a_service(self.name)

    def go_deaf(self) -> None:
        """Let service nodes forget what the light client subscribed to."""
        self._network.forget_subscriptions(self)

    def hear(self, message: RoutedMessage) -> bool:
        """Have a service node push a message to this client alone; return whether any does."""
        return self._network.push_to(self, message)
