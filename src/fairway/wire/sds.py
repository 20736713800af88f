"""SDS messages and their two wires.

`SdsMessage` is the model of both wires. `WAKU_SDS` is the codec of the SDS specification and js-waku, `NIM_SDS` that of
nim-sds. They use different field numbers; the profile of a channel chooses the codec.

The Lamport timestamp and the content determine whether a message is content, sync or ephemeral (SDS, "Message").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, wraps
from typing import Final, NamedTuple, Protocol, TypeVar

from fairway.errors import DecodeError
from fairway.wire.bloom import NIM_BLOOM, WAKU_BLOOM, BloomParameters, BloomWire
from fairway.wire.proto import sds_pb2
from fairway.wire.protobuf import encode, parse

MAX_SDS_BYTES: Final = 1_048_576
"""Size of the longest message that is decoded; a WakuMessage cannot have more."""
MAX_ENTRIES: Final = 10_000
"""Most history entries, or repair requests, of a message that is decoded; js-waku sends 200."""
MAX_NAME_LENGTH: Final = 256
"""Bytes of the longest id or hint that is decoded. The channel stores them longer than the message, and later messages
cite them next to a full segment. Implementations write 64 and 32 bytes."""
_SHORT_NAME_LENGTH: Final = MAX_NAME_LENGTH // 4
"""Characters of a text that always fits: a character has at most four bytes in UTF-8."""
_MAX_BLOOM_HASHES: Final = 64
"""Most hash functions of a received filter on the Logos wire."""
_REMEMBERED_ENTRIES: Final = 16_384
"""Cached history entries, about 500 bytes each; consecutive messages repeat most of their entries."""
_REMEMBERED_LENGTH: Final = 512
"""Bytes of the longest cached entry."""
_RECENT_MESSAGES: Final = 31
_RECENT_BYTES: Final = 65_536
"""Bytes of the longest cached message."""
_ALIGNMENT: Final = 16
"""Alignment of objects in memory, in bytes."""

Codec = TypeVar("Codec")
Given = TypeVar("Given")
Result = TypeVar("Result")


class Kind(Enum):
    """The three kinds of SDS messages."""

    CONTENT = "content"
    SYNC = "sync"
    EPHEMERAL = "ephemeral"


class HistoryEntry(NamedTuple):
    """A cited message (SDS, "Message": HistoryEntry)."""

    message_id: str
    retrieval_hint: bytes | None = None
    """Deterministic hash of its WakuMessage, for a store query."""
    sender_id: str | None = None
    """Sender id of the cited message, for SDS-R."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SdsMessage:
    """One SDS message, of any kind and on any wire (SDS, "Message")."""

    message_id: str
    sender_id: str
    channel_id: str
    lamport_timestamp: int | None = None
    """Timestamp in the unit of the profile: milliseconds (Waku), seconds (Logos). Absent on ephemeral messages."""
    causal_history: tuple[HistoryEntry, ...] = ()
    """Oldest first."""
    bloom_filter: bytes | None = None
    """The filter's words in the order of the wire; `SdsCodec.read_bloom` reads them."""
    repair_request: tuple[HistoryEntry, ...] = ()
    content: bytes | None = None
    vouches: bool = False
    """Whether its sender claims to have all ancestors of its citations (`fairway.protocol.sds.vouching`).

    This field is fairway's own and has four bytes if it is true; js-waku and nim-sds skip unknown fields."""

    @property
    def kind(self) -> Kind:
        """Return the kind of this message."""
        if not self.content:
            return Kind.SYNC
        return Kind.EPHEMERAL if self.lamport_timestamp is None else Kind.CONTENT


class ReceivedBloom(NamedTuple):
    """A peer's filter: its words and parameters."""

    words: bytes
    parameters: BloomParameters


class SdsCodec(Protocol):
    """A wire format of SDS."""

    name: str
    bloom: BloomWire
    no_bloom: bytes | None
    """The decoded bloom field of a message without a filter."""

    def encode(self, message: SdsMessage) -> bytes:
        """Return the bytes of a message."""

    def decode(self, data: bytes) -> SdsMessage:
        """Return the message in data, or raise `DecodeError`."""

    def write_bloom(self, words: bytes, parameters: BloomParameters) -> bytes:
        """Return the bloom field for a filter's words."""

    def read_bloom(self, field: bytes, expected: BloomParameters) -> ReceivedBloom | None:
        """Return the filter in a bloom field, or None without one; None is not an error."""


def _size_bytes(name: str) -> int:
    return len(name) if name.isascii() else len(name.encode())


def _check_message(message_id: str, sender_id: str, channel_id: str, entries: int) -> None:
    for name in (message_id, sender_id, channel_id):
        if len(name) > _SHORT_NAME_LENGTH and _size_bytes(name) > MAX_NAME_LENGTH:
            raise DecodeError(f"SDS message: an id of more than {MAX_NAME_LENGTH} bytes")
    if entries > MAX_ENTRIES:
        raise DecodeError(f"SDS message: {entries} entries, at most {MAX_ENTRIES} are read")


