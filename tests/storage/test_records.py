"""Records of a store are read as they were written, or raise an error."""

from __future__ import annotations

from enum import Enum
from types import NoneType, UnionType
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import StorageError, StoreCorruptError
from fairway.events import ChunkInfo, Event, MessageReceived
from fairway.storage.channel_store import Handling, OwnMessage, StoredRequest, TracePoint
from fairway.storage.records import check_value, decode_row, encode, point_columns, read, read_point, sealed, verify

INTEGERS = st.integers(-(2**63), 2**64 - 1)
TEXT = st.text(st.characters(codec="utf-8"))
OF_TYPE = {
    str: TEXT,
    int: INTEGERS,
    bool: st.booleans(),
    bytes: st.binary(),
    int | None: st.none() | INTEGERS,
    str | None: st.none() | TEXT,
    bytes | None: st.none() | st.binary(),
    tuple[str, ...]: st.lists(TEXT).map(tuple),
    tuple[int, ...]: st.lists(INTEGERS).map(tuple),
    tuple[bytes, ...]: st.lists(st.binary()).map(tuple),
}
KINDS = get_args(Event)


def strategy_of(kind):
    """Return a strategy for the values of a type that fields of events have."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if kind in OF_TYPE:
        return OF_TYPE[kind]
    if isinstance(kind, UnionType):
        # The only unions of fields are those with None.
        return st.none() | built(next(each for each in get_args(kind) if each is not NoneType))
    return built(kind)


def built(kind):
    return st.builds(kind, **{name: strategy_of(hint) for name, hint in get_type_hints(kind).items()})


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
@examples(0.25)
@given(data=st.data())
def test_every_event_comes_back_from_a_trace(kind, data):
    overrides = {"payload": st.just(b"")} if kind is MessageReceived else {}
    hints = {name: overrides.get(name, strategy_of(hint)) for name, hint in get_type_hints(kind).items()}
    point = TracePoint(at_ms=5, event=data.draw(st.builds(kind, **hints)), size_bytes=data.draw(st.none() | INTEGERS))
    assert read_point(*point_columns(7, point)) == point


@pytest.mark.parametrize("kind", [MessageReceived, OwnMessage, Handling, StoredRequest])
@examples(0.25)
@given(data=st.data())
def test_a_message_a_request_and_failed_attempts_come_back(kind, data):
    value = data.draw(built(kind))
    assert read(kind, "place", *sealed("place", value)) == value


@pytest.mark.parametrize(
    "value", [{}, {"request_id": 5, "message_id": "m"}, [], ChunkInfo(chunk_index=0, total_chunks=1)]
)
def test_a_record_of_another_shape_is_corrupt(value):
    with pytest.raises(StoreCorruptError, match="trace/1"):
        read_point(1, 2, "RequestSent", None, *sealed("trace/1", value))


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
def test_a_flipped_bit_in_a_row_raises_an_error(row, data):
    body = bytearray(encode(row))
    check = check_value(bytes(body), "history/a")
    assert verify(bytes(body), check, "history/a") == body
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    body[bit // 8] ^= 1 << bit % 8
    with pytest.raises(StoreCorruptError, match=r"history/a.*put the file aside"):
        verify(bytes(body), check, "history/a")


def test_a_record_in_the_place_of_another_raises_an_error():
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
