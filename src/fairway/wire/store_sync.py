"""Synchronization of stores (WAKU-SYNC): the payloads of reconciliation and of transfer.

Two store nodes compare ids of messages by ranges. A payload of reconciliation has the topics of its sender and adjacent
ranges. A range has a fingerprint, its ids, or nothing if it needs no comparison. A transfer carries one message.

The layout is that of nwaku (``waku/waku_store_sync/codec.nim``), which differs from WAKU-SYNC:

- A payload names pubsub topics and content topics, in place of a cluster and shards; no topic means all.
- The start of the first range follows the topics. WAKU-SYNC begins each payload with a range from time 0.
- A bound with the time of the bound before it has a prefix of a hash, to be filled up with zeros.
- A payload without ranges, which ends a session, is one zero byte.
- In a transfer, the pubsub topic is field 1 and the message field 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.proto import lightpush_pb2
from fairway.wire.protobuf import encode, parse
from fairway.wire.varint import MAX_UVARINT, MAX_UVARINT_BYTES, encode_uvarint, length_prefixed
from fairway.wire.waku_message import DEFAULT_MAX_ENVELOPE_BYTES, MESSAGE_HASH_BYTES

RECONCILIATION_PROTOCOL: Final = "/vac/waku/reconciliation/1.0.0"
"""Protocol identifier."""
TRANSFER_PROTOCOL: Final = "/vac/waku/transfer/1.0.0"
"""Protocol identifier."""
MAX_PAYLOAD_BYTES: Final = 4_194_304
"""Size of the longest payload that is parsed: 100,000 ids."""
MAX_RANGES: Final = 65_536
"""Most ranges of a payload that is parsed."""
MAX_TOPICS: Final = 1_024
"""Most pubsub topics, and most content topics, of a payload that is parsed."""
MAX_TRANSFER_BYTES: Final = DEFAULT_MAX_ENVELOPE_BYTES
"""Size of the longest transfer that is parsed."""
ZERO_HASH: Final = bytes(MESSAGE_HASH_BYTES)
"""The smallest message hash: that of the bounds of most ranges."""
_SKIP, _FINGERPRINT, _ITEM_SET = 0, 1, 2
_NO_RANGES: Final = b"\0"


class SyncId(NamedTuple):
    """The id of a message; ids are ordered by time, then by hash."""

    timestamp_ns: int
    message_hash: bytes
    """32 bytes."""


@dataclass(frozen=True, slots=True)
class ItemSet:
    """All ids of a range at one node."""

    ids: tuple[SyncId, ...]
    """In ascending order."""
    reconciled: bool
    """Whether the sender has the ids of the receiver already, so that the receiver does not send them."""


@dataclass(frozen=True, slots=True)
class SyncRange:
    """The ids from ``start`` up to ``end``, which is not included."""

    start: SyncId
    end: SyncId
    content: bytes | ItemSet | None = None
    """The fingerprint of the ids, the ids, or None if they need no comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPayload:
    """A payload of reconciliation."""

    pubsub_topics: tuple[str, ...] = ()
    """The pubsub topics of the sender; empty means all."""
    content_topics: tuple[str, ...] = ()
    """The content topics of the sender; empty means all."""
    ranges: tuple[SyncRange, ...] = ()
    """Each begins where the one before ends; empty ends the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A message on its way to a store that lacks it."""

    pubsub_topic: str
    message_bytes: bytes
    """The encoded `WakuMessage`."""


def encode_sync_payload(payload: SyncPayload) -> bytes:
    """Return the bytes of a payload; raise `ConfigurationError` for times that do not ascend from 0."""
    if not payload.ranges:
        return _NO_RANGES
    encoded = bytearray()
    for topics in (payload.pubsub_topics, payload.content_topics):
        encoded += encode_uvarint(len(topics))
        for topic in topics:
            encoded += length_prefixed(topic.encode())
    at_ns = payload.ranges[0].start.timestamp_ns
    encoded += encode_uvarint(at_ns)
    for one in payload.ranges:
        encoded += encode_uvarint(one.end.timestamp_ns - at_ns)
        if one.end.timestamp_ns == at_ns:
            encoded += length_prefixed(one.end.message_hash.rstrip(b"\0"))
        at_ns = one.end.timestamp_ns
        encoded += _content(one.content)
    return bytes(encoded)


def decode_sync_payload(data: bytes) -> SyncPayload:
    """Return the payload in ``data``, or raise `DecodeError`; the order of ids within a range is not checked."""
    if len(data) > MAX_PAYLOAD_BYTES:
        raise DecodeError(f"a payload of reconciliation has {len(data)} bytes, at most {MAX_PAYLOAD_BYTES} are read")
    if len(data) <= 1:
        return SyncPayload()
    reader = _Reader(data)
    pubsub_topics, content_topics = reader.topics(), reader.topics()
    bound = SyncId(reader.number(), ZERO_HASH)
    ranges: list[SyncRange] = []
    while not reader.is_at_end:
        if len(ranges) == MAX_RANGES:
            raise DecodeError(f"a payload of reconciliation has more than {MAX_RANGES} ranges")
        start, bound = bound, reader.bound(bound.timestamp_ns)
        if bound <= start:
            # WAKU-SYNC, "RangeBounds": "The lower bound MUST be strictly smaller than the upper bound."
            raise DecodeError(f"range {len(ranges)} of a payload of reconciliation does not end after its start")
        ranges.append(SyncRange(start, bound, reader.content()))
    return SyncPayload(pubsub_topics=pubsub_topics, content_topics=content_topics, ranges=tuple(ranges))


