"""`StoreClient`: queries several store nodes, and joins their answers (13/WAKU2-STORE).

Each node pages with a cursor of its own, so the cursor of a united page holds the cursors of all nodes with further
pages. Invariants: a page holds each message once. Every message of a node that answers is on some page. A node that
fails meanwhile is skipped if another one answers. A node whose answer is too long is asked for fewer messages
(`fairway.nodes.page_size`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from fairway.environment import monotonic_s, new_uuid
from fairway.errors import DecodeError, StoreQueryError, StoreRefusedError
from fairway.libp2p.errors import FrameTooLongError, IdentityError, Libp2pError, LimitError
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.light.options import LightOptions
from fairway.nodes.light.peer_pool import PeerPool
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.nodes.page_size import PageSize
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.wire.store import (
    MAX_RESPONSE_BYTES,
    STORE_QUERY_PROTOCOL,
    StoreQueryRequest,
    StoreQueryResponse,
    decode_store_query_response,
    encode_store_query_request,
)
from fairway.wire.waku_message import WakuMessage, message_hash

_Reply = TypeVar("_Reply")

_MAX_STORE_NODES: Final = 3
"""Store nodes asked for one query."""
_MAX_PAGE_SIZES: Final = 64
"""Store nodes with a kept page size; beyond it disconnected nodes are removed."""
_NOBODY: Final = "no store node is connected; ask when one is"
_ENCODER: Final = msgspec.msgpack.Encoder()
_CURSORS: Final = msgspec.msgpack.Decoder(dict[str, bytes])


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodePage:
    peer: PeerId
    messages: tuple[RoutedMessage, ...]
    cursor: bytes | None


class StoreClient:
    """Asks the store nodes of a pool."""

    def __init__(self, requests: PeerRequests, pool: PeerPool, options: LightOptions) -> None:
        self._requests: Final = requests
        self._pool: Final = pool
        self._options: Final = options
        self._page_sizes: dict[PeerId, PageSize] = {}

    async def query(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the messages of the store nodes; raises `StoreQueryError` if none answers."""
        asked = self._begin() if cursor is None else _cursors(cursor)
        if query.message_hashes and cursor is None:
            return await self._look_up(query, list(asked))
        return _united(
            await _answers([partial(self._page, peer, query, from_here) for peer, from_here in asked.items()])
        )

    async def present(self, hashes: tuple[bytes, ...]) -> frozenset[bytes]:
        """Return which messages any store node has; raises `StoreQueryError` if none answers.

        Nodes that failed recently are queried only if no other node is connected, because the answer is needed soon.
        """
        sound = self._pool.unfailing(STORE_QUERY_PROTOCOL)[:_MAX_STORE_NODES]
        answers = await _answers([partial(self._hashes, peer, hashes) for peer in sound or self._begin()])
        return frozenset[bytes]().union(*answers)

    def _begin(self) -> dict[PeerId, bytes | None]:
        return dict.fromkeys(self._pool.serving(STORE_QUERY_PROTOCOL)[:_MAX_STORE_NODES])

    async def _look_up(self, query: StoreQuery, peers: list[PeerId]) -> StorePage:
        """Query nodes one after the other, each for the messages that the earlier ones did not have."""
        missing = dict.fromkeys(query.message_hashes)
        found: list[RoutedMessage] = []
        faults: list[StoreQueryError] = []
        for peer in peers:
            while missing:
                wanted = replace(query, message_hashes=tuple(missing), newest_first=False)
                try:
                    page = await self._page(peer, wanted, None)
                except StoreQueryError as error:
                    faults.append(error)
                    break
                before = len(missing)
                for message in page.messages:
                    if message.message_hash in missing:
                        del missing[message.message_hash]
                        found.append(message)
                if page.cursor is None or len(missing) == before:
                    break
        if len(faults) == len(peers) and not found:
            raise _united_fault(faults)
        return StorePage(messages=tuple(sorted(found, key=_place)))

    async def _page(self, peer: PeerId, query: StoreQuery, cursor: bytes | None) -> _NodePage:
        """Return a page of one node; ask for fewer messages if the answer is too long."""
        size = self._page_size_of(peer)
        while True:
            asked = size.of(query.page_size)
            try:
                return await self._page_of(peer, query, cursor, size, asked)
            except StoreQueryError as error:
                is_late = isinstance(error.__cause__, TimeoutError)
                is_long = isinstance(error.__cause__, FrameTooLongError)
                can_be_less = (is_late or is_long) and size.failed(asked)
                if is_long and not can_be_less:
                    why = f"store node {peer} has a message that is longer than {MAX_RESPONSE_BYTES} bytes"
                    raise StoreRefusedError(why) from error
                if not is_long:
                    raise

    def _page_size_of(self, peer: PeerId) -> PageSize:
        if len(self._page_sizes) > _MAX_PAGE_SIZES:
            serving = self._pool.serving(STORE_QUERY_PROTOCOL)
            self._page_sizes = {one: size for one, size in self._page_sizes.items() if one in serving}
        return self._page_sizes.setdefault(peer, PageSize())

    async def _page_of(
        self, peer: PeerId, query: StoreQuery, cursor: bytes | None, size: PageSize, asked: int
    ) -> _NodePage:
        by_hash = bool(query.message_hashes)
        request = StoreQueryRequest(
            request_id=new_uuid(),
            include_data=True,
            pubsub_topic=None if by_hash else query.pubsub_topic or None,
            content_topics=() if by_hash else query.content_topics,
            time_start_ns=None if by_hash else query.start_ns,
            time_end_ns=None if by_hash else query.end_ns,
            message_hashes=query.message_hashes,
            pagination_cursor=cursor,
            pagination_forward=not query.newest_first,
            pagination_limit=asked,
        )
        began_s = monotonic_s()
        response, size_bytes = await self._ask(peer, request)
        time_share = (monotonic_s() - began_s) / self._options.request_timeout_s
        size.came(asked, size_bytes, time_share)
        messages = []
        for entry in response.messages:
            try:
                message = entry.message()
            except DecodeError:
                continue  # skip only the malformed entry
            topic = entry.pubsub_topic or query.pubsub_topic
            if message_hash(topic, message) != entry.message_hash or not (by_hash or _asked_for(query, topic, message)):
                continue  # with a wrong hash it would hide the message of another node
            messages.append(
                RoutedMessage(
                    pubsub_topic=topic,
                    message=message,
                    encoded=entry.message_bytes or b"",
                    message_hash=entry.message_hash,
                )
            )
        return _NodePage(peer=peer, messages=tuple(messages), cursor=response.pagination_cursor)

    async def _hashes(self, peer: PeerId, hashes: tuple[bytes, ...]) -> set[bytes]:
        found: set[bytes] = set()
        cursor: bytes | None = None
        for _ in hashes:  # a page holds at least one
            request = StoreQueryRequest(
                request_id=new_uuid(),
                include_data=False,
                message_hashes=hashes,
                pagination_forward=True,
                pagination_limit=len(hashes),
                pagination_cursor=cursor,
            )
            response, _ = await self._ask(peer, request)
            found.update(entry.message_hash for entry in response.messages)
            cursor = response.pagination_cursor
            if cursor is None:
                break
        return found

    async def _ask(self, peer: PeerId, request: StoreQueryRequest) -> tuple[StoreQueryResponse, int]:
        """Return the response of one node, and its length in bytes."""
        try:
            encoded = await self._requests.ask(
                peer,
                STORE_QUERY_PROTOCOL,
                encode_store_query_request(request, checked=False),
                max_response_bytes=MAX_RESPONSE_BYTES,
                timeout_s=self._options.request_timeout_s,
            )
            response = decode_store_query_response(encoded)
        except LimitError as error:
            raise StoreQueryError(f"store node {peer}: {error}") from error
        except FrameTooLongError as error:
            raise StoreQueryError(f"store node {peer}: {error}") from error
        except (Libp2pError, TimeoutError, DecodeError) as error:
            self._pool.failed(peer, STORE_QUERY_PROTOCOL, was_silent=isinstance(error, TimeoutError))
            raise StoreQueryError(f"store node {peer}: {error or 'no response in time'}") from error
        said = f"store node {peer}: {response.status_code} {response.status_desc or ''}".rstrip()
        if response.is_refused:
            raise StoreRefusedError(said)
        if not response.is_success:
            self._pool.failed(peer, STORE_QUERY_PROTOCOL)
            raise StoreQueryError(said)
        self._pool.served(peer, STORE_QUERY_PROTOCOL)
        return response, len(encoded)


