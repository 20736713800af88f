"""What a world is asked in the end: whether what was kept is what was so, and what receipts and the network say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from fairway.channel.attempts import Attempts
from fairway.channel.engine import Engine
from fairway.channel.inbox import MessageStream
from fairway.channel.receipt import Receipt
from fairway.channel.receipt_book import ReceiptBook
from fairway.channel.reliable_channel import ReliableChannel
from fairway.errors import ConfigurationError
from fairway.events import DeliveryError, MessageDelivered, NodeHealth, NodeStatusChanged
from fairway.options import BloomPolicy, Profile
from fairway.protocol.effects import Change
from fairway.protocol.encryption.ciphering import Ciphering
from fairway.protocol.incoming.catching_up import QueryOnConnect
from fairway.protocol.incoming.retrieval import QueryBudget, Retrieval
from fairway.protocol.jitter import Jitter
from fairway.protocol.journal import Journal
from fairway.protocol.outgoing.request import SendRequest
from fairway.protocol.outgoing.requests import Requests
from fairway.protocol.outgoing.sending import Sending
from fairway.protocol.outgoing.sync_timer import SyncTimer
from fairway.protocol.ratelimit.quota import Quota
from fairway.protocol.sds.acknowledgements import OUTGOING
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.incoming import IncomingBuffer
from fairway.protocol.sds.outcome import Ignored, MessageIgnored
from fairway.protocol.sds.owed import OwedCitations
from fairway.protocol.sds.repair import Repair
from fairway.protocol.segmentation import leopard
from fairway.protocol.segmentation.ended_sets import EndedSets
from fairway.protocol.stack import Stack
from fairway.simulation.clocks import Clocks
from fairway.simulation.invariants import Invariant
from fairway.simulation.ledger import Ledger
from fairway.simulation.looks import Looks
from fairway.simulation.plan import SimulationPlan, StoreKind
from fairway.simulation.runner import simulate
from fairway.simulation.scenes import TrafficSoFar
from fairway.simulation.tour import tour_plan
from fairway.simulation.wire_rules import WireRules
from fairway.simulation.world import Observer, World
from fairway.storage.memory_store import MemoryStore
from fairway.waku.local import NO_FAULTS, LocalNetwork, LocalNode, NetworkFaults
from fairway.wire.sds import WAKU_SDS, HistoryEntry, SdsMessage

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


@pytest.mark.full
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


def test_a_row_that_was_under_way_for_a_moment_and_never_reached_the_store_is_seen_without_a_crash(monkeypatch):
    touch = Journal.touch
    monkeypatch.setattr(Journal, "touch", lambda self, table, key: table == OUTGOING or touch(self, table, key))
    assert broken(replace(PLAN, loss=0.5)) == {Invariant.KEPT}


def test_a_message_that_is_read_and_stays_in_the_inbox_is_seen(monkeypatch):
    submit = MemoryStore.submit
    monkeypatch.setattr(
        MemoryStore, "submit", lambda self, write, done: submit(self, replace(write, finished=()), done)
    )
    assert Invariant.KEPT in broken()


@pytest.mark.full
def test_a_healed_world_in_which_nothing_is_acknowledged_is_seen(monkeypatch):
    monkeypatch.setattr(Sending, "reviewed", lambda *_: [])
    assert Invariant.HEALED in broken()


@pytest.mark.full
def test_a_receipt_that_names_nobody_is_seen(monkeypatch):
    observe = Receipt.observe

    def forget(self, event):
        observe(self, event)
        self._holders = frozenset()

    monkeypatch.setattr(Receipt, "observe", forget)
    assert Invariant.ACKNOWLEDGED in broken(replace(PLAN, ask_all_share=0.0))


@pytest.mark.full
def test_a_receipt_that_says_only_after_a_restart_what_became_of_its_send_is_seen(monkeypatch):
    observe = Receipt.observe
    monkeypatch.setattr(
        Receipt,
        "observe",
        lambda self, event: isinstance(event, DeliveryError | MessageDelivered) or observe(self, event),
    )
    assert Invariant.WORD in broken(replace(PLAN, duration_ms=300_000))


@pytest.mark.full
def test_a_message_on_which_a_handler_raised_and_that_comes_again_only_after_a_restart_is_seen(monkeypatch):
    failed = Attempts.failed
    monkeypatch.setattr(
        Attempts, "failed", lambda self, message, error, _again: failed(self, message, error, lambda: None)
    )
    assert Invariant.WORD in broken(replace(PLAN, handler_failures=0.3, duration_ms=300_000))


@pytest.mark.full
def test_a_channel_that_after_a_restart_does_not_know_what_became_of_a_send_is_seen(monkeypatch):
    def forget(self, request_id):
        raise ConfigurationError(f"{request_id} is unknown")

    monkeypatch.setattr(ReliableChannel, "receipt", forget)
    assert Invariant.WORD in broken()


def test_a_program_that_ends_in_order_and_does_not_acknowledge_what_it_read_is_seen(monkeypatch):
    monkeypatch.setattr(SyncTimer, "hasten", lambda *_: None)
    assert broken(replace(PLAN, participants=2, seed=2)) == {Invariant.HEALED}


@pytest.mark.full
def test_who_comes_back_and_reads_nothing_of_what_was_said_meanwhile_is_seen(monkeypatch):
    monkeypatch.setattr(QueryOnConnect, "was_offline", lambda *_: None)
    assert Invariant.HEALED in broken()


@pytest.mark.full
def test_a_receipt_that_never_ends_is_seen(monkeypatch):
    monkeypatch.setattr(Receipt, "observe", lambda *_: None)
    assert Invariant.ENDED in broken()


def test_what_leaves_in_clear_text_is_seen(monkeypatch):
    monkeypatch.setattr(Ciphering, "encrypt", lambda self, plaintext, carried, *, is_content=False: plaintext)
    assert Invariant.WORD in broken(replace(PLAN, encrypted=True))


def test_a_message_told_as_sent_with_its_first_segment_is_seen(monkeypatch):
    accepted = Requests.accepted

    def too_soon(self, sds_id, message_hash):
        for sent in self.segments.values():
            sent.accepted = True
        for request in self.open.values():
            request.segment_count = len(request.segments)
        return accepted(self, sds_id, message_hash)

    monkeypatch.setattr(Requests, "accepted", too_soon)
    assert Invariant.WORD in broken(replace(PLAN, long_share=1.0, slow_uplinks=3))


def test_a_clock_that_does_not_follow_what_it_hears_is_seen(monkeypatch):
    monkeypatch.setattr(MessageChannel, "_follow_clock", lambda *_: None)
    assert Invariant.STAMPS in broken(replace(PLAN, clock_skew_ms=300_000))


@pytest.mark.full
def test_a_clock_that_forgers_led_far_ahead_message_by_message_has_not_gone_wrong():
    """Where a unit of the clock is a second, each message may lead it by a thousand."""
    plan = replace(PLAN, participants=2, profile=Profile.LOGOS, hostile=2, haste=True, tight_quotas=True)
    plan = replace(plan, duration_ms=600_000, messages_per_hour=60, lost_timeout_ms=120_000, settle_ms=600_000)
    assert Invariant.STAMPS not in broken(plan)


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


class HandedOver(Observer):
    """Counts what each participant hands to its node."""

    def __init__(self):
        self.count = Counter()

    def handed_over(self, at_ms, name, message):
        self.count[name] += 1


def test_what_is_being_told_to_a_node_is_not_held_for_good_and_what_nothing_needs_is(monkeypatch):
    """A sync message has a filter of 18 kB; so has the content message that came last, which stays at hand."""
    handed_over, plan = HandedOver(), replace(PLAN, bloom_policy=BloomPolicy.ALWAYS, bloom_capacity=10_000)
    ledger = Ledger(lambda *_: True, WireRules(plan.profile, plan.options().sds))
    with World(["alice", "bob"], seed=1, faults=NetworkFaults(max_delay_ms=20), options=plan.options()) as world:
        world.observers.append(handed_over)
        looks = Looks(world, plan, ledger, Clocks(world, plan), lambda *_: 0)
        for name in ("alice", "bob"):
            world.send(name, b"hello")
            world.run(180_000)
        said = handed_over.count["alice"]
        assert world.run(600_000, lambda: handed_over.count["alice"] > said)
        assert list(looks.hoards()) == []
        monkeypatch.setattr(world.participants["bob"].stack.sds, "left_over", bytes(10_000), raising=False)
        (violation,) = looks.hoards()
    assert (violation.invariant, violation.participant) == (Invariant.BOUNDS, "bob")


@pytest.mark.full
def test_a_message_that_is_lost_while_it_is_handled_is_seen(monkeypatch):
    finish = MessageStream.__anext__

    async def finish_at_once(self):
        message = await finish(self)
        self.finish()
        return message

    monkeypatch.setattr(MessageStream, "__anext__", finish_at_once)
    plan = replace(PLAN, slow_readers=3, crashes_per_hour=120, ephemeral_share=0.0)
    assert any(Invariant.DELIVERED in broken(replace(plan, seed=seed)) for seed in range(1, 13))


@pytest.mark.full
def test_a_send_that_is_given_up_too_soon_is_seen(monkeypatch):
    made = Sending.__init__

    def impatient(self, *arguments, **named):
        made(self, *arguments, **named)
        self._max_retries = 1

    monkeypatch.setattr(Sending, "__init__", impatient)
    assert Invariant.ENDED in broken(replace(PLAN, loss=0.8, ask_all_share=1.0))


def test_a_clock_that_is_never_followed_is_seen(monkeypatch):
    monkeypatch.setattr("fairway.channel.reliable_channel.steady_clock", lambda: lambda: 1_760_000_000_000)
    assert Invariant.STAMPS in broken(replace(PLAN, duration_ms=120_000))


@pytest.mark.full
def test_a_count_that_is_not_waited_for_is_seen(monkeypatch):
    monkeypatch.setattr(
        SendRequest,
        "is_delivered",
        lambda self, segments: self.required_from <= (found := self.holders(segments)) and bool(found),
    )
    plan = replace(PLAN, participants=4, loss=0.5, ask_all_share=0.0, ask_some_share=1.0)
    assert Invariant.ACKNOWLEDGED in broken(plan)


@pytest.mark.full
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_more_may_be_asked_of_a_send_at_any_time(share):
    report = simulate(replace(PLAN, ask_all_share=share, ask_some_share=0.5, ask_more_share=1.0, crashes_per_hour=30))
    assert report.ok, report.violations
    assert report.reported_delivered > report.sent, "those of which more was asked later ended twice"


@pytest.mark.full
def test_names_asked_for_later_in_place_of_earlier_ones_are_seen(monkeypatch):
    def want(self, required_count, names):
        self.required_from = names

    monkeypatch.setattr(SendRequest, "want_more", want)
    plan = replace(PLAN, participants=4, loss=0.5, ask_all_share=1.0, ask_more_share=1.0)
    assert Invariant.ACKNOWLEDGED in broken(plan)


@pytest.mark.full
def test_a_store_that_is_asked_without_limit_is_seen(monkeypatch):
    monkeypatch.setattr(QueryBudget, "next_at", lambda self, now_ms: now_ms)
    plan = replace(PLAN, loss=0.3, absences_per_hour=60, absence_ms=30_000, tight_quotas=True, store_page=1)
    assert Invariant.BUDGET in broken(plan)


@pytest.mark.full
def test_a_channel_that_goes_on_speaking_for_no_reason_is_seen(monkeypatch):
    monkeypatch.setattr(SyncTimer, "spoke", lambda self, now_ms: setattr(self, "at_ms", now_ms + 1_000))
    assert Invariant.REST in broken()


@pytest.mark.full
def test_rows_of_what_is_over_are_seen(monkeypatch):
    snapshot, until_now = Stack.snapshot, TrafficSoFar.until_now
    row = Change(table="outbox", key="left", row=(1,))

    def leave_a_row(ledger, world):
        monkeypatch.setattr(Stack, "snapshot", lambda self: (*snapshot(self), row))
        return until_now(ledger, world)

    monkeypatch.setattr(TrafficSoFar, "until_now", leave_a_row)
    assert Invariant.REST in broken()


@pytest.mark.full
def test_a_hint_that_leads_nowhere_is_seen(monkeypatch):
    encode = WAKU_SDS.encode

    def misled(self, message):
        history = tuple(entry._replace(retrieval_hint=b"?" * 32) for entry in message.causal_history)
        return encode(replace(message, causal_history=history))

    monkeypatch.setattr(type(WAKU_SDS), "encode", misled)
    assert Invariant.WIRE in broken()


def test_what_is_lacking_and_never_asked_for_is_seen(monkeypatch):
    monkeypatch.setattr(Retrieval, "plan", lambda *_: None)
    lossy = replace(PLAN, loss=0.6, duration_ms=480_000, messages_per_hour=30.0, repairs=False, settle_ms=60_000)
    assert Invariant.SOUGHT in broken(lossy)


@pytest.mark.parametrize("is_asked", [True, False])
def test_what_was_asked_for_by_an_earlier_hint_counts_as_asked_for(monkeypatch, is_asked):
    """The later hint comes with the answer, before anybody looks."""
    monkeypatch.setattr(Retrieval, "plan", lambda *_: None)
    earlier, later = b"1" * 32, b"2" * 32
    ledger = Ledger(lambda *_: True, WireRules(PLAN.profile, PLAN.options().sds))
    with World(["alice"], seed=1, options=PLAN.options()) as world:
        looks = Looks(world, PLAN, ledger, Clocks(world, PLAN), lambda *_: 0)
        world.run(1_000)
        dependencies = world.participants["alice"].stack.sds.dependencies
        dependencies.note_missing([HistoryEntry("lacking", earlier, "bob")], world.now_ms)
        looks.look()
        if is_asked:
            ledger.sought.add(("alice", earlier))
        dependencies.note_missing([HistoryEntry("lacking", later, "bob")], world.now_ms)
        world.run(120_000)
        looks.look()
    assert (Invariant.SOUGHT in {each.invariant for each in looks.found}) is not is_asked


@pytest.mark.parametrize("store_came", [True, False])
def test_what_is_held_back_longer_than_the_gap_timeout_is_seen_unless_a_store_just_came(monkeypatch, store_came):
    """A store that may have what is missing stops the time of waiting before the first page is asked of it."""
    monkeypatch.setattr(QueryOnConnect, "may_bring_more", lambda *_: True)
    plan = replace(PLAN, gap_timeout_ms=5_000)
    ledger = Ledger(lambda *_: True, WireRules(plan.profile, plan.options().sds))
    with World(["alice"], seed=1, options=plan.options()) as world:
        looks = Looks(world, plan, ledger, Clocks(world, plan), lambda *_: 0)
        world.run(1_000)
        sds = world.participants["alice"].stack.sds
        citing = SdsMessage(
            message_id="after it",
            sender_id="bob",
            channel_id=sds.channel_id,
            lamport_timestamp=1,
            causal_history=(HistoryEntry("lacking"),),
            content=b"after it",
        )
        sds.receive(citing, None, world.now_ms)
        looks.look()
        if store_came:
            came = NodeStatusChanged(connected=True, health=NodeHealth.SUFFICIENTLY_HEALTHY, store=True, detail="")
            ledger.told(world.now_ms, "alice", came)
        world.run(60_000)
        looks.look()
    assert (Invariant.WAKES in {each.invariant for each in looks.found}) is not store_came


def test_an_ephemeral_message_that_is_sent_twice_is_seen(monkeypatch):
    publish = LocalNetwork.publish

    def twice(self, publisher, message):
        if message.message.ephemeral:
            publish(self, publisher, message)
        return publish(self, publisher, message)

    monkeypatch.setattr(LocalNetwork, "publish", twice)
    assert Invariant.WIRE in broken(replace(PLAN, ephemeral_share=0.5))


@pytest.mark.full
def test_an_ephemeral_message_that_nobody_hears_in_a_healed_world_is_seen(monkeypatch):
    hear = LocalNode.hear
    monkeypatch.setattr(LocalNode, "hear", lambda self, message: not message.message.ephemeral and hear(self, message))
    assert Invariant.HEALED in broken()


@pytest.mark.full
def test_room_that_is_never_given_back_is_seen(monkeypatch):
    drop = IncomingBuffer.drop

    def keep_its_room(self, parked):
        drop(self, parked)
        self.parked_bytes += parked.size_bytes

    monkeypatch.setattr(IncomingBuffer, "drop", keep_its_room)
    assert Invariant.KEPT in broken(replace(PLAN, loss=0.5))


@pytest.mark.full
def test_a_message_that_comes_again_and_is_not_acknowledged_again_is_seen(monkeypatch):
    monkeypatch.setattr(OwedCitations, "came_again", lambda *_: None)
    assert Invariant.WIRE in broken(replace(PLAN, loss=0.5, duration_ms=180_000))


@pytest.mark.full
def test_what_somebody_of_another_make_says_and_nobody_acknowledges_is_seen(monkeypatch):
    plan = replace(PLAN, foreign=1, loss=0.3)
    assert broken(plan) == set()
    monkeypatch.setattr(OwedCitations, "is_read_one_by_one", lambda *_: None)
    assert Invariant.WIRE in broken(plan)


@pytest.mark.full
def test_who_takes_somebody_of_another_make_to_vouch_for_what_it_goes_without_is_seen(monkeypatch):
    plan = replace(PLAN, foreign=1, loss=0.3, store_gaps=0.3, gap_timeout_ms=5_000, duration_ms=180_000)
    assert broken(plan) == set()
    heard = MessageChannel.heard
    monkeypatch.setattr(
        MessageChannel, "heard", lambda self, message, *times: heard(self, replace(message, vouches=True), *times)
    )
    assert Invariant.ACKNOWLEDGED in broken(plan)


@pytest.mark.full
def test_who_acknowledges_again_what_its_author_says_it_acknowledged_is_seen(monkeypatch):
    plan = replace(PLAN, loss=0.4, duration_ms=360_000, messages_per_hour=150, ask_all_share=1.0)
    assert broken(plan) == set()
    monkeypatch.setattr("fairway.protocol.sds.channel.is_marked", lambda *_: False)
    assert Invariant.WIRE in broken(plan)


@pytest.mark.full
def test_who_asks_again_only_after_many_minutes_is_seen(monkeypatch):
    plan = tour_plan(44)
    monkeypatch.setattr("fairway.protocol.sds.repair.wait_after", lambda first_ms, asked, *_: first_ms << min(asked, 1))
    assert Invariant.ASKED in broken(plan)


@pytest.mark.full
def test_who_answers_without_end_is_seen(monkeypatch):
    monkeypatch.setattr(Repair, "may_answer", lambda *_: True)
    assert Invariant.WIRE in broken(tour_plan(45))


@pytest.mark.full
def test_who_is_behind_in_a_silent_channel_and_is_not_told_so_is_seen(monkeypatch):
    compare = MessageChannel.compare
    monkeypatch.setattr(
        MessageChannel, "compare", lambda self, *arguments: compare(self, *arguments)._replace(is_behind=False)
    )
    assert Invariant.HEALED in broken(tour_plan(14))


@pytest.mark.full
def test_who_listens_and_acknowledges_nothing_while_somebody_speaks_is_seen(monkeypatch):
    def postpone(self, now_ms):
        self.at_ms = now_ms + 60_000

    monkeypatch.setattr(SyncTimer, "content_received", postpone)
    assert Invariant.HEALED in broken(replace(PLAN, duration_ms=1_000))


def test_an_author_who_does_not_see_to_it_that_others_learn_of_his_last_word_is_seen(monkeypatch):
    monkeypatch.setattr("fairway.protocol.stack.ECHOES", 0)
    assert Invariant.HEALED in broken(replace(PLAN, participants=2, loss=0.1, seed=3))


@pytest.mark.full
@pytest.mark.parametrize(("profile", "seed"), [(Profile.WAKU, 1), (Profile.LOGOS, 3), (Profile.LOGOS, 4)])
def test_segments_that_suffice_and_are_not_put_together_are_seen(monkeypatch, profile, seed):
    # With these seeds of LOGOS somebody rebuilds a message, and cannot know the ids of its lost segments, which the
    # next message cites: it waits for them, and that is no fault.
    plan = replace(PLAN, duration_ms=1_000, parity_rate=0.5, bloom_capacity=500, profile=profile, seed=seed)
    assert broken(plan) == set()
    recover = leopard.recover
    monkeypatch.setattr(leopard, "recover", lambda data, parity: recover(data, [*parity[1:], parity[0]]))
    assert Invariant.HEALED in broken(plan)


@pytest.mark.full
def test_participants_that_draw_the_same_times_are_seen(monkeypatch):
    plan = replace(PLAN, participants=5, duration_ms=900_000, messages_per_hour=1, max_delay_ms=20)
    assert broken(plan) == set()
    monkeypatch.setattr(Jitter, "fraction", lambda _: 0.5)
    assert Invariant.WIRE in broken(plan)


@pytest.mark.full
def test_what_is_said_in_passing_and_takes_what_content_needs_is_seen(monkeypatch):
    plan = tour_plan(51)
    assert broken(plan) == set()
    judge = Quota.verdict
    monkeypatch.setattr(Quota, "verdict", lambda self, share, now_ms, **_: judge(self, share, now_ms))
    assert broken(plan) == {Invariant.RATE}


@pytest.mark.full
def test_who_keeps_an_acknowledgement_back_as_long_as_others_speak_is_seen(monkeypatch):
    plan = tour_plan(52)
    assert broken(plan) == set()
    monkeypatch.setattr(SyncTimer, "copy_received", lambda *_: None)
    assert Invariant.WIRE in broken(plan)


@pytest.mark.full
def test_a_first_page_that_is_asked_for_over_and_over_is_seen(monkeypatch):
    query = LocalNode.query

    def ask_for_the_first(self, asked, cursor=None):
        return query(self, asked, None if asked.message_hashes else cursor)

    assert broken(tour_plan(4)) == set()
    monkeypatch.setattr(LocalNode, "query", ask_for_the_first)
    assert Invariant.BUDGET in broken(tour_plan(4))


SLOW_DISK = replace(PLAN, duration_ms=1_000, store=StoreKind.DISK, disk_ms=1_000)


@pytest.mark.full
def test_a_receipt_that_says_how_a_send_ended_before_that_is_durable_is_seen(monkeypatch):
    assert broken(SLOW_DISK) == set()
    monkeypatch.setattr(Engine, "is_unsaid", lambda *_: False)
    assert Invariant.WORD in broken(SLOW_DISK)


@pytest.mark.full
def test_a_send_that_leaves_again_when_it_is_repeated_while_the_disk_writes_how_it_ended_is_seen(monkeypatch):
    known = ReceiptBook.known

    def known_once_ended(self, request_id, message_id):
        receipt = known(self, request_id, message_id)
        return receipt if receipt is not None and receipt.has_ended else None

    monkeypatch.setattr(ReceiptBook, "known", known_once_ended)
    assert Invariant.ONCE in broken(SLOW_DISK)


@pytest.mark.full
def test_who_asks_nobody_for_what_is_missing_is_seen(monkeypatch):
    monkeypatch.setattr(Repair, "take_requests", lambda *_: ())
    assert Invariant.ASKED in broken(replace(PLAN, loss=0.5, store_gaps=1.0, crashes_per_hour=60))


@pytest.mark.full
def test_a_segment_that_begins_anew_what_is_whole_is_seen(monkeypatch):
    # Nothing is remembered of what has ended.
    monkeypatch.setattr(EndedSets, "excess", lambda self: next(iter(self), None))
    assert Invariant.REST in broken(replace(PLAN, loss=0.3, long_share=0.5, parity_rate=0.5))


@pytest.mark.full
def test_who_takes_no_notice_of_what_is_forged_in_his_name_is_seen(monkeypatch):
    plan = replace(PLAN, hostile=1, haste=True, long_share=0.3)
    assert broken(plan) == set()
    receive = MessageChannel.receive

    def believe(self, message, *arguments, **named):
        outcomes = receive(self, message, *arguments, **named)
        return [
            MessageIgnored(message_id=each.message_id, why=Ignored.OWN)
            if isinstance(each, MessageIgnored) and each.why is Ignored.FORGED
            else each
            for each in outcomes
        ]

    monkeypatch.setattr(MessageChannel, "receive", believe)
    assert Invariant.KEPT in broken(plan)


@pytest.mark.full
@pytest.mark.parametrize("clock_jumps_per_hour", [0, 60])
def test_what_is_given_up_after_its_time_is_owed_to_nobody_and_was_acknowledged_by_nobody(clock_jumps_per_hour):
    plan = replace(PLAN, loss=0.5, store_gaps=1.0, long_share=0.5, reassembly_timeout_ms=60_000)
    plan = replace(plan, lost_timeout_ms=4_000_000, settle_ms=4_800_000)
    assert broken(replace(plan, clock_jumps_per_hour=clock_jumps_per_hour)) == set()


@pytest.mark.full
def test_a_world_without_stores_and_repairs_is_brought_through_by_retries():
    plan = replace(PLAN, loss=0.4, store_gaps=1.0, repairs=False, ask_all_share=1.0, long_share=0.3)
    assert broken(plan) == set()
