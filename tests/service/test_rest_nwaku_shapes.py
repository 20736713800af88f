"""Requests and answers of nwaku's own REST handlers, as data: the same request gets the same answer here.

Each file of ``vectors/nwaku_rest`` is a conversation, in order, and names the sources of nwaku that it was read from.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fairway.service.node import parts_of
from patience import until

VECTORS = Path(__file__).parents[1] / "vectors" / "nwaku_rest"
CONVERSATIONS = ["filter", "interop_suite", "lightpush", "messaging", "node", "relay", "store"]


def body_of(case):
    """Return the body of a request, with ``A*210000`` and ``topic*100`` written out."""
    text = json.dumps(case["body"]).replace("A*210000", "A" * 210_000)
    return re.sub(r'"topic\*(\d+)"', lambda found: ", ".join(f'"{n}"' for n in range(int(found[1]))), text).encode()


async def answer_to(rest, server, case):
    body = body_of(case) if "body" in case else None
    labelled = {"content_type": case["contentType"]} if "contentType" in case else {}
    return await rest.call(server, case["method"], case["path"], body, **labelled)


def check(case, answer):
    assert (answer.status, answer.headers["content-type"]) == (case["status"], case["answerType"]), answer.text
    said = answer.json if case["answerType"] == "application/json" else answer.text
    if "answer" in case:
        assert said == case["answer"]
    if "fields" in case:
        assert set(said) == set(case["fields"])
    if "answerStarts" in case:
        text = said if isinstance(said, str) else said["statusDesc"]
        assert text.startswith(case["answerStarts"])


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_node_answers_a_recorded_conversation_like_nwaku(rest, name):
    conversation = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    async with rest.serving() as (_, server):
        for case in conversation["cases"]:
            answer = await answer_to(rest, server, case)
            try:
                check(case, answer)
            except AssertionError as error:
                raise AssertionError(f"{name}: {case['title']}: {error}") from error


async def test_the_health_report_has_nwakus_protocols_in_nwakus_order(rest):
    async with rest.serving() as (_, server):
        report = (await rest.call(server, "GET", "/health")).json
        names = [next(iter(protocol)) for protocol in report["protocolsHealth"]]
        assert names[:7] == [
            "Relay",
            "Rln Relay",
            "Lightpush",
            "Legacy Lightpush",
            "Filter",
            "Store",
            "Legacy Store",
        ]
        assert len(names) == 15
        assert report["nodeHealth"] == "READY"
    nobody = "/ip4/127.0.0.1/tcp/1/p2p/16Uiu2HAm6HZZr7aToTvEBPpiys4UxajCTU97zj5v7RNR2gbniy1D"
    async with rest.serving(peers=(nobody,)) as (_, server):
        report = (await rest.call(server, "GET", "/health")).json
        assert report["nodeHealth"] == "NOT_READY"
        assert report["protocolsHealth"][0] == {"Relay": "NOT_READY", "desc": "No connected peers"}
        assert {"Peer Exchange": "READY"} in report["protocolsHealth"]
        message = {"payload": "aGFsbG8=", "contentTopic": rest.topic}
        pushed = await rest.call(server, "POST", "/lightpush/v3/message", {"message": message})
        assert (pushed.status, pushed.json) == (505, {"statusDesc": "No peers for topic, skipping publish"})


async def test_peers_are_listed_as_nwaku_lists_them_and_can_be_connected_to(rest):
    async with rest.serving() as (node, server), rest.serving() as (other, second):
        address = str(other.addresses[0])
        answer = await rest.call(server, "POST", "/admin/v1/peers", [address])
        assert (answer.status, answer.text) == (200, "OK")
        for _ in range(100):
            (peer,) = (await rest.call(server, "GET", "/admin/v1/peers")).json
            if peer["protocols"] and peer["shards"]:
                break
        assert set(peer) == {"multiaddr", "protocols", "shards", "connected", "agent", "origin"}
        assert peer["multiaddr"] == address
        assert "/vac/waku/lightpush/3.0.0" in peer["protocols"]
        assert (peer["shards"], peer["connected"], peer["agent"]) == ([0], "Connected", "fairway")
        # The peer that connected is at the address that it announces, at which it can be reached.
        await until(lambda: parts_of(other).host.info_of(node.peer_id))
        (seen,) = (await rest.call(second, "GET", "/admin/v1/peers")).json
        assert seen["multiaddr"] == str(node.addresses[0])
