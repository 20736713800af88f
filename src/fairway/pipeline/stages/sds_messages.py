"""Stage 1, ``waku_messages`` to ``sds_messages``: open, decode, and read the segment header, in one pass.

One row in, one row out, whatever the payload: a message that cannot be decoded has a ``status`` other than ``ok`` and
says why in ``error``. A mapper that raised would fail its task, be tried again and end the job, and anybody on the
network could write such a message.

Bloom filters (18 kB each) stay behind: what needs them reads ``waku_messages`` again. ``content`` is what SDS carried,
so for a segment the whole encoded segment; its header is in columns of its own, so that completeness is known without
shuffling payloads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from fairway.errors import DecodeError, DecryptionError, SegmentError
from fairway.options import MAX_SEGMENTS, Profile
from fairway.protocol.encryption.hook import Encryption, open_at_once
from fairway.wire.sds import HistoryEntry, SdsMessage, codec_named
from fairway.wire.segment import LIP_243, SEED_003, Segment, SegmentFormat

SEGMENT_FORMATS: Final[dict[Profile, SegmentFormat]] = {Profile.WAKU: SEED_003, Profile.LOGOS: LIP_243}
"""How each profile writes segments."""

_ENTRIES: Final = "array<struct<message_id: string, retrieval_hint: binary, sender_id: string>>"

SDS_MESSAGES: Final = (
    "message_hash binary, timestamp bigint, content_topic string, payload_bytes int, status string, error string,"
    " kind string, sender_id string, message_id string, channel_id string, lamport bigint,"
    f" causal_history {_ENTRIES}, repair_request {_ENTRIES}, bloom_bytes int, content binary,"
    " segment_hash binary, segment_index int, is_parity boolean, data_segments int, parity_segments int"
)
"""The table of SDS messages, one row for each row of ``waku_messages``; columns from ``kind`` on are null unless
``status`` is ``ok``, those of the segment header also when the content is no segment."""

_INPUT: Final = ("message_hash", "timestamp", "content_topic", "payload")
_MAX_LAMPORT: Final = 2**63 - 1


class Status(Enum):
    """What became of a message in this stage."""

    OK = "ok"
    NOT_FOR_US = "not-for-us"
    """The encryption hook did not open it."""
    NOT_SDS = "not-sds"
    """It is no SDS message of the profile's wire."""
    NO_ID = "no-id"
    """An SDS message without a message id or a channel id: most likely some other protobuf message."""
    LAMPORT_RANGE = "lamport-range"
    """Its Lamport timestamp does not fit 63 bits; no clock gets there."""
    BAD_SEGMENT = "bad-segment"
    """Its content breaks a rule of the segment format."""


BatchMapper = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What Spark's ``mapInArrow`` takes."""


def sds_messages(
    waku_messages: DataFrame,
    profile: Profile = Profile.WAKU,
    *,
    encryption: Encryption | None = None,
    max_total_segments: int = MAX_SEGMENTS,
) -> DataFrame:
    """Return ``sds_messages`` (`SDS_MESSAGES`). ``encryption`` must survive being pickled: executors use it."""
    mapper = sds_mapper(profile, encryption=encryption, max_total_segments=max_total_segments)
    return waku_messages.select(*_INPUT).mapInArrow(mapper, SDS_MESSAGES)


def sds_mapper(
    profile: Profile = Profile.WAKU,
    *,
    encryption: Encryption | None = None,
    max_total_segments: int = MAX_SEGMENTS,
) -> BatchMapper:
    """Return the function that turns batches of ``waku_messages`` into batches of ``sds_messages``."""

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = _Decoder(profile, encryption, max_total_segments)
        for batch in batches:
            yield decoder.batch(batch)

    return decode


class _Refused(Exception):  # noqa: N818 - it never leaves this module
    def __init__(self, status: Status, error: object) -> None:
        super().__init__(status.value)
        self.status = status
        self.error = str(error)


class _Decoder:
    """Turns payloads into columns."""

    def __init__(self, profile: Profile, encryption: Encryption | None, max_total_segments: int) -> None:
        self._codec = codec_named(profile.value)
        self._format = SEGMENT_FORMATS[profile]
        self._encryption = encryption
        self._max_total_segments = max_total_segments

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        payloads: list[bytes | None] = batch.column("payload").to_pylist()
        statuses: list[str] = []
        errors: list[str | None] = []
        messages: list[SdsMessage | None] = []
        segments: list[Segment | None] = []
        for payload in payloads:
            message: SdsMessage | None = None
            segment: Segment | None = None
            status, error = Status.OK, None
            try:
                message = self._decode(payload or b"")
                segment = self._segment(message)
            except _Refused as refusal:
                message, status, error = None, refusal.status, refusal.error
            statuses.append(status.value)
            errors.append(error)
            messages.append(message)
            segments.append(segment)
        columns = {name: batch.column(name) for name in _INPUT if name != "payload"}
        columns["payload_bytes"] = pa.array([len(payload or b"") for payload in payloads], pa.int32())
        columns["status"] = pa.array(statuses, pa.string())
        columns["error"] = pa.array(errors, pa.string())
        return pa.RecordBatch.from_pydict(columns | _message_columns(messages) | _segment_columns(segments))

    def _decode(self, payload: bytes) -> SdsMessage:
        # Seed 002, "Incoming message processing order": decrypt, then SDS, then reassemble.
        try:
            plaintext = payload if self._encryption is None else open_at_once(self._encryption, payload)
            message = self._codec.decode(plaintext)
        except DecryptionError as error:
            raise _Refused(Status.NOT_FOR_US, error) from error
        except DecodeError as error:
            raise _Refused(Status.NOT_SDS, error) from error
        if not (message.message_id and message.channel_id):
            raise _Refused(Status.NO_ID, "an SDS message without message id or channel id")
        if (message.lamport_timestamp or 0) > _MAX_LAMPORT:
            raise _Refused(Status.LAMPORT_RANGE, f"Lamport timestamp {message.lamport_timestamp}")
        return message

    def _segment(self, message: SdsMessage) -> Segment | None:
        """Return the segment that a message carries, or None for a whole message."""
        if not message.content:
            return None
        try:
            return self._format.decode(message.content, self._max_total_segments)
        except SegmentError as error:
            if self._format.is_segment(message.content):
                raise _Refused(Status.BAD_SEGMENT, error) from error
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
        "causal_history": _entries([message.causal_history if message else () for message in messages]),
        "repair_request": _entries([message.repair_request if message else () for message in messages]),
        "bloom_bytes": column(lambda message: len(message.bloom_filter or b""), pa.int32()),
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
