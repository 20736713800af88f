"""What a stack says of what is missing: the longest missing first, with what waits for it."""

from __future__ import annotations

from fairway.protocol.stack import Stack
from fairway.protocol.statistics import Gap
from fairway.wire.sds import WAKU_SDS, HistoryEntry, SdsMessage
from fairway.wire.waku_message import WakuMessage

START = 1_700_000_000_000
TOPIC = "/fairway/1/team/proto"


def say(stack, number, *cited, sender="bob"):
    said = SdsMessage(
        message_id=f"m{number}",
        sender_id=sender,
        channel_id="team",
        lamport_timestamp=START + number,
        causal_history=tuple(HistoryEntry(message_id, None, author) for message_id, author in cited),
        content=b"said",
    )
    now_ms = START + number
    stack.receive(
        WakuMessage(payload=WAKU_SDS.encode(said), content_topic=TOPIC, timestamp_ns=now_ms * 1_000_000), now_ms
    )


def test_gaps_are_told_with_what_waits_for_them_also_through_others():
    stack = Stack("team", "alice", TOPIC, now_ms=START, seed=bytes(16))
    assert stack.gaps(10) == ()
    say(stack, 5, ("m1", "dave"))
    say(stack, 6, ("m5", "bob"), sender="carol")
    say(stack, 7, ("m2", None), ("m1", "dave"))
    first = Gap(
        message_id="m1",
        sender_id="dave",
        since_ms=START + 5,
        waiting=(("bob", "m5"), ("bob", "m7"), ("carol", "m6")),
    )
    second = Gap(message_id="m2", sender_id=None, since_ms=START + 7, waiting=(("bob", "m7"),))
    assert stack.gaps(10) == (first, second)
    assert stack.gaps(1) == (first,)
    say(stack, 1, sender="dave")
    assert stack.gaps(10) == (second,)
