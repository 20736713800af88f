"""Batches in the outbox: which sends join them, and what the store has of them."""

from __future__ import annotations

import pytest

from fairway.errors import EmptyPayloadError, MessageTooLargeError
from fairway.events import DeliveryError, MessageQueued, MessageSendError, MessageSent, RequestSent
from fairway.options import Profile, RateLimitConfig, ReliableChannelOptions, SegmentationConfig
from fairway.protocol.effects import Persist, Purpose
from fairway.wire.batch import MAX_BATCH, decode_batch
from fairway.wire.sds import WAKU_SDS

LIMITED = ReliableChannelOptions(
    sync_min_interval_ms=0, rate_limit=RateLimitConfig(enabled=True, epoch_ms=600_000, messages_per_epoch=1)
)


def send_batch(alice, *payloads, **wanted):
    accepted = alice.stack.send_batch(payloads, alice.now_ms, **wanted)
    alice.do(accepted.effects)
    alice.check_rows()
    return [request_id for request_id, _ in accepted.sends]


def contents(peer):
    return [WAKU_SDS.decode(sent.message.payload).content for sent in peer.published(Purpose.CONTENT)]


@pytest.fixture
def alice(peer):
    """Alice, whose messages wait for the next epoch."""
    alice = peer("alice", LIMITED)
    alice.send(b"uses up the epoch")
    alice.answer()
    return alice


def next_epoch(alice):
    alice.pass_time(600_000)
    alice.check_rows()
    return contents(alice)[1:]


def test_later_sends_join_the_newest_batch_also_if_it_is_one_message_so_far(alice):
    first = send_batch(alice, b"one")
    more = send_batch(alice, b"two", b"three")
    (content,) = next_epoch(alice)
    assert decode_batch(content) == (b"one", b"two", b"three")
    assert [event.request_id for event in alice.events(MessageQueued)] == first + more
    for kind in (MessageSent, RequestSent):
        assert [event.request_id for event in alice.events(kind)][-3:] == first + more


@pytest.mark.parametrize(
    "wanted",
    [{"required_count": 2}, {"required_from": ["bob"]}, {"deadline_ms": 3_600_000}],
    ids=["count", "names", "deadline"],
)
def test_sends_with_other_terms_do_not_join_a_batch(alice, wanted):
    send_batch(alice, b"one", b"two")
    send_batch(alice, b"three", **wanted)
    send_batch(alice, b"four")
    assert len(next_epoch(alice)) == 1
    alice.pass_time(1_800_000)
    assert [decode_batch(content) or content for content in contents(alice)[1:]] == [
        (b"one", b"two"),
        b"three",
        b"four",
    ]


def test_a_send_joins_no_batch_before_another_message(alice):
    send_batch(alice, b"one", b"two")
    alice.send(b"three")
    send_batch(alice, b"four", b"five")
    alice.pass_time(2_400_000)
    assert [decode_batch(content) or content for content in contents(alice)[1:]] == [
        (b"one", b"two"),
        b"three",
        (b"four", b"five"),
    ]


@pytest.mark.parametrize("profile", Profile)
def test_a_batch_is_one_segment_and_sends_that_do_not_fit_begin_another(peer, profile):
    options = ReliableChannelOptions(
        profile=profile,
        sync_min_interval_ms=0,
        segmentation=SegmentationConfig(segment_size_bytes=1_000),
        rate_limit=LIMITED.rate_limit,
    )
    alice = peer("alice", options)
    alice.send(b"uses up the epoch")
    ids = [request_id for number in range(40) for request_id in send_batch(alice, b"%02d" % number * 50)]
    assert len({request_id[:20] for request_id in ids}) == 5 + (profile is Profile.LOGOS)
    with pytest.raises(MessageTooLargeError):
        send_batch(alice, b"x" * 500, b"x" * 500)
    with pytest.raises(EmptyPayloadError):
        send_batch(alice, b"x", b"")


def test_a_batch_has_a_bounded_number_of_messages(alice):
    ids = send_batch(alice, *[b"x"] * MAX_BATCH)
    assert len(set(ids)) == MAX_BATCH
    (next_id,) = send_batch(alice, b"y")
    assert next_id[:20] != ids[0]
    with pytest.raises(MessageTooLargeError):
        send_batch(alice, *[b"x"] * (MAX_BATCH + 1))


def test_joins_write_a_bounded_number_of_bytes(alice):
    written = 0
    for number in range(400):
        before = len(alice.effects)
        send_batch(alice, b"%03d" % number * 33)
        written += sum(
            len(value)
            for effect in alice.effects[before:]
            if isinstance(effect, Persist)
            for change in effect.changes
            for value in change.row or ()
            if isinstance(value, bytes)
        )
    assert written < 400 * 16_384
    assert len(alice.stack.requests.open) <= 4
    # A large batch is joined by as many bytes as it has.
    large = [b"x" * 1_000] * 20
    first, second = send_batch(alice, *large), send_batch(alice, *large * 2)
    assert second[0][:20] == first[0][:20]


def test_after_a_restart_the_events_of_a_batch_are_those_of_its_sends(alice):
    ids = send_batch(alice, b"one", b"two") + send_batch(alice, b"three")
    again = alice.restart()
    again.pass_time(600_000)
    again.check_rows()
    assert [event.request_id for event in again.events(MessageSent)] == ids
    # A batch of an earlier run is not joined.
    (request_id,) = send_batch(again, b"four")
    assert not request_id.startswith(ids[0])


def test_each_send_of_a_batch_fails_with_it(alice):
    ids = send_batch(alice, b"one", b"two", deadline_ms=1_000)
    alice.pass_time(2_000)
    assert [event.request_id for event in alice.events(DeliveryError)] == ids
    ids = send_batch(alice, b"three", b"four")
    alice.pass_time(398_000, answer=False)  # to the next epoch
    alice.answer(accepted=False, permanent=True, detail="not here")
    for kind in (MessageSendError, DeliveryError):
        assert [event.request_id for event in alice.events(kind)][-2:] == ids
    alice.check_rows()