def _check_entry(message_id: str, retrieval_hint: bytes, sender_id: str) -> None:
    if max(_size_bytes(message_id), len(retrieval_hint), _size_bytes(sender_id)) > MAX_NAME_LENGTH:
        raise DecodeError(f"SDS history entry: an id or a hint of more than {MAX_NAME_LENGTH} bytes")


class _EntryReader(dict[bytes, HistoryEntry]):
    """Decodes history entries, and caches those of at most `_REMEMBERED_LENGTH` bytes."""

    def __init__(self, decode: Callable[[bytes], HistoryEntry]) -> None:
        super().__init__()
        self._decode = decode

    def __call__(self, entries: Sequence[bytes]) -> tuple[HistoryEntry, ...]:
        return tuple(map(self.__getitem__, entries)) if entries else ()

    def __missing__(self, data: bytes) -> HistoryEntry:
        entry = self._decode(data)
        if len(data) <= _REMEMBERED_LENGTH:
            if len(self) >= _REMEMBERED_ENTRIES:
                self.clear()
            self[data] = entry
        return entry


@lru_cache(_REMEMBERED_ENTRIES)
def _encode_entry(entry: HistoryEntry) -> bytes:
    message_id, retrieval_hint, sender_id = entry
    return sds_pb2.HistoryEntry(
        message_id=message_id, retrieval_hint=retrieval_hint, sender_id=sender_id
    ).SerializeToString()


@_EntryReader
def _decode_entries(data: bytes) -> HistoryEntry:
    raw = parse(sds_pb2.HistoryEntry, data, max_bytes=MAX_SDS_BYTES)
    if len(data) > MAX_NAME_LENGTH:
        _check_entry(raw.message_id, raw.retrieval_hint, raw.sender_id)
    return HistoryEntry(
        raw.message_id,
        raw.retrieval_hint if raw.HasField("retrieval_hint") else None,
        raw.sender_id if raw.HasField("sender_id") else None,
    )


def _once(convert: Callable[[Codec, Given], Result]) -> Callable[[Codec, Given], Result]:
    """Decode or encode, and cache the result.

    A process passes a received message to all its channels on a content topic. It encodes a sent message again for
    repairs and for the store. The key of the cache is the object itself, so no bytes are compared.
    """
    places: list[tuple[Given, Result] | None] = [None] * _RECENT_MESSAGES

    @wraps(convert)
    def converted(codec: Codec, given: Given) -> Result:
        place = id(given) // _ALIGNMENT % _RECENT_MESSAGES
        known = places[place]
        if known is not None and known[0] is given:
            return known[1]
        result = convert(codec, given)
        data = given if isinstance(given, bytes) else result
        if isinstance(data, bytes) and len(data) <= _RECENT_BYTES:
            places[place] = given, result
        return result

    return converted


class _WakuSds:
    """The wire of the SDS specification and js-waku."""

    name = "waku"
    bloom = WAKU_BLOOM
    no_bloom: bytes | None = None

    @_once
    def encode(self, message: SdsMessage) -> bytes:
        return encode(
            sds_pb2.SdsMessage,
            sender_id=message.sender_id,
            message_id=message.message_id,
            channel_id=message.channel_id,
            lamport_timestamp=message.lamport_timestamp,
            causal_history=map(_encode_entry, message.causal_history),
            bloom_filter=message.bloom_filter,
            repair_request=map(_encode_entry, message.repair_request),
            content=message.content,
            vouches=message.vouches,
        )

    @_once
    def decode(self, data: bytes) -> SdsMessage:
        raw = parse(sds_pb2.SdsMessage, data, max_bytes=MAX_SDS_BYTES)
        content: bytes | None = raw.content if raw.HasField("content") else None
        lamport: int | None = raw.lamport_timestamp if raw.HasField("lamport_timestamp") else None
        if lamport is None and not content:
            raise DecodeError("SDS message: neither a Lamport timestamp nor content")
        history, requests = raw.causal_history, raw.repair_request
        _check_message(raw.message_id, raw.sender_id, raw.channel_id, len(history) + len(requests))
        return SdsMessage(
            message_id=raw.message_id,
            sender_id=raw.sender_id,
            channel_id=raw.channel_id,
            lamport_timestamp=lamport,
            causal_history=_decode_entries(history),
            bloom_filter=raw.bloom_filter if raw.HasField("bloom_filter") else None,
            repair_request=_decode_entries(requests),
            content=content,
            vouches=raw.vouches,
        )

    def write_bloom(self, words: bytes, parameters: BloomParameters) -> bytes:  # noqa: ARG002 - not on this wire
        return words

    def read_bloom(self, field: bytes, expected: BloomParameters) -> ReceivedBloom | None:
        # The wire has no parameters. Extra bytes are ignored, as in js-waku; with too few bytes there is no filter.
        return ReceivedBloom(field, expected) if len(field) >= expected.byte_length else None


