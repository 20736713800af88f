"""Store: queries to a service node for past messages, by content and time or by message hash (13/WAKU2-STORE).

An entry has the exact bytes of its message that were published. `StoreQueryRequest.problem` has the rules of the
specification for combinations of fields. A client's encoder raises an error for a broken rule, and a service node may
answer with 400. js-waku breaks one rule: its queries by hash *also* name the pubsub topic. ``checked=False`` encodes
such a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.proto import store_pb2
from fairway.wire.protobuf import encode, parse
from fairway.wire.waku_message import MESSAGE_HASH_BYTES, WakuMessage, decode_carried_message

STORE_QUERY_PROTOCOL: Final = "/vac/waku/store-query/3.0.0"
"""Protocol identifier."""

MAX_REQUEST_BYTES: Final = 1_048_576
"""Size of the longest request that is parsed, enough for thirty thousand hashes."""

MAX_RESPONSE_BYTES: Final = 16_777_216
"""Size of the longest response that is parsed; nwaku's pages have up to 100 messages of 150 KiB."""

MAX_RESPONSE_ENTRIES: Final = 10_000
"""Most entries of a response that is decoded; node software has at most 100 on a page."""


_TEMPORARY: Final = frozenset({401, 403, 404, 405, 408, 412, 429})
"""Codes from 400 to 499 that do not concern the query: no access, no store now, too many queries."""
_WORDS_OF_REFUSALS: Final = ("bad_request", "time range", "24h", "24 hours")
"""Words of refusals with a less specific code: nwaku's REST API answers 500 if its own store refuses a query, and its
archive errors are 300."""


