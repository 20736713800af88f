"""Who has which of our messages (SDS, "Review ACK Status")."""

from hashlib import sha256

import pytest

from fairway.options import Profile
from fairway.protocol.sds.acknowledgements import Evidence
from fairway.protocol.sds.outcome import MessageReviewed
from fairway.wire.bloom import NIM_BLOOM, BloomFilter, BloomParameters


def reviews(outcomes):
    return [outcome.review for outcome in outcomes if isinstance(outcome, MessageReviewed)]


def filter_with(channel, *message_ids):
    """Return the bloom field of a participant that received these messages."""
    bloom = BloomFilter(channel.bloom_parameters, channel.profile.codec.bloom)
    for message_id in message_ids:
        bloom.insert(message_id)
    return channel.profile.codec.write_bloom(bytes(bloom), channel.bloom_parameters)


@pytest.fixture
def told(a_message):
    """Let a channel receive a sync message that cites and whose filter holds given messages."""

    def tell(channel, participant, *cited, holds=(), now_ms=1_700_000_000_000, sent_ms=None):
        bloom = filter_with(channel, *holds) if holds is not None else None
        sync = a_message(f"sync-{participant}", *cited, sender=participant, content=None, bloom_filter=bloom)
        return reviews(channel.receive(sync, None, now_ms, sent_ms=sent_ms))

    return tell


# Citation


def test_of_three_messages_the_two_that_are_cited_are_acknowledged_by_a_filter_that_holds_none(
    new_channel, send, told, start
):
    alice = new_channel("alice")
    sent = [send(alice, b"%d" % n, start).message_id for n in range(3)]
    found = told(alice, "bob", *sent[1:], holds=())
    assert [(review.message_id, review.acknowledged_by) for review in found] == [(name, ("bob",)) for name in sent[1:]]


def test_only_the_newest_entries_of_a_long_history_acknowledge(new_channel, send, told, start):
    alice = new_channel("alice")
    message = send(alice, b"hello", start)
    assert told(alice, "bob", message.message_id, *map(str, range(1_000)), holds=None) == []


# A descendant and the filter


def test_a_descendant_of_others_counts_as_well(new_channel, send, told, start):
    alice, bob = new_channel("alice"), new_channel("bob")
    message = send(alice, b"hello", start)
    bob.receive(message, None, start)
    answers = [send(bob, b"%d" % number, start) for number in range(5)]
    for answer in answers:
        alice.receive(answer, None, start)
    (review,) = told(alice, "carol", answers[-1].message_id, holds=[message.message_id])
    assert (review.evidence, review.participant) == (Evidence.DESCENDANT, "carol")
    assert review.acknowledged_by == ("bob", "carol")


def test_a_message_that_only_came_later_is_no_descendant(new_channel, send, told, a_message, start):
    alice = new_channel("alice")
    message = send(alice, b"hello", start).message_id
    alice.receive(a_message("m2", lamport=start + 5_000), None, start)
    (review,) = told(alice, "bob", "m2", holds=[message])
    assert review.evidence is None


def test_descent_is_followed_through_thousands_of_messages(new_channel, a_message, told, start):
    alice = new_channel("alice", repair={"enabled": False})
    message = alice.send(b"hello", start)
    newest = message.message_id
    for number in range(5_000):
        alice.receive(a_message(f"m{number}", newest, sender="bob"), None, start)
        newest = f"m{number}"
    (review,) = told(alice, "carol", newest, holds=[message.message_id])
    assert (review.evidence, review.participant) == (Evidence.DESCENDANT, "carol")
    assert told(alice, "dave", "m10", holds=[]) == []


def test_a_sender_far_ahead_of_all_acknowledgements_hears_of_all_its_messages(new_channel, told, start):
    alice = new_channel("alice", repair={"enabled": False}, bloom_capacity=20_000)
    sent = []
    for number in range(9_000):
        message = alice.send(b"%d" % number, start)
        sent.append(message.message_id)
    found = told(alice, "bob", *sent[-2:], holds=sent)
    strong = [review for review in found if review.evidence is not None]
    assert {review.message_id for review in strong} == set(sent)


# The filter alone


@pytest.mark.parametrize("threshold", [1, 3])
def test_how_many_filters_it_takes_is_an_option(new_channel, send, told, start, threshold):
    alice = new_channel("alice", possible_acks_threshold=threshold)
    message = send(alice, b"hello", start).message_id
    found = [told(alice, f"p{n}", holds=[message])[0] for n in range(threshold)]
    assert [review.evidence for review in found] == [None] * (threshold - 1) + [Evidence.BLOOM]


@pytest.mark.parametrize(("earlier_ms", "is_possible"), [(0, True), (50_000, True), (70_000, False)])
def test_a_filter_that_left_before_a_message_was_made_does_not_hold_it(
    new_channel, send, told, start, earlier_ms, is_possible
):
    alice = new_channel("alice")
    message = send(alice, b"hello", start)
    found = told(alice, "bob", holds=[message.message_id], now_ms=start + 1_000, sent_ms=start - earlier_ms)
    assert [review.participant for review in found] == ["bob"] * is_possible


