"""A run that breaks a promise is found out: each invariant, held against a story in which it does not hold."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from fairway.errors import EncryptionError
from fairway.events import (
    ChannelStatus,
    DeliveryError,
    FailureReason,
    IrretrievableMessage,
    LossReason,
    MessageAcknowledged,
    MessageDelivered,
    MessageReceived,
    MessageSetAside,
    StatusChanged,
)
from fairway.options import (
    Delivery,
    Profile,
    RateLimitConfig,
    ReliableChannelOptions,
    RepairConfig,
    SdsConfig,
    SegmentationConfig,
)
from fairway.protocol.effects import Change, Purpose
from fairway.protocol.incoming.catching_up import CAUGHT_UP
from fairway.protocol.incoming.undelivered import ARRIVALS, AWAITING
from fairway.protocol.outgoing.requests import REQUESTS, SEGMENTS
from fairway.protocol.sds.channel import HISTORY
from fairway.protocol.sds.dependencies import MISSING
from fairway.protocol.segmentation.open_sets import BECOMING_WHOLE_FACTOR
from fairway.simulation import World
from fairway.simulation.hostile import Mallory
from fairway.simulation.invariants import Checks, Invariant
from fairway.simulation.ledger import FINISHED_FOR_GOOD_MS, Ledger
from fairway.simulation.looks import Peaks
from fairway.simulation.program import Habits, Reading
from fairway.simulation.wire_rules import WireRules
from fairway.storage.channel_store import Write
from fairway.units import NS_PER_MS
from fairway.waku.local import NetworkFaults
from fairway.waku.node import RoutedMessage, StoreQuery
from fairway.wire.hashing import keccak256
from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.waku_message import WakuMessage

MINUTE_MS = 60_000


class Story:
    """Alice, Bob and Carol in a perfect network, and a ledger that can be told lies."""

    def __init__(self, **more):
        self.world = World([], seed=1, **more)
        self.start_ms = self.world.now_ms
        self.ledger = Ledger(self.holds, WireRules(Profile.WAKU, SdsConfig()))
        self.world.observers.append(self.ledger)
        for name in ("alice", "bob", "carol"):
            self.join(name)
        self.world.run(1_000)

    def holds(self, name, sds_id):
        return (self.world.participants.get(name) or self.world.departed[name]).stack.sds.has(sds_id)

    def join(self, name):
        self.ledger.joined(name)
        self.world.join(name)

    def leave(self, name):
        self.world.leave(name)
        self.ledger.left(self.world.now_ms, name)

    def send(self, name, payload, asked=()):
        request_id = self.world.send(name, payload, by=asked)
        self.ledger.tried(self.world.now_ms, name, request_id, payload, asked)
        return request_id

    def say(self, name, payload):
        """Let somebody send, and everybody who hears it receive it."""
        self.send(name, payload)
        self.world.run(1_000)

    def tell(self, name, event):
        """Tell the ledger of something that did not happen."""
        (self.ledger.received if isinstance(event, MessageReceived) else self.ledger.told)(
            self.world.now_ms, name, event
        )

    def told(self, name, kind):
        """Return what somebody was told last of a kind."""
        return next(event for _, event in reversed(self.world.participants[name].events) if isinstance(event, kind))

    def found(self):
        violations = list(Checks(self.ledger, self.world, self.start_ms).everything())
        assert all(violation.sentence for violation in violations)
        return [(violation.invariant, violation.participant) for violation in violations]


@pytest.fixture
def tell_a_story():
    """Begin stories, and let go of their worlds after the test."""
    stories = []

    def begin(**more):
        stories.append(Story(**more))
        return stories[-1]

    yield begin
    for story in stories:
        story.world.close()


@pytest.fixture
def story(tell_a_story):
    """A message of Alice that everybody has, and acknowledged."""
    story = tell_a_story()
    story.send("alice", b"hello", ["bob", "carol"])
    story.world.run(3 * MINUTE_MS)
    assert story.told("alice", MessageDelivered)
    assert story.found() == []
    return story


def test_what_counts_as_read_although_it_was_not_taken_in_is_found(story):
    story.world.network.faults = NetworkFaults(loss=1.0)
    story.say("alice", b"bye")
    far_ms = story.world.now_ms + 30_000
    for name in ("alice", "bob"):
        row = Change(table=CAUGHT_UP, key="", row=(far_ms,))
        story.ledger.queried(story.world.now_ms, name, StoreQuery(end_ns=far_ms * NS_PER_MS), None)
        story.ledger.written(far_ms, name, Write(changes=(row,)))
    assert (Invariant.READ, "bob") in story.found()
    assert (Invariant.READ, "alice") not in story.found()


def test_what_is_left_of_a_message_that_was_rightly_given_up_need_not_be_kept_when_it_is_read(story):
    story.world.network.faults = NetworkFaults(loss=1.0)
    story.say("alice", b"bye")
    story.ledger.expired.add(("bob", story.ledger.sent[-1].number))
    far_ms = story.world.now_ms + 30_000
    for name in ("bob", "carol"):
        row = Change(table=CAUGHT_UP, key="", row=(far_ms,))
        story.ledger.queried(story.world.now_ms, name, StoreQuery(end_ns=far_ms * NS_PER_MS), None)
        story.ledger.written(far_ms, name, Write(changes=(row,)))
    assert [name for invariant, name in story.found() if invariant is Invariant.READ] == ["carol"]


@pytest.mark.parametrize(
    ("tables", "is_kept"), [((AWAITING, MISSING), True), ((AWAITING,), False), ((MISSING,), False)]
)
def test_a_segment_of_what_is_whole_need_not_be_kept_when_it_is_read_if_it_is_sought_by_itself(story, tables, is_kept):
    story.world.network.faults = NetworkFaults(loss=1.0)
    size_bytes = story.world.options.segmentation.segment_size_bytes
    story.say("alice", bytes(range(1, 201)) * (2 * size_bytes // 200))
    first, *_, last = story.ledger.sent[-1].sds_ids
    assert first != last
    far_ms = story.world.now_ms + 30_000
    keys = {AWAITING: first, MISSING: last}
    rows = [Change(table=table, key=keys[table], row=()) for table in tables]
    rows += [Change(table=HISTORY, key=sds_id, row=(0,)) for sds_id in story.ledger.sent[-1].sds_ids if sds_id != last]
    story.ledger.queried(story.world.now_ms, "bob", StoreQuery(end_ns=far_ms * NS_PER_MS), None)
    story.ledger.written(far_ms, "bob", Write(changes=(*rows, Change(table=CAUGHT_UP, key="", row=(far_ms,)))))
    assert ((Invariant.READ, "bob") not in story.found()) is is_kept


def test_what_was_never_asked_for_does_not_count_as_read(story):
    story.world.network.faults = NetworkFaults(loss=1.0)
    before_ms = story.world.now_ms
    story.say("alice", b"bye")
    story.ledger.queried(before_ms, "bob", StoreQuery(end_ns=before_ms * NS_PER_MS), None)
    row = Change(table=CAUGHT_UP, key="", row=(before_ms + 60_000,))
    story.ledger.written(before_ms + 60_000, "bob", Write(changes=(row,)))
    assert Invariant.READ not in {invariant for invariant, _ in story.found()}


def test_one_status_that_is_told_twice_in_a_row_is_found(story):
    story.tell("bob", StatusChanged(status=ChannelStatus.SYNCING))
    assert (Invariant.WORD, "bob") not in story.found()
    story.tell("bob", StatusChanged(status=ChannelStatus.SYNCING))
    assert (Invariant.WORD, "bob") in story.found()


def test_a_message_that_somebody_never_gets_is_found(story):
    story.world.cut_off("carol")
    story.send("alice", b"bye")
    story.world.run(2 * MINUTE_MS)
    assert (Invariant.DELIVERED, "carol") in story.found()
    assert (Invariant.DELIVERED, "bob") not in story.found()


def test_a_log_that_lacks_what_others_have_is_found(story):
    story.world.cut_off("carol")
    story.send("alice", b"bye")
    story.world.run(2 * MINUTE_MS)
    assert (Invariant.LOGS, "carol") in story.found()


class FailsAtTheEnd:
    """A cipher that hides nothing, and fails to encrypt the last segment of a message."""

    def encrypt(self, plaintext, /):
        if b"the end" in plaintext:
            raise EncryptionError("the key could not be had at this moment")
        return plaintext

    def decrypt(self, ciphertext, /):
        return ciphertext


def test_of_a_send_that_its_cipher_refused_amid_it_only_who_joined_later_may_lack_what_left(tell_a_story, monkeypatch):
    short = replace(ReliableChannelOptions(), segmentation=SegmentationConfig(segment_size_bytes=300, parity_rate=0.0))
    story = tell_a_story(options_of=lambda _, __: short, encryption=lambda _: FailsAtTheEnd())
    story.world.network.faults = NetworkFaults(store_loss=1.0)
    story.send("alice", 500 * b"a" + b"the end")
    story.world.run(MINUTE_MS)
    assert len(story.world.participants["alice"].stack.sds.log()) == 1, "the first segment left"
    story.world.network.faults = NetworkFaults(loss=1.0)
    story.join("dave")
    story.world.run(1_000)
    assert not story.world.participants["dave"].stack.sds.log()
    monkeypatch.setattr(story.world.participants["carol"].stack.sds, "history", [])
    assert [name for invariant, name in story.found() if invariant is Invariant.LOGS] == ["carol"]


def test_of_a_send_that_its_cipher_refused_amid_it_everybody_may_lack_what_its_sender_ended_with(tell_a_story):
    silent = replace(
        ReliableChannelOptions(),
        segmentation=SegmentationConfig(segment_size_bytes=300, parity_rate=0.0),
        sds=SdsConfig(repair=RepairConfig(enabled=False)),
    )
    story = tell_a_story(options_of=lambda _, __: silent, encryption=lambda _: FailsAtTheEnd())
    story.world.cut("alice")
    story.send("alice", 500 * b"a" + b"the end")
    story.world.run(MINUTE_MS)
    lengths = {name: len(each.stack.sds.log()) for name, each in story.world.participants.items()}
    assert lengths == {"alice": 1, "bob": 0, "carol": 0}
    assert Invariant.LOGS not in {invariant for invariant, _ in story.found()}


@pytest.mark.parametrize("is_overdue", [True, False])
def test_what_left_of_a_send_that_its_cipher_refused_may_expire_like_any_other(story, is_overdue):
    ledger, reason = story.ledger, LossReason.SEGMENTS_EXPIRED
    ledger.segments_expire_ms = MINUTE_MS
    story.world.cut_off("carol")
    story.say("alice", b"bye")
    story.ledger.sent[1].refused = True
    ledger.kept(story.world.now_ms, "carol", [Change(table=ARRIVALS, key="stray", row=())])
    story.world.run(MINUTE_MS if is_overdue else MINUTE_MS // 2)
    payload_hash = keccak256(b"bye")
    loss = IrretrievableMessage(message_id="stray", reason=reason, sender_id="alice", sds_ids=("stray",))
    story.tell("carol", replace(loss, payload_hash=payload_hash))
    assert ((Invariant.DELIVERED, "carol") in story.found()) is not is_overdue


def test_a_log_in_another_order_is_found(story, monkeypatch):
    story.send("alice", b"bye")
    story.world.run(3 * MINUTE_MS)
    assert story.found() == []
    sds = story.world.participants["carol"].stack.sds
    monkeypatch.setattr(sds, "history", sds.log()[::-1])
    assert story.found() == [(Invariant.LOGS, "carol")]


def test_a_second_delivery_is_found(story):
    story.tell("bob", story.told("bob", MessageReceived))
    assert story.found() == [(Invariant.ONCE, "bob")]


def test_a_message_that_comes_again_after_a_crash_is_found_if_its_reader_had_long_finished(story):
    story.say("alice", b"and now")
    again = replace(story.told("bob", MessageReceived), redelivered=True)
    story.world.crash("bob")
    story.tell("bob", again)
    assert (Invariant.ONCE, "bob") not in story.found(), "it may have been killed before it kept that it has finished"
    story.world.run(FINISHED_FOR_GOOD_MS + MINUTE_MS)
    story.tell("bob", again)
    assert story.found() == [(Invariant.ONCE, "bob")]


def test_a_message_comes_again_however_long_after_it_was_finished_if_no_life_since_could_keep_that(story):
    story.say("alice", b"and now")
    again = replace(story.told("bob", MessageReceived), redelivered=True)
    story.ledger.ended(story.world.now_ms, "bob")
    story.world.run(FINISHED_FOR_GOOD_MS + MINUTE_MS)
    story.ledger.began(story.world.now_ms, "bob")
    story.tell("bob", again)
    assert (Invariant.ONCE, "bob") not in story.found()
    story.ledger.finished(story.world.now_ms, "bob", again)
    story.world.run(FINISHED_FOR_GOOD_MS + MINUTE_MS)
    story.ledger.ended(story.world.now_ms, "bob")
    story.ledger.began(story.world.now_ms, "bob")
    story.tell("bob", again)
    assert (Invariant.ONCE, "bob") in story.found()


@pytest.mark.parametrize("is_finished", [True, False])
def test_what_comes_again_is_found_if_its_reader_finished_before_its_channel_stopped_in_order(story, is_finished):
    if is_finished:
        story.world.run(1)
    story.ledger.stopping(story.world.now_ms, "bob")
    story.ledger.stopped(story.world.now_ms, "bob")
    if not is_finished:
        story.say("alice", b"and now")
    story.tell("bob", replace(story.told("bob", MessageReceived), redelivered=True))
    assert ((Invariant.WORD, "bob") in story.found()) is is_finished


def test_what_a_handler_raises_on_that_seemed_to_be_done_with_it_comes_again(story):
    story.say("alice", b"and now")
    message = story.told("bob", MessageReceived)
    story.world.crash("bob")
    story.tell("bob", replace(message, redelivered=True))
    story.ledger.raised(story.world.now_ms, "bob", message)
    story.world.run(FINISHED_FOR_GOOD_MS + MINUTE_MS)
    story.tell("bob", replace(message, redelivered=True))
    assert story.found() == []
    story.ledger.finished(story.world.now_ms, "bob", message)
    story.world.run(FINISHED_FOR_GOOD_MS + MINUTE_MS)
    story.tell("bob", replace(message, redelivered=True))
    assert story.found() == [(Invariant.ONCE, "bob")]


@pytest.mark.parametrize("table", [MISSING, REQUESTS])
def test_a_life_knows_nothing_of_what_the_one_before_had_not_written(tell_a_story, table):
    story = tell_a_story()
    now_ms = story.world.now_ms
    written = Change(table=table, key="written", row=())
    story.ledger.kept(now_ms, "bob", [Change(table=table, key="under way", row=()), written])
    story.ledger.written(now_ms, "bob", Write(changes=(written,)))
    story.ledger.began(now_ms, "bob")
    far_ms = now_ms + MINUTE_MS
    if table == REQUESTS:
        assert story.ledger.left_alone("bob", far_ms) == ["written"]
    else:
        assert story.ledger.asks_nobody("bob", far_ms) == "written"


def test_who_hears_another_participant_ask_for_what_it_lacks_need_not_ask_itself(story):
    now_ms = story.world.now_ms
    story.ledger.kept(now_ms, "bob", [Change(table=MISSING, key="lacking", row=(b"", "alice", now_ms, 1))])
    assert story.ledger.asks_nobody("bob", now_ms + 1) == "lacking"
    for asked, is_enough in (("something else", False), ("lacking", True)):
        question = SdsMessage(
            message_id="sync-1",
            sender_id="carol",
            channel_id=story.world.channel_id,
            lamport_timestamp=now_ms,
            repair_request=(HistoryEntry(asked, None, "alice"),),
        )
        payload = Profile.WAKU.codec.encode(question)
        carrier = RoutedMessage.of("/waku/2/rs/1/0", WakuMessage(payload=payload, content_topic="/a/1/b/proto"))
        story.ledger.published(now_ms + 10, "carol", carrier)
        story.ledger.heard(now_ms + 10, "bob", carrier)
        assert story.ledger.asks_nobody("bob", now_ms + 1) == (None if is_enough else "lacking")


def test_who_asked_itself_is_to_ask_again_unless_another_participant_asked_since(story):
    now_ms, ledger = story.world.now_ms, story.ledger
    ledger.kept(now_ms, "bob", [Change(table=MISSING, key="lacking", row=(b"", "alice", now_ms, 1))])
    assert ledger.asks_nobody("bob", now_ms + 1, again=True) is None
    for name, hearer, expected in (("bob", "carol", "lacking"), ("carol", "bob", None)):
        question = SdsMessage(
            message_id=f"sync-{name}",
            sender_id=name,
            channel_id=story.world.channel_id,
            lamport_timestamp=now_ms,
            repair_request=(HistoryEntry("lacking", None, "alice"),),
        )
        payload = Profile.WAKU.codec.encode(question)
        carrier = RoutedMessage.of("/waku/2/rs/1/0", WakuMessage(payload=payload, content_topic="/a/1/b/proto"))
        ledger.handed_over(now_ms + 10, name, carrier)
        ledger.published(now_ms + 10, name, carrier)
        ledger.heard(now_ms + 10, hearer, carrier)
        assert ledger.asks_nobody("bob", now_ms + 11, again=True) == expected


def test_what_an_author_sends_to_a_forger_who_whispers_that_he_lacks_it_is_an_answer_and_no_retry(story):
    world, ledger = story.world, story.ledger
    (sds_id,) = ledger.sent[0].sds_ids
    mallory = Mallory(world, world.options, None, ledger, haste=random.Random(1))
    question = SdsMessage(
        message_id="sync-1",
        sender_id="carol",
        channel_id=world.channel_id,
        lamport_timestamp=world.now_ms,
        repair_request=(HistoryEntry(sds_id, None, "alice"),),
    )
    payload = Profile.WAKU.codec.encode(question)
    carrier = RoutedMessage.of("/waku/2/rs/1/0", WakuMessage(payload=payload, content_topic="/a/1/b/proto"))
    mallory.published(world.now_ms, "carol", carrier)
    before = Counter(ledger.transmissions)
    mallory.pester()
    world.run(MINUTE_MS)
    assert (ledger.transmissions - before).keys() == {Purpose.REPAIR, Purpose.SYNC}


@pytest.mark.parametrize("asks_more", [True, False])
def test_a_receipt_that_says_nothing_of_a_send_that_ended_is_found_unless_it_was_asked_for_more(story, asks_more):
    sent = story.ledger.sent[0]
    ((ended_ms, _),) = sent.ends
    sent.answers.clear()
    if asks_more:
        story.ledger.asked(ended_ms, "alice", sent.request_id, frozenset({"carol"}))
    story.world.run(3 * MINUTE_MS)
    story.world.crash("alice")
    story.world.run(MINUTE_MS)
    assert ((Invariant.WORD, "alice") in story.found()) is not asks_more


@pytest.mark.parametrize("is_busy", [True, False])
def test_what_a_handler_raised_on_and_that_never_comes_again_is_found_once_its_reader_is_through(story, is_busy):
    story.ledger.raised(story.world.now_ms, "bob", story.told("bob", MessageReceived))
    story.world.run(MINUTE_MS)
    if is_busy:
        story.say("alice", b"it comes after what came meanwhile")
    story.world.run(MINUTE_MS + 30_000)
    story.world.crash("bob")
    assert story.found() == ([] if is_busy else [(Invariant.WORD, "bob")])


def test_what_a_handler_raised_on_and_that_is_overtaken_by_what_came_long_after_is_found(story):
    story.ledger.raised(story.world.now_ms, "bob", story.told("bob", MessageReceived))
    story.world.run(3 * MINUTE_MS)
    story.say("alice", b"what came before")
    story.world.run(MINUTE_MS)
    assert story.found() == [(Invariant.WORD, "bob")]


def test_a_second_delivery_of_an_ephemeral_message_is_found_unless_a_crash_lies_between(story):
    story.world.send_ephemeral("alice", b"typing")
    story.world.run(1_000)
    event = story.told("bob", MessageReceived)
    assert event.ephemeral
    story.world.crash("bob")
    story.world.run(1_000)
    story.tell("bob", event)
    assert story.found() == []
    story.tell("bob", event)
    assert story.found() == [(Invariant.ONCE, "bob")]


def test_a_message_that_nobody_sent_is_found(story):
    story.tell("bob", replace(story.told("bob", MessageReceived), message_id="ab" * 32, sds_ids=("cd" * 32,)))
    assert story.found() == [(Invariant.SENT, "bob")]


def test_a_payload_that_was_changed_on_the_way_is_found(story):
    story.tell("bob", replace(story.told("bob", MessageReceived), payload=b"hullo"))
    assert story.found() == [(Invariant.SENT, "bob")]


def two_of_which_the_second_rests_on_the_first(story):
    """Let Carol miss a message of Alice and one of Bob, who knew it; return the second."""
    story.world.cut_off("carol")
    story.say("alice", b"one")
    story.say("bob", b"two")
    return story.told("alice", MessageReceived)


def test_a_message_that_overtakes_what_its_sender_knew_is_found(story):
    story.tell("carol", two_of_which_the_second_rests_on_the_first(story))
    assert (Invariant.ORDER, "carol") in story.found()


@pytest.mark.parametrize("is_met", [True, False])
def test_with_delivery_on_arrival_messages_may_overtake_if_it_is_told_what_they_lack(tell_a_story, is_met):
    story = tell_a_story(options=ReliableChannelOptions(delivery=Delivery.ARRIVAL))
    story.tell("carol", replace(two_of_which_the_second_rests_on_the_first(story), dependencies_met=is_met))
    assert ((Invariant.ORDER, "carol") in story.found()) is is_met


@pytest.mark.parametrize("is_on_arrival", [True, False])
@pytest.mark.parametrize("is_last", [True, False])
def test_what_is_said_to_lack_nothing_has_each_message_of_which_it_cites_a_part(tell_a_story, is_last, is_on_arrival):
    """With delivery on arrival whoever read it may cite a part of which no receiver can tell that it is not all."""
    segmentation = SegmentationConfig(segment_size_bytes=64, parity_rate=0.0)
    options = ReliableChannelOptions(segmentation=segmentation, delivery=Delivery.ARRIVAL)
    story = tell_a_story(options=options)
    ledger, now_ms = story.ledger, story.world.now_ms
    ledger.is_on_arrival = is_on_arrival
    story.world.cut_off("carol")
    story.say("alice", bytes(180))
    segments = list(ledger.sent[0].sds_ids)
    assert len(segments) > 2
    reply = SdsMessage(
        message_id="reply",
        sender_id="bob",
        channel_id=story.world.channel_id,
        lamport_timestamp=now_ms + 10,
        causal_history=(HistoryEntry(segments[-1] if is_last else segments[0], None, "alice"),),
        content=b"reply",
    )
    payload = Profile.WAKU.codec.encode(reply)
    carrier = RoutedMessage.of("/waku/2/rs/1/0", WakuMessage(payload=payload, content_topic="/a/1/b/proto"))
    ledger.tried(now_ms, "bob", "bob-1", reply.content)
    ledger.handed_over(now_ms, "bob", carrier)
    ledger.published(now_ms, "bob", carrier)
    received = replace(
        story.told("bob", MessageReceived),
        sender_id="bob",
        message_id=ledger.sent[1].payload_id,
        payload=reply.content,
        sds_ids=("reply",),
    )
    story.tell("carol", received)
    assert ((Invariant.ORDER, "carol") in story.found()) is (is_last or not is_on_arrival)


def test_a_loss_is_found_and_excuses_what_is_delivered_after_it(story):
    second = two_of_which_the_second_rests_on_the_first(story)
    (lost,) = story.ledger.sent[1].sds_ids
    story.tell("carol", IrretrievableMessage(message_id=lost, reason=LossReason.TIMEOUT, sender_id="alice"))
    story.tell("carol", second)
    found = story.found()
    assert (Invariant.LOSS, "carol") in found
    assert (Invariant.ORDER, "carol") not in found


def test_what_only_a_message_that_was_given_up_told_to_come_before_may_come_after(story):
    story.world.cut_off("carol")
    for name, payload in (("alice", b"one"), ("alice", b"two"), ("bob", b"three")):
        story.say(name, payload)
    (lost,) = story.ledger.sent[2].sds_ids
    story.tell("carol", IrretrievableMessage(message_id=lost, reason=LossReason.NO_ROOM, sender_id="alice"))
    story.tell("carol", replace(story.told("alice", MessageReceived), dependencies_met=False))
    assert (Invariant.ORDER, "carol") not in story.found()


def test_what_was_said_at_once_rests_on_what_was_said_just_before_also_while_the_disk_writes_that(story):
    story.world.cut_off("carol")
    for payload in (b"one", b"two", b"three"):
        story.say("alice", payload)
    two, three = story.ledger.sent[2:]
    three.known &= ~(1 << two.number)
    (lost,) = two.sds_ids
    story.tell("carol", IrretrievableMessage(message_id=lost, reason=LossReason.NO_ROOM, sender_id="alice"))
    story.tell("carol", replace(story.told("bob", MessageReceived), dependencies_met=False))
    assert (Invariant.ORDER, "carol") not in story.found()


@pytest.mark.parametrize("is_expired", [True, False])
def test_what_only_a_message_that_expired_told_to_come_before_may_come_after(story, is_expired):
    story.world.cut_off("carol")
    for name, payload in (("alice", b"one"), ("alice", b"two"), ("bob", b"three")):
        story.say(name, payload)
    two = story.ledger.sent[2]
    (lost,) = two.sds_ids
    story.tell("carol", IrretrievableMessage(message_id=lost, reason=LossReason.SEGMENTS_EXPIRED, sender_id="alice"))
    if is_expired:
        story.ledger.expired.add(("carol", two.number))
    story.tell("carol", replace(story.told("alice", MessageReceived), dependencies_met=False))
    assert ((Invariant.ORDER, "carol") in story.found()) is not is_expired


@pytest.mark.parametrize("is_overdue", [True, False])
def test_a_message_whose_set_began_with_a_forged_segment_may_expire_like_any_other(story, is_overdue):
    story.ledger.segments_expire_ms = MINUTE_MS
    story.world.cut_off("carol")
    story.say("alice", b"bye")
    (true,) = story.ledger.sent[1].sds_ids
    story.ledger.kept(story.world.now_ms, "carol", [Change(table=ARRIVALS, key=true, row=())])
    story.world.run(MINUTE_MS if is_overdue else MINUTE_MS // 2)
    sds_ids, reason = ("forged", true), LossReason.HASH_MISMATCH
    story.tell("carol", IrretrievableMessage(message_id="forged", reason=reason, sender_id="alice", sds_ids=sds_ids))
    assert ((Invariant.DELIVERED, "carol") in story.found()) is not is_overdue


@pytest.mark.parametrize("follows", [True, False])
def test_the_loss_of_a_segment_of_what_came_without_it_is_found_where_its_receiver_could_tell(story, follows):
    story.ledger.lost_ids_follow = follows
    never_left = Change(table=SEGMENTS, key="never left", row=("alice-1", 1, False, 0, None, False, (), False))
    story.ledger.kept(story.world.now_ms, "alice", [never_left])
    story.tell("bob", IrretrievableMessage(message_id="never left", reason=LossReason.TIMEOUT, sender_id="alice"))
    assert story.found() == ([(Invariant.LOSS, "bob")] if follows else [])


@pytest.mark.parametrize("follows", [True, False])
def test_the_same_is_so_while_the_message_that_came_without_it_waits_for_another_one(story, follows):
    story.ledger.lost_ids_follow = follows
    story.ledger.can_give = lambda *_: True
    story.world.network.faults = NetworkFaults(loss=1.0, store_loss=1.0)
    story.say("alice", b"lost")
    story.world.network.faults = NetworkFaults()
    story.say("alice", b"waits")
    waits = story.ledger.sent[2]
    assert not waits.deliveries
    assert all(story.holds("bob", sds_id) for sds_id in waits.sds_ids)
    never_left = Change(table=SEGMENTS, key="never left", row=(waits.request_id, 1, False, 0, None, False, (), False))
    story.ledger.kept(story.world.now_ms, "alice", [never_left])
    story.tell("bob", IrretrievableMessage(message_id="never left", reason=LossReason.TIMEOUT, sender_id="alice"))
    assert ((Invariant.LOSS, "bob") in story.found()) is follows


@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize("is_received", [True, False])
def test_the_loss_of_a_segment_is_found_unless_nobody_can_give_it(story, is_received, follows):
    story.ledger.lost_ids_follow = follows
    story.world.cut_off("carol")
    story.say("alice", b"one")
    one = story.ledger.sent[1]
    (received,) = one.sds_ids
    never_left = Change(table=SEGMENTS, key="never left", row=(one.request_id, 1, False, 0, None, False, (), False))
    story.ledger.kept(story.world.now_ms, "alice", [never_left])
    lost = received if is_received else "never left"
    story.tell("carol", IrretrievableMessage(message_id=lost, reason=LossReason.TIMEOUT, sender_id="alice"))
    assert ((Invariant.LOSS, "carol") in story.found()) is is_received


@pytest.mark.parametrize("kind", [MessageDelivered, DeliveryError])
def test_a_second_terminal_event_is_found(story, kind):
    first = story.told("alice", MessageDelivered)
    ids = {"request_id": first.request_id, "message_id": first.message_id}
    story.tell(
        "alice",
        first
        if kind is MessageDelivered
        else DeliveryError(reason=FailureReason.NOT_ACKNOWLEDGED, **ids, detail="given up"),
    )
    assert set(story.found()) == {(Invariant.ENDED, "alice")}


def a_message_that_carol_lacks(story):
    """Let Alice be told that Bob has a message, and return what she was told."""
    story.world.cut_off("carol")
    story.send("alice", b"bye")
    story.world.run(3 * MINUTE_MS)
    return story.told("alice", MessageDelivered)


def test_a_delivery_report_that_names_somebody_who_has_nothing_is_found(story):
    event = a_message_that_carol_lacks(story)
    story.tell("alice", replace(event, delivered_to=("carol",)))
    assert (Invariant.ACKNOWLEDGED, "alice") in story.found()
    assert [(claim.participant, claim.whole) for claim in story.ledger.claims if not claim.true] == [("carol", True)]


def test_a_delivery_report_that_names_somebody_who_left_with_nothing_is_found(story):
    event = a_message_that_carol_lacks(story)
    story.leave("carol")
    assert story.found() == []
    story.tell("alice", replace(event, delivered_to=("bob", "carol")))
    assert (Invariant.ACKNOWLEDGED, "alice") in story.found()


def test_an_acknowledgement_of_a_segment_by_somebody_who_has_none_is_found(story):
    event = a_message_that_carol_lacks(story)
    sent = story.ledger.sent[-1]
    (acknowledged,) = [
        each
        for _, each in story.world.participants["alice"].events
        if isinstance(each, MessageAcknowledged) and each.request_id == event.request_id
    ]
    story.leave("carol")
    assert story.found() == []
    story.tell("alice", replace(acknowledged, acknowledged_by=("carol",)))
    assert story.found() == [(Invariant.ACKNOWLEDGED, "alice")]
    assert sent.claimed == {"bob", "carol"}


def readers_who_never_come_to_it_where_answers_are_lost(tell_a_story, answer_loss):
    """Begin a story of messages of several segments, which wait for slow readers once they are there."""
    return tell_a_story(
        options=ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=256, parity_rate=0.25)),
        faults=NetworkFaults(loss=0.3, answer_loss=answer_loss),
        habits_of=lambda _: Habits(reading=Reading.MESSAGES, slow_ms=600 * MINUTE_MS),
    )


def test_a_delivery_report_is_right_although_its_sender_does_not_know_all_that_the_network_took(tell_a_story):
    story = readers_who_never_come_to_it_where_answers_are_lost(tell_a_story, 0.7)
    for number in range(10):
        story.send("alice", bytes([number]) * 1_000, ["bob", "carol"])
        story.world.run(1_000)
    story.world.run(3 * MINUTE_MS)
    told = [claim for claim in story.ledger.claims if claim.whole]
    assert [claim for claim in told if not claim.true] == []
    assert any(claim.participant not in story.ledger.sent[claim.number].deliveries for claim in told)


def test_a_delivery_report_is_found_false_although_its_sender_does_not_know_what_the_network_took(tell_a_story):
    story = readers_who_never_come_to_it_where_answers_are_lost(tell_a_story, 1.0)
    story.world.cut_off("carol")
    story.say("alice", b"bye" * 300)
    request = story.ledger.sent[0]
    ids = {"request_id": request.request_id, "message_id": request.payload_id}
    story.tell("alice", MessageDelivered(**ids, delivered_to=("carol",), at_ms=story.world.now_ms))
    assert (Invariant.ACKNOWLEDGED, "alice") in story.found()
    assert [claim.true for claim in story.ledger.claims if claim.participant == "carol"] == [False]


@pytest.mark.parametrize(
    ("asked", "named"),
    [(["bob", "carol"], ()), (["bob", "carol"], ("bob",)), ([], ())],
    ids=["names nobody", "lacks somebody who was asked for", "names nobody where anybody would do"],
)
def test_a_delivery_report_that_does_not_name_those_who_were_asked_for_is_found(tell_a_story, asked, named):
    story = tell_a_story()
    story.send("alice", b"hello", asked)
    story.world.run(1_000)
    assert (Invariant.ACKNOWLEDGED, "alice") not in story.found()
    request = story.ledger.sent[0]
    ids = {"request_id": request.request_id, "message_id": request.payload_id}
    story.tell("alice", MessageDelivered(**ids, delivered_to=named, at_ms=story.world.now_ms))
    assert (Invariant.ACKNOWLEDGED, "alice") in story.found()


def test_a_delivery_report_that_comes_before_the_message_is_found(story):
    event = a_message_that_carol_lacks(story)
    story.tell("alice", replace(event, delivered_to=("bob", "carol")))
    story.world.go_online("carol")
    story.world.run(6 * MINUTE_MS)
    assert story.told("carol", MessageReceived).payload == b"bye"
    assert (Invariant.ACKNOWLEDGED, "alice") in story.found()


def test_a_send_that_never_ends_is_found(story):
    story.world.run(1_000)
    story.send("alice", b"bye", ["bob", "dave"])
    story.world.run(3 * MINUTE_MS)
    assert story.found() == [(Invariant.ENDED, "alice")], "there is no dave"


def test_a_send_that_fails_though_everybody_has_long_had_it_is_found(story):
    def give_up():
        sent = story.ledger.sent[0]
        story.tell(
            "alice",
            DeliveryError(
                reason=FailureReason.NOT_ACKNOWLEDGED,
                request_id=sent.request_id,
                message_id=sent.payload_id,
                detail="given up",
            ),
        )
        found = list(Checks(story.ledger, story.world, story.start_ms).everything())
        return [violation.sentence for violation in found if "counts as undelivered" in violation.sentence]

    assert give_up() == [], "its acknowledgements may be lost yet"
    story.world.run(story.ledger.heard_of_ms)
    (sentence,) = give_up()
    assert "bob, carol had it long before" in sentence


@pytest.mark.parametrize("gone", ["troubled", "left"])
def test_a_send_that_fails_because_somebody_was_away_or_left_is_right(story, gone):
    story.world.run(story.ledger.heard_of_ms)
    getattr(story.ledger, gone)(story.world.now_ms, "carol")
    sent = story.ledger.sent[0]
    story.tell(
        "alice",
        DeliveryError(
            reason=FailureReason.NOT_ACKNOWLEDGED,
            request_id=sent.request_id,
            message_id=sent.payload_id,
            detail="given up",
        ),
    )
    assert sent.in_vain == ()


def test_a_send_that_fails_after_somebody_ended_amid_handing_over_is_right_whenever_that_struck(story):
    story.world.cut("carol")
    story.world.run(story.ledger.heard_of_ms)
    story.send("carol", b"this ends it")
    story.world.run(1_000)
    sent = story.ledger.sent[0]
    story.tell(
        "alice",
        DeliveryError(
            reason=FailureReason.NOT_ACKNOWLEDGED,
            request_id=sent.request_id,
            message_id=sent.payload_id,
            detail="given up",
        ),
    )
    assert sent.in_vain == ()


@pytest.mark.parametrize(("asked_late", "talk", "is_found"), [(True, 70, False), (False, 70, True), (True, 10, True)])
def test_a_send_may_fail_only_if_who_is_asked_for_late_has_forgotten_it(tell_a_story, asked_late, talk, is_found):
    story = tell_a_story(options=ReliableChannelOptions(sds=SdsConfig(max_history=60, causal_history_size=2)))
    request_id = story.send("alice", b"hello", () if asked_late else ["bob"])
    story.world.run(story.ledger.heard_of_ms + 1_000)
    sent = story.ledger.sent[0]
    for number in range(talk):
        story.say("carol", b"%d" % number)
    forgot = [story.world.participants["bob"].stack.sds.record(sds_id) is None for sds_id in sent.sds_ids]
    assert forgot == [talk > 60]
    if asked_late:
        story.ledger.asked(story.world.now_ms, "alice", request_id, frozenset({"bob"}))
    story.world.run(story.ledger.heard_of_ms + 1_000)
    story.tell(
        "alice",
        DeliveryError(
            reason=FailureReason.NOT_ACKNOWLEDGED, request_id=request_id, message_id=sent.payload_id, detail="given up"
        ),
    )
    assert ("bob" in sent.in_vain) is is_found


def test_a_hint_to_nothing_is_found_but_not_one_to_what_a_slow_node_never_passed_on(tell_a_story):
    story = tell_a_story()
    story.world.network.limit_uplink("alice", 0.5)
    for number in range(10):
        story.send("alice", b"%d" % number)
    story.world.run(2 * MINUTE_MS)
    assert (Invariant.WIRE, "alice") not in story.found()
    story.world.network.limit_uplink("alice", None)
    sds = story.world.participants["alice"].stack.sds
    last = sds.log()[-1]
    sds.history.replace(last._replace(retrieval_hint=bytes(32)))
    story.say("alice", b"bye")
    assert (Invariant.WIRE, "alice") in story.found()


def test_more_transmissions_than_an_epoch_allows_are_found(tell_a_story):
    limit = RateLimitConfig(enabled=True, messages_per_epoch=20)
    story = tell_a_story(options=ReliableChannelOptions(rate_limit=limit))
    taken = []
    story.world.network.observers.append(lambda name, message: taken.append(message))
    for number in range(20):
        story.say("alice", b"%d" % number)
    assert (Invariant.RATE, "alice") not in story.found()
    for message in taken[:20]:
        story.ledger.handed_over(story.world.now_ms, "alice", message)
    assert (Invariant.RATE, "alice") in story.found()


@pytest.mark.parametrize(("lives", "is_too_much"), [(1, True), (5, False)])
def test_what_one_life_hands_to_a_node_that_takes_none_of_it_is_found(story, lives, is_too_much):
    """A program that begins does not know what the node said to the one before."""
    (message,) = list(story.world.network.stored())[:1]
    for _ in range(lives):
        story.ledger.began(story.world.now_ms, "alice")
        for _ in range(150 // lives):
            story.ledger.handed_over(story.world.now_ms, "alice", message)
    assert ((Invariant.BUDGET, "alice") in story.found()) == is_too_much


@pytest.mark.parametrize("is_taken_back", [True, False])
def test_a_message_that_was_set_aside_and_is_gone_is_found_unless_its_reader_took_it_back(story, is_taken_back):
    """It may be listed, and taken back, before its event is told."""
    aside = MessageSetAside(number=7, message_id="m", sender_id="bob", size_bytes=1, attempts=3, error="no")
    story.ledger.set_aside(story.world.now_ms, "alice", [aside])
    if is_taken_back:
        story.ledger.taken_back(story.world.now_ms, "alice", aside)
    story.tell("alice", aside)
    story.ledger.set_aside(story.world.now_ms, "alice", [])
    assert ((Invariant.WORD, "alice") in story.found()) != is_taken_back


def test_a_delivery_that_lacks_something_is_found_unless_a_loss_was_announced(story):
    story.world.cut_off("carol")
    story.say("alice", b"one")
    unmet = replace(story.told("bob", MessageReceived), dependencies_met=False)
    story.tell("carol", unmet)
    assert (Invariant.LOSS, "carol") in story.found()


def test_an_author_whose_log_lacks_its_own_words_is_found(story, monkeypatch):
    sds = story.world.participants["alice"].stack.sds
    monkeypatch.setattr(sds, "history", [record for record in sds.log() if record.sender_id != "alice"])
    assert story.found() == [(Invariant.LOGS, "alice")]


def test_an_author_may_have_forgotten_its_oldest_words_before_others_do(tell_a_story):
    short = replace(ReliableChannelOptions(), sds=SdsConfig(max_history=3))
    story = tell_a_story(options_of=lambda name, _: short if name == "alice" else ReliableChannelOptions())
    for payload in (b"one", b"two", b"three", b"four"):
        story.say("alice", payload)
    lengths = {name: len(each.stack.sds.log()) for name, each in story.world.participants.items()}
    assert lengths == {"alice": 3, "bob": 4, "carol": 4}
    assert Invariant.LOGS not in {invariant for invariant, _ in story.found()}


def test_a_program_that_ends_with_what_is_no_fault_of_its_machine_is_found(story, monkeypatch):
    # What a bug in the channel or its reader comes to.
    monkeypatch.setattr(story.world.participants["bob"].program, "take", None)
    story.say("alice", b"bye")
    found = Checks(story.ledger, story.world, story.start_ms).everything()
    (sentence,) = [violation.sentence for violation in found if violation.invariant is Invariant.RUNS]
    assert sentence.startswith("the program of bob ended with TypeError(")


def test_nobody_owes_anything_to_whoever_left_or_came_later(story):
    story.leave("carol")
    story.send("alice", b"bye")
    story.world.run(2 * MINUTE_MS)
    story.join("dave")
    assert Checks(story.ledger, story.world, story.start_ms).owed == [{"bob"}, {"bob"}]
    assert story.found() == []


def test_what_was_never_accepted_is_owed_to_nobody_unless_somebody_got_it(story):
    story.send("alice", b"bye")
    story.leave("alice")
    story.world.run(2 * MINUTE_MS)
    assert Checks(story.ledger, story.world, story.start_ms).owed[1] == set()
    assert story.found() == []


def test_the_last_words_of_somebody_who_left_are_owed_once_somebody_who_stayed_has_them(story):
    story.world.cut_off("carol")
    story.send("alice", b"bye")
    story.world.run(1)
    story.leave("alice")
    assert story.found() == []
    story.world.run(1_000)
    assert (Invariant.DELIVERED, "carol") in story.found()


@pytest.mark.parametrize("held", ["parked", "missing", "open_sets", "buffered_bytes", "queued"])
def test_a_buffer_beyond_its_bound_is_found(held):
    options = ReliableChannelOptions()
    peaks = Peaks()
    assert list(peaks.beyond(options, senders=2)) == []
    setattr(peaks, held, 2 * 10**9)
    (violation,) = peaks.beyond(options, senders=2)
    assert violation.invariant is Invariant.BOUNDS
    assert "2,000,000,000" in violation.sentence


def test_messages_begun_beyond_their_senders_quota_since_others_wait_for_them_are_no_fault():
    options = ReliableChannelOptions()
    assert list(Peaks(open_sets=options.segmentation.max_sets_per_sender * 2 + 1).beyond(options, senders=2)) == []


def test_what_segments_cost_beside_their_payload_counts_towards_the_bound(story):
    held = story.world.participants["alice"].stack.statistics()
    bound = BECOMING_WHOLE_FACTOR * story.world.options.segmentation.max_buffered_bytes
    peaks = Peaks()
    for segments, faults in ((1, 0), (2, 1)):
        full = replace(held.reassembly, buffered_bytes=bound - 1_024, open_segments=segments)
        peaks.note(replace(held, reassembly=full))
        assert len(list(peaks.beyond(story.world.options, senders=2))) == faults
