"""A run that breaks a promise is found out: each invariant, held against a story in which it does not hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.events import DeliveryError, IrretrievableMessage, LossReason, MessageDelivered, MessageReceived
from fairway.options import Delivery, Profile, ReliableChannelOptions
from fairway.protocol.effects import Emit
from fairway.protocol.sds.dialect import DIALECTS
from fairway.simulation import World
from fairway.simulation.invariants import Checks, Invariant, Peaks
from fairway.simulation.ledger import Ledger

MINUTE_MS = 60_000


class Story:
    """Alice, Bob and Carol in a perfect network, and a ledger that can be told lies."""

    def __init__(self, **world):
        self.world = World(["alice", "bob", "carol"], seed=1, **world)
        self.start_ms = self.world.now_ms
        self.ledger = Ledger(self.holds, DIALECTS[Profile.WAKU].codec)
        self.world.effect_observers.append(self.ledger.observe)
        for name in self.world.participants:
            self.ledger.joined(self.start_ms, name)

    def holds(self, name, sds_id):
        return sds_id in (self.world.participants.get(name) or self.world.departed[name]).stack.sds.history

    def send(self, name, payload, asked=()):
        accepted = self.world.send(name, payload, required_from=asked)
        self.ledger.accepted(self.world.now_ms, name, accepted, len(payload), frozenset(asked))
        return accepted

    def tell(self, name, event):
        self.ledger.observe(self.world.now_ms, name, Emit(event=event))

    def told(self, name, kind):
        return next(event for _, event in self.world.participants[name].events if isinstance(event, kind))

    def found(self):
        violations = list(Checks(self.ledger, self.world, self.start_ms).everything())
        assert all(violation.sentence for violation in violations)
        return [(violation.invariant, violation.participant) for violation in violations]


@pytest.fixture
def story():
    """A message of Alice that everybody has, and acknowledged."""
    story = Story()
    story.accepted = story.send("alice", b"hello", ["bob", "carol"])
    story.world.run(3 * MINUTE_MS)
    assert story.found() == []
    return story


def test_a_message_that_somebody_never_gets_is_found(story):
    story.world.participants["carol"].online = False
    story.send("alice", b"bye")
    story.world.run(2 * MINUTE_MS)
    assert (Invariant.DELIVERED, "carol") in story.found()
    assert (Invariant.DELIVERED, "bob") not in story.found()


def test_a_log_that_lacks_what_others_have_is_found(story):
    story.world.participants["carol"].online = False
    story.send("alice", b"bye")
    story.world.run(2 * MINUTE_MS)
    assert (Invariant.LOGS, "carol") in story.found()


def test_a_second_delivery_is_found(story):
    story.tell("bob", story.told("bob", MessageReceived))
    assert story.found() == [(Invariant.ONCE, "bob")]


def test_a_second_delivery_of_an_ephemeral_message_is_found_unless_a_crash_lies_between(story):
    story.world.send_ephemeral("alice", b"typing")
    story.world.run(1_000)
    event = next(e for _, e in story.world.participants["bob"].events if isinstance(e, MessageReceived) and e.ephemeral)
    story.ledger.restarted("bob")
    story.tell("bob", event)
    assert story.found() == []
    story.tell("bob", event)
    assert story.found() == [(Invariant.ONCE, "bob")]


def test_a_message_that_nobody_sent_is_found(story):
    story.tell("bob", replace(story.told("bob", MessageReceived), message_id="ab" * 32, sds_ids=("cd" * 32,)))
    assert story.found() == [(Invariant.SENT, "bob")]


def test_a_message_that_overtakes_what_its_sender_knew_is_found(story):
    world = story.world
    world.cut_off("carol")
    story.send("alice", b"one")
    world.run(1_000)
    story.send("bob", b"two")
    world.run(1_000)
    two = next(e for _, e in reversed(world.participants["alice"].events) if isinstance(e, MessageReceived))
    story.tell("carol", two)
    assert (Invariant.ORDER, "carol") in story.found()


def test_with_delivery_on_arrival_messages_may_overtake():
    story = Story(options=ReliableChannelOptions(delivery=Delivery.ARRIVAL))
    story.world.cut_off("carol")
    story.send("alice", b"one")
    story.world.run(1_000)
    story.send("bob", b"two")
    story.world.run(1_000)
    story.tell("carol", story.told("alice", MessageReceived))
    assert (Invariant.ORDER, "carol") not in story.found()


def test_a_loss_is_found_and_excuses_what_is_delivered_after_it(story):
    world = story.world
    world.cut_off("carol")
    story.send("alice", b"one")
    world.run(1_000)
    story.send("bob", b"two")
    world.run(1_000)
    (lost,) = story.ledger.sent[1].sds_ids
    story.tell("carol", IrretrievableMessage(message_id=lost, reason=LossReason.TIMEOUT, sender_id="alice"))
    story.tell("carol", story.told("alice", MessageReceived))
    found = story.found()
    assert (Invariant.LOSS, "carol") in found
    assert (Invariant.ORDER, "carol") not in found


@pytest.mark.parametrize("kind", [MessageDelivered, DeliveryError])
def test_a_second_terminal_event_is_found(story, kind):
    first = story.told("alice", MessageDelivered)
    ids = {"request_id": first.request_id, "message_id": first.message_id}
    story.tell("alice", first if kind is MessageDelivered else DeliveryError(**ids, detail="given up"))
    assert story.found() == [(Invariant.ENDED, "alice")]


def test_a_send_without_an_end_is_found(story):
    story.send("alice", b"bye")
    assert (Invariant.ENDED, "alice") in story.found()


def test_a_delivery_report_that_names_somebody_who_has_nothing_is_found(story):
    story.world.cut_off("carol")
    story.send("alice", b"bye")
    story.world.run(MINUTE_MS)
    event = [e for _, e in story.world.participants["alice"].events if isinstance(e, MessageDelivered)][-1]
    story.tell("alice", replace(event, delivered_to=("carol",)))
    assert (Invariant.ACKNOWLEDGED, "alice") in story.found()
    assert [(claim.participant, claim.whole) for claim in story.ledger.claims if not claim.true] == [("carol", True)]


def test_a_delivery_report_without_those_who_were_asked_for_is_found():
    story = Story()
    story.send("alice", b"hello", ["bob", "carol"])
    request = story.ledger.sent[0]
    ids = {"request_id": request.request_id, "message_id": request.payload_id}
    story.tell("alice", MessageDelivered(**ids, delivered_to=(), at_ms=story.world.now_ms))
    assert (Invariant.ACKNOWLEDGED, "alice") in story.found()


def test_nobody_owes_anything_to_whoever_left_or_came_later(story):
    story.world.leave("carol")
    story.ledger.left(story.world.now_ms, "carol")
    story.send("alice", b"bye")
    story.world.run(2 * MINUTE_MS)
    story.world.join("dave")
    story.ledger.joined(story.world.now_ms, "dave")
    assert Checks(story.ledger, story.world, story.start_ms).owed == [{"bob"}, {"bob"}]
    assert story.found() == []


def test_the_last_words_of_somebody_who_left_are_owed_once_somebody_who_stayed_has_them(story):
    story.world.cut_off("carol")
    story.send("alice", b"bye")
    story.world.leave("alice")
    story.ledger.left(story.world.now_ms, "alice")
    assert story.found() == []
    story.world.run(1_000)
    assert (Invariant.DELIVERED, "carol") in story.found()


@pytest.mark.parametrize("held", ["parked", "missing", "open_sets", "buffered_bytes", "queued"])
def test_a_buffer_beyond_its_bound_is_found(held):
    options = ReliableChannelOptions()
    peaks = Peaks()
    assert list(peaks.beyond(options, senders=2)) == []
    setattr(peaks, held, 10**9)
    (violation,) = peaks.beyond(options, senders=2)
    assert violation.invariant is Invariant.BOUNDS
    assert "1,000,000,000" in violation.sentence
