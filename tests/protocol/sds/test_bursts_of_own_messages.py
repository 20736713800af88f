"""Tens of thousands of own messages wait for acknowledgement at once: what acknowledges them must keep up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairway.options import ReliableChannelOptions, SdsConfig
from fairway.protocol.effects import Purpose
from fairway.protocol.sds.acknowledgements import Ancestry, OutgoingMessage
from fairway.protocol.sds.outcome import MessageReviewed
from fairway.wire.sds import HistoryEntry, SdsMessage

ROLLING = SdsConfig(bloom_capacity=200)


def outgoing(sequence):
    message = SdsMessage(message_id=f"own {sequence}", sender_id="alice", channel_id="harbour", content=b"x")
    return OutgoingMessage(message=message, sequence=sequence)


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 30), max_size=4)), max_size=30))
def test_ancestry_knows_exactly_the_own_messages_that_each_message_descends_from(history):
    ancestry, truth = Ancestry(), {}
    own = {f"own {number}": outgoing(number) for number in range(len(history))}
    for number, (is_own, cited) in enumerate(history):
        name = f"own {number}" if is_own else f"other {number}"
        known = list(truth)
        parents = [known[index] for index in cited if index < len(known)]
        truth[name] = ({number} if is_own else set()).union(*(truth[parent] for parent in parents))
        ancestry.record(name, [HistoryEntry(parent) for parent in parents], own)
    for name, ancestors in truth.items():
        found = {number for first, last in ancestry.of([name]) for number in range(first, last + 1)}
        assert found == ancestors


def test_a_receiver_far_behind_a_burst_acknowledges_all_that_it_has(new_channel, start):
    alice, bob = (new_channel(name, bloom_capacity=10_000) for name in ("alice", "bob"))
    sent = []
    for number in range(12_000):
        message = alice.send(b"number %d" % number, start)
        sent.append(message)
    for message in sent[:3_000]:
        bob.receive(message, None, start)
    outcomes = alice.receive(bob.send_sync(start), None, start)
    reviewed = {o.review.message_id for o in outcomes if isinstance(o, MessageReviewed) and o.review.evidence}
    assert reviewed == {message.message_id for message in sent[:3_000]}


def test_whoever_receives_much_speaks_before_the_bloom_filter_forgets_the_first_of_it(peer):
    alice, bob = peer("alice"), peer("bob", ReliableChannelOptions(sds=ROLLING))
    for number in range(1_000):
        alice.send(b"number %d" % number)
    for count, publication in enumerate(alice.content(), 1):
        bob.receive(publication)
        if count % 20 == 0 and bob.stack.next_deadline() <= bob.now_ms:
            bob.tick()
    syncs = bob.published(Purpose.SYNC)
    assert 10 <= len(syncs) <= 25
