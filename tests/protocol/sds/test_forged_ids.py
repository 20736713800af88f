"""Messages that bear an id, or a sender id, that is not theirs: nobody can make another's message vanish."""

import pytest

from fairway.options import Profile
from fairway.protocol.sds.outcome import (
    Ignored,
    MessageArrived,
    MessageIgnored,
    MessageReady,
    MessageReviewed,
    SenderIdShared,
)
from fairway.protocol.sds.state import SdsState
from fairway.wire.sds import HistoryEntry


def ignored_as(outcomes):
    return [outcome.why for outcome in outcomes if isinstance(outcome, MessageIgnored)]


@pytest.fixture
def contents(found):
    """Return what was delivered, in order."""
    return lambda outcomes: [outcome.message.content for outcome in found(outcomes, MessageReady)]


def test_a_copy_of_an_own_message_with_other_content_confirms_nothing(new_channel, a_message, send, start):
    alice = new_channel("alice")
    message = alice.send(b"hello", start)
    forged = a_message(message.message_id, sender="alice", content=b"other")
    assert SenderIdShared(message_id=message.message_id) in alice.receive(forged, b"forged", start)
    assert SenderIdShared(message_id=message.message_id) in alice.receive(forged, b"forged", start)
    assert alice.history.get(message.message_id).retrieval_hint is None


def test_another_process_that_speaks_under_our_name_is_told(new_channel, send, found, start):
    alice = new_channel("alice")
    twin = send(new_channel("alice"), b"from the other process", start + 5)
    outcomes = alice.receive(twin, None, start + 10)
    assert found(outcomes, SenderIdShared) == [SenderIdShared(message_id=twin.message_id)]
    assert not found(outcomes, MessageArrived), "nobody is delivered his own"


def test_what_an_earlier_life_sent_and_forgot_is_of_no_other_process(new_channel, send, found, start):
    earlier = send(new_channel("alice", start), b"long ago", start)
    reborn = new_channel("alice", start + 60_000)
    assert reborn.receive(earlier, None, start + 60_010) == []
    assert earlier.message_id in reborn.history


def test_a_citation_of_another_senders_message_under_the_id_acknowledges_nothing(new_channel, a_message, found, start):
    alice = new_channel("alice")
    message = alice.send(b"hello", start)
    for name, count in (("mallory", 0), ("alice", 1)):
        outcomes = alice.receive(
            a_message(f"cites {name}", HistoryEntry(message.message_id, None, name), sender="bob"), None, start
        )
        assert len(found(outcomes, MessageReviewed)) == count


def test_a_parked_forgery_gives_way_to_the_true_message(new_channel, a_message, contents, start):
    alice, bob = new_channel("alice"), new_channel("bob")
    honest = alice.send(b"hello", start)
    bob.receive(a_message(honest.message_id, "never", sender="mallory", content=b"x"), None, start)
    assert contents(bob.receive(honest, None, start)) == [b"hello"]
    assert not bob.parked
    assert bob.statistics().parked_bytes == 0


def test_where_ids_are_opaque_each_of_the_messages_under_one_is_delivered_once_also_after_a_restart(
    new_channel, a_message, contents, start
):
    bob = new_channel("bob", profile=Profile.LOGOS)
    said = [(sender, content) for sender in ("zoe", "yan") for content in (b"a", b"b")]
    variants = [a_message("m1", sender=sender, content=content) for sender, content in said]
    for variant in variants:
        assert contents(bob.receive(variant, None, start)) == [variant.content]
    reborn = new_channel("bob", profile=Profile.LOGOS)
    SdsState(reborn).load(list(SdsState(bob).rows()))
    for channel in (bob, reborn):
        for variant in variants:
            assert ignored_as(channel.receive(variant, None, start)) == [Ignored.DUPLICATE]
    assert bob.history.get("m1").sender_id == "zoe", "what came first is what is cited and answered"


def test_messages_delivered_under_one_id_are_bounded(new_channel, a_message, contents, start):
    bob = new_channel("bob")
    delivered = [contents(bob.receive(a_message("m1", content=b"%d" % n), None, start)) for n in range(100)]
    assert sum(map(len, delivered)) == 16
    assert len(bob.history.get("m1").fingerprints) == 16 * 16
