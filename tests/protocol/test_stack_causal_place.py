"""Received messages take their causal place: what waits for what, what is lost, what survives."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec import structs

from fairway.events import (
    IrretrievableMessage,
    Limit,
    LimitReached,
    LossReason,
    MessageReceived,
    StatusChanged,
)
from fairway.options import (
    Delivery,
    Profile,
    ReliableChannelOptions,
    RepairConfig,
    SdsConfig,
    SegmentationConfig,
)
from fairway.protocol.effects import Purpose
from fairway.wire.sds import HistoryEntry
from fairway.wire.waku_message import WakuMessage

LOGOS = ReliableChannelOptions(profile=Profile.LOGOS)
TINY = ReliableChannelOptions(
    segmentation=SegmentationConfig(segment_size_bytes=64),
    sds=SdsConfig(max_incoming_buffer=20, bloom_capacity=100),
)
FILE = bytes(range(256)) * 2


def wrap(peer, message, topic="/fairway/1/harbour/proto", **fields):
    return WakuMessage(payload=peer.stack.sds.profile.codec.encode(message), content_topic=topic, **fields)


def counts(peer):
    statistics = dataclasses.asdict(peer.stack.statistics())
    return {name: count for name, count in statistics.items() if isinstance(count, int) and count}


def test_what_is_missing_shows_in_the_status_until_it_came(peer):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"one")
    alice.send(b"two")
    bob.receive(alice.content()[1])
    bob.receive(alice.content()[0])
    assert [event.status.value for event in bob.events(StatusChanged)] == ["syncing", "synced"]


def test_a_lost_dependency_is_announced_and_then_its_dependants_are_delivered_in_order(peer):
    alice, bob = peer("alice"), peer("bob")
    for payload in (b"lost", b"two", b"three"):
        alice.send(payload)
    bob.receive(*alice.content()[1:])
    bob.pass_time(3_600_000)
    assert not bob.payloads()
    bob.pass_time(10_000)
    events = bob.events(IrretrievableMessage, MessageReceived)
    assert events[0] == IrretrievableMessage(
        message_id=alice.content()[0].sds_id,
        reason=LossReason.TIMEOUT,
        sender_id="alice",
        retrieval_hint=alice.content()[0].message_hash,
    )
    assert [(event.payload, event.dependencies_met) for event in events[1:]] == [(b"two", False), (b"three", False)]
    # It is late then, but it is not thrown away.
    bob.receive(alice.content()[0])
    assert bob.payloads() == [b"two", b"three", b"lost"]


def test_what_cites_a_part_of_a_message_that_lacks_what_was_lost_says_so(peer):
    alice, bob, carol = peer("alice", TINY), peer("bob", TINY), peer("carol", TINY)
    alice.send(b"lost")
    alice.send(FILE)
    lost, *segments = alice.content()
    carol.receive(lost, *segments[:4])
    carol.send(b"reply")
    bob.receive(*segments[:4])
    bob.pass_time(3_610_000)
    assert bob.events(IrretrievableMessage)
    bob.receive(*carol.content())
    assert [(event.payload, event.dependencies_met) for event in bob.events(MessageReceived)] == [(b"reply", False)]


def test_a_segmented_message_whose_dependency_was_lost_says_so_whenever_it_completes(peer):
    alice, bob = peer("alice", TINY), peer("bob", TINY)
    alice.send(b"lost")
    alice.send(FILE)
    segments = alice.content()[1:]
    bob.receive(*segments[:4])
    bob.pass_time(3_610_000)
    assert bob.events(IrretrievableMessage)
    bob.receive(*segments[4:])
    assert [(event.payload, event.dependencies_met) for event in bob.events(MessageReceived)] == [(FILE, False)]


def test_nothing_is_declared_lost_while_the_node_is_offline(peer):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"one")
    alice.send(b"two")
    bob.receive(alice.content()[1])
    bob.connect(False)
    bob.pass_time(86_400_000)
    bob.tick()
    bob.connect()
    bob.pass_time(60_000)
    assert not bob.events(IrretrievableMessage)
    bob.receive(alice.content()[0])
    assert bob.payloads() == [b"one", b"two"]


def test_nothing_is_declared_lost_because_of_the_time_between_two_lives(peer):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"one")
    alice.send(b"two")
    bob.receive(alice.content()[1])
    bob.now_ms += 86_400_000
    bob = bob.restart()
    bob.pass_time(60_000)
    assert not bob.events(IrretrievableMessage)
    bob.receive(alice.content()[0])
    assert bob.payloads() == [b"one", b"two"]


def test_parked_and_half_assembled_messages_survive_a_restart_and_are_delivered_once(peer):
    alice, bob = peer("alice", TINY), peer("bob", TINY)
    alice.send(b"late")
    alice.send(FILE)
    alice.send(b"after")
    late, *segments, after = alice.content()
    for part in (segments[5:], [after], segments[:2]):
        bob.receive(*part)
        bob.check_rows()
        bob = bob.restart()
    bob.receive(segments[3], *segments)
    bob.check_rows()
    bob = bob.restart()
    assert bob.payloads() == []
    bob.receive(late)
    assert bob.payloads() == [b"late", FILE, b"after"]
    bob.check_rows()
    bob = bob.restart()
    bob.receive(late, *segments, after)
    assert bob.payloads() == []


def test_with_delivery_on_arrival_messages_come_at_once_each_once_with_their_status(peer):
    options = dataclasses.replace(TINY, delivery=Delivery.ARRIVAL)
    alice, bob = peer("alice", TINY), peer("bob", options)
    alice.send(b"one")
    alice.send(b"two")
    alice.send(FILE)
    one, two, *segments = alice.content()
    bob.receive(two, *segments, one, two, *segments)
    assert [(event.payload, event.dependencies_met) for event in bob.events(MessageReceived)] == [
        (b"two", False),
        (FILE, False),
        (b"one", True),
    ]
    bob.check_rows()


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("last", [b"three", FILE], ids=["in one segment", "in several"])
def test_with_delivery_on_arrival_a_message_after_a_loss_says_so(peer, profile, last):
    options = ReliableChannelOptions(profile=profile, segmentation=SegmentationConfig(segment_size_bytes=192))
    alice, bob = peer("alice", options), peer("bob", dataclasses.replace(options, delivery=Delivery.ARRIVAL))
    for payload in (b"lost", b"two", last):
        alice.send(payload)
    _, two, *rest = alice.content()
    bob.receive(two)
    bob.pass_time(3_610_000)
    bob.receive(*rest)
    assert [(event.payload, event.dependencies_met) for event in bob.events(MessageReceived)] == [
        (b"two", False),
        (last, False),
    ]


KNOWN = b"known to all"


def message_known_to(bob, author):
    """Return the id of a message that bob has received; what cites it waits for nothing."""
    author.send(KNOWN)
    bob.receive(*author.content())
    return author.sds(author.content()[0]).message_id


def test_what_waits_for_its_causal_place_is_bounded_and_what_finds_no_room_comes_again(peer):
    options = ReliableChannelOptions(
        segmentation=SegmentationConfig(segment_size_bytes=6_400, parity_rate=0, max_buffered_bytes=120_000)
    )
    bob = peer("bob", options)
    known = (HistoryEntry(message_known_to(bob, peer("carol", options))),)
    payloads, wrapped = [], []
    for number in range(8):
        mallory = peer(f"mallory {number}", options)
        payloads.append(bytes([number]) * 16_000)
        mallory.send(payloads[-1])
        # Only the first segment is parked, so that little of the message counts against the incoming buffer.
        never = (HistoryEntry(f"never sent {number}"),)
        wrapped.append(
            [
                wrap(bob, structs.replace(mallory.sds(segment), causal_history=known if place else never))
                for place, segment in enumerate(mallory.content())
            ]
        )
        bob.receive(*wrapped[-1])
        bob.check_rows()
    assert set(bob.events(LimitReached)) == {LimitReached(limit=Limit.SEGMENT_BYTES, bound=120_000)}
    assert bob.payloads() == [KNOWN]
    waiting = bob.stack.statistics().reassembly.messages_completed
    assert 0 < waiting < 8
    bob = bob.restart()
    bob.pass_time(3_610_000)
    assert bob.payloads() == payloads[:waiting]
    for segments in wrapped:
        bob.receive(*segments)
    bob.pass_time(3_610_000)
    assert bob.payloads() == payloads
    assert bob.stack.statistics().awaiting_bytes == 0


def test_what_a_segment_cites_for_which_there_is_no_room_is_asked_for(peer):
    """It finds room once that has come, and maybe nobody else cites it."""
    options = ReliableChannelOptions(
        segmentation=SegmentationConfig(segment_size_bytes=1_000, parity_rate=0, max_buffered_bytes=33_000)
    )
    alice, bob = peer("alice", options), peer("bob", options)
    known = (HistoryEntry(message_known_to(bob, peer("carol", options))),)
    for number in range(25):
        mallory = peer(f"mallory {number}", options)
        mallory.send(bytes([number]) * 3_000)
        bob.receive(wrap(bob, structs.replace(mallory.sds(mallory.content()[0]), causal_history=known)))
    payloads = [bytes(range(250)) * 16, b"after"]
    for payload in payloads:
        alice.send(payload)
    *segments, after = alice.content()
    bob.receive(after)
    assert bob.stack.sds.missing.keys() == {alice.sds(s).message_id for s in segments[2:]}
    bob.receive(segments[3])
    assert set(bob.events(LimitReached)) == {LimitReached(limit=Limit.SEGMENT_BYTES, bound=33_000)}
    assert bob.stack.sds.missing.keys() == {alice.sds(s).message_id for s in segments[1:]}
    bob.check_rows()
    # Alice's first segment cites nothing: it has this room once another one cites it.
    bob.receive(*segments, *segments)
    assert bob.payloads()[1:] == payloads, "what lacks nothing finds room"


def test_without_repair_nobody_asks_and_nobody_answers(peer):
    quiet = ReliableChannelOptions(sds=SdsConfig(repair=RepairConfig(enabled=False)))
    alice, bob, carol = peer("alice"), peer("bob", quiet), peer("carol")
    alice.send(b"one")
    alice.send(b"two")
    carol.send(b"hello")
    bob.receive(alice.content()[1], *carol.content())
    bob.pass_time(500_000)
    assert bob.published(Purpose.SYNC)
    assert not any(bob.sds(p).repair_request for p in bob.published(Purpose.SYNC))
