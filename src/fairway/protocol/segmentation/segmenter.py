"""Cut a payload into segments with parity (SEGMENTATION, "Sending" and "Reed-Solomon"; LIP-243, "Segmentation").

Invariants: every receiver reassembles what `Segmenter.split` returns to the payload; no segment exceeds the configured
size; there are at most 256; and a payload that is sent unmodified never looks like a segment.

The formats differ in the plan: how long a piece of the payload is, how many segments and parity segments there are, and
whether a payload that fits one segment is sent unmodified. How segments are made by a plan is the same for all.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairway.errors import ConfigurationError, EmptyPayloadError, MessageTooLargeError
from fairway.protocol.segmentation import leopard
from fairway.wire.hashing import keccak256
from fairway.wire.segment import MAX_SEGMENTS, Segment, SegmentFormat

if TYPE_CHECKING:
    from fairway.options import SegmentationConfig

LIP_243_HEADROOM_BYTES: Final = 128
"""Room in a segment of LIP-243 for every field beside the payload, as nim-segmentation leaves it."""

LIP_243_MIN_SEGMENT_BYTES: Final = LIP_243_HEADROOM_BYTES + leopard.SHARD_ALIGNMENT
"""The smallest segment of LIP-243 that holds one aligned piece."""

_RATE_SCALE: Final = 1_000_000
# The parity rate as an integer: in floating point, 0.125 * 8 may come out just above 1.


def logical_message_id(payload: bytes) -> str:
    """Return the id of a logical message: lower-case hex SHA-256 of the payload before segmentation.

    RELIABLE-CHANNEL-API, "Message segmentation"; docs/decisions/specifications.md, "Message ids".
    """
    return hashlib.sha256(payload).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingSegment:
    """One segment on its way out."""

    content: bytes
    """The content of one SDS message."""
    order: int
    """Its segment order: data segments from 0, then parity segments; they are sent in it."""
    data_count: int
    """Data segments of the message; 1 if it was not segmented."""
    is_parity: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Segmentation:
    """A payload, ready to be sent in segments."""

    payload_hash: bytes | None
    """Keccak-256 of the payload; None if it travels unmodified."""
    segments: tuple[OutgoingSegment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    piece_bytes: int
    data_count: int
    parity_count: int


def parity_segments(data_count: int, rate: float, *, round_up: bool) -> int:
    """Return how many parity segments a rate gives, at most as many as there are data segments."""
    scaled = data_count * round(rate * _RATE_SCALE)
    return min(data_count, -(-scaled // _RATE_SCALE) if round_up else scaled // _RATE_SCALE)


class Segmenter:
    """Splits payloads for one channel.

    Raises `ConfigurationError` when the configuration cannot work with the format. With ``single_segment_parity``, a
    LIP-243 message of one data segment has parity, too. That is a copy of the segment, so by default it has none, and
    is sent again if it is lost.
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
        """Longest piece of a payload in one segment."""
        self.limit_bytes = min(config.max_message_size_bytes, self.segment_payload_bytes * self._max_data_count())
        """Longest payload that one message takes."""

    def split(self, payload: bytes) -> Segmentation:
        """Return the payload in segments, in the order in which they should be sent.

        Raises `MessageTooLargeError`, and `EmptyPayloadError` where the format cannot carry an empty payload.
        """
        plan = self._plan(payload)
        if plan is not None:
            return self._segmented(payload, plan)
        # SEGMENTATION, "Sending": smaller than or equal to segmentSize SHALL be transmitted unmodified.
        segment = OutgoingSegment(content=payload, order=0, data_count=1, is_parity=False)
        return Segmentation(payload_hash=None, segments=(segment,))

    def segment_count(self, payload: bytes) -> int:
        """Return how many segments `split` makes of a payload, without making them; it raises the same errors."""
        plan = self._plan(payload)
        return 1 if plan is None else plan.data_count + plan.parity_count

    def _plan(self, payload: bytes) -> _Plan | None:
        """Return how a payload is cut; None if it is transmitted unmodified."""
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
            # Sent unmodified, this payload would be taken for a segment of some other message. Two data
            # segments are the fewest that SEGMENTATION allows; each receiver joins them again.
            data_count = 1 if self._format.self_describing else 2
            return _Plan(piece_bytes=-(-len(payload) // data_count), data_count=data_count, parity_count=0)
        return None

    def parity_count(self, data_count: int) -> int:
        """Return how many parity segments a message of so many data segments has."""
        config = self._config
        if self._format.self_describing:
            if data_count == 1 and not self._single_segment_parity:
                return 0
            return parity_segments(data_count, config.parity_rate, round_up=True)
        if not config.parity_rate:
            return 0
        # The specification tells only the rate; existing senders round down, so that of an eighth 2 to 7 segments
        # would have no parity.
        count = parity_segments(data_count, config.parity_rate, round_up=False)
        # "MUST NOT produce more than 256 total segments": parity is a MAY, so it is parity that gives way.
        return count if data_count + count <= MAX_SEGMENTS else 0

    def _max_data_count(self) -> int:
        """Return how many data segments leave room for their parity within 256 segments."""
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
    # LIP-243 limits the encoded segment. As in nim-segmentation the piece is aligned also without parity, so that
    # every receiver can decode whatever parity another sender adds.
    if config.segment_size_bytes < LIP_243_MIN_SEGMENT_BYTES:
        raise ConfigurationError(
            f"segment_size_bytes must be at least {LIP_243_MIN_SEGMENT_BYTES} with LIP-243, "
            f"not {config.segment_size_bytes}"
        )
    room = config.segment_size_bytes - LIP_243_HEADROOM_BYTES
    return room // leopard.SHARD_ALIGNMENT * leopard.SHARD_ALIGNMENT
