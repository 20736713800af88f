"""Make the payload of a set (seed 003, "Receiving"; LIP-243, rules for receivers).

Invariant: nothing is returned whose Keccak-256 is not the one that every segment of the set named.

Seed 003 does not tell the length of the payload, and parity is computed over data padded with zeros. When the
last data segment is recovered, its end is found by taking the zeros off, and trying how many of them were the
payload's own: Keccak decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from fairway.protocol.segmentation import leopard
from fairway.protocol.segmentation.digest import trailing_zeros_for
from fairway.wire.hashing import keccak256

if TYPE_CHECKING:
    from fairway.protocol.segmentation.segment_set import SegmentSet

MAX_TRAILING_ZEROS: Final = 16_384
"""Of a recovered last segment, how many zeros at the end are tried as the payload's own (about 40 ms of work).

A payload that ends in more of them needs its last data segment to come.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A verified payload."""

    payload: bytes
    recovered: bool
    """Whether Reed-Solomon filled in lost data segments."""


class Unassembled(Enum):
    """Why there is no payload."""

    INCOMPLETE = "more segments are needed"
    RECOVERY_FAILED = "Reed-Solomon gives something else than the hash promised"
    MISMATCH = "the data segments are not what their hash promised"


def assemble(segments: SegmentSet) -> Assembled | Unassembled:
    """Return the payload of a set, or why there is none (yet)."""
    count = segments.data_count
    # Seed 003, "Receiving": MUST attempt reconstruction when the number of available (data + parity) segments
    # equals or exceeds the data segment count. With parity segments only, that count is unknown.
    if count == 0 or len(segments.data) + len(segments.parity) < count:
        return Unassembled.INCOMPLETE
    if len(segments.data) == count:
        # "Concatenating data segments if all are present": whatever their lengths.
        # Seed 000, "Message Segmentation": segment order MUST be preserved during reassembly.
        payload = b"".join(segments.data[index] for index in range(count))
        verified = segments.key.payload_length in {None, len(payload)} and _is_promised(segments, payload)
        return Assembled(payload=payload, recovered=False) if verified else Unassembled.MISMATCH
    shard_bytes = _shard_bytes(segments)
    if shard_bytes is None or segments.awaits_data:
        return Unassembled.INCOMPLETE
    recovered = _recover(segments, shard_bytes)
    return Unassembled.RECOVERY_FAILED if recovered is None else Assembled(payload=recovered, recovered=True)


def _shard_bytes(segments: SegmentSet) -> int | None:
    """Return the length of the shards, or None if the segments held are no shards of one code word.

    Such a set is not lost: neither format forbids odd lengths, and with all its data it needs no parity.
    """
    count, last = segments.data_count, segments.data_count - 1
    lengths = set(map(len, segments.parity.values()))
    shard_bytes = lengths.pop()
    if lengths or not shard_bytes or shard_bytes % leopard.SHARD_ALIGNMENT or segments.parity_count > count:
        return None
    # "Implementations that apply parity SHALL use fixed-size shards", but the last data chunk is sent unpadded.
    if any(
        len(piece) > shard_bytes if index == last else len(piece) != shard_bytes
        for index, piece in segments.data.items()
    ):
        return None
    length = segments.key.payload_length
    fits = length is None or ((last * shard_bytes < length or count == 1) and length <= count * shard_bytes)
    return shard_bytes if fits else None


def _recover(segments: SegmentSet, shard_bytes: int) -> bytes | None:
    """Return the payload with the lost data segments filled in, or None if it is not the one promised."""
    last = segments.data_count - 1
    shards = [segments.data.get(index) for index in range(segments.data_count)]
    final = shards[last]
    if final is not None:
        shards[last] = final.ljust(shard_bytes, b"\0")
    found = leopard.recover(shards, [segments.parity.get(index) for index in range(segments.parity_count)])
    pieces: list[bytes | memoryview] = [
        found[index] if index in found else segments.data[index] for index in range(segments.data_count)
    ]
    if last in found and segments.key.payload_length is None:
        return _with_end_found(pieces[:last], found[last], segments.key.payload_hash)
    if last in found and segments.key.payload_length is not None:
        pieces[last] = memoryview(found[last])[: segments.key.payload_length - last * shard_bytes]
    payload = b"".join(pieces)
    return payload if _is_promised(segments, payload) else None


def _with_end_found(pieces: list[bytes | memoryview], padded: bytes, payload_hash: bytes) -> bytes | None:
    """Return the payload whose last piece is the padded one less some of its zeros, or None if none is right."""
    pieces = [*pieces, padded.rstrip(b"\0")]
    zeros = len(padded) - len(pieces[-1])
    # No data segment is empty, so of a shard of nothing but zeros at least one is the payload's.
    least = 0 if pieces[-1] else 1
    count = trailing_zeros_for(payload_hash, pieces, range(least, min(zeros, MAX_TRAILING_ZEROS) + 1))
    return None if count is None else b"".join([*pieces, bytes(count)])


def _is_promised(segments: SegmentSet, payload: bytes) -> bool:
    # Seed 003, "Receiving" and "Integrity": MUST verify that Keccak256(reconstructed_payload) matches
    # entire_message_hash.
    return keccak256(payload) == segments.key.payload_hash
