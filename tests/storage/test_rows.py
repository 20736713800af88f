"""A row of the protocol's state comes back exactly as it was, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import StorageError, StoreCorruptError
from fairway.storage.records import check_value, decode_row, encode, verify

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(st.characters(codec="utf-8"))
    | st.binary()
)
ROWS = st.lists(st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=20)).map(tuple)


@given(row=ROWS)
def test_a_row_comes_back_as_it_was(row):
    # Compared as text, for 1, 1.0 and True are equal, and not a number is not.
    assert repr(decode_row(encode(row))) == repr(row)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, "\ud800", 1j, object])
def test_a_value_that_cannot_be_stored_is_refused_at_the_write(value):
    with pytest.raises(StorageError, match="cannot be stored"):
        encode((1, (value,)))


@examples(0.5)
@given(row=ROWS, data=st.data())
def test_a_turned_bit_is_noticed(row, data):
    body = bytearray(encode(row))
    check = check_value(bytes(body), "history/a")
    assert verify(bytes(body), check, "history/a") == body
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    body[bit // 8] ^= 1 << bit % 8
    with pytest.raises(StoreCorruptError, match=r"history/a.*put the file aside"):
        verify(bytes(body), check, "history/a")


def test_a_record_in_the_place_of_another_is_noticed():
    body = encode((1,))
    with pytest.raises(StoreCorruptError, match="damaged"):
        verify(body, check_value(body, "history/a"), "history/b")


@pytest.mark.parametrize(
    "body",
    [b"", b"\x93\x01", b"\xc1", encode("text"), encode(5), encode((1,)) + b"\x00", b"\x91" * 1_000_000 + b"\x01"],
    ids=range(7),
)
def test_bytes_that_are_no_row_are_refused(body):
    with pytest.raises(StoreCorruptError, match="cannot be read"):
        decode_row(body)
