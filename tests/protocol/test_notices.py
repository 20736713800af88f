"""Troubles that concern no single message, and how often they are announced."""

from __future__ import annotations

import pytest

from fairway.errors import RlnError, RlnErrorKind
from fairway.events import (
    ChannelStatus,
    ForeignMessages,
    MessagesUndecryptable,
    SendingBlocked,
    StatusChanged,
)
from fairway.options import RateLimitConfig, ReliableChannelOptions
from fairway.protocol.encryption import AesGcm
from fairway.protocol.notices import NOTICE_PAUSE_MS
from fairway.protocol.stack import Stack

START_MS = 1_760_000_000_000
HOUR_MS = 3_600_000
QUIET = ReliableChannelOptions(sync_min_interval_ms=0, query_on_connect=False)


def refuse(alice, for_ms, **answer):
    """Let the node refuse everything for a time."""
    end_ms = alice.now_ms + for_ms
    while alice.now_ms < end_ms:
        alice.pass_time(min(1_000, end_ms - alice.now_ms), answer=False)
        if alice.unanswered:
            alice.answer(*alice.unanswered, accepted=False, **answer)


def test_a_node_that_refuses_everything_for_a_minute_is_announced_and_the_status_says_so(peer):
    alice = peer(options=QUIET)
    alice.send(b"hello")
    refuse(alice, 59_000, detail="420")
    assert not alice.events(SendingBlocked)
    assert alice.stack.status is ChannelStatus.SYNCED
    refuse(alice, 10_000, detail="420")
    [blocked] = alice.events(SendingBlocked)
    assert (blocked.since_ms, blocked.detail) == (START_MS + 1_000, "420")
    assert blocked.refusals > 5
    assert alice.stack.status is ChannelStatus.SYNCING
    refuse(alice, 5 * HOUR_MS, detail="505")
    assert [event.detail for event in alice.events(SendingBlocked)] == ["420"] + ["505"] * 5, "once an hour"
    alice.effects.clear()
    alice.pass_time(10_000)
    assert alice.events(StatusChanged) == [StatusChanged(status=ChannelStatus.SYNCED)]
    refuse(alice, 30_000, detail="420")
    assert alice.stack.status is ChannelStatus.SYNCED, "the minute begins anew"


def test_a_node_that_takes_other_messages_is_not_announced(peer):
    alice = peer(options=QUIET)
    for number in range(200):
        alice.send(b"%d" % number)
        alice.pass_time(1_000, answer=False)
        for publication in list(alice.unanswered):
            alice.answer(publication, accepted=number % 5 == 0, detail="420")
    assert not alice.events(SendingBlocked)
    assert alice.stack.status is ChannelStatus.SYNCED


def test_one_refused_message_does_not_make_a_node_that_is_asked_nothing_else_refuse_everything(peer):
    alice = peer(options=QUIET)
    alice.send(b"too large")
    alice.answer(accepted=False, permanent=True, detail="too large")
    alice.pass_time(HOUR_MS)
    assert not alice.events(SendingBlocked)


def test_a_node_that_is_away_does_not_refuse(peer):
    alice = peer(options=QUIET)
    alice.send(b"hello")
    refuse(alice, 50_000, detail="420")
    alice.connect(False)
    alice.pass_time(HOUR_MS)
    alice.connect()
    refuse(alice, 50_000, detail="420")
    assert not alice.events(SendingBlocked)


def test_a_provider_that_makes_no_proofs_is_announced(topic):
    stack = Stack("harbour", "alice", topic, QUIET, now_ms=START_MS, seed=b"seed", proves=True)
    told, now_ms = [], START_MS
    effects = list(stack.send(b"hello", now_ms).effects)
    while now_ms < START_MS + 70_000:
        told += [effect.event for effect in effects if hasattr(effect, "event")]
        tokens = [effect.token for effect in effects if hasattr(effect, "signal")]
        effects = [
            each
            for token in tokens
            for each in stack.proven(token, RlnError(RlnErrorKind.NOT_READY, "the tree is synced"), now_ms)
        ]
        now_ms += 1_000
        effects += stack.tick(now_ms)
    [blocked] = [event for event in told if isinstance(event, SendingBlocked)]
    assert "the tree is synced" in blocked.detail
    assert stack.status is ChannelStatus.SYNCING


@pytest.mark.parametrize("limit", [0, None], ids=["the options allow nothing", "the node has no membership"])
def test_a_limit_of_nothing_is_announced_as_soon_as_something_waits_for_it(peer, limit):
    options = QUIET
    if limit == 0:
        options = ReliableChannelOptions(
            sync_min_interval_ms=0, rate_limit=RateLimitConfig(enabled=True, messages_per_epoch=0)
        )
    alice = peer(options=options)
    if limit is None:
        alice.do(alice.stack.set_node_quota(0, alice.now_ms))
    assert alice.stack.status is ChannelStatus.SYNCED
    alice.send(b"hello")
    assert len(alice.events(SendingBlocked)) == 1
    assert alice.stack.status is ChannelStatus.SYNCING
    if limit is None:
        alice.do(alice.stack.set_node_quota(10, alice.now_ms))
        alice.pass_time(1_000)
        assert alice.stack.status is ChannelStatus.SYNCED


def test_an_epoch_that_is_used_up_blocks_nothing(peer):
    options = ReliableChannelOptions(
        sync_min_interval_ms=0, rate_limit=RateLimitConfig(enabled=True, messages_per_epoch=1)
    )
    alice = peer(options=options)
    for number in range(5):
        alice.send(b"%d" % number)
    alice.pass_time(HOUR_MS)
    assert not alice.events(SendingBlocked)
    assert alice.stack.status is ChannelStatus.SYNCED


def test_messages_of_another_channel_on_the_topic_are_announced_at_most_once_a_minute(peer, topic):
    alice = peer("alice")
    other = Stack("pier", "bob", topic, QUIET, now_ms=START_MS, seed=b"seed")
    messages = []
    for number in range(3):
        effects = other.send(b"%d" % number, START_MS).effects
        messages += [effect.message for effect in effects if hasattr(effect, "message")]
    alice.receive(*messages)
    alice.pass_time(NOTICE_PAUSE_MS)
    assert alice.events(ForeignMessages) == [
        ForeignMessages(count=1, channel_id="pier"),
        ForeignMessages(count=2, channel_id="pier"),
    ]


def test_own_messages_that_come_back_do_not_count_as_opened(peer):
    wrong = peer("wrong", QUIET, encryption=AesGcm(b"w" * 32))
    right = peer("right", QUIET, encryption=AesGcm(b"k" * 32))
    wrong.send(b"anybody?")
    wrong.receive(*wrong.content())
    right.send(b"yes")
    wrong.receive(*right.content())
    assert wrong.events(MessagesUndecryptable) == [MessagesUndecryptable(count=1, opened=0)]
