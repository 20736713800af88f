"""Segmented messages between participants: whoever is named as having one has it, whatever is lost or forged."""

from __future__ import annotations

import dataclasses
import hashlib
import random

import pytest
from msgspec import structs

from fairway.events import (
    DeliveryError,
    IrretrievableMessage,
    LossReason,
    MessageDelivered,
    MessageReceived,
)
from fairway.options import BloomPolicy, Profile, RateLimitConfig, ReliableChannelOptions
from fairway.protocol.effects import Publish
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS

HOUR_MS = 3_600_000


class Link:
    """Participants on one network that loses some of what they send."""

    def __init__(self, *peers, loss=0.0, seed=0, change=None, published=True):
        """Carry everything that peers publish from now on, and, if ``published``, what they have published before."""
        self.peers, self.loss, self.chance = peers, loss, random.Random(seed)
        self.change = change or (lambda _, message: message)
        self.looked_at = {peer.name: 0 if published else len(peer.effects) for peer in peers}

    def carry(self):
        """Take what was published to everybody else, and what they publish because of it."""
        going = True
        while going:
            going = False
            for peer in self.peers:
                news = peer.effects[self.looked_at[peer.name] :]
                self.looked_at[peer.name] = len(peer.effects)
                for publication in news:
                    if not isinstance(publication, Publish):
                        continue
                    going = True
                    peer.answer(publication)
                    message = self.change(peer, publication.message)
                    for other in self.peers:
                        if other is not peer and self.chance.random() >= self.loss:
                            other.receive(message)

    def pass_time(self, for_ms):
        now_ms = self.peers[0].now_ms
        end_ms = now_ms + for_ms
        self.carry()
        while True:
            due = [(at, peer) for peer in self.peers if (at := peer.stack.next_deadline()) is not None]
            at_ms = min((at for at, _ in due), default=end_ms + 1)
            if at_ms > end_ms:
                break
            now_ms = max(now_ms, at_ms)
            for peer in self.peers:
                peer.now_ms = now_ms
            for at, peer in due:
                if at <= now_ms:
                    peer.tick()
            self.carry()
        for peer in self.peers:
            peer.now_ms = end_ms


def options_of(profile=Profile.WAKU, **segmentation):
    segmentation = {"segment_size_bytes": 1_024, **segmentation}
    base = ReliableChannelOptions.logos() if profile is Profile.LOGOS else ReliableChannelOptions()
    return dataclasses.replace(
        base,
        max_retry_attempts=40,
        retry_interval_ms=30_000,
        segmentation=dataclasses.replace(base.segmentation, **segmentation),
    )


