"""Whatever a receiver gives up and forgets, it never acknowledges enough of a message that it has not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fairway.protocol.segmentation.outcomes import MessageCompleted, Refused, SegmentSetAside
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS

TIMEOUT_MS = 1_000


@pytest.mark.parametrize("segment_format", [WAKU_SEGMENTS, LIP_243], ids=["waku", "logos"])
@pytest.mark.parametrize("parity_rate", [0.0, 0.5])
def test_what_is_not_whole_is_never_acknowledged_in_full(receiver, send, seed, segment_format, parity_rate):
    chance = random.Random(seed)
    whole = set()
    for draw in range(10):
        bob = receiver(segment_format, reassembly_timeout_ms=TIMEOUT_MS, max_completed_sets=chance.choice([0, 1, 3]))
        clock, under_way = 0, []
        acknowledged, needed = {}, {}
        for number in range(40):
            payload = chance.randbytes(500)
            parts = send(payload, segment_format=segment_format, parity_rate=parity_rate, segment_size_bytes=256)
            needed[number] = segment_format.decode(parts[0].content, 256).data_count
            acknowledged[number] = set()
            for order, part in enumerate(parts):
                # A rate limit may hold the sender up between two segments, and he sends most of them again.
                clock += chance.choice([1, 1, 1, 5_000])
                sent = replace(part, sds_id=f"{number}-{order}", order_key=clock)
                under_way += [(number, sent)] * chance.choice([0, 1, 1, 3])
            for _ in range(chance.randrange(min(12, len(under_way) + 1))):
                message, sent = under_way.pop(chance.randrange(max(0, len(under_way) - 12), len(under_way)))
                if sent.sds_id in acknowledged[message]:
                    # SDS takes nothing in twice.
                    continue
                outcome = bob.receive(sent)
                if isinstance(outcome, MessageCompleted):
                    whole.add((draw, message))
                if not isinstance(outcome, Refused):
                    acknowledged[message].add(sent.sds_id)
                is_enough = len(acknowledged[message]) >= needed[message]
                assert (draw, message) in whole or not is_enough, (seed, draw, message, sent, outcome)
            if chance.random() < 0.2:
                bob.now_ms += TIMEOUT_MS + 1
                bob.reassembler.expire(bob.now_ms)
    assert whole


def test_a_doubtful_message_is_held_until_it_is_whole_and_then_wants_its_segments_again(receiver, send):
    bob = receiver(reassembly_timeout_ms=TIMEOUT_MS, max_completed_sets=0, parity_rate=0.0)
    bob.receive(send(b"x" * 900, base=5_000, parity_rate=0.0)[1])
    bob.reassembler.expire(TIMEOUT_MS + 1)
    first, second, third = send(b"y" * 900, base=1_000, parity_rate=0.0)
    for sent in (first, second, second):
        outcome = bob.receive(sent)
        assert isinstance(outcome, SegmentSetAside)
        assert outcome.is_doubtful
    completed = bob.receive(third)
    assert isinstance(completed, MessageCompleted)
    assert completed.sds_ids == (third.sds_id,)
    assert completed.set_aside == {0, 1}


def test_a_doubtful_message_that_stays_incomplete_is_dropped_and_can_come_again(receiver, send):
    bob = receiver(reassembly_timeout_ms=TIMEOUT_MS, max_completed_sets=0, parity_rate=0.0)
    bob.receive(send(b"x" * 900, base=5_000, parity_rate=0.0)[1])
    bob.reassembler.expire(TIMEOUT_MS + 1)
    parts = send(b"y" * 900, base=1_000, parity_rate=0.0)
    bob.now_ms = TIMEOUT_MS + 1
    bob.receive(parts[0])
    assert bob.reassembler.expire(2 * TIMEOUT_MS + 2) == ()
    assert bob.statistics.open_sets == bob.statistics.ended_sets == 0
    assert list(bob.reassembler.rows()) == [("forgotten", (5_001,))]
    assert isinstance(bob.receive(*parts), MessageCompleted)
