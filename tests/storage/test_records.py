"""Events and requests as records: whole, and readable by versions with more or fewer fields."""

from __future__ import annotations

from enum import Enum
from types import NoneType, UnionType
from typing import get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import StoreCorruptError
from fairway.events import ChunkInfo, Event, MessageReceived
from fairway.storage.channel_store import OwnMessage, StoredRequest, TracePoint
from fairway.storage.records import (
    check_value,
    message_columns,
    point_columns,
    read_message,
    read_own_message,
    read_point,
    read_request,
    request_columns,
)

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


@examples(0.5)
@given(message=built(MessageReceived))
def test_a_message_comes_back_from_the_inbox(message):
    number, is_own, body, check = message_columns(3, message)
    assert not is_own
    assert read_message(number, body, check) == message


@examples(0.5)
@given(message=built(OwnMessage))
def test_an_own_message_comes_back(message):
    number, is_own, body, check = message_columns(3, message)
    assert is_own
    assert read_own_message(number, body, check) == message


@examples(0.5)
@given(request=built(StoredRequest))
def test_a_request_comes_back(request):
    request_id, _, body, check = request_columns(request)
    assert read_request(request_id, body, check) == request


def record_of(value, place):
    body = msgspec.msgpack.encode(value)
    return body, check_value(body, place)


@pytest.mark.parametrize(
    "value", [{}, {"request_id": 5, "message_id": "m"}, [], ChunkInfo(chunk_index=0, total_chunks=1)]
)
def test_a_record_of_another_shape_is_corrupt(value):
    with pytest.raises(StoreCorruptError, match="trace/1"):
        read_point(1, 2, "RequestSent", None, *record_of(value, "trace/1"))