def test_citation_after_the_filter_turns_possible_into_certain(new_channel, send, told, start):
    alice = new_channel("alice")
    message = send(alice, b"hello", start).message_id
    told(alice, "bob", holds=[message])
    (review,) = told(alice, "bob", message, holds=[message])
    assert (review.evidence, review.acknowledged_by) == (Evidence.CITED, ("bob",))


@pytest.mark.parametrize("size", [0, 1, 567])
def test_a_filter_too_short_to_be_one_is_no_error_and_nothing_else_is_lost(new_channel, send, a_message, start, size):
    """js-waku loses the whole message after having applied its citations."""
    alice = new_channel("alice")
    first, second = send(alice, b"1", start).message_id, send(alice, b"2", start).message_id
    message = a_message("m3", second, sender="bob", bloom_filter=b"\xff" * size, vouches=False)
    outcomes = alice.receive(message, None, start)
    assert [review.message_id for review in reviews(outcomes)] == [second]
    assert "m3" in alice.history
    assert not alice.outgoing.messages[first].acknowledged_by


def test_a_filter_that_is_too_long_is_read_as_far_as_it_should_go(new_channel, send, told, a_message, start):
    alice = new_channel("alice")
    message = send(alice, b"hello", start).message_id
    field = filter_with(alice, message) + b"\xff" * 10**7
    sync = a_message("sync-1", sender="bob", content=None, bloom_filter=field)
    (review,) = reviews(alice.receive(sync, None, start))
    assert review.possible_count == 1


def test_an_overfull_filter_tells_nothing(new_channel, send, a_message, told, start):
    """js-waku's filter is never rolled over and ends up holding everything."""
    alice = new_channel("alice", possible_acks_threshold=1)
    first, second, third = (send(alice, b"%d" % n, start).message_id for n in range(3))
    full = a_message("sync-1", sender="bob", content=None, bloom_filter=b"\xff" * 10_000)
    assert reviews(alice.receive(full, None, start)) == []

    # Two fifths of the messages that it was made for are the limit.
    others = [sha256(b"%d" % n).hexdigest() for n in range(150)]
    assert [r.message_id for r in told(alice, "bob", holds=[first, *others[:100]])] == [first]
    assert told(alice, "bob", holds=[second, *others]) == []

    cites = a_message("sync-2", third, sender="bob", content=None, bloom_filter=b"\xff" * 10_000)
    found = reviews(alice.receive(cites, None, start))
    assert [(r.message_id, r.evidence) for r in found] == [(third, Evidence.CITED)]
    (review,) = told(alice, "bob", third, holds=[second, third, *others])
    assert (review.message_id, review.evidence) == (second, Evidence.DESCENDANT)


@pytest.mark.parametrize("profile", list(Profile))
def test_a_filter_beside_a_citation_is_believed_as_long_as_it_seldom_errs(new_channel, send, a_message, start, profile):
    """Who vouches for nothing may lack any message, and then each false hit is a false acknowledgement."""
    others = [sha256(b"%d" % n).hexdigest() for n in range(1_000)]
    for held, error_rate, believed in (
        (others[:200], 0.001, True),  # as full as it is made for
        (others[:300], 0.001, False),
        (others[:20], 0.1, True),  # nearly empty
        (others[:200], 0.1, False),
    ):
        alice = new_channel("alice", profile=profile, bloom_capacity=200, bloom_error_rate=error_rate)
        first, second = (send(alice, b"%d" % n, start).message_id for n in range(2))
        field = filter_with(alice, first, *held)
        cites = a_message("sync-1", second, sender="bob", content=b"", bloom_filter=field)
        found = [review.message_id for review in reviews(alice.receive(cites, None, start))]
        assert found == [second] + [first] * believed, (len(held), error_rate)


def test_filters_of_another_size_are_read_on_the_logos_wire(new_channel, send, a_message, start):
    """nim-sds makes its filter larger when it rolls it over; the field says how large it is."""
    alice = new_channel("alice", profile=Profile.LOGOS)
    messages = [send(alice, b"%d" % n, start) for n in range(3)]
    parameters = BloomParameters.of(360, 0.001)
    bloom = BloomFilter(parameters, NIM_BLOOM)
    bloom.insert(messages[0].message_id)
    bloom.insert(messages[2].message_id)
    field = alice.profile.codec.write_bloom(bytes(bloom), parameters)
    for participant, count in (("bob", 1), ("carol", 2)):
        sync = a_message("sync-1", sender=participant, content=b"", bloom_filter=field)
        found = reviews(alice.receive(sync, None, start))
        assert [review.message_id for review in found] == [messages[0].message_id, messages[2].message_id]
        assert {review.evidence for review in found} == {None if count == 1 else Evidence.BLOOM}


# When nobody has to acknowledge any more


def test_possible_acknowledgements_of_two_count_for_both_beside_a_certain_one(new_channel, told, start):
    alice = new_channel("alice")
    message = alice.send(b"hello", start)
    told(alice, "bob", message.message_id)
    told(alice, "carol", holds=[message.message_id])
    (review,) = told(alice, "dave", holds=[message.message_id])
    assert set(review.acknowledged_by) == {"bob", "carol", "dave"}
