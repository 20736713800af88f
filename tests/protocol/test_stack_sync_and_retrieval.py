"""Sync and retrieval (RELIABLE-CHANNEL-API, "Synchronization messages" and "Missing message retrieval")."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from fairway.options import Advanced, RateLimitConfig, ReliableChannelOptions, RepairConfig, SdsConfig
from fairway.protocol.effects import Purpose, QueryStore
from fairway.protocol.jitter import Jitter
from fairway.protocol.outgoing.sync_timer import SyncTimer

HOUR_MS = 3_600_000
NO_REPAIR = SdsConfig(repair=RepairConfig(enabled=False))


def syncs(peer):
    return peer.published(Purpose.SYNC)


def acquainted(peer, *names, options=None):
    """Return participants who all have one message."""
    first, *others = (peer(name, options) for name in names)
    first.send(b"hello")
    first.answer()
    for other in others:
        other.receive(*first.content())
    return first, *others


def test_a_received_message_is_acknowledged_within_a_second(peer):
    for name in ("bob", "carol", "dave", "erin"):
        _, other = acquainted(peer, "alice", name)
        other.pass_time(1_001)
        assert len(syncs(other)) == 1, name


def test_the_last_message_of_a_burst_is_announced_soon_and_then_less_and_less_often(peer):
    alice, bob = acquainted(peer, "alice", "bob")
    for number in range(3):
        alice.now_ms += 500
        alice.send(b"%d" % number)
    alice.pass_time(15_000)
    first_ms, *later_ms = [at_ms - alice.now_ms + 15_000 for at_ms in times_of(syncs(alice))]
    assert 1_000 <= first_ms <= 2_001
    assert len(later_ms) in (2, 3)
    bob.receive(syncs(alice)[0])
    assert alice.content()[-1].sds_id in bob.stack.sds.missing


@pytest.mark.parametrize("interval_ms", [10_000, 30_000])
def test_an_interval_of_sync_messages_that_is_set_is_kept(peer, interval_ms):
    options = ReliableChannelOptions(sync_min_interval_ms=interval_ms)
    alice, bob = acquainted(peer, "alice", "bob", options=options)
    bob.pass_time(interval_ms // 4)
    assert not syncs(bob)
    bob.pass_time(interval_ms // 4 + 1)
    assert len(syncs(bob)) == 1
    alice.pass_time(interval_ms // 2)
    assert not syncs(alice)
    alice.pass_time(interval_ms // 2 + 1)
    assert len(syncs(alice)) == 1


def test_under_a_rate_limit_sync_messages_wait_as_long_as_specified(peer):
    """They use up transmissions that messages of the application need."""
    limit = RateLimitConfig(enabled=True, messages_per_epoch=1_000)
    _, bob = acquainted(peer, "alice", "bob", options=ReliableChannelOptions(rate_limit=limit))
    bob.pass_time(7_500)
    assert not syncs(bob)
    bob.pass_time(15_000)
    assert len(syncs(bob)) == 1


def times_of(publications):
    return [publication.message.timestamp_ns // 1_000_000 for publication in publications]


def test_sync_messages_become_rarer_while_nothing_happens_but_never_end(peer):
    _, bob = acquainted(peer, "alice", "bob")
    bob.pass_time(6 * HOUR_MS)
    gaps = [after - before for before, after in itertools.pairwise(times_of(syncs(bob)))]
    assert all(2_000 * 2**doubled <= gap <= 4_001 * 2**doubled for doubled, gap in enumerate(gaps[:8]))
    assert all(480_000 <= gap <= 960_001 for gap in gaps[8:])
    assert len(gaps) > 20


def test_received_content_ends_the_long_wait_for_a_sync_message(peer):
    alice, bob = acquainted(peer, "alice", "bob")
    bob.pass_time(6 * HOUR_MS)
    told = len(syncs(bob))
    alice.now_ms = bob.now_ms
    alice.send(b"news")
    bob.receive(alice.content()[-1])
    bob.pass_time(1_001)
    assert len(syncs(bob)) == told + 1


def test_in_an_idle_group_one_participant_syncs_for_all(peer):
    _, *others = acquainted(peer, "alice", "bob", "carol", "dave", "erin", "frank")
    for _ in range(6 * 360):
        for other in others:
            before = len(syncs(other))
            other.pass_time(10_000)
            for listener in others:
                if listener is not other:
                    listener.receive(*syncs(other)[before:])
    at_ms = sorted(at for other in others for at in times_of(syncs(other)))
    in_the_last_hours = [at for at in at_ms if at >= others[0].now_ms - 5 * HOUR_MS]
    assert 5 * 60 / 16 - 1 <= len(in_the_last_hours) <= 5 * 60 / 8


def test_a_sync_message_of_somebody_who_lacks_something_is_answered_soon(peer):
    alice, bob, carol = acquainted(peer, "alice", "bob", "carol")
    alice.send(b"what carol never heard")
    bob.receive(alice.content()[-1])
    bob.pass_time(6 * HOUR_MS)
    carol.pass_time(15_001)
    told = len(syncs(bob))
    bob.receive(*syncs(carol)[-1:])
    bob.pass_time(1_001)
    assert len(syncs(bob)) == told + 1
    carol.receive(syncs(bob)[-1])
    assert carol.stack.statistics().missing == 1


def test_a_transmission_that_comes_twice_is_looked_at_once_and_asks_for_nothing(peer):
    alice, bob = acquainted(peer, "alice", "bob")
    alice.send(b"more")
    bob.receive(alice.content()[-1])
    bob.pass_time(HOUR_MS)
    told = len(syncs(bob))
    for _ in range(3):
        bob.receive(alice.content()[-1])
    assert (bob.stack.statistics().repeated, bob.stack.statistics().duplicates) == (3, 0)
    bob.pass_time(60_000)
    assert len(syncs(bob)) == told


def test_a_copy_that_a_store_brings_waits_for_no_acknowledgement(peer):
    alice, bob, carol = acquainted(peer, "alice", "bob", "carol")
    alice.pass_time(31_000)
    retries = alice.published(Purpose.RETRY)
    assert retries
    for other, from_store in ((bob, True), (carol, False)):
        other.pass_time(6 * HOUR_MS)
        told = len(syncs(other))
        for message in [publication.message for publication in retries]:
            if from_store:
                other.stack.receive_stored([(message, None)], other.now_ms)
            else:
                other.stack.receive(message, other.now_ms)
        other.pass_time(15_001)
        assert len(syncs(other)) == told + (not from_store)


def test_a_sync_message_of_another_participant_suppresses_ours(peer):
    alice, bob, carol = acquainted(peer, "alice", "bob", "carol")
    for _ in range(120):
        bob.pass_time(10)
        carol.pass_time(10)
        if syncs(bob) or syncs(carol):
            break
    speaker, listener = (bob, carol) if syncs(bob) else (carol, bob)
    planned = listener.stack.next_deadline()
    listener.receive(*syncs(speaker))
    assert not syncs(listener)
    assert listener.stack.next_deadline() != planned
    del alice


def test_a_sync_message_of_the_author_does_not_postpone_an_acknowledgement(peer):
    """He says it so that all notice his message; nobody acknowledges it by that."""
    alice, bob = acquainted(peer, "alice", "bob")
    alice.pass_time(10_000)
    planned = bob.stack.next_deadline()
    assert syncs(alice)
    bob.receive(*syncs(alice))
    assert bob.stack.next_deadline() == planned


def test_a_busy_channel_does_not_postpone_sync_messages_for_ever(peer):
    alice, bob = peer("alice"), peer("bob")
    for _ in range(60):
        alice.send(b"still talking")
        bob.receive(alice.content()[-1])
        alice.now_ms += 1_000
        bob.pass_time(1_000)
    assert len(syncs(bob)) >= 4


def test_own_messages_replace_sync_messages(peer):
    _, bob = acquainted(peer, "alice", "bob")
    for _ in range(30):
        bob.pass_time(10)
        bob.send(b"talking")
    assert not syncs(bob)


def test_a_copy_is_acknowledged_whatever_other_participants_sync(peer):
    alice, bob, carol = acquainted(peer, "alice", "bob", "carol")
    bob.pass_time(15_001)
    carol.pass_time(200_000)
    before = len(syncs(bob))
    alice.pass_time(30_000)
    bob.receive(*alice.published(Purpose.RETRY))
    for publication in syncs(carol):
        bob.receive(publication)
    bob.pass_time(15_001)
    assert len(syncs(bob)) > before
    # What was owed is cited, however old it is.
    assert alice.content()[0].sds_id in {e.message_id for e in bob.sds(syncs(bob)[before]).causal_history}


def test_with_an_interval_of_zero_no_sync_message_is_sent_even_for_repair(peer):
    alice, bob = peer("alice"), peer("bob", ReliableChannelOptions(sync_min_interval_ms=0))
    for payload in (b"one", b"two", b"three"):
        alice.send(payload)
    bob.receive(alice.content()[0], alice.content()[2])
    bob.pass_time(500_000)
    assert not bob.published()


def test_a_due_repair_request_is_sent_however_often_others_sync(peer):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"one")
    alice.send(b"two")
    bob.receive(alice.content()[1])
    asked = []
    for _ in range(130):
        bob.pass_time(1_000)
        asked = [p for p in syncs(bob) if bob.sds(p).repair_request]
        if asked:
            break
        alice.now_ms = bob.now_ms
        alice.pass_time(1_000)
        if syncs(alice):
            bob.receive(syncs(alice)[-1])
    assert [entry.message_id for entry in bob.sds(asked[0]).repair_request] == [alice.content()[0].sds_id]


@pytest.mark.parametrize("refusal", [{"too_many": True}, {"permanent": True}])
def test_the_next_sync_message_carries_the_repair_requests_of_one_that_the_node_refused(peer, refusal):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"one")
    alice.send(b"two")
    bob.receive(alice.content()[1])
    for _ in range(600):
        bob.pass_time(1_000, answer=False)
        bob.answer(*bob.unanswered, accepted=False, **refusal)
    refused = len(syncs(bob))
    assert any(bob.sds(publication).repair_request for publication in syncs(bob))
    bob.pass_time(60_000)
    assert bob.sds(syncs(bob)[refused]).repair_request


def test_a_repair_request_of_a_participant_whose_clock_is_behind_is_answered(peer, start_ms):
    alice, bob = peer("alice"), peer("bob", now_ms=start_ms - 600_000)
    alice.send(b"one")
    alice.send(b"two")
    alice.answer()
    bob.receive(alice.content()[1])
    bob.pass_time(130_000)
    asking = [publication for publication in syncs(bob) if bob.sds(publication).repair_request]
    assert asking
    alice.receive(asking[0])
    alice.pass_time(130_000)
    assert [publication.sds_id for publication in alice.published(Purpose.REPAIR)] == [alice.content()[0].sds_id]


def test_many_repair_requests_that_are_due_at_once_leave_in_spaced_messages(peer):
    options = ReliableChannelOptions(
        sync_min_interval_ms=10**9, sds=SdsConfig(causal_history_size=100, repair=RepairConfig(t_max_ms=30_000))
    )
    alice, bob = peer("alice", options), peer("bob", options)
    for number in range(61):
        alice.send(f"message {number}".encode())
    bob.receive(alice.content()[-1])
    bob.pass_time(30_000)
    assert len(syncs(bob)) == 1
    bob.pass_time(30_000)
    requested = [entry.message_id for p in syncs(bob) for entry in bob.sds(p).repair_request]
    assert len(requested) == len(set(requested)) == 60
    times = [publication.message.timestamp_ns // 1_000_000 for publication in syncs(bob)]
    assert min(after - before for before, after in itertools.pairwise(times)) >= 1_000


def test_while_a_sync_message_with_requests_waits_for_the_node_no_other_is_made(peer):
    """Few sync messages may follow each other that only carry requests; those that never left used them up."""
    options = ReliableChannelOptions(
        sync_min_interval_ms=10**9,
        advanced=Advanced(max_concurrent_publishes=1),
        sds=SdsConfig(causal_history_size=100, repair=RepairConfig(t_max_ms=30_000)),
    )
    alice, bob = peer("alice", options), peer("bob", options)
    for number in range(61):
        alice.send(f"message {number}".encode())
    alice.answer()
    bob.receive(alice.content()[-1])
    bob.pass_time(60_000, answer=False)
    assert len(syncs(bob)) == 1, "the node has not answered"
    bob.pass_time(30_000)
    requested = [entry.message_id for p in syncs(bob) for entry in bob.sds(p).repair_request]
    assert len(set(requested)) == 60


def test_repair_requests_of_an_earlier_run_are_not_sent_without_repair(peer):
    alice, bob = peer("alice"), peer("bob")
    for payload in (b"one", b"two", b"three"):
        alice.send(payload)
    bob.receive(alice.content()[0], alice.content()[2])
    quiet = bob.restart(options=ReliableChannelOptions(sds=NO_REPAIR))
    quiet.pass_time(300_000)
    assert 0 < len(syncs(quiet)) < 40
    assert not any(quiet.sds(publication).repair_request for publication in syncs(quiet))


def test_a_participant_that_is_connected_for_short_times_only_syncs_too(peer):
    _, bob = acquainted(peer, "alice", "bob")
    for _ in range(20):
        bob.connect(False)
        bob.pass_time(60_000)
        bob.connect()
        bob.pass_time(1_000)
    assert len(syncs(bob)) >= 5


def spoken(timer, first_ms, last_ms):
    """Return when a timer makes us speak to somebody who says each second that he lacks what is here."""
    times = []
    for now_ms in range(first_ms, last_ms):
        if now_ms % 1_000 == 0:
            timer.sync_received(now_ms, is_behind=True)
        if timer.at_ms is not None and timer.at_ms <= now_ms:
            timer.on_sent(now_ms)
            times.append(now_ms)
    return times


@pytest.mark.parametrize("end_of_silence", ["content_received", "content_sent", "send_soon"])
def test_a_participant_that_stays_behind_is_reminded_often_at_first_and_then_every_half_minute(end_of_silence):
    timer = SyncTimer(lambda: 2_000, Jitter(b"seed"), 0)
    assert len(spoken(timer, 0, 30_000)) >= 10
    assert 10 <= len(spoken(timer, 30_000, 630_000)) <= 22
    getattr(timer, end_of_silence)(630_000)
    assert len(spoken(timer, 630_000, 660_000)) >= 10, "there is something new to tell"


def gap(peer, *, options=None, hint=True, lost=1):
    """Return somebody who misses messages of alice, and the missed ones."""
    alice, bob = peer("alice"), peer("bob", options)
    for number in range(lost + 1):
        alice.send(f"message {number}".encode())
    *lost_messages, last = alice.content()
    bob.receive(last if hint else without_hints(alice, last))
    return bob, lost_messages


def without_hints(author, publication):
    """Return a message as somebody publishes it who cites without retrieval hints."""
    message = author.sds(publication)
    entries = tuple(entry._replace(retrieval_hint=None) for entry in message.causal_history)
    encoded = author.stack.sds.profile.codec.encode(replace(message, causal_history=entries))
    return replace(publication.message, payload=encoded)


def asked_at(peer, for_ms, *, lost=False):
    """Return the times of the queries by hash, in ms from now; the answers are empty, or ``lost``."""
    first_ms, times = peer.now_ms, []
    for _ in range(0, for_ms, 50):
        effects = peer.pass_time(50, answer=False)
        times += [peer.now_ms - first_ms for e in effects if isinstance(e, QueryStore) and e.message_hashes]
        peer.answer_queries(lost=lost)
    return times


def test_a_missing_message_is_asked_for_by_hash_once_it_is_not_merely_late(peer):
    bob, [lost] = gap(peer)
    bob.pass_time(299)
    assert not bob.queries()
    bob.pass_time(1)
    assert bob.queries() == [QueryStore(message_hashes=(lost.message_hash,))]


def test_where_messages_are_later_the_store_is_asked_later(peer):
    alice, bob = peer("alice"), peer("bob")
    for number in range(63):
        alice.send(b"%d" % number)
    first, *others, lost, last = alice.content()
    lateness = itertools.cycle((20, 280))
    bob.receive(first)
    for late, cites_it in zip(others[::2], others[1::2], strict=True):
        bob.receive(cites_it)
        bob.now_ms += next(lateness)
        bob.receive(late)
    bob.receive(last)
    assert asked_at(bob, 2_000)[0] > 300
    assert bob.queries()[0].message_hashes == (lost.message_hash,)


def test_a_lost_answer_is_asked_again_after_about_the_time_that_answers_take(peer):
    bob, _ = gap(peer)
    for _ in range(30):
        bob.stack.note_answer_time(2_000)
    first, second, third, *later = asked_at(bob, 200_000, lost=True)
    assert first == 300
    assert 2_000 <= second - first <= 3_000
    assert 4_000 <= third - second <= 6_000, "it backs off"
    assert later[-1] - later[-2] == 10_000
    assert bob.stack.answer_patience_ms == 30_000


def test_when_a_store_appears_it_is_asked_at_once_for_what_no_store_answered(peer):
    bob, _ = gap(peer)
    asked_at(bob, 60_000, lost=True)
    before = len(bob.queries())
    bob.do(bob.stack.store_connected(bob.now_ms))
    bob.tick()
    assert any(query.message_hashes for query in bob.queries()[before:])


def test_an_interval_of_store_queries_that_is_set_is_kept(peer):
    bob, _ = gap(peer, options=ReliableChannelOptions(retrieve_frequency_ms=10_000))
    bob.stack.note_answer_time(100)
    assert asked_at(bob, 30_000, lost=True) == [10_000, 20_000, 30_000]
    assert bob.stack.answer_patience_ms == 30_000


def test_frequent_gaps_use_up_the_queries_of_a_minute_evenly(peer):
    """With gaps all the time, a channel that spends the minute's queries at once has none left for the last gaps."""
    alice, bob = peer("alice"), peer("bob")
    times = []
    for second in range(120):
        alice.send(b"lost %d" % second)
        alice.send(b"seen %d" % second)
        bob.receive(alice.content()[-1])
        times += [1_000 * second + at_ms for at_ms in dict.fromkeys(asked_at(bob, 1_000))]
    assert all(sum(at - 60_000 < other <= at for other in times) <= 60 for at in times)
    assert max(after - before for before, after in itertools.pairwise(times)) <= 5_000


