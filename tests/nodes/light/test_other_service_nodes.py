"""What a light client does for service nodes that others wrote: tell its cluster, and push in the version they have."""

from __future__ import annotations

import asyncio

import pytest

from fairway.libp2p.errors import Libp2pError
from fairway.nodes.node import RoutedMessage
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.wire.filter import (
    FILTER_SUBSCRIBE_PROTOCOL,
)
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LIGHTPUSH_V2_PROTOCOL,
    LightPushResponse,
    PushResponseV2,
    decode_lightpush_request,
    decode_push_request_v2,
    encode_lightpush_response,
    encode_push_response_v2,
)
from fairway.wire.metadata import METADATA_PROTOCOL, WakuMetadata, decode_metadata, encode_metadata
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, run, until
from scripted_nodes import ScriptedNode, accepts_subscriptions, answers, light_client

SHARD = "/waku/2/rs/16/0"
MESSAGE = RoutedMessage.of(SHARD, WakuMessage(payload=b"hello", content_topic="/fairway-test/1/room/proto"))


class Peer(ScriptedNode):
    """A service node of somebody else: filter, and light push in the versions it is told to have."""

    def __init__(self, *versions, answer=None):
        pushes = {LIGHTPUSH_PROTOCOL: answers(self._push), LIGHTPUSH_V2_PROTOCOL: answers(self._push_v2)}
        served = {version: pushes[version] for version in versions}
        super().__init__({FILTER_SUBSCRIBE_PROTOCOL: accepts_subscriptions, **served})
        self.answer = answer
        self.pushed = []

    async def _push(self, peer, data):
        request = decode_lightpush_request(data)
        self.pushed.append((3, request.pubsub_topic, request.message_bytes))
        return encode_lightpush_response(LightPushResponse(request_id=request.request_id, status_code=200))

    async def _push_v2(self, peer, data):
        request = decode_push_request_v2(data)
        self.pushed.append((2, request.pubsub_topic, request.message_bytes))
        request_id, success, info = self.answer or (request.request_id, True, "OK")
        return encode_push_response_v2(PushResponseV2(request_id=request_id, is_success=success, info=info))


@pytest.mark.parametrize(
    ("versions", "used"),
    [
        ((LIGHTPUSH_PROTOCOL,), 3),
        ((LIGHTPUSH_V2_PROTOCOL,), 2),
        ((LIGHTPUSH_V2_PROTOCOL, LIGHTPUSH_PROTOCOL), 3),
    ],
    ids=["version 3", "version 2", "both"],
)
def test_a_message_is_pushed_in_the_latest_version_that_the_node_serves(versions, used):
    async def work():
        peer = Peer(*versions)
        async with light_client(peer) as light:
            assert (await light.send(MESSAGE)).accepted
            assert peer.pushed == [(used, SHARD, MESSAGE.encoded)]

    run(work())


@pytest.mark.parametrize(
    ("answer", "permanent", "too_large", "too_many"),
    [
        (("N/A", False, "exceeds the rate limit"), False, False, True),
        (("N/A", False, "TOO_MANY_REQUESTS"), False, False, True),
        (("1", False, "Could not publish message: not enough peers to publish"), False, False, False),
        (("1", False, "not_published_to_any_peer"), False, False, False),
        (
            ("1", False, "Could not publish message: message size exceeds gossipsub max message size"),
            True,
            True,
            False,
        ),
        (("1", False, "Message size exceeded maximum of 153600 bytes"), True, True, False),
        (("1", False, "Could not publish message: cannot publish to unsubscribed topic"), False, False, False),
        (("1", False, "invalid request: missing Query field"), True, False, False),
        (("1", False, "something else"), False, False, False),
        (("1", False, None), False, False, False),
    ],
)
def test_a_node_of_version_2_says_in_words_why_it_refuses(answer, permanent, too_large, too_many):
    async def work():
        async with light_client(Peer(LIGHTPUSH_V2_PROTOCOL, answer=answer)) as light:
            result = await light.send(MESSAGE)
            assert not result.accepted
            assert (result.permanent, result.too_large, result.too_many) == (permanent, too_large, too_many)
            assert (answer[2] or "no reason") in result.detail

    run(work())


def test_a_node_that_refuses_in_version_2_does_not_keep_another_one_from_taking_the_message():
    async def work():
        refusing = Peer(LIGHTPUSH_V2_PROTOCOL, answer=("N/A", False, "exceeds the rate limit"))
        taking = Peer(LIGHTPUSH_PROTOCOL)
        async with light_client(refusing, taking) as light:
            async with asyncio.timeout(PATIENCE_S):
                while not taking.pushed:
                    await light.send(MESSAGE)
            assert (await light.send(MESSAGE)).accepted

    run(work())


@pytest.mark.parametrize("ours", [16, None], ids=["of a cluster", "of whatever cluster"])
def test_a_light_client_tells_a_node_that_asks_of_which_cluster_it_is(ours):
    """go-waku and nwaku ask whoever connects, and close the connection of who does not answer."""

    async def work():
        peer = Peer(LIGHTPUSH_PROTOCOL)
        async with light_client(peer, cluster_id=ours) as light:
            await until(lambda: METADATA_PROTOCOL in peer.host.protocols_of(light.host.peer_id))

            async def told(question):
                answer = await PeerRequests(peer.host).ask(
                    light.host.peer_id,
                    METADATA_PROTOCOL,
                    question,
                    max_response_bytes=1 << 16,
                    timeout_s=60.0,
                )
                return decode_metadata(answer)

            question = encode_metadata(WakuMetadata(cluster_id=99, shards=(0, 1)))
            assert await told(question) == WakuMetadata(cluster_id=ours or 99)
            if ours is None:
                for malformed in (b"", b"\xff"):
                    with pytest.raises(Libp2pError):
                        await told(malformed)
            assert await told(question) == WakuMetadata(cluster_id=ours or 99)

    run(work())
