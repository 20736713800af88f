"""SDS messages and their two wires.

One model, `SdsMessage`, and two codecs: `WAKU_SDS` writes the bytes of the SDS specification and js-waku, `NIM_SDS`
those of nim-sds. They share no field numbers, so a channel's profile decides which is used; nothing is guessed.

What makes a message content, sync or ephemeral is decided from two fields alone (SDS spec, "Message"): whether it has a
Lamport timestamp and whether its content is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from google.protobuf.message import DecodeError as ProtobufDecodeError

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.bloom import NIM_BLOOM, WAKU_BLOOM, BloomParameters, BloomWire
from fairway.wire.proto import sds_pb2

MAX_SDS_BYTES: Final = 1_048_576
"""Longer input is refused unread; a WakuMessage cannot carry more."""
MAX_ENTRIES: Final = 10_000
"""History entries, or repair requests, beyond which a message is refused; js-waku sends 200."""
_MAX_BLOOM_HASHES: Final = 64
"""Hash functions that a received filter of the Logos wire may claim to have."""
_REMEMBERED_ENTRIES: Final = 65_536
"""History entries whose bytes are remembered; consecutive messages repeat nearly all of theirs."""


class Kind(Enum):
    """The three kinds of SDS messages."""

    CONTENT = "content"
    SYNC = "sync"
    EPHEMERAL = "ephemeral"


class HistoryEntry(NamedTuple):
    """A message that another one cites (SDS spec, HistoryEntry)."""

    message_id: str
    retrieval_hint: bytes | None = None
    """Deterministic hash of the WakuMessage that carried it, for a store query."""
    sender_id: str | None = None
    """Its author, which SDS-R needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SdsMessage:
    """One SDS message, of any kind and on any wire (SDS spec, Message)."""

    message_id: str
    sender_id: str
    channel_id: str
    lamport_timestamp: int | None = None
    """In the unit of the profile: milliseconds (Waku), seconds (Logos). Absent on ephemeral messages."""
    causal_history: tuple[HistoryEntry, ...] = ()
    """Oldest first."""
    bloom_filter: bytes | None = None
    """The filter's words in the order of the wire; `SdsCodec.read_bloom` takes them apart."""
    repair_request: tuple[HistoryEntry, ...] = ()
    content: bytes | None = None

    @property
    def kind(self) -> Kind:
        """Return what this message is."""
        if not self.content:
            return Kind.SYNC
        return Kind.EPHEMERAL if self.lamport_timestamp is None else Kind.CONTENT


class ReceivedBloom(NamedTuple):
    """A peer's filter: its words and how to look ids up in them."""

    words: bytes
    parameters: BloomParameters


class SdsCodec(Protocol):
    """What a wire of SDS can do."""

    name: str
    bloom: BloomWire

    def encode(self, message: SdsMessage) -> bytes:
        """Return the bytes of a message."""

    def decode(self, data: bytes) -> SdsMessage:
        """Return the message in data, or raise `DecodeError`."""

    def write_bloom(self, words: bytes, parameters: BloomParameters) -> bytes:
        """Return the bloom field for a filter's words."""

    def read_bloom(self, field: bytes, expected: BloomParameters) -> ReceivedBloom | None:
        """Return the filter in a bloom field, or None if it cannot be one (which is not an error)."""


def _parse(schema: Callable[[bytes], Any], data: bytes, what: str) -> Any:
    if len(data) > MAX_SDS_BYTES:
        raise DecodeError(f"{what}: {len(data)} bytes, at most {MAX_SDS_BYTES} are read")
    try:
        return schema(data)
    except (ProtobufDecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"{what}: {len(data)} bytes that are not a protobuf message of this type") from error


def _check_entries(count: int, what: str) -> None:
    if count > MAX_ENTRIES:
        raise DecodeError(f"{what}: {count} entries, at most {MAX_ENTRIES} are read")


@lru_cache(_REMEMBERED_ENTRIES)
def _encode_entry(entry: HistoryEntry) -> bytes:
    message_id, retrieval_hint, sender_id = entry
    return sds_pb2.HistoryEntry(
        message_id=message_id, retrieval_hint=retrieval_hint, sender_id=sender_id
    ).SerializeToString()


@lru_cache(_REMEMBERED_ENTRIES)
def _decode_small_entry(data: bytes) -> HistoryEntry:
    return _decode_entry_uncached(data)


def _decode_entry_uncached(data: bytes) -> HistoryEntry:
    raw = _parse(sds_pb2.HistoryEntry.FromString, data, "SDS history entry")
    return HistoryEntry(
        raw.message_id,
        raw.retrieval_hint if raw.HasField("retrieval_hint") else None,
        raw.sender_id if raw.HasField("sender_id") else None,
    )


def _decode_entry(data: bytes) -> HistoryEntry:
    """Decode through the memory, which only entries of ordinary length may enter."""
    return _decode_small_entry(data) if len(data) <= 512 else _decode_entry_uncached(data)


