"""Bounds against exhaustion of the protocol itself (RELIABLE-CHANNEL-API, "Security/Privacy Considerations")."""

from __future__ import annotations

import pytest

from fairway.events import DeliveryError, Limit, LimitReached
from fairway.options import Advanced, RateLimitConfig, ReliableChannelOptions, SdsConfig, SegmentationConfig
from fairway.protocol.effects import Persist, Purpose

TWO_AT_ONCE = ReliableChannelOptions(sync_min_interval_ms=0, advanced=Advanced(max_active_retries=2))


def send_five(peer, options=TWO_AT_ONCE, **more):
    alice = peer("alice", options, **more)
    for number in range(5):
        alice.send(b"number %d" % number)
    alice.answer()
    return alice


def retries(peer):
    return peer.published(Purpose.RETRY)


def test_retries_beyond_the_bound_wait_until_the_node_answered_earlier_ones(peer):
    alice = send_five(peer)
    alice.pass_time(30_000, answer=False)
    assert len(retries(alice)) == 2
    assert alice.events(LimitReached) == [LimitReached(limit=Limit.ACTIVE_RETRIES, bound=2)]
    alice.pass_time(10_000, answer=False)
    assert len(retries(alice)) == 2
    alice.answer(*alice.unanswered)
    alice.pass_time(1_000, answer=False)
    assert len(retries(alice)) == 4
    alice.pass_time(1_000)
    assert len({retry.sds_id for retry in retries(alice)}) == len(retries(alice)) == 5
    assert len(alice.events(LimitReached)) == 1
    alice.check_rows()


def test_a_retry_that_waits_for_others_is_no_attempt(peer):
    alice = send_five(peer)
    alice.pass_time(360_000)
    assert len(retries(alice)) == 5 * 10
    assert len(alice.events(DeliveryError)) == 5


def test_the_bound_of_retries_is_announced_again_when_it_is_reached_anew(peer):
    alice = send_five(peer, ReliableChannelOptions(sync_min_interval_ms=0, advanced=Advanced(max_active_retries=4)))
    alice.pass_time(40_000)
    assert len(alice.events(LimitReached)) == 1
    alice.pass_time(30_000)
    assert len(alice.events(LimitReached)) == 2


def test_retries_go_on_with_a_node_that_never_answers(peer):
    alice = send_five(peer)
    alice.pass_time(3_600_000, answer=False)
    # What the node does not answer is offered again, and is no attempt: nothing is given up that may not have left.
    assert not alice.events(DeliveryError)
    assert len(retries(alice)) > 50
    alice.pass_time(3_600_000)
    assert len(alice.events(DeliveryError)) == 5


