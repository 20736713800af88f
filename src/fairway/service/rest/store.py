"""``GET /store/v3/messages``: queries the archive of this node, or the store node that ``peerAddr`` names.

A node without an archive asks its connected peers that serve store, those that it dialled first. nwaku,
``waku/rest_api/endpoint/store/handlers.nim``: both ends of a time range are included, and a time of 0 or less is no
bound. A page has 20 entries by default and at most 100.
"""

from __future__ import annotations

import time
import uuid
from string import hexdigits
from typing import Final

from msgspec import UNSET
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from fairway.errors import ConfigurationError, DecodeError
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.message_store import MAX_PAGE_SIZE
from fairway.nodes.protocols.store_service import DEFAULT_PAGE_SIZE
from fairway.nodes.rest.shapes import StoredEntry, StoredPage, hex_of, store_shape
from fairway.service.rest.answers import RefusedError, answer
from fairway.service.rest.context import Endpoints, client_of
from fairway.service.rest.store_peers import ask_store_at, ask_store_peers
from fairway.wire.store import (
    StoredMessage,
    StoreQueryRequest,
    StoreQueryResponse,
)
from fairway.wire.waku_message import MESSAGE_HASH_BYTES

_TRUE: Final = {"y", "yes", "true", "1", "on"}
_FALSE: Final = {"n", "no", "false", "0", "off"}
_INT64: Final = 2**63


class StoreEndpoints(Endpoints):
    """The handlers of one server."""

    async def messages(self, request: Request) -> Response:
        """Return a page of messages."""
        context = self._context
        asked = store_query_of(request.query_params)
        address = request.query_params.get("peerAddr", "")
        peer = _peer_in(address) if address else None
        parts = context.parts
        if peer is not None and peer.peer_id != context.node.peer_id:
            response = await ask_store_at(parts.requests, peer, asked)
        elif parts.store is None:
            response = await ask_store_peers(parts.requests, asked)
        else:
            response = await parts.store.query(client_of(request), asked, now_s=time.monotonic())
        if response.status_code == 429:
            raise RefusedError(429, "Request rate limit reached")
        if not response.is_success:
            refused = 400 <= (response.status_code or 0) < 500
            raise RefusedError(400 if refused else 500, response.status_desc or "the store query failed")
        return answer(_page(response))


def store_query_of(parameters: QueryParams) -> StoreQueryRequest:
    """Return the store query of a query string, or raise `RefusedError`."""
    include = parameters.get("includeData", "").lower()
    if include and include not in _TRUE | _FALSE:
        raise RefusedError(400, f"include data parsing error: cannot interpret as a bool: {include[:80]}")
    page_size = _number(parameters.get("pageSize", ""), "page size parsing error")
    if page_size is None or page_size == 0:
        page_size = DEFAULT_PAGE_SIZE
    hashes = tuple(_hash(text) for text in parameters.get("hashes", "").split(",") if text)
    cursor = parameters.get("cursor", "")
    return StoreQueryRequest(
        request_id=str(uuid.uuid4()),
        include_data=include in _TRUE,
        pubsub_topic=parameters.get("pubsubTopic") or None,
        content_topics=tuple(text for text in parameters.get("contentTopics", "").split(",") if text),
        time_start_ns=_time(parameters.get("startTime", "")),
        time_end_ns=_time(parameters.get("endTime", "")),
        message_hashes=hashes,
        pagination_cursor=_hash(cursor) if cursor else None,
        pagination_forward=parameters.get("ascending", "true") in {"true", ""},
        # nwaku reads a negative number as a large unsigned one.
        pagination_limit=page_size if 0 < page_size < MAX_PAGE_SIZE else MAX_PAGE_SIZE,
    )


def entry_of(stored: StoredMessage) -> StoredEntry:
    """Return an entry of a page as a JSON shape; raise `DecodeError` if its bytes are no WakuMessage."""
    return StoredEntry(
        message_hash=hex_of(stored.message_hash),
        message=UNSET if stored.message_bytes is None else store_shape(stored.message()),
        pubsub_topic=UNSET if stored.pubsub_topic is None else stored.pubsub_topic,
    )


def _page(response: StoreQueryResponse) -> StoredPage:
    entries = []
    for stored in response.messages:
        try:
            entries.append(entry_of(stored))
        except DecodeError:
            entries.append(StoredEntry(message_hash=hex_of(stored.message_hash)))
    return StoredPage(
        request_id=response.request_id,
        status_code=response.status_code or 200,
        status_desc=response.status_desc or "OK",
        messages=entries,
        pagination_cursor=hex_of(response.pagination_cursor) if response.pagination_cursor else UNSET,
    )


def _peer_in(address: str) -> Multiaddr:
    try:
        parsed = Multiaddr.parse(address)
        known = parsed.peer_id
    except ConfigurationError as error:
        raise RefusedError(400, f"Failed parsing remote peer info: {error}") from None
    if not isinstance(known, PeerId):
        raise RefusedError(400, "Failed parsing remote peer info: the address names no peer: /p2p/... is missing")
    return parsed


def _number(text: str, what: str) -> int | None:
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        raise RefusedError(400, f"{what}: invalid integer: {text[:80]}") from None
    if not -_INT64 <= number < _INT64:
        raise RefusedError(400, f"{what}: Parsed integer outside of valid range: {text[:80]}")
    return number


def _time(text: str) -> int | None:
    number = _number(text, "time parsing error")
    return number if number is not None and number > 0 else None


def _hash(text: str) -> bytes:
    digits = text.removeprefix("0x")
    if wrong := next((character for character in digits if character not in hexdigits), None):
        raise RefusedError(400, f"Exception converting hex string to bytes: {wrong} is not a hexadecimal character")
    if len(digits) % 2:
        raise RefusedError(400, "Exception converting hex string to bytes: the number of digits is odd")
    value = bytes.fromhex(digits)
    if len(value) != MESSAGE_HASH_BYTES:
        raise RefusedError(400, f"waku message hash parsing error: invalid hash length: {len(value)}")
    return value
