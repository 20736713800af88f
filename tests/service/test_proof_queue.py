"""The queue for the verification of proofs: senders take turns, and no flood takes the room of the others."""

from __future__ import annotations

import pytest

from fairway.service.proof_gate import MAX_WAITING, MAX_WAITING_OF_SOURCE, ProofQueue


def test_sources_take_turns():
    queue = ProofQueue()
    for item in ("a1", "a2", "a3", "b1", "b2", "c1"):
        assert queue.put(item[0], item) is None
    assert [queue.take() for _ in range(7)] == ["a1", "b1", "c1", "a2", "b2", "a3", None]


def test_a_suspect_is_served_after_all_others_until_it_is_forgiven():
    queue = ProofQueue()
    for item in ("a1", "a2", "b1"):
        queue.put(item[0], item)
    queue.suspect("a", until_s=60.0)
    queue.put("a", "a3")
    queue.put("b", "b2")
    assert [queue.take() for _ in range(3)] == ["b1", "b2", "a1"]
    queue.forgive(59.0)
    queue.put("b", "b3")
    assert queue.take() == "b3"
    queue.forgive(60.0)
    queue.put("b", "b4")
    assert [queue.take() for _ in range(4)] == ["a2", "b4", "a3", None]


@pytest.mark.parametrize("sources", [1, 10, 40])
def test_a_flood_of_any_number_of_sources_leaves_room_for_one_that_sends_little(sources):
    queue = ProofQueue()
    for number in range(3 * MAX_WAITING):
        queue.put(f"flood {number % sources}", "forged")
    assert len(queue) == min(MAX_WAITING, sources * MAX_WAITING_OF_SOURCE)
    assert queue.put("honest", "good") != "good"
    assert "good" in [queue.take() for _ in range(sources + 1)]
    for number in range(sources):
        queue.suspect(f"flood {number}", until_s=60.0)
    for number in range(MAX_WAITING_OF_SOURCE):
        assert queue.put("honest", f"good {number}") != f"good {number}"
        assert queue.take() == f"good {number}"
