"""Catching up when a store node becomes reachable (RELIABLE-CHANNEL-API, "Query on connect")."""

from __future__ import annotations

import hashlib
from contextvars import copy_context
from dataclasses import replace

import pytest

from fairway import GroupKeys, Identity
from fairway.environment import Environment, set_environment
from fairway.events import IrretrievableMessage
from fairway.options import Advanced, ReliableChannelOptions, SdsConfig, SegmentationConfig
from fairway.protocol.effects import Purpose, QueryStore

SECOND, MINUTE, DAY = 1_000, 60_000, 86_400_000
MS = 1_000_000
QUIET = ReliableChannelOptions(sync_min_interval_ms=0)


def queries(effects):
    return [effect for effect in effects if isinstance(effect, QueryStore)]


def connect_store(peer):
    """Tell that a store node is reachable, and return what it is asked for of the time away."""
    return [query for query in queries(peer.do(peer.stack.store_connected(peer.now_ms))) if query.catch_up]


def catch_up(peer, took_ms=0):
    """Let a store node come and answer in full."""
    [query] = connect_store(peer)
    peer.now_ms += took_ms
    peer.do(peer.stack.caught_up(query.end_ns, peer.now_ms))
    return query


def test_the_first_of_all_asks_for_thirty_days(peer):
    alice = peer()
    now_ms = alice.now_ms
    [query] = connect_store(alice)
    assert query == QueryStore(start_ns=(now_ms - 30 * DAY) * MS, end_ns=(now_ms + MINUTE) * MS, catch_up=True)


def test_the_time_away_is_asked_for_with_a_margin_on_both_sides(peer):
    alice = peer()
    catch_up(alice)
    last_ms = alice.now_ms
    alice.connect(False)
    alice.now_ms += 2 * DAY + 7
    alice.connect()
    [query] = connect_store(alice)
    assert (query.start_ns, query.end_ns) == ((last_ms - MINUTE) * MS, (alice.now_ms + MINUTE) * MS)
    alice.check_rows()


def test_nothing_is_asked_again_while_nothing_can_have_been_missed(peer):
    alice = peer()
    catch_up(alice)
    for _ in range(5):
        alice.now_ms += MINUTE
        assert connect_store(alice) == []


def test_a_query_that_did_not_go_through_is_asked_again(peer):
    alice = peer()
    assert len(connect_store(alice)) == 1
    alice.now_ms += SECOND
    assert len(connect_store(alice)) == 1


def test_what_never_comes_is_given_up_although_what_finds_no_room_is_read_again_and_again(peer):
    sds = SdsConfig(max_incoming_buffer=1, causal_history_size=1, lost_timeout_ms=10 * MINUTE)
    bob, alice = peer("bob", replace(QUIET, sds=sds)), peer("alice", replace(QUIET, sds=sds))
    catch_up(alice)
    for number in range(3):
        bob.send(b"number %d" % number)
    _, parked, turned_away = bob.content()
    alice.receive(parked)
    reads = []
    for _ in range(30):
        alice.receive(turned_away)
        reads += [query for query in queries(alice.pass_time(30 * SECOND)) if query.catch_up]
    assert len(reads) > 3
    assert len(alice.events(IrretrievableMessage)) == 1
    assert alice.payloads() == [b"number 1", b"number 2"]


def test_what_found_no_room_and_can_never_be_taken_in_does_not_have_to_come_again(peer):
    sds = SdsConfig(max_incoming_buffer=1, causal_history_size=1)
    bob, alice = (
        peer(
            name,
            replace(QUIET, sds=sds, segmentation=SegmentationConfig(segment_size_bytes=size, max_buffered_bytes=most)),
        )
        for name, size, most in (("bob", 500, 1 << 28), ("alice", 64, 8 * 64))
    )
    for payload in (b"number 0", b"number 1", bytes(3_000)):
        bob.send(payload)
    first, parked, too_long, *_ = bob.content()
    alice.receive(parked, too_long)
    assert alice.stack.was_turned_away(too_long.message_hash)
    alice.receive(first, too_long)
    assert alice.payloads() == [b"number 0", b"number 1"]
    assert alice.stack.statistics().reassembly.segments_discarded == {"oversized": 1}
    assert not alice.stack.was_turned_away(too_long.message_hash)


def test_going_offline_while_the_answer_comes_is_asked_about_again(peer):
    alice = peer()
    [query] = connect_store(alice)
    alice.now_ms += 10 * SECOND
    alice.connect(False)
    alice.now_ms += SECOND
    alice.connect()
    alice.do(alice.stack.caught_up(query.end_ns, alice.now_ms))
    [again] = connect_store(alice)
    assert again.start_ns <= (alice.now_ms - SECOND) * MS


def test_a_query_that_took_long_vouches_for_no_more_than_its_range(peer):
    alice = peer()
    asked_ms = alice.now_ms
    catch_up(alice, took_ms=10 * MINUTE)
    alice.connect(False)
    alice.connect()
    [query] = connect_store(alice)
    assert query.start_ns == asked_ms * MS


def test_after_a_restart_the_whole_time_that_the_program_did_not_run_is_asked_for(peer):
    alice = peer()
    catch_up(alice)
    last_ms = alice.now_ms
    alice.now_ms += 3 * DAY
    again = alice.restart()
    [query] = connect_store(again)
    assert query.start_ns == (last_ms - MINUTE) * MS
    again.check_rows()


def test_even_right_after_the_last_success_a_new_life_asks_once(peer):
    alice = peer()
    catch_up(alice)
    again = alice.restart()
    catch_up(again)
    assert connect_store(again) == []