def is_refusal(status_code: int | None, words: str | None) -> bool:
    """Return whether this code and these words of a store or a REST API mean a permanent refusal of a query."""
    said = (words or "").lower()
    has_code = status_code is not None and 400 <= status_code < 500 and status_code not in _TEMPORARY
    return has_code or any(phrase in said for phrase in _WORDS_OF_REFUSALS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreQueryRequest:
    """A query. ``None`` and empty collections mean absent on the wire."""

    request_id: str
    """Unique; repeated in the response."""
    include_data: bool = False
    """Whether the response includes messages; otherwise only their hashes."""
    pubsub_topic: str | None = None
    """Content filter: pubsub topic of the messages."""
    content_topics: tuple[str, ...] = ()
    """Content filter: content topics, of which a message has any one."""
    time_start_ns: int | None = None
    """Content filter: lowest timestamp (inclusive), nanoseconds."""
    time_end_ns: int | None = None
    """Content filter: end of the timestamps (exclusive), nanoseconds."""
    message_hashes: tuple[bytes, ...] = ()
    """Look-up: message hashes, of which a message has any one."""
    pagination_cursor: bytes | None = None
    """The cursor of the previous response; the page continues after this entry, or before it if backwards."""
    pagination_forward: bool = False
    """Whether the oldest page is first; otherwise the newest page is first."""
    pagination_limit: int | None = None
    """Most entries on a page."""

    def problem(self) -> str | None:
        """Return the rule of 13/WAKU2-STORE that this request breaks, or ``None``."""
        if not self.request_id:
            # "Store Query Request": "This request MUST contain a request_id".
            return "a store query needs a request_id"
        if self.message_hashes and (
            self.pubsub_topic is not None
            or self.content_topics
            or self.time_start_ns is not None
            or self.time_end_ns is not None
        ):
            # "Message hash lookup queries": the client MUST NOT set any of the content filter fields.
            return "a query by message hash excludes pubsub topic, content topics and times"
        if any(len(message_hash) != MESSAGE_HASH_BYTES for message_hash in self.message_hashes):
            return f"message hashes have {MESSAGE_HASH_BYTES} bytes"
        if (self.pubsub_topic is None) != (not self.content_topics):
            # "Content filtered queries": "Both fields MUST either be set or unset."
            return "pubsub topic and content topics go together: give both or neither"
        if self.time_start_ns is not None and self.time_end_ns is not None and self.time_start_ns > self.time_end_ns:
            # "Filter matching": from time_start until before time_end.
            return f"the time range ends at {self.time_end_ns}, before it starts at {self.time_start_ns}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """An entry of a store: key, and value if requested (13/WAKU2-STORE, "Waku Message Key-Value Pairs")."""

    message_hash: bytes
    """The key, 32 bytes."""
    message_bytes: bytes | None = None
    """The encoded `WakuMessage`; present if the pubsub topic is."""
    pubsub_topic: str | None = None
    """Pubsub topic of the message."""

    def message(self) -> WakuMessage:
        """Return the message, or raise `DecodeError` if it is absent or not decodable."""
        return decode_carried_message(self.message_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreQueryResponse:
    """A page of entries, always oldest first, or an error."""

    request_id: str
    """That of the request."""
    status_code: int | None = None
    """Status code, as in HTTP; 13/WAKU2-STORE requires it, so an absent one is an error."""
    status_desc: str | None = None
    """An explanation for people."""
    messages: tuple[StoredMessage, ...] = ()
    """The entries."""
    pagination_cursor: bytes | None = None
    """The cursor for the next request; None on the last page."""
    malformed_entries: int = 0
    """Entries that were dropped when decoding, because they are not protobuf or have no 32-byte key."""

    @property
    def is_success(self) -> bool:
        """13/WAKU2-STORE, "Store Query Response": successful status codes are in the 2xx range."""
        return self.status_code is not None and 200 <= self.status_code < 300

    @property
    def is_refused(self) -> bool:
        """Whether the store would refuse the same query again."""
        return is_refusal(self.status_code, self.status_desc)


def encode_store_query_request(request: StoreQueryRequest, *, checked: bool = True) -> bytes:
    """Return ``request`` as protobuf.

    Raises `ConfigurationError` for a value that a field cannot hold and, if ``checked``, for a rule that
    `StoreQueryRequest.problem` returns.
    """
    problem = request.problem() if checked else None
    if problem is not None:
        raise ConfigurationError(problem)
    return encode(
        store_pb2.StoreQueryRequest,
        request_id=request.request_id,
        include_data=request.include_data,
        pubsub_topic=request.pubsub_topic,
        content_topics=request.content_topics,
        time_start=request.time_start_ns,
        time_end=request.time_end_ns,
        message_hashes=request.message_hashes,
        pagination_cursor=request.pagination_cursor,
        pagination_forward=request.pagination_forward,
        pagination_limit=request.pagination_limit,
    )


def decode_store_query_request(data: bytes) -> StoreQueryRequest:
    """Return the request that ``data`` encodes, or raise `DecodeError`.

    Combinations of fields are not checked here; a service node calls `StoreQueryRequest.problem`.
    """
    parsed = parse(store_pb2.StoreQueryRequest, data, max_bytes=MAX_REQUEST_BYTES)
    has = parsed.HasField
    return StoreQueryRequest(
        request_id=parsed.request_id,
        include_data=parsed.include_data,
        pubsub_topic=parsed.pubsub_topic if has("pubsub_topic") else None,
        content_topics=tuple(parsed.content_topics),
        time_start_ns=parsed.time_start if has("time_start") else None,
        time_end_ns=parsed.time_end if has("time_end") else None,
        message_hashes=tuple(parsed.message_hashes),
        pagination_cursor=parsed.pagination_cursor if has("pagination_cursor") else None,
        pagination_forward=parsed.pagination_forward,
        pagination_limit=parsed.pagination_limit if has("pagination_limit") else None,
    )


def encode_store_query_response(response: StoreQueryResponse) -> bytes:
    """Return ``response`` as protobuf, or raise `ConfigurationError` as `encode_stored_message` does."""
    return encode(
        store_pb2.StoreQueryResponse,
        request_id=response.request_id,
        status_code=response.status_code,
        status_desc=response.status_desc,
        messages=[encode_stored_message(entry) for entry in response.messages],
        pagination_cursor=response.pagination_cursor,
    )


def decode_store_query_response(data: bytes) -> StoreQueryResponse:
    """Return the response that ``data`` encodes; its messages are not decoded.

    Raises `DecodeError` if ``data`` is too long, has more than `MAX_RESPONSE_ENTRIES` entries or is not protobuf.
    `StoreQueryResponse.malformed_entries` counts dropped entries.
    """
    parsed = parse(store_pb2.StoreQueryResponse, data, max_bytes=MAX_RESPONSE_BYTES)
    count = len(parsed.messages)
    if count > MAX_RESPONSE_ENTRIES:
        raise DecodeError(f"StoreQueryResponse: {count} entries, at most {MAX_RESPONSE_ENTRIES} are read")
    entries = []
    for encoded in parsed.messages:
        try:
            entries.append(decode_stored_message(encoded))
        except DecodeError:
            continue  # counted below
    return StoreQueryResponse(
        request_id=parsed.request_id,
        status_code=parsed.status_code if parsed.HasField("status_code") else None,
        status_desc=parsed.status_desc if parsed.HasField("status_desc") else None,
        messages=tuple(entries),
        pagination_cursor=parsed.pagination_cursor if parsed.HasField("pagination_cursor") else None,
        malformed_entries=count - len(entries),
    )


def encode_stored_message(entry: StoredMessage) -> bytes:
    """Return ``entry`` as protobuf.

    Raises `ConfigurationError` for a broken rule of 13/WAKU2-STORE, "Waku Message Key-Value Pairs": an entry MUST
    contain the key, and MUST NOT have one of message and pubsub topic without the other.
    """
    if len(entry.message_hash) != MESSAGE_HASH_BYTES:
        raise ConfigurationError(f"a message hash has {MESSAGE_HASH_BYTES} bytes, not {len(entry.message_hash)}")
    if (entry.message_bytes is None) != (entry.pubsub_topic is None):
        raise ConfigurationError("a store entry has both a message and its pubsub topic, or neither")
    return encode(
        store_pb2.WakuMessageKeyValue,
        message_hash=entry.message_hash,
        message=entry.message_bytes,
        pubsub_topic=entry.pubsub_topic,
    )


def decode_stored_message(data: bytes) -> StoredMessage:
    """Return the entry that ``data`` encodes, or raise `DecodeError`, also if it has no 32-byte key.

    13/WAKU2-STORE, "Waku Message Key-Value Pairs": message and pubsub topic MUST both be set or unset. If only one is
    present, both are dropped, as in node software: another store may return the message for the key.
    """
    parsed = parse(store_pb2.WakuMessageKeyValue, data, max_bytes=MAX_RESPONSE_BYTES)
    if len(parsed.message_hash) != MESSAGE_HASH_BYTES:
        raise DecodeError(f"WakuMessageKeyValue: a key of {len(parsed.message_hash)} bytes")
    if not (parsed.HasField("message") and parsed.HasField("pubsub_topic")):
        return StoredMessage(message_hash=parsed.message_hash)
    return StoredMessage(
        message_hash=parsed.message_hash, message_bytes=parsed.message, pubsub_topic=parsed.pubsub_topic
    )
