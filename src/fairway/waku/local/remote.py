"""`RemoteNode`: a node of a local network that another process serves.

If the connection breaks, the node reconnects by itself and restores its subscriptions. While it is disconnected its
status is unhealthy, sends are not accepted and queries raise; only the store has the messages of that time. No request
waits longer than its timeout.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import count
from typing import Final, Self

from fairway.errors import DecodeError, MessageTooLargeError, NodeUnavailableError, StoreQueryError
from fairway.waku.listeners import criteria_of
from fairway.waku.local.frames import (
    FROM_SERVER,
    MAX_FRAME_BYTES,
    VERSION,
    Answer,
    Failed,
    Filter,
    FromClient,
    FromServer,
    Hello,
    Page,
    PublishFrame,
    Pushed,
    Query,
    SentFrame,
    StatusFrame,
    Subscribe,
    Unsubscribe,
    Welcome,
    pack,
    read_frame,
)
from fairway.waku.node import NodeQuota, RoutedMessage, SendResult, StorePage, StoreQuery
from fairway.waku.owned_tasks import OwnedTasks
from fairway.waku.status_board import AWAY, WatchedNode
from fairway.waku.subscription import Subscription

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_HANDSHAKE_TIMEOUT_S: Final = 5.0
_READ_AHEAD_BYTES: Final = 262_144
_TOKEN_BYTES: Final = 16
_NOBODY: Final = 0
"""Number of a request whose answer is not awaited."""


class RemoteNode(WatchedNode):
    """A node at a `NetworkServer`; made by `RemoteNode.connect`. Unhealthy while there is no connection."""

    def __init__(self, host: str, port: int, *, name: str | None = None, request_timeout_s: float = 10.0) -> None:
        super().__init__()
        self.name = name
        """Name of the node in its network; None before the first connection if none was given."""
        self.connections = 0
        """Number of connections so far."""
        self.undecodable = 0
        """Pushes that were not WakuMessages."""
        self._wanted_name = name
        self._host = host
        self._port = port
        self._request_timeout_s = request_timeout_s
        self._token = os.urandom(_TOKEN_BYTES)
        self._quota: NodeQuota | None = None
        self._filters: dict[int, tuple[Filter, Subscription[RoutedMessage]]] = {}
        self._pending: dict[int, asyncio.Future[Answer | None]] = {}
        self._numbers = count(1)
        self._writer: asyncio.StreamWriter | None = None
        self._connected = asyncio.Event()
        self._why_away = "not connected yet"
        self._tasks: Final = OwnedTasks()
        self._closed = False

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        name: str | None = None,
        connect_timeout_s: float | None = 10.0,
        request_timeout_s: float = 10.0,
    ) -> Self:
        """Return a node of the network that a server offers.

        Raises `NodeUnavailableError` if no server answers within ``connect_timeout_s``. With None it returns at once,
        and the node is unhealthy until it is connected. ``name`` is the name of the node in the network; a name that is
        in use gets a number.
        """
        node = cls(host, port, name=name, request_timeout_s=request_timeout_s)
        node._tasks.spawn(node._run())
        if connect_timeout_s is None:
            return node
        try:
            async with asyncio.timeout(connect_timeout_s):
                await node._connected.wait()
        except TimeoutError as error:
            why = node._why_away
            await node.close()
            raise NodeUnavailableError(
                f"no local network answers at {host} port {port} within {connect_timeout_s:g} s ({why}); "
                f"start one with 'fairway network --port {port}'"
            ) from error
        except BaseException:
            await node.close()
            raise
        return node

    def __repr__(self) -> str:
        return f"<RemoteNode {self.name!r} at {self._host} port {self._port}, {self.status.health.value}>"

    @property
    def quota(self) -> NodeQuota | None:
        """The rate limit among the network's faults, as last received."""
        return self._quota

    async def send(self, message: RoutedMessage) -> SendResult:
        """Send a message; not accepted without a connection or an answer."""
        try:
            answer = await self._ask(
                lambda number: PublishFrame(request=number, pubsub_topic=message.pubsub_topic, encoded=message.encoded)
            )
        except NodeUnavailableError as error:
            return SendResult(accepted=False, detail=str(error))
        except MessageTooLargeError as error:
            return SendResult(accepted=False, permanent=True, detail=str(error))
        if not isinstance(answer, SentFrame):
            return SendResult(accepted=False, detail=f"the server answered with {type(answer).__name__}")
        self._quota = answer.quota
        return answer.result

    async def subscribe(self, pubsub_topic: str, content_topics: Collection[str]) -> Subscription[RoutedMessage]:
        """Return the messages of others on content topics, also after a reconnection.

        Without a connection this returns at once. Raises `NodeUnavailableError` if the node is closed,
        `ConfigurationError` without a content topic.
        """
        if self._closed:
            raise NodeUnavailableError("the node is closed; connect another one")
        number = next(self._numbers)
        topics = tuple(sorted(topic for _, topic in criteria_of(pubsub_topic, content_topics)))
        wanted = Filter(number, pubsub_topic, topics)
        subscription: Subscription[RoutedMessage] = Subscription(
            on_close=lambda: self._unsubscribe(number), size_of=lambda message: len(message.encoded)
        )
        self._filters[number] = (wanted, subscription)
        try:
            # Without a connection, or if it breaks now, the next `Hello` has this filter.
            with suppress(NodeUnavailableError):
                await self._ask(lambda request: Subscribe(request=request, filter=wanted))
        except BaseException:
            subscription.close()
            raise
        return subscription

    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the network's store; raises `StoreQueryError` if it does not answer."""
        try:
            answer = await self._ask(lambda number: Query(request=number, query=query, cursor=cursor))
        except (NodeUnavailableError, MessageTooLargeError, OverflowError) as error:
            raise StoreQueryError(f"the store cannot be asked: {error}") from error
        if not isinstance(answer, Page):
            raise StoreQueryError(answer.detail if isinstance(answer, Failed) else "the answer is no page")
        try:
            return StorePage(messages=tuple(each.unpack() for each in answer.messages), cursor=answer.cursor)
        except DecodeError as error:
            raise StoreQueryError(f"the store's page cannot be read: {error}") from error

    async def close(self) -> None:
        """Leave the network; subscriptions end. Can be called twice."""
        self._closed = True
        self._board.close()
        for _, subscription in list(self._filters.values()):
            subscription.close()
        await self._tasks.close()

    async def _run(self) -> None:
        """Connect again and again until cancelled, with growing pauses until a connection lasts for a while."""
        loop = asyncio.get_running_loop()
        pause_s = _FIRST_PAUSE_S
        while True:
            tried_s = loop.time()
            try:
                await self._session()
            except (OSError, EOFError, DecodeError) as error:
                self._why_away = f"{error}" or type(error).__name__
            if self._connected.is_set() and loop.time() - tried_s >= _LONGEST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            self._connected.clear()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _session(self) -> None:
        """Serve one connection; raises the error that ends it."""
        async with asyncio.timeout(_HANDSHAKE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(self._host, self._port, limit=_READ_AHEAD_BYTES)
        try:
            await self._introduce(reader, writer)
            while True:
                self._take(await read_frame(reader, FROM_SERVER))
        finally:
            self._writer = None
            self._board.show(AWAY)
            for waiting in self._pending.values():
                if not waiting.done():
                    waiting.set_result(None)
            writer.transport.abort()

    async def _introduce(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send `Hello`, and begin when the server has the filters."""
        filters = tuple(wanted for wanted, _ in self._filters.values())
        writer.write(pack(Hello(version=VERSION, token=self._token, name=self._wanted_name, filters=filters)))
        async with asyncio.timeout(_HANDSHAKE_TIMEOUT_S):
            welcome = await read_frame(reader, FROM_SERVER)
        if not isinstance(welcome, Welcome):
            raise DecodeError(f"the server began with {type(welcome).__name__} instead of Welcome")
        self.name = welcome.name
        self._quota = welcome.quota
        self._writer = writer
        self._bring_up_to_date({wanted.number for wanted in filters})
        self.connections += 1
        self._connected.set()
        self._board.show(welcome.status)

    def _bring_up_to_date(self, announced: set[int]) -> None:
        """Send the changes of subscriptions since the `Hello`."""
        for number in announced - self._filters.keys():
            self._tell(Unsubscribe(number=number))
        for number in self._filters.keys() - announced:
            self._tell(Subscribe(request=_NOBODY, filter=self._filters[number][0]))

    def _take(self, frame: FromServer) -> None:
        match frame:
            case Pushed():
                self._receive(frame)
            case StatusFrame():
                self._quota = frame.quota
                self._board.show(frame.status)
            case Welcome():
                raise DecodeError("the server welcomed this node twice")
            case _:
                waiting = self._pending.get(frame.request)
                if waiting is not None and not waiting.done():
                    waiting.set_result(frame)

    def _receive(self, pushed: Pushed) -> None:
        if pushed.number not in self._filters:
            return  # closed meanwhile
        try:
            message = pushed.message.unpack()
        except DecodeError:
            self.undecodable += 1
            return
        self._filters[pushed.number][1].put(message)

    async def _ask(self, make: Callable[[int], FromClient]) -> Answer:
        """Send a request and return its answer.

        Raises `NodeUnavailableError` without a connection or an answer, `MessageTooLargeError` beyond a frame's length.
        """
        writer = self._writer
        if writer is None:
            raise NodeUnavailableError(f"no connection to {self._host} port {self._port} ({self._why_away})")
        number = next(self._numbers)
        frame = pack(make(number))
        if len(frame) > MAX_FRAME_BYTES:
            raise MessageTooLargeError(len(frame), MAX_FRAME_BYTES, "send less at once")
        waiting: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._pending[number] = waiting
        try:
            async with asyncio.timeout(self._request_timeout_s):
                # Wait for room first, so that requests to a server that does not read are not buffered here.
                await writer.drain()
                writer.write(frame)
                answer = await waiting
        except OSError as error:  # a timeout is one, too
            detail = f"{error}" or f"no answer within {self._request_timeout_s:g} s"
            raise NodeUnavailableError(f"the server at {self._host} port {self._port}: {detail}") from error
        finally:
            del self._pending[number]
        if answer is None:
            raise NodeUnavailableError("the connection broke before the answer came")
        return answer

    def _unsubscribe(self, number: int) -> None:
        self._filters.pop(number, None)
        self._tell(Unsubscribe(number=number))

    def _tell(self, frame: FromClient) -> None:
        """Send a frame that needs no answer, if there is a connection."""
        if self._writer is not None and not self._writer.transport.is_closing():
            self._writer.write(pack(frame))
