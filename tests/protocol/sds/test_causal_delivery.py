"""Receiving: order, duplicates, own messages, losses, bounds (SDS, "Receive Message")."""

import itertools
import random
from dataclasses import replace

import pytest

from fairway.options import IdRule, Profile
from fairway.protocol.sds.outcome import (
    DependenciesLost,
    DependenciesMissing,
    Ignored,
    MessageArrived,
    MessageIgnored,
)

AN_HOUR = 3_600_000


def missing_ids(outcomes):
    return [entry.message_id for o in outcomes if isinstance(o, DependenciesMissing) for entry in o.entries]


def lost_ids(outcomes):
    return [entry.message_id for o in outcomes if isinstance(o, DependenciesLost) for entry in o.entries]


# Causal order


def test_a_message_waits_for_what_it_cites(new_channel, a_message, ready, start):
    bob = new_channel("bob")
    outcomes = bob.receive(a_message("m3", "m1", "m2"), None, start)
    assert isinstance(outcomes[0], MessageArrived)
    assert missing_ids(outcomes) == ["m1", "m2"]
    assert ready(outcomes) == []
    assert "m3" not in bob.history
    assert "m3" in bob.bloom, "the filter tells what was received, delivered or not"

    assert ready(bob.receive(a_message("m1"), None, start)) == ["m1"]
    assert ready(bob.receive(a_message("m2", "m1"), None, start)) == ["m2", "m3"]
    assert not bob.parked
    assert not bob.missing
    assert bob.sweep_incoming(start + AN_HOUR * 2) == []


def test_a_delivery_releases_a_whole_chain_in_order(new_channel, a_message, ready, start):
    bob = new_channel("bob")
    chain = [a_message(f"m{n}", *([f"m{n - 1}"] if n else []), lamport=start + n) for n in range(50)]
    for message in reversed(chain[1:]):
        assert ready(bob.receive(message, None, start)) == []
    assert ready(bob.receive(chain[0], None, start)) == [f"m{n}" for n in range(50)]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_order_of_arrival_everything_is_ready_once_and_after_what_it_cites(
    new_channel, a_message, ready, start, seed
):
    rng = random.Random(seed)
    messages = []
    for number in range(40):
        cited = {f"m{rng.randrange(number)}" for _ in range(rng.randrange(4))} if number else set()
        messages.append(a_message(f"m{number}", *sorted(cited), lamport=start + rng.randrange(100)))
    arrivals = messages * 2
    rng.shuffle(arrivals)
    bob = new_channel("bob")
    order = list(itertools.chain.from_iterable(ready(bob.receive(m, None, start)) for m in arrivals))
    assert sorted(order) == sorted(m.message_id for m in messages)
    place = {message_id: index for index, message_id in enumerate(order)}
    for message in messages:
        assert all(place[entry.message_id] < place[message.message_id] for entry in message.causal_history)
    assert [(r.lamport, r.message_id) for r in bob.history] == sorted(
        (m.lamport_timestamp, m.message_id) for m in messages
    )


def test_what_is_parked_is_not_missing_and_not_delivered_before_its_own_dependencies(
    new_channel, a_message, ready, start
):
    """js-waku takes a dependency for met when it is merely parked, and delivers m3 before m2."""
    bob = new_channel("bob")
    bob.receive(a_message("m2", "m1"), None, start)
    outcomes = bob.receive(a_message("m3", "m2"), None, start)
    assert ready(outcomes) == missing_ids(outcomes) == []
    assert len(bob.repair.requests) == 1
    assert ready(bob.receive(a_message("m1"), None, start)) == ["m1", "m2", "m3"]


def test_a_missing_message_that_comes_and_is_parked_is_no_longer_missing(new_channel, a_message, start):
    bob = new_channel("bob")
    bob.receive(a_message("m3", "m2"), None, start)
    bob.receive(a_message("m2", "m1"), None, start)
    assert list(bob.missing) == ["m1"]


def test_a_sync_message_tells_what_is_missing_and_is_forgotten(new_channel, a_message, start):
    bob = new_channel("bob")
    outcomes = bob.receive(a_message("sync-1", "m1", content=None), None, start)
    assert missing_ids(outcomes) == ["m1"]
    assert "m1" in bob.repair.requests
    assert not bob.parked
    bob.receive(a_message("m1"), None, start)
    assert not bob.missing


def test_each_missing_message_is_named_once_however_often_it_is_cited(new_channel, a_message, start):
    bob = new_channel("bob")
    assert missing_ids(bob.receive(a_message("m2", *["m1"] * 50), None, start)) == ["m1"]


def test_nobody_waits_for_what_can_never_come(new_channel, a_message, ready, start):
    """js-waku cites a message in itself when a payload is sent again, and nim-sds cites sync messages."""
    bob = new_channel("bob")
    assert ready(bob.receive(a_message("m1", "m1", "", "sync-3f2a"), None, start)) == ["m1"]


def test_messages_of_other_channels_are_ignored(new_channel, a_message, start):
    bob = new_channel("bob")
    foreign = replace(a_message("m1", "m0"), channel_id="elsewhere")
    assert bob.receive(foreign, None, start) == [MessageIgnored(message_id="m1", why=Ignored.FOREIGN_CHANNEL)]
    assert bob.journal.drain() == []


# Duplicates


