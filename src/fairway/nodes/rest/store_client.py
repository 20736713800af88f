"""The store endpoint of nwaku's REST API: `RestStoreReader` for asyncio, `RestStoreClient`, which blocks and retries.

The Spark pipeline uses `RestStoreClient`. `fairway.nodes.rest.store_messages` has the format. A page is whole, or an
error. After a failure, or an answer that is too long, the node is asked for fewer messages (`fairway.nodes.page_size`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final, Self

from fairway.environment import monotonic_s
from fairway.errors import ConfigurationError, NodeUnavailableError, StoreQueryError, StoreRefusedError
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.nodes.page_size import PageSize
from fairway.nodes.rest.address import RestAddress
from fairway.nodes.rest.http_client import AnswerTooLongError, HttpClient
from fairway.nodes.rest.store_messages import StoreAnswer, store_answer, store_hashes, store_request
from fairway.protocol.recent_hashes import RecentHashes
from fairway.wire.store import is_refusal

TIMEOUT_S: Final = 30.0
"""Longest wait of a `RestStoreClient` for an answer; nwaku itself waits 5 s for a store node."""
DEFAULT_ATTEMPTS: Final = 6
"""Attempts for one page; with pauses about half a minute."""
FIRST_PAUSE_S: Final = 1.0
"""Pause before the second attempt; each further pause is twice as long."""
LONGEST_PAUSE_S: Final = 60.0
"""Longest pause, even if the node asks for a longer one (``Retry-After``)."""

_LOG: Final = logging.getLogger(__name__)
_OK, _TOO_MANY_REQUESTS, _SERVER_ERROR = 200, 429, 500
_NO_STORE: Final = frozenset({404, 405, 412, 501})
"""Status codes of a node without a store: 412 from nwaku that knows no store node either, others without endpoint."""
_NO_PEER: Final = "no suitable peers"
"""Text of go-waku without a store node, with status 500."""


class _BusyError(StoreQueryError):
    """The node answered 429 or 5xx: it may answer the same query later."""

    wait_s = 0.0
    """The pause that the node asks for."""
    is_rate_limit = False
    """Whether it answered 429: fewer messages do not help."""


class PageTrail:
    """The pages of a query, which end: a page with a cursor leads to other messages and another cursor."""

    def __init__(self) -> None:
        self._seen: Final = RecentHashes()

    def follow(self, cursor: bytes, digest: bytes) -> None:
        """Note a page by its cursor and digest; raise `StoreQueryError` if the query had the same before."""
        if not self._seen.add(cursor):
            raise StoreQueryError(f"the node gives the cursor 0x{cursor.hex()} twice")
        if not self._seen.add(digest):
            raise StoreQueryError(f"the node gives a page twice, the second time with the cursor 0x{cursor.hex()}")


class RestStoreReader:
    """The store behind one node."""

    def __init__(self, http: HttpClient, *, store_known: Callable[[bool], None] = lambda _: None) -> None:
        """``store_known`` is called with whether the node has a store, whenever an answer shows it."""
        self._http: Final = http
        self._store_known: Final = store_known
        self._page_size: Final = PageSize()

    async def answer(self, query: StoreQuery, cursor: bytes | None = None) -> StoreAnswer:
        """Return a page as the node returns it; if the answer is too long, ask for fewer messages.

        Raises `NodeUnavailableError` if the node does not answer, `StoreQueryError` if it does not return a page.
        """
        while True:
            asked = self._page_size.of(query.page_size)
            began_s = monotonic_s()
            try:
                body = await self._body(replace(query, page_size=asked), cursor, include_data=True)
            except AnswerTooLongError as error:
                if not self._page_size.failed(asked):
                    raise StoreRefusedError(f"{error}, for one message") from error
            except (NodeUnavailableError, _BusyError) as error:
                if not (isinstance(error, _BusyError) and error.is_rate_limit):
                    self._page_size.failed(asked)
                raise
            else:
                self._page_size.came(asked, len(body), (monotonic_s() - began_s) / self._http.timeout_s)
                break
        try:
            return store_answer(body, query)
        except StoreQueryError as error:
            raise type(error)(f"{self._http.address.name}: {error}") from error

    async def page(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page, without messages whose hash is wrong; raise `StoreQueryError`."""
        try:
            answer = await self.answer(query, cursor)
        except NodeUnavailableError as error:
            raise StoreQueryError(str(error)) from error
        messages = []
        for entry in answer.entries:
            try:
                message = RoutedMessage.of(entry.pubsub_topic, entry.message)
            except ConfigurationError as error:
                _LOG.debug("a message of the store was left out: %s", error)
                continue
            # With a wrong hash it would hide the message that has it.
            if message.message_hash == entry.message_hash:
                messages.append(message)
        return StorePage(messages=tuple(messages), cursor=answer.cursor)

    async def hashes(self, query: StoreQuery, cursor: bytes | None = None) -> tuple[tuple[bytes, ...], bytes | None]:
        """Return the message hashes of a page, and the cursor of the next one; raise `StoreQueryError`."""
        try:
            body = await self._body(query, cursor, include_data=False)
        except NodeUnavailableError as error:
            raise StoreQueryError(str(error)) from error
        return store_hashes(body)

    async def _body(self, query: StoreQuery, cursor: bytes | None, *, include_data: bool) -> bytes:
        address = self._http.address
        reply = await self._http.request(
            "GET", store_request(query, cursor, peer=address.peer, include_data=include_data)
        )
        self._store_known(reply.status not in _NO_STORE and _NO_PEER not in reply.text)
        if reply.status == _OK:
            return reply.body
        said = f"{address.name}: the node answers {reply.status}: {reply.text}"
        if is_refusal(reply.status, reply.text):
            raise StoreRefusedError(said)
        if reply.status != _TOO_MANY_REQUESTS and reply.status < _SERVER_ERROR:
            raise StoreQueryError(said)
        busy = _BusyError(said)
        busy.is_rate_limit = reply.status == _TOO_MANY_REQUESTS
        with suppress(ValueError):
            busy.wait_s = float(reply.headers.get("retry-after", ""))
        raise busy


