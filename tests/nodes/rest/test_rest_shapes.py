"""JSON and server-sent events: what goes in comes out, in whatever pieces, and what is none is one error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import DecodeError, StoreQueryError
from fairway.json_reading import read_json
from fairway.nodes.rest import feed
from fairway.nodes.rest.feed import EventParser
from fairway.nodes.rest.shapes import (
    JsonMessage,
    filter_shape,
    json_of,
    message_of,
    relay_shape,
    store_shape,
)
from fairway.nodes.rest.store_messages import store_hashes
from fairway.wire.waku_message import WakuMessage, message_hash

MESSAGES = st.builds(
    WakuMessage,
    payload=st.binary(min_size=1, max_size=200),
    content_topic=st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip),
    version=st.none() | st.integers(1, 2**32 - 1),
    timestamp_ns=st.none() | st.integers(1, 2**63 - 1),
    meta=st.none() | st.binary(min_size=1, max_size=64),
    rate_limit_proof=st.none() | st.binary(min_size=1, max_size=300),
    ephemeral=st.sampled_from([None, True]),
)


@given(MESSAGES)
def test_a_message_survives_relay_and_store_and_filter_but_for_its_proof(message):
    for shape in (relay_shape, store_shape, filter_shape):
        back = message_of(read_json(json_of(shape(message)), JsonMessage))
        assert message_hash("/waku/2/rs/1/0", back) == message_hash("/waku/2/rs/1/0", message)
        if shape is not filter_shape:
            assert back == message


@given(st.binary(max_size=300) | st.text(max_size=100).map(lambda text: b'{"payload":"%s"}' % text.encode()))
def test_what_is_no_message_is_one_kind_of_error(data):
    with pytest.raises(DecodeError, match=r"\S"):
        message_of(read_json(data, JsonMessage))


def test_a_page_of_hashes_is_read_and_others_are_not():
    key = "0x" + "ab" * 32
    page = {"statusCode": 200, "statusDesc": "OK", "messages": [{"messageHash": key}], "paginationCursor": key}
    assert store_hashes(json_of(page)) == ((b"\xab" * 32,), b"\xab" * 32)
    changes = ({"messages": [{"messageHash": "0x12"}]}, {"messages": [{}]}, {"statusCode": 500})
    for wrong in ({**page, **change} for change in changes):
        with pytest.raises(StoreQueryError):
            store_hashes(json_of(wrong))


STREAM = (
    b"retry: 1000\n\n: still here\n\nid: 0x01\nevent: message\ndata: {}\n\nevent: gap\ndata: one\ndata:two\n\n"
    b"data\n\nid: bad\0id\nnothing: known\ndata: x\n\nevent: empty\n\n"
)
EVENTS = [
    ("message", b"{}"),
    ("gap", b"one\ntwo"),
    ("message", b""),
    ("message", b"x"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_are_the_same_in_whatever_pieces_they_come(cuts):
    parser, events, begin = EventParser(), [], 0
    for end in [*sorted(cuts), len(STREAM)]:
        events += parser.feed(STREAM[begin:end])
        begin = end
    assert events == EVENTS


@given(st.binary(max_size=500))
def test_nonsense_is_no_event_and_no_crash(data):
    assert all(isinstance(kind, str) for kind, _ in EventParser().feed(data))


def test_an_event_that_is_too_long_is_refused_in_one_line_and_in_many(monkeypatch):
    monkeypatch.setattr(feed, "MAX_EVENT_BYTES", 100)
    for chunk in (b"data: " + b"x" * 90, b"data: x\n" * 30):
        parser = EventParser()
        with pytest.raises(DecodeError, match="more than 100 bytes"):
            parser.feed(chunk * 10)
