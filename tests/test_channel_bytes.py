"""What a channel costs without most filters, as ``python -m benchmarks.channel_bytes`` measures it, but smaller."""

from __future__ import annotations

import pytest
from benchmarks.channel_bytes import Group, burst, idle_day, last_of_a_burst

from fairway.options import BloomPolicy

HOUR_MS = 3_600_000


def test_an_idle_day_of_three_costs_less_than_200_kb() -> None:
    found = idle_day(BloomPolicy.NEWS)
    assert 0 < found["bytes a day"] < 200_000
    assert found["bytes an hour and participant"] < 2_000


@pytest.mark.parametrize("policy", BloomPolicy)
def test_a_burst_is_acknowledged_whatever_the_policy(policy: BloomPolicy) -> None:
    found = burst(300, policy)
    assert found["not acknowledged"] == 0
    assert (found["bytes"] < 300 * 750) is (policy is not BloomPolicy.ALWAYS)


@pytest.mark.parametrize("participants", [3, 8])
def test_nine_of_ten_that_missed_the_last_of_a_burst_notice_it_within_15_seconds(participants: int) -> None:
    found = last_of_a_burst(participants, 240 // participants, BloomPolicy.NEWS)
    assert found["missed it"] > 20
    assert found["noticed within 3 S"] >= 0.9


@pytest.mark.parametrize("participants", [3, 12])
def test_an_idle_group_of_any_size_sends_as_often_as_one_participant(participants: int) -> None:
    group = Group(participants, BloomPolicy.NEWS)
    for name in group.stacks:
        group.send(name, b"good night")
        group.pass_time(20_000)
    group.pass_time(HOUR_MS)
    before = group.transmissions
    group.pass_time(10 * HOUR_MS)
    # A wait is 8 to 16 minutes.
    assert 35 <= group.transmissions - before <= 80


def test_a_message_after_an_idle_time_is_acknowledged_at_once() -> None:
    group = Group(3, BloomPolicy.NEWS)
    group.send("p0", b"good night")
    group.pass_time(10 * HOUR_MS)
    before = group.transmissions
    group.send("p1", b"good morning")
    group.pass_time(15_000)
    assert group.stacks["p1"].statistics().open_requests == 0
    assert group.transmissions - before >= 3
