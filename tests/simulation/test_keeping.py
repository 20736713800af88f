"""What a store gives back is held against what it was given and answered for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.events import MessageReceived, MessageSetAside
from fairway.protocol.effects import Change
from fairway.simulation.keeping import Kept
from fairway.storage.channel_store import Handling, StoredRequest, Write
from fairway.storage.memory_store import MemoryStore

OWNER = ("harbour", "alice", "/fairway/1/harbour/proto")


def received(number):
    return MessageReceived(
        message_id=f"m{number}",
        sender_id="bob",
        channel_id="harbour",
        content_topic=OWNER[2],
        payload=b"%d" % number,
        timestamp_ns=number,
        message_hashes=(),
        sds_ids=(f"s{number}",),
    )


def aside(number):
    told = MessageSetAside(number=number, message_id="m", sender_id="bob", size_bytes=1, attempts=3, error="no")
    return Handling(number=number, attempts=3, set_aside=told)


def write(number):
    return Write(
        changes=(Change(table="history", key=str(number), row=(number,)),),
        delivered=((number, received(number)),),
        requests=(StoredRequest(request_id=f"r{number}", message_id="m", size_bytes=1, accepted_at_ms=number),),
    )


class Life:
    """One store, what is given to it, and what is said about that."""

    def __init__(self):
        self.store = MemoryStore()
        self.kept = Kept()
        self.faults = []
        self.first = 0
        self.open()

    def open(self, changed=lambda stored: stored):
        self.store.close()
        stored = changed(self.store.open(*OWNER))
        self.faults += self.kept.opened(stored, self.store)
        self.first = stored.first_number

    def give(self, write, *, is_kept=True, is_answered=True):
        self.faults += self.kept.given(write)
        if is_kept:
            self.store.submit(write, lambda error: None)
        if is_answered:
            self.faults += self.kept.written(write)


@pytest.fixture
def life():
    life = Life()
    for number in range(3):
        life.give(write(life.first + number))
    assert life.faults == []
    return life


def test_what_was_answered_for_comes_back(life):
    life.give(Write(finished=(life.first,), handling=(aside(life.first + 1),)))
    life.open()
    life.open()
    assert life.faults == []
    assert len(life.kept.inbox) == 1


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_was_not_answered_for_may_be_there_or_not(life, is_kept):
    life.give(write(life.first + 7), is_kept=is_kept, is_answered=False)
    life.open()
    assert life.faults == []


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        (lambda stored: replace(stored, changes=stored.changes[1:]), "1 rows come back otherwise"),
        (lambda stored: replace(stored, inbox=stored.inbox[1:]), "of 3 unread messages 2 come back"),
        (lambda stored: replace(stored, inbox=stored.inbox[::-1]), "in another order"),
        (lambda stored: replace(stored, inbox=tuple((n, received(n)) for n, _ in stored.inbox)), "as new"),
        (lambda stored: replace(stored, first_number=stored.inbox[-1][0]), "numbers begin again"),
        (lambda stored: replace(stored, handling=(aside(1),)), "handled in vain comes back otherwise"),
    ],
)
def test_what_comes_back_otherwise_is_told(life, changed, fault):
    life.open(changed)
    assert any(fault in told for told in life.faults), life.faults


def test_a_later_write_without_an_earlier_one_is_no_beginning(life):
    life.give(write(life.first + 7), is_kept=False, is_answered=False)
    life.give(write(life.first + 8), is_answered=False)
    life.open()
    assert len(life.faults) == 1


def test_an_answer_that_overtakes_another_and_one_after_a_failure_are_told(life):
    early, late = write(life.first + 7), write(life.first + 8)
    life.give(early, is_answered=False)
    life.give(late)
    assert "kept before one that came earlier" in life.faults[0]
    life.kept.failed()
    life.give(write(life.first + 9))
    assert "kept after one failed" in life.faults[1]


def test_a_number_that_was_given_before_is_told(life):
    life.give(write(life.first + 1))
    assert "number that was given before" in life.faults[0]


def test_a_send_of_which_something_else_is_known_and_a_message_set_aside_that_is_gone_are_told(life):
    ended = StoredRequest(request_id=f"r{life.first}", message_id="m", size_bytes=1, accepted_at_ms=0, is_settled=True)
    life.give(Write(requests=(ended,)), is_kept=False)
    life.open()
    assert "the send" in life.faults[0]