def test_the_group_is_asked_for_a_missing_message_only_if_the_store_does_not_have_it(peer):
    """An answer of a store costs one participant; one of the group is heard by all, and several may give it."""
    in_luck, [lost] = gap(peer)
    in_luck.pass_time(10_000)
    assert in_luck.queries()
    in_luck.stack.receive_stored([(lost.message, lost.message_hash)], in_luck.now_ms)
    in_luck.pass_time(600_000)
    assert not any(in_luck.sds(sync).repair_request for sync in syncs(in_luck))
    in_vain, _ = gap(peer)
    in_vain.pass_time(29_999)
    assert len(in_vain.queries()) >= 2
    assert not any(in_vain.sds(sync).repair_request for sync in syncs(in_vain))
    in_vain.pass_time(120_000)
    assert any(in_vain.sds(sync).repair_request for sync in syncs(in_vain))


def requested_within(peer, for_ms, **options):
    """Return whether a participant without a store requests a missing message from the group within a time."""
    bob, [lost] = gap(peer, options=ReliableChannelOptions(**options))
    bob.do(bob.stack.store_disconnected(bob.now_ms))
    bob.pass_time(for_ms)
    requests = [entry.message_id for sync in syncs(bob) for entry in bob.sds(sync).repair_request]
    return lost.sds_id in requests