def test_retries_that_the_rate_limit_holds_count_too(peer):
    limited = ReliableChannelOptions(
        sync_min_interval_ms=0,
        advanced=Advanced(max_active_retries=2),
        rate_limit=RateLimitConfig(enabled=True, messages_per_epoch=5, approached_threshold=1.0),
    )
    alice = peer("alice", limited, now_ms=1_760_000_000_000 // 600_000 * 600_000)
    for number in range(5):
        alice.send(b"number %d" % number)
    alice.pass_time(300_000)
    assert alice.stack.statistics().queued == 2
    assert retries(alice) == []
    assert alice.events(LimitReached) == [LimitReached(limit=Limit.ACTIVE_RETRIES, bound=2)]
    alice.pass_time(600_000)
    assert retries(alice), "in the next epoch"
    assert alice.stack.statistics().queued <= 2


def test_retries_that_wait_for_others_write_nothing_and_leave_once_each(peer):
    options = ReliableChannelOptions(sync_min_interval_ms=0, advanced=Advanced(max_active_retries=1))
    alice = send_five(peer, options)
    alice.answer()
    alice.pass_time(30_001, answer=False)
    assert not [effect for effect in alice.pass_time(29_000, answer=False) if isinstance(effect, Persist)]
    alice.pass_time(1_000)
    sent_again = sorted(retry.sds_id for retry in retries(alice))
    assert sent_again == sorted(publication.sds_id for publication in alice.content())
    assert alice.events(LimitReached) == [LimitReached(limit=Limit.ACTIVE_RETRIES, bound=1)]


class MoodyCipher:
    """Encrypts while it is in the mood."""

    waku_version = 0
    willing = True

    def encrypt(self, plaintext):
        if not self.willing:
            raise RuntimeError("no key")
        return plaintext

    def decrypt(self, ciphertext):
        return ciphertext


def test_a_retry_that_cannot_be_encrypted_does_not_block_others(peer):
    cipher = MoodyCipher()
    alice = send_five(peer, encryption=cipher)
    cipher.willing = False
    alice.pass_time(31_000)
    assert not retries(alice)
    cipher.willing = True
    alice.pass_time(60_000)
    assert {retry.sds_id for retry in retries(alice)} == {publication.sds_id for publication in alice.content()}


@pytest.mark.parametrize("bound", [1, 2, 10])
def test_a_message_that_cites_too_many_missing_ones_is_refused_with_an_event_and_taken_later(peer, bound):
    options = ReliableChannelOptions(
        advanced=Advanced(max_missing=bound), sync_min_interval_ms=0, sds=SdsConfig(lost_timeout_ms=0)
    )
    alice = peer("alice", options)
    bob = peer("bob", ReliableChannelOptions(sds=SdsConfig(causal_history_size=4)))
    for number in range(5):
        bob.send(b"number %d" % number)
    *missed, last = bob.content()
    alice.receive(last)
    expected = [LimitReached(limit=Limit.MISSING_MESSAGES, bound=bound)] if bound < 4 else []
    assert alice.events(LimitReached) == expected
    alice.pass_time(20_000)
    assert alice.events(LimitReached) == expected
    statistics = alice.stack.statistics()
    assert (statistics.missing, statistics.no_room) == ((0, 1) if bound < 4 else (4, 0))
    alice.receive(*missed, last)
    assert alice.payloads() == [b"number %d" % number for number in range(5)], "when it comes again it is taken in"
    assert alice.stack.statistics().missing == 0
    for number in range(5):
        bob.send(b"later %d" % number)
    alice.receive(bob.content()[-1])
    assert alice.events(LimitReached) == expected * 2


def test_a_sender_of_many_unfinished_messages_leaves_room_for_other_senders(peer):
    segmentation = SegmentationConfig(
        segment_size_bytes=512,
        max_buffered_bytes=64 * 1_536,
    )
    options = ReliableChannelOptions(sync_min_interval_ms=0, segmentation=segmentation)
    bob, carol = peer("bob", options), peer("carol", options)
    for number in range(300):
        mallory = peer(f"mallory-{number % 5}", options)
        mallory.send(number.to_bytes(2, "big") * 1_000)
        begun = mallory.content()[0]
        bob.receive(begun)
    assert bob.stack.statistics().reassembly.open_segments == 5 * 4
    assert bob.events(LimitReached) == [LimitReached(limit=Limit.SEGMENT_BYTES_OF_SENDER, bound=8 * 1_536)]
    assert not bob.stack.was_turned_away(begun.message_hash)

    for number in range(3):
        carol.send(bytes([number]) * 2_000)
    segments = carol.content()
    bob.receive(*segments)
    assert bob.payloads() == [bytes([number]) * 2_000 for number in range(3)]


def test_a_waiting_segment_without_room_is_read_from_a_store_again(peer):
    options = ReliableChannelOptions(
        sync_min_interval_ms=0, segmentation=SegmentationConfig(segment_size_bytes=512, max_buffered_bytes=32 * 1_536)
    )
    alice, bob = peer("alice", options), peer("bob", options)
    for number in range(3):
        alice.send(bytes([number]) * 2_000)
    messages = alice.content()
    size = len(messages) // 3
    bob.receive(*messages[size : size + 2], messages[2 * size])
    assert bob.stack.was_turned_away(messages[2 * size].message_hash)
