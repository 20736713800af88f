import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.lightpush import (
    ClientAction,
    LightPushRequest,
    LightPushResponse,
    PushResponseV2,
    client_action,
    decode_lightpush_request,
    decode_lightpush_response,
    decode_push_request_v2,
    decode_push_response_v2,
    encode_lightpush_request,
    encode_lightpush_response,
    encode_push_request_v2,
    encode_push_response_v2,
)
from fairway.wire.waku_message import WakuMessage

NWAKU = json.loads((Path(__file__).parents[1] / "vectors" / "nwaku" / "lightpush.json").read_text())
UNKNOWN_FIELD_1000 = bytes.fromhex("c23e03616263")

uint32 = st.integers(0, 2**32 - 1)
requests = st.builds(
    LightPushRequest,
    request_id=st.text(),
    pubsub_topic=st.none() | st.text(),
    message_bytes=st.none() | st.binary(),
)
responses = st.builds(
    LightPushResponse,
    request_id=st.text(),
    status_code=uint32,
    status_desc=st.none() | st.text(),
    relay_peer_count=st.none() | uint32,
)
requests_v2 = st.builds(
    LightPushRequest,
    request_id=st.text(),
    pubsub_topic=st.none() | st.text(min_size=1),
    message_bytes=st.none() | st.binary(),
)
responses_v2 = st.builds(PushResponseV2, request_id=st.text(), is_success=st.booleans(), info=st.none() | st.text())


@given(requests)
def test_any_request_survives_the_wire(request):
    assert decode_lightpush_request(encode_lightpush_request(request) + UNKNOWN_FIELD_1000) == request


@given(responses)
def test_any_response_survives_the_wire_also_with_an_unknown_code(response):
    assert decode_lightpush_response(encode_lightpush_response(response) + UNKNOWN_FIELD_1000) == response


@given(requests_v2, responses_v2)
def test_any_version_2_request_and_response_survive_the_wire(request, response):
    assert decode_push_request_v2(encode_push_request_v2(request) + UNKNOWN_FIELD_1000) == request
    assert decode_push_response_v2(encode_push_response_v2(response) + UNKNOWN_FIELD_1000) == response


def test_a_request_hands_on_the_very_bytes_of_its_message():
    # A field that is not known here, and fields out of order: encoding again would give other bytes.
    message_bytes = UNKNOWN_FIELD_1000 + bytes.fromhex("12012f0a026869")
    request = decode_lightpush_request(
        encode_lightpush_request(LightPushRequest(request_id="r", message_bytes=message_bytes))
    )
    assert request.message_bytes == message_bytes
    assert request.message() == WakuMessage(payload=b"hi", content_topic="/")


@pytest.mark.parametrize(
    ("encode", "decode"),
    [(encode_lightpush_request, decode_lightpush_request), (encode_push_request_v2, decode_push_request_v2)],
)
def test_a_request_without_a_message_can_be_answered_but_not_published(encode, decode):
    request_without_message = decode(encode(LightPushRequest(request_id="r")))
    assert request_without_message.request_id == "r"
    with pytest.raises(DecodeError, match="no WakuMessage"):
        request_without_message.message()


def test_an_empty_pubsub_topic_is_an_absent_one_in_version_2():
    request = LightPushRequest(request_id="r", pubsub_topic="")
    assert decode_push_request_v2(encode_push_request_v2(request)).pubsub_topic is None


def test_a_version_2_envelope_without_the_wanted_part_is_a_decode_error():
    with pytest.raises(DecodeError, match="no request"):
        decode_push_request_v2(encode_push_response_v2(PushResponseV2(request_id="r", is_success=True)))
    with pytest.raises(DecodeError, match="no response"):
        decode_push_response_v2(encode_push_request_v2(LightPushRequest(request_id="r")))


@pytest.mark.parametrize(
    ("encode", "value"),
    [
        (encode_lightpush_request, LightPushRequest(request_id="\ud800")),
        (encode_lightpush_response, LightPushResponse(request_id="r", status_code=-1)),
        (encode_push_request_v2, LightPushRequest(request_id="\ud800")),
        (encode_push_response_v2, PushResponseV2(request_id="r", is_success=True, info="\ud800")),
    ],
)
def test_a_value_that_a_field_cannot_hold_is_the_callers_error(encode, value):
    with pytest.raises(ConfigurationError, match="cannot be encoded"):
        encode(value)


