"""What SDS demands, seen from outside: a message in, messages and events out."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from fairway.events import (
    IrretrievableMessage,
    MessageAcknowledged,
    MessagePossiblyAcknowledged,
    MessageReceived,
)
from fairway.options import BloomPolicy, ReliableChannelOptions, RepairConfig, SdsConfig
from fairway.protocol.effects import Purpose
from fairway.wire.bloom import BloomFilter, BloomParameters
from fairway.wire.sds import WAKU_SDS, HistoryEntry, Kind

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
FILTERED = ReliableChannelOptions(sds=SdsConfig(bloom_policy=BloomPolicy.ALWAYS))
"""As SDS has it; by default most messages have no filter (docs/decisions/specifications.md)."""


PARAMETERS = BloomParameters.of(SdsConfig().bloom_capacity, SdsConfig().bloom_error_rate)


def holds(message, message_id: str) -> bool:
    """Return whether the bloom filter of an SDS message seems to hold an id."""
    bloom = WAKU_SDS.read_bloom(message.bloom_filter, PARAMETERS)
    return message_id in BloomFilter(bloom.parameters, bits=bloom.words)


def filter_holding(*message_ids: str) -> bytes:
    """Return the field with a filter of somebody who has these."""
    bloom = BloomFilter(PARAMETERS)
    for message_id in message_ids:
        bloom.insert(message_id)
    return WAKU_SDS.write_bloom(bytes(bloom), PARAMETERS)


def cites(message) -> list[str]:
    return [entry.message_id for entry in message.causal_history]


# -- Message ---------------------------------------------------------------------------------------


def test_every_message_says_who_which_and_where(room):
    alice = room.member("alice")
    for payload in (b"one", b"one", b"two"):
        alice.send(payload)
    alice.send_ephemeral(b"typing")
    room.wait(HOUR_MS)
    said = alice.said(Purpose.CONTENT, Purpose.EPHEMERAL, Purpose.SYNC)
    assert {(message.sender_id, message.channel_id) for message in said} == {("alice", "harbour")}
    assert all(message.message_id for message in said)
    assert len({message.message_id for message in said}) == len(said) > 4, "ids are unique, of equal payloads too"


# -- Send Message ----------------------------------------------------------------------------------


def test_the_clock_of_each_message_is_the_time_and_grows(room):
    alice = room.member("alice")
    for _ in range(3):
        alice.send(b"at once")
    room.wait(1_000)
    alice.send(b"later")
    stamps = [message.lamport_timestamp for message in alice.said(Purpose.CONTENT)]
    assert stamps == sorted(set(stamps))
    assert stamps[0] in {room.now_ms - 1_000, room.now_ms - 999}
    assert stamps[3] >= room.now_ms


def test_a_message_cites_the_newest_of_the_log_in_order(room):
    alice = room.member("alice")
    line = [HistoryEntry(f"m{number}") for number in range(5)]
    for number in range(5):
        before, now_ms = tuple(line[:number]), room.now_ms + number
        alice.hear(room.said(f"m{number}", lamport_timestamp=now_ms, causal_history=before, vouches=True))
    room.wait(1_000)
    alice.send(b"reply")
    assert cites(alice.said(Purpose.CONTENT)[0]) == ["m3", "m4"]


def test_a_message_has_the_bloom_filter_of_what_its_sender_has(room):
    alice = room.member("alice", FILTERED)
    alice.hear(room.said("theirs"))
    alice.send(b"reply")
    (message,) = alice.said(Purpose.CONTENT)
    assert holds(message, "theirs")
    assert not holds(message, "never heard of")


def test_a_message_is_kept_until_it_is_acknowledged(room):
    alice = room.member("alice")
    alice.send(b"hello")
    room.silent()
    room.wait(5 * MINUTE_MS)
    assert alice.stack.statistics().unacknowledged == 1
    mine = alice.said(Purpose.CONTENT)[0].message_id
    alice.hear(room.said("reply", causal_history=(HistoryEntry(mine),)))
    assert alice.stack.statistics().unacknowledged == 0


# -- Receive Message -------------------------------------------------------------------------------


def test_ones_own_messages_and_copies_are_not_delivered(room):
    alice = room.member("alice")
    alice.send(b"mine")
    alice.hear(*alice.published(Purpose.CONTENT), room.said("theirs"), room.said("theirs"))
    assert alice.heard == [("bob", b"hello")]


@pytest.mark.parametrize("content", [b"reply", None], ids=["content", "sync"])
def test_every_kind_of_message_that_cites_one_acknowledges_it(room, content):
    alice = room.member("alice")
    alice.send(b"hello")
    room.settle()
    mine = alice.said(Purpose.CONTENT)[0].message_id
    alice.hear(room.said("after", content, causal_history=(HistoryEntry(mine),)))
    (event,) = alice.events(MessageAcknowledged)
    assert (event.acknowledged_by, event.chunks_acknowledged) == (("bob",), (0,))


def test_what_has_content_enters_the_bloom_filter_although_it_waits(room):
    alice = room.member("alice", FILTERED)
    alice.hear(room.said("waits", causal_history=(HistoryEntry("not here"),)))
    assert alice.heard == []
    alice.send(b"hello")
    assert holds(alice.said(Purpose.CONTENT)[0], "waits")


def test_a_message_is_delivered_when_everything_that_it_cites_is_there(room):
    alice = room.member("alice")
    first = room.said("first", b"first")
    second = room.said("second", b"second", causal_history=(HistoryEntry("first"),))
    third = room.said("third", b"third", causal_history=(HistoryEntry("first"), HistoryEntry("second")))
    alice.hear(third, second)
    assert alice.heard == []
    alice.hear(first)
    assert [payload for _, payload in alice.heard] == [b"first", b"second", b"third"]


# -- Deliver Message -------------------------------------------------------------------------------


def test_after_a_message_was_delivered_the_next_one_has_a_later_clock(room):
    alice = room.member("alice")
    ahead = room.now_ms + 30 * MINUTE_MS
    alice.hear(room.said("ahead", lamport_timestamp=ahead))
    alice.send(b"reply")
    assert alice.said(Purpose.CONTENT)[0].lamport_timestamp == ahead + 1


def test_the_log_is_in_the_order_of_clocks_and_then_of_ids(room):
    alice = room.member("alice", ReliableChannelOptions(sds=SdsConfig(causal_history_size=10)))
    clocks = {"b": 2, "a": 2, "z": 1, "c": 3}
    alice.hear(*[room.said(name, lamport_timestamp=room.now_ms + clock) for name, clock in clocks.items()])
    alice.send(b"reply")
    assert cites(alice.said(Purpose.CONTENT)[0]) == ["z", "a", "b", "c"]


# -- Review ACK Status -----------------------------------------------------------------------------


def test_a_bloom_filter_acknowledges_possibly_and_those_of_several_participants_for_good(room):
    alice = room.member("alice")
    alice.send(b"hello")
    room.settle()
    told = filter_holding(alice.said(Purpose.CONTENT)[0].message_id)
    alice.hear(room.said("sync of bob", None, sender_id="bob", bloom_filter=told))
    (possibly,) = alice.events(MessagePossiblyAcknowledged)
    assert (possibly.participant, possibly.possible_ack_count) == ("bob", 1)
    assert alice.events(MessageAcknowledged) == []
    alice.hear(room.said("sync of carol", None, sender_id="carol", bloom_filter=told))
    (event,) = alice.events(MessageAcknowledged)
    assert set(event.acknowledged_by) == {"bob", "carol"}


def test_a_bloom_filter_of_one_participant_never_acknowledges_for_good_however_often_it_comes(room):
    alice = room.member("alice")
    alice.send(b"hello")
    room.settle()
    told = filter_holding(alice.said(Purpose.CONTENT)[0].message_id)
    alice.hear(*[room.said(f"m{number}", bloom_filter=told) for number in range(9)])
    assert alice.events(MessageAcknowledged) == []


# -- Periodic Incoming Buffer Sweep ----------------------------------------------------------------


def test_what_waits_is_looked_at_again_and_delivered_when_what_it_cites_is_declared_lost(room):
    alice = room.member("alice", ReliableChannelOptions(sds=SdsConfig(lost_timeout_ms=10 * MINUTE_MS)))
    lost = HistoryEntry("lost", b"h" * 32, "carol")
    alice.hear(room.said("waits", causal_history=(lost,)))
    room.wait(9 * MINUTE_MS)
    assert alice.heard == []
    room.wait(2 * MINUTE_MS)
    assert alice.heard == [("bob", b"hello")]
    order = [type(event) for event in alice.events(IrretrievableMessage, MessageReceived)]
    assert order == [IrretrievableMessage, MessageReceived], "what is lost is told before what follows from it"
    assert alice.events(IrretrievableMessage)[0].message_id == "lost"


def test_what_is_missing_is_fetched_from_a_store_by_its_hint(room):
    alice = room.member("alice")
    alice.hear(room.said("waits", causal_history=(HistoryEntry("missing", b"h" * 32),)))
    room.wait(30_000)
    assert {hash_ for query in alice.queries() for hash_ in query.message_hashes} == {b"h" * 32}


# -- Periodic Outgoing Buffer Sweep ----------------------------------------------------------------


def test_what_nobody_acknowledges_is_sent_again_as_it_was(room):
    alice = room.member("alice", ReliableChannelOptions(retry_interval_ms=30_000, max_retry_attempts=3))
    alice.send(b"hello")
    room.wait(100_000)
    (first,), again = alice.said(Purpose.CONTENT), alice.said(Purpose.RETRY)
    assert len(again) == 3
    assert {(message.message_id, message.lamport_timestamp, message.content) for message in again} == {
        (first.message_id, first.lamport_timestamp, b"hello")
    }


def test_what_is_possibly_acknowledged_waits_longer_before_it_is_sent_again(room):
    alice = room.member("alice", ReliableChannelOptions(retry_interval_ms=30_000))
    alice.send(b"hello")
    room.settle()
    told = filter_holding(alice.said(Purpose.CONTENT)[0].message_id)
    alice.hear(room.said("sync", None, bloom_filter=told))
    assert len(alice.events(MessagePossiblyAcknowledged)) == 1
    room.wait(45_000)
    assert alice.said(Purpose.RETRY) == []
    room.wait(45_000)
    assert len(alice.said(Purpose.RETRY)) == 1


# -- Periodic Sync Message -------------------------------------------------------------------------


def test_a_sync_message_has_clock_history_and_filter_and_no_content(room):
    alice = room.member("alice", FILTERED)
    alice.hear(room.said("theirs"))
    room.wait(2 * MINUTE_MS)
    sync = alice.said(Purpose.SYNC)[0]
    assert (sync.kind, sync.content, cites(sync)) == (Kind.SYNC, None, ["theirs"])
    assert sync.lamport_timestamp > 0
    assert holds(sync, "theirs")


def test_a_sync_message_is_never_cited_nor_in_a_filter_nor_sent_again(room):
    alice, bob = room.member("alice"), room.member("bob")
    alice.send(b"hello")
    room.wait(10 * MINUTE_MS)
    syncs = {message.message_id for member in (alice, bob) for message in member.said(Purpose.SYNC)}
    assert syncs
    bob.send(b"reply")
    room.wait(10 * MINUTE_MS)
    for member in (alice, bob):
        said = member.said()
        assert not syncs & {message_id for message in said for message_id in cites(message)}
        assert not any(holds(message, sync) for message in said if message.bloom_filter for sync in syncs)
        assert all(message.kind is not Kind.SYNC for message in member.said(Purpose.RETRY))
        assert member.stack.statistics().history == 2


def test_sync_messages_go_out_periodically_after_random_times(room):
    alice = room.member("alice", ReliableChannelOptions(sync_min_interval_ms=30_000))
    alice.hear(room.said("theirs"))
    room.wait(0)
    sent_at_ms = []
    for _ in range(3 * 360):
        before = len(alice.published(Purpose.SYNC))
        room.wait(10_000)
        sent_at_ms += [room.now_ms] * (len(alice.published(Purpose.SYNC)) - before)
    pauses = [later - earlier for earlier, later in pairwise(sent_at_ms)]
    assert len(set(pauses)) > 5
    # The first soon, later ones rarely, for nothing is new; but they never end.
    assert pauses[0] <= 70_000
    assert max(pauses) <= 970_000


# -- Ephemeral Messages ----------------------------------------------------------------------------


def test_an_ephemeral_message_has_neither_clock_nor_history_nor_filter(room):
    alice = room.member("alice")
    alice.hear(room.said("theirs"))
    alice.send_ephemeral(b"typing")
    (message,) = alice.said(Purpose.EPHEMERAL)
    assert message.kind is Kind.EPHEMERAL
    assert (message.lamport_timestamp, message.causal_history, message.bloom_filter) == (None, (), None)


def test_an_ephemeral_message_is_delivered_at_once_and_leaves_no_trace(room):
    alice, bob = room.member("alice"), room.member("bob", FILTERED)
    bob.hear(room.said("waits", sender_id="carol", causal_history=(HistoryEntry("not here"),)))
    alice.send_ephemeral(b"typing")
    room.settle()
    assert bob.heard == [("alice", b"typing")]
    assert bob.events(MessageReceived)[0].ephemeral
    (typing,) = alice.said(Purpose.EPHEMERAL)
    bob.send(b"reply")
    (reply,) = bob.said(Purpose.CONTENT)
    assert typing.message_id not in cites(reply)
    assert not holds(reply, typing.message_id)
    room.wait(HOUR_MS)
    assert len(alice.published(Purpose.EPHEMERAL)) == 1
    assert alice.stack.statistics().unacknowledged == 0


# -- SDS-R -----------------------------------------------------------------------------------------

QUIET = ReliableChannelOptions(retrieve_frequency_ms=0, query_on_connect=False)


def test_who_misses_messages_asks_participants_for_at_most_three_of_them_after_a_while(room):
    alice = room.member("alice", QUIET)
    missing = tuple(HistoryEntry(f"missing {number}", None, "carol") for number in range(5))
    alice.hear(room.said("waits", causal_history=missing))
    room.wait(29_000)
    assert not any(message.repair_request for message in alice.said())
    room.wait(2 * MINUTE_MS)
    asked = [message.repair_request for message in alice.said() if message.repair_request]
    assert asked
    assert all(1 <= len(entries) <= 3 for entries in asked)
    assert {entry.message_id for entries in asked for entry in entries} <= {entry.message_id for entry in missing}


def test_who_has_what_is_asked_for_sends_it_again_as_it_was(room):
    alice = room.member("alice", QUIET)
    alice.send(b"hello")
    room.silent()
    room.settle()
    (mine,) = alice.said(Purpose.CONTENT)
    alice.hear(room.said("asks", None, repair_request=(HistoryEntry(mine.message_id, None, "alice"),)))
    room.wait(3_000)
    assert alice.said(Purpose.REPAIR) == [mine]


def test_who_hears_the_answer_does_not_answer_too(room):
    bob = room.member("bob", QUIET)
    theirs = room.said("theirs", sender_id="alice")
    bob.hear(
        theirs, room.said("asks", None, sender_id="carol", repair_request=(HistoryEntry("theirs", None, "alice"),))
    )
    bob.hear(theirs)
    room.wait(5 * MINUTE_MS)
    assert bob.said(Purpose.REPAIR) == []


def test_who_hears_somebody_else_ask_asks_later(room):
    asked_at_ms = []
    missing = HistoryEntry("missing", None, "carol")
    for others_ask in (False, True):
        own = type(room)()
        alice = own.member("alice", QUIET)
        alice.hear(own.said("waits", causal_history=(missing,)))
        if others_ask:
            alice.hear(own.said("asks", None, sender_id="dave", repair_request=(missing,)))
        while not any(message.repair_request for message in alice.said()):
            own.wait(1_000)
            assert own.now_ms < room.now_ms + HOUR_MS
        asked_at_ms.append(own.now_ms)
    assert asked_at_ms[0] < asked_at_ms[1]


def test_with_repair_a_lost_message_comes_without_a_store(room):
    options = replace(QUIET, retry_interval_ms=0, sds=SdsConfig(repair=RepairConfig(t_min_ms=30_000)))
    alice, bob, carol = [room.member(name, options) for name in ("alice", "bob", "carol")]
    room.carries = lambda publication, to: to != "carol" or publication.purpose is not Purpose.CONTENT
    alice.send(b"lost to carol")
    room.settle()
    room.carries = lambda publication, to: True
    bob.send(b"reply")
    room.wait(10 * MINUTE_MS)
    assert carol.heard == [("alice", b"lost to carol"), ("bob", b"reply")]