def test_without_a_store_the_group_is_asked_within_seconds(peer):
    assert requested_within(peer, 4_000)


def test_a_time_of_repair_requests_that_is_set_is_kept(peer):
    sds = SdsConfig(repair=RepairConfig(t_min_ms=20_000))
    assert not requested_within(peer, 20_000, sds=sds)
    assert requested_within(peer, 80_000, sds=sds)


def test_under_a_rate_limit_the_group_is_asked_as_late_as_with_a_store(peer):
    limit = RateLimitConfig(enabled=True, messages_per_epoch=1_000)
    assert not requested_within(peer, 29_999, rate_limit=limit)
    assert requested_within(peer, 120_000, rate_limit=limit)


def test_when_the_store_is_gone_planned_requests_are_brought_forward(peer):
    bob, [lost] = gap(peer)
    bob.do(bob.stack.store_connected(bob.now_ms))
    bob.pass_time(5_000)
    bob.do(bob.stack.store_disconnected(bob.now_ms))
    bob.pass_time(4_000)
    assert lost.sds_id in [entry.message_id for sync in syncs(bob) for entry in bob.sds(sync).repair_request]


def test_a_message_that_came_meanwhile_is_not_asked_for(peer):
    bob, [lost] = gap(peer)
    bob.receive(lost)
    bob.pass_time(60_000)
    assert not bob.queries()
    assert bob.stack.next_deadline() > bob.now_ms


