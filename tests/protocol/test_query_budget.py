"""Store queries per minute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError
from fairway.protocol.incoming.retrieval import QueryBudget


def test_while_there_are_fewer_nobody_waits_and_then_for_the_minute_of_the_oldest():
    budget = QueryBudget(3)
    for now_ms in (1_000, 2_000, 30_000):
        assert budget.next_at(now_ms) == now_ms
        budget.spend(now_ms)
    assert budget.next_at(30_000) == 61_000
    assert budget.next_at(61_000) == 61_000
    budget.spend(61_000)
    assert budget.next_at(61_001) == 62_000


def test_a_clock_that_was_set_back_makes_nobody_wait_for_more_than_a_minute():
    budget = QueryBudget(1)
    budget.spend(10_000_000)
    assert budget.next_at(0) == 60_000


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ConfigurationError, match="per_minute must be at least 1, not 0"):
        QueryBudget(0)


@given(st.integers(1, 5), st.lists(st.integers(0, 30_000), min_size=1, max_size=40))
def test_never_are_more_queries_made_in_any_minute(per_minute, pauses):
    budget, now_ms, made = QueryBudget(per_minute), 0, []
    for pause in pauses:
        now_ms = budget.next_at(now_ms + pause)
        budget.spend(now_ms)
        made.append(now_ms)
    for end in made:
        assert sum(end - 60_000 < at_ms <= end for at_ms in made) <= per_minute
