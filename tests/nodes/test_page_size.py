"""How many messages a store is asked for: fewer when they are large or slow to come, as many as wanted otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.nodes.page_size import WANTED_BYTES, PageSize


def read(size: PageSize, message_bytes: int, *, longest_bytes: int, pages: int) -> list[int]:
    """Read pages of messages of one size, and return how many messages each had; 0 if it was too long."""
    read = []
    for _ in range(pages):
        asked = size.of(100)
        if asked * message_bytes > longest_bytes:
            read.append(0)
            size.failed(asked)
        else:
            read.append(asked)
            size.came(asked, asked * message_bytes, 0.01)
    return read


def test_a_page_that_is_too_long_is_halved_until_it_is_read() -> None:
    assert read(PageSize(), 500_000, longest_bytes=16 << 20, pages=5) == [0, 0, 25, 8, 8]


def test_a_page_that_failed_is_not_asked_for_again_soon() -> None:
    size = PageSize()
    assert read(size, 1_000, longest_bytes=10_000, pages=60).count(0) == 4 + 60 // 10


@given(st.lists(st.tuples(st.integers(0, 2 * WANTED_BYTES), st.floats(0, 1), st.booleans())), st.integers(1, 1_000))
def test_whatever_happens_at_least_one_and_at_most_the_wanted_messages_are_asked_for(
    answers: list[tuple[int, float, bool]], wanted: int
) -> None:
    size = PageSize()
    for size_bytes, time_share, failed in answers:
        asked = size.of(wanted)
        assert 1 <= asked <= min(wanted, 100)
        if failed:
            size.failed(asked)
        else:
            size.came(asked, size_bytes, time_share)


@pytest.mark.parametrize("message_bytes", [1_000_000, 150_000, 40_000])
def test_long_messages_are_read_with_few_attempts_in_vain(message_bytes: int) -> None:
    assert read(PageSize(), message_bytes, longest_bytes=16 << 20, pages=50).count(0) <= 3
