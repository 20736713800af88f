"""`TopicFeed`: the messages of one content topic, received from the node or, if missed, read from its store.

One task receives by the first endpoint that the node offers, and starts again when that ends. A second task reads the
store: after each new start, after a possible overflow of the node's cache, and while polling at intervals. Each message
that the store keeps and that came after the start of the feed is passed on once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from fairway.errors import NetworkError, StoreQueryError
from fairway.nodes.listeners import Criterion
from fairway.nodes.node import RoutedMessage
from fairway.nodes.rest.catch_up import CatchUp
from fairway.nodes.rest.http_client import HttpClient
from fairway.nodes.rest.options import ReceiveWay, RestNodeOptions
from fairway.nodes.rest.receivers import (
    NotOfferedError,
    Sink,
    receive_by_filter,
    receive_by_relay,
    receive_events,
)
from fairway.nodes.rest.store_reader import RestStoreReader
from fairway.owned_tasks import OwnedTasks
from fairway.protocol.recent_hashes import RecentHashes

_RECEIVERS: Final[dict[ReceiveWay, Callable[..., Awaitable[None]]]] = {
    ReceiveWay.EVENTS: receive_events,
    ReceiveWay.RELAY: receive_by_relay,
    ReceiveWay.FILTER: receive_by_filter,
}
_SLOW_READER_NS: Final = 300_000_000_000
"""How far to read back after a node dropped messages because this program read too slowly."""
_LOG: Final = logging.getLogger(__name__)


class TopicFeed:
    """The messages of one pubsub topic and content topic of one node."""

    def __init__(
        self,
        http: HttpClient,
        criterion: Criterion,
        options: RestNodeOptions,
        *,
        seen: RecentHashes,
        hand_on: Callable[[RoutedMessage], None],
        changed: Callable[[], None],
        store: RestStoreReader,
    ) -> None:
        self.criterion: Final = criterion
        self.live = False
        """Whether messages are being received."""
        self.broken = False
        """Whether receiving failed."""
        self.way: ReceiveWay | None = None
        """The endpoint that was used last."""
        self.caught_up = 0
        """Messages that were read from the store."""
        self._http: Final = http
        self._options: Final = options
        self._changed: Final = changed
        self._catch_up: Final = CatchUp(
            store,
            criterion,
            seen=seen,
            hand_on=hand_on,
            overlap_ns=int(options.overlap_s * 1e9),
            now_ns=time.time_ns,
        )
        self._sink: Final = Sink(begun=self._begun, hand_on=hand_on, alive=self._alive, gap=self._gap)
        self._behind = False
        self._complaint = logging.WARNING
        self._settled = asyncio.Event()
        self._due = asyncio.Event()
        self._wake = asyncio.Event()
        self._tasks: Final = OwnedTasks()

    def start(self) -> None:
        """Begin to receive."""
        self._tasks.spawn(self._receive())
        self._tasks.spawn(self._complete())

    async def ready(self, timeout_s: float) -> None:
        """Wait until messages are being received or the feed is closed, at most ``timeout_s``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()

    def wake(self) -> None:
        """Try again now: the node is back."""
        self._wake.set()

    async def close(self) -> None:
        """Stop. Can be called twice."""
        self._settled.set()
        await self._tasks.close()

    async def _receive(self) -> None:
        """Receive, and start again when that ends, with growing pauses until it lasts for a while."""
        with suppress(StoreQueryError):
            await self._catch_up.begin()
        loop = asyncio.get_running_loop()
        ways = self._options.receive
        pause_s = self._options.first_pause_s
        index = 0
        while True:
            self._wake.clear()  # not later: the node may come back while an attempt still fails
            self.way = ways[index]
            tried_s = loop.time()
            try:
                await _RECEIVERS[self.way](self._http, self.criterion, self._sink, self._options)
            except NotOfferedError as error:
                _LOG.debug("%s: %s", self._http.address.name, error)
                index = (index + 1) % len(ways)
                if index:
                    continue
                _LOG.log(self._complaint, "%s offers no way to receive messages: %s", self._http.address.name, error)
                self._complaint = logging.DEBUG
            except NetworkError as error:
                _LOG.debug("%s: %s", self._http.address.name, error)
                index = 0  # it may be another program when it is back
            if self.live and loop.time() - tried_s >= self._options.longest_pause_s:
                pause_s = self._options.first_pause_s
            self.live, self.broken = False, True
            self._changed()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            pause_s = min(2 * pause_s, self._options.longest_pause_s)

    async def _complete(self) -> None:
        pause_s = self._options.first_pause_s
        while True:
            await self._until_due()
            self._due.clear()
            try:
                self.caught_up += await self._catch_up.run()
                self._behind = self._due.is_set()
                pause_s = self._options.first_pause_s
            except StoreQueryError as error:
                _LOG.debug("the store could not be looked through: %s", error)
                self._fall_behind()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, self._options.longest_pause_s)

    async def _until_due(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.check_interval_s):
                await self._due.wait()
                return
        if self.way is ReceiveWay.EVENTS or not self.live:
            await self._due.wait()

    def _begun(self) -> None:
        # Also the first time: only the store has the messages since `CatchUp.begin`.
        self._fall_behind()
        self.live, self.broken = True, False
        self._settled.set()
        self._changed()

    def _alive(self) -> None:
        if not self._behind:
            self._catch_up.live()

    def _gap(self) -> None:
        if self.way is ReceiveWay.EVENTS:
            self._catch_up.reach_back(_SLOW_READER_NS)
        self._fall_behind()

    def _fall_behind(self) -> None:
        self._behind = True
        self._due.set()
