"""SDS messages and their two wires.

`SdsMessage` is the model of both wires. `WAKU_SDS` is the codec of the SDS specification and js-waku, `NIM_SDS` that of
nim-sds. They use different field numbers; the profile of a channel chooses the codec.

The Lamport timestamp and the content determine whether a message is content, sync or ephemeral (SDS, "Message").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.bloom import NIM_BLOOM, WAKU_BLOOM, BloomParameters, BloomWire
from fairway.wire.proto import sds_pb2
from fairway.wire.protobuf import ENCODE_FAULTS, encode, parse

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


class SdsMessage(Struct, frozen=True, kw_only=True, gc=False):
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

    leaves: bool = False
    """Whether it is the last sync message of a sender whose channel stops; a field like ``vouches``."""

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


def _check_message(message_id: str, sender_id: str, channel_id: str, entries: int) -> None:
    if (
        len(message_id) > _SHORT_NAME_LENGTH
        or len(sender_id) > _SHORT_NAME_LENGTH
        or len(channel_id) > _SHORT_NAME_LENGTH
    ):
        _check_names(message_id.encode(), sender_id.encode(), channel_id.encode())
    if entries > MAX_ENTRIES:
        raise DecodeError(f"SDS message: {entries} entries, at most {MAX_ENTRIES} are read")


def _check_names(*names: bytes) -> None:
    longest = max(map(len, names))
    if longest > MAX_NAME_LENGTH:
        raise DecodeError(f"SDS: an id or a hint of {longest} bytes, more than {MAX_NAME_LENGTH}")


class _EntryCache(dict[bytes, HistoryEntry]):
    """Decoded history entries by their bytes; those of at most `_REMEMBERED_LENGTH` bytes are cached."""

    def __init__(self, decode: Callable[[bytes], HistoryEntry]) -> None:
        super().__init__()
        self._decode = decode

    def __missing__(self, data: bytes) -> HistoryEntry:
        entry = self._decode(data)
        if len(data) <= _REMEMBERED_LENGTH:
            if len(self) >= _REMEMBERED_ENTRIES:
                self.clear()
            self[data] = entry
        return entry


@lru_cache(_REMEMBERED_ENTRIES)
def _encode_entry(entry: HistoryEntry) -> bytes:
    raw = sds_pb2.HistoryEntry()
    raw.message_id, retrieval_hint, sender_id = entry
    if retrieval_hint is not None:
        raw.retrieval_hint = retrieval_hint
    if sender_id is not None:
        raw.sender_id = sender_id
    return raw.SerializeToString()


def _decode_entry(data: bytes) -> HistoryEntry:
    raw = parse(sds_pb2.HistoryEntry, data, max_bytes=MAX_SDS_BYTES)
    retrieval_hint: bytes | None = raw.retrieval_hint
    sender_id: str | None = raw.sender_id
    if len(data) > MAX_NAME_LENGTH:
        _check_names(raw.message_id.encode(), raw.retrieval_hint, raw.sender_id.encode())
    if not retrieval_hint and not raw.HasField("retrieval_hint"):
        retrieval_hint = None
    if not sender_id and not raw.HasField("sender_id"):
        sender_id = None
    return HistoryEntry(raw.message_id, retrieval_hint, sender_id)


_entry_of = _EntryCache(_decode_entry).__getitem__


class _WakuSds:
    """The wire of the SDS specification and js-waku."""

    name = "waku"
    bloom = WAKU_BLOOM
    no_bloom: bytes | None = None

    def encode(self, message: SdsMessage) -> bytes:
        raw = sds_pb2.SdsMessage()
        try:
            raw.sender_id = message.sender_id
            raw.message_id = message.message_id
            raw.channel_id = message.channel_id
            if message.lamport_timestamp is not None:
                raw.lamport_timestamp = message.lamport_timestamp
            if message.causal_history:
                raw.causal_history.extend(map(_encode_entry, message.causal_history))
            if message.bloom_filter is not None:
                raw.bloom_filter = message.bloom_filter
            if message.repair_request:
                raw.repair_request.extend(map(_encode_entry, message.repair_request))
            if message.content is not None:
                raw.content = message.content
            raw.vouches = message.vouches
            if message.leaves:
                raw.leaves = True
            return raw.SerializeToString()
        except ENCODE_FAULTS as error:
            raise ConfigurationError(f"SdsMessage cannot be encoded: {error}") from error

    def decode(self, data: bytes) -> SdsMessage:
        raw = parse(sds_pb2.SdsMessage, data, max_bytes=MAX_SDS_BYTES)
        lamport: int | None = raw.lamport_timestamp
        bloom: bytes | None = raw.bloom_filter
        content: bytes | None = raw.content
        # Only a default value can be absent.
        if not lamport and not raw.HasField("lamport_timestamp"):
            if not content:
                raise DecodeError("SDS message: neither a Lamport timestamp nor content")
            lamport = None
        if not bloom and not raw.HasField("bloom_filter"):
            bloom = None
        if not content and not raw.HasField("content"):
            content = None
        message_id, sender_id, channel_id = raw.message_id, raw.sender_id, raw.channel_id
        history, requests = raw.causal_history, raw.repair_request
        _check_message(message_id, sender_id, channel_id, len(history) + len(requests))
        return SdsMessage(
            message_id=message_id,
            sender_id=sender_id,
            channel_id=channel_id,
            lamport_timestamp=lamport,
            causal_history=tuple(map(_entry_of, history)) if history else (),
            bloom_filter=bloom,
            repair_request=tuple(map(_entry_of, requests)) if requests else (),
            content=content,
            vouches=raw.vouches,
            leaves=raw.leaves,
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


def _decode_nim_entry(data: bytes) -> HistoryEntry:
    try:
        raw = parse(sds_pb2.NimHistoryEntry, data, max_bytes=MAX_SDS_BYTES)
    except DecodeError:
        # The first version of nim-sds wrote bare ids; the present one still reads them.
        try:
            bare_id = data.decode()
        except UnicodeDecodeError as error:
            raise DecodeError("nim-sds history entry: neither an entry nor a bare id") from error
        _check_names(data)
        return HistoryEntry(bare_id)
    if not raw.message_id:
        raise DecodeError("nim-sds history entry: no message id")
    _check_names(raw.message_id.encode(), raw.retrieval_hint, raw.sender_id.encode())
    return HistoryEntry(raw.message_id, raw.retrieval_hint or None, raw.sender_id or None)


_nim_entry_of = _EntryCache(_decode_nim_entry).__getitem__


class _NimSds:
    """The wire of nim-sds; its field numbers are not the specification's."""

    name = "nim"
    bloom = NIM_BLOOM
    no_bloom: bytes | None = b""

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
            leaves=message.leaves,
        )

    def decode(self, data: bytes) -> SdsMessage:
        raw = parse(sds_pb2.NimSdsMessage, data, max_bytes=MAX_SDS_BYTES)
        for name in ("message_id", "lamport_timestamp", "channel_id", "content"):
            if not raw.HasField(name):
                raise DecodeError(f"nim-sds message: the required field {name} is missing")
        message_id, sender_id, channel_id = raw.message_id, raw.sender_id, raw.channel_id
        history, requests = raw.causal_history, raw.repair_request
        _check_message(message_id, sender_id, channel_id, len(history) + len(requests))
        return SdsMessage(
            message_id=message_id,
            sender_id=sender_id,
            channel_id=channel_id,
            lamport_timestamp=raw.lamport_timestamp,
            causal_history=tuple(map(_nim_entry_of, history)),
            bloom_filter=raw.bloom_filter if raw.HasField("bloom_filter") else None,
            repair_request=tuple(map(_nim_entry_of, requests)),
            content=raw.content,
            vouches=raw.vouches,
            leaves=raw.leaves,
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