@pytest.mark.parametrize(
    ("exchange", "action", "relay_peer_count"),
    [
        ("sent", ClientAction.DONE, 1),
        ("on a shard without peers", ClientAction.NOT_RELAYED, None),
        ("garbage", ClientAction.NEVER_RESEND_UNCHANGED, None),
    ],
)
def test_responses_of_nwaku_are_understood(exchange, action, relay_peer_count):
    response = decode_lightpush_response(bytes.fromhex(NWAKU["version 3"][exchange]["response"]))
    assert (response.action, response.relay_peer_count) == (action, relay_peer_count)


@pytest.mark.parametrize(
    ("exchange", "action"),
    [
        ("sent a second time", ClientAction.NOT_RELAYED),
        ("on a shard without peers", ClientAction.NOT_RELAYED),
        ("garbage", ClientAction.NEVER_RESEND_UNCHANGED),
    ],
)
def test_responses_of_nwaku_in_version_2_are_understood(exchange, action):
    response = decode_push_response_v2(bytes.fromhex(NWAKU["version 2"][exchange]["response"]))
    assert (response.is_success, client_action(None, response.info)) == (False, action)


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (200, ClientAction.DONE),
        (400, ClientAction.NEVER_RESEND_UNCHANGED),
        (413, ClientAction.TOO_LARGE),
        (420, ClientAction.STAMP_ANEW),
        (421, ClientAction.RETRY_ELSEWHERE),
        (429, ClientAction.RETRY_LATER),
        (500, ClientAction.RETRY_ELSEWHERE),
        (503, ClientAction.NO_PEERS),
        (504, ClientAction.RETRY_ELSEWHERE),
        (505, ClientAction.NOT_RELAYED),
        # Not known: as the generic code of the class, and never a success.
        (201, ClientAction.RETRY_ELSEWHERE),
        (0, ClientAction.RETRY_ELSEWHERE),
        (499, ClientAction.NEVER_RESEND_UNCHANGED),
        (599, ClientAction.RETRY_ELSEWHERE),
        (4_294_967_295, ClientAction.RETRY_ELSEWHERE),
    ],
)
def test_a_status_code_has_an_action(code, action):
    response = LightPushResponse(request_id="r", status_code=code)
    assert client_action(code) is action
    assert response.action is action
    assert response.is_success is (code == 200)


@pytest.mark.parametrize(
    ("code", "words", "action"),
    [
        (420, NWAKU["words of a message that is too large"], ClientAction.TOO_LARGE),
        (500, NWAKU["words of a message that is too large"], ClientAction.TOO_LARGE),
        (None, NWAKU["words of a message that is too large"], ClientAction.TOO_LARGE),
        (None, "Could not publish message: message size exceeds gossipsub max message size", ClientAction.TOO_LARGE),
        (420, "Dropping already-seen message", ClientAction.KNOWN),
        (420, "RLN validation failed", ClientAction.STAMP_ANEW),
        (505, "No peers for topic", ClientAction.NOT_RELAYED),
        (503, "No peers for topic", ClientAction.NOT_RELAYED),
        (505, "dial_failure: 16Uiu2HAm is not accessible", ClientAction.NO_PEERS),
        (505, "no suitable remote peers", ClientAction.NO_PEERS),
        (503, "No suitable service peer & none discovered", ClientAction.NO_PEERS),
        (None, "publish failed in relay: NoPeersToPublish", ClientAction.NOT_RELAYED),
        (None, "Could not publish message: not enough peers to publish", ClientAction.NO_PEERS),
        (None, "TOO_MANY_REQUESTS", ClientAction.RETRY_LATER),
        (None, "exceeds the rate limit", ClientAction.RETRY_LATER),
        (None, "cannot publish to unsubscribed topic", ClientAction.RETRY_ELSEWHERE),
        (None, "no waku relay found", ClientAction.RETRY_ELSEWHERE),
        (None, None, ClientAction.RETRY_ELSEWHERE),
        # Over REST these are words of the node about its own service node, and the message is sound.
        (500, "decode_rpc_failure", ClientAction.RETRY_ELSEWHERE),
        (200, "message size exceeded, nearly", ClientAction.DONE),
    ],
)
def test_words_distinguish_results_with_one_code(code, words, action):
    assert client_action(code, words) is action