def test_a_message_that_the_store_does_not_have_is_asked_for_less_and_less_often(peer):
    bob, _ = gap(peer, options=ReliableChannelOptions(sds=SdsConfig(lost_timeout_ms=0)))
    pauses = [after - before for before, after in itertools.pairwise(asked_at(bob, 700_000))]
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 160_000, 160_000]


def test_a_store_is_asked_for_what_found_no_room_only_once_it_can_be_delivered_and_then_at_once(peer):
    sds = SdsConfig(causal_history_size=1, max_incoming_buffer=2, repair=RepairConfig(enabled=False))
    options = ReliableChannelOptions(sds=sds, query_on_connect=False)
    alice, bob = peer("alice", options), peer("bob", options)
    for number in range(12):
        alice.send(b"%d" % number)
        alice.answer()
    chain = alice.content()
    hashes = [publication.message_hash for publication in chain]

    def asked():
        found = [q for q in bob.pass_time(10_000) if isinstance(q, QueryStore)]
        return [hashes.index(each) for query in found for each in query.message_hashes]

    for publication in reversed(chain[1:]):
        bob.receive(publication)
    for _ in range(30):
        assert set(asked()) <= {0}, "whatever else comes finds no room"
    for number, publication in enumerate(chain[:8]):
        bob.receive(publication)
        assert bob.payloads()[number] == b"%d" % number
        if number < 7:
            assert set(asked()) == {number + 1}
    assert len(bob.payloads()) == 12


