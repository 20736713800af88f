import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.protobuf import FrameDecoder, encode_frame, encode_uvarint


def pieces(stream, cuts):
    bounds = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


def outcome(stream_pieces, max_frame_bytes):
    """Frames and the fault that a stream gives, fed piece by piece and then ended."""
    decoder, frames = FrameDecoder(max_frame_bytes=max_frame_bytes), []
    try:
        for piece in stream_pieces:
            frames.extend(decoder.feed(piece))
        decoder.finish()
    except DecodeError as error:
        return frames, str(error)
    return frames, None


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**63 - 1, "ffffffffffffffff7f")],
)
def test_unsigned_varints_are_little_endian_groups_of_seven_bits(value, encoded):
    assert encode_uvarint(value).hex() == encoded


@pytest.mark.parametrize("value", [-1, 2**63])
def test_an_unsigned_varint_holds_63_bits(value):
    with pytest.raises(ConfigurationError, match=str(value)):
        encode_uvarint(value)


@given(st.lists(st.binary(max_size=300), max_size=10), st.lists(st.integers(0), max_size=20))
def test_frames_come_back_whole_however_the_stream_is_cut(frames, cuts):
    stream = b"".join(encode_frame(frame) for frame in frames)
    assert outcome(pieces(stream, cuts), max_frame_bytes=300) == (frames, None)


@given(st.binary(max_size=200), st.lists(st.integers(0), max_size=20))
def test_any_stream_gives_the_same_frames_and_the_same_fault_however_it_is_cut(stream, cuts):
    assert outcome(pieces(stream, cuts), max_frame_bytes=50) == outcome([stream], max_frame_bytes=50)


def test_an_incomplete_frame_waits():
    decoder = FrameDecoder(max_frame_bytes=1_000)
    frame = encode_frame(bytes(300))
    for position in range(len(frame) - 1):
        assert list(decoder.feed(frame[position : position + 1])) == []
    assert decoder.buffered_bytes == 299
    assert list(decoder.feed(frame[-1:])) == [bytes(300)]
    assert decoder.buffered_bytes == 0
    decoder.finish()


def test_a_length_of_a_gigabyte_is_refused_at_once_and_nothing_is_kept():
    decoder = FrameDecoder(max_frame_bytes=1_048_576)
    gigabyte = encode_uvarint(1_000_000_000)
    with pytest.raises(DecodeError, match="at most 1048576"):
        # The last byte of the prefix is not needed to tell.
        list(decoder.feed(gigabyte[:-1]))
    tracemalloc.start()
    try:
        for _ in range(100):
            with pytest.raises(DecodeError, match="at most 1048576"):
                list(decoder.feed(bytes(10_000)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.buffered_bytes == 0
    assert held < 100_000
    with pytest.raises(DecodeError, match="at most 1048576"):
        decoder.finish()


def test_frames_before_a_fault_in_the_same_piece_are_not_lost():
    frames = FrameDecoder(max_frame_bytes=10).feed(encode_frame(b"good") + encode_uvarint(11))
    assert next(frames) == b"good"
    with pytest.raises(DecodeError, match="11 bytes or more"):
        next(frames)


def test_frames_that_were_not_taken_come_with_the_next_piece():
    decoder = FrameDecoder(max_frame_bytes=10)
    assert next(decoder.feed(encode_frame(b"one") + encode_frame(b"two"))) == b"one"
    assert list(decoder.feed(encode_frame(b"three"))) == [b"two", b"three"]


@pytest.mark.parametrize("prefix", ["8000", "81808000", "ff" * 9 + "01", "80" * 9])
def test_an_overlong_or_endless_length_is_refused(prefix):
    with pytest.raises(DecodeError):
        list(FrameDecoder(max_frame_bytes=2**63 - 1).feed(bytes.fromhex(prefix)))


@pytest.mark.parametrize(("stream", "message"), [("80", "1 bytes of a length"), ("0501", "1 bytes of 5")])
def test_a_stream_that_ends_inside_a_frame_is_a_decode_error(stream, message):
    decoder = FrameDecoder(max_frame_bytes=10)
    assert list(decoder.feed(bytes.fromhex(stream))) == []
    with pytest.raises(DecodeError, match=message):
        decoder.finish()


def test_a_frame_of_exactly_the_limit_passes_and_an_empty_one_too():
    decoder = FrameDecoder(max_frame_bytes=300)
    assert list(decoder.feed(encode_frame(bytes(300)) + encode_frame(b""))) == [bytes(300), b""]


def test_a_negative_limit_is_refused():
    with pytest.raises(ConfigurationError, match="-1"):
        FrameDecoder(max_frame_bytes=-1)


def test_a_decoder_shows_what_it_waits_for():
    decoder = FrameDecoder(max_frame_bytes=10)
    list(decoder.feed(b"\x05ab"))
    assert repr(decoder) == "<FrameDecoder max_frame_bytes=10: 2 bytes wait, 5 expected>"
