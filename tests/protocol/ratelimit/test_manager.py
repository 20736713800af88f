from __future__ import annotations

from typing import Any

import pytest

from fairway.events import DropReason
from fairway.options import RateLimitConfig
from fairway.protocol.ratelimit import EpochQuota, Priority, QuotaSource, RateLimitManager

EPOCH_MS = 1000


def limited_to(limit: int | None, *, on_change=None, **config) -> RateLimitManager[Any]:
    return RateLimitManager(
        RateLimitConfig(enabled=limit is not None, messages_per_epoch=limit, epoch_ms=EPOCH_MS, **config),
        on_change=on_change,
    )


def drain(manager: RateLimitManager, now_ms: int = 0) -> list:
    """Everything that may leave now."""
    return [admission.item for admission in iter(lambda: manager.admit(now_ms), None)]


def enqueue_all(manager: RateLimitManager, priority: Priority, items) -> None:
    for item in items:
        manager.enqueue(item, priority, object())


def test_without_a_limit_everything_leaves_at_once_and_in_order_of_priority():
    manager = limited_to(None)
    for priority in reversed(Priority):
        enqueue_all(manager, priority, [f"{priority.name} 1", f"{priority.name} 2"])
    assert drain(manager) == [f"{priority.name} {n}" for priority in Priority for n in (1, 2)]
    assert manager.utilization(0) == 0
    assert manager.next_send_at(0) is None


@pytest.mark.parametrize("limit", [None, 12], ids=["no quota", "a quota"])
def test_a_repair_gets_out_amid_a_long_burst_through_a_slow_node_as_long_as_its_share_of_a_quota_lasts(limit):
    manager = RateLimitManager(RateLimitConfig(enabled=limit is not None, messages_per_epoch=limit))
    manager.pace.refused(manager.pace.spend(0), 0, too_many=True)
    enqueue_all(manager, Priority.CONTENT, range(20))
    enqueue_all(manager, Priority.REPAIR, "abcd")
    left = []
    for now_ms in range(0, RateLimitConfig().epoch_ms, 1_000):
        left += drain(manager, now_ms)
    if limit is None:
        assert left == [*range(4), "a", *range(4, 8), "b", *range(8, 12), "c", *range(12, 16), "d", *range(16, 20)]
    else:
        assert left == [*range(4), "a", *range(4, 8), "b", *range(8, 10)]


def test_repair_retry_and_sync_stop_at_the_threshold_and_content_uses_the_rest():
    manager = limited_to(10)
    for priority in (Priority.REPAIR, Priority.RETRY, Priority.SYNC):
        enqueue_all(manager, priority, [priority.name] * 4)
    left = [item for now_ms in range(EPOCH_MS) for item in drain(manager, now_ms)]
    assert left == ["REPAIR"] * 4 + ["RETRY"] * 4 + ["SYNC"]
    enqueue_all(manager, Priority.CONTENT, "ab")
    assert drain(manager, EPOCH_MS - 1) == ["a"]
    assert drain(manager, EPOCH_MS) == ["b"]


