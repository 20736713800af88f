from hashlib import sha256

import pytest

from fairway.errors import ConfigurationError, EmptyPayloadError
from fairway.options import Profile
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import MessageArrived
from fairway.wire.hashing import keccak256
from fairway.wire.sds import HistoryEntry, Kind


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


def test_ids_of_logos_tell_messages_of_one_millisecond_apart(new_channel, start):
    alice = new_channel("alice", profile=Profile.LOGOS)
    messages = [alice.send(b"ok", start, tracked=number % 2 == 0) for number in range(4)]
    assert messages[0].message_id == keccak256(b"alice" + str(start * 1_000_000).encode() + b"ok").hex()
    assert len({message.message_id for message in messages}) == 4


# Sync messages (SDS, "Periodic Sync Message")


def test_there_is_nothing_to_sync_before_the_first_message(new_channel, start):
    assert new_channel("alice").send_sync(start) is None


# Ephemeral messages (SDS, "Ephemeral Messages")


def test_an_ephemeral_message_is_no_duplicate_of_a_lasting_one_of_the_same_content(new_channel, send, start):
    alice, bob = new_channel("alice"), new_channel("bob")
    bob.receive(send(alice, b"hello", start), None, start)
    ephemeral = alice.send_ephemeral(b"hello", start)
    assert bob.receive(ephemeral, None, start) == [MessageArrived(message=ephemeral, kind=Kind.EPHEMERAL)]


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
