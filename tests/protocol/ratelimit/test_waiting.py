from __future__ import annotations

import gc
import itertools
import math
import weakref
from typing import Any

import pytest

from fairway.options import RateLimitConfig
from fairway.protocol.ratelimit import Priority, RateLimitManager

EPOCH_MS = 1000


def limited_to(limit: int | None, **config) -> RateLimitManager[Any]:
    return RateLimitManager(
        RateLimitConfig(enabled=limit is not None, messages_per_epoch=limit, epoch_ms=EPOCH_MS, **config)
    )


def drain(manager: RateLimitManager, now_ms: int = 0) -> list:
    """Everything that may leave now."""
    return [admission.item for admission in iter(lambda: manager.admit(now_ms), None)]


def enqueue_all(manager: RateLimitManager, priority: Priority, items) -> None:
    for item in items:
        assert manager.enqueue(item, priority).accepted


def test_retries_of_an_acknowledged_message_leave_the_queue():
    manager = limited_to(1)
    manager.enqueue("retry of x", Priority.RETRY, key="x")
    manager.enqueue("retry of y", Priority.RETRY, key="y")
    manager.enqueue("repair of x", Priority.REPAIR, key="x")
    assert manager.is_queued("x")
    assert manager.discard_key("x") == ("retry of x", "repair of x")
    assert not manager.is_queued("x")
    assert manager.discard_key("x") == ()
    assert manager.queued() == manager.queued(Priority.RETRY) == 1
    assert drain(manager) == ["retry of y"]


def test_a_key_that_left_by_the_front_is_no_longer_queued():
    manager = limited_to(None)
    manager.enqueue("a", Priority.RETRY, key="x")
    manager.enqueue("b", Priority.RETRY, key="x")
    manager.admit(0)
    assert manager.discard_key("x") == ("b",)


def test_items_can_be_discarded_by_a_predicate_most_urgent_first():
    manager = limited_to(0)
    enqueue_all(manager, Priority.SYNC, [1, 2, 3, 4])
    enqueue_all(manager, Priority.CONTENT, [5, 6])
    assert manager.discard(lambda item: item % 2 == 0) == (6, 2, 4)
    assert manager.queued() == 3


def test_items_of_one_class_can_be_discarded_alone():
    manager = limited_to(0)
    enqueue_all(manager, Priority.SYNC, [1, 2])
    enqueue_all(manager, Priority.CONTENT, [3])
    assert manager.discard(lambda _: True, Priority.SYNC) == (1, 2)
    assert manager.queued(Priority.CONTENT) == 1


def test_a_full_queue_drops_its_oldest_least_urgent_item_for_a_more_urgent_one():
    manager = limited_to(0, max_queued=4)
    enqueue_all(manager, Priority.SYNC, ["sync 1", "sync 2"])
    manager.enqueue("retry", Priority.RETRY)
    manager.enqueue("content", Priority.CONTENT)
    displaced = [manager.enqueue(n, Priority.CONTENT).displaced for n in ("a", "b", "c")]
    assert displaced == ["sync 1", "sync 2", "retry"]
    assert manager.queued() == manager.queued(Priority.CONTENT) == 4


def test_a_full_queue_drops_the_oldest_of_the_same_class_for_a_new_one():
    manager = limited_to(0, max_queued=2)
    enqueue_all(manager, Priority.RETRY, "ab")
    assert manager.enqueue("c", Priority.RETRY).displaced == "a"


def test_a_full_queue_never_drops_anything_for_something_less_urgent():
    manager = limited_to(0, max_queued=2)
    enqueue_all(manager, Priority.REPAIR, "ab")
    refusal = manager.enqueue("sync", Priority.SYNC)
    assert (refusal.accepted, refusal.sequence, refusal.displaced) == (False, None, None)
    assert manager.queued(Priority.REPAIR) == 2


def test_a_queue_full_of_content_refuses_content():
    manager = limited_to(0, max_queued=2)
    enqueue_all(manager, Priority.CONTENT, "ab")
    assert not manager.enqueue("c", Priority.CONTENT).accepted
    assert manager.queued() == 2


