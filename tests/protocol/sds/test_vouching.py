"""When a message has a bloom filter, and what one without vouches for."""

import pytest
from msgspec.structs import replace

from fairway.options import BloomPolicy, Profile, SdsConfig
from fairway.protocol.sds.acknowledgements import Evidence
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import MessageReviewed
from fairway.protocol.sds.state import SdsState
from fairway.wire.sds import HistoryEntry

HOUR_MS = 3_600_000
LONG_MS = 2 * HOUR_MS
"""How long who went without something attaches the filter."""
YOUNG_MS = HOUR_MS // 2
"""How old a message may be that is acknowledged without the filter."""
NEWS = BloomPolicy.NEWS


def reviews(outcomes):
    return [outcome.review for outcome in outcomes if isinstance(outcome, MessageReviewed)]


def restarted(channel, new_channel, **options):
    """Return the channel of a program that starts again with its rows."""
    again = new_channel(channel.sender_id, **options)
    SdsState(again).load(SdsState(channel).rows())
    return again


@pytest.fixture(params=[BloomPolicy.NEWS, BloomPolicy.NEVER])
def thrifty(request, new_channel):
    return lambda name, **options: new_channel(name, bloom_policy=request.param, **options)


# What is attached


def test_as_sds_has_it_every_message_has_the_filter(new_channel, send, start):
    alice = new_channel("alice", bloom_policy=BloomPolicy.ALWAYS)
    assert all(send(alice, b"%d" % number, start).bloom_filter for number in range(3))
    assert alice.send_sync(start).bloom_filter


@pytest.mark.parametrize("profile", Profile)
def test_where_citations_tell_everything_no_filter_is_attached(thrifty, send, start, profile):
    alice, bob = thrifty("alice", profile=profile), thrifty("bob", profile=profile)
    for number in range(30):
        bob.receive(send(alice, b"%d" % number, start), None, start)
    assert not send(alice, b"more", start).bloom_filter
    assert not bob.send_sync(start).bloom_filter
    assert not send(bob, b"reply", start).bloom_filter


def test_a_copy_of_a_message_that_waits_makes_a_filter_due_once(new_channel, a_message, start):
    bob = new_channel("bob", bloom_policy=NEWS)
    bob.receive(a_message("here", sender="carol"), None, start)
    parked = a_message("parked", "missing")
    bob.receive(parked, None, start)
    assert bob.send_sync(start).bloom_filter is None, "nobody asked yet"
    bob.receive(parked, None, start + 1)
    told = bob.send_sync(start + 2)
    assert told.bloom_filter, "its author waits, and a citation cannot tell"
    assert bob.send_sync(start + 3).bloom_filter is None
    bob.receive(parked, None, start + 4)
    assert bob.send_sync(start + 5).bloom_filter is None, "too soon after the last"
    assert bob.send_sync(start + 30_002).bloom_filter


def test_a_filter_that_tells_of_something_does_not_take_back_that_its_message_vouches(new_channel, a_message, start):
    """Else whoever parks it would attach filters, too, and so on."""
    bob, carol = new_channel("bob", bloom_policy=NEWS), new_channel("carol", bloom_policy=NEWS)
    bob.receive(a_message("here"), None, start)
    bob.receive(a_message("parked", "missing", vouches=False), None, start)
    message = bob.send(b"hello", start + 1)
    assert message.bloom_filter
    assert message.vouches
    carol.receive(message, None, start + 1)
    assert message.message_id in carol.parked
    carol.send(b"own", start + 1)
    assert carol.send_sync(start + 2).bloom_filter is None


def test_two_filters_tell_js_waku_of_a_message_that_waits(new_channel, a_message, start):
    """It reads no descent out of citations, and what waits is not cited; it believes two filters."""
    bob = new_channel("bob", bloom_policy=NEWS)
    bob.receive(a_message("here", sender="carol"), None, start)
    bob.receive(a_message("parked", "missing", vouches=False), None, start)
    told = [bool(bob.send_sync(start + number).bloom_filter) for number in range(4)]
    assert told == [True, True, False, False]


