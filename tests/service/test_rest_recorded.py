"""Calls that a live nwaku v0.38.1 answered: fairway answers them with the same status, and JSON of the same shape."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path

from fairway.service.node import parts_of
from patience import until

RECORDED = json.loads((Path(__file__).parents[1] / "vectors/nwaku/rest_calls.json").read_text(encoding="utf-8"))[
    "calls"
]
OWN = {
    "GET /events": (400, "a call of our own: nwaku has none"),
    "GET /openapi.json": (200, "a call of our own: nwaku has none"),
    "POST /lightpush/v1/message": (200, "a message that was relayed before is a success"),
    "POST /relay/v1/auto/messages": (200, "a message that was relayed before is a success"),
}
"""Where the status is meant to be another one, and why."""
OWN_PUSHES = {
    "relayed before": 200,
    "/waku/2/rs/16/7": 421,
    "too long": 413,
}
"""Statuses of light push, by what is wrong: fairway has those of WAKU-LIGHTPUSH."""


def shape_of(value):
    """Return the types of a value and, within it, of the fields of objects and of the first item of lists."""
    if isinstance(value, dict):
        return {name: shape_of(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape_of(value[0])] if value else []
    return type(value)


def status_here(call):
    name = f"{call['method']} {call['path']}"
    if name == "POST /lightpush/v3/message" and call["status"] not in {200, 400}:
        message, shard = call["body"]["message"], call["body"].get("pubsubTopic")
        is_long = message["payload"].startswith("A*")
        return OWN_PUSHES["too long" if is_long else shard if shard in OWN_PUSHES else "relayed before"]
    return OWN.get(name, (call["status"],))[0]


@asynccontextmanager
async def a_relay_with_a_peer(rest):
    async with rest.serving() as (node, server), rest.serving() as (peer, _):
        await parts_of(node).host.connect(peer.addresses[0])
        await until(lambda: parts_of(node).relay.peers_of(rest.shard) and parts_of(node).host.info_of(peer.peer_id))
        yield server


async def test_recorded_calls_are_answered_with_the_status_and_shape_of_nwaku(rest):
    async with a_relay_with_a_peer(rest) as server:
        for number, call in enumerate(RECORDED):
            text = json.dumps(call["body"]).replace("A*210000", "A" * 210_000) if "body" in call else None
            answer = await rest.call(server, call["method"], call["path"], text and text.encode())
            said = f"{number}: {call['method']} {call['path']}: {answer.text[:200]}"
            assert answer.status == status_here(call), said
            recorded = call["answer"]
            if answer.status == call["status"] and not isinstance(recorded, str):
                if call["path"] == "/health":  # which protocols there are differs
                    assert set(answer.json) == set(recorded), said
                    assert answer.json["connectionStatus"] == recorded["connectionStatus"]
                else:
                    assert shape_of(answer.json) == shape_of(recorded), said


async def test_stored_and_relayed_messages_equal_the_recorded_bytes(rest):
    """The message hash of nwaku among it."""
    fetched = [
        call for call in RECORDED if call["method"] == "GET" and call["answer"] and "timestamp" in str(call["answer"])
    ]
    pushed = next(call for call in RECORDED if call["path"] == "/lightpush/v3/message")
    async with a_relay_with_a_peer(rest) as server:
        answer = await rest.call(server, "POST", pushed["path"], pushed["body"])
        assert (answer.status, answer.json) == (200, pushed["answer"])
        assert len(fetched) == 2
        for call in fetched:
            answer = (await rest.call(server, "GET", call["path"])).json
            assert (answer | {"requestId": ""} if isinstance(answer, dict) else answer) == call["answer"]
