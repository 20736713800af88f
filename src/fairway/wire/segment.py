"""The segments of large messages, in two formats, and payloads without segments.

`WAKU_SEGMENTS` is SEGMENTATION, "Wire Format": a data segment has the number of data segments, a parity segment the
number of parity segments. No segment has the length of the payload. A payload that fits one segment is not wrapped.
`LIP_243` is its successor: each segment has both counts and the length, and each payload is wrapped. `BARE` is the
format of logos-delivery, whose segmentation does not wrap payloads.

The formats use the same field numbers differently, so bytes of one often parse as the other. The options of a channel
choose the format; only `BARE` also examines the bytes.

Invariant: a `Segment` from ``decode`` obeys every rule of its format, and its counts are within the caller's bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from google.protobuf.message import DecodeError as ProtobufDecodeError

from fairway.errors import SegmentError
from fairway.wire.hashing import keccak256
from fairway.wire.proto import segment_pb2 as pb

MAX_SEGMENTS: Final = 256
"""Most segments of a message, data and parity together (SEGMENTATION, "Sending")."""

HASH_BYTES: Final = 32
"""Length of a Keccak-256 digest."""

UNDECODABLE: Final = "undecodable"
"""`SegmentError.reason` of bytes that do not parse."""

INVALID: Final = "invalid"
"""`SegmentError.reason` of a message that breaks a validation rule."""

_DIGEST_BYTES: Final = range(20, 65)
"""Lengths of common digests; a hash field of such a length marks a malformed segment."""

_WAKU_MIN_BYTES: Final = 2 + _DIGEST_BYTES.start + 2
# Tag, length and a hash, then tag and value of the count that must not be zero. Every other encoding of these two
# fields (overlong varints, unknown fields in between) is longer.

_UINT32_MAX: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One segment of one message, in any format."""

    payload_hash: bytes
    """Keccak-256 of the whole payload before segmentation, 32 bytes."""
    index: int
    """Zero-based, within the segment's own class (data or parity)."""
    data_count: int
    """Data segments of the message; 0 if the format has no such field (parity of SEGMENTATION)."""
    parity_count: int
    """Parity segments of the message; 0 for none, or if the format has no such field (data of SEGMENTATION)."""
    is_parity: bool
    """Whether the payload is a Reed-Solomon parity shard and not a piece of the message."""
    payload: bytes
    """The piece of the message, or the parity shard."""
    payload_length: int | None
    """Length of the whole payload in bytes; None with SEGMENTATION, which has no such field."""

    def is_piece_of(self, whole: bytes) -> bool:
        """Return whether a data segment is the piece of a payload at its index; False for parity."""
        if self.is_parity:
            return False
        size, rest = len(self.payload), 0
        if 0 < self.index == self.data_count - 1:
            # The last piece may be shorter than the others.
            size, rest = divmod(len(whole) - len(self.payload), self.index)
        if rest or size <= 0 or -(-len(whole) // size) != self.data_count:
            return False
        return whole[self.index * size :][:size] == self.payload


class SegmentFormat(Protocol):
    """A wire format of segments."""

    @property
    def name(self) -> str:
        """Name of the format."""

    @property
    def self_describing(self) -> bool:
        """Whether each segment has both counts and the length, so that a count of 0 means none."""

    @property
    def wraps_all(self) -> bool:
        """Whether a payload that fits one segment is wrapped too."""

    @property
    def segments_any(self) -> bool:
        """Whether a longer payload is sent in several segments."""

    def is_segment(self, data: bytes) -> bool:
        """Whether a receiver treats these bytes as a segment and not as a whole message."""

    def is_later_segment(self, data: bytes) -> bool:
        """Whether these bytes are a segment and not the first one of its message."""

    def encode(self, segment: Segment) -> bytes:
        """Return the bytes of a segment."""

    def decode(self, data: bytes) -> Segment:
        """Return the segment in these bytes.

        Raises `SegmentError` with reason "undecodable" or "invalid", and nothing else.
        """


class _WakuSegments:
    """SEGMENTATION, "Wire Format"."""

    name: Final = "waku-segment"
    self_describing: Final = False
    wraps_all: Final = False
    segments_any: Final = True

    def is_segment(self, data: bytes) -> bool:
        """Whether the bytes satisfy SEGMENTATION, "Validation", or are a segment that breaks one of its rules.

        Protobuf fields may have any order and follow unknown ones, so the bytes must be parsed. That is cheap: bytes
        that are not protobuf fail early, and bytes too short for a hash and a count are not parsed.
        """
        if len(data) < _WAKU_MIN_BYTES:
            return False
        message = pb.SegmentMessageProto()
        try:
            message.ParseFromString(data)
        except ProtobufDecodeError:
            return False
        try:
            _check_waku(message)
        except SegmentError:
            return _is_malformed(message)
        return True

    def is_later_segment(self, data: bytes) -> bool:
        """Whether the bytes are parity, or data with an index above 0."""
        if len(data) < _WAKU_MIN_BYTES:
            return False
        message = pb.SegmentMessageProto()
        try:
            message.ParseFromString(data)
        except ProtobufDecodeError:
            return False
        later = message.index if message.segment_count else message.parity_segments_count
        return later > 0 and len(message.entire_message_hash) == HASH_BYTES

    def encode(self, segment: Segment) -> bytes:
        """Return the bytes of a segment; fields with their default value are omitted, as in proto3."""
        message = pb.SegmentMessageProto(entire_message_hash=segment.payload_hash, payload=segment.payload)
        if segment.is_parity:
            message.parity_segment_index = segment.index
            message.parity_segments_count = segment.parity_count
        else:
            message.index = segment.index
            message.segment_count = segment.data_count
        return message.SerializeToString()

    def decode(self, data: bytes) -> Segment:
        """Return the segment in these bytes (SEGMENTATION, "Receiving": MUST validate each segment)."""
        message = _parse_waku(data)
        is_parity = _check_waku(message)
        _check_total(message.segment_count, message.parity_segments_count if is_parity else 0)
        return Segment(
            payload_hash=message.entire_message_hash,
            index=message.parity_segment_index if is_parity else message.index,
            data_count=message.segment_count,
            # "used if segments_count == 0": the value in a data segment is ignored.
            parity_count=message.parity_segments_count if is_parity else 0,
            is_parity=is_parity,
            payload=message.payload,
            payload_length=None,
        )


class _Lip243:
    """LIP-243, "Wire Format"."""

    name: str = "lip-243"
    self_describing: Final = True
    wraps_all: bool = True
    segments_any: bool = True

    def is_segment(self, data: bytes) -> bool:  # noqa: ARG002 - the answer does not depend on the bytes
        """Return True: every payload is wrapped, so bytes that are not a valid segment are discarded."""
        return True

    def is_later_segment(self, data: bytes) -> bool:
        """Whether the bytes are parity, or data with an index above 0."""
        message = pb.SegmentMessage()
        try:
            message.ParseFromString(data)
        except ProtobufDecodeError:
            return False
        later = message.is_parity or message.index > 0
        return later and len(message.original_payload_hash) == HASH_BYTES

    def encode(self, segment: Segment) -> bytes:
        """Return the bytes of a segment; fields with their default value are omitted."""
        message = pb.SegmentMessage(
            original_payload_hash=segment.payload_hash,
            original_payload_length=segment.payload_length or 0,
            index=segment.index,
            data_segment_count=segment.data_count,
            parity_segment_count=segment.parity_count or None,
            is_parity=segment.is_parity,
            payload=segment.payload,
        )
        return message.SerializeToString()

    def decode(self, data: bytes) -> Segment:
        """Return the segment in these bytes, checked against LIP-243, "Validity"."""
        message = pb.SegmentMessage()
        try:
            message.ParseFromString(data)
        except ProtobufDecodeError as error:
            raise SegmentError(UNDECODABLE, "not a LIP-243 segment") from error
        _check_hash(message.original_payload_hash)
        if message.original_payload_length > _UINT32_MAX:
            raise SegmentError(INVALID, f"length {message.original_payload_length} exceeds 32 bits")
        if message.data_segment_count < 1:
            raise SegmentError(INVALID, "a message has at least 1 data segment, not 0")
        _check_total(message.data_segment_count, message.parity_segment_count)
        own_count = message.parity_segment_count if message.is_parity else message.data_segment_count
        if message.index >= own_count:
            raise SegmentError(INVALID, f"index {message.index} of {own_count} segments")
        return Segment(
            payload_hash=message.original_payload_hash,
            index=message.index,
            data_count=message.data_segment_count,
            parity_count=message.parity_segment_count,
            is_parity=message.is_parity,
            payload=message.payload,
            payload_length=message.original_payload_length,
        )


class _Bare(_Lip243):
    """Payloads without a wrapper; bytes that can only be a segment of LIP-243 are decoded as one."""

    name = "bare"
    wraps_all = False
    segments_any = False

    def is_segment(self, data: bytes) -> bool:
        """Whether the bytes are a segment of LIP-243 in canonical form, whose numbers agree with its payload."""
        try:
            self.decode(data)
        except SegmentError:
            return False
        return True

    def is_later_segment(self, data: bytes) -> bool:
        """Whether the bytes are such a segment, and not the first one of its message."""
        return super().is_later_segment(data) and self.is_segment(data)

    def decode(self, data: bytes) -> Segment:
        """Return the segment in these bytes; bytes that may be a bare payload are "undecodable"."""
        segment = super().decode(data)
        if self.encode(segment) != data or not _is_consistent(segment):
            raise SegmentError(UNDECODABLE, "a bare payload that parses as a LIP-243 segment")
        return segment


def _is_consistent(segment: Segment) -> bool:
    """Return whether the length of a segment agrees with its numbers, and the hash with a payload of one segment."""
    count, size, length = segment.data_count, len(segment.payload), segment.payload_length or 0
    if count == 1 and not segment.is_parity:
        return size == length and keccak256(segment.payload) == segment.payload_hash
    if segment.index == count - 1 and not segment.is_parity:
        # All other pieces have one size, which is at least that of the last.
        others, rest = divmod(length - size, count - 1)
        return not rest and 0 < size <= others
    return size * (count - 1) < length <= size * count


def _parse_waku(data: bytes) -> pb.SegmentMessageProto:
    message = pb.SegmentMessageProto()
    try:
        message.ParseFromString(data)
    except ProtobufDecodeError as error:
        raise SegmentError(UNDECODABLE, "not a segment of the Waku profile") from error
    return message


def _check_waku(message: pb.SegmentMessageProto) -> bool:
    """Enforce SEGMENTATION, "Validation" ("Receivers MUST enforce"); return whether it is a parity segment."""
    _check_hash(message.entire_message_hash)
    if message.segment_count >= 2 and message.index < message.segment_count:
        return False
    if (
        message.segment_count == 0
        and message.parity_segments_count > 0
        and message.parity_segment_index < message.parity_segments_count
    ):
        return True
    # "No other combinations are permitted."
    raise SegmentError(
        INVALID,
        f"data segment {message.index} of {message.segment_count}, "
        f"parity segment {message.parity_segment_index} of {message.parity_segments_count}",
    )


def _is_malformed(message: pb.SegmentMessageProto) -> bool:
    """Return whether bytes are a broken segment, which must not be delivered as a message.

    They have exactly the fields of a segment: a digest, a payload, and a count.
    """
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return (
        len(message.entire_message_hash) in _DIGEST_BYTES
        and bool(message.payload)
        and bool(message.segment_count or message.parity_segments_count)
        and message.ByteSize() == size
    )


def _check_hash(payload_hash: bytes) -> None:
    # SEGMENTATION, "Validation": entire_message_hash.length == 32; LIP-243 demands the same.
    if len(payload_hash) != HASH_BYTES:
        raise SegmentError(INVALID, f"a hash of {len(payload_hash)} bytes, expected {HASH_BYTES}")


def _check_total(data_count: int, parity_count: int) -> None:
    # SEGMENTATION, "Denial of Service": validate segment counts (<= 256).
    if data_count + parity_count > MAX_SEGMENTS:
        raise SegmentError(
            INVALID,
            f"{data_count} data and {parity_count} parity segments, at most {MAX_SEGMENTS} allowed",
        )


WAKU_SEGMENTS: Final[SegmentFormat] = _WakuSegments()
"""Segments of SEGMENTATION (`fairway.options.Profile.WAKU`)."""

LIP_243: Final[SegmentFormat] = _Lip243()
"""Segments of LIP-243 (`fairway.options.Profile.LOGOS`)."""

BARE: Final[SegmentFormat] = _Bare()
"""Payloads without segments (`fairway.options.SegmentationConfig.bare_content`)."""
