"""A segment that was set aside holds up nothing that others say, and counts for nothing else."""

from __future__ import annotations

import dataclasses
import random

import pytest

from fairway.options import Profile, ReliableChannelOptions
from fairway.protocol.sds.dependencies import LONGEST_TURNED_AWAY
from fairway.units import HOUR_MS
from fairway.wire.sds import HistoryEntry

FORGED = "f" * 64


def options_of(profile, **sds):
    base = ReliableChannelOptions.logos() if profile is Profile.LOGOS else ReliableChannelOptions()
    return dataclasses.replace(
        base,
        segmentation=dataclasses.replace(base.segmentation, segment_size_bytes=1_024, parity_rate=0.0),
        sds=dataclasses.replace(base.sds, **sds),
    )


def forged_from(publication, author, number=1, *, message_id=FORGED, cited=()):
    """Return a segment as it was published, with other bytes under another id."""
    sds = author.sds(publication)
    segments = author.stack.sds.profile.segments
    segment = segments.decode(sds.content, 256)
    other = dataclasses.replace(segment, payload=random.Random(number).randbytes(len(segment.payload)))
    said = dataclasses.replace(
        sds,
        message_id=message_id,
        content=segments.encode(other),
        causal_history=cited,
        lamport_timestamp=sds.lamport_timestamp + 1,
    )
    return carrier_of(publication, author, said)


def carrier_of(publication, author, said):
    """Return the WakuMessage of another SDS message."""
    return dataclasses.replace(publication.message, payload=author.stack.sds.profile.codec.encode(said))


@pytest.fixture(params=Profile)
def options(request):
    return options_of(request.param)


@pytest.fixture
def talk(peer, options):
    """Return (alice, bob, carol, the segments of a message of alice): carol has taken in a forged second one."""
    alice, bob, carol = (peer(name, options) for name in ("alice", "bob", "carol"))
    alice.send(random.Random(0).randbytes(2_500))
    segments = alice.content()
    assert len(segments) > 2
    carol.receive(segments[0], forged_from(segments[1], alice))
    carol.send(b"what carol says")
    assert FORGED in {entry.message_id for entry in carol.sds(carol.content()[0]).causal_history}
    return alice, bob, carol, segments


@pytest.mark.parametrize("is_forged_first", [True, False])
def test_nobody_waits_for_a_forged_segment_that_another_one_believed(talk, is_forged_first):
    alice, bob, carol, segments = talk
    forged = forged_from(segments[1], alice)
    bob.receive(*segments[:2])
    bob.receive(*([forged, *carol.content()] if is_forged_first else [*carol.content(), forged]))
    assert bob.payloads() == [b"what carol says"]
    bob.check_rows()
    bob.receive(*segments[2:])
    assert len(bob.payloads()) == 2


def test_a_segment_that_was_set_aside_is_neither_acknowledged_nor_cited_and_is_still_asked_for(talk):
    alice, bob, carol, segments = talk
    bob.receive(*segments[:2], forged_from(segments[1], alice), *carol.content())
    assert bob.stack.sds.record(FORGED) is None
    assert not bob.stack.sds.has(FORGED)
    assert FORGED in bob.stack.sds.missing
    bob.send(b"what bob says")
    assert FORGED not in {entry.message_id for entry in bob.sds(bob.content()[0]).causal_history}


def test_what_cites_a_segment_that_was_set_aside_waits_for_all_else_that_it_cites(talk, peer, options):
    alice, bob, carol, segments = talk
    dave = peer("dave", options)
    dave.send(b"what dave says")
    carol.receive(*dave.content())
    carol.send(b"what carol replies")
    bob.receive(*segments[:2], forged_from(segments[1], alice), *carol.content())
    assert bob.payloads() == [b"what carol says"]
    bob.receive(*dave.content())
    assert bob.payloads() == [b"what carol says", b"what dave says", b"what carol replies"]


def test_a_segment_that_was_set_aside_is_waited_for_until_all_is_here_that_it_cites_itself(peer, options):
    alice, bob, carol, dave = (peer(name, options) for name in ("alice", "bob", "carol", "dave"))
    alice.send(random.Random(0).randbytes(2_500))
    dave.send(b"what dave says")
    segments, [said] = alice.content(), dave.content()
    forged = forged_from(segments[1], alice, cited=(HistoryEntry(dave.sds(said).message_id, None, "dave"),))
    carol.receive(segments[0], said, forged)
    carol.send(b"what carol says")
    bob.receive(*segments[:2], forged, *carol.content())
    assert bob.payloads() == []
    bob.receive(said)
    assert bob.payloads() == [b"what dave says"]
    bob.receive(forged)
    assert bob.payloads() == [b"what dave says", b"what carol says"]


def test_after_a_restart_a_segment_that_was_set_aside_has_to_come_again(talk):
    alice, bob, carol, segments = talk
    forged = forged_from(segments[1], alice)
    bob.receive(*segments[:2], forged)
    bob = bob.restart()
    bob.receive(*carol.content())
    assert bob.payloads() == [], "its content was not stored"
    bob.receive(forged)
    assert bob.payloads() == [b"what carol says"]


def test_another_content_under_the_id_of_a_segment_does_not_count_as_that_segment(peer):
    options = options_of(Profile.WAKU)
    alice, bob, carol = (peer(name, options) for name in ("alice", "bob", "carol"))
    alice.send(random.Random(0).randbytes(2_500))
    segments = alice.content()
    carol.receive(*segments[:2])
    carol.send(b"what carol says")
    true_id = alice.sds(segments[1]).message_id
    assert true_id in {entry.message_id for entry in carol.sds(carol.content()[0]).causal_history}
    bob.receive(segments[0], forged_from(segments[1], alice))
    bob.receive(forged_from(segments[1], alice, 2, message_id=true_id), *carol.content())
    assert bob.payloads() == [], "whoever forges an id does not let others pass"
    bob.receive(segments[1])
    assert bob.payloads() == [b"what carol says"], "the true one is set aside, too, and proves its id"
    bob.receive(segments[2])
    assert len(bob.payloads()) == 2


@pytest.fixture
def useless(peer):
    """Return (alice, bob, a forged message of one segment, what alice said since): alice takes it for her own."""
    options = options_of(Profile.LOGOS, lost_timeout_ms=HOUR_MS)
    alice, bob = peer("alice", options), peer("bob", options)
    alice.send(b"what alice says")
    [said] = alice.content()
    bob.receive(said)
    forged = forged_from(said, alice)
    alice.receive(forged)
    alice.send(b"what alice says next")
    last = alice.content()[-1]
    assert FORGED in {entry.message_id for entry in alice.sds(last).causal_history}
    return alice, bob, forged, last


@pytest.mark.parametrize("is_forged_first", [True, False])
def test_nobody_waits_for_a_message_of_one_segment_that_is_not_what_its_hash_says(useless, is_forged_first):
    _, bob, forged, last = useless
    bob.receive(*([forged, last] if is_forged_first else [last, forged]))
    assert bob.payloads() == [b"what alice says", b"what alice says next"]
    assert bob.stack.sds.record(FORGED) is None


def test_a_message_that_no_segment_can_mend_is_asked_for_no_longer_than_one_that_never_comes(useless):
    _, bob, forged, last = useless
    bob.receive(last)
    for _ in range(LONGEST_TURNED_AWAY * 12):
        bob.receive(forged)
        bob.pass_time(HOUR_MS // 10)
        if not bob.stack.sds.missing:
            break
    assert bob.now_ms - bob.stack.sds.record(bob.sds(last).message_id).lamport * 1_000 < 2 * HOUR_MS
    assert bob.stack.status.value == "synced"
