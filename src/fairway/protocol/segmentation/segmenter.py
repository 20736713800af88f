"""`Segmenter`: splits a payload into segments (SEGMENTATION, "Sending", "Reed-Solomon"; LIP-243, "Segmentation").

Invariants:

* Every receiver can reassemble the payload from the segments of `Segmenter.split`.
* No segment exceeds the configured size, and a message has at most 256 segments.
* A payload that is sent unmodified is never decoded as a segment.

The formats differ only in the plan: the size of a piece, the numbers of data and parity segments, and whether a payload
that fits one segment is sent unmodified.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from fairway.errors import ConfigurationError, EmptyPayloadError, MessageTooLargeError
from fairway.protocol.segmentation import leopard
from fairway.wire.hashing import keccak256
from fairway.wire.segment import MAX_SEGMENTS, Segment, SegmentFormat

if TYPE_CHECKING:
    from fairway.options import SegmentationConfig

LIP_243_HEADROOM_BYTES: Final = 128
"""Bytes reserved in a segment of LIP-243 for all fields except the payload, as in nim-segmentation."""

LIP_243_MIN_SEGMENT_BYTES: Final = LIP_243_HEADROOM_BYTES + leopard.SHARD_ALIGNMENT
"""Size of the smallest segment of LIP-243: one aligned piece."""

_RATE_SCALE: Final = 1_000_000
# Scale of the parity rate as an integer, which avoids rounding errors of floating point.


def logical_message_id(payload: bytes) -> str:
    """Return the id of a logical message: lower-case hex SHA-256 of the payload before segmentation.

    RELIABLE-CHANNEL-API, "Message segmentation"; docs/decisions/specifications.md, "Message ids".
    """
    return hashlib.sha256(payload).hexdigest()


class OutgoingSegment(Struct, frozen=True, kw_only=True):
    """A segment to send."""

    content: bytes
    """The content of one SDS message."""
    order: int
    """Segment order: data segments from 0, then parity segments. Segments are sent in this order."""
    data_count: int
    """Data segments of the message; 1 if the payload is sent unmodified."""
    is_parity: bool


class Segmentation(Struct, frozen=True, kw_only=True):
    """The segments of a payload."""

    payload_hash: bytes | None
    """Keccak-256 of the payload; None if it is sent unmodified."""
    segments: tuple[OutgoingSegment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    piece_bytes: int
    data_count: int
    parity_count: int


def parity_segments(data_count: int, rate: float, *, round_up: bool) -> int:
    """Return the number of parity segments for a rate, at most ``data_count``."""
    scaled = data_count * round(rate * _RATE_SCALE)
    return min(data_count, -(-scaled // _RATE_SCALE) if round_up else scaled // _RATE_SCALE)


class Segmenter:
    """Splits payloads for one channel.

    Raises `ConfigurationError` if the configuration does not fit the format. With ``single_segment_parity``, a LIP-243
    message of one data segment also has parity, which is a copy of the segment. By default it has none: a lost segment
    is retransmitted.
    """

    def __init__(
        self,
        config: SegmentationConfig,
        segment_format: SegmentFormat,
        *,
        single_segment_parity: bool = False,
    ) -> None:
        self._config = config
        self._format = segment_format
        self._single_segment_parity = single_segment_parity
        self.segment_payload_bytes = _payload_bytes(config, segment_format)
        """Most payload bytes in one segment."""
        self.limit_bytes = min(config.max_message_size_bytes, self.segment_payload_bytes * self._max_data_count())
        """Most payload bytes in one message."""

    def split(self, payload: bytes) -> Segmentation:
        """Return the segments of a payload, in sending order.

        Raises `MessageTooLargeError`, and `EmptyPayloadError` if the format cannot carry an empty payload.
        """
        plan = self._plan(payload)
        if plan is not None:
            return self._segmented(payload, plan)
        # SEGMENTATION, "Sending": smaller than or equal to segmentSize SHALL be transmitted unmodified.
        segment = OutgoingSegment(content=payload, order=0, data_count=1, is_parity=False)
        return Segmentation(payload_hash=None, segments=(segment,))

    def segment_count(self, payload: bytes) -> int:
        """Return how many segments `split` returns for a payload; raise the same errors."""
        plan = self._plan(payload)
        return 1 if plan is None else plan.data_count + plan.parity_count

    def _plan(self, payload: bytes) -> _Plan | None:
        """Return the plan for a payload; None if it is sent unmodified."""
        if len(payload) > self.limit_bytes:
            raise MessageTooLargeError(
                len(payload),
                self.limit_bytes,
                "raise max_message_size_bytes or segment_size_bytes, or send it "
                "as a file, in parts (fairway.files.send_file, --file)"
                if self._format.segments_any
                else "with bare_content a payload is not segmented: raise segment_size_bytes, or send it in parts",
            )
        if not payload and not self._format.wraps_all:
            raise EmptyPayloadError("an empty payload cannot be sent; give at least one byte")
        if self._format.wraps_all or len(payload) > self.segment_payload_bytes:
            data_count = max(1, -(-len(payload) // self.segment_payload_bytes))
            parity_count = self.parity_count(data_count)
            return _Plan(piece_bytes=self.segment_payload_bytes, data_count=data_count, parity_count=parity_count)
        if self._format.is_segment(payload):
            # Receivers would decode this payload, sent unmodified, as a segment of another message. SEGMENTATION
            # requires at least two data segments.
            data_count = 1 if self._format.self_describing else 2
            return _Plan(piece_bytes=-(-len(payload) // data_count), data_count=data_count, parity_count=0)
        return None

    def parity_count(self, data_count: int) -> int:
        """Return the number of parity segments of a message with ``data_count`` data segments."""
        config = self._config
        if self._format.self_describing:
            if data_count == 1 and not self._single_segment_parity:
                return 0
            return parity_segments(data_count, config.parity_rate, round_up=True)
        if not config.parity_rate:
            return 0
        # The specification gives only the rate. Existing senders round down: at a rate of 1/8, messages of 2 to 7
        # segments have no parity.
        count = parity_segments(data_count, config.parity_rate, round_up=False)
        # "MUST NOT produce more than 256 total segments": parity is a MAY and is omitted beyond that.
        return count if data_count + count <= MAX_SEGMENTS else 0

    def _max_data_count(self) -> int:
        """Return the most data segments of a message; with LIP-243, including its parity, at most 256 in total."""
        if not self._format.segments_any:
            return 1
        if not self._format.self_describing:
            return MAX_SEGMENTS
        return max(count for count in range(1, MAX_SEGMENTS + 1) if count + self.parity_count(count) <= MAX_SEGMENTS)

    def _segmented(self, payload: bytes, plan: _Plan) -> Segmentation:
        # SEGMENTATION, "Sending": MUST compute a 32-byte entire_message_hash = Keccak256(original_payload).
        payload_hash = keccak256(payload)
        size = plan.piece_bytes
        pieces = [payload[index * size : (index + 1) * size] for index in range(plan.data_count)]
        shards: list[bytes] = []
        if plan.parity_count:
            # "The last data chunk MUST be padded to segmentSize for encoding"; it is sent unpadded.
            shards = leopard.encode([*pieces[:-1], pieces[-1].ljust(size, b"\0")], plan.parity_count)
        segments = [
            OutgoingSegment(
                content=self._format.encode(
                    Segment(
                        payload_hash=payload_hash,
                        index=index,
                        data_count=plan.data_count,
                        parity_count=plan.parity_count,
                        is_parity=is_parity,
                        payload=piece,
                        payload_length=len(payload),
                    )
                ),
                order=index + (plan.data_count if is_parity else 0),
                data_count=plan.data_count,
                is_parity=is_parity,
            )
            for is_parity, payloads in ((False, pieces), (True, shards))
            for index, piece in enumerate(payloads)
        ]
        return Segmentation(payload_hash=payload_hash, segments=tuple(segments))


def _payload_bytes(config: SegmentationConfig, segment_format: SegmentFormat) -> int:
    if not segment_format.segments_any:
        return config.segment_size_bytes
    return _lip_243_size(config) if segment_format.self_describing else _waku_size(config)


def _waku_size(config: SegmentationConfig) -> int:
    if not config.parity_rate:
        return config.segment_size_bytes
    # "Implementations that apply parity SHALL use fixed-size shards of length segmentSize", and Leopard codes shards of
    # a multiple of 64 bytes only.
    if config.segment_size_bytes < leopard.SHARD_ALIGNMENT:
        raise ConfigurationError(
            f"segment_size_bytes must be at least {leopard.SHARD_ALIGNMENT} for parity, not "
            f"{config.segment_size_bytes}; raise it, or set parity_rate to 0"
        )
    return config.segment_size_bytes // leopard.SHARD_ALIGNMENT * leopard.SHARD_ALIGNMENT


def _lip_243_size(config: SegmentationConfig) -> int:
    # LIP-243 limits the encoded segment. As in nim-segmentation, the piece is aligned even without parity.
    if config.segment_size_bytes < LIP_243_MIN_SEGMENT_BYTES:
        raise ConfigurationError(
            f"segment_size_bytes must be at least {LIP_243_MIN_SEGMENT_BYTES} with LIP-243, "
            f"not {config.segment_size_bytes}"
        )
    room = config.segment_size_bytes - LIP_243_HEADROOM_BYTES
    return room // leopard.SHARD_ALIGNMENT * leopard.SHARD_ALIGNMENT
