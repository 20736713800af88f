"""Receiving: order, duplicates, own messages, losses, bounds (SDS, "Receive Message")."""

import itertools
import random

import pytest

from fairway.protocol.sds.outcome import (
    DependenciesMissing,
)
from fairway.wire.sds import HistoryEntry


def missing_ids(outcomes):
    return [entry.message_id for o in outcomes if isinstance(o, DependenciesMissing) for entry in o.entries]


# Causal order


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_order_of_arrival_everything_is_ready_once_and_after_what_it_cites(
    new_channel, a_message, ready, start, seed
):
    rng = random.Random(seed)
    messages = []
    for number in range(40):
        cited = {f"m{rng.randrange(number)}" for _ in range(rng.randrange(4))} if number else set()
        messages.append(a_message(f"m{number}", *sorted(cited), lamport=start + rng.randrange(100)))
    arrivals = messages * 2
    rng.shuffle(arrivals)
    bob = new_channel("bob")
    order = list(itertools.chain.from_iterable(ready(bob.receive(m, None, start)) for m in arrivals))
    assert sorted(order) == sorted(m.message_id for m in messages)
    place = {message_id: index for index, message_id in enumerate(order)}
    for message in messages:
        assert all(place[entry.message_id] < place[message.message_id] for entry in message.causal_history)
    assert [(r.lamport, r.message_id) for r in bob.history] == sorted(
        (m.lamport_timestamp, m.message_id) for m in messages
    )


def test_a_missing_message_that_comes_and_is_parked_is_no_longer_missing(new_channel, a_message, start):
    bob = new_channel("bob")
    bob.receive(a_message("m3", "m2"), None, start)
    bob.receive(a_message("m2", "m1"), None, start)
    assert list(bob.missing) == ["m1"]


def test_each_missing_message_is_named_once_however_often_it_is_cited(new_channel, a_message, start):
    bob = new_channel("bob")
    assert missing_ids(bob.receive(a_message("m2", *["m1"] * 50), None, start)) == ["m1"]


def test_nobody_waits_for_what_can_never_come(new_channel, a_message, ready, start):
    """js-waku cites a message in itself when a payload is sent again, and nim-sds cites sync messages."""
    bob = new_channel("bob")
    assert ready(bob.receive(a_message("m1", "m1", "", "sync-3f2a"), None, start)) == ["m1"]


# Duplicates


def test_a_duplicate_teaches_the_hint_that_was_missing(new_channel, a_message, start):
    bob = new_channel("bob")
    for message in (a_message("m2", "m1"), a_message("m0")):
        bob.receive(message, None, start)
        bob.receive(message, message.message_id.encode(), start)
        bob.receive(message, b"another", start)
    bob.receive(a_message("m1"), None, start)
    assert [record.retrieval_hint for record in bob.history] == [b"m0", None, b"m2"]


# Own messages


def test_the_latest_hint_of_a_missing_message_counts(new_channel, a_message, start):
    bob = new_channel("bob")
    for number, hint in enumerate((b"first", b"latest")):
        bob.receive(a_message(f"m{number}", HistoryEntry("missing", hint, "zoe")), None, start)
    assert bob.missing["missing"].entry.retrieval_hint == b"latest"