def test_what_is_put_back_comes_first_again_in_whatever_order_and_costs_once():
    manager = limited_to(10)
    enqueue_all(manager, Priority.CONTENT, "abc")
    first, second = manager.admit(0), manager.admit(0)
    manager.put_back(first)
    manager.put_back(second)
    assert manager.utilization(0) == 0
    assert drain(manager) == ["a", "b", "c"]
    assert manager.utilization(0) == 30


def test_what_is_put_back_keeps_its_key():
    manager = limited_to(10)
    manager.enqueue("retry", Priority.RETRY, key="x")
    manager.put_back(manager.admit(0))
    assert manager.discard_key("x") == ("retry",)


def test_nothing_is_put_back_twice():
    manager = limited_to(10)
    manager.enqueue("a", Priority.CONTENT)
    admission = manager.admit(0)
    manager.put_back(admission)
    with pytest.raises(ValueError, match="put back once"):
        manager.put_back(admission)
    assert manager.queued() == 1


def test_a_charge_is_returned_to_its_own_epoch_even_if_the_next_has_begun():
    manager = limited_to(2)
    enqueue_all(manager, Priority.CONTENT, "abc")
    admission = manager.admit(999)
    assert drain(manager, 1000) == ["b", "c"]
    manager.put_back(admission)
    assert manager.utilization(1000) == 100
    assert manager.utilization(999) == 100


def test_what_was_accepted_once_is_taken_back_into_a_queue_that_filled_up_meanwhile():
    manager = limited_to(1, max_queued=1)
    manager.enqueue("a", Priority.CONTENT)
    admission = manager.admit(0)
    manager.enqueue("b", Priority.CONTENT)
    manager.put_back(admission)
    assert manager.queued() == 2
    assert drain(manager) == ["a"]


def test_a_restored_item_goes_back_to_its_place_among_newer_ones():
    manager = limited_to(None)
    manager.enqueue("new", Priority.CONTENT, sequence=7)
    manager.enqueue("old", Priority.CONTENT, sequence=3)
    assert manager.enqueue("newest", Priority.CONTENT).sequence == 8
    assert drain(manager) == ["old", "new", "newest"]


class CountingInt(int):
    """A sequence number that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other) -> bool:
        CountingInt.comparisons += 1
        return int(self) < int(other)

    def __eq__(self, other) -> bool:
        CountingInt.comparisons += 1
        return int(self) == int(other)

    __hash__ = int.__hash__


@pytest.mark.full
def test_with_a_hundred_thousand_items_queued_every_operation_stays_logarithmic():
    size, probes = 100_000, 200
    manager = limited_to(None, max_queued=2 * size)
    for number in range(size):
        manager.enqueue("waiting", Priority.RETRY, key=number, sequence=CountingInt(number))
    CountingInt.comparisons = 0
    for number in range(probes):
        manager.enqueue("new", Priority.RETRY, key=-1 - number, sequence=CountingInt(number))
        manager.admit(0)
        manager.discard_key(size - 1 - number)
        manager.next_send_at(0)
    assert CountingInt.comparisons < probes * 8 * math.log2(size)


def test_discarded_items_do_not_pile_up_in_memory():
    class Item:
        pass

    manager: RateLimitManager[Item] = RateLimitManager(RateLimitConfig(enabled=True, messages_per_epoch=0))
    alive = weakref.WeakSet()
    for number in range(2_000):
        item = Item()
        alive.add(item)
        manager.enqueue(item, Priority.RETRY, key=number)
    del item
    for number in range(1_999, 0, -1):
        manager.discard_key(number)
    gc.collect()
    assert manager.queued() == 1
    assert len(alive) < 100


@pytest.mark.parametrize("order", list(itertools.permutations(Priority)))
def test_the_order_of_arrival_between_classes_does_not_matter(order):
    manager = limited_to(None)
    for priority in order:
        manager.enqueue(priority.name, priority)
    assert drain(manager) == ["CONTENT", "REPAIR", "RETRY", "SYNC"]
