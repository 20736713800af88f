"""`RestNode`: a `WakuNode` over the REST API of nwaku or of ``fairway node``.

It sends by light push or relay, and receives by an event stream or by polling at least once a second. Messages missed
in between (a full cache, another program that emptied it, a node that was offline) are read from the store. Failures of
the node raise only in `RestNode.start` and `RestNode.query`. Memory is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Collection
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any, Final, Self

import msgspec

from fairway.errors import DecodeError, NodeUnavailableError, StoreQueryError
from fairway.json_reading import read_json
from fairway.nodes.listeners import Criterion, NodeSubscriptions, criteria_of
from fairway.nodes.node import NodeHealth, NodeStatus, RoutedMessage, SendResult, StorePage, StoreQuery
from fairway.nodes.proving import prepare_soon, with_proof
from fairway.nodes.rest.address import RestAddress
from fairway.nodes.rest.feed import FIRST_PAUSE_S, TopicFeed
from fairway.nodes.rest.http_client import HttpClient, HttpReply
from fairway.nodes.rest.options import RestNodeOptions
from fairway.nodes.rest.sender import Sender
from fairway.nodes.rest.store_client import RestStoreReader
from fairway.nodes.status_board import AWAY, WatchedNode
from fairway.owned_tasks import OwnedTasks
from fairway.protocol.ratelimit import RlnProofProvider
from fairway.protocol.recent_hashes import RecentHashes
from fairway.subscription import Subscription

HEALTH_INTERVAL_S: Final = 5.0
"""Interval between queries of the node's health."""
_SENDING: Final = ("Relay", "Lightpush", "Lightpush Client")
_STORING: Final = ("Store", "Store Client")
_READY: Final = "ready"


class _Report(msgspec.Struct, rename="camel"):
    node_health: str
    protocols_health: list[dict[str, Any]] = []


def status_of(status: int, body: bytes) -> NodeStatus:
    """Return the status of a node that answered."""
    try:
        report = read_json(body, _Report)
    except DecodeError:
        # No report: only the status code of the answer is known.
        known = 200 <= status < 300
        missing = status in {400, 404, 405, 501}
        health = NodeHealth.MINIMALLY_HEALTHY if known or missing else NodeHealth.UNHEALTHY
        return NodeStatus(health=health, store=True)
    states = {name: str(state).lower() for protocol in report.protocols_health for name, state in protocol.items()}
    store = not states or any(states.get(name) == _READY for name in _STORING)
    if states and not any(states.get(name) == _READY for name in _SENDING):
        return NodeStatus(health=NodeHealth.UNHEALTHY, store=store)
    ready = report.node_health.lower() == _READY
    health = NodeHealth.SUFFICIENTLY_HEALTHY if ready else NodeHealth.MINIMALLY_HEALTHY
    return NodeStatus(health=health, store=store)


_LOG: Final = logging.getLogger(__name__)
_NO_ENTRY: Final = frozenset({401, 403})


