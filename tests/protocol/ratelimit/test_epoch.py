from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.protocol.ratelimit.epoch import REMEMBERED_EPOCHS, EpochClock, EpochCounter

TEN_MINUTES_MS = 600_000


def counter_at(now_ms: int, *, epoch_ms: int = 100, charges: int = 0) -> EpochCounter:
    counter = EpochCounter(EpochClock(epoch_ms=epoch_ms))
    counter.observe(now_ms)
    for _ in range(charges):
        counter.charge()
    return counter


@given(now_ms=st.integers(0, 2**45), epoch_ms=st.integers(1, 10**9))
def test_an_epoch_holds_exactly_the_times_from_its_start_to_the_next_start(now_ms, epoch_ms):
    clock = EpochClock(epoch_ms=epoch_ms)
    index = clock.index(now_ms)
    assert clock.start(index) <= now_ms < clock.start(index + 1)


@given(now_s=st.integers(0, 2**35), period_s=st.integers(1, 10**6), fraction_ms=st.integers(0, 999))
def test_epochs_are_those_of_rln_which_counts_whole_seconds_and_rounds_down(now_s, period_s, fraction_ms):
    assert EpochClock(epoch_ms=period_s * 1000).index(now_s * 1000 + fraction_ms) == now_s // period_s


def test_a_step_back_into_an_unused_epoch_carries_the_count_along():
    counter = counter_at(550, charges=3)
    counter.observe(150)
    assert counter.used == 3
    counter.observe(50)
    assert counter.used == 3


def test_after_a_step_back_the_next_epoch_is_fresh_and_the_used_one_is_remembered():
    counter = counter_at(550, charges=3)
    counter.observe(150)
    counter.observe(200)
    assert counter.used == 0
    counter.observe(500)
    assert counter.used == 3


def test_a_clock_that_was_wrong_by_a_year_for_a_moment_does_not_stop_the_epochs_after():
    counter = counter_at(150, charges=1)
    counter.observe(150 + 31_536_000_000)
    counter.charge()
    counter.observe(160)
    assert counter.used == 1
    counter.observe(200)
    assert counter.used == 0


def test_what_others_used_counts_until_the_epoch_ends_and_again_when_the_clock_comes_back():
    counter = counter_at(150, charges=2)
    counter.report_used(5)
    assert (counter.own, counter.others, counter.used) == (2, 3, 5)
    counter.charge()
    assert counter.used == 6
    counter.observe(200)
    assert counter.used == 0
    counter.observe(150)
    assert counter.used == 6


def test_a_refund_goes_to_the_epoch_of_its_charge():
    counter = counter_at(150, charges=2)
    counter.observe(200)
    counter.charge()
    counter.refund(150)
    assert counter.record == ((1, 1), (2, 1))
    counter.refund(150)
    counter.refund(150)
    assert counter.record == ((2, 1),)


def test_a_clock_that_came_back_records_its_epochs_at_the_cost_of_those_far_ahead():
    counter = counter_at(0)
    for index in [*range(1_000, 1_000 + REMEMBERED_EPOCHS), 10, 11]:
        counter.observe(index * 100)
        counter.charge()
    kept = [index for index, _ in counter.record]
    assert kept[:2] == [10, 11]
    assert kept[2:] == list(range(1_000, 1_000 + REMEMBERED_EPOCHS - 2))


@pytest.mark.parametrize(
    ("old_ms", "new_ms", "expected"),
    [
        pytest.param(100, 1000, 6, id="longer: all epochs inside the new one"),
        pytest.param(100, 50, 1, id="shorter: all of the old epoch, for none knows when in it"),
        pytest.param(100, 300, 4, id="overlapping: epochs that touch the new one"),
        pytest.param(100, 100, 1, id="the same"),
    ],
)
def test_a_counter_for_another_epoch_length_takes_over_at_least_what_was_used(old_ms, new_ms, expected):
    counter = EpochCounter(EpochClock(epoch_ms=old_ms), used={4: 2, 6: 3, 7: 1})
    assert counter.rebased(EpochClock(epoch_ms=new_ms), 760).used == expected


@given(
    charges=st.lists(st.integers(0, 1_499), max_size=30),
    old_ms=st.sampled_from([100, 150, 300]),
    new_ms=st.sampled_from([100, 150, 300, 700]),
    told_ms=st.integers(0, 1_499),
    later_ms=st.integers(0, 1_499),
)
def test_no_epoch_of_any_length_ever_counts_less_than_was_charged_in_it(charges, old_ms, new_ms, told_ms, later_ms):
    counter = EpochCounter(EpochClock(epoch_ms=old_ms))
    for at_ms in charges:
        counter.observe(at_ms)
        counter.charge()
    clock = EpochClock(epoch_ms=new_ms)
    counter = counter.rebased(clock, told_ms)
    counter.observe(later_ms)
    assert counter.used >= sum(clock.index(at_ms) == clock.index(later_ms) for at_ms in charges)


def test_of_two_counts_of_one_epoch_the_higher_one_is_taken_over():
    clock = EpochClock(epoch_ms=1_000)
    counter = EpochCounter(clock, used={5: 1})
    assert counter.merge(EpochCounter(clock, used={5: 3}))
    assert counter.record == ((5, 3),)
