import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.peer_exchange import (
    MAX_RECORDS,
    MAX_REQUEST_BYTES,
    MAX_RESPONSE_BYTES,
    PeerExchangeRequest,
    PeerExchangeResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

responses = st.builds(
    PeerExchangeResponse,
    records=st.lists(st.binary(max_size=300), max_size=MAX_RECORDS).map(tuple),
    status=st.integers(0, 2**32 - 1),
    detail=st.text(max_size=20),
)


@given(st.integers(0, 2**64 - 1))
def test_any_request_survives_the_wire(count):
    request = PeerExchangeRequest(peer_count=count)
    assert decode_request(encode_request(request)) == request


@given(responses)
def test_any_response_survives_the_wire(response):
    assert decode_response(encode_response(response)) == response


def test_the_fields_have_the_numbers_of_the_specification():
    assert encode_request(PeerExchangeRequest(peer_count=5)).hex() == "0a02" + "0805"
    assert encode_response(PeerExchangeResponse(records=(b"\xf8",))).hex() == "1205" + "0a030a01f8" + "5203" + "08c801"


def test_the_response_of_an_older_node_has_no_status():
    assert decode_response(bytes.fromhex("1205" + "0a030a01f8")) == PeerExchangeResponse(
        records=(b"\xf8",), status=None
    )
    assert encode_response(PeerExchangeResponse(records=(b"\xf8",), status=None)).hex() == "1205" + "0a030a01f8"


def test_a_refusal_needs_no_response():
    assert decode_response(bytes.fromhex("5203" + "08ad03")) == PeerExchangeResponse(status=429)


def test_of_an_endless_response_only_the_first_records_are_read():
    many = bytes.fromhex("0a030a01f8") * 1_000
    data = b"\x12" + bytes([len(many) & 0x7F | 0x80, len(many) >> 7]) + many
    assert decode_response(data).records == (b"\xf8",) * MAX_RECORDS


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    for decode in (decode_request, decode_response):
        with contextlib.suppress(DecodeError):
            assert decode(data) is not None


WRONG = {"nothing": "", "both": "0a02080512050a030a01f8", "text": "68656c6c6f"}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_what_is_neither_or_both_is_refused(data):
    for decode in (decode_request, decode_response):
        with pytest.raises(DecodeError):
            decode(bytes.fromhex(data))


def test_what_is_too_long_is_refused_unread():
    with pytest.raises(DecodeError, match="at most"):
        decode_request(bytes(MAX_REQUEST_BYTES + 1))
    with pytest.raises(DecodeError, match="at most"):
        decode_response(bytes(MAX_RESPONSE_BYTES + 1))


def test_too_many_records_and_too_large_counts_are_not_written():
    with pytest.raises(ConfigurationError, match="at most 60"):
        encode_response(PeerExchangeResponse(records=(b"",) * (MAX_RECORDS + 1)))
    with pytest.raises(ConfigurationError, match="cannot be encoded"):
        encode_request(PeerExchangeRequest(peer_count=-1))
