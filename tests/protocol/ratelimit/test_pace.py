"""The pace of one node: what it learns from answers, at any speed (429 of WAKU-LIGHTPUSH and other refusals)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fairway.protocol.ratelimit.pace import Pace


def _run(pace: Pace, takes: Callable[[int], bool], *, for_ms: int, start_ms: int = 0) -> list[int]:
    """Send as fast as the pace allows; ``takes(now_ms)`` says whether the node takes it. Return when it took one."""
    now_ms, taken = start_ms, []
    while now_ms < start_ms + for_ms:
        now_ms = max(pace.opens_at(now_ms), now_ms)
        mark = pace.spend(now_ms)
        if takes(now_ms):
            pace.taken(mark, now_ms)
            taken.append(now_ms)
        else:
            pace.refused(mark, now_ms, too_many=True)
        now_ms += 20
    return taken


def _slowed_to(per_second: float) -> Pace:
    """Return a pace that fell to ``per_second`` at the time 0, and took one since."""
    pace = Pace()
    while pace.per_second is None or pace.per_second > per_second:
        pace.refused(pace.spend(0), 0, too_many=True)
    now_ms = pace.opens_at(0)
    pace.taken(pace.spend(now_ms), now_ms)
    return pace


@pytest.mark.parametrize("per_second", [0.1, 0.5, 1.0])
def test_a_slow_pace_grows_by_the_second_like_a_fast_one(per_second: float) -> None:
    pace = _slowed_to(per_second)
    taken = _run(pace, lambda _now_ms: True, for_ms=120_000, start_ms=pace.opens_at(0))
    assert pace.per_second is None or pace.per_second > 5, f"{len(taken)} left in two minutes"


def test_an_hour_of_silence_does_not_make_the_pace_grow() -> None:
    pace = _slowed_to(1.0)
    assert pace.per_second is not None
    before = pace.per_second
    pace.taken(pace.spend(300_000), 300_000)
    assert pace.per_second < before * 1.2


def test_a_node_that_says_429_to_every_sixth_whatever_one_does_is_not_left_at_a_crawl(seed: int) -> None:
    draw = random.Random(seed)
    pace = Pace()
    taken = _run(pace, lambda _now_ms: draw.random() > 1 / 6, for_ms=1_800_000)
    late = [at_ms for at_ms in taken if at_ms > 900_000]
    # A message in two to three seconds for most seeds; the worst of 300 had one in 3.4 s.
    assert len(late) > 900 * 0.2, f"{len(late)} in a quarter of an hour with the seed {seed}"


def test_the_pace_that_a_node_keeps_is_found_and_held() -> None:
    granted: list[int] = []

    def takes(now_ms: int) -> bool:
        while granted and granted[0] <= now_ms - 1_000:
            granted.pop(0)
        if len(granted) < 5:
            granted.append(now_ms)
            return True
        return False

    pace = Pace()
    taken = _run(pace, takes, for_ms=600_000)
    assert 4 * 300 < sum(at_ms > 300_000 for at_ms in taken) <= 5 * 300 + 5


def test_the_first_pace_counts_all_that_a_node_took_of_a_burst_in_whatever_order_its_answers_come(seed: int) -> None:
    pace = Pace()
    marks = [pace.spend(0) for _ in range(32)]
    answers = [True] * 10 + [False] * 22
    random.Random(seed).shuffle(answers)
    for mark, is_taken in zip(marks, answers, strict=True):
        if is_taken:
            pace.taken(mark, 100)
        else:
            pace.refused(mark, 100, too_many=True)
    assert pace.per_second == pytest.approx(0.85 * 10)


def test_a_refusal_for_another_reason_does_not_make_the_next_429_halve_the_pace() -> None:
    pace = _slowed_to(4.0)
    assert pace.per_second is not None
    before = pace.per_second
    now_ms = pace.opens_at(10_000)
    pace.refused(pace.spend(now_ms), now_ms, too_many=False)
    now_ms = pace.opens_at(now_ms)
    pace.refused(pace.spend(now_ms), now_ms, too_many=True)
    assert pace.per_second == pytest.approx(0.85 * before)
