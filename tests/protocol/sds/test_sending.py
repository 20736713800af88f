from hashlib import sha256

import pytest

from fairway.errors import ConfigurationError, EmptyPayloadError
from fairway.options import BloomPolicy, IdRule, Profile
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import MessageArrived, MessageReady
from fairway.wire.bloom import BloomFilter
from fairway.wire.hashing import keccak256
from fairway.wire.sds import HistoryEntry, Kind


def test_a_message_carries_who_sent_it_where_and_when(new_channel, start):
    message = new_channel("alice").send(b"hello", start + 5)
    assert (message.sender_id, message.channel_id, message.content) == ("alice", "ch", b"hello")
    assert message.lamport_timestamp == start + 5
    assert message.kind is Kind.CONTENT


def test_each_message_carries_the_bloom_filter_as_it_was_before_it(new_channel, send, start):
    alice = new_channel("alice", bloom_policy=BloomPolicy.ALWAYS)
    expected = BloomFilter(alice.bloom_parameters)
    for number in range(20):
        message = send(alice, b"%d" % number, start)
        assert message.bloom_filter == bytes(expected)
        expected.insert(message.message_id)


def test_a_message_cites_the_newest_of_the_history_oldest_first_with_hints_and_authors(new_channel, send, start):
    alice = new_channel("alice", causal_history_size=200)
    sent = [send(alice, b"%d" % n, start, bytes([n]) * 32) for n in range(205)]
    assert sent[-1].causal_history == tuple(
        HistoryEntry(message.message_id, bytes([number]) * 32, "alice")
        for number, message in enumerate(sent[4:-1], start=4)
    )


def test_two_messages_are_cited_unless_told_otherwise(new_channel, send):
    alice = new_channel("alice")
    for content in (b"1", b"2", b"3"):
        send(alice, content)
    assert len(send(alice, b"4").causal_history) == 2
    silent = new_channel("alice", causal_history_size=0)
    send(silent, b"1")
    assert send(silent, b"2").causal_history == ()


def test_the_first_hint_that_is_known_stays(new_channel, send, start):
    alice = new_channel("alice")
    message = send(alice, b"hello", start, None)
    alice.add_hint(message.message_id, b"first")
    alice.add_hint(message.message_id, b"second")
    alice.add_hint(message.message_id, b"third")
    assert alice.send(b"next", start).causal_history == (HistoryEntry(message.message_id, b"first", "alice"),)


def test_a_hint_is_withdrawn_if_the_network_did_not_take_that_message(new_channel, send, start):
    alice = new_channel("alice")
    message = send(alice, b"hello", start, b"first")
    alice.withdraw_hint(message.message_id, b"another")
    assert alice.history.get(message.message_id).retrieval_hint == b"first"
    alice.withdraw_hint(message.message_id, b"first")
    alice.add_hint(message.message_id, b"second")
    assert alice.send(b"next", start).causal_history == (HistoryEntry(message.message_id, b"second", "alice"),)


def test_empty_content_is_refused_because_it_would_be_a_sync_message(new_channel, start):
    alice = new_channel("alice")
    for method in (alice.send, alice.send_ephemeral):
        with pytest.raises(EmptyPayloadError):
            method(b"", start)
    assert alice.lamport == start


@pytest.mark.parametrize(
    ("channel_id", "sender_id", "text"),
    [
        ("ch", "", "sender_id must not be empty"),
        ("", "alice", "channel_id must not be empty"),
        ("ch", "é" * 129, "sender_id has 258 bytes of UTF-8, at most 256 are allowed"),
        ("c" * 257, "alice", "channel_id has 257 bytes"),
        ("ch", "\ud800", "sender_id is not Unicode text"),
        (7, "alice", "channel_id must be text, not int"),
    ],
)
def test_a_channel_without_usable_names_is_refused(start, channel_id, sender_id, text):
    with pytest.raises(ConfigurationError, match=text):
        MessageChannel(channel_id, sender_id, now_ms=start)


def test_names_may_be_as_long_as_allowed(start):
    assert MessageChannel("c" * 256, "é" * 128, now_ms=start).send(b"hello", start).sender_id == "é" * 128


# Ids


def test_an_id_is_made_of_sender_timestamp_and_content_so_that_two_who_say_the_same_send_two_messages(
    new_channel, send, start
):
    alice, bob = new_channel("alice"), new_channel("bob")
    first, second = send(alice, b"ok", start), send(alice, b"ok", start)
    assert first.message_id == sha256(b"alice\0" + (start + 1).to_bytes(8, "big") + b"ok").hexdigest()
    assert len({first.message_id, second.message_id, send(bob, b"ok", start).message_id}) == 3


def test_with_ids_of_js_waku_the_same_payload_is_the_same_message_while_it_waits(new_channel, send, start):
    alice = new_channel("alice", id_rule=IdRule.PAYLOAD)
    message = send(alice, b"hello", start)
    assert message.message_id == sha256(b"hello").hexdigest()
    again = alice.send(b"hello", start + 60_000)
    assert again is message
    assert alice.lamport == start + 60_000


