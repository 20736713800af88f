import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, EmptyPayloadError, MessageTooLargeError
from fairway.options import SegmentationConfig
from fairway.protocol.segmentation.segmenter import Segmentation, Segmenter
from fairway.wire.hashing import keccak256
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS, Segment


def payload_of(length):
    return bytes((i * 37 + 11) & 0xFF for i in range(length))


def segmenter(segment_format=WAKU_SEGMENTS, **options):
    return Segmenter(SegmentationConfig(**options), segment_format)


def segments(segmentation, segment_format=WAKU_SEGMENTS):
    return [segment_format.decode(part.content) for part in segmentation.segments]


# LIP-243


def test_a_single_segment_has_no_parity_unless_it_is_asked_for():
    config = SegmentationConfig(segment_size_bytes=192, parity_rate=1.0)
    assert len(Segmenter(config, LIP_243).split(b"ok").segments) == 1
    data, copy = Segmenter(config, LIP_243, single_segment_parity=True).split(b"ok").segments
    assert (data.is_parity, copy.is_parity) == (False, True)


def test_the_segments_of_lip_243_stay_within_the_configured_size():
    for size in (192, 255, 256, 1_000, 102_400):
        split = segmenter(LIP_243, segment_size_bytes=size, parity_rate=0.5).split(payload_of(min(20 * size, 10**6)))
        assert max(len(part.content) for part in split.segments) <= size


def test_the_largest_payload_of_lip_243_leaves_room_for_its_parity():
    options = {"segment_size_bytes": 192, "parity_rate": 0.125, "max_message_size_bytes": 10**9}
    assert len(segmenter(LIP_243, **options).split(bytes(227 * 64)).segments) == 227 + 29
    with pytest.raises(MessageTooLargeError) as caught:
        segmenter(LIP_243, **options).split(bytes(227 * 64 + 1))
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (227 * 64 + 1, 227 * 64)
    assert len(segmenter(LIP_243, **(options | {"parity_rate": 0.0})).split(bytes(256 * 64)).segments) == 256


@pytest.mark.parametrize(
    ("segment_format", "options", "told"),
    [
        (LIP_243, {"segment_size_bytes": 191}, "at least 192"),
        (WAKU_SEGMENTS, {"segment_size_bytes": 63}, "at least 64 for parity"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_at_once(segment_format, options, told):
    with pytest.raises(ConfigurationError, match=told):
        segmenter(segment_format, **options)


# SEGMENTATION


@pytest.mark.parametrize("length", [1, 199, 200])
def test_a_payload_that_fits_is_sent_unmodified(length):
    split = segmenter(segment_size_bytes=200, parity_rate=0).split(payload_of(length))
    assert split.payload_hash is None
    (part,) = split.segments
    assert part.content == payload_of(length)
    assert (part.order, part.data_count, part.is_parity) == (0, 1, False)


@pytest.mark.parametrize(
    ("k", "p"),
    [(2, 0), (7, 0), (8, 1), (11, 1), (15, 1), (16, 2), (100, 12), (228, 28)],
)
def test_the_parity_of_the_waku_format_is_the_rate_rounded_down(k, p):
    split = segmenter(segment_size_bytes=64).split(payload_of(64 * k - 5))
    assert [part.is_parity for part in split.segments] == [False] * k + [True] * p
    assert [part.order for part in split.segments] == list(range(k + p))


@pytest.mark.parametrize(("k", "total"), [(229, 229), (256, 256)])
def test_parity_gives_way_when_256_segments_are_not_enough(k, total):
    assert len(segmenter(segment_size_bytes=64).split(payload_of(64 * k)).segments) == total


def test_a_segment_size_that_64_does_not_divide_is_rounded_down_where_there_is_parity():
    parts = segmenter(segment_size_bytes=100_000).split(payload_of(1_000_000)).segments
    assert [len(segment.payload) for segment in segments(Segmentation(payload_hash=None, segments=parts[:1]))] == [
        99_968
    ]
    assert [part.is_parity for part in parts] == [False] * 11 + [True]
    assert not any(
        part.is_parity for part in segmenter(segment_size_bytes=100, parity_rate=0).split(payload_of(1_000)).segments
    )


def test_more_than_256_segments_are_refused():
    with pytest.raises(MessageTooLargeError, match="at most 16384"):
        segmenter(segment_size_bytes=64).split(bytes(64 * 256 + 1))


def test_an_empty_payload_is_refused():
    with pytest.raises(EmptyPayloadError):
        segmenter().split(b"")


@pytest.mark.parametrize("length", [0, 1, 40])
@pytest.mark.parametrize("rate", [0.125, 1.0])
def test_a_payload_that_looks_like_a_segment_is_sent_as_two(length, rate):
    disguised = WAKU_SEGMENTS.encode(
        Segment(
            payload_hash=bytes(32),
            index=1,
            data_count=300,
            parity_count=0,
            is_parity=False,
            payload=bytes(length),
            payload_length=None,
        )
    )
    split = segmenter(segment_size_bytes=128, parity_rate=rate).split(disguised)
    assert b"".join(segment.payload for segment in segments(split)) == disguised
    assert [(segment.index, segment.data_count) for segment in segments(split)] == [(0, 2), (1, 2)]
    assert split.payload_hash == keccak256(disguised)


@given(st.binary(min_size=1, max_size=3_000), st.sampled_from([64, 100, 128]))
def test_no_part_of_the_waku_format_is_ever_mistaken(payload, size):
    split = segmenter(segment_size_bytes=size).split(payload)
    if split.payload_hash is None:
        assert [part.content for part in split.segments] == [payload]
        assert not WAKU_SEGMENTS.is_segment(payload)
    else:
        data = [segment for segment in segments(split) if not segment.is_parity]
        assert b"".join(segment.payload for segment in data) == payload
        assert max(len(segment.payload) for segment in data) <= size
        assert {segment.payload_hash for segment in segments(split)} == {keccak256(payload)}
