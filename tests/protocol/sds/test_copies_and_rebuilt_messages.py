"""What a copy of a received message means, and messages that are known without having come."""

import pytest

from fairway.protocol.sds.acknowledgements import Evidence
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import DependenciesLost, Ignored, MessageReady, MessageReviewed
from fairway.protocol.sds.state import SdsState
from fairway.wire.sds import HistoryEntry
from fairway.wire.segment import WAKU_SEGMENTS, Segment


def cited(message):
    return [entry.message_id for entry in message.causal_history]


@pytest.fixture
def a_chain(a_message, start):
    """Make messages that cite each other, as when participants speak in turn."""

    def make(count):
        cited = [(f"m{number - 1:04}",) if number else () for number in range(count)]
        return [a_message(f"m{n:04}", *before, lamport=start + n) for n, before in enumerate(cited)]

    return make


def test_a_message_that_came_again_is_cited_beside_the_newest(new_channel, a_chain, start):
    """Its sender still waits, and the newest two may never include it again."""
    bob = new_channel("bob")
    chain = a_chain(5)
    for number, message in enumerate(chain):
        bob.receive(message, b"h%d" % number, start)
    for number in (1, 0):
        outcomes = bob.receive(chain[number], None, start)
        assert [outcome.why for outcome in outcomes] == [Ignored.DUPLICATE]
    message = bob.send(b"x", start)
    assert message.causal_history[:2] == (HistoryEntry("m0000", b"h0", "zoe"), HistoryEntry("m0001", b"h1", "zoe"))
    assert cited(message) == ["m0000", "m0001", "m0003", "m0004"]
    assert cited(bob.send(b"y", start)) == ["m0004", message.message_id], "once is enough until it comes again"


def test_a_message_that_came_again_is_cited_by_a_later_segment_too(new_channel, a_message, start):
    """Later segments leave out what others' later segments cite already, but not what somebody waits for."""

    def later_segment(payload):
        return WAKU_SEGMENTS.encode(
            Segment(
                payload_hash=bytes(32),
                index=1,
                data_count=2,
                parity_count=0,
                is_parity=False,
                payload=payload,
                payload_length=None,
            )
        )

    bob = new_channel("bob")
    first = a_message("m0")
    bob.receive(first, None, start)
    bob.receive(a_message("m1", "m0", sender="carol", lamport=start + 1, content=later_segment(b"c")), None, start)
    for number in (2, 3):
        cites = f"m{number - 1}"
        bob.receive(a_message(f"m{number}", cites, sender="dave", lamport=start + number), None, start)
    bob.receive(first, None, start)
    assert "m0" in cited(bob.send(later_segment(b"b"), start + 10))


def test_that_citation_acknowledges_for_certain(new_channel, send, start, found):
    alice, bob = new_channel("alice"), new_channel("bob")
    first = send(alice, b"first", start)
    bob.receive(first, None, start)
    for number in range(5):
        send(bob, b"%d" % number, start)
    bob.receive(first, None, start)
    outcomes = alice.receive(bob.send_sync(start), None, start)
    (reviewed,) = found(outcomes, MessageReviewed)
    assert (reviewed.review.message_id, reviewed.review.evidence) == (first.message_id, Evidence.CITED)


def test_what_nobody_has_cited_is_cited_by_whoever_speaks_next(new_channel, send, a_message, start):
    """Of many messages sent at once only the newest two are cited; who missed another one would never notice."""
    bob = new_channel("bob")
    for number in range(6):
        bob.receive(a_message(f"m{number}", sender=f"p{number}", lamport=start + number), None, start)
    bob.receive(a_message("n", "m2", sender="p2", lamport=start + 10), None, start)
    failed = bob.send(b"cannot be encrypted", start)
    assert cited(failed) == ["m0", "m1", "m3", "m4", "m5", "n"]
    bob.withdraw(failed.message_id, start)
    x = send(bob, b"y", start)
    assert cited(x) == ["m0", "m1", "m3", "m4", "m5", "n"]
    assert cited(bob.send(b"z", start)) == ["n", x.message_id]


