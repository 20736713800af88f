"""What the segmentation specification demands: payloads in, segments on the wire, payloads out again."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from msgspec import structs

from fairway.errors import MessageTooLargeError
from fairway.events import IrretrievableMessage, MessageDelivered
from fairway.options import ReliableChannelOptions, SegmentationConfig
from fairway.protocol.effects import Purpose
from fairway.wire.hashing import keccak256
from fairway.wire.segment import WAKU_SEGMENTS

HOUR_MS = 3_600_000
SIZE = 1_024
SMALL = ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=SIZE), retry_interval_ms=0)
PAYLOAD = random.Random(7).randbytes(20 * SIZE - 100)


def with_segmentation(**changed) -> ReliableChannelOptions:
    return replace(SMALL, segmentation=replace(SMALL.segmentation, **changed))


def transmitted(room, payload=PAYLOAD, options=SMALL, sender="alice"):
    """Return what somebody transmits for a payload, and the segments in it."""
    member = room.member(sender, options)
    member.send(payload)
    room.settle()
    publications = member.published(Purpose.CONTENT)
    return publications, [WAKU_SEGMENTS.decode(member.sds(publication).content) for publication in publications]


def forged(room, publication, **changed):
    """Return a message whose segment says something else, under an id of its own."""
    sds = room.members["alice"].sds(publication)
    segment = replace(WAKU_SEGMENTS.decode(sds.content), **changed)
    return structs.replace(sds, message_id=f"forged {sds.message_id[:32]}", content=WAKU_SEGMENTS.encode(segment))


# -- Sending ---------------------------------------------------------------------------------------


def test_each_segment_has_the_keccak_of_the_payload(room):
    _, segments = transmitted(room)
    assert {segment.payload_hash for segment in segments} == {keccak256(PAYLOAD)}


def test_data_segments_are_the_payload_cut_into_pieces_of_the_segment_size_at_most(room):
    _, segments = transmitted(room)
    data = [segment for segment in segments if not segment.is_parity]
    assert [(segment.index, segment.data_count) for segment in data] == [(index, 20) for index in range(20)]
    assert all(len(segment.payload) <= SIZE for segment in data)
    assert b"".join(segment.payload for segment in data) == PAYLOAD


def test_no_message_has_more_than_256_segments(room):
    options = with_segmentation(parity_rate=0.125)
    alice = room.member("alice", options)
    with pytest.raises(MessageTooLargeError):
        alice.send(bytes(257 * SIZE))
    _, segments = transmitted(room, bytes(227 * SIZE), options)
    assert 227 < len(segments) <= 256


def test_what_fits_one_segment_travels_unmodified(room):
    alice, bob = room.member("alice", SMALL), room.member("bob", SMALL)
    for payload in (b"x", bytes(SIZE)):
        alice.send(payload)
    room.settle()
    assert [message.content for message in alice.said(Purpose.CONTENT)] == [b"x", bytes(SIZE)]
    assert bob.heard == [("alice", b"x"), ("alice", bytes(SIZE))]


# -- Reed-Solomon ----------------------------------------------------------------------------------


def test_parity_is_an_eighth_in_shards_of_the_segment_size(room):
    _, segments = transmitted(room)
    parity = [segment for segment in segments if segment.is_parity]
    assert parity
    assert len(parity) <= 20 // 8 + 1
    assert {(len(segment.payload), segment.parity_count) for segment in parity} == {(SIZE, len(parity))}


def test_the_last_data_segment_which_is_shorter_can_be_recovered(room):
    publications, _ = transmitted(room)
    bob = room.member("bob", SMALL)
    bob.hear(*publications[:19], *publications[20:])
    assert bob.heard == [("alice", PAYLOAD)]


# -- Receiving -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"payload_hash": bytes(31)},
        {"index": 20},
        {"data_count": 1, "index": 0},
        {"data_count": 257},
        {"is_parity": True, "parity_count": 2, "index": 2, "data_count": 0},
    ],
    ids=", ".join,
)
def test_a_segment_that_breaks_a_rule_is_counted_and_never_delivered(room, wrong):
    publications, _ = transmitted(room)
    bob = room.member("bob", SMALL)
    bob.hear(forged(room, publications[3], **wrong))
    assert bob.heard == []
    assert sum(bob.stack.statistics().reassembly.segments_discarded.values()) == 1
    bob.hear(*publications)
    assert bob.heard == [("alice", PAYLOAD)]


@pytest.mark.parametrize("seed", range(4))
def test_any_segments_as_many_as_there_are_data_segments_give_the_payload_in_whatever_order(room, seed):
    publications, _ = transmitted(room)
    bob = room.member("bob", SMALL)
    bob.hear(*random.Random(seed).sample(publications, 20))
    assert bob.heard == [("alice", PAYLOAD)]


def test_segments_are_kept_until_the_rest_comes_also_over_a_restart(room):
    publications, _ = transmitted(room)
    bob = room.member("bob", SMALL)
    bob.hear(*publications[:12])
    room.wait(HOUR_MS)
    bob.restart()
    bob.hear(*publications[12:20])
    assert bob.heard == [("alice", PAYLOAD)]


def test_fewer_segments_than_data_segments_deliver_nothing(room):
    publications, _ = transmitted(room)
    bob = room.member("bob", SMALL)
    bob.hear(*publications[:19])
    assert bob.heard == []


def test_a_payload_whose_hash_is_wrong_is_never_delivered(room):
    publications, _ = transmitted(room, PAYLOAD[: 5 * SIZE])
    bob = room.member("bob", SMALL)
    bob.hear(*publications[:4], forged(room, publications[4], payload=b"something else"))
    room.silent()
    room.wait(HOUR_MS)
    assert bob.heard == []


def test_the_sender_is_never_told_delivered_by_somebody_who_has_a_wrong_segment(room):
    publications, _ = transmitted(room, PAYLOAD[: 5 * SIZE])
    alice, bob = room.members["alice"], room.member("bob", SMALL)
    bob.hear(*publications[:4], forged(room, publications[4], payload=b"something else"))
    bob.send(b"what do you mean?")
    alice.hear(*bob.published(Purpose.CONTENT))
    assert alice.events(MessageDelivered) == []


def test_an_incomplete_message_is_given_up_after_a_time_and_that_is_told(room):
    options = with_segmentation(reassembly_timeout_ms=HOUR_MS)
    publications, _ = transmitted(room, options=options)
    bob = room.member("bob", options)
    bob.hear(*publications[:12])
    room.silent()
    room.wait(2 * HOUR_MS)
    assert bob.events(IrretrievableMessage)
    assert bob.heard == []


# -- Storage / Persistence, Denial of Service ------------------------------------------------------


def test_copies_of_segments_change_nothing_and_what_comes_after_completion_delivers_nothing(room):
    publications, _ = transmitted(room)
    bob = room.member("bob", SMALL)
    bob.hear(*publications, *publications)
    bob.restart()
    bob.hear(*publications)
    assert bob.heard == [("alice", PAYLOAD)]


def test_what_one_sender_makes_others_keep_is_bounded_and_costs_nobody_else_his_message(room):
    options = with_segmentation(max_buffered_bytes=8 * 64 * SIZE)
    publications, _ = transmitted(room, options=options)
    bob = room.member("bob", options)
    mallory = room.member("mallory", options)
    bob.hear(*publications[:10])
    for number in range(20):
        mallory.send(random.Random(number).randbytes(10 * SIZE))
    room.settle()
    flood = mallory.published(Purpose.CONTENT)
    bob.hear(
        *[publication for publication in flood if WAKU_SEGMENTS.decode(mallory.sds(publication).content).index < 8]
    )
    held = bob.stack.statistics().reassembly
    assert held.buffered_bytes <= 64 * SIZE + 10 * SIZE
    bob.hear(*publications[10:20])
    assert ("alice", PAYLOAD) in bob.heard
