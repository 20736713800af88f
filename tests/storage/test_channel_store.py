"""The guarantees of every kind of store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.errors import StorageError, StoreLockedError, StoreMismatchError
from fairway.events import (
    MessageSetAside,
)
from fairway.protocol.effects import Change
from fairway.storage.channel_store import Handling, SendOutcome, Write
from fairway.storage.memory_store import MemoryStore


@pytest.fixture
def kept(new_store, keeper):
    return keeper(new_store())


def test_failed_attempts_are_kept_until_the_message_is_finished(kept, make):
    first, second = make.received(1), make.received(2)
    aside = MessageSetAside(number=2, message_id="m", sender_id="bob", size_bytes=3, attempts=3, error="ValueError()")
    tried, given_up = Handling(number=1, attempts=2), Handling(number=2, attempts=3, set_aside=aside)
    kept.keep(delivered=((1, first), (2, second)))
    kept.keep(handling=(tried, given_up))
    assert kept.store.message(2) == second
    stored = kept.reopen()
    assert stored.handling == (tried, given_up)
    assert [number for number, _ in stored.inbox] == [1]
    kept.keep(handling=(Handling(number=2, attempts=0),), finished=(1,))
    stored = kept.reopen()
    assert stored.handling == (Handling(number=2, attempts=0),)
    assert [number for number, _ in stored.inbox] == [2]
    assert kept.store.message(1) is None


def test_no_number_of_a_message_is_ever_given_twice(kept, make):
    first = kept.stored.first_number
    kept.keep(delivered=((first, make.received(1)),), finished=(first,))
    assert kept.reopen().first_number > first


def test_rows_are_there_again_and_the_newest_counts(kept, make):
    assert kept.keep(changes=(make.put("a", 1, "x", (b"y", (None, 2.5))), make.put("b", True))) is None
    assert kept.keep(changes=(make.put("a", 2), make.put("", table="sds"))) is None
    kept.reopen()
    assert kept.rows == {("history", "a"): (2,), ("history", "b"): (True,), ("sds", ""): ()}


@pytest.mark.parametrize("table", ["history", "segments"])
def test_within_one_write_the_last_change_of_a_row_counts(kept, make, table):
    kept.keep(
        changes=tuple(
            Change(table=table, key=key, row=row)
            for key, row in (("a", (1,)), ("a", None), ("b", (1,)), ("b", (2,)), ("c", None), ("c", (3,)))
        )
    )
    kept.reopen()
    assert kept.rows == {(table, "b"): (2,), (table, "c"): (3,)}


def test_a_message_is_handed_over_again_until_it_is_finished_and_says_so(kept, make):
    messages = {number: make.received(number) for number in (3, 7, 20)}
    for number, message in messages.items():
        kept.keep(delivered=((number, message),))
    kept.keep(finished=(7,))
    assert kept.reopen().inbox == tuple((number, replace(messages[number], redelivered=True)) for number in (3, 20))
    kept.keep(finished=(3, 20, 99))
    assert kept.reopen().inbox == ()


def test_a_message_keeps_every_field(kept, make):
    message = make.received(
        payload=bytes(range(256)), timestamp_ns=-(2**63), ephemeral=True, dependencies_met=False, recovered=True
    )
    kept.keep(delivered=((1, message),))
    assert kept.reopen().inbox == ((1, replace(message, redelivered=True)),)


def test_a_request_is_found_by_its_id_also_after_it_ended(kept, make):
    begun = make.request(1)
    ended = make.request(1, outcome=SendOutcome.DELIVERED, ended_at_ms=9, delivered_to=("bob", "carol"))
    kept.keep(requests=(begun, make.request(2)))
    assert kept.store.request("request-1") == begun
    kept.keep(requests=(ended,))
    assert kept.store.request("request-1") == ended
    kept.reopen()
    assert kept.store.request("request-1") == ended
    assert kept.store.request("request-2") == make.request(2)
    assert kept.store.request("request-3") is None


def test_answers_come_in_the_order_of_the_writes(new_store, make):
    store, answered = new_store(), []
    store.open(*make.owner)
    for number in range(200):
        write = Write(changes=(make.put(str(number), number),))
        store.submit(write, lambda error, number=number: answered.append((number, error)))
    store.close()
    assert answered == [(number, None) for number in range(200)]


def test_a_store_is_opened_once_at_a_time(kept, make):
    with pytest.raises(StoreLockedError, match="open already"):
        kept.store.open(*make.owner)
    assert kept.keep(changes=(make.put("a", 1),)) is None


@pytest.mark.parametrize(("place", "name"), [(0, "channel"), (1, "sender"), (2, "content topic")])
def test_a_store_belongs_to_one_channel_sender_and_content_topic(kept, make, place, name):
    kept.keep(changes=(make.put("a", 1),))
    kept.store.close()
    other = list(make.owner)
    other[place] = "/fairway/1/another/proto"
    with pytest.raises(StoreMismatchError, match=f"{name}.*another.* a store of its own"):
        kept.store.open(*other)
    assert kept.store.open(*make.owner).changes == (make.put("a", 1),)


def test_a_store_that_is_not_open_answers_with_an_error(new_store, make):
    store, answers = new_store(), []
    store.submit(Write(changes=(make.put("a", 1),)), answers.append)
    store.open(*make.owner)
    store.close()
    store.submit(Write(changes=(make.put("a", 1),)), answers.append)
    assert [type(answer) for answer in answers] == [StorageError, StorageError]
    assert "open" in str(answers[0])
    assert store.open(*make.owner).changes == ()
    store.close()


@pytest.fixture
def ten_kept(monkeypatch, new_store, keeper):
    for module in ("memory_store", "sqlite_writer"):
        monkeypatch.setattr(f"fairway.storage.{module}.KEPT_REQUESTS", 10)
    return keeper(new_store())


def test_the_oldest_ended_requests_are_removed_and_open_or_reopened_ones_never(ten_kept, make):
    ten_kept.keep(requests=(make.request(0), make.request(1, outcome=SendOutcome.FAILED, ended_at_ms=1)))
    ten_kept.keep(requests=(make.request(1),))
    for start in range(2, 3_000, 500):
        numbers = range(start, start + 500)
        ten_kept.keep(requests=tuple(make.request(n, outcome=SendOutcome.DELIVERED, ended_at_ms=n) for n in numbers))
    ten_kept.reopen()
    first, second, *known = [n for n in range(3_002) if ten_kept.store.request(f"request-{n}") is not None]
    assert (first, second) == (0, 1)
    assert known == list(range(known[0], 3_002))
    # Old ones are removed in chunks.
    assert 10 <= len(known) <= 1_500


def test_a_store_in_memory_takes_the_rows_from_the_state_when_it_is_opened_again(make, keeper):
    kept = keeper(MemoryStore())
    kept.keep(changes=(make.put("a", 1), make.put("b", 1)))
    state = [make.put("a", 2)]
    assert kept.store.follow(lambda: tuple(state))
    state.append(make.put("c", 3))
    assert kept.reopen().changes == (make.put("a", 2), make.put("c", 3))
    kept.keep(changes=(make.removed("a"),))
    assert kept.reopen().changes == (make.put("c", 3),)
