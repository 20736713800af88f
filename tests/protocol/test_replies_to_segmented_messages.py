"""A reply stands after the message that it answers, also where segments of that message wait for others' messages."""

from __future__ import annotations

import pytest

from fairway.options import Advanced, Profile, ReliableChannelOptions, RepairConfig, SdsConfig, SegmentationConfig

FILE = bytes(range(256)) * 2


def options(profile, *, repair=True):
    return ReliableChannelOptions(
        profile=profile,
        segmentation=SegmentationConfig(segment_size_bytes=192 if profile is Profile.LOGOS else 64, parity_rate=0.0),
        sds=SdsConfig(bloom_capacity=1_000, repair=RepairConfig(enabled=repair)),
        advanced=Advanced(max_concurrent_publishes=1),
    )


@pytest.fixture(params=[Profile.WAKU, Profile.LOGOS], ids=["waku", "logos"])
def four(request, peer):
    return [peer(name, options(request.param)) for name in ("alice", "bob", "carol", "dave")]


def a_file_amid_which_its_sender_reads(alice, carol):
    """Let Alice send a file, of which all segments but the first cite a text of Carol's; return both."""
    carol.send(b"text")
    alice.send(FILE)
    alice.receive(*carol.content())
    alice.answer()
    first, second, *_ = alice.content()
    [text] = carol.content()
    cited = [[entry.message_id for entry in alice.sds(one).causal_history] for one in (first, second)]
    assert [text.sds_id in ids for ids in cited] == [False, True]
    return alice.content(), text


@pytest.mark.parametrize("restarts", [False, True], ids=["in one life", "after a restart"])
def test_a_reply_waits_for_all_of_the_message_although_its_author_lacks_what_came_amid_that(four, restarts):
    alice, bob, carol, dave = four
    segments, text = a_file_amid_which_its_sender_reads(alice, carol)
    bob.receive(*segments)
    assert bob.payloads() == [FILE], "it comes after what was sent before it, and need not wait for the text"
    if restarts:
        bob = bob.restart()
    bob.send(b"reply")
    [reply] = bob.content()
    dave.receive(segments[0], reply)
    assert dave.payloads() == []
    dave.receive(*segments[1:])
    assert dave.payloads() == [FILE]
    dave.receive(text)
    assert dave.payloads() == [FILE, b"text", b"reply"]
    stamps = [p.sds(one).lamport_timestamp for p, one in ((alice, segments[-1]), (bob, reply))]
    assert stamps == sorted(set(stamps)), "it is ordered after all that it cites"


def test_only_the_first_reply_says_so(four):
    alice, bob, carol, _ = four
    segments, text = a_file_amid_which_its_sender_reads(alice, carol)
    bob.receive(*segments)
    for payload in (b"reply", b"another"):
        bob.send(payload)
    bob.answer()
    later, last = {segment.sds_id for segment in segments[1:]}, segments[-1].sds_id
    cited = [{entry.message_id for entry in bob.sds(one).causal_history} & later for one in bob.content()]
    assert cited == [{last}, set()]
    bob.receive(text)
    logs = []
    for one in (alice, bob):
        one.receive(*segments, text, *bob.content())
        logs.append([(record.lamport, record.message_id) for record in one.stack.sds.history])
    assert logs[0] == logs[1]
    bob.check_rows()


def test_of_a_message_that_is_not_whole_nothing_is_cited_that_waits(four):
    alice, bob, carol, _ = four
    segments, _ = a_file_amid_which_its_sender_reads(alice, carol)
    bob.receive(*segments[:-1])
    for _ in range(2):
        bob.send(b"hello")
        [said] = bob.content()[-1:]
        waiting = {segment.sds_id for segment in segments[1:]}
        assert waiting.isdisjoint(entry.message_id for entry in bob.sds(said).causal_history)
        bob = bob.restart()
