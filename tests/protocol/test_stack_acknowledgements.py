"""Acknowledgements and the end of a request (RELIABLE-CHANNEL-API, "Event handling")."""

from __future__ import annotations

import dataclasses

import pytest

from fairway.events import (
    DeliveryError,
    MessageAcknowledged,
    MessageDelivered,
    MessagePossiblyAcknowledged,
    MessageQueued,
)
from fairway.options import BloomPolicy, RateLimitConfig, ReliableChannelOptions, SdsConfig, SegmentationConfig
from fairway.protocol.effects import Purpose

SMALL = ReliableChannelOptions(
    segmentation=SegmentationConfig(segment_size_bytes=64), sds=SdsConfig(causal_history_size=20)
)
FILE = bytes(range(256)) * 2
"""Eight segments and one parity segment."""


def reply(sender, to, payload=b"thanks"):
    sender.send(payload)
    return to.receive(sender.content()[-1])


def listeners(peer, *names, options=SMALL):
    return [peer(name, options) for name in names]


def test_a_reply_acknowledges_what_it_cites_and_says_who(peer):
    alice, bob = listeners(peer, "alice", "bob")
    accepted = alice.send(b"hello")
    bob.receive(*alice.content())
    reply(bob, alice)
    [acknowledged] = alice.events(MessageAcknowledged)
    assert acknowledged == MessageAcknowledged(
        request_id=accepted.request_id,
        message_id=accepted.message_id,
        chunks_acknowledged=(0,),
        total_chunks=1,
        acknowledged_by=("bob",),
        delivered_to=("bob",),
        at_ms=alice.now_ms,
    )
    [delivered] = alice.events(MessageDelivered)
    assert (delivered.request_id, delivered.delivered_to, delivered.at_ms) == (
        accepted.request_id,
        ("bob",),
        alice.now_ms,
    )
    alice.answer()
    assert alice.stack.statistics().unacknowledged == 0
    alice.check_rows()


def test_as_many_segments_as_there_is_data_are_enough_from_one_participant(peer):
    alice, bob = listeners(peer, "alice", "bob")
    alice.send(FILE)
    alice.answer()
    bob.receive(*alice.content()[:3], *alice.content()[4:])
    assert bob.payloads() == [FILE]
    reply(bob, alice)
    assert alice.events(MessageDelivered)[0].delivered_to == ("bob",)


def test_segments_acknowledged_by_different_participants_count_together_when_anybody_will_do(peer):
    alice, bob, carol = listeners(peer, "alice", "bob", "carol")
    alice.send(FILE)
    bob.receive(*alice.content()[:4])
    reply(bob, alice)
    assert not alice.events(MessageDelivered)
    carol.receive(*alice.content()[:4])
    carol.receive(*alice.content()[4:8])
    carol.send(b"thanks")
    message = carol.sds(carol.content()[-1])
    assert len(message.causal_history) == 8
    alice.receive(*carol.content())
    assert len(alice.events(MessageDelivered)) == 1


def test_mixed_participants_do_not_count_when_two_of_them_must_have_all_of_it(peer):
    alice, bob, carol = listeners(peer, "alice", "bob", "carol")
    alice.send(FILE, required_count=2)
    bob.receive(*alice.content())
    carol.receive(*alice.content()[:4])
    reply(bob, alice)
    reply(carol, alice)
    assert not alice.events(MessageDelivered)
    carol.receive(*alice.content()[4:])
    reply(carol, alice, b"now I have it")
    [delivered] = alice.events(MessageDelivered)
    assert delivered.delivered_to == ("bob", "carol")


def test_acknowledgement_by_others_than_those_named_is_not_enough(peer):
    alice, bob, carol = listeners(peer, "alice", "bob", "carol")
    alice.send(b"hello", required_from=["carol"])
    for other in (bob, carol):
        other.receive(*alice.content())
    reply(bob, alice)
    assert [event.acknowledged_by for event in alice.events(MessageAcknowledged)] == [("bob",)]
    assert not alice.events(MessageDelivered)
    reply(carol, alice)
    assert alice.events(MessageDelivered)[0].delivered_to == ("bob", "carol")