@pytest.mark.parametrize("priority", [Priority.RETRY, Priority.SYNC])
def test_retries_and_sync_messages_leave_at_an_even_rate_over_an_epoch(priority):
    manager = limited_to(10)
    enqueue_all(manager, priority, range(20))
    times = [now_ms for now_ms in range(2 * EPOCH_MS) for _ in drain(manager, now_ms)]
    even = [-(-EPOCH_MS * number // 9) for number in range(9)]
    assert times == even + [EPOCH_MS + each for each in even]


def test_content_that_comes_at_an_even_rate_never_waits_for_retries():
    manager = limited_to(20)
    enqueue_all(manager, Priority.RETRY, ["retry"] * 100)
    for now_ms in range(3 * EPOCH_MS):
        if now_ms % 100 == 99:
            enqueue_all(manager, Priority.CONTENT, [now_ms])
            assert now_ms in drain(manager, now_ms)
        else:
            drain(manager, now_ms)


def test_with_one_slot_an_epoch_content_goes_first_and_retries_go_when_nobody_has_anything_to_say():
    manager = limited_to(1)
    enqueue_all(manager, Priority.RETRY, ["retry"])
    enqueue_all(manager, Priority.CONTENT, ["content"])
    assert drain(manager, 0) == ["content"]
    assert manager.next_send_at(0) == 1000
    assert drain(manager, 1000) == ["retry"]


def test_ephemeral_messages_are_dropped_at_ninety_percent_and_say_why():
    manager = limited_to(10)
    assert [manager.admit_ephemeral(0) for _ in range(9)] == [None] * 9
    assert manager.utilization(0) == 90
    assert manager.admit_ephemeral(0) is DropReason.RATE_LIMIT_APPROACHED
    enqueue_all(manager, Priority.CONTENT, ["content"])
    assert drain(manager) == ["content"]
    assert manager.admit_ephemeral(0) is DropReason.RATE_LIMIT_REACHED
    assert manager.admit_ephemeral(1000) is None


def test_ephemeral_messages_never_take_the_slots_of_content_that_waits():
    manager = limited_to(10)
    enqueue_all(manager, Priority.CONTENT, [0])
    for number in range(1, 9):
        manager.enqueue(number, Priority.CONTENT, number)
    assert manager.admit_ephemeral(0) is DropReason.RATE_LIMIT_APPROACHED
    for number in range(1, 9):
        assert manager.discard(number)
    assert drain(manager) == [0]
    assert manager.admit_ephemeral(0) is None


def test_a_node_s_quota_turns_the_limiter_on_and_its_withdrawal_off():
    manager = limited_to(None)
    enqueue_all(manager, Priority.CONTENT, "abc")
    manager.set_quota(QuotaSource.NODE, EpochQuota(epoch_index=0, rate_limit=1), 0)
    assert manager.limiting
    assert drain(manager) == ["a"]
    manager.set_quota(QuotaSource.NODE, None, 0)
    assert not manager.limiting
    assert drain(manager) == ["b", "c"]


def test_an_exhausted_budget_holds_everything_to_the_next_epoch():
    manager = limited_to(None)
    enqueue_all(manager, Priority.CONTENT, ["a"])
    manager.exhaust(300)
    assert manager.admit(300) is None
    assert manager.admit_ephemeral(300) is DropReason.RATE_LIMIT_REACHED
    assert manager.next_send_at(300) == 1000
    assert drain(manager, 1000) == ["a"]


def test_the_clock_going_back_refills_nothing():
    manager = limited_to(2)
    enqueue_all(manager, Priority.CONTENT, "abcdef")
    assert drain(manager, 5_000) == ["a", "b"]
    for earlier_ms in (4_999, 3_000, 2_999, 0):
        assert drain(manager, earlier_ms) == []
    assert manager.next_send_at(0) == 1000
    assert drain(manager, 1000) == ["c", "d"]
    assert drain(manager, 5_000) == []


def test_the_expected_time_of_a_queued_item_counts_what_is_ahead_of_it():
    manager = limited_to(2)
    enqueue_all(manager, Priority.CONTENT, "abcd")
    assert manager.expected_at(Priority.CONTENT, 0) == 1000
    enqueue_all(manager, Priority.RETRY, ["retry"])
    assert manager.expected_at(Priority.RETRY, 0) == 4000


def test_the_state_is_handed_over_before_the_item():
    log = []
    manager: RateLimitManager[Any] = limited_to(5, on_change=lambda: log.append(("saved", manager.state())))
    enqueue_all(manager, Priority.CONTENT, ["a"])
    assert log == []
    log.append(("left", manager.admit(0).item))
    assert log == [("saved", manager.state()), ("left", "a")]


def test_a_sync_message_gets_out_between_retries_that_never_end():
    manager = limited_to(None)
    enqueue_all(manager, Priority.RETRY, [f"retry {number}" for number in range(40)])
    enqueue_all(manager, Priority.SYNC, ["sync"])
    left = drain(manager)
    assert left.index("sync") == 4
    assert len(left) == 41


def test_retries_leave_room_for_a_sync_message_in_an_epoch_and_content_goes_before_both():
    manager = limited_to(10)
    enqueue_all(manager, Priority.RETRY, [f"retry {number}" for number in range(40)])
    enqueue_all(manager, Priority.SYNC, ["sync"])
    enqueue_all(manager, Priority.CONTENT, ["a", "b", "c", "d", "e"])
    left = [item for now_ms in range(2 * EPOCH_MS) for item in drain(manager, now_ms)]
    retries = [f"retry {number}" for number in range(12)]
    assert left == ["a", "b", "c", "d", "e", *retries[:4], "sync", *retries[4:12]]


def test_a_sync_message_gets_out_between_retries_although_content_leaves_between_them():
    manager = limited_to(100)
    enqueue_all(manager, Priority.RETRY, ["retry"] * 100)
    enqueue_all(manager, Priority.SYNC, ["sync"])
    left = []
    for now_ms in range(EPOCH_MS):
        if now_ms % 50 == 0:
            enqueue_all(manager, Priority.CONTENT, ["content"])
        left += drain(manager, now_ms)
    assert left[: left.index("sync")].count("retry") == 4