def _asked_for(query: StoreQuery, pubsub_topic: str, message: WakuMessage) -> bool:
    """Return whether a message matches a query without hashes."""
    if query.end_ns is not None and (message.timestamp_ns or 0) >= query.end_ns:
        return False  # nwaku includes the end of a range, the specification does not
    return (not query.pubsub_topic or pubsub_topic == query.pubsub_topic) and (
        not query.content_topics or message.content_topic in query.content_topics
    )


def _cursors(cursor: bytes) -> dict[PeerId, bytes | None]:
    try:
        return {PeerId.parse(peer): from_here for peer, from_here in _CURSORS.decode(cursor).items()}
    except (msgspec.DecodeError, IdentityError) as error:
        raise StoreQueryError("the cursor is not one of this node; ask again without") from error


async def _answers(questions: Sequence[Callable[[], Coroutine[Any, Any, _Reply]]]) -> list[_Reply]:
    """Return the answers of the nodes that answer; raise `StoreQueryError` if none does."""

    async def ask(question: Callable[[], Coroutine[Any, Any, _Reply]]) -> _Reply | StoreQueryError:
        try:
            return await question()  # made here, so that a cancelled task leaves no coroutine that is never awaited
        except StoreQueryError as error:
            return error

    said = await asyncio.gather(*map(ask, questions))
    answers = [answer for answer in said if not isinstance(answer, StoreQueryError)]
    if not answers:
        raise _united_fault([answer for answer in said if isinstance(answer, StoreQueryError)])
    return answers


def _united_fault(faults: Sequence[StoreQueryError]) -> StoreQueryError:
    """Return the error of a query that no node answered; a shorter time helps if one of them refused this one."""
    is_refused = any(isinstance(fault, StoreRefusedError) for fault in faults)
    kind = StoreRefusedError if is_refused else StoreQueryError
    return kind("; ".join(map(str, faults)) or _NOBODY)


def _united(pages: list[_NodePage]) -> StorePage:
    messages = {message.message_hash: message for page in pages for message in page.messages}
    more = {str(page.peer): page.cursor for page in pages if page.cursor is not None}
    return StorePage(
        messages=tuple(sorted(messages.values(), key=_place)), cursor=_ENCODER.encode(more) if more else None
    )


def _place(message: RoutedMessage) -> tuple[int, bytes]:
    return message.message.timestamp_ns or 0, message.message_hash
