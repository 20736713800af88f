"""Retransmission (RELIABLE-CHANNEL-API, "Message retries"): when, how often, with which bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fairway.events import (
    DeliveryError,
    MessageDelivered,
    MessagePossiblyAcknowledged,
    MessageSendError,
    MessageSending,
    RequestSent,
)
from fairway.options import (
    BloomPolicy,
    RateLimitConfig,
    ReliableChannelOptions,
    RepairConfig,
    SdsConfig,
    SegmentationConfig,
)
from fairway.protocol.effects import Purpose
from fairway.protocol.journal import Journal
from fairway.protocol.outgoing.request import SendRequest
from fairway.protocol.outgoing.requests import Requests
from fairway.protocol.sds.acknowledged_by import marks_of

FILE = bytes(range(256)) * 2
SMALL_SEGMENTS = ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=64))
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


@pytest.mark.parametrize("attempts", [0, 1, 10])
def test_after_the_last_vain_retry_comes_exactly_one_delivery_error(peer, attempts):
    alice = peer(options=ReliableChannelOptions(sync_min_interval_ms=0, max_retry_attempts=attempts))
    accepted = alice.send(b"hello")
    alice.pass_time(30_000 * (attempts + 1) - 1)
    assert len(alice.published()) == attempts + 1
    assert not alice.events(DeliveryError)
    alice.pass_time(1)
    [error] = alice.events(DeliveryError)
    assert (error.request_id, error.acknowledged_by) == (accepted.request_id, ())
    assert f"after {attempts} retransmission" in error.detail
    assert not alice.events(MessageSendError)
    assert len(alice.published()) == attempts + 1
    alice.pass_time(3_600_000)
    assert len(alice.events(DeliveryError)) == 1


@pytest.mark.parametrize("policy", [BloomPolicy.NEWS, BloomPolicy.ALWAYS])
def test_a_copy_is_not_acknowledged_again_by_those_whose_acknowledgement_is_known(peer, policy):
    options = ReliableChannelOptions(sds=SdsConfig(bloom_policy=policy))
    alice, bob, carol = peer("alice", options), peer("bob", options), peer("carol", options)
    alice.send(b"hello", required_from=["bob", "carol"])
    for listener in (bob, carol):
        listener.receive(*alice.content())
        listener.pass_time(15_001)
        assert len(listener.published(Purpose.SYNC)) == 1
    alice.receive(*bob.published())
    alice.pass_time(30_000)
    [copy] = alice.published(Purpose.RETRY)
    for listener in (bob, carol):
        listener.receive(copy)
        listener.pass_time(15_001)
    assert len(carol.published(Purpose.SYNC)) == 2, "hers was lost"
    marks = alice.sds(copy).acknowledged_by
    if policy is BloomPolicy.ALWAYS:
        assert not marks, "as SDS has it"
        assert len(bob.published(Purpose.SYNC)) == 2
    else:
        assert marks == marks_of(["bob"], copy.sds_id)
        assert len(bob.published(Purpose.SYNC)) == 1


def test_a_copy_that_hardly_fits_says_no_more_than_the_message_did(peer):
    """The message was seen to fit, with what a cipher adds; marks would be more than that."""
    content = bytes(100_000)
    options = ReliableChannelOptions(max_wire_message_bytes=130_000)
    alice, bob = peer("alice", options), peer("bob")
    alice.send(content, required_from=["bob", "carol"])
    bob.receive(*alice.content())
    bob.send(b"got it")
    alice.receive(*bob.content())
    alice.pass_time(30_000)
    [copy] = alice.published(Purpose.RETRY)
    assert alice.sds(copy) == alice.sds(alice.content()[0])


def test_of_many_segments_that_nobody_acknowledges_the_last_is_repeated_and_there_is_one_delivery_error(peer):
    """While nobody is there, a file would cost ten times its bytes. Parity segments are never repeated."""
    alice = peer(options=SMALL_SEGMENTS)
    alice.send(FILE)
    alice.pass_time(360_000)
    assert len(alice.events(DeliveryError)) == 1
    assert [retry.sds_id for retry in alice.published(Purpose.RETRY)] == [alice.content()[7].sds_id] * 10


def spoken(peer, name):
    """Return what somebody says who knows of nothing."""
    stranger = peer(name, QUIET)
    stranger.send(b"here I am")
    return stranger.content()


def test_what_many_segments_left_out_is_sent_soon_after_somebody_is_heard_who_may_lack_it(peer):
    alice, bob = peer("alice", SMALL_SEGMENTS), peer("bob", SMALL_SEGMENTS)
    alice.send(FILE, required_from=["bob", "carol"])
    alice.pass_time(40_000)
    assert len(alice.published(Purpose.RETRY)) == 1
    alice.receive(*spoken(peer, "mallory"))
    alice.pass_time(7_500)
    assert len(alice.published(Purpose.RETRY)) == 1, "nobody asked for that one"
    alice.receive(*spoken(peer, "bob"))
    alice.pass_time(7_499)
    assert len(alice.published(Purpose.RETRY)) == 1
    alice.pass_time(1)
    assert {retry.sds_id for retry in alice.published(Purpose.RETRY)} == {each.sds_id for each in alice.content()[:8]}
    bob.receive(*alice.published(Purpose.RETRY))
    assert bob.payloads() == [FILE]


def test_who_acknowledges_in_time_has_nothing_of_it_sent_again(peer):
    alice, bob = peer("alice", SMALL_SEGMENTS), peer("bob", SMALL_SEGMENTS)
    alice.send(FILE)
    bob.receive(*alice.content())
    alice.pass_time(32_000)
    before = len(alice.published(Purpose.RETRY))
    alice.receive(*spoken(peer, "bob"))
    bob.send(b"got it")
    alice.receive(*bob.content())
    assert alice.events(MessageDelivered)
    alice.pass_time(3_600_000)
    assert len(alice.published(Purpose.RETRY)) == before == 1


def test_who_has_the_last_segment_and_is_silent_since_has_the_last_one_that_he_lacks_sent_again(peer):
    alice, bob, carol = peer("alice", SMALL_SEGMENTS), peer("bob", SMALL_SEGMENTS), peer("carol", SMALL_SEGMENTS)
    alice.send(FILE, required_from=["bob", "carol"])
    content = alice.content()
    bob.receive(*content)
    carol.receive(*content[:6])
    for _ in range(3):
        carol.send(b"so far")
        alice.receive(*carol.content()[-1:])
    bob.send(b"got it")
    alice.receive(*bob.content())
    alice.pass_time(35_000)
    alice.effects.clear()
    alice.pass_time(330_000)
    assert [retry.sds_id for retry in alice.published(Purpose.RETRY)] == [content[7].sds_id] * 9
    assert len(alice.events(DeliveryError)) == 1


@given(
    acknowledged=st.lists(st.sets(st.sampled_from(["bob", "carol", "dave"])), min_size=1, max_size=6),
    parity=st.integers(0, 2),
    names=st.frozensets(st.sampled_from(["bob", "carol"])),
    count=st.integers(1, 3),
)
def test_while_a_send_is_open_something_of_it_is_sent_again_though_nobody_is_heard(acknowledged, parity, names, count):
    requests, data_count = Requests(Journal(), 1), max(1, len(acknowledged) - parity)
    request = SendRequest(
        request_id="r",
        message_id="m",
        size_bytes=1,
        accepted_ms=0,
        deadline_ms=None,
        data_count=data_count,
        required_count=count,
        required_from=names,
        segment_count=len(acknowledged),
    )
    requests.add(request)
    for order, participants in enumerate(acknowledged):
        segment = requests.add_segment(
            request, f"s{order}", order, is_parity=order >= data_count, sequence=order, made_ms=0
        )
        segment.acknowledged_by |= participants
    segments = list(requests.segments.values())
    again = [each for each in segments[:data_count] if requests.needs_retry(each) and requests.is_for(each, ())]
    assume(not request.is_delivered(segments))
    assert len(again) == 1


def test_any_participant_will_do_where_none_is_named(peer):
    alice = peer("alice", SMALL_SEGMENTS)
    alice.send(FILE)
    alice.pass_time(20_000)
    alice.receive(*spoken(peer, "dave"))
    alice.pass_time(10_000)
    assert len(alice.published(Purpose.RETRY)) == 8, "he was heard within the interval"
    alice.pass_time(31_000)
    assert len(alice.published(Purpose.RETRY)) == 9, "and then no more"


def test_after_a_restart_segments_wait_until_somebody_is_heard(peer):
    alice = peer("alice", SMALL_SEGMENTS)
    alice.send(FILE)
    alice.answer()
    again = alice.restart()
    again.pass_time(40_000)
    assert len(again.published(Purpose.RETRY)) == 1
    again.receive(*spoken(peer, "bob"))
    again.pass_time(7_500)
    assert len(again.published(Purpose.RETRY)) == 8


def test_after_an_acknowledgement_nothing_is_repeated(peer):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"hello")
    bob.receive(*alice.content())
    bob.send(b"thanks")
    alice.receive(*bob.content())
    assert len(alice.events(MessageDelivered)) == 1
    alice.pass_time(3_600_000)
    assert not alice.published(Purpose.RETRY)
    assert not alice.events(DeliveryError)


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


def test_nothing_is_repeated_while_the_node_is_offline_and_all_of_it_when_it_is_back(peer):
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


def test_the_bytes_of_a_retry_after_a_restart_are_those_of_the_first_transmission(peer):
    alice = peer(options=QUIET)
    alice.send(b"hello")
    again = alice.restart()
    again.pass_time(30_000)
    assert again.published(Purpose.RETRY)[0].message.payload == alice.content()[0].message.payload


def test_without_repair_own_messages_are_retried_all_the_same(peer):
    options = ReliableChannelOptions(sync_min_interval_ms=0, sds=SdsConfig(repair=RepairConfig(enabled=False)))
    alice = peer(options=options)
    alice.send(b"hello", required_from=["bob", "carol"])
    alice.pass_time(30_000)
    assert alice.published(Purpose.RETRY)[0].message.payload == alice.content()[0].message.payload


def test_a_retry_that_the_rate_limit_held_is_let_go_when_the_acknowledgement_comes(peer):
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


def test_a_message_that_is_repeated_in_vain_has_the_store_asked_for_what_was_said_since(peer, start_ms):
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


def test_a_send_that_is_never_repeated_ends_all_the_same_when_nobody_acknowledges_it(peer):
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