def test_with_the_policy_never_a_copy_makes_no_filter_due(new_channel, a_message, start):
    bob = new_channel("bob", bloom_policy=BloomPolicy.NEVER)
    bob.receive(a_message("here", sender="carol"), None, start)
    for later_ms in (0, 1):
        bob.receive(a_message("parked", "missing"), None, start + later_ms)
    assert bob.send_sync(start + 2).bloom_filter is None


# Who went without something


def given_up(channel, a_message, sweep_until, start):
    channel.receive(a_message("after", "lost"), None, start)
    sweep_until(channel, start, start + 61_000)
    assert "after" in channel.history
    return start + 61_000


def gone_around(channel, a_message, sweep_until, start):
    channel.receive(a_message("after", "lost"), None, start)
    channel.dependencies.deliver_around_gaps(start)
    return start


def rebuilt(channel, a_message, sweep_until, start):
    channel.receive(a_message("after", "segment"), None, start)
    channel.stop_waiting(["segment"], start)
    return start


def forgotten_by_itself(channel, a_message, sweep_until, start):
    """It lost its state, and its own message of before comes back."""
    own = channel.send(b"before", start - 10)
    fresh = type(channel)("ch", channel.sender_id, channel.config, now_ms=start)
    vars(channel).update(vars(fresh))
    channel.receive(own, None, start)
    return start


def cited_too_much(channel, a_message, sweep_until, start):
    channel.receive(a_message("before"), None, start)
    channel.receive(a_message("after", "unread", *["before"] * 1_000), None, start)
    return start


WAYS = [
    given_up,
    gone_around,
    rebuilt,
    forgotten_by_itself,
    cited_too_much,
]


@pytest.mark.parametrize("way", WAYS)
def test_a_participant_that_skipped_a_message_does_not_vouch_for_two_hours(thrifty, a_message, sweep_until, start, way):
    options = {"lost_timeout_ms": 60_000}
    bob = thrifty("bob", **options)
    at_ms = way(bob, a_message, sweep_until, start)
    assert not bob.send_sync(at_ms + 1).vouches
    assert not restarted(bob, thrifty, **options).send_sync(at_ms + LONG_MS - 1).vouches
    assert bob.send_sync(at_ms + LONG_MS).vouches


def test_a_clock_that_goes_back_neither_shortens_this_time_nor_makes_it_endless(thrifty, a_message, sweep_until, start):
    bob = thrifty("bob")
    gone_around(bob, a_message, sweep_until, start + 1_000 * HOUR_MS)
    assert not bob.send_sync(start).vouches
    assert not bob.send_sync(start + LONG_MS - 1).vouches
    assert bob.send_sync(start + LONG_MS).vouches


def test_no_message_vouches_that_descends_from_a_parked_one(thrifty, a_message, start):
    bob = thrifty("bob")
    bob.receive(a_message("parked", "missing", lamport=start + 1), None, start)
    bob.handed_over(["parked"])
    reply = bob.send(b"cites the parked message", start + 2)
    assert "parked" in {entry.message_id for entry in reply.causal_history}
    assert not reply.vouches
    later = bob.send(b"cites the reply", start + 3)
    assert "parked" not in {entry.message_id for entry in later.causal_history}
    assert not later.vouches
    bob = restarted(bob, thrifty)
    assert not bob.send_sync(start + 4).vouches
    bob.receive(a_message("missing", lamport=start), None, start + 5)
    assert bob.send_sync(start + 6).vouches


# What one without the filter acknowledges


def test_a_participant_that_skipped_a_message_does_not_acknowledge_it(thrifty, send, start):
    alice, bob = thrifty("alice"), thrifty("bob")
    first, *others = [send(alice, b"%d" % number, start) for number in range(5)]
    for message in others:
        bob.receive(message, None, start)
    bob.dependencies.deliver_around_gaps(start)
    alice.receive(bob.send_sync(start), None, start)
    alice.receive(send(bob, b"reply", start), None, start)
    assert not alice.unacknowledged(first.message_id).acknowledged_by
    assert alice.unacknowledged(others[-1].message_id).acknowledged_by


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("bloom", ["absent", "empty"])
def test_who_leaves_the_filter_out_and_does_not_vouch_acknowledges_only_what_it_cites(
    thrifty, send, start, profile, bloom
):
    """Such an implementation may have given up what comes before."""
    alice, zoe = thrifty("alice", profile=profile), thrifty("zoe", profile=profile)
    lost, *others = [send(alice, b"%d" % number, start) for number in range(5)]
    for message in others:
        zoe.receive(message, None, start)
    zoe.dependencies.deliver_around_gaps(start)
    foreign = replace(zoe.send_sync(start), bloom_filter=None if bloom == "absent" else b"", vouches=False)
    foreign = profile.codec.decode(profile.codec.encode(foreign))
    found = reviews(alice.receive(foreign, None, start))
    assert {review.message_id for review in found} == {message.message_id for message in others[-2:]}
    assert {review.evidence for review in found} == {Evidence.CITED}
    assert alice.unacknowledged(lost.message_id).acknowledged_by == {}


