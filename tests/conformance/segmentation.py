"""Known answers about segments: LIP-243 (upstream bytes and computed ones) and SEGMENTATION."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

from tests.conformance.cases import Case, MalformedCaseError, refused, replay_case, same, shown
from tests.conformance.protobuf_fields import fields_of
from tests.conformance.report import Check

from fairway.errors import SegmentError
from fairway.options import SegmentationConfig
from fairway.protocol.segmentation import leopard
from fairway.protocol.segmentation.leopard import field_for
from fairway.protocol.segmentation.outcomes import MessageComplete
from fairway.protocol.segmentation.reassembler import Reassembler
from fairway.protocol.segmentation.segmenter import LIP_243_HEADROOM_BYTES, Segmenter, parity_segments
from fairway.wire.hashing import keccak256
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS, Segment, SegmentFormat

_MOST_BYTES: Final = 1 << 28
_SHARD_RULE: Final = re.compile(r"\(\(i\*(shard|\d+)\+j\)\*(\d+) \+ (\d+) \+ i\*i\) & 0xFF")
"""How a file says which bytes its shards have: byte j of shard i."""


def _payload(case: Case) -> bytes:
    """Return the payload that all files of this format mean by a length: byte i is (i*37 + 11) & 0xFF."""
    length = case.integer("payload_len")
    if not 0 <= length <= _MOST_BYTES:
        raise MalformedCaseError(f"a payload of {length} bytes is too much")
    period = bytes((i * 37 + 11) & 0xFF for i in range(256))
    return (period * (length // 256 + 1))[:length]


def check_wire(case: Case) -> Iterator[Check]:
    """Check LIP-243 segments from the upstream tests, both ways."""
    fields, encoded = case.child("fields"), case.octets("hex")
    segment = Segment(
        payload_hash=fields.octets("hash"),
        payload_length=fields.integer("length"),
        index=fields.integer("index"),
        data_count=fields.integer("data_count"),
        parity_count=fields.maybe_integer("parity_count") or 0,
        is_parity=fields.flag("is_parity"),
        payload=fields.octets("payload"),
    )
    yield same("encoded", encoded, LIP_243.encode(segment))
    yield same("decoded", segment, LIP_243.decode(encoded))
    if "tags_in_order" in case:
        yield same("tags_in_order", case.integers("tags_in_order"), [field.number for field in fields_of(encoded)])


def check_undecodable(group: Any) -> Iterator[Check]:
    """Check that bytes which are no segment are refused."""
    for index, encoded in enumerate(group if isinstance(group, list) else [group]):
        yield from replay_case(f"#{index}", {"hex": encoded}, _undecodable)


def _undecodable(case: Case) -> Iterator[Check]:
    encoded = case.octets("hex")
    yield refused(f"{shown(encoded)} refused", lambda: LIP_243.decode(encoded), SegmentError)


def check_parity_counts(case: Case) -> Iterator[Check]:
    """Check how many parity segments a rate gives."""
    rate, table = case.number("rate"), case.child("k_to_p")
    for key in table:
        if not key.isdecimal():
            raise MalformedCaseError(f"{key!r} is not a number of data segments")
        yield same(f"{key} at {rate}", table.integer(key), parity_segments(int(key), rate, round_up=True))


def check_keccak(case: Case) -> Iterator[Check]:
    """Check the hash of payloads."""
    payload = _payload(case)
    yield same(f"of {len(payload)} bytes", case.octets("keccak256"), keccak256(payload))


def check_segmentation(case: Case) -> Iterator[Check]:
    """Check LIP-243 segmentations: the bytes of every segment, and the payload again after losses."""
    payload, size, rate = _payload(case), case.integer("segment_size_bytes"), case.number("rate")
    data_count, parity_count = case.integer("data"), case.integer("parity")
    piece = (size - LIP_243_HEADROOM_BYTES) // leopard.SHARD_ALIGNMENT * leopard.SHARD_ALIGNMENT
    yield same("chunk", case.integer("chunk"), piece)
    yield same("hash", case.octets("hash"), keccak256(payload))
    yield same("code", case.text("code"), _code(data_count, parity_count))

    config = SegmentationConfig(
        segment_size_bytes=size,
        parity_rate=rate,
        max_message_size_bytes=max(1, len(payload)),
    )
    segments = Segmenter(config, LIP_243, single_segment_parity=True).split(payload).segments
    yield same("parity", parity_count, sum(segment.is_parity for segment in segments))
    yield same("data", data_count, sum(not segment.is_parity for segment in segments))
    encoded = case.octet_strings("segments_hex")
    yield from _same_segments(encoded, [segment.content for segment in segments])
    yield from _recovered(payload, encoded, parity_count, config)


def _same_segments(expected: list[bytes], got: list[bytes]) -> Iterator[Check]:
    yield same("number of segments", len(expected), len(got))
    for index, (one, other) in enumerate(zip(expected, got, strict=False)):
        yield same(f"segment {index}", one, other)


def _code(data_count: int, parity_count: int) -> str:
    if parity_count == 0:
        return "none"
    if data_count == 1:
        return "copy"
    return "xor" if parity_count == 1 else f"FF{field_for(data_count, parity_count).bits}"


def _reassembled(config: SegmentationConfig, segment_format: SegmentFormat, contents: list[bytes]) -> bytes | None:
    """Return the payload that a receiver of these contents gets, or None if it gets none."""
    reassembler = Reassembler(config, segment_format)
    for index, content in enumerate(contents):
        outcome = reassembler.accept("sender", str(index), index, content, now_ms=0)
        if isinstance(outcome, MessageComplete):
            return outcome.payload
    return None


def _recovered(payload: bytes, encoded: list[bytes], parity_count: int, config: SegmentationConfig) -> Iterator[Check]:
    """Check that the payload comes back, with nothing lost and with the first or last data segments lost."""
    yield same("reassembled", payload, _reassembled(config, LIP_243, encoded))
    if parity_count:
        data_count = len(encoded) - parity_count
        kept = encoded[: data_count - parity_count] + encoded[data_count:]
        yield same(f"without the last {parity_count} data segments", payload, _reassembled(config, LIP_243, kept))
        kept = encoded[parity_count:]
        yield same(f"without the first {parity_count} data segments", payload, _reassembled(config, LIP_243, kept))


def check_parity_digest(case: Case) -> Iterator[Check]:
    """Check digests of parity shards that the Leopard library made."""
    k, p, size = case.integer("k"), case.integer("p"), case.integer("shard")
    rule = case.text("shard_i_byte_j")
    match = _SHARD_RULE.fullmatch(rule)
    if match is None or not 0 <= k * size <= _MOST_BYTES:
        raise MalformedCaseError(f"{k} shards of {size} bytes by the rule {rule!r} are not understood")
    stride, factor, offset = size if match[1] == "shard" else int(match[1]), int(match[2]), int(match[3])
    data = [bytes(((i * stride + j) * factor + offset + i * i) & 0xFF for j in range(size)) for i in range(k)]
    parity = leopard.encode(data, p)
    name = f"{k}+{p} of {size} B"
    yield same(f"{name} field", case.text("field"), f"FF{field_for(k, p).bits}")
    yield same(f"{name} parity shard 0", case.octets("parity0_hex"), parity[0])
    digest = sha256(b"".join(parity)).digest()
    yield same(f"{name} all parity shards", case.octets("sha256_of_concatenated_parity"), digest)


def check_waku_segments(case: Case) -> Iterator[Check]:
    """Check segmentation in the format of SEGMENTATION."""
    case.prose("about")
    payload, size = _payload(case), case.integer("segment_size")
    yield same("hash", case.octets("hash"), keccak256(payload))
    config = SegmentationConfig(segment_size_bytes=size, parity_rate=0.0, max_message_size_bytes=max(1, len(payload)))
    encoded = case.octet_strings("segments_hex")
    yield from _same_segments(
        encoded, [segment.content for segment in Segmenter(config, WAKU_SEGMENTS).split(payload).segments]
    )
    yield same("reassembled", payload, _reassembled(config, WAKU_SEGMENTS, encoded))

    parity, fields = case.octets("parity_example_hex"), case.child("parity_example_fields")
    segment = Segment(
        payload_hash=case.octets("hash"),
        index=fields.integer("parity_segment_index"),
        data_count=fields.integer("segments_count"),
        parity_count=fields.integer("parity_segments_count"),
        is_parity=True,
        payload=fields.octets("payload"),
        payload_length=None,
    )
    yield same("parity example encoded", parity, WAKU_SEGMENTS.encode(segment))
    yield same("parity example decoded", segment, WAKU_SEGMENTS.decode(parity))