class RestNode(WatchedNode):
    """A client of one node; made by `RestNode.start`.

    It is unhealthy while the node does not answer, has no peers, or misses a subscription.
    """

    def __init__(self, address: RestAddress, options: RestNodeOptions, rln: RlnProofProvider | None = None) -> None:
        super().__init__()
        self._rln: Final = rln
        self.address: Final = address
        self._options: Final = options
        self._http: Final = HttpClient(
            address,
            timeout_s=options.request_timeout_s,
            tls_ca_file=options.tls_ca_file,
        )
        self._sender: Final = Sender(self._http)
        self._store: Final = RestStoreReader(self._http, store_known=self._store_known)
        self._has_store = True
        self._seen: Final = RecentHashes()
        self._feeds: dict[Criterion, TopicFeed] = {}
        self._listeners: Final = NodeSubscriptions(gone=self._unsubscribed)
        self._reached: NodeStatus | None = None
        """The last status that the node reported; None while it does not answer."""
        self._fault = ""
        """Reason why the node did not answer."""
        self._answered: Final = asyncio.Event()
        self._look: Final = asyncio.Event()
        self._tasks: Final = OwnedTasks()
        self._ending: Final = OwnedTasks()
        self._closed = False

    @classmethod
    async def start(
        cls,
        address: str,
        options: RestNodeOptions | None = None,
        *,
        connect_timeout_s: float | None = 10.0,
        rln: RlnProofProvider | None = None,
    ) -> Self:
        """Connect to the node at an address like ``http://127.0.0.1:8645``.

        Returns when the node answers; with ``connect_timeout_s`` None at once. ``?peerAddr=MULTIADDR`` after the
        address makes the node query another store node. ``rln`` proves the sent messages. Raises `ConfigurationError`
        for an invalid address, and `NodeUnavailableError` if the node does not answer in time. It raises
        `NodeUnavailableError` at once if the node requires other credentials, or if its certificate is not trusted.
        """
        chosen = options or RestNodeOptions()
        node = cls(RestAddress.parse(address, token=chosen.token), chosen, rln)
        prepare_soon(rln)
        node._tasks.spawn(node._watch())
        try:
            if connect_timeout_s is not None:
                await node._until_reached(connect_timeout_s)
        except BaseException:
            await node.close()
            raise
        return node

    def __repr__(self) -> str:
        """Show the node, without credentials."""
        return f"<RestNode {self.address.name}>"

    @property
    def feeds(self) -> tuple[TopicFeed, ...]:
        """The feeds of the subscribed content topics."""
        return tuple(self._feeds.values())

    @property
    def rln(self) -> RlnProofProvider | None:
        """The membership that proves the sent messages."""
        return self._rln

    async def send(self, message: RoutedMessage) -> SendResult:
        """Send a message by light push, or by relay, with a proof if the node has a membership."""
        self._binding.check()
        if self._closed:
            return SendResult(accepted=False, detail="the node is closed")
        proven = await with_proof(self._rln, message)
        if isinstance(proven, SendResult):
            return proven
        return await self._sender.send(proven)

    async def subscribe(self, pubsub_topic: str, content_topics: Collection[str]) -> Subscription[RoutedMessage]:
        """Return the messages of others on content topics.

        Waits until the node has the subscription, at most until the timeout; then the node gets it later. Does not wait
        for a node that does not answer now. Raises `NodeUnavailableError` if this client is closed,
        `ConfigurationError` without a content topic.
        """
        self._binding.check()
        if self._closed:
            raise NodeUnavailableError("the node is closed; connect again")
        criteria = criteria_of(pubsub_topic, content_topics)
        subscription = self._listeners.add(criteria)
        for criterion in criteria - self._feeds.keys():
            feed = self._feeds[criterion] = TopicFeed(
                self._http,
                criterion,
                self._options,
                seen=self._seen,
                deliver=self._receive,
                changed=self._feed_changed,
                store=self._store,
            )
            feed.start()
        self._show()
        if self._reached is None and self._fault:
            return subscription
        timeout_s = self._options.request_timeout_s
        try:
            await asyncio.gather(*(self._feeds[criterion].ready(timeout_s) for criterion in criteria))
        except BaseException:
            subscription.close()
            raise
        return subscription

    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the node's store, or of the store that it queries; raises `StoreQueryError`."""
        self._binding.check()
        if self._closed:
            raise StoreQueryError("the node is closed; connect again")
        return await self._store.page(query, cursor)

    async def close(self) -> None:
        """Disconnect from the node; subscriptions end. Can be called twice."""
        if self._closed or self._binding.has_ended:
            self._closed = True
            return
        self._binding.check()
        self._closed = True
        self._board.close()
        self._listeners.close()
        async with AsyncExitStack() as exits:  # closes all even if one fails or the caller is cancelled
            for close in (self._http.close, self._ending.wait, *(feed.close for feed in self._feeds.values())):
                exits.push_async_callback(close)
            exits.push_async_callback(self._tasks.close)

    async def _until_reached(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._answered.wait()
        except TimeoutError:
            raise NodeUnavailableError(
                f"{self.address.name} does not answer within {timeout_s:g} s; is the address right, and is the node's "
                f"REST API switched on?{f' ({self._fault})' if self._fault else ''}"
            ) from None
        if self._reached is None:
            raise NodeUnavailableError(self._fault)

    async def _watch(self) -> None:
        """Query the node's health: at intervals, at once after a failure, at growing intervals while it is offline."""
        pause_s = FIRST_PAUSE_S
        while True:
            self._look.clear()
            try:
                reply = await self._http.request("GET", "/health")
            except NodeUnavailableError as error:
                _LOG.debug("%s", error)
                self._reached, self._fault = None, str(error)
                if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                    self._answered.set()  # with an answer that waiting does not change
                wait_s, pause_s = pause_s, min(2 * pause_s, HEALTH_INTERVAL_S)
            else:
                self._answered.set()
                if reply.status in _NO_ENTRY:
                    self._reached, self._fault = None, _refused(self.address.name, reply)
                    self._show()
                    await self._pause(HEALTH_INTERVAL_S)
                    continue
                if self._reached is None:
                    self._has_store = True
                    self._sender.reset()
                    for feed in self._feeds.values():
                        feed.wake()
                self._reached = status_of(reply.status, reply.body)
                wait_s, pause_s = HEALTH_INTERVAL_S, FIRST_PAUSE_S
            self._show()
            await self._pause(wait_s)

    async def _pause(self, wait_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._look.wait()

    def _receive(self, message: RoutedMessage) -> None:
        if self._seen.add(message.message_hash):
            self._listeners.deliver(message)

    def _feed_changed(self) -> None:
        """Note a subscription that began or failed; after a failure, query the node's health at once."""
        self._look.set()
        self._show()

    def _store_known(self, has_store: bool) -> None:
        if has_store is not self._has_store:
            self._has_store = has_store
            self._show()

    def _unsubscribed(self, criteria: frozenset[Criterion]) -> None:
        if self._closed:
            return
        for criterion in criteria - self._listeners.wanted():
            # The node keeps its own subscription: other programs may use the same one.
            self._ending.spawn(self._feeds.pop(criterion).close())
        self._show()

    def _show(self) -> None:
        status = self._reached or replace(AWAY, detail=self._fault)
        if not self._has_store:
            status = replace(status, store=False)
        if broken := [feed.criterion[1] for feed in self._feeds.values() if feed.broken]:
            detail = status.detail or f"{self.address.name}: messages of {broken[0]} do not come in"
            status = replace(status, health=NodeHealth.UNHEALTHY, detail=detail)
        self._board.show(status)


def _refused(name: str, reply: HttpReply) -> str:
    return (
        f"{name} refuses requests without credentials ({reply.status} {reply.text}): if it wants a token, give "
        "RestNodeOptions(token=...), or the file that holds it in the address: ?tokenFile=PATH"
    )