class RestStoreClient:
    """A context manager over one node, ``http://127.0.0.1:8645`` or ``https://user:password@example.org/waku``.

    ``?peerAddr=/ip4/...`` after the address makes the node query another store node. Raises `ConfigurationError` for an
    invalid address. Its calls block, so they must not be made on the thread of a running event loop.
    """

    def __init__(
        self,
        address: str,
        *,
        attempts: int = DEFAULT_ATTEMPTS,
        pause: Callable[[float], None] = time.sleep,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        if attempts < 1:
            raise ConfigurationError(f"attempts must be at least 1, not {attempts}")
        self._http: Final = HttpClient(RestAddress.parse(address), timeout_s=timeout_s)
        self.name: Final = self._http.address.name
        self._reader: Final = RestStoreReader(self._http)
        self._attempts: Final = attempts
        self._pause: Final = pause
        self._runner: Final = asyncio.Runner()
        self._closed = False

    def __repr__(self) -> str:
        """Show the node, without credentials."""
        return f"<StoreClient {self.name}>"

    def __enter__(self) -> Self:
        """Return the client; nothing is connected before the first page."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection. Can be called twice."""
        if not self._closed:
            self._closed = True
            with self._runner:
                self._runner.run(self._http.close())

    def page(self, query: StoreQuery, cursor: bytes | None = None) -> StoreAnswer:
        """Return the first page, or the page after ``cursor`` of an earlier page.

        Raises `NodeUnavailableError` if the node cannot be reached, `StoreQueryError` if it does not return a page.
        """
        pause_s = FIRST_PAUSE_S
        attempts_left = self._attempts
        while True:
            try:
                return self._runner.run(self._reader.answer(query, cursor))
            except (NodeUnavailableError, _BusyError) as error:
                attempts_left -= 1
                if not attempts_left:
                    raise
                if isinstance(error, _BusyError):
                    pause_s = max(pause_s, error.wait_s)
            self._pause(min(pause_s, LONGEST_PAUSE_S))
            pause_s *= 2

    def pages(self, query: StoreQuery, cursor: bytes | None = None) -> Iterator[StoreAnswer]:
        """Yield all pages, from the first or after ``cursor`` of an earlier page.

        Raises as `page` does, and `StoreQueryError` if the node repeats a cursor or a page.
        """
        trail = PageTrail()
        while True:
            answer = self.page(query, cursor)
            yield answer
            if answer.cursor is None:
                return
            try:
                trail.follow(answer.cursor, answer.digest)
            except StoreQueryError as error:
                raise StoreQueryError(f"{self.name}: {error}") from error
            cursor = answer.cursor