def told_delivered(peer, to):
    return [event.message_id for event in peer.events(MessageDelivered) if to in event.delivered_to]


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize(
    "bounds",
    [
        {"max_buffered_bytes": 8 * 12_000},
        pytest.param({}, marks=pytest.mark.full),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_a_burst_of_segmented_messages_is_received_whole_and_only_then_said_to_be_delivered(
    peer, profile, bounds, seed
):
    options = options_of(profile, **bounds)
    alice, bob = peer("alice", options), peer("bob", options)
    link = Link(alice, bob, loss=0.3, seed=seed)
    accepted = []
    for number in range(40):
        accepted.append(alice.send(random.Random(number).randbytes(2_500)).message_id)
        link.carry()
        assert set(told_delivered(alice, "bob")) <= {event.message_id for event in bob.events(MessageReceived)}
    link.pass_time(HOUR_MS)
    received = [event.message_id for event in bob.events(MessageReceived)]
    assert received == accepted
    assert sorted(told_delivered(alice, "bob")) == sorted(accepted)
    assert bob.events(IrretrievableMessage) == []
    assert bob.stack.statistics().reassembly.sets_evicted == 0


def corrupted(message, peer, segment_format, *, index, sds_id=None):
    """Return a WakuMessage whose data segment of this index says something else; others as they are."""
    sds = peer.stack.sds.profile.codec.decode(message.payload)
    if not sds.content or not segment_format.is_segment(sds.content):
        return message
    segment = segment_format.decode(sds.content)
    if segment.is_parity or segment.index != index:
        return message
    wrong = segment_format.encode(dataclasses.replace(segment, payload=bytes(len(segment.payload))))
    changed = structs.replace(sds, content=wrong, message_id=sds_id or sds.message_id)
    return structs.replace(message, payload=peer.stack.sds.profile.codec.encode(changed))


@pytest.mark.parametrize("profile", Profile)
def test_who_only_gets_damaged_segments_is_told_and_is_never_said_to_have_the_message(peer, profile):
    options = options_of(profile, parity_rate=0.0)
    segment_format = LIP_243 if profile is Profile.LOGOS else WAKU_SEGMENTS
    alice, bob = peer("alice", options), peer("bob", options)
    alice.send(random.Random(2).randbytes(3_500))
    link = Link(alice, bob, change=lambda who, message: corrupted(message, who, segment_format, index=1))
    link.pass_time(2 * HOUR_MS)
    bob.send(b"nothing yet?")
    link.pass_time(25 * HOUR_MS)
    [lost] = [event for event in bob.events(IrretrievableMessage) if event.payload_hash is not None]
    assert lost.reason is LossReason.HASH_MISMATCH
    assert lost.sender_id == "alice"
    assert lost.message_id == lost.sds_ids[0]
    assert bob.payloads() == []
    assert told_delivered(alice, "bob") == []
    assert len(alice.events(DeliveryError)) == 1


def test_what_comes_of_a_message_that_was_given_up_is_not_acknowledged(peer):
    options = options_of(parity_rate=0.0, reassembly_timeout_ms=60_000)
    alice, bob = peer("alice", options), peer("bob", options)
    alice.send(random.Random(3).randbytes(1_500))
    first, last = alice.content()
    alice.answer()
    bob.receive(first)
    bob.pass_time(60_000)
    assert [event.reason for event in bob.events(IrretrievableMessage)] == [LossReason.SEGMENTS_EXPIRED]
    bob.receive(last)
    bob = bob.restart()
    bob.receive(last)
    bob.send(b"I am")
    alice.receive(*bob.content())
    assert told_delivered(alice, "bob") == []


def test_nothing_waits_long_for_the_rest_of_a_message_that_was_given_up(peer):
    options = options_of(parity_rate=0.0, reassembly_timeout_ms=60_000)
    alice, bob = peer("alice", options), peer("bob", options)
    alice.send(FOUR_SEGMENTS)
    alice.send(b"and now?")
    alice.answer()
    *first, third, last, reply = alice.content()
    bob.receive(*first)
    bob.pass_time(60_001)
    bob.receive(reply)
    for _ in range(3):
        # It is asked for again and again, for the reply cites it, and never becomes whole.
        bob.receive(third, last)
        bob.pass_time(40_000)
    assert bob.payloads() == [b"and now?"]
    assert bob.stack.statistics().missing == 0
    assert len(bob.events(IrretrievableMessage)) == 1, "and it was told so before"
    bob.check_rows()
    bob.send(b"nothing of it")
    alice.receive(*bob.content())
    assert told_delivered(alice, "bob") == [hashlib.sha256(b"and now?").hexdigest()]


def test_the_rest_of_a_message_that_was_given_up_is_waited_for_until_all_is_here_that_it_cites(peer):
    options = options_of(parity_rate=0.0, reassembly_timeout_ms=60_000)
    alice, bob = peer("alice", options), peer("bob", options)
    alice.send(FOUR_SEGMENTS)
    alice.answer()
    parts = alice.content()
    bob.receive(*parts[:2])
    bob.pass_time(60_001)
    alice.send(b"and now?")
    alice.answer()
    *_, reply = alice.content()
    bob.receive(reply)
    bob.receive(parts[3])
    assert bob.payloads() == [], "what was sent before it may have been sent before the reply, too"
    bob.receive(parts[2], parts[3])
    assert bob.payloads() == [b"and now?"]


FOUR_SEGMENTS = random.Random(3).randbytes(3_500)


def test_nobody_is_said_to_have_a_message_of_which_the_rest_was_sent_after_he_gave_it_up(peer):
    options = options_of(parity_rate=0.0, reassembly_timeout_ms=60_000)
    two_at_a_time = RateLimitConfig(enabled=True, epoch_ms=600_000, messages_per_epoch=2, approached_threshold=1.0)
    alice = peer("alice", dataclasses.replace(options, rate_limit=two_at_a_time, sync_min_interval_ms=0))
    bob = peer("bob", options)
    alice.send(FOUR_SEGMENTS)
    alice.answer()
    bob.receive(*alice.content())
    bob.pass_time(60_001)
    alice.pass_time(600_000)
    assert len(alice.content()) == 4
    bob.now_ms = alice.now_ms
    bob.receive(*alice.content())
    bob.send(b"half of it")
    alice.receive(*bob.content())
    assert bob.payloads() == []
    assert told_delivered(alice, "bob") == []


def test_what_was_given_up_arrives_when_it_is_sent_anew(peer):
    options = options_of(parity_rate=0.0, reassembly_timeout_ms=60_000)
    alice, bob = peer("alice", options), peer("bob", options)
    alice.send(FOUR_SEGMENTS)
    alice.answer()
    bob.receive(*alice.content()[1:3])
    bob.pass_time(60_001)
    alice.pass_time(10_000)
    alice.send(FOUR_SEGMENTS)
    alice.answer()
    bob.receive(*alice.content()[:3:-1])
    bob.receive(*alice.content())
    bob.pass_time(HOUR_MS + 60_000)
    assert bob.payloads() == [FOUR_SEGMENTS]


def test_two_participants_with_a_half_each_are_not_said_to_have_a_message(peer):
    options = options_of(parity_rate=0.0)
    # Without filters who cites the last one vouches for the first: nobody has it whole without the first.
    options = dataclasses.replace(options, sds=dataclasses.replace(options.sds, bloom_policy=BloomPolicy.ALWAYS))
    alice, bob, carol = peer("alice", options), peer("bob", options), peer("carol", options)
    alice.send(random.Random(4).randbytes(1_500))
    first, last = alice.content()
    alice.answer()
    bob.receive(first)
    carol.receive(structs.replace(last.message, payload=without_history(carol, last)))
    bob.send(b"a half")
    carol.send(b"another")
    alice.receive(*bob.content(), *carol.content())
    assert alice.events(MessageDelivered) == []
    bob.answer()
    carol.answer()
    Link(alice, bob, carol, published=False).pass_time(120_000)
    assert alice.events(MessageDelivered)


def without_history(peer, publication):
    sds = peer.sds(publication)
    return peer.stack.sds.profile.codec.encode(structs.replace(sds, causal_history=()))


def test_what_comes_in_part_is_given_up_after_enough_time_in_short_lives(peer):
    options = options_of(parity_rate=0.0, reassembly_timeout_ms=HOUR_MS)
    alice, bob = peer("alice", options), peer("bob", options)
    alice.send(random.Random(6).randbytes(1_500))
    bob.receive(alice.content()[0])
    lost = []
    for _ in range(8):
        bob.pass_time(10 * 60_000)
        lost += bob.events(IrretrievableMessage)
        bob = bob.restart()
    assert [event.reason for event in lost] == [LossReason.SEGMENTS_EXPIRED]
