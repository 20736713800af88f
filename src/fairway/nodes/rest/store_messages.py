"""The query string and the JSON answers of nwaku's store endpoint.

Pure. An answer of the wrong shape is a `StoreQueryError`; an entry of the wrong shape is returned undecoded.

nwaku's ``rest_api/endpoint/store``: hashes and cursors are 32 bytes in hexadecimal behind ``0x``. Payload, meta and
proof are base64, timestamps are nanoseconds. Both ends of a time range are included, and times that are not positive
are ignored. A page has at most 100 messages, the oldest first. A cursor is the hash of the last message of its page.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import urlencode

import msgspec

from fairway.errors import DecodeError, StoreQueryError, StoreRefusedError
from fairway.json_reading import read_json
from fairway.nodes.message_store import MAX_PAGE_SIZE
from fairway.nodes.node import StoreQuery
from fairway.nodes.rest.shapes import JsonMessage, StoredEntry, stored_message_of
from fairway.wire.store import is_refusal
from fairway.wire.waku_message import MESSAGE_HASH_BYTES, WakuMessage

STORE_PATH: Final = "/store/v3/messages"
MAX_CONTENT_TOPICS: Final = 10
"""Content topics in one query; nwaku refuses the second page of a query with more."""

_SUCCESS: Final = 200
_INT64: Final = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEntry:
    """One message of an answer."""

    message_hash: bytes
    """Message hash as the node reports it, 32 bytes."""
    pubsub_topic: str
    message: WakuMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAnswer:
    """One page."""

    entries: tuple[StoreEntry, ...]
    """Oldest first."""
    cursor: bytes | None = None
    """Cursor of the next page; None if this is the last one."""
    undecodable: tuple[bytes, ...] = ()
    """Entries that cannot be decoded, as JSON."""
    digest: bytes = b""
    """Digest of all entries, also of those that the query did not ask for."""


class _Time(msgspec.Struct):
    timestamp: int


class _Dated(msgspec.Struct):
    message: _Time


class _Key(msgspec.Struct, rename="camel"):
    message_hash: str


class _Answer(msgspec.Struct, rename="camel"):
    status_code: int
    messages: list[msgspec.Raw]
    status_desc: str = ""
    pagination_cursor: str | None = None


class _Page(msgspec.Struct):
    messages: list[msgspec.Raw] | None = None


_ENTRY: Final = msgspec.json.Decoder(StoredEntry)


def store_request(
    query: StoreQuery, cursor: bytes | None = None, *, peer: str | None = None, include_data: bool = True
) -> str:
    """Return path and query string for a page, with messages or only with their hashes.

    ``peer`` is the multiaddr of the store node that the node queries; by default it uses its own store. If there are
    more than `MAX_CONTENT_TOPICS` content topics, or one with a comma, the page has all content topics and the caller
    selects.
    """
    parameters: dict[str, str] = {"includeData": "true" if include_data else "false"}
    if peer:
        parameters["peerAddr"] = peer
    if query.message_hashes:
        parameters["hashes"] = ",".join(f"0x{item.hex()}" for item in query.message_hashes)
    else:
        if query.pubsub_topic:
            parameters["pubsubTopic"] = query.pubsub_topic
        if 0 < len(query.content_topics) <= MAX_CONTENT_TOPICS and not any(
            "," in item for item in query.content_topics
        ):
            parameters["contentTopics"] = ",".join(query.content_topics)
        # A bound outside all timestamps is omitted; a node may refuse a range with two bounds for its length.
        if query.start_ns is not None and query.start_ns > 0:
            parameters["startTime"] = str(query.start_ns)
        if query.end_ns is not None and query.end_ns < _INT64:
            parameters["endTime"] = str(query.end_ns - 1)
    if cursor is not None:
        parameters["cursor"] = f"0x{cursor.hex()}"
    parameters["ascending"] = "false" if query.newest_first else "true"
    parameters["pageSize"] = str(min(query.page_size, MAX_PAGE_SIZE))
    return f"{STORE_PATH}?{urlencode(parameters)}"


def store_hashes(body: bytes) -> tuple[tuple[bytes, ...], bytes | None]:
    """Return the hashes and the cursor in a response without messages; raise `StoreQueryError`."""
    answer = _decoded(body)
    try:
        hashes = tuple(_hash(read_json(bytes(raw), _Key).message_hash) for raw in answer.messages)
    except (DecodeError, ValueError) as error:
        raise StoreQueryError(f"not the answer of a store: {error}") from error
    return hashes, _cursor(answer)


def store_answer(body: bytes, query: StoreQuery) -> StoreAnswer:
    """Return the page in a response, without messages that the query did not ask for; raise `StoreQueryError`."""
    answer = _decoded(body)
    entries, undecodable = _entries(answer.messages)
    asked = tuple(entry for entry in entries if _asked_for(entry, query))
    digest = digest_of([*(entry.message_hash for entry in entries), *undecodable])
    return StoreAnswer(entries=asked, cursor=_cursor(answer), undecodable=tuple(undecodable), digest=digest)


def digest_of(entries: Iterable[bytes]) -> bytes:
    """Return the digest of a page, by the hashes of its messages."""
    return sha256(b"".join(entries)).digest()


def saved_answer(line: bytes) -> StoreAnswer:
    """Return the messages of a saved line: a page as a node answers it, or one message of a page.

    Raises `DecodeError` for a line that is no JSON object.
    """
    page = read_json(line, _Page)
    entries, undecodable = _entries([line] if page.messages is None else page.messages)
    return StoreAnswer(entries=tuple(entries), undecodable=tuple(undecodable))


def _entries(raws: Iterable[bytes | msgspec.Raw]) -> tuple[list[StoreEntry], list[bytes]]:
    entries: list[StoreEntry] = []
    undecodable: list[bytes] = []
    for raw in raws:
        try:
            entries.append(_entry(_ENTRY.decode(raw)))
        except (msgspec.MsgspecError, DecodeError, ValueError):  # bad hexadecimal text is a ValueError
            undecodable.append(bytes(raw))
    return entries, undecodable


def timestamp_of(entry: bytes) -> int | None:
    """Return the timestamp in nanoseconds of an entry that cannot be decoded, if it has one."""
    try:
        return read_json(entry, _Dated).message.timestamp
    except DecodeError:
        return None


def _decoded(body: bytes) -> _Answer:
    try:
        answer = read_json(body, _Answer)
    except DecodeError as error:
        raise StoreQueryError(f"not the answer of a store: {error}") from error
    if answer.status_code != _SUCCESS:
        kind = StoreRefusedError if is_refusal(answer.status_code, answer.status_desc) else StoreQueryError
        raise kind(f"the store node answers {answer.status_code}: {answer.status_desc}")
    return answer


def _cursor(answer: _Answer) -> bytes | None:
    if not answer.pagination_cursor:
        return None
    try:
        return _hash(answer.pagination_cursor)
    except ValueError as error:
        raise StoreQueryError(f"the cursor {answer.pagination_cursor[:80]!r} is no message hash") from error


def _asked_for(entry: StoreEntry, query: StoreQuery) -> bool:
    if query.message_hashes:
        return entry.message_hash in query.message_hashes
    timestamp_ns = entry.message.timestamp_ns
    return (
        (not query.pubsub_topic or entry.pubsub_topic == query.pubsub_topic)
        and (not query.content_topics or entry.message.content_topic in query.content_topics)
        # A store dates a message without a timestamp by its arrival.
        and (not timestamp_ns or query.start_ns is None or timestamp_ns >= query.start_ns)
        and (not timestamp_ns or query.end_ns is None or timestamp_ns < query.end_ns)
    )


def _entry(entry: StoredEntry) -> StoreEntry:
    if not isinstance(entry.message, JsonMessage) or not isinstance(entry.pubsub_topic, str):
        raise DecodeError("an entry without a message or a pubsub topic")
    return StoreEntry(
        message_hash=_hash(entry.message_hash),
        pubsub_topic=entry.pubsub_topic,
        message=stored_message_of(entry.message),
    )


def _hash(text: str) -> bytes:
    value = bytes.fromhex(text.removeprefix("0x"))
    if len(value) != MESSAGE_HASH_BYTES:
        raise ValueError(text)
    return value
