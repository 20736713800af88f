import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import SegmentError
from fairway.wire.segment import BARE, LIP_243, WAKU_SEGMENTS, Segment

HASH = bytes(range(32))
FORMATS = pytest.mark.parametrize("segment_format", [WAKU_SEGMENTS, LIP_243, BARE], ids=lambda known: known.name)


def varint(number):
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def number_field(tag, value):
    return varint(tag << 3) + varint(value)


def bytes_field(tag, value):
    return varint(tag << 3 | 2) + varint(len(value)) + value


def waku_segment(payload_hash=HASH, **fields):
    tags = {"index": 2, "segment_count": 3, "parity_segment_index": 5, "parity_segments_count": 6}
    return bytes_field(1, payload_hash) + b"".join(number_field(tags[name], fields[name]) for name in fields)


def lip_243(payload_hash=HASH, **fields):
    tags = {"length": 2, "index": 3, "data_count": 4, "parity_count": 5, "is_parity": 6}
    return bytes_field(1, payload_hash) + b"".join(number_field(tags[name], fields[name]) for name in fields)


@st.composite
def waku_segments(draw):
    is_parity = draw(st.booleans())
    count = draw(st.integers(1 if is_parity else 2, 256))
    return Segment(
        payload_hash=draw(st.binary(min_size=32, max_size=32)),
        index=draw(st.integers(0, count - 1)),
        data_count=0 if is_parity else count,
        parity_count=count if is_parity else 0,
        is_parity=is_parity,
        payload=draw(st.binary()),
        payload_length=None,
    )


def piece(index, data_count, payload, *, is_parity=False):
    return Segment(
        payload_hash=HASH,
        index=index,
        data_count=data_count,
        parity_count=0,
        is_parity=is_parity,
        payload=payload,
        payload_length=None,
    )


@given(st.binary(min_size=2, max_size=200), st.integers(1, 100))
def test_a_piece_is_known_by_its_place_its_size_and_its_bytes(whole, size):
    pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
    for index, payload in enumerate(pieces):
        assert piece(index, len(pieces), payload).is_piece_of(whole)
        assert not piece(index, len(pieces), payload, is_parity=True).is_piece_of(whole)
        assert not piece(index, len(pieces), bytes([payload[0] ^ 1]) + payload[1:]).is_piece_of(whole)
        assert not piece(index, len(pieces) + len(whole), payload).is_piece_of(whole)
        assert not piece(index, len(pieces), payload + b"more").is_piece_of(whole)


@st.composite
def segments_of_lip_243(draw):
    data_count = draw(st.integers(1, 200))
    parity_count = draw(st.integers(0, 56))
    is_parity = draw(st.booleans()) if parity_count else False
    return Segment(
        payload_hash=draw(st.binary(min_size=32, max_size=32)),
        index=draw(st.integers(0, (parity_count if is_parity else data_count) - 1)),
        data_count=data_count,
        parity_count=parity_count,
        is_parity=is_parity,
        payload=draw(st.binary()),
        payload_length=draw(st.integers(0, 2**32 - 1)),
    )


@given(waku_segments())
def test_a_segment_of_the_waku_format_survives_the_wire(segment):
    assert WAKU_SEGMENTS.decode(WAKU_SEGMENTS.encode(segment)) == segment
    assert WAKU_SEGMENTS.is_segment(WAKU_SEGMENTS.encode(segment))
    assert WAKU_SEGMENTS.is_later_segment(WAKU_SEGMENTS.encode(segment)) == (segment.is_parity or segment.index > 0)


@given(segments_of_lip_243())
def test_a_segment_of_lip_243_survives_the_wire(segment):
    assert LIP_243.decode(LIP_243.encode(segment)) == segment
    assert LIP_243.is_segment(LIP_243.encode(segment))
    assert LIP_243.is_later_segment(LIP_243.encode(segment)) == (segment.is_parity or segment.index > 0)


@FORMATS
@pytest.mark.parametrize("data", [b"\x0b" * 5_000, b"\x0b" * 50 + b"\x0c" * 50, b"\x08\x00" * 5_000], ids=repr)
def test_nested_groups_and_floods_of_unknown_fields_are_refused(segment_format, data):
    with pytest.raises(SegmentError):
        segment_format.decode(data)
    assert not WAKU_SEGMENTS.is_segment(data)
    assert not segment_format.is_later_segment(data)


# SEGMENTATION


@pytest.mark.parametrize(
    "fields",
    [
        {"segment_count": 2},
        {"index": 1, "segment_count": 2},
        {"parity_segments_count": 1},
        {"parity_segment_index": 3, "parity_segments_count": 4},
        {"segment_count": 2, "parity_segments_count": 1},
    ],
    ids=str,
)
def test_the_combinations_that_the_waku_format_permits_are_segments(fields):
    assert WAKU_SEGMENTS.is_segment(waku_segment(**fields))


@pytest.mark.parametrize(
    "data",
    [
        waku_segment(),
        waku_segment(segment_count=1),
        waku_segment(index=2, segment_count=2),
        waku_segment(index=2, segment_count=2, parity_segments_count=1),
        waku_segment(segment_count=1, parity_segments_count=1),
        waku_segment(parity_segment_index=1, parity_segments_count=1),
        waku_segment(parity_segment_index=1),
        waku_segment(HASH[:31], segment_count=2),
        waku_segment(HASH + b"!", segment_count=2),
        waku_segment(b"", segment_count=2) + bytes_field(4, bytes(40)),
    ],
    ids=bytes.hex,
)
def test_no_other_combination_is_a_segment_of_the_waku_format(data):
    assert not WAKU_SEGMENTS.is_segment(data)
    with pytest.raises(SegmentError) as caught:
        WAKU_SEGMENTS.decode(data)
    assert caught.value.reason == "invalid"


def test_parity_fields_of_a_data_segment_of_the_waku_format_are_ignored():
    segment = WAKU_SEGMENTS.decode(
        waku_segment(index=1, segment_count=2, parity_segment_index=7, parity_segments_count=3)
    )
    assert (segment.index, segment.data_count, segment.parity_count, segment.is_parity) == (1, 2, 0, False)


def test_a_segment_of_the_waku_format_may_have_its_fields_in_any_order_and_unknown_ones_first():
    shuffled = number_field(3, 2) + bytes_field(15, b"later") + bytes_field(4, b"payload") + bytes_field(1, HASH)
    assert WAKU_SEGMENTS.is_segment(shuffled)
    assert WAKU_SEGMENTS.decode(shuffled).payload == b"payload"


# LIP-243


@pytest.mark.parametrize(
    "data",
    [
        lip_243(),
        lip_243(HASH[:31], data_count=1),
        lip_243(b"", data_count=1),
        lip_243(index=3, data_count=3),
        lip_243(data_count=256, parity_count=1),
        lip_243(data_count=2, is_parity=1),
        lip_243(index=1, data_count=2, parity_count=1, is_parity=1),
        lip_243(data_count=2**32 + 1),
        lip_243(index=2**32, data_count=1),
        lip_243(length=2**32, data_count=1),
    ],
    ids=bytes.hex,
)
def test_a_broken_rule_of_lip_243_is_invalid(data):
    assert LIP_243.is_segment(data)
    with pytest.raises(SegmentError) as caught:
        LIP_243.decode(data)
    assert caught.value.reason == "invalid"