def test_a_hint_that_finds_nothing_is_followed_by_a_query_by_time(peer, start_ms):
    bob, _ = gap(peer)
    bob.pass_time(40_000)
    assert all(query.message_hashes for query in bob.queries()[:3])
    by_time = [query for query in bob.queries() if not query.message_hashes]
    assert len(by_time) == 1
    assert by_time[0].start_ns == (start_ms - 3_600_000) * 1_000_000
    assert start_ms + 10_000 <= by_time[0].end_ns // 1_000_000 <= start_ms + 20_000


def test_without_a_hint_queries_are_by_time_and_at_most_one_a_minute(peer):
    bob, _ = gap(peer, hint=False, lost=5)
    bob.pass_time(300_000)
    assert all(not query.message_hashes for query in bob.queries())
    assert 1 <= len(bob.queries()) <= 5


def test_a_first_hint_is_used_in_the_next_round_after_any_number_of_queries_by_time(peer):
    alice, bob = peer("alice"), peer("bob")
    for text in (b"lost", b"second", b"third"):
        alice.send(text)
    lost, second, third = alice.content()
    bob.receive(without_hints(alice, second))
    bob.pass_time(150_000)
    assert not any(query.message_hashes for query in bob.queries())
    bob.receive(third)
    bob.pass_time(300)
    assert bob.queries()[-1].message_hashes == (lost.message_hash,)


def test_hashes_are_asked_for_in_batches_of_bounded_size(peer):
    options = ReliableChannelOptions(
        sds=SdsConfig(causal_history_size=120, repair=RepairConfig(enabled=False)),
    )
    alice, bob = peer("alice", options), peer("bob", options)
    for number in range(131):
        alice.send(f"message {number}".encode())
    bob.receive(alice.content()[-1])
    bob.pass_time(300)
    assert [len(query.message_hashes) for query in bob.queries()] == [50, 50, 20]
    asked = {digest for query in bob.queries() for digest in query.message_hashes}
    assert asked == {publication.message_hash for publication in alice.content()[10:130]}


def test_a_closed_gap_does_not_bring_forward_the_query_for_the_next_one(peer):
    bob, [lost] = gap(peer)
    bob.pass_time(50)
    bob.receive(lost)
    carol = peer("carol", now_ms=bob.now_ms)
    carol.send(b"lost")
    carol.send(b"second")
    bob.receive(carol.content()[1])
    bob.pass_time(299)
    assert not bob.queries()
    bob.pass_time(1)
    assert bob.queries()[0].message_hashes == (carol.content()[0].message_hash,)
