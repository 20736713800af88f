"""A light client and answers of nwaku about messages that it knows already, and that are too large for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.channel.publishing import ANSWER_TIMEOUT_S
from fairway.libp2p.stream import Stream
from fairway.nodes.light import LightOptions, push_client
from fairway.nodes.node import SEND_TIMEOUT_S, RoutedMessage
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LIGHTPUSH_V2_PROTOCOL,
    LightPushResponse,
    PushResponseV2,
    encode_lightpush_response,
    encode_push_response_v2,
)
from fairway.wire.waku_message import WakuMessage
from patience import run, until
from scripted_nodes import ScriptedNode, answers, light_client

SHARD = "/waku/2/rs/16/0"
NWAKU = json.loads((Path(__file__).parents[2] / "vectors" / "nwaku" / "lightpush.json").read_text())
TAKEN = bytes.fromhex(NWAKU["version 3"]["sent"]["response"])
RELAYED_TO_NOBODY = bytes.fromhex(NWAKU["version 3"]["on a shard without peers"]["response"])
TAKEN_V2 = encode_push_response_v2(PushResponseV2(request_id="r1", is_success=True, info="OK"))
RELAYED_TO_NOBODY_V2 = bytes.fromhex(NWAKU["version 2"]["sent a second time"]["response"])
TOO_LARGE = NWAKU["words of a message that is too large"]
SILENCE, RESET, SLOW = b"no answer", b"reset", b"an answer when it is released"


class Node(ScriptedNode):
    """A service node that gives these answers to pushes, one after the other, and the last one again and again."""

    def __init__(self, *answers: bytes, protocol: str = LIGHTPUSH_PROTOCOL) -> None:
        super().__init__({protocol: self._serve})
        self.asked = self.waiting = 0
        self.release = asyncio.Event()
        self._answers: Iterator[bytes] = iter(answers)
        self._last = answers[-1]

    async def _serve(self, stream: Stream) -> None:
        self.asked += 1
        answer = next(self._answers, self._last)
        if answer == SILENCE:
            await asyncio.Event().wait()
        elif answer == SLOW:
            self.waiting += 1
            await self.release.wait()
            await answers(lambda *_: _said(TAKEN))(stream)
            self.waiting -= 1
        elif answer == RESET:
            await stream.reset()
        else:
            await answers(lambda *_: _said(answer))(stream)


async def _said(answer: bytes) -> bytes:
    return answer


def message(number: int = 0) -> RoutedMessage:
    waku = WakuMessage(payload=b"%d" % number, content_topic="/fairway-test/1/room/proto", timestamp_ns=1 + number)
    return RoutedMessage.of(SHARD, waku)


@pytest.mark.parametrize(
    ("protocol", "taken", "relayed_to_nobody"),
    [
        (LIGHTPUSH_PROTOCOL, TAKEN, RELAYED_TO_NOBODY),
        (LIGHTPUSH_V2_PROTOCOL, TAKEN_V2, RELAYED_TO_NOBODY_V2),
    ],
    ids=["version 3", "version 2"],
)
def test_a_message_that_a_node_took_counts_as_sent_when_the_node_relays_it_to_nobody_the_second_time(
    protocol: str, taken: bytes, relayed_to_nobody: bytes
) -> None:
    async def work() -> None:
        async with light_client(Node(taken, relayed_to_nobody, protocol=protocol)) as light:
            assert (await light.send(message())).accepted
            assert (await light.send(message())).accepted
            # The node has peers no longer, or never had: it does not know this one.
            other = await light.send(message(1))
            assert (other.accepted, other.permanent) == (False, False)

    run(work())


def test_a_message_that_a_node_did_not_answer_in_time_counts_as_sent_when_it_is_relayed_to_nobody_then() -> None:
    async def work() -> None:
        async with light_client(Node(SILENCE, RELAYED_TO_NOBODY), request_timeout_s=0.3) as light:
            assert not (await light.send(message())).accepted
            assert (await light.send(message())).accepted

    run(work())


def test_a_push_ends_before_the_requests_to_silent_nodes_do_and_their_late_answers_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(push_client, "SEND_TIMEOUT_S", 0.3)

    async def work() -> None:
        slow = Node(SLOW, RELAYED_TO_NOBODY)
        async with light_client(slow) as light:
            late = await light.send(message())
            assert (late.accepted, late.permanent, late.too_many) == (False, False, False)
            assert "no further response within 0.3 s" in late.detail
            slow.release.set()
            await until(lambda: not slow.waiting)
            assert (await light.send(message())).accepted

    run(work())


def test_the_time_limits_of_a_request_a_push_and_a_channel_nest() -> None:
    assert LightOptions().request_timeout_s < SEND_TIMEOUT_S < ANSWER_TIMEOUT_S


def test_a_request_that_a_node_did_not_read_does_not_make_its_message_known() -> None:
    async def work() -> None:
        async with light_client(Node(RESET, RELAYED_TO_NOBODY)) as light:
            assert not (await light.send(message())).accepted

    run(work())


def test_a_message_that_a_node_says_to_have_seen_counts_as_sent() -> None:
    async def work() -> None:
        seen = LightPushResponse(request_id="r", status_code=420, status_desc="Dropping already-seen message")
        async with light_client(Node(encode_lightpush_response(seen))) as light:
            assert (await light.send(message())).accepted

    run(work())


@pytest.mark.parametrize("first", [0, 1])
def test_a_node_that_heard_the_message_from_another_one_first_is_not_blamed(first: int) -> None:
    async def work() -> None:
        taking, hearing = Node(TAKEN), Node(RELAYED_TO_NOBODY)
        nodes = [taking, hearing]
        async with light_client(nodes[first], nodes[1 - first], peers_to_use=1) as light:
            for number in range(5):
                assert (await light.send(message(number))).accepted
            # The node that comes first is asked first each time, whichever it is; a blamed one would come last.
            assert hearing.asked in {0, 5}

    run(work())


def test_a_message_that_is_too_large_is_refused_for_good_with_the_limit() -> None:
    async def work() -> None:
        refused = encode_lightpush_response(LightPushResponse(request_id="r", status_code=420, status_desc=TOO_LARGE))
        async with light_client(Node(refused), Node(refused)) as light:
            result = await light.send(message())
            assert (result.accepted, result.permanent, result.too_large) == (False, True, True)
            assert "153600 bytes" in result.detail
        async with light_client(Node(refused), Node(TAKEN)) as light:
            assert (await light.send(message())).accepted

    run(work())