def test_a_delivery_error_says_who_acknowledged_something_all_the_same(peer):
    alice, bob = listeners(peer, "alice", "bob")
    accepted = alice.send(b"hello", required_from=["bob", "carol"])
    bob.receive(*alice.content())
    reply(bob, alice)
    alice.pass_time(3_600_000)
    [error] = alice.events(DeliveryError)
    assert (error.request_id, error.acknowledged_by) == (accepted.request_id, ("bob",))
    assert not alice.events(MessageDelivered)


def test_possible_acknowledgements_say_who_and_how_many_and_two_of_them_acknowledge(peer):
    filtered = ReliableChannelOptions(sds=SdsConfig(bloom_policy=BloomPolicy.ALWAYS))
    alice, bob, carol, dave = (peer(name, filtered) for name in ("alice", "bob", "carol", "dave"))
    accepted = alice.send(b"hello")
    # Dave cites it, so that the others cite only what is newer; and alice hears nothing of dave.
    dave.receive(*alice.content())
    for number in range(3):
        dave.send(f"newer {number}".encode())
    for other in (bob, carol):
        other.receive(*alice.content(), *dave.content())
        other.send(b"mine")
    alice.receive(*bob.content(), *bob.content())
    [possibly] = alice.events(MessagePossiblyAcknowledged)
    assert (possibly.request_id, possibly.possible_ack_count, possibly.participant) == (accepted.request_id, 1, "bob")
    assert not alice.events(MessageAcknowledged)
    alice.receive(*carol.content())
    assert alice.events(MessageAcknowledged)[0].acknowledged_by == ("bob", "carol")
    assert len(alice.events(MessageDelivered)) == 1


def test_the_bloom_filter_together_with_a_cited_descendant_acknowledges(peer):
    alice, bob = peer("alice"), peer("bob")
    for number in range(5):
        alice.send(f"message {number}".encode())
    bob.receive(*alice.content())
    reply(bob, alice)
    assert len(alice.events(MessageDelivered)) == 5
    assert not alice.events(MessagePossiblyAcknowledged)


def test_each_request_ends_once_whatever_comes_later(peer):
    alice, bob, carol = listeners(peer, "alice", "bob", "carol")
    accepted = alice.send(FILE)
    for other in (bob, carol):
        other.receive(*alice.content())
        reply(other, alice)
        reply(other, alice, b"again")
    alice.pass_time(3_600_000)
    ends = [event.request_id for event in alice.events(MessageDelivered, DeliveryError)]
    assert ends == [accepted.request_id]


def test_two_requests_with_one_payload_end_each_by_itself(peer):
    alice, bob = peer("alice"), peer("bob")
    first, second = alice.send(b"ok"), alice.send(b"ok")
    bob.receive(alice.content()[0])
    reply(bob, alice)
    assert [event.request_id for event in alice.events(MessageDelivered)] == [first.request_id]
    bob.receive(alice.content()[1])
    reply(bob, alice)
    assert [event.request_id for event in alice.events(MessageDelivered)] == [first.request_id, second.request_id]


def test_acknowledgements_collected_before_a_restart_count_after_it(peer):
    alice, bob, carol = listeners(peer, "alice", "bob", "carol")
    accepted = alice.send(FILE, required_count=2)
    for other in (bob, carol):
        other.receive(*alice.content())
    reply(bob, alice)
    again = alice.restart()
    reply(carol, again)
    [delivered] = again.events(MessageDelivered)
    assert (delivered.request_id, delivered.delivered_to) == (accepted.request_id, ("bob", "carol"))
    again.check_rows()


