"""What waits for verification: turns by source, blame, and bounds that an honest source does not feel."""

from __future__ import annotations

import pytest

from fairway.service.proof_gate import ProofQueue


def queue(max_items=100, max_items_of_source=50):
    return ProofQueue(max_items=max_items, max_items_of_source=max_items_of_source)


def drained(waiting):
    taken = []
    while (one := waiting.take()) is not None:
        taken.append(one)
    return taken


def test_a_source_that_is_blamed_waits_behind_all_others_for_a_minute():
    waiting = queue()
    waiting.put("bad", 1, 0.0)
    waiting.put("bad", 2, 0.0)
    assert waiting.take() == ("bad", 1)
    waiting.blame("bad", 0.0)
    waiting.put("bad", 3, 30.0)
    waiting.put("good", 4, 30.0)
    waiting.put("good", 5, 30.0)
    assert drained(waiting) == [("good", 4), ("good", 5), ("bad", 2), ("bad", 3)]
    waiting.put("bad", 6, 61.0)
    waiting.put("good", 7, 61.0)
    assert waiting.take() == ("bad", 6)


@pytest.mark.parametrize("sources", [1, 10, 40])
def test_a_flood_of_any_number_of_sources_leaves_room_for_one_that_sends_little(sources):
    waiting = queue(max_items=50, max_items_of_source=20)
    served = 0
    for turn in range(1_000):
        for number in range(5):
            waiting.put(f"flood {(5 * turn + number) % sources}", "forged", turn / 100)
        if turn % 10 == 0:
            assert waiting.put("honest", "good", turn / 100) != "good"
        source, _ = waiting.take() or ("nobody", None)
        if source == "honest":
            served += 1
        elif source != "nobody":
            waiting.blame(source, turn / 100)
    assert served >= 95


def test_forged_proofs_of_a_source_take_a_few_verifications_and_one_a_second():
    waiting = queue(max_items=10_000, max_items_of_source=5_000)
    verified = refused = 0
    for millisecond in range(10_000):
        now_s = millisecond / 1_000
        refused += waiting.put("bad", millisecond, now_s) is not None
        if waiting.take() is not None:
            verified += 1
            refused += len(waiting.blame("bad", now_s))
    assert verified + refused == 10_000
    assert verified <= 1 + 4 + 10


def test_proofs_that_hold_are_not_counted_for_a_source_that_is_blamed():
    waiting = queue()
    waiting.blame("a proxy", 0.0)
    for number in range(100):
        assert waiting.put("a proxy", number, 0.0) is None
        assert waiting.take() == ("a proxy", number)
        waiting.clear_of_blame("a proxy")
