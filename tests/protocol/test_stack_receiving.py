"""Receiving: whatever comes is counted or delivered, and never raised."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from examples import examples
from fairway.events import (
    Event,
    ForeignMessages,
    MessageReceived,
    MessagesUndecryptable,
    OrderKey,
)
from fairway.options import (
    Delivery,
    Profile,
    ReliableChannelOptions,
    SdsConfig,
    SegmentationConfig,
)
from fairway.protocol.encryption import AesGcm
from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.segment import WAKU_SEGMENTS, Segment
from fairway.wire.waku_message import WakuMessage

LOGOS = ReliableChannelOptions(profile=Profile.LOGOS)
TINY = ReliableChannelOptions(
    segmentation=SegmentationConfig(segment_size_bytes=64),
    sds=SdsConfig(max_incoming_buffer=20, bloom_capacity=100),
)
FILE = bytes(range(256)) * 2

quick = examples(0.3)

entries = st.builds(
    HistoryEntry,
    st.sampled_from(["", "a", "b", "c", "sync-1"]) | st.text(max_size=8),
    st.none() | st.binary(max_size=40),
    st.none() | st.sampled_from(["alice", "bob", "mallory", ""]),
)
sds_messages = st.builds(
    SdsMessage,
    message_id=st.sampled_from(["", "a", "b", "c", "d"]) | st.text(max_size=8),
    sender_id=st.sampled_from(["alice", "bob", "mallory", ""]),
    channel_id=st.sampled_from(["harbour", "harbour", "harbour", "elsewhere"]),
    lamport_timestamp=st.none() | st.integers(0, 2**64 - 1),
    causal_history=st.lists(entries, max_size=5).map(tuple),
    bloom_filter=st.none() | st.binary(max_size=64) | st.just(b"\xff" * 18_752),
    repair_request=st.lists(entries, max_size=4).map(tuple),
    content=st.none()
    | st.binary(max_size=100)
    | st.builds(
        lambda index, count, parity, payload: WAKU_SEGMENTS.encode(
            Segment(
                payload_hash=bytes(32),
                index=index,
                data_count=count,
                parity_count=count,
                is_parity=parity,
                payload=payload,
                payload_length=None,
            )
        ),
        st.integers(0, 3),
        st.integers(2, 4),
        st.booleans(),
        st.binary(max_size=64),
    ),
)


def wrap(peer, message, topic="/fairway/1/harbour/proto", **fields):
    return WakuMessage(payload=peer.stack.sds.profile.codec.encode(message), content_topic=topic, **fields)


def counts(peer):
    statistics = dataclasses.asdict(peer.stack.statistics())
    return {name: count for name, count in statistics.items() if isinstance(count, int) and count}


def test_a_message_arrives_with_everything_that_is_known_of_it(peer, topic):
    alice, bob = peer("alice"), peer("bob")
    accepted = alice.send(b"hello")
    bob.receive(*alice.content())
    [event] = bob.events(MessageReceived)
    publication = alice.content()[0]
    assert event == MessageReceived(
        message_id=accepted.message_id,
        sender_id="alice",
        channel_id="harbour",
        content_topic=topic,
        pubsub_topic=publication.pubsub_topic,
        payload=b"hello",
        timestamp_ns=publication.message.timestamp_ns,
        message_hashes=(publication.message_hash,),
        sds_ids=(publication.sds_id,),
        order_key=OrderKey(alice.stack.sds.lamport, publication.sds_id),
    )
    assert bytes(event) == b"hello"


def test_what_is_not_for_this_channel_is_counted_and_nothing_else(peer, topic):
    bob = peer("bob")
    encrypted = WakuMessage(payload=b"x", content_topic=topic, version=1)
    foreign = SdsMessage(message_id="m", sender_id="a", channel_id="elsewhere", lamport_timestamp=1, content=b"x")
    other = wrap(bob, foreign)
    for message in (
        WakuMessage(payload=b"x", content_topic="/fairway/1/elsewhere/proto"),
        WakuMessage(payload=bytes(1_048_577), content_topic=topic),
        encrypted,
        WakuMessage(payload=b"\xff\xff", content_topic=topic),
        WakuMessage(payload=b"", content_topic=topic),
        WakuMessage(payload=b"x", content_topic=topic, timestamp_ns=1 << 64),
        other,
    ):
        told: list[Event] = [MessagesUndecryptable(count=1, opened=0)] if message is encrypted else []
        told += [ForeignMessages(count=1, channel_id="elsewhere")] if message is other else []
        assert [effect.event for effect in bob.receive(message)] == told
    assert counts(bob) == {
        "received": 4,
        "foreign_topic": 1,
        "oversized": 1,
        "undecryptable": 1,
        "undecodable": 3,
        "foreign_channel": 1,
    }


def test_what_was_encrypted_with_another_key_is_counted_and_its_count_is_told(peer):
    ours, theirs = AesGcm(bytes(32)), AesGcm(b"\1" * 32)
    alice, bob, mallory = (
        peer(name, encryption=key) for name, key in (("alice", ours), ("bob", ours), ("mallory", theirs))
    )
    mallory.send(b"forged")
    bob.receive(*mallory.content())
    assert bob.events() == [MessagesUndecryptable(count=1, opened=0)]
    assert counts(bob) == {"received": 1, "undecryptable": 1}
    alice.send(b"hello")
    bob.receive(*alice.content())
    assert bob.payloads() == [b"hello"]


def test_on_the_logos_wire_a_message_without_the_marker_is_counted(peer):
    alice, bob = peer("alice", LOGOS), peer("bob", LOGOS)
    alice.send(b"hello")
    message = alice.content()[0].message
    marker = Profile.LOGOS.marker or b""
    for meta in (None, b"", marker[:-1]):
        assert bob.receive(structs.replace(message, meta=meta)) == []
    assert counts(bob) == {"unmarked": 3}
    bob.receive(message)
    assert bob.payloads() == [b"hello"]


@pytest.mark.parametrize("options", [TINY, LOGOS], ids=["waku", "logos"])
@quick
@given(
    messages=st.lists(
        st.builds(
            WakuMessage,
            payload=st.binary(max_size=300),
            content_topic=st.just("/fairway/1/harbour/proto") | st.text(max_size=20),
            version=st.none() | st.integers(0, 2),
            timestamp_ns=st.none() | st.integers(-(2**65), 2**65),
            meta=st.none() | st.just(Profile.LOGOS.marker) | st.binary(max_size=10),
            rate_limit_proof=st.none() | st.binary(max_size=10),
            ephemeral=st.none() | st.booleans(),
        ),
        max_size=10,
    )
)
def test_no_message_whatever_makes_the_stack_raise(peer, options, messages):
    bob = peer("bob", options)
    bob.receive(*messages)
    assert all(isinstance(event, MessagesUndecryptable | ForeignMessages) for event in bob.events())
    bob.check_rows()


@pytest.mark.parametrize("delivery", Delivery)
@quick
@given(
    messages=st.lists(
        st.tuples(
            sds_messages,
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.sampled_from([1, 5_000, 4_000_000]),
        ),
        max_size=30,
    )
)
def test_no_sds_message_whatever_makes_the_stack_raise_or_grow_without_bounds(peer, delivery, messages):
    bob = peer("bob", dataclasses.replace(TINY, delivery=delivery))
    bob.send(b"own")
    for message, timestamp_ns, pause_ms in messages:
        bob.receive(wrap(bob, message, timestamp_ns=timestamp_ns))
        if pause_ms is not None:
            bob.pass_time(pause_ms)
    bob.check_rows()
    statistics = bob.stack.statistics()
    assert statistics.parked <= 20
    assert statistics.reassembly.open_sets <= 4 * 4
    again = bob.restart()
    again.pass_time(4_000_000)
    again.check_rows()


def test_a_whole_message_under_the_id_of_a_segment_leaves_no_row_behind(peer):
    bob = peer("bob", TINY)
    segment = Segment(
        payload_hash=bytes(32),
        index=0,
        data_count=3,
        parity_count=3,
        is_parity=False,
        payload=b"one of three",
        payload_length=None,
    )
    for sender_id, content in (("alice", WAKU_SEGMENTS.encode(segment)), ("mallory", b"whole")):
        message = SdsMessage(
            message_id="opaque",
            sender_id=sender_id,
            channel_id="harbour",
            lamport_timestamp=203,
            causal_history=(),
            bloom_filter=None,
            repair_request=(),
            content=content,
        )
        bob.receive(wrap(bob, message))
        bob.check_rows()
    assert [event.payload for event in bob.events(MessageReceived)] == [b"whole"]


@quick
@given(data=st.data())
def test_damaged_messages_are_dropped_or_harmless_and_undamaged_ones_get_through(peer, data):
    alice, bob = peer("alice", TINY), peer("bob", TINY)
    alice.send(FILE)
    alice.send(b"hello")
    for publication in alice.content():
        payload = bytearray(publication.message.payload)
        for _ in range(data.draw(st.integers(1, 3))):
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(payload)))
        for damaged in (bytes(payload), bytes(payload[:cut])):
            bob.receive(structs.replace(publication.message, payload=damaged))
    bob.check_rows()


def test_own_messages_of_a_life_that_was_forgotten_are_not_delivered_but_cited(peer):
    alice = peer("alice")
    alice.send(b"hello")
    reborn = peer("alice", life=1)
    reborn.receive(*alice.content())
    assert not reborn.events(MessageReceived)
    reborn.send(b"again")
    cited = reborn.sds(reborn.content()[0]).causal_history
    assert [entry.message_id for entry in cited] == [alice.content()[0].sds_id]
