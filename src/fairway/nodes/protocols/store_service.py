"""`StoreService`: answers store queries from an archive (13/WAKU2-STORE).

It turns the bytes of a request into the bytes of a response. A response has at most `MAX_PAGE_SIZE` entries and stays
below `RESPONSE_BYTES`, because js-waku reads at most 4 MiB. A page that ends early has a cursor. At most
`MAX_UNDER_WAY` queries of a peer are answered at once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from fairway.errors import DecodeError, FairwayError, StoreQueryError
from fairway.nodes.message_store import MAX_PAGE_SIZE
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.nodes.protocols.request_limiter import RequestLimiter
from fairway.wire.store import (
    StoredMessage,
    StoreQueryRequest,
    StoreQueryResponse,
    decode_store_query_request,
    encode_store_query_response,
)
from fairway.wire.waku_message import MESSAGE_HASH_BYTES

DEFAULT_PAGE_SIZE: Final = 20
"""Entries in a page if the query gives no number."""
RESPONSE_BYTES: Final = 3_670_016
"""3.5 MiB of entries, after which a page ends: js-waku reads at most 4 MiB."""
MAX_HASHES: Final = 1_000
"""Hashes in one query."""
MAX_CONTENT_TOPICS: Final = 1_000
"""Content topics in one query."""
_LATEST_NS: Final = 2**63 - 1
MAX_UNDER_WAY: Final = 16
"""Queries of one peer that are answered at once, so that other peers are served as well."""

_ENTRY_OVERHEAD_BYTES: Final = 20
"""At most this size have the tags and lengths of an entry and of its three fields."""
_OK, _BAD_REQUEST, _TOO_MANY_REQUESTS, _FAILED = 200, 400, 429, 500
_LOG: Final = logging.getLogger(__name__)

Archive = Callable[[StoreQuery, bytes | None], Awaitable[StorePage]]
"""Returns the page after a cursor; raises `StoreQueryError` if the query cannot be answered."""


class StoreService:
    """Answers queries from an archive."""

    def __init__(self, archive: Archive, limiter: RequestLimiter) -> None:
        self._archive: Final = archive
        self._limiter: Final = limiter
        self._under_way: Final[Counter[str]] = Counter()

    async def respond(self, peer: str, data: bytes, *, now_s: float) -> bytes:
        """Return the response to the bytes of a request."""
        try:
            request = decode_store_query_request(data)
        except DecodeError as error:
            response = _failure("", _BAD_REQUEST, str(error))
        else:
            response = await self.query(peer, request, now_s=now_s)
        return encode_store_query_response(response)

    async def query(self, peer: str, request: StoreQueryRequest, *, now_s: float) -> StoreQueryResponse:
        """Return the page that a request asks for."""
        if not self._limiter.admit(peer, now_s):
            return _failure(request.request_id, _TOO_MANY_REQUESTS, "more queries than this node allows; wait a second")
        problem = _problem(request)
        if problem is not None:
            return _failure(request.request_id, _BAD_REQUEST, problem)
        if _is_empty(request):
            return _page(request, ())
        if self._under_way[peer] >= MAX_UNDER_WAY:
            return _failure(request.request_id, _TOO_MANY_REQUESTS, f"{MAX_UNDER_WAY} queries are being answered yet")
        self._under_way[peer] += 1
        try:
            return await self._answer(peer, request)
        finally:
            self._under_way[peer] -= 1
            if not self._under_way[peer]:
                del self._under_way[peer]

    async def _answer(self, peer: str, request: StoreQueryRequest) -> StoreQueryResponse:
        try:
            page = await self._archive(_query_of(request), request.pagination_cursor or None)
        except StoreQueryError as error:
            return _failure(request.request_id, _BAD_REQUEST, str(error))
        except FairwayError as error:
            _LOG.warning("a store query of %s failed: %s", peer, error)
            return _failure(request.request_id, _FAILED, str(error))
        entries = [_entry(message, include_data=request.include_data) for message in page.messages]
        kept = _first_bytes(entries, forward=request.pagination_forward)
        cursor = page.cursor
        if len(kept) < len(entries):
            cursor = kept[-1 if request.pagination_forward else 0].message_hash
        return _page(request, tuple(kept), cursor)


def _problem(request: StoreQueryRequest) -> str | None:
    """Return why a query is refused, or None.

    js-waku names the pubsub topic in a query by hash, and content topics without a pubsub topic; both are accepted,
    although 13/WAKU2-STORE forbids the combinations.
    """
    if not request.request_id:
        return "a store query needs a request_id"
    if len(request.message_hashes) > MAX_HASHES:
        return f"a query has at most {MAX_HASHES} hashes, not {len(request.message_hashes)}"
    if any(len(message_hash) != MESSAGE_HASH_BYTES for message_hash in request.message_hashes):
        return f"message hashes have {MESSAGE_HASH_BYTES} bytes"
    if len(request.content_topics) > MAX_CONTENT_TOPICS:
        return f"a query has at most {MAX_CONTENT_TOPICS} content topics, not {len(request.content_topics)}"
    if request.pagination_cursor and len(request.pagination_cursor) != MESSAGE_HASH_BYTES:
        return f"a cursor is a message hash of {MESSAGE_HASH_BYTES} bytes"
    return None


def _is_empty(request: StoreQueryRequest) -> bool:
    """Return whether the time range ends before it starts, so that no message is in it; a query by hash has none."""
    start_ns, end_ns = request.time_start_ns, request.time_end_ns
    return not request.message_hashes and start_ns is not None and end_ns is not None and start_ns > end_ns


def _query_of(request: StoreQueryRequest) -> StoreQuery:
    by_hash = bool(request.message_hashes)
    return StoreQuery(
        message_hashes=request.message_hashes,
        pubsub_topic="" if by_hash else request.pubsub_topic or "",
        content_topics=() if by_hash else request.content_topics,
        start_ns=None if by_hash else request.time_start_ns,
        end_ns=None if by_hash else _end_of(request),
        newest_first=not request.pagination_forward,
        page_size=min(request.pagination_limit or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE),
    )


def _end_of(request: StoreQueryRequest) -> int | None:
    """Return the end of the time range, exclusive.

    By 13/WAKU2-STORE, "Filter matching", a range excludes its end. nwaku includes it and clients expect that; one
    additional message does no harm to other clients.
    """
    return None if request.time_end_ns is None else min(request.time_end_ns + 1, _LATEST_NS)


def _entry(message: RoutedMessage, *, include_data: bool) -> StoredMessage:
    if not include_data:
        return StoredMessage(message_hash=message.message_hash)
    return StoredMessage(
        message_hash=message.message_hash, message_bytes=message.encoded, pubsub_topic=message.pubsub_topic
    )


def _first_bytes(entries: list[StoredMessage], *, forward: bool) -> list[StoredMessage]:
    """Return the entries that fit into one response, from the end where paging began; at least one."""
    size = 0
    for count, entry in enumerate(entries if forward else reversed(entries)):
        size += len(entry.message_hash) + len(entry.message_bytes or b"") + len((entry.pubsub_topic or "").encode())
        size += _ENTRY_OVERHEAD_BYTES
        if size > RESPONSE_BYTES and count:
            return entries[:count] if forward else entries[-count:]
    return entries


def _page(
    request: StoreQueryRequest, messages: tuple[StoredMessage, ...], cursor: bytes | None = None
) -> StoreQueryResponse:
    return StoreQueryResponse(
        request_id=request.request_id,
        status_code=_OK,
        status_desc="OK",
        messages=messages,
        pagination_cursor=cursor,
    )


def _failure(request_id: str, status: int, detail: str) -> StoreQueryResponse:
    return StoreQueryResponse(request_id=request_id, status_code=status, status_desc=detail[:1_000])
