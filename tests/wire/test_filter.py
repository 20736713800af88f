import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.filter import (
    FilterSubscribeRequest,
    FilterSubscribeResponse,
    FilterSubscribeType,
    MessagePush,
    decode_filter_subscribe_request,
    decode_filter_subscribe_response,
    decode_message_push,
    encode_filter_subscribe_request,
    encode_filter_subscribe_response,
    encode_message_push,
)
from fairway.wire.waku_message import WakuMessage

UNKNOWN_FIELD_1000 = bytes.fromhex("c23e03616263")

requests = st.builds(
    FilterSubscribeRequest,
    request_id=st.text(),
    filter_subscribe_type=st.sampled_from(FilterSubscribeType),
    pubsub_topic=st.none() | st.text(),
    content_topics=st.lists(st.text()).map(tuple),
)
responses = st.builds(
    FilterSubscribeResponse,
    request_id=st.text(),
    status_code=st.integers(0, 2**32 - 1),
    status_desc=st.none() | st.text(),
)
pushes = st.builds(MessagePush, message_bytes=st.binary(), pubsub_topic=st.none() | st.text())


@given(requests)
def test_any_request_survives_the_wire_or_is_refused_with_its_problem(request):
    problem = request.problem()
    if problem is None:
        encoded = encode_filter_subscribe_request(request) + UNKNOWN_FIELD_1000
        assert decode_filter_subscribe_request(encoded) == request
    else:
        with pytest.raises(ConfigurationError) as caught:
            encode_filter_subscribe_request(request)
        assert str(caught.value) == problem


@given(responses)
def test_any_response_survives_the_wire(response):
    encoded = encode_filter_subscribe_response(response) + UNKNOWN_FIELD_1000
    assert decode_filter_subscribe_response(encoded) == response


@given(pushes)
def test_any_push_survives_the_wire(push):
    assert decode_message_push(encode_message_push(push) + UNKNOWN_FIELD_1000) == push


def test_an_absent_and_an_empty_pubsub_topic_differ():
    absent = decode_filter_subscribe_request(bytes.fromhex("0a0172"))
    empty = decode_filter_subscribe_request(bytes.fromhex("0a01725200"))
    assert (absent.pubsub_topic, empty.pubsub_topic) == (None, "")


@pytest.mark.parametrize("kind", [FilterSubscribeType.SUBSCRIBE, FilterSubscribeType.UNSUBSCRIBE])
@pytest.mark.parametrize(
    "criteria",
    [
        {},
        {"pubsub_topic": "/waku/2/rs/1/4"},
        {"content_topics": ("/app/1/topic/proto",)},
        {"pubsub_topic": "", "content_topics": ("/app/1/topic/proto",)},
    ],
)
def test_subscribing_and_unsubscribing_need_both_criteria(kind, criteria):
    request = FilterSubscribeRequest(request_id="r", filter_subscribe_type=kind, **criteria)
    assert "pubsub_topic and at least one content topic" in (request.problem() or "")


@pytest.mark.parametrize("kind", [FilterSubscribeType.SUBSCRIBER_PING, FilterSubscribeType.UNSUBSCRIBE_ALL])
def test_a_ping_and_unsubscribing_from_all_need_no_criteria_but_a_request_id(kind):
    assert FilterSubscribeRequest(request_id="r", filter_subscribe_type=kind).problem() is None
    assert "request_id" in (FilterSubscribeRequest(request_id="", filter_subscribe_type=kind).problem() or "")


def test_a_push_hands_on_the_very_bytes_of_its_message():
    message_bytes = UNKNOWN_FIELD_1000 + bytes.fromhex("12012f0a026869")
    push = decode_message_push(encode_message_push(MessagePush(message_bytes=message_bytes)))
    assert push.message_bytes == message_bytes
    assert push.message() == WakuMessage(payload=b"hi", content_topic="/")


def test_a_push_without_a_message_is_a_decode_error_and_one_with_an_empty_message_is_not():
    with pytest.raises(DecodeError, match="no waku_message"):
        decode_message_push(bytes.fromhex("12012f"))
    assert decode_message_push(bytes.fromhex("0a00")) == MessagePush(message_bytes=b"")
