"""A segment that contradicts others is refused, and counts for nothing."""

from __future__ import annotations

import dataclasses
import random

import pytest
from msgspec import structs

from fairway.options import Profile, ReliableChannelOptions
from fairway.protocol.sds.dependencies import LONGEST_TURNED_AWAY
from fairway.units import HOUR_MS

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
    segment = segments.decode(sds.content)
    other = dataclasses.replace(segment, payload=random.Random(number).randbytes(len(segment.payload)))
    said = structs.replace(
        sds,
        message_id=message_id,
        content=segments.encode(other),
        causal_history=cited,
        lamport_timestamp=sds.lamport_timestamp + 1,
    )
    return carrier_of(publication, author, said)


def carrier_of(publication, author, said):
    """Return the WakuMessage of another SDS message."""
    return structs.replace(publication.message, payload=author.stack.sds.profile.codec.encode(said))


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


def test_a_segment_that_was_refused_is_neither_acknowledged_nor_cited_and_is_still_asked_for(talk):
    alice, bob, carol, segments = talk
    bob.receive(*segments[:2], forged_from(segments[1], alice), *carol.content())
    assert bob.stack.sds.record(FORGED) is None
    assert FORGED in bob.stack.sds.missing
    bob.send(b"what bob says")
    assert FORGED not in {entry.message_id for entry in bob.sds(bob.content()[0]).causal_history}


def test_what_cites_a_refused_segment_is_delivered_after_the_lost_timeout(talk):
    alice, bob, carol, segments = talk
    bob.receive(*segments[:2], forged_from(segments[1], alice), *carol.content())
    assert bob.payloads() == []
    bob.pass_time(2 * HOUR_MS)
    assert bob.payloads() == [b"what carol says"]
    bob.receive(*segments[2:])
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
