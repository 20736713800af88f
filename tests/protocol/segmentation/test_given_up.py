"""Whatever a receiver gives up, it never acknowledges enough of a message that it has not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fairway.protocol.segmentation.outcomes import MessageComplete, SegmentKept
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS
from segment_answers import answered

TIMEOUT_MS = 1_000


@pytest.mark.parametrize("segment_format", [WAKU_SEGMENTS, LIP_243], ids=["waku", "logos"])
@pytest.mark.parametrize("parity_rate", [0.0, 0.5])
def test_what_is_not_whole_is_never_acknowledged_in_full(receiver, send, seed, segment_format, parity_rate):
    chance = random.Random(seed)
    whole = set()
    for draw in range(10):
        bob = receiver(segment_format, reassembly_timeout_ms=TIMEOUT_MS)
        clock, under_way = 0, []
        acknowledged, needed = {}, {}
        for number in range(40):
            payload = chance.randbytes(500)
            parts = send(payload, segment_format=segment_format, parity_rate=parity_rate, segment_size_bytes=256)
            needed[number] = segment_format.decode(parts[0].content).data_count
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
                if answered(outcome) == "complete":
                    whole.add((draw, message))
                if isinstance(outcome, SegmentKept | MessageComplete):
                    acknowledged[message].add(sent.sds_id)
                is_enough = len(acknowledged[message]) >= needed[message]
                assert (draw, message) in whole or not is_enough, (seed, draw, message, sent, outcome)
            if chance.random() < 0.2:
                bob.now_ms += TIMEOUT_MS + 1
                bob.reassembler.expire(bob.now_ms)
    assert whole