def test_nobody_acknowledges_before_the_message_has_left_entirely(peer):
    # An acknowledgement of all segments that exist so far is none of the whole message.
    options = ReliableChannelOptions(
        segmentation=SegmentationConfig(segment_size_bytes=64),
        rate_limit=RateLimitConfig(enabled=True, epoch_ms=600_000, messages_per_epoch=4),
    )
    alice, bob = peer("alice", options), peer("bob", SMALL)
    alice.send(FILE)
    assert len(alice.events(MessageQueued)) == 5
    bob.receive(*alice.content())
    reply(bob, alice)
    assert alice.events(MessageAcknowledged)[-1].chunks_acknowledged == (0, 1, 2, 3)
    assert not alice.events(MessageDelivered)


@pytest.mark.parametrize("names", [["bob"], ["bob", "carol"]])
def test_in_a_quiet_channel_everybody_asked_for_acknowledges_by_name_in_the_end(peer, names):
    alice, *others = listeners(peer, "alice", "bob", "carol", options=None)
    for number in range(4):
        others[1].send(f"other talk {number}".encode())
    talk = others[1].content()
    alice.receive(*talk)
    others[0].receive(*talk)
    others[1].answer()
    accepted = alice.send(b"hello", required_from=names)
    heard = 0
    for _ in range(20):
        for speaker in (alice, *others):
            for publication in speaker.unanswered.copy():
                speaker.answer(publication)
                for participant in (alice, *others):
                    participant.receive(publication)
                heard += 1
        for participant in (alice, *others):
            participant.pass_time(15_000, answer=False)
    assert heard
    assert [event.request_id for event in alice.events(MessageDelivered)] == [accepted.request_id]
    assert set(names) <= set(alice.events(MessageDelivered)[0].delivered_to)
    assert len(alice.published(Purpose.RETRY)) <= 3


def test_what_a_store_brings_after_a_restart_is_not_acknowledged_once_more(peer):
    """It is old, and the bytes of a hundred citations are wasted; whoever waits still sends his message again."""
    alice, bob = listeners(peer, "alice", "bob", options=ReliableChannelOptions())
    for number in range(9):
        alice.send(b"%d" % number)
    bob.receive(*alice.content())
    bob.send(b"thanks")
    bob = bob.restart()
    for publication in alice.content():
        bob.do(bob.stack.receive_stored([(publication.message, None)], bob.now_ms))
    bob.send(b"back")
    assert len(bob.sds(bob.content()[-1]).causal_history) == 2
    alice.pass_time(60_000)
    [retry, *_] = alice.published(Purpose.RETRY)
    bob.receive(retry)
    bob.send(b"yes, really")
    assert alice.sds(retry).message_id in {e.message_id for e in bob.sds(bob.content()[-1]).causal_history}


def test_a_message_for_which_there_is_no_room_acknowledges_all_the_same(peer):
    options = ReliableChannelOptions(sds=SdsConfig(max_incoming_buffer=1))
    alice, bob, carol = peer("alice", options), peer("bob"), peer("carol")
    accepted = alice.send(b"hello")
    for number in range(2):
        carol.send(b"missed by alice %d" % number)
    missed, waiting = carol.content()
    alice.receive(waiting)
    bob.receive(*alice.content(), missed, waiting)
    reply(bob, alice)
    assert alice.stack.statistics().no_room == 1
    assert [event.request_id for event in alice.events(MessageDelivered)] == [accepted.request_id]
    alice.check_rows()


def test_a_segment_that_is_not_kept_acknowledges_all_the_same(peer):
    options = dataclasses.replace(
        SMALL, segmentation=SegmentationConfig(segment_size_bytes=64, max_buffered_bytes=8 * 64)
    )
    alice, bob = peer("alice", options), peer("bob", SMALL)
    accepted = alice.send(b"hello")
    bob.receive(*alice.content())
    bob.send(FILE)
    alice.receive(bob.content()[0])
    assert alice.stack.statistics().not_kept == 1
    assert [event.request_id for event in alice.events(MessageDelivered)] == [accepted.request_id]
