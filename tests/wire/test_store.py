import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.store import (
    MAX_RESPONSE_BYTES,
    MAX_RESPONSE_ENTRIES,
    StoredMessage,
    StoreQueryRequest,
    StoreQueryResponse,
    decode_store_query_request,
    decode_store_query_response,
    decode_stored_message,
    encode_store_query_request,
    encode_store_query_response,
    encode_stored_message,
    is_refusal,
)

UNKNOWN_FIELD_1000 = bytes.fromhex("c23e03616263")
HASH = bytes(range(32))

int64 = st.integers(-(2**63), 2**63 - 1)
hashes = st.binary(min_size=32, max_size=32)
requests = st.builds(
    StoreQueryRequest,
    request_id=st.text(),
    include_data=st.booleans(),
    pubsub_topic=st.none() | st.text(),
    content_topics=st.lists(st.text()).map(tuple),
    time_start_ns=st.none() | int64,
    time_end_ns=st.none() | int64,
    message_hashes=st.lists(st.binary()).map(tuple),
    pagination_cursor=st.none() | st.binary(),
    pagination_forward=st.booleans(),
    pagination_limit=st.none() | st.integers(0, 2**64 - 1),
)
entries = st.builds(StoredMessage, message_hash=hashes) | st.builds(
    StoredMessage, message_hash=hashes, message_bytes=st.binary(), pubsub_topic=st.text()
)
responses = st.builds(
    StoreQueryResponse,
    request_id=st.text(),
    status_code=st.none() | st.integers(0, 2**32 - 1),
    status_desc=st.none() | st.text(),
    messages=st.lists(entries).map(tuple),
    pagination_cursor=st.none() | st.binary(),
)


@given(requests)
def test_any_request_survives_the_wire_with_the_presence_of_every_field(request):
    encoded = encode_store_query_request(request, checked=False) + UNKNOWN_FIELD_1000
    assert decode_store_query_request(encoded) == request


@given(responses)
def test_any_response_survives_the_wire(response):
    encoded = encode_store_query_response(response) + UNKNOWN_FIELD_1000
    assert decode_store_query_response(encoded) == response


CONTENT = {"pubsub_topic": "/waku/2/rs/1/4", "content_topics": ("/app/1/topic/proto",)}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"message_hashes": (HASH,)},
        {"message_hashes": (HASH,), "include_data": True, "pagination_cursor": HASH, "pagination_limit": 5},
        CONTENT,
        {"time_start_ns": 1},
        {"time_end_ns": 1},
        {**CONTENT, "time_start_ns": 1, "time_end_ns": 1},
    ],
    ids=repr,
)
def test_queries_that_the_specification_allows_have_no_problem(fields):
    assert StoreQueryRequest(request_id="r", **fields).problem() is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"message_hashes": (HASH,), "pubsub_topic": "/p"}, "excludes pubsub topic"),
        ({"message_hashes": (HASH,), "content_topics": ("/t",)}, "excludes pubsub topic, content topics"),
        ({"message_hashes": (HASH,), "time_start_ns": 0}, "excludes .* times"),
        ({"message_hashes": (HASH,), "time_end_ns": 0}, "excludes .* times"),
        ({"message_hashes": (HASH, HASH[:31])}, "32 bytes"),
        ({"pubsub_topic": "/p"}, "go together"),
        ({"content_topics": ("/t",)}, "go together"),
        ({"time_start_ns": 2, "time_end_ns": 1}, "ends at 1, before it starts at 2"),
        ({"request_id": ""}, "request_id"),
    ],
)
def test_queries_that_the_specification_forbids_have_a_named_problem(fields, problem):
    with pytest.raises(ConfigurationError, match=problem):
        encode_store_query_request(StoreQueryRequest(**{"request_id": "r", **fields}))


def test_an_entry_of_a_presence_query_has_no_message():
    with pytest.raises(DecodeError, match="no WakuMessage"):
        decode_stored_message(encode_stored_message(StoredMessage(message_hash=HASH))).message()


