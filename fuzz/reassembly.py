"""The reassembler: segments that were cut properly, segments of a liar, and both among each other.

Promises: nothing is raised; a completed message has the Keccak-256 that its segments named; what is kept stays within
the configured bounds; the rows that it said had changed are its state, and a new reassembler takes them back.

An input is a sequence of fields. Each script is played to both formats.

    CONTENT {SENDER, BYTES, ORDER}                              a segment of whatever bytes
    ELAPSED                                                     milliseconds pass
    PAYLOAD {SENDER, BYTES, MASK, APPENDED, REVERSED}           a payload, cut properly; a segment whose bit is not in
                                                                the mask is lost; bytes are appended to the others,
                                                                which in protobuf overrides fields
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from fairway.errors import EmptyPayloadError, MessageTooLargeError
from fairway.protocol.journal import Row
from fairway.protocol.segmentation.open_sets import BECOMING_WHOLE_FACTOR
from fairway.protocol.segmentation.outcomes import MessageComplete
from fairway.protocol.segmentation.reassembler import Reassembler
from fairway.protocol.segmentation.segment_set import SegmentSet
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.wire.hashing import keccak256
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS, SegmentFormat
from fuzz.decoders import BrokenPromiseError
from fuzz.small_options import SEGMENTATION
from fuzz.wire_fields import Field, bytes_in, number_in, read_fields


class Step(IntEnum):
    """Fields of a script."""

    CONTENT = 1
    ELAPSED = 2
    PAYLOAD = 3


class Part(IntEnum):
    """Fields of one step."""

    SENDER = 1
    BYTES = 2
    ORDER = 3
    MASK = 4
    APPENDED = 5
    REVERSED = 6


_SENDERS: Final = 4
_MAX_STEPS: Final = 64
_LONGEST_PAUSE_MS: Final = 1 << 20
_BEGIN_MS: Final = 1_700_000_000_000


class _Play:
    """One script, one format."""

    def __init__(self, segment_format: SegmentFormat) -> None:
        self._format = segment_format
        self._rows: dict[str, Row] = {}
        self._touched: dict[str, None] = {}
        self._segmenter = Segmenter(SEGMENTATION, segment_format)
        self._reassembler = self._new(lambda key: self._touched.update({key: None}))
        self._now_ms = _BEGIN_MS
        self._order = 1
        self._adds = 0

    def step(self, field: Field) -> None:
        """Do what one field says."""
        match field:
            case Field(number=Step.ELAPSED, value=int(elapsed_ms)):
                self._now_ms += elapsed_ms % _LONGEST_PAUSE_MS
                self._reassembler.expire(self._now_ms)
                self._store()
            case Field(number=Step.CONTENT, value=bytes(encoded)):
                step, _ = read_fields(encoded)
                self._order += number_in(step, Part.ORDER) % 256
                self._add(number_in(step, Part.SENDER), bytes_in(step, Part.BYTES))
            case Field(number=Step.PAYLOAD, value=bytes(encoded)):
                step, _ = read_fields(encoded)
                self._deliver(step)
            case _:
                return

    def finish(self) -> None:
        """Compare the state with what was told of it, and take it back."""
        rows = dict(self._reassembler.rows())
        if rows != self._rows:
            wrong = sorted(key for key in rows.keys() | self._rows.keys() if rows.get(key) != self._rows.get(key))
            raise BrokenPromiseError(f"{self._format.name}: these rows changed untold: {wrong}")
        restored = self._new(lambda _: None)
        restored.load(rows.items())
        if dict(restored.rows()) != rows:
            raise BrokenPromiseError(f"{self._format.name}: a restored state differs")

    def _new(self, on_change: Callable[[str], None]) -> Reassembler:
        return Reassembler(SEGMENTATION, self._format, on_change)

    def _store(self) -> None:
        """Keep the rows that changed, as whoever stores the state does after an operation."""
        for key in self._touched:
            row = self._reassembler.row(key)
            if row is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = row
        self._touched.clear()

    def _deliver(self, step: list[Field]) -> None:
        try:
            parts = self._segmenter.split(bytes_in(step, Part.BYTES)).segments
        except (EmptyPayloadError, MessageTooLargeError):
            return
        mask = number_in(step, Part.MASK)
        first = self._order
        self._order += len(parts)
        survivors = [part for part in parts if mask >> part.order % 64 & 1]
        for part in reversed(survivors) if number_in(step, Part.REVERSED) & 1 else survivors:
            self._add(number_in(step, Part.SENDER), part.content + bytes_in(step, Part.APPENDED), first + part.order)

    def _add(self, sender: int, content: bytes, order: int | None = None) -> None:
        self._adds += 1
        sender_id = f"sender {sender % _SENDERS}"
        key = self._order if order is None else order
        outcome = self._reassembler.accept(sender_id, f"id {self._adds}", key, content, self._now_ms)
        self._store()
        match outcome:
            case MessageComplete(payload=payload, segments=None) if payload != content:
                raise BrokenPromiseError(f"{self._format.name}: {content!r} was changed into {payload!r}")
            case MessageComplete(payload=payload, segments=SegmentSet() as kept) if (
                keccak256(payload) != kept.key.payload_hash
            ):
                raise BrokenPromiseError(f"{self._format.name}: {payload!r} is not what was promised")
            case _:
                self._check_bounds()

    def _check_bounds(self) -> None:
        held = self._reassembler.statistics()
        if (
            held.open_sets > _SENDERS * self._reassembler.quotas.sets_per_sender
            or held.buffered_bytes > BECOMING_WHOLE_FACTOR * SEGMENTATION.max_buffered_bytes
            or held.ended_sets > self._reassembler.quotas.ended_sets
        ):
            raise BrokenPromiseError(f"{self._format.name}: more is held than allowed: {held}")


def check_reassembly(data: bytes) -> None:
    """Play a script to both formats."""
    fields, _ = read_fields(data)
    for segment_format in (WAKU_SEGMENTS, LIP_243):
        play = _Play(segment_format)
        for field in fields[:_MAX_STEPS]:
            play.step(field)
        play.finish()
