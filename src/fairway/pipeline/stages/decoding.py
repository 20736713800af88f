"""One batch of ``waku_messages`` to one batch of decoded rows: what `sds_messages` runs on the executors.

Pure of Spark. Whatever a payload holds, its row comes out; see `Status` for what may have become of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa

from fairway.errors import DecodeError, DecryptionError, SegmentError
from fairway.options import Profile, SdsConfig
from fairway.pipeline.keys import ChannelKeys, Opened
from fairway.protocol.encryption.hook import Encryption, open_at_once
from fairway.protocol.outbound import LOGOS_MARKER
from fairway.wire.sds import HistoryEntry, SdsCodec, SdsMessage, codec_named
from fairway.wire.segment import LIP_243, SEED_003, Segment, SegmentFormat

SEGMENT_FORMATS: Final[dict[Profile, SegmentFormat]] = {Profile.WAKU: SEED_003, Profile.LOGOS: LIP_243}
"""How each profile writes segments."""

INPUT: Final = ("message_hash", "timestamp", "content_topic", "payload", "meta")
"""The columns of ``waku_messages`` that are looked at."""

_MAX_LAMPORT: Final = 2**63 - 1
_MAX_CAUSAL_HISTORY: Final = SdsConfig().max_causal_history
_ONE_BYTE_LENGTH: Final = 128
_REMEMBERED_ENTRIES: Final = 65_536
_CODECS: Final[dict[Profile, SdsCodec]] = {profile: codec_named(profile.value) for profile in Profile}


class Status(Enum):
    """What became of a message in this stage."""

    OK = "ok"
    NOT_FOR_US = "not-for-us"
    """No key opened it, or it is not of the channel whose key did, or it is in clear though its channel has a key."""
    NOT_SDS = "not-sds"
    """It is no SDS message of the profile's wire."""
    NO_ID = "no-id"
    """An SDS message without a message id or a channel id: most likely some other protobuf message."""
    LAMPORT_RANGE = "lamport-range"
    """Its Lamport timestamp does not fit 63 bits; no clock gets there."""
    BAD_SEGMENT = "bad-segment"
    """Its content breaks a rule of the segment format."""


class Refused(Exception):  # noqa: N818 - it never leaves the stages
    """A message with another status than ok."""

    def __init__(self, status: Status, error: object) -> None:
        super().__init__(status.value)
        self.status = status
        self.error = str(error)


