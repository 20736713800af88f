import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.libp2p.decoding import decode_uvarint
from fairway.libp2p.errors import FrameError
from fairway.wire.varint import MAX_UVARINT, encode_uvarint

# unsigned-varint, "Examples".
EXAMPLES = [(1, "01"), (127, "7f"), (128, "8001"), (255, "ff01"), (300, "ac02"), (16384, "808001")]


@pytest.mark.parametrize(("value", "encoded"), EXAMPLES)
def test_the_specifications_examples_are_written_and_read(value, encoded):
    assert encode_uvarint(value).hex() == encoded
    assert decode_uvarint(bytes.fromhex(encoded)) == (value, len(encoded) // 2)


@given(st.integers(0, MAX_UVARINT), st.binary(max_size=4), st.binary(max_size=4))
def test_every_value_is_read_back_from_the_middle_of_a_buffer(value, before, after):
    encoded = encode_uvarint(value)
    assert decode_uvarint(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@pytest.mark.parametrize("encoded", ["8000", "ff00", "80808000"])
def test_a_form_that_is_not_the_shortest_is_refused(encoded):
    with pytest.raises(FrameError, match="shortest"):
        decode_uvarint(bytes.fromhex(encoded))


def test_more_than_nine_bytes_are_refused():
    with pytest.raises(FrameError):
        decode_uvarint(b"\x80" * 9 + b"\x01")
    with pytest.raises(FrameError, match="more than 9"):
        decode_uvarint(b"\x80" * 9)


def test_a_value_above_the_limit_is_refused_before_its_last_byte():
    with pytest.raises(FrameError, match="at most 1024"):
        decode_uvarint(b"\xff\xff", max_value=1024)
    assert decode_uvarint(encode_uvarint(1024), max_value=1024) == (1024, 2)
