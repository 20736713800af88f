"""What js-waku, nim-sds and logos-delivery do wrong, each fault by name, and that fairway does not."""

from __future__ import annotations

import dataclasses

from msgspec import structs

from fairway.events import (
    DeliveryError,
    IrretrievableMessage,
    MessageAcknowledged,
    MessageDelivered,
    MessagePossiblyAcknowledged,
    MessageReceived,
    MessageSendError,
    MessageSent,
    RequestSent,
)
from fairway.options import (
    BloomPolicy,
    Profile,
    RateLimitConfig,
    ReliableChannelOptions,
    RepairConfig,
    SdsConfig,
    SegmentationConfig,
)
from fairway.protocol.effects import Purpose
from fairway.wire.waku_message import decode_waku_message, message_hash

LOGOS = ReliableChannelOptions(profile=Profile.LOGOS)


def test_js_a_send_that_failed_does_not_count_as_sent(peer):
    alice = peer()
    alice.send(b"hello")
    alice.answer(accepted=False)
    assert not alice.events(MessageSent, RequestSent)


def test_js_an_irrecoverable_error_is_told_once_and_ends_the_retries(peer):
    alice = peer()
    alice.send(b"hello")
    alice.answer(accepted=False, permanent=True)
    alice.pass_time(3_600_000)
    assert len(alice.events(MessageSendError)) == 1
    assert not alice.published(Purpose.RETRY)


def test_js_messages_sent_back_to_back_know_of_each_other(peer):
    alice = peer()
    for payload in (b"a", b"b", b"c"):
        alice.send(payload)
    a, b, c = alice.content()
    assert [entry.message_id for entry in alice.sds(b).causal_history] == [a.sds_id]
    assert [entry.message_id for entry in alice.sds(c).causal_history] == [a.sds_id, b.sds_id]


def test_js_hints_for_own_messages_are_hashes_of_what_was_really_on_the_wire(peer):
    alice, bob = peer("alice"), peer("bob")
    for number in range(20):
        alice.send(f"message {number}".encode())
        alice.now_ms += 7
    wire = {p.sds_id: message_hash(p.pubsub_topic, decode_waku_message(p.encoded)) for p in alice.content()}
    for publication in alice.content():
        for entry in alice.sds(publication).causal_history:
            assert entry.retrieval_hint == wire[entry.message_id]
    bob.receive(alice.content()[-1])
    bob.pass_time(10_000)
    assert set(bob.queries()[0].message_hashes) <= set(wire.values())


def test_js_copies_and_retries_are_not_received_again(peer):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"hello")
    alice.pass_time(60_000)
    bob.receive(*alice.content(), *alice.published(Purpose.RETRY), *alice.content())
    assert len(bob.events(MessageReceived)) == 1


def test_js_own_messages_that_come_back_are_not_received(peer):
    alice = peer()
    alice.send(b"hello")
    alice.receive(*alice.content())
    assert not alice.events(MessageReceived, MessageAcknowledged, MessageDelivered)


def test_js_what_was_declared_lost_is_not_asked_for_any_more(peer):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"lost")
    alice.send(b"two")
    bob.receive(alice.content()[1])
    bob.pass_time(4_000_000)
    assert bob.events(IrretrievableMessage)
    before = len(bob.queries())
    bob.pass_time(4_000_000)
    assert len(bob.queries()) == before


def test_js_retries_that_ran_out_are_told(peer):
    alice = peer()
    alice.send(b"hello")
    alice.pass_time(3_600_000)
    assert len(alice.events(DeliveryError)) == 1
    assert not alice.events(MessageAcknowledged, MessageDelivered)


def test_js_a_message_whose_dependency_is_only_parked_is_not_delivered_before_it(peer):
    alice, bob = peer("alice", ReliableChannelOptions(sds=SdsConfig(causal_history_size=1))), peer("bob")
    for payload in (b"one", b"two", b"three"):
        alice.send(payload)
    one, two, three = alice.content()
    bob.receive(two, three)
    assert bob.payloads() == []
    bob.receive(one)
    assert bob.payloads() == [b"one", b"two", b"three"]


def test_js_a_lost_dependency_does_not_take_its_dependants_with_it(peer):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"lost")
    alice.send(b"two")
    bob.receive(alice.content()[1])
    bob.pass_time(4_000_000)
    assert bob.payloads() == [b"two"]


def test_js_the_second_ok_is_not_swallowed(peer):
    alice, bob, carol = peer("alice"), peer("bob"), peer("carol")
    alice.send(b"ok")
    bob.send(b"ok")
    alice.send(b"ok")
    carol.receive(*alice.content(), *bob.content())
    assert carol.payloads() == [b"ok"] * 3


def test_js_a_short_or_long_bloom_field_does_not_cost_the_message(peer):
    alice, bob = peer("alice"), peer("bob")
    for size in (0, 1, 100, 18_751, 18_753, 40_000):
        alice.send(f"filter of {size} bytes".encode())
        publication = alice.content()[-1]
        message = structs.replace(alice.sds(publication), bloom_filter=bytes(size))
        payload = alice.stack.sds.profile.codec.encode(message)
        bob.receive(structs.replace(publication.message, payload=payload))
    assert len(bob.payloads()) == 6