class Decoder:
    """Turns payloads into SDS messages, and those into columns."""

    def __init__(
        self,
        profile: Profile | None,
        encryption: Encryption | None,
        keys: ChannelKeys | None,
        max_total_segments: int,
    ) -> None:
        self._profile = profile
        self._encryption = encryption
        self._keys = keys
        self._max_total_segments = max_total_segments

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch, as many and in the same order."""
        payloads: list[bytes | None] = batch.column("payload").to_pylist()
        topics: list[str | None] = batch.column("content_topic").to_pylist()
        profiles = self._profiles(batch)
        statuses: list[str] = []
        errors: list[str | None] = []
        messages: list[SdsMessage | None] = []
        segments: list[Segment | None] = []
        for payload, topic, profile in zip(payloads, topics, profiles, strict=True):
            message: SdsMessage | None = None
            segment: Segment | None = None
            status, error = Status.OK, None
            try:
                message = self.message(payload or b"", topic, profile)
                segment = self._segment(message, SEGMENT_FORMATS[profile])
            except Refused as refusal:
                message, status, error = None, refusal.status, refusal.error
            statuses.append(status.value)
            errors.append(error)
            messages.append(message)
            segments.append(segment)
        columns = {name: batch.column(name) for name in ("message_hash", "timestamp", "content_topic")}
        if "sources" in batch.schema.names:
            columns["sources"] = batch.column("sources")
        columns["payload_bytes"] = pa.array([len(payload or b"") for payload in payloads], pa.int32())
        columns["status"] = pa.array(statuses, pa.string())
        columns["error"] = pa.array(errors, pa.string())
        columns["profile"] = pa.array([profile.value for profile in profiles], pa.string())
        return pa.RecordBatch.from_pydict(columns | _message_columns(messages) | _segment_columns(segments))

    def message(self, payload: bytes, content_topic: str | None, profile: Profile) -> SdsMessage:
        """Return the SDS message in a payload, or raise `Refused`."""
        # Seed 002, "Incoming message processing order": decrypt, then SDS, then reassemble.
        try:
            opened = self._open(payload, content_topic)
        except DecryptionError as error:
            raise Refused(Status.NOT_FOR_US, error) from error
        try:
            message = _CODECS[profile].decode(opened.plaintext)
        except DecodeError as error:
            if opened.in_clear:
                detail = f"no key opens it, and in clear it is none: {error}"
                raise Refused(Status.NOT_FOR_US, detail) from error
            raise Refused(Status.NOT_SDS, error) from error
        if not (message.message_id and message.channel_id):
            raise Refused(Status.NO_ID, "an SDS message without message id or channel id")
        self._check_channel(message, opened)
        if (message.lamport_timestamp or 0) > _MAX_LAMPORT:
            raise Refused(Status.LAMPORT_RANGE, f"Lamport timestamp {message.lamport_timestamp}")
        return message

    def profiles(self, metas: Iterable[bytes | None]) -> list[Profile]:
        """Return the profile of each message, by its ``meta`` unless one profile holds for all."""
        if self._profile is not None:
            return [self._profile for _ in metas]
        return [Profile.LOGOS if meta == LOGOS_MARKER else Profile.WAKU for meta in metas]

    def _profiles(self, batch: pa.RecordBatch) -> list[Profile]:
        if self._profile is not None:
            return [self._profile] * batch.num_rows
        return self.profiles(batch.column("meta").to_pylist())

    def _open(self, payload: bytes, content_topic: str | None) -> Opened:
        if self._keys is not None:
            return self._keys.open(content_topic, payload)
        return Opened(payload if self._encryption is None else open_at_once(self._encryption, payload))

    def _check_channel(self, message: SdsMessage, opened: Opened) -> None:
        if opened.channel_id is not None and message.channel_id != opened.channel_id:
            raise Refused(Status.NOT_FOR_US, f"sealed with the key of channel {opened.channel_id}, but of another")
        if opened.in_clear and self._keys is not None and self._keys.has_channel(message.channel_id):
            raise Refused(Status.NOT_FOR_US, "in clear, but its channel has a key")

    def _segment(self, message: SdsMessage, segment_format: SegmentFormat) -> Segment | None:
        """Return the segment that a message carries, or None for a whole message."""
        if not message.content:
            return None
        try:
            return segment_format.decode(message.content, self._max_total_segments)
        except SegmentError as error:
            if segment_format.is_segment(message.content):
                raise Refused(Status.BAD_SEGMENT, error) from error
            return None  # seed 003: sent unmodified


def _message_columns(messages: list[SdsMessage | None]) -> dict[str, pa.Array]:
    def column(read: Callable[[SdsMessage], Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if message is None else read(message) for message in messages], kind)

    return {
        "kind": column(lambda message: message.kind.value, pa.string()),
        "sender_id": column(lambda message: message.sender_id, pa.string()),
        "message_id": column(lambda message: message.message_id, pa.string()),
        "channel_id": column(lambda message: message.channel_id, pa.string()),
        "lamport": column(lambda message: message.lamport_timestamp, pa.int64()),
        "causal_history": _entries([_looked_at(message.causal_history) if message else () for message in messages]),
        "repair_request": _entries([message.repair_request if message else () for message in messages]),
        "history_bytes": column(lambda message: _size_of(message.causal_history), pa.int32()),
        "repair_bytes": column(lambda message: _size_of(message.repair_request), pa.int32()),
        "bloom_bytes": column(lambda message: len(message.bloom_filter or b""), pa.int32()),
        "content_bytes": column(lambda message: len(message.content or b""), pa.int32()),
        "content": column(lambda message: message.content or None, pa.binary()),
    }


def _segment_columns(segments: list[Segment | None]) -> dict[str, pa.Array]:
    def column(read: Callable[[Segment], Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if segment is None else read(segment) for segment in segments], kind)

    return {
        "segment_hash": column(lambda segment: segment.payload_hash, pa.binary()),
        "segment_index": column(lambda segment: segment.index, pa.int32()),
        "is_parity": column(lambda segment: segment.is_parity, pa.bool_()),
        "data_segments": column(lambda segment: segment.data_count, pa.int32()),
        "parity_segments": column(lambda segment: segment.parity_count, pa.int32()),
    }


def _looked_at(history: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
    """Return what of a causal history counts (design 5.9): its newest entries, of those of one message the last.

    Here rather than in a later stage, because making lists of structs distinct takes Spark quadratic time.
    """
    newest = history[-_MAX_CAUSAL_HISTORY:]
    distinct = {entry.message_id: entry for entry in newest}
    return newest if len(distinct) == len(newest) else tuple(distinct.values())


def _entries(lists: Iterable[tuple[HistoryEntry, ...]]) -> pa.Array:
    """Return a column of lists from three flat ones; most of the cost of decoding is building columns."""
    rows = list(lists)
    flat = [entry for row in rows for entry in row]
    offsets = pa.array([0, *accumulate(map(len, rows))], pa.int32())
    structs = pa.StructArray.from_arrays(
        [
            pa.array([entry.message_id for entry in flat], pa.string()),
            pa.array([entry.retrieval_hint for entry in flat], pa.binary()),
            pa.array([entry.sender_id for entry in flat], pa.string()),
        ],
        names=["message_id", "retrieval_hint", "sender_id"],
    )
    return pa.ListArray.from_arrays(offsets, structs)


def _size_of(entries: tuple[HistoryEntry, ...]) -> int:
    return sum(map(_entry_bytes, entries))


@lru_cache(_REMEMBERED_ENTRIES)
def _entry_bytes(entry: HistoryEntry) -> int:
    """Return what an entry takes on either wire: tags of one byte, lengths, and what is in it."""
    fields = (len(entry.message_id.encode()), len(entry.retrieval_hint or b""), len((entry.sender_id or "").encode()))
    return _field_bytes(sum(_field_bytes(size) for size in fields if size))


def _field_bytes(size: int) -> int:
    return size + (2 if size < _ONE_BYTE_LENGTH else 3)
