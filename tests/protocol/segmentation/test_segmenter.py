import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, EmptyPayloadError, MessageTooLargeError
from fairway.options import SegmentationConfig
from fairway.protocol.segmentation.segmenter import Segmentation, Segmenter, parity_segments
from fairway.wire.hashing import keccak256
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS, Segment

A_SEGMENT = Segment(
    payload_hash=bytes(32), index=0, data_count=2, parity_count=0, is_parity=False, payload=b"a", payload_length=None
)
VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "segmentation.json").read_text())


def payload_of(length):
    return bytes((i * 37 + 11) & 0xFF for i in range(length))


def segmenter(segment_format=WAKU_SEGMENTS, **options):
    return Segmenter(SegmentationConfig(**options), segment_format)


def segments(segmentation, segment_format=WAKU_SEGMENTS):
    return [segment_format.decode(part.content) for part in segmentation.segments]


@pytest.mark.parametrize("known", VECTORS["keccak256"], ids=lambda known: str(known["payload_len"]))
def test_payloads_are_named_by_their_keccak_256(known):
    assert keccak256(payload_of(known["payload_len"])).hex() == known["keccak256"]


# LIP-243


@pytest.mark.parametrize("known", VECTORS["segmentation"], ids=lambda known: known["name"])
def test_a_payload_is_segmented_as_lip_243_demands_byte_for_byte(known):
    config = SegmentationConfig(segment_size_bytes=known["segment_size_bytes"], parity_rate=known["rate"])
    single = known["data"] == 1 and known["parity"] == 1
    split = Segmenter(config, LIP_243, single_segment_parity=single).split(payload_of(known["payload_len"]))
    assert [part.content.hex() for part in split.segments] == known["segments_hex"]
    assert split.payload_hash.hex() == known["hash"]
    assert [part.order for part in split.segments] == list(range(known["data"] + known["parity"]))
    assert [part.is_parity for part in split.segments] == [False] * known["data"] + [True] * known["parity"]
    assert {part.data_count for part in split.segments} == {known["data"]}


@pytest.mark.parametrize("known", VECTORS["parity_count"], ids=lambda known: known["rate"])
def test_the_parity_of_lip_243_is_the_rate_rounded_up_in_integers(known):
    rate = float(known["rate"])
    counts = {k: parity_segments(int(k), rate, round_up=True) for k in known["k_to_p"]}
    assert counts == known["k_to_p"]


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


def test_an_empty_payload_is_one_segment_of_lip_243():
    (part,) = segmenter(LIP_243).split(b"").segments
    assert len(part.content) == 36


@pytest.mark.parametrize(
    ("segment_format", "options", "told"),
    [
        (LIP_243, {"segment_size_bytes": 191}, "at least 192"),
        (WAKU_SEGMENTS, {"max_total_segments": 1}, "at least 2"),
        (WAKU_SEGMENTS, {"segment_size_bytes": 63}, "at least 64 for parity"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_at_once(segment_format, options, told):
    with pytest.raises(ConfigurationError, match=told):
        segmenter(segment_format, **options)


def test_parity_that_never_fits_is_refused_at_once():
    config = SegmentationConfig(max_total_segments=1)
    assert len(Segmenter(config, LIP_243).split(b"ok").segments) == 1
    with pytest.raises(ConfigurationError, match="no room for parity"):
        Segmenter(config, LIP_243, single_segment_parity=True)


# SEGMENTATION


@pytest.mark.parametrize("length", [1, 199, 200])
def test_a_payload_that_fits_is_sent_unmodified(length):
    split = segmenter(segment_size_bytes=200, parity_rate=0).split(payload_of(length))
    assert split.payload_hash is None
    (part,) = split.segments
    assert part.content == payload_of(length)
    assert (part.order, part.data_count, part.is_parity) == (0, 1, False)


def test_a_larger_payload_is_split_as_the_waku_format_demands_byte_for_byte():
    known = VECTORS["waku"]
    split = segmenter(segment_size_bytes=known["segment_size"], parity_rate=0).split(payload_of(known["payload_len"]))
    assert [part.content.hex() for part in split.segments] == known["segments_hex"]
    assert split.payload_hash.hex() == known["hash"]


@pytest.mark.parametrize(
    ("k", "at_least", "p"),
    [
        *[(2, 0, 0), (7, 0, 0), (2, 1, 1), (7, 1, 1), (2, 3, 2), (7, 3, 3)],
        *[(8, 1, 1), (11, 1, 1), (15, 1, 1), (16, 1, 2), (100, 1, 12), (228, 1, 28)],
    ],
)
def test_the_parity_of_the_waku_format_is_the_rate_rounded_down_and_at_least_what_is_asked_for(k, at_least, p):
    split = segmenter(segment_size_bytes=64, min_parity_segments=at_least).split(payload_of(64 * k - 5))
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


def test_no_option_makes_more_than_256_segments():
    options = {"segment_size_bytes": 64, "max_total_segments": 1_000}
    assert len(segmenter(**options).split(payload_of(64 * 200)).segments) == 225
    with pytest.raises(MessageTooLargeError, match="at most 16384"):
        segmenter(**options).split(payload_of(40_000))


def test_more_than_256_segments_are_refused():
    with pytest.raises(MessageTooLargeError, match="at most 16384"):
        segmenter(segment_size_bytes=64).split(bytes(64 * 256 + 1))


def test_a_message_above_the_configured_maximum_is_refused():
    assert segmenter(max_message_size_bytes=10).split(bytes(10))
    with pytest.raises(MessageTooLargeError, match="max_message_size_bytes"):
        segmenter(max_message_size_bytes=10).split(bytes(11))


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


@given(
    st.sampled_from([WAKU_SEGMENTS, LIP_243]),
    st.binary(min_size=1, max_size=3_000) | st.just(WAKU_SEGMENTS.encode(A_SEGMENT)),
    st.sampled_from([192, 256, 1_000]),
    st.sampled_from([0.0, 0.125, 1.0]),
)
def test_segments_are_counted_as_they_are_made(segment_format, payload, size, rate):
    cutting = segmenter(segment_format, segment_size_bytes=size, parity_rate=rate)
    assert cutting.segment_count(payload) == len(cutting.split(payload).segments)


def test_what_cannot_be_segmented_is_not_counted():
    with pytest.raises(EmptyPayloadError):
        segmenter().segment_count(b"")
    with pytest.raises(MessageTooLargeError):
        segmenter(max_message_size_bytes=10).segment_count(bytes(11))