def test_with_ids_of_js_waku_a_payload_can_be_sent_and_acknowledged_again(new_channel, send, start, found):
    options = {"id_rule": IdRule.PAYLOAD, "possible_acks_threshold": 1, "bloom_policy": BloomPolicy.ALWAYS}
    alice, bob = (new_channel(name, **options) for name in ("alice", "bob"))
    first = send(alice, b"hello", start)
    bob.receive(first, None, start)
    alice.receive(send(bob, b"hi", start), None, start)
    assert set(alice.forget_outgoing(first.message_id).acknowledged_by) == {"bob"}

    second = send(alice, b"hello", start + 1_000)
    assert second.message_id == first.message_id
    assert second.lamport_timestamp > first.lamport_timestamp
    assert alice.history.get(first.message_id).lamport == first.lamport_timestamp
    for number in range(4):
        send(bob, b"%d" % number, start)
    alice.receive(bob.send_sync(start), None, start)
    assert set(alice.forget_outgoing(first.message_id).acknowledged_by) == {"bob"}


def test_ids_of_logos_tell_messages_of_one_millisecond_apart(new_channel, start):
    alice = new_channel("alice", profile=Profile.LOGOS, id_rule=IdRule.KECCAK_TIMESTAMP)
    messages = [alice.send(b"ok", start, tracked=number % 2 == 0) for number in range(4)]
    assert messages[0].message_id == keccak256(b"alice" + str(start * 1_000_000).encode() + b"ok").hex()
    assert len({message.message_id for message in messages}) == 4


# Sync messages (SDS, "Periodic Sync Message")


def test_there_is_nothing_to_sync_before_the_first_message(new_channel, start):
    assert new_channel("alice").send_sync(start) is None


def test_sync_messages_have_ids_of_their_own(new_channel, send, start):
    alice = new_channel("alice")
    send(alice, b"hello", start)
    ids = {alice.send_sync(start).message_id for _ in range(5)}
    assert len(ids) == 5
    assert all(sync_id.startswith("sync-") for sync_id in ids)


# Ephemeral messages (SDS, "Ephemeral Messages")


def test_saying_the_same_twice_is_two_ephemeral_messages(new_channel, start):
    alice = new_channel("alice")
    ids = {alice.send_ephemeral(b"typing", start).message_id for _ in range(3)}
    ids.add(new_channel("bob").send_ephemeral(b"typing", start).message_id)
    ids.add(alice.send_ephemeral(b"typing", start + 1).message_id)
    assert len(ids) == 5


def test_an_ephemeral_message_is_no_duplicate_of_a_lasting_one_of_the_same_content(new_channel, send, start):
    for rule in (IdRule.UNIQUE, IdRule.PAYLOAD):
        alice, bob = (new_channel(name, id_rule=rule) for name in ("alice", "bob"))
        bob.receive(send(alice, b"hello", start), None, start)
        ephemeral = alice.send_ephemeral(b"hello", start)
        assert bob.receive(ephemeral, None, start) == [MessageArrived(message=ephemeral, kind=Kind.EPHEMERAL)]


def test_what_is_ready_is_the_very_message_that_was_sent(new_channel, send, start, found):
    alice, bob = new_channel("alice"), new_channel("bob")
    message = send(alice, b"hello", start)
    assert bob.receive(message, b"\2" * 32, start) == [
        MessageArrived(message=message, kind=Kind.CONTENT),
        MessageReady(message=message, dependencies_met=True),
    ]
    assert bob.history.get(message.message_id).retrieval_hint == b"\2" * 32


def test_citations_make_room_beside_a_full_segment(new_channel, a_message, start):
    bob = new_channel("bob", causal_history_size=200)
    for number in range(200):
        message_id = f"{number:03}".ljust(250, "x")
        bob.receive(a_message(message_id, sender="m" * 250, lamport=start + number), b"h" * 32, start + number)
    small = bob.send(b"small", start + 300)
    large = bob.send(bytes(102_400), start + 301)
    assert len(small.causal_history) == 200
    assert 0 < len(large.causal_history) < 60
    assert large.causal_history[-1].message_id == small.message_id or large.causal_history[-1] in small.causal_history
    assert len(bob.profile.codec.encode(large)) < 150_000


def test_what_is_cited_once_more_beside_a_segment_is_cited_with_what_is_known_of_it_by_then(new_channel, start):
    alice = new_channel("alice", causal_history_size=1)
    one = alice.send(b"one", start)
    alice.add_hint(one.message_id, b"1" * 32)
    first = alice.send(b"first segment", start)
    alice.add_hint(first.message_id, b"2" * 32)
    alice.withdraw_hint(one.message_id, b"1" * 32)
    second = alice.send(b"second segment", start, beside=first.causal_history)
    assert [entry.message_id for entry in second.causal_history] == [one.message_id, first.message_id]
    assert second.causal_history[0].retrieval_hint is None
