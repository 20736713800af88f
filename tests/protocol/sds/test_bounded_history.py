"""The history keeps a window of the newest messages, and delivers nothing again that it forgot."""

import random

import pytest

from fairway.errors import ConfigurationError
from fairway.options import SdsConfig
from fairway.protocol.sds.history import HistoryRecord, LocalHistory
from fairway.protocol.sds.outcome import Ignored, MessageIgnored
from fairway.protocol.sds.state import SdsState


def ignored_as(outcomes):
    return [outcome.why for outcome in outcomes if isinstance(outcome, MessageIgnored)]


@pytest.fixture
def long_talk(a_message, start):
    """Make a thousand messages in a row."""
    before = [()] + [(f"m{number:03}",) for number in range(999)]
    return [a_message(f"m{n:03}", *cited, lamport=start + n) for n, cited in enumerate(before)]


def test_what_was_forgotten_is_not_delivered_again_also_after_a_restart(new_channel, long_talk, ready, start):
    bob = new_channel("bob", max_history=128)
    for message in long_talk:
        bob.receive(message, None, start)
    reborn = new_channel("bob", max_history=128)
    SdsState(reborn).load(list(SdsState(bob).rows()))
    for channel in (bob, reborn):
        for message in random.Random(1).sample(long_talk, 200):
            outcomes = channel.receive(message, b"hint", start)
            assert ready(outcomes) == []
            known = message.message_id in channel.history
            assert ignored_as(outcomes) == [Ignored.DUPLICATE if known else Ignored.FORGOTTEN]


def test_nobody_waits_for_what_was_forgotten_once_it_comes_again(new_channel, a_message, long_talk, ready, start):
    bob = new_channel("bob", max_history=128)
    for message in long_talk:
        bob.receive(message, None, start)
    assert ready(bob.receive(a_message("reply", "m005", lamport=start + 2_000), None, start)) == []
    outcomes = bob.receive(long_talk[5], None, start)
    assert ready(outcomes) == ["reply"]
    assert not bob.missing


def test_what_is_newer_than_the_window_is_delivered_whenever_it_comes(new_channel, a_message, long_talk, ready, start):
    bob = new_channel("bob", max_history=128)
    for message in long_talk:
        bob.receive(message, None, start)
    assert ready(bob.receive(a_message("late", lamport=start + 950), None, start)) == ["late"]


def test_a_history_that_forgets_stays_in_order():
    rng, history = random.Random(7), LocalHistory(3)
    records = [HistoryRecord(number, f"m{number}", None, "alice") for number in range(6_000)]
    kept = []
    for record in rng.sample(records, len(records)):
        if history.is_before_window(record.lamport, record.message_id):
            continue
        history.add(record)
        kept = sorted([*kept, record]) if len(kept) % 50 == 0 else [*kept, record]
        if len(history) > 1_500:
            kept.sort()
            assert history.forget_oldest(500) == [gone.message_id for gone in kept[:500]]
            del kept[:500]
    assert list(history) == sorted(kept)
    assert history.last() == tuple(record.entry for record in sorted(kept)[-3:])
    assert all(record.message_id in history for record in kept)


def test_a_history_shorter_than_what_is_cited_is_refused():
    with pytest.raises(ConfigurationError, match="max_history must be more than causal_history_size"):
        SdsConfig(max_history=200, causal_history_size=200)