def encode_transfer(transfer: Transfer) -> bytes:
    """Return a transfer as protobuf."""
    # A request of 19/WAKU2-LIGHTPUSH has the same two fields.
    return encode(lightpush_pb2.PushRequestV2, pubsub_topic=transfer.pubsub_topic, message=transfer.message_bytes)


def decode_transfer(data: bytes) -> Transfer:
    """Return the transfer in ``data``, or raise `DecodeError`; its message is not decoded."""
    parsed = parse(lightpush_pb2.PushRequestV2, data, max_bytes=MAX_TRANSFER_BYTES)
    if not parsed.pubsub_topic or not parsed.HasField("message"):
        raise DecodeError("a transfer needs a pubsub topic (1) and a message (2)")
    return Transfer(pubsub_topic=parsed.pubsub_topic, message_bytes=parsed.message)


def _content(content: bytes | ItemSet | None) -> bytes:
    if content is None:
        return bytes((_SKIP,))
    if isinstance(content, bytes):
        return bytes((_FINGERPRINT,)) + content
    encoded = bytearray((_ITEM_SET,))
    encoded += encode_uvarint(len(content.ids))
    before_ns = 0
    for timestamp_ns, message_hash in content.ids:
        if len(message_hash) != MESSAGE_HASH_BYTES:
            raise ConfigurationError(f"a message hash has {MESSAGE_HASH_BYTES} bytes, not {len(message_hash)}")
        encoded += encode_uvarint(timestamp_ns - before_ns)
        encoded += message_hash
        before_ns = timestamp_ns
    encoded.append(content.reconciled)
    return bytes(encoded)


class _Reader:
    """The rest of a payload."""

    def __init__(self, data: bytes) -> None:
        self._data: Final = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self._at == len(self._data)

    def number(self) -> int:
        """Return a varint, as WAKU-SYNC, "Varint encoding", defines it; longer forms of a number are read, too."""
        value = 0
        for count, byte in enumerate(self._data[self._at : self._at + MAX_UVARINT_BYTES]):
            value |= (byte & 0x7F) << (7 * count)
            if byte < 0x80:
                self._at += count + 1
                return value
        raise DecodeError(f"a payload of reconciliation has no number at byte {self._at}")

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise DecodeError(f"a payload of reconciliation ends after {len(self._data)} bytes, within a field")
        self._at += size
        return taken

    def topics(self) -> tuple[str, ...]:
        """Return the topics of one kind."""
        count = self.number()
        if count > MAX_TOPICS:
            raise DecodeError(f"a payload of reconciliation has {count} topics, at most {MAX_TOPICS} are read")
        try:
            return tuple(self.take(self.number()).decode() for _ in range(count))
        except UnicodeDecodeError as error:
            raise DecodeError(f"a topic of a payload of reconciliation is no text: {error}") from error

    def bound(self, before_ns: int) -> SyncId:
        """Return the end of a range; ``before_ns`` is the time of its start."""
        after_ns = self.number()
        if after_ns:
            return SyncId(_time(before_ns + after_ns), ZERO_HASH)
        size = self.take(1)[0]
        if size > MESSAGE_HASH_BYTES:
            raise DecodeError(f"a message hash has {MESSAGE_HASH_BYTES} bytes, not {size}")
        return SyncId(before_ns, self.take(size).ljust(MESSAGE_HASH_BYTES, b"\0"))

    def content(self) -> bytes | ItemSet | None:
        """Return the content of a range."""
        kind = self.take(1)[0]
        if kind == _SKIP:
            return None
        if kind == _FINGERPRINT:
            return self.take(MESSAGE_HASH_BYTES)
        if kind != _ITEM_SET:
            raise DecodeError(f"a range has an unknown type: {kind}")
        ids: list[SyncId] = []
        at_ns = 0
        for _ in range(self.number()):
            at_ns = _time(at_ns + self.number())
            ids.append(SyncId(at_ns, self.take(MESSAGE_HASH_BYTES)))
        reconciled = self.take(1)[0]
        if reconciled > 1:
            raise DecodeError(f"the end of an item set is 0 or 1, not {reconciled}")
        return ItemSet(tuple(ids), bool(reconciled))


def _time(timestamp_ns: int) -> int:
    if timestamp_ns > MAX_UVARINT:
        raise DecodeError("a time in a payload of reconciliation is beyond 2**63 - 1 ns")
    return timestamp_ns
