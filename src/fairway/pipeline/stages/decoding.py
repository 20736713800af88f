"""`Decoder`: decodes a batch of ``waku_messages``, on the executors, for the stage `sds_messages`.

It needs no Spark. Every input row gives an output row, whatever the payload; its `Status` says whether it was decoded.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final

import pyarrow as pa

from fairway.errors import DecodeError, DecryptionError, SegmentError
from fairway.options import Profile
from fairway.pipeline.keys import ChannelKeys, Opened
from fairway.pipeline.stages.decoded_columns import message_columns, segment_columns
from fairway.protocol.encryption.hook import Encryption, open_at_once
from fairway.wire.sds import SdsMessage
from fairway.wire.segment import Segment, SegmentFormat

INPUT: Final = ("message_hash", "timestamp", "content_topic", "payload", "meta")
"""The columns of ``waku_messages`` that are read."""

_MAX_LAMPORT: Final = 2**63 - 1


class Status(Enum):
    """The result of decoding a message."""

    OK = "ok"
    NOT_FOR_US = "not-for-us"
    """No key decrypts it; or the key of another channel does; or its channel has a key that does not."""
    NOT_SDS = "not-sds"
    """It is no SDS message of the profile's wire."""
    NO_ID = "no-id"
    """An SDS message without a message id or a channel id: most likely some other protobuf message."""
    LAMPORT_RANGE = "lamport-range"
    """Its Lamport timestamp does not fit 63 bits; no clock gets there."""
    BAD_SEGMENT = "bad-segment"
    """Its content breaks a rule of the segment format."""


_OK: Final = Status.OK.value


class RefusedMessage(Exception):  # noqa: N818 - it never leaves the stages
    """A message with another status than ok."""

    def __init__(self, status: Status, error: object) -> None:
        super().__init__(status.value)
        self.status = status
        self.error = str(error)


class BatchDecoder:
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
        with _without_collector():
            return self._batch(batch)

    def _batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
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
            status, error = _OK, None
            try:
                message = self.message(payload or b"", topic, profile)
                segment = self._segment(message, profile.segments)
            except RefusedMessage as refusal:
                message, status, error = None, refusal.status.value, refusal.error
            statuses.append(status)
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
        return pa.RecordBatch.from_pydict(columns | message_columns(messages) | segment_columns(segments))

    def message(self, payload: bytes, content_topic: str | None, profile: Profile) -> SdsMessage:
        """Return the SDS message in a payload, or raise `RefusedMessage`."""
        # LIP-173, "Incoming message processing": decrypt, then SDS, then reassemble.
        try:
            opened = self._open(payload, content_topic)
        except DecryptionError as error:
            raise RefusedMessage(Status.NOT_FOR_US, error) from error
        try:
            message = profile.codec.decode(opened.plaintext)
        except DecodeError as error:
            if opened.in_clear:
                detail = f"no key opens it, and in clear it is none: {error}"
                raise RefusedMessage(Status.NOT_FOR_US, detail) from error
            raise RefusedMessage(Status.NOT_SDS, error) from error
        if not (message.message_id and message.channel_id):
            raise RefusedMessage(Status.NO_ID, "an SDS message without message id or channel id")
        refusal = None if self._keys is None else self._keys.refusal(opened, message.channel_id)
        if refusal is not None:
            raise RefusedMessage(Status.NOT_FOR_US, refusal)
        if (message.lamport_timestamp or 0) > _MAX_LAMPORT:
            raise RefusedMessage(Status.LAMPORT_RANGE, f"Lamport timestamp {message.lamport_timestamp}")
        return message

    def profiles(self, metas: Iterable[bytes | None]) -> list[Profile]:
        """Return the profile of each message, by its ``meta`` unless one profile holds for all."""
        if self._profile is not None:
            return [self._profile for _ in metas]
        return [Profile.of_marker(meta) for meta in metas]

    def _profiles(self, batch: pa.RecordBatch) -> list[Profile]:
        if self._profile is not None:
            return [self._profile] * batch.num_rows
        return self.profiles(batch.column("meta").to_pylist())

    def _open(self, payload: bytes, content_topic: str | None) -> Opened:
        if self._keys is not None:
            return self._keys.open(content_topic, payload)
        return Opened(payload if self._encryption is None else open_at_once(self._encryption, payload))

    def _segment(self, message: SdsMessage, segment_format: SegmentFormat) -> Segment | None:
        """Return the segment that a message carries, or None for a whole message."""
        # SEGMENTATION, "Sending": what fits one segment is transmitted unmodified.
        if not message.content or not segment_format.is_segment(message.content):
            return None
        try:
            return segment_format.decode(message.content, self._max_total_segments)
        except SegmentError as error:
            raise RefusedMessage(Status.BAD_SEGMENT, error) from error


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the garbage collector for a batch: it takes a tenth of the time, and a batch makes no cycles of objects."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
