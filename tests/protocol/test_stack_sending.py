"""Sending: the order of effects, ids, hints, what the node answers, and what can never be sent."""

from __future__ import annotations

import hashlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError
from fairway.events import (
    ChannelStatus,
    DeliveryError,
    MessageReceived,
    MessageSendError,
    MessageSending,
    MessageSent,
    RequestSent,
    SendErrorReason,
)
from fairway.options import (
    Advanced,
    BloomPolicy,
    Profile,
    ReliableChannelOptions,
    SdsConfig,
    SegmentationConfig,
)
from fairway.protocol.effects import Emit, NodeAnswer, Persist, Placed, Publish, Purpose
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import decode_waku_message, encode_waku_message, message_hash

SMALL_SEGMENTS = ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=64))
FILE = bytes(range(256)) * 2
"""Eight segments and one parity segment of 64 bytes."""


class BrokenCipher:
    """Encrypts as many messages as it is told, then fails."""

    def __init__(self, good: int):
        self.good = good

    def encrypt(self, plaintext):
        self.good -= 1
        if self.good < 0:
            raise RuntimeError("the key is gone")
        return b"encrypted" + plaintext

    def decrypt(self, ciphertext):
        return ciphertext.removeprefix(b"encrypted")


def test_a_message_is_made_durable_before_anything_leaves(peer):
    alice = peer()
    effects = alice.send(b"hello").effects
    assert [type(effect) for effect in effects] == [Persist, Placed, Emit, Publish]
    assert isinstance(effects[2].event, MessageSending)
    assert {"outgoing", "history", "requests", "segments"} <= {change.table for change in effects[0].changes}


def test_the_message_id_is_the_sha_256_of_the_payload_and_the_request_id_is_unique(peer):
    alice = peer()
    first, second = alice.send(b"ok"), alice.send(b"ok")
    assert first.message_id == second.message_id == hashlib.sha256(b"ok").hexdigest()
    assert first.request_id != second.request_id
    assert first.request_id != peer("bob").send(b"ok").request_id


def test_the_same_payload_twice_is_two_deliveries(peer):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"ok")
    alice.send(b"ok")
    bob.receive(*alice.content())
    assert bob.payloads() == [b"ok", b"ok"]
    assert len({event.sds_ids for event in bob.events(MessageReceived)}) == 2


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"required_count": 0}, "at least 1 participant must be asked to acknowledge, not 0"),
        ({"required_from": "bob"}, r"a collection of names, such as \['bob'\]"),
        ({"required_from": ["bob", "alice"]}, "'alice', the sender"),
    ],
)
def test_an_acknowledgement_that_can_never_come_is_refused_and_nothing_is_sent(peer, wanted, text):
    alice = peer()
    with pytest.raises(ConfigurationError, match=text):
        alice.send(b"hello", **wanted)
    assert alice.effects == []


@pytest.mark.parametrize("profile", Profile)
@given(payload=st.binary(min_size=1, max_size=400))
def test_what_is_published_is_hashed_as_the_very_bytes_that_leave(peer, topic, profile, payload):
    alice = peer(options=ReliableChannelOptions(profile=profile))
    alice.send(payload)
    alice.send_ephemeral(payload)
    assert len(alice.published()) == 2
    for publication in alice.published():
        assert publication.pubsub_topic == autoshard(topic, 1, 8)
        assert publication.encoded == encode_waku_message(publication.message)
        arrived = decode_waku_message(publication.encoded)
        assert publication.message_hash == message_hash(publication.pubsub_topic, arrived)
        assert arrived.content_topic == topic
        assert arrived.meta == (Profile.LOGOS.marker if profile is Profile.LOGOS else None)
        assert arrived.ephemeral is (publication.purpose is Purpose.EPHEMERAL)