def test_never_more_than_the_window_is_asked_for(peer):
    alice = peer(options=ReliableChannelOptions(advanced=Advanced(query_on_connect_max_window_ms=DAY)))
    catch_up(alice)
    alice.now_ms += 40 * DAY
    [query] = connect_store(alice)
    assert query.start_ns == (alice.now_ms - DAY) * MS


def test_a_clock_that_was_set_back_makes_no_empty_range(peer):
    alice = peer()
    catch_up(alice)
    alice.now_ms -= DAY
    alice.connect(False)
    [query] = connect_store(alice)
    # When that was, nobody knows: the whole window is asked for.
    assert query.start_ns == (alice.now_ms - 30 * DAY) * MS


def test_it_can_be_turned_off(peer):
    alice = peer(options=ReliableChannelOptions(query_on_connect=False))
    assert connect_store(alice) == []


# Stores that are behind


def looks(peer, minutes):
    """Let time pass, and return when a store was asked about the time before it was read, and about what time."""
    seen = []
    for second in range(minutes * 60):
        peer.now_ms += SECOND
        seen += [(second + 1, query) for query in queries(peer.do(peer.stack.tick(peer.now_ms)))]
    return seen


def look_at(read_ms):
    return QueryStore(start_ns=(read_ms - 10 * MINUTE) * MS, end_ns=(read_ms + MINUTE) * MS)


def test_the_time_before_a_store_was_read_is_looked_at_again_after_one_three_and_ten_minutes(peer):
    alice = peer(options=QUIET)
    catch_up(alice)
    look = look_at(alice.now_ms)
    assert looks(alice, 60) == [(60, look), (180, look), (600, look)]
    alice.connect(False)
    alice.connect()
    assert queries(alice.do(alice.stack.store_connected(alice.now_ms)))[1:] == []


def test_nobody_is_asked_while_nobody_is_connected_and_then_at_once(peer):
    alice = peer(options=QUIET)
    catch_up(alice)
    look = look_at(alice.now_ms)
    assert [second for second, _ in looks(alice, 2)] == [60]
    alice.connect(False)
    assert looks(alice, 2) == []
    alice.connect()
    assert queries(alice.do(alice.stack.store_connected(alice.now_ms)))[1:] == [look]


def test_a_clock_that_was_set_back_does_not_put_a_look_off(peer):
    alice = peer(options=QUIET)
    catch_up(alice)
    alice.now_ms -= DAY
    alice.do(alice.stack.tick(alice.now_ms))
    assert looks(alice, 10)[-1][0] == 600


# When paging may stop


@pytest.fixture
def talk(peer):
    """Bob says three things; the first cites nothing."""
    bob = peer("bob", QUIET)
    for number in range(3):
        bob.send(b"number %d" % number)
    return bob


def test_messages_with_causal_history_are_counted_copies_included(peer, talk):
    alice = peer()
    first, second, third = talk.content()
    counts = []
    for publication in (third, first, second, second):
        alice.receive(publication)
        counts.append(alice.stack.history_heard)
    assert counts == [1, 1, 2, 3]


def test_a_sync_message_with_history_counts_and_an_own_message_that_comes_back_does_too(peer, talk):
    alice = peer("alice", QUIET)
    listener = peer("carol")
    listener.receive(*talk.content())
    listener.pass_time(40_000)
    alice.receive(listener.published(Purpose.SYNC)[0])
    assert alice.stack.history_heard == 1
    talk.receive(*talk.content())
    assert talk.stack.history_heard == 2


class AtTheClockOf(Environment):
    """A machine whose wall clock is that of a peer."""

    def __init__(self, peer):
        self._peer = peer

    def time_ns(self):
        return self._peer.now_ms * MS


def test_after_new_keys_everything_is_read_that_may_have_become_readable(peer, tmp_path):
    copy_context().run(read_after_new_keys, peer, tmp_path)


def read_after_new_keys(peer, folder):
    identities = {name: Identity(hashlib.sha256(name.encode()).digest()) for name in ("bob", "alice")}
    clock = peer()
    set_environment(AtTheClockOf(clock))
    began_ms = clock.now_ms
    bobs = GroupKeys.create(folder / "bob", identities["bob"], "bob")
    alices = GroupKeys.join(folder / "alice", identities["alice"], bobs.id)
    bob, alice = peer("bob", QUIET, encryption=bobs), peer("alice", QUIET, encryption=alices)
    alice.now_ms += DAY
    old = catch_up(alice)
    clock.now_ms = alice.now_ms = bob.now_ms = alice.now_ms + 30 * SECOND
    bobs.add("alice", identities["alice"].public_key, with_history=True)
    bob.send(b"the message with the record")
    alice.receive(*bob.content())
    [query] = [query for query in queries(alice.pass_time(0)) if query.catch_up]
    assert query.start_ns == (began_ms - MINUTE) * MS
    alice.check_rows()
    # The end of a reading from before the keys proves nothing, and a restart begins anew.
    alice.now_ms += 10 * SECOND
    alice.do(alice.stack.caught_up(old.end_ns, alice.now_ms))
    again = alice.restart()
    [query] = connect_store(again)
    assert query.start_ns == (began_ms - MINUTE) * MS
    again.now_ms += 1
    again.do(again.stack.caught_up(query.end_ns, again.now_ms))
    [query] = connect_store(again.restart())
    assert query.start_ns > (began_ms + DAY - MINUTE) * MS
