"""Parity is of use although SDS holds back whatever cites a lost segment, and order holds all the same."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from msgspec import structs

from fairway.events import IrretrievableMessage, MessageReceived
from fairway.options import Advanced, Delivery, Profile, ReliableChannelOptions, SdsConfig, SegmentationConfig
from fairway.protocol.effects import Purpose
from fairway.wire.sds import HistoryEntry
from fairway.wire.waku_message import WakuMessage

FILE = bytes(range(256)) * 4
"""16 segments of 64 bytes, and two parity segments."""


def waku(history=2, **options):
    return ReliableChannelOptions(
        segmentation=SegmentationConfig(segment_size_bytes=64),
        sds=SdsConfig(causal_history_size=history, bloom_capacity=1_000),
        **options,
    )


def logos(history=2):
    return ReliableChannelOptions(
        profile=Profile.LOGOS,
        segmentation=SegmentationConfig(segment_size_bytes=192),
        sds=SdsConfig(causal_history_size=history, bloom_capacity=1_000),
    )


def without(publications, *lost):
    """Return publications without those at the lost places; they leave a millisecond apart and never come."""
    return [publication for place, publication in enumerate(publications) if place not in lost]


def cited(peer, publication):
    """Return the ids that a message cites."""
    return {entry.message_id for entry in peer.sds(publication).causal_history}


@pytest.mark.parametrize("history", [2, 200, pytest.param(10, marks=pytest.mark.full)])
@pytest.mark.parametrize("lost", [(place,) for place in range(18)] + [(3, 9), (7, 8), (14, 15), (15, 17)])
def test_as_many_segments_as_there_is_parity_may_be_lost_without_any_retransmission(peer, history, lost):
    alice, bob = peer("alice", waku(history)), peer("bob", waku(history))
    for number in range(3):
        alice.send(f"before {number}".encode())
    alice.send(FILE)
    alice.send(b"after")
    before, segments, after = alice.content()[:3], alice.content()[3:-1], alice.content()[-1]
    bob.receive(*before, *without(segments, *lost), after)
    expected = [b"before 0", b"before 1", b"before 2", FILE, b"after"]
    assert bob.payloads() == expected
    assert all(event.dependencies_met for event in bob.events(MessageReceived))
    assert not bob.events(IrretrievableMessage)
    assert [event.recovered for event in bob.events(MessageReceived)] == [False] * 3 + [min(lost) < 16, False]
    bob.check_rows()


@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize("make", [waku, logos])
def test_a_reply_comes_after_a_message_that_was_rebuilt_before_its_first_segments_came(peer, make, is_restarted):
    options = make()
    segmentation = replace(options.segmentation, parity_rate=1.0)
    alice, bob, carol = (peer(name, replace(options, segmentation=segmentation)) for name in ("alice", "bob", "carol"))
    alice.send(FILE[:600])
    segments = alice.content()
    data, parity = segments[: len(segments) // 2], segments[len(segments) // 2 :]
    carol.receive(*data)
    carol.send(b"reply")
    bob.receive(*carol.content(), *parity)
    assert bob.payloads() == []
    if is_restarted:
        bob = bob.restart()
    bob.receive(*data)
    assert bob.payloads() == [FILE[:600], b"reply"]
    assert all(event.dependencies_met for event in bob.events(MessageReceived))
    bob.check_rows()


@pytest.mark.parametrize("make", [waku, logos])
def test_a_forged_segment_that_comes_late_brings_no_message_before_its_turn(peer, make):
    options = make()
    options = replace(options, segmentation=replace(options.segmentation, parity_rate=1.0))
    alice, bob = peer("alice", options), peer("bob", options)
    alice.send(b"before")
    alice.send(FILE[:600])
    before, *segments = alice.content()
    data, parity = segments[: len(segments) // 2], segments[len(segments) // 2 :]
    bob.receive(*parity)
    profile = alice.stack.sds.profile
    message, segment = alice.sds(data[0]), profile.segments.decode(alice.sds(data[0]).content)
    content = profile.segments.encode(replace(segment, payload=bytes(len(segment.payload))))
    forged = structs.replace(message, message_id="forged", causal_history=(), content=content)
    bob.receive(structs.replace(data[0].message, payload=profile.codec.encode(forged)))
    assert bob.payloads() == []
    bob.receive(before, *data)
    assert bob.payloads() == [b"before", FILE[:600]]


@pytest.mark.parametrize("history", [2, 200])
def test_a_whole_run_of_lost_first_segments_is_made_up_for_when_nothing_was_sent_before(peer, history):
    alice, bob = peer("alice", waku(10)), peer("bob", waku(10))
    alice.send(FILE)
    bob.receive(*without(alice.content(), 0, 1))
    assert bob.payloads() == [FILE]


@pytest.mark.parametrize("history", [2, 10, 200])
@pytest.mark.parametrize("lost", [(0,), (5,), (15,), (16,), (0, 1), (4, 11)])
def test_a_text_that_was_lost_before_the_file_holds_it_back_until_it_comes(peer, history, lost):
    alice, bob = peer("alice", waku(history)), peer("bob", waku(history))
    alice.send(b"first")
    alice.send(b"text")
    alice.send(FILE)
    alice.send(b"after")
    first, text, *segments, after = alice.content()
    bob.receive(first, *without(segments, *lost), after)
    assert bob.payloads() == [b"first"]
    bob = restarted = bob.restart()
    bob.receive(text)
    assert bob.payloads() == [b"text", FILE, b"after"]
    assert all(event.dependencies_met for event in bob.events(MessageReceived))
    restarted.check_rows()


@pytest.mark.parametrize("lost", [(0,), (5,), (0, 1)])
def test_a_text_that_is_lost_for_good_is_announced_before_the_file(peer, lost):
    alice, bob = peer("alice", waku()), peer("bob", waku())
    alice.send(b"text")
    alice.send(FILE)
    alice.send(b"after")
    text, *segments, after = alice.content()
    bob.receive(*without(segments, *lost), after)
    bob.pass_time(12_000_000)
    announced = [event.message_id for event in bob.events(IrretrievableMessage)]
    assert announced == [text.sds_id]
    received = bob.events(MessageReceived)
    assert [event.payload for event in received] == [FILE, b"after"]
    assert not received[0].dependencies_met


def test_what_a_lost_first_segment_cites_still_comes_before_the_message(peer):
    """The first segment cites all that its sender had read; as many more as there is parity repeat that."""
    alice, bob, carol = peer("alice", waku()), peer("bob", waku()), peer("carol", waku())
    for number in range(3):
        carol.send(f"from carol {number}".encode())
    bob.send(b"from bob")
    alice.receive(*carol.content(), *bob.content())
    alice.send(FILE)
    cited = [entry.message_id for entry in alice.sds(alice.content()[0]).causal_history]
    heads = [p for p in (*carol.content(), *bob.content()) if p.sds_id in cited]
    for lost in ((0,), (0, 1), (1, 2)):
        dave = peer(f"dave {lost}", waku())
        dave.receive(*without(alice.content(), *lost))
        assert dave.payloads() == []
        dave.pass_time(10_000)
        asked = {message_hash for query in dave.queries() for message_hash in query.message_hashes}
        assert {head.message_hash for head in heads} <= asked
        dave.receive(*carol.content(), *bob.content())
        assert len(dave.payloads()) == 5
        assert dave.payloads()[-1] == FILE
        dave.check_rows()


def test_a_lost_segment_that_was_rebuilt_is_never_announced_as_lost(peer):
    alice, bob = peer("alice", waku()), peer("bob", waku())
    alice.send(b"before")
    alice.send(FILE)
    bob.receive(alice.content()[0], *without(alice.content()[1:], 0))
    bob.pass_time(12_000_000)
    assert bob.payloads() == [b"before", FILE]
    assert not bob.events(IrretrievableMessage)


def test_a_text_is_not_taken_for_a_lost_segment_where_sender_and_receiver_cite_differently_many(peer):
    def options(history):
        base = logos(history)
        return dataclasses.replace(base, segmentation=dataclasses.replace(base.segmentation, parity_rate=1.0))

    alice, bob = peer("alice", options(2)), peer("bob", options(20))
    alice.send(b"first")
    alice.send(b"text")
    alice.send(b"more text")
    alice.send(FILE[:400])
    first, text, more, *segments = alice.content()
    # Of seven segments that cite the texts one comes, and all of parity, which cites two segments each.
    bob.receive(first, *without(segments, 0, 1, 2, 3, 5, 6, 7))
    assert bob.payloads() == [b"first"]
    bob.receive(text, more, *segments)
    assert bob.payloads() == [b"first", b"text", b"more text", FILE[:400]]


@pytest.mark.parametrize("history", [2, 10])
@pytest.mark.parametrize("lost", [(place,) for place in range(16)])
def test_the_order_of_sending_tells_which_segments_were_lost_and_they_are_still_asked_for(peer, history, lost):
    alice, bob = peer("alice", logos(history)), peer("bob", logos(history))
    alice.send(b"before")
    alice.send(FILE)
    before, *segments = alice.content()
    bob.receive(before, *without(segments, *lost))
    assert bob.payloads() == [b"before", FILE]
    # That is a guess: the segment is still asked for.
    bob.pass_time(10_000)
    assert segments[lost[0]].message_hash in bob.queries()[0].message_hashes
    bob.receive(segments[lost[0]])
    assert bob.stack.statistics().missing == 0
    assert bob.payloads() == [b"before", FILE]


def test_what_follows_a_file_waits_for_its_parity_if_all_of_that_was_lost(peer):
    """Nothing tells whether there was any: the next message may cite others in its place."""
    alice, bob = peer("alice", waku()), peer("bob", waku())
    alice.send(FILE)
    alice.send(b"after")
    *segments, after = alice.content()
    bob.receive(*without(segments, 16, 17), after)
    assert bob.payloads() == [FILE]
    bob.receive(*segments[16:])
    assert bob.payloads() == [FILE, b"after"]


def test_a_text_is_not_taken_for_a_segment_that_the_one_who_cites_it_lacks_as_well(peer):
    alice, bob, carol = peer("alice", waku()), peer("bob", waku()), peer("carol", waku())
    alice.send(FILE)
    alice.send(b"after")
    *segments, after = alice.content()
    carol.receive(*without(segments, 17), after)
    carol.send(b"reply")
    assert cited(carol, carol.content()[0]) == {segments[16].sds_id, after.sds_id}
    bob.receive(*without(segments, 17), *carol.content())
    assert bob.payloads() == [FILE]
    bob.receive(after)
    assert bob.payloads() == [FILE, b"after", b"reply"]


def test_a_lost_segment_that_never_comes_is_not_announced_as_lost_after_a_restart(peer):
    alice, bob = peer("alice", waku()), peer("bob", waku())
    alice.send(b"before")
    alice.send(FILE)
    bob.receive(*without(alice.content(), 6))
    bob = bob.restart()
    bob.pass_time(12_000_000)
    assert not bob.events(IrretrievableMessage)
    assert bob.stack.statistics().missing == 0


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(5, 20))])
def test_senders_whose_segments_mix_on_the_way_are_told_apart(peer, seed):
    rng = random.Random(seed)
    names = ("alice", "bob", "carol")
    senders = [peer(name, waku()) for name in names]
    sent = {}
    for sender in senders:
        for _ in range(2):
            sent[sender.name] = [*sent.get(sender.name, []), rng.choice([FILE, rng.randbytes(1_000), b"ok"])]
            sender.send(sent[sender.name][-1])
    publications = [p for sender in senders for p in sender.content()]
    losable = [p for p in publications if rng.random() < 0.04]
    rng.shuffle(publications)
    dave = peer("dave", waku())
    dave.receive(*(p for p in publications if p not in losable))
    dave.check_rows()
    events = dave.events(MessageReceived)
    dave = dave.restart()
    dave.receive(*publications)
    events += dave.events(MessageReceived)
    received = {name: [event.payload for event in events if event.sender_id == name] for name in names}
    assert received == sent, f"seed {seed}"
    dave.check_rows()


def test_whoever_cites_a_strangers_message_inside_his_segments_cannot_make_it_disappear(peer):
    victim, mallory = peer("victim", waku()), peer("mallory", waku())
    victim.send(b"the truth")
    [truth] = victim.content()
    mallory.send(b"before")
    mallory.send(FILE)
    before, *segments = mallory.content()
    bob = peer("bob", waku())
    forged = []
    for place, segment in enumerate(without(segments, 4)):
        message = mallory.sds(segment)
        if place == 4:
            # Where his own lost segment should stand, he puts the victim's message as though it were his.
            history = (message.causal_history[0], HistoryEntry(truth.sds_id, None, "mallory"))
            message = structs.replace(message, causal_history=history)
        forged.append(
            WakuMessage(
                payload=mallory.stack.sds.profile.codec.encode(message),
                content_topic=segment.message.content_topic,
                timestamp_ns=segment.message.timestamp_ns,
            )
        )
    bob.receive(before, *forged)
    # Nobody waits for it, but it is missed and asked for until it comes.
    assert truth.sds_id in bob.stack.sds.missing
    bob.pass_time(125_000)
    asked = [entry.message_id for p in bob.published(Purpose.SYNC) for entry in bob.sds(p).repair_request]
    assert truth.sds_id in asked
    bob.receive(truth)
    assert b"the truth" in bob.payloads()


def test_with_delivery_on_arrival_lost_segments_hold_nobody_up_either(peer):
    alice, bob = peer("alice", waku()), peer("bob", waku(delivery=Delivery.ARRIVAL))
    alice.send(b"text")
    alice.send(FILE)
    alice.send(b"after")
    text, *segments, after = alice.content()
    bob.receive(*without(segments, 5, 9), after)
    assert bob.payloads() == [FILE, b"after"]
    bob.receive(text)
    assert bob.payloads() == [FILE, b"after", b"text"]
    assert bob.stack.statistics().parked == 0


@pytest.fixture(params=[waku, logos], ids=["waku", "logos"])
def file_amid_which_a_text_came(request, peer):
    """A file, of whose segments one alone cites a text that its sender read amid sending it; and how to make peers."""

    def made(name):
        return peer(name, replace(request.param(), advanced=Advanced(max_concurrent_publishes=1)))

    alice, carol = made("alice"), made("carol")
    alice.send(FILE)
    for _ in range(4):
        alice.answer(alice.unanswered[0])
    carol.send(b"text")
    [text] = carol.content()
    alice.receive(text)
    alice.answer()
    citing = [place for place, one in enumerate(alice.content()) if text.sds_id in cited(alice, one)]
    assert citing == [5]
    return SimpleNamespace(alice=alice, text=text, made=made, citing=5)


@pytest.mark.parametrize("restarts", [False, True], ids=["in one life", "after a restart"])
@pytest.mark.parametrize("after", [b"after", FILE[::-1]], ids=["a text", "a file"])
@pytest.mark.parametrize("speaker", ["alice", "bob"])
def test_what_was_read_amid_a_file_comes_before_the_next_message_of_whoever_read_it(
    file_amid_which_a_text_came, speaker, after, restarts
):
    """Parity tells what the lost segment said and not what it cited."""
    file, text = file_amid_which_a_text_came.alice.content(), file_amid_which_a_text_came.text
    speaking = file_amid_which_a_text_came.alice
    if speaker == "bob":
        speaking = file_amid_which_a_text_came.made("bob")
        speaking.receive(text, *file)
        assert speaking.payloads() == [b"text", FILE]
    if restarts:
        speaking = speaking.restart()
    sent = len(speaking.content())
    speaking.send(after)
    speaking.answer()
    said = speaking.content()[sent:]
    for lost in ((), (0,), (0, 1)) if len(said) > 1 else ((),):
        dave = file_amid_which_a_text_came.made(f"dave {lost}")
        dave.receive(*without(file, file_amid_which_a_text_came.citing), *without(said, *lost))
        assert dave.payloads() == [FILE]
        dave.receive(text)
        assert dave.payloads() == [FILE, b"text", after]
        dave.check_rows()


def test_what_was_read_amid_a_file_is_cited_once_more_and_then_no_longer(file_amid_which_a_text_came):
    alice, text = file_amid_which_a_text_came.alice, file_amid_which_a_text_came.text
    bob = file_amid_which_a_text_came.made("bob")
    bob.receive(text, *alice.content())
    for number in range(4):
        alice.send(b"%d" % number)
        alice.answer()
    assert [text.sds_id in cited(alice, one) for one in alice.content()[-4:]] == [True, False, False, False]
    bob.receive(*alice.content())
    bob.send(b"answer")
    assert text.sds_id not in cited(bob, bob.content()[0])


def test_two_who_send_files_at_once_cite_each_of_their_own_segments_and_of_the_others_last_only_once_more(peer):
    alice, bob = (
        peer(name, replace(waku(), advanced=Advanced(max_concurrent_publishes=1))) for name in ("alice", "bob")
    )
    alice.send(FILE)
    bob.send(FILE[::-1])
    heard = [0, 0]
    while alice.unanswered or bob.unanswered:
        for place, (one, other) in enumerate(((alice, bob), (bob, alice))):
            if one.unanswered:
                one.answer(one.unanswered[0])
            one.receive(*other.content()[heard[place] :])
            heard[place] = len(other.content())
    files = [one.sds_id for peer_ in (alice, bob) for one in peer_.content()]
    alice.send(b"after")
    alice.answer()
    assert len(cited(alice, alice.content()[-1]) & set(files)) <= 4
    bob.receive(alice.content()[-1])
    assert bob.payloads() == [FILE, b"after"]
