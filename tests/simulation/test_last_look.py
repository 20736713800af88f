"""What a world is asked in the end: whether what was kept is what was so, and what receipts and the network say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.channel.inbox import MessageStream
from fairway.channel.receipt import Receipt
from fairway.protocol.ciphering import Ciphering
from fairway.protocol.requests import Requests
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sending import Sending
from fairway.simulation.invariants import Invariant
from fairway.simulation.plan import SimulationPlan
from fairway.simulation.runner import simulate
from fairway.simulation.world import Observer, World
from fairway.storage.memory_store import MemoryStore
from fairway.waku.local import NO_FAULTS

PLAN = SimulationPlan(
    participants=3,
    duration_ms=60_000,
    loss=0.0,
    messages_per_hour=300,
    crashes_per_hour=0,
    absences_per_hour=0,
    joins=0,
    leaves=0,
    partitions=0,
    bloom_capacity=200,
    settle_ms=1_200_000,
)


def broken(plan=PLAN):
    """Return which invariants a world violates."""
    return {violation.invariant for violation in simulate(plan).violations}


def test_a_sound_world_passes():
    assert broken() == set()


def test_a_row_that_the_store_never_got_is_missed(monkeypatch):
    submit = MemoryStore.submit

    def forget_history(self, write, done):
        kept = tuple(change for change in write.changes if change.table != "history")
        submit(self, replace(write, changes=kept), done)

    monkeypatch.setattr(MemoryStore, "submit", forget_history)
    assert Invariant.KEPT in broken()


def test_a_row_that_is_never_deleted_is_seen(monkeypatch):
    submit = MemoryStore.submit

    def keep_all(self, write, done):
        submit(self, replace(write, changes=tuple(change for change in write.changes if change.row is not None)), done)

    monkeypatch.setattr(MemoryStore, "submit", keep_all)
    assert Invariant.KEPT in broken()


def test_a_message_that_is_read_and_stays_in_the_inbox_is_seen(monkeypatch):
    submit = MemoryStore.submit
    monkeypatch.setattr(
        MemoryStore, "submit", lambda self, write, done: submit(self, replace(write, finished=()), done)
    )
    assert Invariant.KEPT in broken()


def test_a_healed_world_in_which_nothing_is_acknowledged_is_seen(monkeypatch):
    monkeypatch.setattr(Sending, "reviewed", lambda *_: None)
    assert Invariant.HEALED in broken()


def test_a_receipt_that_names_nobody_is_seen(monkeypatch):
    observe = Receipt.observe

    def forget(self, event):
        observe(self, event)
        self._holders = frozenset()

    monkeypatch.setattr(Receipt, "observe", forget)
    assert Invariant.ACKNOWLEDGED in broken(replace(PLAN, ask_all_share=0.0))


def test_a_receipt_that_never_ends_is_seen(monkeypatch):
    monkeypatch.setattr(Receipt, "observe", lambda *_: None)
    assert Invariant.ENDED in broken()


def test_what_leaves_in_clear_text_is_seen(monkeypatch):
    def in_clear(self, plaintext, *, then, failed, now_ms, is_content=False):
        then(plaintext, now_ms)

    monkeypatch.setattr(Ciphering, "seal", in_clear)
    assert Invariant.WORD in broken(replace(PLAN, encrypted=True))


def test_a_message_told_as_sent_with_its_first_segment_is_seen(monkeypatch):
    accepted = Requests.accepted

    def too_soon(self, sds_id, message_hash):
        for sent in self.segments.values():
            sent.accepted = True
        for request in self.open.values():
            request.part_count = len(request.segments)
        return accepted(self, sds_id, message_hash)

    monkeypatch.setattr(Requests, "accepted", too_soon)
    assert Invariant.WORD in broken(replace(PLAN, long_share=1.0, slow_uplinks=3))


def test_a_clock_that_does_not_follow_what_it_hears_is_seen(monkeypatch):
    monkeypatch.setattr(MessageChannel, "_follow_clock", lambda *_: None)
    assert Invariant.STAMPS in broken(replace(PLAN, clock_skew_ms=300_000))


class Answers(Observer):
    """What receipts said."""

    def __init__(self):
        self.said = []

    def answered(self, at_ms, name, request_id, delivered_to):
        self.said.append((name, request_id, delivered_to))


@pytest.fixture
def world():
    with World([], seed=1, faults=NO_FAULTS) as made:
        yield made


def test_an_application_goes_on_in_its_next_life_with_what_it_wanted_to_send(world):
    answers = Answers()
    world.observers.append(answers)
    world.join("alice")
    world.join("bob")
    world.run(1_000)
    # The program is killed before it can do anything about it, and again while it waits for an answer.
    request_id = world.send("alice", b"is anybody there?")
    world.crash("alice")
    world.go_offline("bob")
    world.run(5_000)
    world.crash("alice")
    world.go_online("bob")
    world.run(120_000)
    assert answers.said == [("alice", request_id, ("bob",))]
    assert len([1 for _, event in world.participants["bob"].events if type(event).__name__ == "MessageReceived"]) == 1


def test_a_message_that_is_lost_while_it_is_handled_is_seen(monkeypatch):
    finish = MessageStream.__anext__

    async def finish_at_once(self):
        message = await finish(self)
        self.finish()
        return message

    monkeypatch.setattr(MessageStream, "__anext__", finish_at_once)
    plan = replace(PLAN, slow_readers=3, crashes_per_hour=120, ephemeral_share=0.0)
    assert Invariant.DELIVERED in {one for seed in range(1, 4) for one in broken(replace(plan, seed=seed))}


def test_a_send_that_is_given_up_too_soon_is_seen(monkeypatch):
    made = Sending.__init__

    def impatient(self, *arguments):
        made(self, *arguments)
        self._max_retries = 1

    monkeypatch.setattr(Sending, "__init__", impatient)
    assert Invariant.ENDED in broken(replace(PLAN, loss=0.8, ask_all_share=1.0))


def test_a_clock_that_is_never_followed_is_seen(monkeypatch):
    monkeypatch.setattr("fairway.channel.reliable_channel.steady_clock", lambda: lambda: 1_760_000_000_000)
    assert Invariant.STAMPS in broken(replace(PLAN, duration_ms=120_000))
