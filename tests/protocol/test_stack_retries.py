"""Retransmission (RELIABLE-CHANNEL-API, "Message retries"): when, how often, with which bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.events import (
    DeliveryError,
    MessagePossiblyAcknowledged,
    MessageSendError,
    MessageSending,
    RequestSent,
)
from fairway.options import (
    BloomPolicy,
    RateLimitConfig,
    ReliableChannelOptions,
    SdsConfig,
)
from fairway.protocol.effects import Purpose

QUIET = ReliableChannelOptions(sync_min_interval_ms=0)
FILTERED = ReliableChannelOptions(sds=SdsConfig(bloom_policy=BloomPolicy.ALWAYS))


def test_a_retry_is_newly_stamped_and_carries_the_same_sds_message(peer):
    alice = peer(options=QUIET)
    alice.send(b"hello")
    alice.pass_time(95_000)
    first, *retries = alice.published()
    assert [p.purpose for p in retries] == [Purpose.RETRY] * 3
    assert {p.message.payload for p in retries} == {first.message.payload}
    assert {p.sds_id for p in retries} == {first.sds_id}
    assert len({p.message_hash for p in alice.published()}) == 4
    seconds = [(p.message.timestamp_ns - first.message.timestamp_ns) // 10**9 for p in retries]
    assert seconds == [30, 60, 90]
    assert [event.attempt for event in alice.events(MessageSending)] == [0, 1, 2, 3]
    assert len(alice.events(RequestSent)) == 1


def test_what_is_possibly_acknowledged_waits_twice_as_long(peer):
    alice, bob, carol = peer("alice", QUIET), peer("bob", FILTERED), peer("carol")
    alice.send(b"hello")
    carol.receive(*alice.content())
    for payload in (b"one", b"two", b"three"):
        carol.send(payload)
    # Carol cited it, so that bob cites the two newest only, and just his bloom filter tells of alice's message.
    bob.receive(*alice.content(), *carol.content())
    bob.send(b"four")
    alice.receive(*bob.content())
    assert len(alice.events(MessagePossiblyAcknowledged)) == 1
    alice.pass_time(59_999)
    assert not alice.published(Purpose.RETRY)
    alice.pass_time(60_001)
    assert len(alice.published(Purpose.RETRY)) == 2


def test_a_possible_acknowledgement_says_nothing_of_somebody_else_who_was_asked_for(peer):
    alice, bob, carol = peer("alice", QUIET), peer("bob", FILTERED), peer("carol")
    alice.send(b"hello", required_from=["dave"])
    carol.receive(*alice.content())
    for payload in (b"one", b"two", b"three"):
        carol.send(payload)
    bob.receive(*alice.content(), *carol.content())
    bob.send(b"four")
    alice.receive(*bob.content())
    assert len(alice.events(MessagePossiblyAcknowledged)) == 1
    alice.pass_time(30_000)
    assert len(alice.published(Purpose.RETRY)) == 1


def test_retries_wait_while_the_node_is_offline(peer):
    alice = peer(options=QUIET)
    alice.send(b"hello")
    alice.answer()
    alice.connect(False)
    alice.pass_time(3_600_000)
    assert len(alice.published()) == 1
    assert not alice.events(DeliveryError)
    alice.connect()
    alice.pass_time(0)
    assert len(alice.published(Purpose.RETRY)) == 1


def test_a_node_that_takes_nothing_is_asked_again_and_again_without_the_message_being_given_up(peer):
    alice = peer(options=QUIET)
    alice.send(b"hello")
    for _ in range(100):
        alice.answer(accepted=False)
        alice.pass_time(5_000, answer=False)
    assert not alice.events(DeliveryError)
    assert len(alice.published()) == 101


def test_a_repair_of_an_own_message_that_the_node_refuses_costs_no_attempt_and_ends_nothing(peer):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"one")
    alice.send(b"two")
    alice.answer()
    bob.receive(alice.content()[1])
    bob.pass_time(125_000)
    asking = [p for p in bob.published(Purpose.SYNC) if bob.sds(p).repair_request]
    alice.receive(asking[0])
    alice.tick()
    [repair] = alice.published(Purpose.REPAIR)
    assert repair.message.payload == alice.content()[0].message.payload
    alice.answer(repair, accepted=False, permanent=True)
    assert not alice.events(MessageSendError, DeliveryError)
    alice.pass_time(400_000)
    attempts = [e.attempt for e in alice.events(MessageSending) if e.message_id == alice.events()[0].message_id]
    assert attempts == list(range(len(attempts)))


def test_answers_that_the_node_never_takes_do_not_use_up_what_may_be_answered(peer):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"1" * 20_000)
    alice.send(b"two")
    alice.answer()
    bob.receive(alice.content()[1])
    offered = []
    for number in range(8):
        bob.pass_time(125_000)
        alice.pass_time(125_000)
        asking = [p for p in bob.published(Purpose.SYNC) if bob.sds(p).repair_request]
        bob.effects.clear()
        alice.effects.clear()
        alice.receive(asking[-1])
        alice.tick()
        offered.append(len(alice.published(Purpose.REPAIR)))
        while repairs := [p for p in alice.unanswered if p.purpose is Purpose.REPAIR]:
            alice.answer(*repairs, accepted=False)
            alice.send(b"%d, which the node takes" % number)
            alice.pass_time(6_000, answer=False)
            alice.answer(*[p for p in alice.unanswered if p.purpose is not Purpose.REPAIR])
    assert offered == [1] * 8


def test_after_a_restart_retries_go_on_where_they_stopped(peer):
    alice = peer(options=QUIET)
    accepted = alice.send(b"hello")
    alice.pass_time(100_000)
    again = alice.restart()
    again.pass_time(240_000)
    attempts = [event.attempt for event in again.events(MessageSending)]
    assert attempts == list(range(4, 11))
    assert [event.request_id for event in again.events(DeliveryError)] == [accepted.request_id]


def test_a_queued_retry_is_dropped_when_the_acknowledgement_comes(peer):
    limited = ReliableChannelOptions(
        sync_min_interval_ms=0, rate_limit=RateLimitConfig(enabled=True, messages_per_epoch=1, epoch_ms=600_000)
    )
    alice, bob = peer("alice", limited), peer("bob")
    alice.send(b"hello")
    alice.pass_time(30_000)
    assert alice.stack.statistics().queued == 1
    bob.receive(*alice.content())
    bob.send(b"thanks")
    alice.receive(*bob.content())
    assert alice.stack.statistics().queued == 0
    alice.pass_time(3_600_000)
    assert len(alice.published()) == 1
    alice.check_rows()


def test_after_two_retries_without_an_acknowledgement_the_store_is_asked_for_later_messages(peer, start_ms):
    options = ReliableChannelOptions(retry_interval_ms=30_000, sync_min_interval_ms=0)
    alice = peer("alice", options)
    alice.send(b"anybody?")
    alice.pass_time(59_000)
    assert alice.queries() == []
    alice.pass_time(121_000)
    starts = [query.start_ns // 1_000_000 - start_ms for query in alice.queries()]
    assert len(starts) == 3, "once a minute"
    assert all(start <= 0 for start in starts)
    assert all(query.end_ns is not None and not query.message_hashes for query in alice.queries())
    silent = peer("silent", replace(options, retrieve_frequency_ms=0))
    silent.send(b"anybody?")
    silent.pass_time(300_000)
    assert silent.queries() == []


def test_a_send_without_retries_fails_when_nobody_acknowledges_it(peer):
    alice = peer(options=ReliableChannelOptions(retry_interval_ms=0, sync_min_interval_ms=0))
    alice.send(b"hello")
    alice.pass_time(3_600_000)
    assert len(alice.published()) == 1
    [error] = alice.events(DeliveryError)
    assert "after 0 retransmissions" in error.detail
    assert alice.stack.next_deadline() is None


def test_a_copy_that_was_under_way_when_the_program_ended_is_sent_again(peer):
    alice = peer("alice")
    alice.send()
    alice.answer()
    while not alice.published(Purpose.RETRY):
        alice.pass_time(1_000, answer=False)
    alice = alice.restart()
    alice.pass_time(120_000)
    assert alice.published(Purpose.RETRY)


def retry_after(peer, *, told_ms, has_store=False, **options):
    """Return when a message is sent again to a participant that shows each ``told_ms`` that it misses it."""
    alice, bob = peer("alice", ReliableChannelOptions(sync_min_interval_ms=0, **options)), peer("bob")
    if not has_store:
        alice.do(alice.stack.store_disconnected(alice.now_ms))
    alice.send(b"received")
    alice.answer()
    bob.receive(*alice.content())
    bob.pass_time(5_000)
    alice.receive(bob.published(Purpose.SYNC)[0])
    alice.now_ms = bob.now_ms
    alice.send(b"missed")
    alice.answer()
    sent_ms, told = alice.now_ms, len(bob.published(Purpose.SYNC))
    while not alice.published(Purpose.RETRY) and alice.now_ms < sent_ms + 60_000:
        alice.pass_time(told_ms)
        bob.pass_time(alice.now_ms - bob.now_ms)
        bob.stack.sync_timer.send_soon(bob.now_ms)
        alice.receive(*bob.published(Purpose.SYNC)[told:])
        told = len(bob.published(Purpose.SYNC))
        alice.tick()
    return alice.now_ms - sent_ms


def test_a_participant_that_is_here_gets_a_message_that_it_misses_again_within_seconds(peer):
    assert 2_000 <= retry_after(peer, told_ms=1_000) <= 8_000


def test_with_a_store_it_has_the_time_to_ask_that_first(peer):
    assert 10_000 <= retry_after(peer, told_ms=1_000, has_store=True) <= 20_000


@pytest.mark.parametrize(
    "options",
    [{"retry_interval_ms": 30_000}, {"rate_limit": RateLimitConfig(enabled=True, messages_per_epoch=10_000)}],
    ids=["set", "limited"],
)
def test_an_interval_of_retries_that_is_set_or_a_rate_limit_is_kept(peer, options):
    assert retry_after(peer, told_ms=1_000, **options) >= 30_000


def test_without_a_sign_that_somebody_misses_it_a_message_is_sent_again_after_30_s(peer):
    alice = peer("alice", QUIET)
    alice.do(alice.stack.store_disconnected(alice.now_ms))
    alice.send(b"hello")
    alice.pass_time(29_999)
    assert not alice.published(Purpose.RETRY)
    alice.pass_time(1)
    assert alice.published(Purpose.RETRY)
