import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.waku_message import (
    DEFAULT_MAX_MESSAGE_BYTES,
    MAX_META_BYTES,
    RateLimitProof,
    WakuMessage,
    decode_carried_message,
    decode_rate_limit_proof,
    decode_waku_message,
    encode_rate_limit_proof,
    encode_waku_message,
    message_hash,
)

messages = st.builds(
    WakuMessage,
    payload=st.binary(),
    content_topic=st.text(),
    version=st.none() | st.integers(0, 2**32 - 1),
    timestamp_ns=st.none() | st.integers(-(2**63), 2**63 - 1),
    meta=st.none() | st.binary(max_size=MAX_META_BYTES),
    rate_limit_proof=st.none() | st.binary(),
    ephemeral=st.none() | st.booleans(),
)


def test_an_absent_and_a_zero_timestamp_hash_alike_and_by_default_as_eight_zero_bytes():
    absent = WakuMessage(payload=b"hi", content_topic="/app/1/topic/proto")
    zero = WakuMessage(payload=b"hi", content_topic="/app/1/topic/proto", timestamp_ns=0)
    for policy in ("include", "omit"):
        assert message_hash("/p", absent, zero_timestamp=policy) == message_hash("/p", zero, zero_timestamp=policy)
    # The eight zero bytes follow the content topic in the preimage, so they can be given as meta too.
    with_zeros = WakuMessage(payload=b"hi", content_topic="/app/1/topic/proto", meta=bytes(8))
    assert message_hash("/p", absent) == message_hash("/p", with_zeros, zero_timestamp="omit")
    assert message_hash("/p", absent) != message_hash("/p", absent, zero_timestamp="omit")


@given(messages)
def test_any_message_survives_the_wire_with_the_presence_of_every_field(message):
    assert decode_waku_message(encode_waku_message(message)) == message


def test_long_input_is_refused_before_it_is_parsed():
    not_protobuf = b"\xff" * (DEFAULT_MAX_MESSAGE_BYTES + 1)
    with pytest.raises(DecodeError, match=r"1048577 bytes, at most 1048576"):
        decode_waku_message(not_protobuf)


def test_meta_of_more_than_64_bytes_is_refused_both_ways():
    with pytest.raises(ConfigurationError, match="65 bytes, at most 64"):
        encode_waku_message(WakuMessage(meta=bytes(65)))
    with pytest.raises(DecodeError, match="65 bytes, at most 64"):
        decode_waku_message(b"\x5a\x41" + bytes(65))


@pytest.mark.parametrize(
    "message",
    [
        WakuMessage(version=2**32),
        WakuMessage(version=-1),
        WakuMessage(timestamp_ns=2**63),
        WakuMessage(timestamp_ns=-(2**63) - 1),
        WakuMessage(content_topic="\ud800"),
        WakuMessage(payload="text"),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_a_value_that_a_field_cannot_hold_is_the_callers_error(message):
    with pytest.raises(ConfigurationError, match="WakuMessage cannot be encoded"):
        encode_waku_message(message)


def test_a_carried_message_that_is_absent_is_a_decode_error():
    with pytest.raises(DecodeError, match="no WakuMessage"):
        decode_carried_message(None)
    assert decode_carried_message(b"") == WakuMessage()


@given(st.builds(RateLimitProof, **dict.fromkeys(RateLimitProof.__slots__, st.binary(max_size=128))))
def test_any_proof_survives_the_wire(proof):
    assert decode_rate_limit_proof(encode_rate_limit_proof(proof)) == proof


def test_a_proof_that_is_too_long_or_no_protobuf_is_a_decode_error():
    with pytest.raises(DecodeError, match="at most 4096"):
        decode_rate_limit_proof(bytes(4097))
    with pytest.raises(DecodeError, match="not valid protobuf"):
        decode_rate_limit_proof(b"\x0a\x05")
    with pytest.raises(ConfigurationError, match="RateLimitProof cannot be encoded"):
        encode_rate_limit_proof(RateLimitProof(proof="text"))  # type: ignore[arg-type]