def test_no_two_messages_carry_the_same_timestamp_and_it_is_the_present(peer, start_ms):
    alice = peer()
    for _ in range(5):
        alice.send(b"ok")
    stamps = [publication.message.timestamp_ns for publication in alice.content()]
    assert stamps == sorted(set(stamps))
    assert {stamp // 1_000_000 for stamp in stamps} == {start_ms}


def test_after_the_clock_stepped_back_messages_carry_the_time_that_it_tells(peer, start_ms):
    # Relays refuse messages from the future, so that one step back must not silence the channel until it is made up.
    alice = peer()
    alice.send(b"early")
    alice.now_ms -= 3_600_000
    alice.send(b"late")
    assert alice.content()[-1].message.timestamp_ns == (start_ms - 3_600_000) * 1_000_000


def test_the_hash_of_what_was_sent_is_the_hint_by_which_later_messages_cite_it(peer):
    alice = peer()
    first = alice.send(b"one")
    alice.answer()
    alice.send(b"two")
    [entry] = alice.sds(alice.content()[1]).causal_history
    assert entry.retrieval_hint == alice.content()[0].message_hash
    assert entry.message_id == alice.content()[0].sds_id
    assert entry.sender_id == "alice"
    assert first.message_id != entry.message_id


def test_segments_of_one_message_cite_each_other_with_hints(peer):
    alice = peer(options=SMALL_SEGMENTS)
    alice.send(FILE)
    publications = alice.content()
    for before, after in itertools.pairwise(publications):
        cited = alice.sds(after).causal_history[-1]
        assert (cited.message_id, cited.retrieval_hint) == (before.sds_id, before.message_hash)


def test_a_hint_is_withdrawn_when_the_node_did_not_take_the_message(peer):
    alice = peer()
    alice.send(b"one")
    first = alice.content()[0]
    alice.answer(accepted=False)
    alice.send(b"two")
    alice.pass_time(1_000)
    again, second = alice.content()[1:]
    assert (again.sds_id, again.purpose) == (first.sds_id, Purpose.CONTENT)
    assert alice.sds(second).causal_history[0].retrieval_hint == again.message_hash != first.message_hash


def test_the_first_hash_that_the_node_took_stays_the_hint(peer):
    alice = peer()
    alice.send(b"one")
    alice.answer()
    alice.pass_time(30_000)
    retry = alice.published(Purpose.RETRY)[0]
    assert retry.message_hash != alice.content()[0].message_hash
    alice.send(b"two")
    assert alice.sds(alice.content()[1]).causal_history[0].retrieval_hint == alice.content()[0].message_hash


def test_a_confirmed_hint_replaces_an_unconfirmed_one_from_before_a_crash(peer):
    alice = peer()
    alice.send(b"one")
    alice.now_ms += 1_000
    alice = alice.restart()
    alice.answer()
    again = alice.content()[0]
    alice.send(b"two")
    assert alice.sds(alice.content()[1]).causal_history[0].retrieval_hint == again.message_hash


def test_a_refused_segment_is_sent_again_soon_and_that_is_no_retry(peer):
    alice = peer()
    alice.send(b"hello")
    alice.answer(accepted=False)
    assert not alice.events(MessageSent)
    alice.pass_time(5_000)
    assert len(alice.content()) == 2
    assert [event.attempt for event in alice.events(MessageSending)] == [0, 0]
    assert len(alice.events(RequestSent)) == 1
    assert alice.stack.statistics().not_taken == 1


@pytest.mark.parametrize(
    ("too_large", "reason", "detail"),
    [
        (False, SendErrorReason.REJECTED, "no such shard"),
        (True, SendErrorReason.MESSAGE_TOO_LARGE, "420 Message size exceeded maximum of 153600 bytes"),
    ],
)
def test_a_permanent_rejection_is_a_send_error_and_then_one_delivery_error(peer, too_large, reason, detail):
    alice = peer()
    accepted = alice.send(b"hello")
    alice.answer(accepted=False, permanent=True, too_large=too_large, detail=detail)
    [error] = alice.events(MessageSendError)
    assert (error.request_id, error.reason, error.detail) == (accepted.request_id, reason, detail)
    alice.pass_time(3_600_000)
    assert [event.request_id for event in alice.events(DeliveryError)] == [accepted.request_id]
    assert len(alice.published(Purpose.CONTENT, Purpose.RETRY)) == 1
    assert alice.stack.statistics().open_requests == alice.stack.statistics().unacknowledged == 0


def test_a_segment_that_the_network_would_not_take_ends_its_request_before_anything_left(peer):
    # It would fit but for what SDS adds beside its bloom filter, which nobody knows before.
    options = ReliableChannelOptions(
        advanced=Advanced(max_wire_message_bytes=19_000),
        segmentation=SegmentationConfig(segment_size_bytes=832),
        sds=SdsConfig(bloom_policy=BloomPolicy.ALWAYS),
    )
    alice = peer(options=options)
    accepted = alice.send(bytes(800))
    [error] = alice.events(MessageSendError)
    assert error.reason is SendErrorReason.MESSAGE_TOO_LARGE
    assert [event.request_id for event in alice.events(DeliveryError)] == [accepted.request_id]
    assert not alice.published()
    # Nobody may ever cite what could not leave: whoever waited for it would wait in vain.
    alice.send(b"short")
    assert alice.sds(alice.content()[0]).causal_history == ()


def test_the_next_message_takes_over_citations_and_requests_of_one_that_could_not_be_encrypted(peer):
    """Else whoever misses what nobody else cites is delivered a later message before it."""
    cipher = BrokenCipher(good=0)
    alice = peer(encryption=cipher)
    for number in range(6):
        other = peer(f"p{number}", encryption=BrokenCipher(good=2))
        other.send(b"lost")
        other.send(b"read")
        alice.receive(other.content()[0] if number else other.content()[1])
    read = {record.message_id for record in alice.stack.sds.history}
    alice.now_ms += 60_000
    assert alice.stack.next_deadline() < alice.now_ms, "a repair is due"
    alice.send(b"secret")
    assert not alice.published()
    cipher.good = 1
    alice.send(b"hello")
    said = alice.sds(alice.content()[0])
    assert len(read) == 5
    assert {entry.message_id for entry in said.causal_history} == read
    assert len(said.repair_request) == 1


def test_of_a_message_with_one_segment_that_cannot_be_encrypted_no_later_one_leaves(peer):
    alice = peer(options=SMALL_SEGMENTS, encryption=BrokenCipher(good=3))
    alice.send(FILE)
    assert len(alice.published()) == 3
    assert len(alice.events(MessageSendError)) == len(alice.events(DeliveryError)) == 1
    assert alice.stack.statistics().history == 3
    alice.pass_time(3_600_000)
    assert not alice.published(Purpose.RETRY)


def test_a_cipher_that_breaks_for_good_ends_open_requests_as_vain_retries_do(peer):
    cipher = BrokenCipher(good=1)
    alice = peer(encryption=cipher)
    accepted = alice.send(b"hello")
    alice.pass_time(3_600_000)
    assert [event.request_id for event in alice.events(DeliveryError)] == [accepted.request_id]
    assert alice.stack.statistics().not_encrypted > 0
    assert all(publication.message.payload.startswith(b"encrypted") for publication in alice.published())


def test_what_was_accepted_before_a_crash_and_never_left_leaves_after_it_in_order(peer):
    alice, bob = peer("alice", SMALL_SEGMENTS), peer("bob", SMALL_SEGMENTS)
    alice.connect(False)
    alice.send(b"before")
    alice.send(FILE)
    alice.send(b"after")
    alice = alice.restart()
    bob.receive(*alice.content())
    assert bob.payloads() == [b"before", FILE, b"after"]
    assert bob.stack.status is ChannelStatus.SYNCED


def test_messages_made_before_a_crash_leave_in_order_whatever_the_order_of_rows(peer):
    alice = peer("alice")
    for number in range(20):
        alice.send(b"%d" % number)
    made = [publish.sds_id for publish in alice.content()]
    alice.rows = dict(sorted(alice.rows.items(), reverse=True))
    alice = alice.restart()
    assert [publish.sds_id for publish in alice.content()] == made


def test_the_answer_to_a_publication_of_an_earlier_run_is_ignored(peer):
    alice = peer()
    alice.send(b"one")
    old = alice.content()[0]
    alice = alice.restart()
    alice.send(b"two")
    assert alice.do(alice.stack.published(old.token, NodeAnswer(accepted=False), alice.now_ms)) == ()
    alice.answer()
    assert len(alice.events(MessageSent)) == 2


def test_a_message_that_cannot_be_encoded_ends_its_send_with_an_event(peer):
    alice = peer()
    # A clock that gives nanoseconds: no timestamp of a WakuMessage holds that.
    alice.now_ms *= 1_000_000
    alice.send(b"hello")
    assert [error.reason for error in alice.events(MessageSendError)] == [SendErrorReason.ENCODING_FAILED]
    assert len(alice.events(DeliveryError)) == 1
    assert not alice.published()
