"""Around a gap a message that cites a segment is marked unless the application has the message of that segment."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairway.events import MessageReceived
from fairway.options import Profile, ReliableChannelOptions, SdsConfig, SegmentationConfig
from fairway.wire.sds import HistoryEntry

FILE = bytes(range(256)) * 2
MINUTE_MS = 60_000


@pytest.fixture(params=[Profile.WAKU, Profile.LOGOS], ids=["waku", "logos"])
def four(request, peer):
    size_bytes = 192 if request.param is Profile.LOGOS else 64
    options = ReliableChannelOptions(
        profile=request.param,
        segmentation=SegmentationConfig(segment_size_bytes=size_bytes, parity_rate=0.0),
        sds=SdsConfig(bloom_capacity=1_000, gap_timeout_ms=MINUTE_MS),
        sync_min_interval_ms=0,
        retrieve_frequency_ms=0,
    )
    return [peer(name, options) for name in ("alice", "bob", "carol", "dave")]


def marks(one):
    """Return what was delivered, and whether it is said to lack nothing."""
    return [(event.payload, event.dependencies_met) for event in one.events(MessageReceived)]


def cited_by(one, publication):
    return {entry.message_id for entry in one.sds(publication).causal_history}


def go_around(one):
    one.pass_time(2 * MINUTE_MS)


def a_file_and_more(alice):
    """Let Alice send a file and two texts; return all."""
    for payload in (FILE, b"text", b"more"):
        alice.send(payload)
    alice.answer()
    *segments, text, more = alice.content()
    return segments, text, more


def a_reply_that_cites_the_first_segment(bob, segments, *texts):
    """Let Bob get the first segment last, so that nothing that he gets afterwards cites it, and reply."""
    bob.receive(*segments[1:])
    go_around(bob)
    bob.receive(*texts, segments[0])
    assert (FILE, False) in marks(bob)
    bob.send(b"reply")
    [reply] = bob.content()
    assert cited_by(bob, reply) == {segments[0].sds_id, *(text.sds_id for text in texts)}
    return reply


def test_a_reply_is_marked_if_the_rest_of_the_message_that_it_cites_was_gone_around(four):
    alice, bob, _, dave = four
    segments, *texts = a_file_and_more(alice)
    reply = a_reply_that_cites_the_first_segment(bob, segments, *texts)
    dave.receive(*segments[:-1], *texts, reply)
    assert marks(dave) == []
    go_around(dave)
    assert marks(dave) == [(b"text", False), (b"more", False), (b"reply", False)]
    dave.receive(segments[-1])
    assert marks(dave)[3:] == [(FILE, True)]


def test_a_reply_is_marked_also_after_a_restart(four):
    alice, bob, _, dave = four
    segments, *texts = a_file_and_more(alice)
    reply = a_reply_that_cites_the_first_segment(bob, segments, *texts)
    dave.receive(*segments[:-1], *texts)
    go_around(dave)
    dave = dave.restart()
    dave.receive(reply)
    assert marks(dave) == [(b"reply", False)]


def test_what_cites_a_segment_is_not_marked_once_nothing_is_gone_around(four):
    alice, bob, carol, dave = four
    carol.send(b"lost")
    carol.send(b"hello")
    lost, hello = carol.content()
    alice.send(FILE)
    segments = alice.content()
    bob.receive(segments[0])
    for payload in (b"one", b"two"):
        bob.send(payload)
        bob.answer()
    one, two = bob.content()
    assert segments[0].sds_id in cited_by(bob, one) & cited_by(bob, two)
    dave.receive(hello)
    go_around(dave)
    dave.receive(segments[0], one)
    dave.receive(lost, two)
    assert marks(dave) == [(b"hello", False), (b"one", False), (b"lost", True), (b"two", True)]


def test_the_segments_of_a_message_do_not_mark_each_other(four):
    alice, _, carol, dave = four
    for payload in (b"lost", b"hello"):
        carol.send(payload)
    dave.receive(carol.content()[1])
    go_around(dave)
    alice.send(FILE)
    dave.receive(*alice.content())
    assert marks(dave) == [(b"hello", False), (FILE, True)]


def test_a_reply_is_marked_if_the_message_that_it_cites_is_complete_and_waits(four):
    """Other implementations cite what was there before a message with its first segment only."""
    alice, bob, carol, dave = four
    carol.send(b"before")
    [before] = carol.content()
    alice.send(FILE)
    first, *segments = alice.content()
    cites = replace(alice.sds(first), causal_history=(HistoryEntry(before.sds_id, before.message_hash, "carol"),))
    first = replace(first.message, payload=alice.stack.sds.profile.codec.encode(cites))
    bob.receive(before, first, *segments)
    bob.send(b"reply")
    [reply] = bob.content()
    assert cited_by(bob, reply) == {segment.sds_id for segment in segments[-2:]}
    dave.receive(*segments)
    go_around(dave)
    dave.receive(first, reply)
    assert marks(dave) == [(b"reply", False)]
    dave.receive(before)
    assert marks(dave)[1:] == [(b"before", True), (FILE, False)]