def test_a_malformed_entry_is_left_out_and_counted():
    good = b"\x0a\x20" + HASH
    bad = [b"", b"\x0a\x1f" + HASH[:31], b"\x0a\x05", b"\x12\x00\x1a\x00"]
    encoded = b"".join(b"\xa2\x01" + bytes([len(entry)]) + entry for entry in [*bad, good, *bad])
    response = decode_store_query_response(encoded)
    assert response.messages == (StoredMessage(message_hash=HASH),)
    assert response.malformed_entries == 8


@pytest.mark.parametrize("half", ["1200", "1a00"])
def test_an_entry_with_only_one_of_message_and_pubsub_topic_keeps_only_its_key(half):
    entry = b"\x0a\x20" + HASH + bytes.fromhex(half)
    assert decode_stored_message(entry) == StoredMessage(message_hash=HASH)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (StoredMessage(message_hash=HASH[:31]), "32 bytes, not 31"),
        (StoredMessage(message_hash=HASH, message_bytes=b""), "both a message and its pubsub topic"),
        (StoredMessage(message_hash=HASH, pubsub_topic="/p"), "both a message and its pubsub topic"),
        (StoredMessage(message_hash=HASH, message_bytes=b"", pubsub_topic="\ud800"), "cannot be encoded"),
    ],
)
def test_an_entry_that_breaks_a_rule_is_not_sent(entry, problem):
    with pytest.raises(ConfigurationError, match=problem):
        encode_store_query_response(StoreQueryResponse(request_id="r", messages=(entry,)))


def test_a_page_of_very_many_entries_is_refused():
    assert decode_store_query_response(b"\xa2\x01\x00" * MAX_RESPONSE_ENTRIES).malformed_entries == MAX_RESPONSE_ENTRIES
    with pytest.raises(DecodeError, match="entries, at most 10000"):
        decode_store_query_response(b"\xa2\x01\x00" * (MAX_RESPONSE_BYTES // 3))


@pytest.mark.parametrize(
    ("decode", "limit"),
    [
        (decode_store_query_request, 1_048_576),
        (decode_store_query_response, 16_777_216),
        (decode_stored_message, 16_777_216),
    ],
)
def test_long_and_truncated_input_raises_a_decode_error(decode, limit):
    with pytest.raises(DecodeError, match=f"at most {limit}"):
        decode(bytes(limit + 1))
    with pytest.raises(DecodeError, match="not valid protobuf"):
        decode(b"\x0a\x05r")


@pytest.mark.parametrize(
    ("encode", "value"),
    [
        (encode_store_query_request, StoreQueryRequest(request_id="r", pagination_limit=-1)),
        (encode_store_query_request, StoreQueryRequest(request_id="r", time_start_ns=2**63)),
        (encode_store_query_response, StoreQueryResponse(request_id="r", status_code=2**32)),
    ],
)
def test_a_value_that_a_field_cannot_hold_is_the_callers_error(encode, value):
    with pytest.raises(ConfigurationError, match="cannot be encoded"):
        encode(value)


@pytest.mark.parametrize(
    ("code", "words", "refused"),
    [
        (400, "BAD_REQUEST: time range exceeds 24h", True),
        (400, None, True),
        (414, "", True),
        (300, "BAD_RESPONSE: archive error: query exceeds 24 hours", True),
        (500, "BAD_REQUEST: time range exceeds 24h", True),
        # nwaku v0.38.1 of a cursor that it does not know, of a store that is away, and of too many queries.
        (300, "BAD_RESPONSE: archive error: DRIVER_ERROR: cursor not found", False),
        (500, "No history response received (timeout)", False),
        (412, "No suitable service peer & no discovery method", False),
        (429, "TOO_MANY_REQUESTS", False),
        (503, "SERVICE_UNAVAILABLE", False),
        (504, "PEER_DIAL_FAILURE: 16Uiu2HAm", False),
        (401, "", False),
        (None, None, False),
    ],
)
def test_a_refusal_is_told_from_what_may_pass(code, words, refused):
    response = StoreQueryResponse(request_id="r", status_code=code, status_desc=words)
    assert (response.is_refused, is_refusal(code, words)) == (refused, refused)
