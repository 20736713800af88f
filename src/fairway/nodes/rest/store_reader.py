"""`RestStoreReader`: store queries over asyncio HTTP, for pages of messages or of message hashes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fairway.environment import monotonic_s
from fairway.errors import ConfigurationError, NodeUnavailableError, StoreQueryError, StoreRefusedError
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.nodes.page_size import PageSize
from fairway.nodes.rest.http_client import AnswerTooLongError, HttpClient
from fairway.nodes.rest.store_messages import store_answer, store_hashes, store_request
from fairway.wire.store import is_refusal

_LOG: Final = logging.getLogger(__name__)
_NO_STORE: Final = frozenset({404, 405, 412, 501})
"""Status codes of a node without a store: 412 from nwaku that knows no store node either, others without endpoint."""
_NO_PEER: Final = "no suitable peers"
"""Text of go-waku without a store node, with status 500."""


class RestStoreReader:
    """The store behind one node."""

    def __init__(self, http: HttpClient, *, store_known: Callable[[bool], None] = lambda _: None) -> None:
        """``store_known`` is called with whether the node has a store, whenever an answer shows it."""
        self._http: Final = http
        self._store_known: Final = store_known
        self._page_size: Final = PageSize()

    async def page(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page, without messages whose hash is wrong; raise `StoreQueryError`.

        If the answer is too long, the store is asked for fewer messages.
        """
        while True:
            asked = self._page_size.of(query.page_size)
            began_s = monotonic_s()
            try:
                body = await self._body(replace(query, page_size=asked), cursor, include_data=True)
                break
            except StoreRefusedError:
                raise
            except StoreQueryError as error:
                can_be_less = self._page_size.failed(asked)
                is_long = isinstance(error.__cause__, AnswerTooLongError)
                if is_long and not can_be_less:
                    raise StoreRefusedError(f"one message makes {error}") from error
                if not is_long:
                    raise
        self._page_size.came(asked, len(body), (monotonic_s() - began_s) / self._http.timeout_s)
        answer = store_answer(body, query)
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
        return store_hashes(await self._body(query, cursor, include_data=False))

    async def _body(self, query: StoreQuery, cursor: bytes | None, *, include_data: bool) -> bytes:
        path = store_request(query, cursor, peer=self._http.address.peer, include_data=include_data)
        try:
            reply = await self._http.request("GET", path)
        except NodeUnavailableError as error:
            raise StoreQueryError(str(error)) from error
        self._store_known(reply.status not in _NO_STORE and _NO_PEER not in reply.text)
        if reply.status != 200:
            kind = StoreRefusedError if is_refusal(reply.status, reply.text) else StoreQueryError
            raise kind(f"{self._http.address.name}: the node answers {reply.status}: {reply.text}")
        return reply.body