@pytest.mark.parametrize("policy", BloomPolicy)
def test_who_only_sends_after_a_past_of_others_neither_vouches_nor_attaches_what_nobody_asked_for(send, start, policy):
    sender = MessageChannel("ch", "a batch", SdsConfig(bloom_policy=policy), now_ms=start, vouches=False)
    messages = [send(sender, b"%d" % number, start) for number in range(3)]
    assert not any(message.vouches for message in messages)
    assert {bool(message.bloom_filter) for message in messages} == {policy is BloomPolicy.ALWAYS}


def test_an_old_message_needs_a_citation_of_its_own(thrifty, send, start):
    alice, bob = thrifty("alice"), thrifty("bob")
    old, young, newest = (send(alice, b"%d" % number, start + number) for number in (0, 1, 2))
    for message in (old, young, newest):
        bob.receive(message, None, start)
    (about,) = [e for e in bob.send_sync(start).causal_history if e.message_id == newest.message_id]
    later_ms = start + YOUNG_MS + 1
    sync = bob.send_sync(later_ms)
    sync = replace(sync, causal_history=(about,))
    found = {review.message_id: review.evidence for review in reviews(alice.receive(sync, None, later_ms))}
    assert found == {newest.message_id: Evidence.CITED, young.message_id: Evidence.DESCENDANT}
    bob.receive(old, None, later_ms)
    found = reviews(alice.receive(bob.send_sync(later_ms), None, later_ms))
    assert [(review.message_id, review.evidence) for review in found] == [(old.message_id, Evidence.CITED)]


def test_after_a_restart_the_age_of_a_message_is_known(thrifty, send, start):
    alice, bob = thrifty("alice"), thrifty("bob")
    for number in range(4):
        bob.receive(send(alice, b"%d" % number, start), None, start)
    alice = restarted(alice, thrifty)
    found = reviews(alice.receive(bob.send_sync(start + 1_000), None, start + 1_000))
    assert [review.evidence for review in found] == [Evidence.CITED] * 2 + [Evidence.DESCENDANT] * 2


# Authors that read citations one by one


@pytest.mark.parametrize("bloom", [b"\0" * 8, None], ids=["with a filter", "without"])
def test_each_message_that_does_not_vouch_is_cited_twice(thrifty, a_message, start, bloom):
    bob = thrifty("bob")
    ids = [f"js {number}" for number in range(6)]
    before = []
    for number, message_id in enumerate(ids):
        bob.receive(
            a_message(message_id, *before, lamport=start + number, bloom_filter=bloom, vouches=False), None, start
        )
        before = [message_id]
    for _ in range(2):
        sync = bob.send_sync(start)
        assert {entry.message_id for entry in sync.causal_history} == set(ids)
        assert sync.bloom_filter is None
    assert [entry.message_id for entry in bob.send_sync(start).causal_history] == ids[-2:]


def test_more_of_them_than_a_message_cites_make_a_filter_due(new_channel, a_message, start):
    bob = new_channel("bob", bloom_policy=NEWS)
    before = []
    for number in range(150):
        cited = tuple(HistoryEntry(message_id) for message_id in before)
        message = a_message(f"js {number}", lamport=start + number, vouches=False, causal_history=cited)
        bob.receive(message, None, start)
        before = [message.message_id]
    first, second = bob.send_sync(start), bob.send_sync(start + 1)
    assert first.bloom_filter
    assert second.bloom_filter is None
    told = {entry.message_id for sync in (first, second) for entry in sync.causal_history}
    assert told == {f"js {number}" for number in range(150)}
