import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import DecodeError
from fairway.wire.rlp import decode_rlp, encode_rlp

items = st.recursive(st.binary(max_size=80), lambda inner: st.lists(inner, max_size=6).map(tuple), max_leaves=20)

# The examples of the description of RLP in Ethereum's documentation.
EXAMPLES = {
    "83646f67": b"dog",
    "c88363617483646f67": (b"cat", b"dog"),
    "80": b"",
    "c0": (),
    "00": b"\0",
    "0f": b"\x0f",
    "820400": b"\x04\0",
    "c7c0c1c0c3c0c1c0": ((), ((),), ((), ((),))),
    "b838" + b"Lorem ipsum dolor sit amet, consectetur adipisicing elit".hex(): (
        b"Lorem ipsum dolor sit amet, consectetur adipisicing elit"
    ),
}


@pytest.mark.parametrize("encoded", EXAMPLES)
def test_the_published_examples_are_written_and_read(encoded):
    assert encode_rlp(EXAMPLES[encoded]).hex() == encoded
    assert decode_rlp(bytes.fromhex(encoded)) == EXAMPLES[encoded]


@given(items)
def test_any_item_survives(item):
    assert decode_rlp(encode_rlp(item)) == item


@given(st.binary(max_size=120))
def test_any_bytes_are_an_item_in_its_one_encoding_or_refused(data):
    try:
        item = decode_rlp(data)
    except DecodeError:
        return
    assert encode_rlp(item) == data


REFUSED = {
    "nothing": "",
    "bytes after the end": "8000",
    "a byte below 128 behind a length": "8100",
    "a long form for a short string": "b801ff",
    "a length with a leading zero": "b900ff" + "00" * 255,
    "a length that is cut off": "b9",
    "a string that is cut off": "83646f",
    "a list that is cut off": "c883636174",
    "an item that is longer than its list": "c283636174",
    "a length of 2**64 - 1": "bf" + "ff" * 8,
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_a_second_encoding_of_an_item_is_refused(data):
    with pytest.raises(DecodeError):
        decode_rlp(bytes.fromhex(data))
