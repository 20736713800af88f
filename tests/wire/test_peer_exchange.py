"""Messages of peer exchange: those of nwaku byte for byte, those of go-waku and js-waku read."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.peer_exchange import (
    MAX_RECORDS,
    PeerExchangeRequest,
    PeerExchangeResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

NWAKU = json.loads((Path(__file__).parents[1] / "vectors/nwaku/peer_exchange.json").read_bytes())

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


def test_a_request_has_the_bytes_of_nwaku():
    assert encode_request(PeerExchangeRequest(peer_count=5)).hex() == NWAKU["request"]


def test_nwaku_reads_the_query_of_our_request_in_the_first_field():
    """It refuses a message without the field (`missingRequiredField("request")`)."""
    assert encode_request(PeerExchangeRequest(peer_count=0)).hex() == "0a020800" + "12025000"


@pytest.mark.parametrize("answer", NWAKU["answers"].values(), ids=NWAKU["answers"])
def test_an_answer_of_nwaku_is_read_and_written_byte_for_byte(answer):
    data = bytes.fromhex(answer["response"])
    response = decode_response(data)
    assert encode_response(response) == data
    assert response.status == (200 if answer["request"] in {"0a02080a", "0a00"} else 400)
    assert bool(response.detail) == (response.status == 400)


def test_the_status_stands_behind_the_records_of_a_response():
    assert (
        encode_response(PeerExchangeResponse(records=(b"\xf8",))).hex() == "0a020800" + "1208" + "0a030a01f8" + "50c801"
    )


def test_of_an_endless_response_only_the_first_records_are_read():
    many = bytes.fromhex("0a030a01f8") * 1_000
    data = b"\x12" + bytes([len(many) & 0x7F | 0x80, len(many) >> 7]) + many
    assert decode_response(data).records == (b"\xf8",) * MAX_RECORDS


WRONG = {"empty": "", "text": "68656c6c6f", "another field": "5203" + "08ad03"}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_a_message_without_the_part_that_is_meant_is_refused(data):
    for decode in (decode_request, decode_response):
        with pytest.raises(DecodeError):
            decode(bytes.fromhex(data))
    with pytest.raises(DecodeError, match="query"):
        decode_request(bytes.fromhex("1200"))
    with pytest.raises(DecodeError, match="response"):
        decode_response(bytes.fromhex("0a00"))


def test_too_many_records_and_too_large_counts_are_not_written():
    with pytest.raises(ConfigurationError, match="at most 60"):
        encode_response(PeerExchangeResponse(records=(b"",) * (MAX_RECORDS + 1)))
    with pytest.raises(ConfigurationError, match="cannot be encoded"):
        encode_request(PeerExchangeRequest(peer_count=-1))
    with pytest.raises(ConfigurationError, match="cannot be encoded"):
        encode_response(PeerExchangeResponse(status=-1))