def test_what_only_a_sync_message_cites_is_still_uncited_for_those_who_miss_that(new_channel, a_message, start):
    bob = new_channel("bob")
    for number in range(30):
        bob.receive(a_message(f"m{number:02}", sender=f"p{number}", lamport=start + number), None, start)
    bob.receive(a_message("sync-1", "m00", content=None), None, start)
    first, second, third = (cited(bob.send_sync(start)) for _ in range(3))
    assert first == [f"m{n:02}" for n in (*range(20), 28, 29)]
    assert second == [f"m{n:02}" for n in (*range(12), *range(20, 30))], "in turn, if they are many"
    assert set(first) | set(second) == {f"m{n:02}" for n in range(30)}
    assert len(third) == 22
    said = cited(bob.send(b"x", start))
    assert set(said) >= {f"m{n:02}" for n in range(30)}


def test_what_waits_for_a_message_cites_it(new_channel, a_message, start):
    bob = new_channel("bob", causal_history_size=1)
    bob.receive(a_message("m2", "m1", lamport=start + 2), None, start)
    bob.receive(a_message("m1", lamport=start + 1), None, start)
    assert cited(bob.send(b"x", start)) == ["m2"]


def test_what_only_a_message_cites_that_waits_itself_is_still_owed(new_channel, a_message, start):
    """Else whoever is told of neither could be delivered ours before it."""
    bob = new_channel("bob", causal_history_size=1)
    bob.receive(a_message("m3", "m1", "lost", lamport=start + 3), None, start)
    bob.receive(a_message("m1", lamport=start + 1), None, start)
    bob.receive(a_message("m4", "m2", "lost", lamport=start + 4), None, start)
    bob.receive(a_message("m2", lamport=start + 2), None, start)
    bob.receive(a_message("m5", sender="yan", lamport=start + 5), None, start)
    assert cited(bob.send(b"x", start)) == ["m1", "m2", "m5"]
    bob.receive(a_message("lost", lamport=start), None, start)


def test_once_it_waits_no_longer_what_it_cites_is_owed_no_more(new_channel, a_message, start):
    bob = new_channel("bob", causal_history_size=1)
    bob.receive(a_message("m3", "m1", "lost", lamport=start + 3), None, start)
    bob.receive(a_message("m1", lamport=start + 1), None, start)
    bob.receive(a_message("lost", lamport=start), None, start)
    assert cited(bob.send(b"x", start)) == ["m3"]


def test_what_nobody_has_cited_is_known_after_a_restart(new_channel, send, a_message, start):
    bob = new_channel("bob", causal_history_size=1)
    for number in range(4):
        bob.receive(a_message(f"m{number}", sender=f"p{number}", lamport=start + number), None, start)
    bob.receive(a_message("n", "m1", lamport=start + 9), None, start)
    bob.receive(a_message("o", "m2", "unknown", lamport=start + 9), None, start)
    reborn = MessageChannel("ch", "bob", bob.config, now_ms=start)
    SdsState(reborn).load(list(SdsState(bob).rows()))
    assert cited(reborn.send(b"x", start)) == cited(bob.send(b"x", start)) == ["m0", "m2", "m3", "n"]


def test_nothing_waits_for_a_message_whose_content_is_known_and_its_loss_is_none(
    new_channel, a_message, found, ready, sweep_until, start
):
    bob = new_channel("bob")
    bob.receive(a_message("m2", "m1"), None, start)
    assert ready(bob.stop_waiting(["m1"], start)) == ["m2"]
    assert "m1" in bob.missing, "it is still asked for"
    assert not found(sweep_until(bob, start, start + 3_600_001), DependenciesLost)
    (outcome,) = found(bob.receive(a_message("m3", "m1"), None, start + 3_600_003), MessageReady)
    assert outcome.dependencies_met