def test_a_duplicate_is_delivered_once_whether_it_was_delivered_or_parked(new_channel, a_message, ready, start):
    bob = new_channel("bob")
    duplicate = MessageIgnored(message_id="m2", why=Ignored.DUPLICATE)
    bob.receive(a_message("m2", "m1"), None, start)
    assert bob.receive(a_message("m2", "m1"), None, start) == [duplicate]
    assert ready(bob.receive(a_message("m1"), None, start)) == ["m1", "m2"]
    assert bob.receive(a_message("m2", "m1"), None, start) == [duplicate]


def test_a_duplicate_teaches_the_hint_that_was_missing(new_channel, a_message, start):
    bob = new_channel("bob")
    for message in (a_message("m2", "m1"), a_message("m0")):
        bob.receive(message, None, start)
        bob.receive(message, message.message_id.encode(), start)
        bob.receive(message, b"another", start)
    bob.receive(a_message("m1"), None, start)
    assert [record.retrieval_hint for record in bob.history] == [b"m0", None, b"m2"]


def test_a_sync_message_with_the_id_of_a_missing_one_does_not_stand_for_it(new_channel, a_message, start):
    bob = new_channel("bob")
    bob.receive(a_message("m2", "m1"), None, start)
    bob.receive(a_message("m1", content=None), None, start)
    assert "m1" in bob.repair.requests
    assert "m1" in bob.missing


# Own messages


def test_an_own_echo_is_ignored_and_no_duplicate(new_channel, send, start):
    alice = new_channel("alice")
    message = send(alice, b"hello", start)
    alice.journal.drain()
    own = [MessageIgnored(message_id=message.message_id, why=Ignored.OWN)]
    assert alice.receive(message, None, start) == own
    assert alice.receive(alice.send_sync(start), None, start)[0].why is Ignored.OWN
    assert len(alice.outgoing) == 1
    assert len(alice.history) == 1


def test_an_own_echo_proves_that_an_unconfirmed_message_reached_the_network(new_channel, start):
    alice = new_channel("alice")
    message = alice.send(b"hello", start)
    assert alice.receive(message, b"hash", start)[0].why is Ignored.OWN
    assert alice.history.get(message.message_id).retrieval_hint == b"hash"
    assert message.message_id in alice.outgoing


def test_a_message_that_cites_an_own_unconfirmed_one_does_not_wait_for_it(new_channel, ready, start):
    """The answer of a peer can be here before the answer of the node to which the message was given."""
    alice, bob = new_channel("alice"), new_channel("bob")
    message = alice.send(b"hello", start)
    bob.receive(message, None, start)
    answer = bob.send(b"hi", start)
    outcomes = alice.receive(answer, None, start)
    assert ready(outcomes) == [answer.message_id]
    assert message.message_id in alice.history
    assert message.message_id in alice.bloom
    assert set(alice.outgoing.messages[message.message_id].acknowledged_by) == {"bob"}


def test_an_own_message_that_was_forgotten_is_taken_back_without_delivery(new_channel, send, ready, start):
    alice, bob = new_channel("alice"), new_channel("bob")
    message = send(alice, b"hello", start)
    bob.receive(message, None, start)
    answer = send(bob, b"hi", start)

    reborn = new_channel("alice", now_ms=start - 5_000)
    assert missing_ids(reborn.receive(answer, None, start)) == [message.message_id]
    assert message.message_id in reborn.repair.requests
    outcomes = reborn.receive(message, b"hash", start)
    assert ready(outcomes) == [answer.message_id]
    assert message.message_id in reborn.history
    assert message.message_id in reborn.bloom
    assert message.message_id in reborn.retained, "it can be asked for again"
    assert message.message_id not in reborn.repair.requests
    assert len(reborn.outgoing) == 0
    assert reborn.lamport >= message.lamport_timestamp
    assert reborn.receive(message, None, start)[0].why is Ignored.OWN


def test_own_messages_are_no_participants(new_channel, send, start):
    alice = new_channel("alice")
    alice.receive(send(alice, b"hello", start), None, start)
    assert alice.participants == set()


def test_what_waits_for_an_own_message_is_released_when_the_same_payload_is_sent_here(
    new_channel, a_message, ready, send, start
):
    """With js-waku's ids, what somebody else said and was lost can be what we say now."""
    alice = new_channel("alice", id_rule=IdRule.PAYLOAD)
    ok = new_channel("zoe", id_rule=IdRule.PAYLOAD).send(b"ok", start)
    alice.receive(a_message("m2", ok.message_id), None, start)
    send(alice, b"ok", start)
    assert ok.message_id not in alice.repair.requests
    outcomes = alice.sweep_incoming(start)
    assert ready(outcomes) == ["m2"]
    assert missing_ids(outcomes) == lost_ids(outcomes) == []


def test_participants_are_counted_once_each(new_channel, a_message, start):
    bob = new_channel("bob")
    for number in range(6):
        bob.receive(a_message(f"m{number}", sender=f"p{number % 3}"), None, start)
    assert bob.participants == {"p0", "p1", "p2"}


def test_the_protocol_is_the_same_on_the_logos_wire(new_channel, send, ready, start):
    alice, bob = (new_channel(name, profile=Profile.LOGOS) for name in ("alice", "bob"))
    codec = Profile.LOGOS.codec
    first, second = send(alice, b"1", start), send(alice, b"2", start)
    assert ready(bob.receive(codec.decode(codec.encode(second)), None, start)) == []
    received = bob.receive(codec.decode(codec.encode(first)), None, start)
    assert ready(received) == [first.message_id, second.message_id]
    answer = codec.decode(codec.encode(send(bob, b"3", start)))
    alice.receive(answer, None, start)
    assert [set(outgoing.acknowledged_by) for outgoing in alice.outgoing] == [{"bob"}, {"bob"}]
