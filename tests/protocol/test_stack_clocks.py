"""No reading of a clock stops a channel: not one of this life, and not one of an earlier life."""

from __future__ import annotations

import pytest

from fairway.events import DeliveryError
from fairway.options import RateLimitConfig, ReliableChannelOptions
from fairway.protocol.effects import Purpose, QueryStore

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
AHEAD = pytest.mark.parametrize("ahead_ms", [0, HOUR_MS, DAY_MS, 400 * DAY_MS])


def repeat(peer):
    """Return how many retransmissions leave until the send fails."""
    before = len(peer.published(Purpose.RETRY))
    peer.pass_time(6 * 60_000)
    return len(peer.published(Purpose.RETRY)) - before


@AHEAD
def test_after_a_restart_a_message_is_repeated_although_the_clock_had_been_ahead(peer, ahead_ms):
    alice = peer()
    alice.now_ms += ahead_ms
    alice.tick()
    alice.send(b"important")
    alice.answer()
    alice.now_ms += 5_000 - ahead_ms
    alice = alice.restart()
    assert repeat(alice) == 10
    assert len(alice.events(DeliveryError)) == 1


@AHEAD
def test_a_clock_that_is_set_back_while_the_channel_runs_stops_no_retry(peer, ahead_ms):
    alice = peer()
    alice.now_ms += ahead_ms
    alice.tick()
    alice.send(b"important")
    alice.answer()
    alice.now_ms += 5_000 - ahead_ms
    alice.tick()
    assert repeat(alice) == 10
    assert len(alice.events(DeliveryError)) == 1


@AHEAD
def test_a_clock_that_is_set_back_stops_neither_sync_nor_retrieval_nor_repair_requests(peer, ahead_ms):
    alice, bob = peer("alice"), peer("bob")
    for each in (alice, bob):
        each.now_ms += ahead_ms
        each.tick()
    alice.send(b"lost")
    alice.send(b"heard")
    bob.receive(alice.content()[1])
    bob.pass_time(60_000)
    bob.now_ms -= ahead_ms
    bob.tick()
    before = len(bob.effects)
    bob.pass_time(10 * 60_000)
    later = bob.effects[before:]
    syncs = [e for e in later if getattr(e, "purpose", None) is Purpose.SYNC]
    assert syncs
    assert any(bob.sds(sync).repair_request for sync in syncs)
    assert any(isinstance(e, QueryStore) for e in later)


@AHEAD
def test_an_epoch_of_a_clock_that_was_ahead_does_not_hold_back_what_waits(peer, ahead_ms):
    limit = RateLimitConfig(enabled=True, messages_per_epoch=1, epoch_ms=60_000)
    alice = peer(options=ReliableChannelOptions(rate_limit=limit, sync_min_interval_ms=0, retry_interval_ms=0))
    alice.now_ms += ahead_ms
    alice.tick()
    for number in range(3):
        alice.send(b"%d" % number)
    alice.answer()
    alice.now_ms -= ahead_ms
    alice.tick()
    alice.pass_time(10 * 60_000)
    assert len(alice.content()) == 3


def test_the_time_away_is_asked_for_although_the_last_answer_was_noted_by_a_clock_that_was_ahead(peer):
    alice = peer()
    alice.now_ms += DAY_MS
    [query] = [
        e for e in alice.do(alice.stack.store_connected(alice.now_ms)) if isinstance(e, QueryStore) and e.catch_up
    ]
    alice.do(alice.stack.caught_up(query.end_ns, alice.now_ms))
    alice.now_ms += HOUR_MS - DAY_MS
    alice.tick()
    [again] = [
        e for e in alice.do(alice.stack.store_connected(alice.now_ms)) if isinstance(e, QueryStore) and e.catch_up
    ]
    assert again.start_ns <= (alice.now_ms - HOUR_MS) * 1_000_000