class _WakuSds:
    """The wire of the SDS specification and js-waku."""

    name = "waku"
    bloom = WAKU_BLOOM

    def encode(self, message: SdsMessage) -> bytes:
        return sds_pb2.SdsMessage(
            sender_id=message.sender_id,
            message_id=message.message_id,
            channel_id=message.channel_id,
            lamport_timestamp=message.lamport_timestamp,
            causal_history=map(_encode_entry, message.causal_history),
            bloom_filter=message.bloom_filter,
            repair_request=map(_encode_entry, message.repair_request),
            content=message.content,
        ).SerializeToString()

    def decode(self, data: bytes) -> SdsMessage:
        raw = _parse(sds_pb2.SdsMessage.FromString, data, "SDS message")
        content: bytes | None = raw.content if raw.HasField("content") else None
        lamport: int | None = raw.lamport_timestamp if raw.HasField("lamport_timestamp") else None
        if lamport is None and not content:
            raise DecodeError("SDS message: neither a Lamport timestamp nor content")
        history, requests = raw.causal_history, raw.repair_request
        _check_entries(len(history) + len(requests), "SDS message")
        return SdsMessage(
            message_id=raw.message_id,
            sender_id=raw.sender_id,
            channel_id=raw.channel_id,
            lamport_timestamp=lamport,
            causal_history=tuple(map(_decode_entry, history)),
            bloom_filter=raw.bloom_filter if raw.HasField("bloom_filter") else None,
            repair_request=tuple(map(_decode_entry, requests)),
            content=content,
        )

    def write_bloom(self, words: bytes, parameters: BloomParameters) -> bytes:  # noqa: ARG002 - not on this wire
        return words

    def read_bloom(self, field: bytes, expected: BloomParameters) -> ReceivedBloom | None:
        # Parameters are not on the wire. Further bytes are ignored, as js-waku does; too few make no filter.
        return ReceivedBloom(field, expected) if len(field) >= expected.byte_length else None


@lru_cache(_REMEMBERED_ENTRIES)
def _encode_nim_entry(entry: HistoryEntry) -> bytes:
    return sds_pb2.NimHistoryEntry(
        message_id=entry.message_id,
        retrieval_hint=entry.retrieval_hint or b"",
        sender_id=entry.sender_id or "",
    ).SerializeToString()


@lru_cache(_REMEMBERED_ENTRIES)
def _decode_small_nim_entry(data: bytes) -> HistoryEntry:
    return _decode_nim_entry_uncached(data)


def _decode_nim_entry_uncached(data: bytes) -> HistoryEntry:
    try:
        raw = _parse(sds_pb2.NimHistoryEntry.FromString, data, "nim-sds history entry")
    except DecodeError:
        # The first nim-sds wrote bare ids; the present one still reads them.
        try:
            return HistoryEntry(data.decode())
        except UnicodeDecodeError as error:
            raise DecodeError("nim-sds history entry: neither an entry nor a bare id") from error
    if not raw.message_id:
        raise DecodeError("nim-sds history entry: no message id")
    return HistoryEntry(raw.message_id, raw.retrieval_hint or None, raw.sender_id or None)


def _decode_nim_entry(data: bytes) -> HistoryEntry:
    return _decode_small_nim_entry(data) if len(data) <= 512 else _decode_nim_entry_uncached(data)


class _NimSds:
    """The wire of nim-sds; its field numbers are not the specification's."""

    name = "nim"
    bloom = NIM_BLOOM

    def encode(self, message: SdsMessage) -> bytes:
        return sds_pb2.NimSdsMessage(
            message_id=message.message_id,
            # Required there, so that a message without one carries zero.
            lamport_timestamp=message.lamport_timestamp or 0,
            causal_history=map(_encode_nim_entry, message.causal_history),
            channel_id=message.channel_id,
            content=message.content or b"",
            bloom_filter=message.bloom_filter or b"",
            sender_id=message.sender_id,
            repair_request=map(_encode_nim_entry, message.repair_request),
        ).SerializeToString()

    def decode(self, data: bytes) -> SdsMessage:
        raw = _parse(sds_pb2.NimSdsMessage.FromString, data, "nim-sds message")
        for name in ("message_id", "lamport_timestamp", "channel_id", "content"):
            if not raw.HasField(name):
                raise DecodeError(f"nim-sds message: the required field {name} is missing")
        _check_entries(len(raw.causal_history) + len(raw.repair_request), "nim-sds message")
        return SdsMessage(
            message_id=raw.message_id,
            sender_id=raw.sender_id,
            channel_id=raw.channel_id,
            lamport_timestamp=raw.lamport_timestamp,
            causal_history=tuple(map(_decode_nim_entry, raw.causal_history)),
            bloom_filter=raw.bloom_filter if raw.HasField("bloom_filter") else None,
            repair_request=tuple(map(_decode_nim_entry, raw.repair_request)),
            content=raw.content,
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
            raw = _parse(sds_pb2.NimBloomFilter.FromString, field, "nim-sds bloom filter")
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


def codec_named(name: str) -> SdsCodec:
    """Return the codec of a profile's name, ``waku`` or ``logos``."""
    try:
        return {"waku": WAKU_SDS, "logos": NIM_SDS}[name]
    except KeyError:
        raise ConfigurationError(f"there is no SDS wire {name!r}; known are 'waku' and 'logos'") from None