def test_js_a_participant_that_was_away_gets_what_it_missed_although_others_acknowledged_it(peer):
    # Seen with real peers: senders stop at the first acknowledgement, and hints for own messages match nothing.
    alice, bob, carol = peer("alice"), peer("bob"), peer("carol")
    for number in range(30):
        alice.send(f"message {number}".encode())
        bob.receive(alice.content()[-1])
    alice.answer()
    store = {publication.message_hash: publication for publication in alice.content()}
    carol.receive(alice.content()[0], alice.content()[-1])
    while carol.payloads()[-1:] != [b"message 29"]:
        for query in [e for e in carol.pass_time(10_000) if e in carol.queries()]:
            carol.receive(*(store[digest] for digest in query.message_hashes))
    assert carol.payloads() == [f"message {number}".encode() for number in range(30)]


def test_nim_giving_up_is_not_told_as_sent_or_acknowledged(peer):
    alice = peer("alice", LOGOS)
    alice.send(b"hello")
    alice.pass_time(3_600_000)
    assert len(alice.events(DeliveryError)) == 1
    assert not alice.events(MessageAcknowledged, MessageDelivered)


def test_nim_one_bloom_hit_is_not_an_acknowledgement(peer):
    filtered = dataclasses.replace(LOGOS, sds=dataclasses.replace(LOGOS.sds, bloom_policy=BloomPolicy.ALWAYS))
    alice, bob, carol = (peer(name, filtered) for name in ("alice", "bob", "carol"))
    alice.send(b"hello")
    # Carol cites it, so that bob cites only what is newer; and alice hears nothing of carol.
    carol.receive(*alice.content())
    for number in range(3):
        carol.send(f"newer {number}".encode())
    bob.receive(*alice.content(), *carol.content())
    bob.send(b"mine")
    alice.receive(*bob.content())
    assert len(alice.events(MessagePossiblyAcknowledged)) == 1
    assert not alice.events(MessageAcknowledged)


def test_nim_own_messages_are_not_taken_for_somebody_elses(peer):
    alice = peer("alice", LOGOS)
    alice.send(b"hello")
    alice.receive(*alice.content())
    assert not alice.events(MessageReceived, MessageAcknowledged)


def test_nim_a_dependency_that_never_comes_does_not_stop_the_channel_for_ever(peer):
    alice, bob = peer("alice", LOGOS), peer("bob", LOGOS)
    alice.send(b"lost")
    alice.send(b"two")
    bob.receive(alice.content()[1])
    bob.pass_time(4_000_000)
    assert bob.payloads() == [b"two"]
    assert bob.events(IrretrievableMessage)


def test_nim_unacknowledged_messages_are_really_sent_again(peer):
    alice = peer("alice", LOGOS)
    alice.send(b"hello")
    alice.pass_time(31_000)
    assert len(alice.published(Purpose.RETRY)) == 1


def test_logos_parked_content_survives_a_restart(peer):
    alice, bob = peer("alice", LOGOS), peer("bob", LOGOS)
    for number in range(40):
        alice.send(f"message {number}".encode())
    bob.receive(*alice.content()[1:])
    bob = bob.restart()
    bob.receive(alice.content()[0])
    assert bob.payloads() == [f"message {number}".encode() for number in range(40)]


def test_logos_a_restart_within_an_epoch_does_not_refill_the_budget(peer):
    options = dataclasses.replace(LOGOS, rate_limit=RateLimitConfig(enabled=True, messages_per_epoch=1))
    alice = peer("alice", options)
    alice.send(b"one")
    alice = alice.restart()
    alice.send(b"two")
    assert not alice.published()


def test_logos_a_request_ends_also_when_no_store_ever_confirms_it(peer):
    alice, bob = peer("alice", LOGOS), peer("bob", LOGOS)
    accepted = alice.send(b"hello")
    alice.answer()
    assert [event.request_id for event in alice.events(RequestSent)] == [accepted.request_id]
    bob.receive(*alice.content())
    bob.send(b"thanks")
    alice.receive(*bob.content())
    assert [event.request_id for event in alice.events(MessageDelivered)] == [accepted.request_id]


def test_logos_parity_is_of_use_although_a_lost_segment_parks_the_ones_after_it(peer):
    options = dataclasses.replace(LOGOS, segmentation=SegmentationConfig(segment_size_bytes=192, parity_rate=0.5))
    alice, bob = peer("alice", options), peer("bob", options)
    alice.send(bytes(400))
    bob.receive(*(p for place, p in enumerate(alice.content()) if place not in (2, 4)))
    assert bob.payloads() == [bytes(400)]


def test_nobody_loses_the_clock_to_a_timestamp_from_the_far_future(peer):
    alice, bob = peer("alice"), peer("bob", ReliableChannelOptions(sds=SdsConfig(repair=RepairConfig(enabled=False))))
    alice.send(b"hello")
    message = structs.replace(alice.sds(alice.content()[0]), lamport_timestamp=2**63)
    payload = alice.stack.sds.profile.codec.encode(message)
    bob.receive(structs.replace(alice.content()[0].message, payload=payload))
    bob.send(b"mine")
    assert bob.sds(bob.content()[0]).lamport_timestamp <= bob.now_ms + 3_600_001