@lru_cache(_REMEMBERED_ENTRIES)
def _encode_nim_entry(entry: HistoryEntry) -> bytes:
    return sds_pb2.NimHistoryEntry(
        message_id=entry.message_id,
        retrieval_hint=entry.retrieval_hint or b"",
        sender_id=entry.sender_id or "",
    ).SerializeToString()


def _encode_nim_entries(entries: tuple[HistoryEntry, ...]) -> Iterator[bytes]:
    # Readers refuse a whole message for one entry without an id, so such entries are not written.
    return (_encode_nim_entry(entry) for entry in entries if entry.message_id)


@_EntryReader
def _decode_nim_entries(data: bytes) -> HistoryEntry:
    try:
        raw = parse(sds_pb2.NimHistoryEntry, data, max_bytes=MAX_SDS_BYTES)
    except DecodeError:
        # The first version of nim-sds wrote bare ids; the present one still reads them.
        try:
            bare_id = data.decode()
        except UnicodeDecodeError as error:
            raise DecodeError("nim-sds history entry: neither an entry nor a bare id") from error
        _check_entry(bare_id, b"", "")
        return HistoryEntry(bare_id)
    if not raw.message_id:
        raise DecodeError("nim-sds history entry: no message id")
    _check_entry(raw.message_id, raw.retrieval_hint, raw.sender_id)
    return HistoryEntry(raw.message_id, raw.retrieval_hint or None, raw.sender_id or None)


class _NimSds:
    """The wire of nim-sds; its field numbers are not the specification's."""

    name = "nim"
    bloom = NIM_BLOOM
    no_bloom: bytes | None = b""

    @_once
    def encode(self, message: SdsMessage) -> bytes:
        return encode(
            sds_pb2.NimSdsMessage,
            message_id=message.message_id,
            # nim-sds requires this field: zero for a message without a timestamp.
            lamport_timestamp=message.lamport_timestamp or 0,
            causal_history=_encode_nim_entries(message.causal_history),
            channel_id=message.channel_id,
            content=message.content or b"",
            bloom_filter=message.bloom_filter or b"",
            sender_id=message.sender_id,
            repair_request=_encode_nim_entries(message.repair_request),
            vouches=message.vouches,
        )

    @_once
    def decode(self, data: bytes) -> SdsMessage:
        raw = parse(sds_pb2.NimSdsMessage, data, max_bytes=MAX_SDS_BYTES)
        for name in ("message_id", "lamport_timestamp", "channel_id", "content"):
            if not raw.HasField(name):
                raise DecodeError(f"nim-sds message: the required field {name} is missing")
        history, requests = raw.causal_history, raw.repair_request
        _check_message(raw.message_id, raw.sender_id, raw.channel_id, len(history) + len(requests))
        return SdsMessage(
            message_id=raw.message_id,
            sender_id=raw.sender_id,
            channel_id=raw.channel_id,
            lamport_timestamp=raw.lamport_timestamp,
            causal_history=_decode_nim_entries(history),
            bloom_filter=raw.bloom_filter if raw.HasField("bloom_filter") else None,
            repair_request=_decode_nim_entries(requests),
            content=raw.content,
            vouches=raw.vouches,
        )

    def write_bloom(self, words: bytes, parameters: BloomParameters) -> bytes:
        return sds_pb2.NimBloomFilter(
            words=words,
            capacity=parameters.capacity,
            error_rate_millionths=int(parameters.error_rate * 1e6),
            hash_count=parameters.hash_count,
            bit_count=parameters.bit_count,
        ).SerializeToString()

    def read_bloom(self, field: bytes, expected: BloomParameters) -> ReceivedBloom | None:  # noqa: ARG002 - told here
        try:
            raw = parse(sds_pb2.NimBloomFilter, field, max_bytes=MAX_SDS_BYTES)
        except DecodeError:
            return None
        names = ("words", "capacity", "error_rate_millionths", "hash_count", "bit_count")
        if not all(raw.HasField(name) for name in names):
            return None
        if not (0 < raw.hash_count <= _MAX_BLOOM_HASHES and 0 < raw.bit_count <= 8 * len(raw.words)):
            return None
        return ReceivedBloom(
            raw.words,
            BloomParameters(
                capacity=raw.capacity,
                error_rate=raw.error_rate_millionths / 1e6,
                hash_count=raw.hash_count,
                bit_count=raw.bit_count,
            ),
        )


WAKU_SDS: Final[SdsCodec] = _WakuSds()
"""The SDS specification and js-waku."""
NIM_SDS: Final[SdsCodec] = _NimSds()
"""nim-sds, and logos-delivery which wraps it."""
