"""The rate limit inside the stack: what waits, what is dropped, what is proven, what is counted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairway.errors import RlnError, RlnErrorKind
from fairway.events import (
    DeliveryError,
    DropReason,
    EphemeralMessageDropped,
    MessageDelivered,
    MessageQueued,
    MessageReceived,
    MessageSendError,
    MessageSent,
    SendErrorReason,
)
from fairway.options import Advanced, Profile, RateLimitConfig, ReliableChannelOptions, SegmentationConfig
from fairway.protocol.effects import Purpose
from fairway.protocol.ratelimit import rln_signal
from fairway.wire.sds import HistoryEntry
from rln_testing import ProofVerdict, RlnTestValidator, StrictRlnProvider

EPOCH_MS = 600_000
FILE = bytes(range(256)) * 2


def limited(messages_per_epoch, **options):
    return ReliableChannelOptions(
        sync_min_interval_ms=0,
        rate_limit=RateLimitConfig(enabled=True, epoch_ms=EPOCH_MS, messages_per_epoch=messages_per_epoch),
        **options,
    )


def next_epoch(now_ms):
    return (now_ms // EPOCH_MS + 1) * EPOCH_MS


class FailingProvider:
    """Raises what it was told to, then lets go."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def epoch_quota(self, now_ms):
        return None

    def generate_proof(self, signal, now_ms):
        if self.errors:
            raise self.errors.pop(0)
        return b"proof"


def test_a_restart_does_not_refill_the_quota(peer):
    alice = peer(options=limited(2))
    alice.send(b"one")
    alice.send(b"two")
    alice.answer()
    alice = alice.restart()
    alice.send(b"three")
    assert not alice.published()
    alice.pass_time(next_epoch(alice.now_ms) - alice.now_ms)
    assert [alice.sds(p).content for p in alice.content()] == [b"three"]


def test_what_waited_for_an_epoch_waits_on_after_a_restart_in_order(peer):
    alice, bob = peer("alice", limited(1)), peer("bob")
    payloads = [f"message {number}".encode() for number in range(5)]
    for payload in payloads:
        alice.send(payload)
    alice.answer()
    first = alice.content()
    assert len(alice.events(MessageQueued)) == 4
    alice = alice.restart()
    assert not alice.published()
    alice.pass_time(5 * EPOCH_MS)
    bob.receive(*first, *alice.content())
    assert bob.payloads() == payloads


def test_every_segment_counts(peer):
    options = limited(4, segmentation=SegmentationConfig(segment_size_bytes=64))
    alice, bob = peer("alice", options), peer("bob", options)
    alice.send(FILE)
    assert len(alice.content()) == 4
    alice.pass_time(2 * EPOCH_MS)
    assert len(alice.content()) == 9
    bob.receive(*alice.content())
    assert bob.payloads() == [FILE]


def test_parity_that_waits_does_not_leave_once_the_message_is_delivered(peer):
    # Nor is it in the history, so that no message cites it.
    options = limited(8, segmentation=SegmentationConfig(segment_size_bytes=64))
    alice, bob = peer("alice", options), peer("bob")
    alice.send(FILE)
    assert len(alice.content()) == 8
    bob.receive(*alice.content())
    bob.send(b"thanks")
    bob.pass_time(60_000)
    alice.receive(*bob.published(Purpose.CONTENT, Purpose.SYNC))
    assert len(alice.events(MessageDelivered)) == 1
    alice.pass_time(next_epoch(alice.now_ms) - alice.now_ms)
    assert len(alice.content()) == 8
    assert alice.stack.statistics().queued == 0


def test_content_goes_before_retries_and_retries_before_sync_messages(peer):
    options = ReliableChannelOptions(
        rate_limit=RateLimitConfig(enabled=True, epoch_ms=EPOCH_MS, messages_per_epoch=4, approached_threshold=0.75)
    )
    alice = peer(options=options)
    for payload in (b"one", b"two", b"three", b"four"):
        alice.send(payload)
    alice.pass_time(next_epoch(alice.now_ms) - alice.now_ms - 2)
    alice.send(b"five")
    alice.pass_time(EPOCH_MS - 1)
    newest = alice.published()[4:]
    # The last slot of an epoch is for content alone.
    assert [p.purpose for p in newest] == [Purpose.CONTENT, Purpose.RETRY, Purpose.RETRY]


def test_of_sync_messages_that_wait_only_the_newest_is_left(peer):
    options = ReliableChannelOptions(
        rate_limit=RateLimitConfig(enabled=True, epoch_ms=EPOCH_MS, messages_per_epoch=1), max_retry_attempts=0
    )
    alice = peer(options=options)
    alice.send(b"one")
    alice.pass_time(300_000)
    assert alice.stack.statistics().queued == 1


def test_a_quota_that_the_node_tells_only_tightens(peer):
    alice = peer(options=limited(3))
    alice.do(alice.stack.set_node_quota(1, alice.now_ms, epoch_ms=EPOCH_MS))
    alice.send(b"one")
    alice.send(b"two")
    assert len(alice.content()) == 1
    alice.do(alice.stack.set_node_quota(100, alice.now_ms, epoch_ms=EPOCH_MS))
    assert len(alice.content()) == 2
    for _ in range(3):
        alice.send(b"more")
    assert len(alice.content()) == 3


def test_a_node_without_a_membership_holds_everything_until_it_has_one(peer):
    alice = peer(options=ReliableChannelOptions(sync_min_interval_ms=0))
    alice.do(alice.stack.set_node_quota(0, alice.now_ms))
    alice.send(b"hello")
    assert not alice.published()
    assert alice.events(MessageQueued)[0].expected_ms is None
    assert alice.stack.next_deadline() is None
    alice.do(alice.stack.set_node_quota(20, alice.now_ms))
    assert len(alice.content()) == 1


def test_below_the_limit_an_ephemeral_message_leaves_at_once_and_its_fate_is_told_once(peer):
    alice, bob = peer("alice", limited(10)), peer("bob")
    accepted = alice.send_ephemeral(b"typing")
    [publication] = alice.published(Purpose.EPHEMERAL)
    assert publication.message.ephemeral is True
    assert alice.stack.statistics().transmissions == {Purpose.EPHEMERAL: 1}
    alice.answer()
    [sent] = alice.events(MessageSent)
    assert (sent.request_id, sent.message_hash) == (accepted.request_id, publication.message_hash)
    assert (sent.chunk_info.chunk_index, sent.chunk_info.total_chunks) == (0, 1)
    bob.receive(publication)
    [received] = bob.events(MessageReceived)
    assert received.ephemeral
    alice.pass_time(3_600_000)
    assert len(alice.published()) == 1
    assert alice.stack.statistics().history == bob.stack.statistics().history == 0


def test_an_ephemeral_message_that_the_network_refuses_for_good_is_a_send_error(peer):
    alice = peer()
    alice.send_ephemeral()
    alice.answer(accepted=False, permanent=True, too_large=True, detail="413 too large")
    [error] = alice.events(MessageSendError)
    assert (error.reason, error.detail) == (SendErrorReason.MESSAGE_TOO_LARGE, "413 too large")
    alice.pass_time(3_600_000)
    assert not alice.events(DeliveryError)
    assert len(alice.published()) == 1


def test_while_the_node_is_offline_an_ephemeral_message_is_dropped(peer):
    alice = peer()
    alice.connect(False)
    alice.send_ephemeral()
    assert alice.events(EphemeralMessageDropped)[0].reason is DropReason.NOT_READY
    alice.connect()
    assert not alice.published()


@pytest.mark.parametrize("kind", RlnErrorKind)
def test_an_ephemeral_message_without_a_proof_is_dropped_and_costs_no_slot(peer, kind):
    alice = peer(options=limited(2), rln=FailingProvider(RlnError(kind)))
    alice.send_ephemeral()
    is_exhausted = kind is RlnErrorKind.BUDGET_EXHAUSTED
    reason = DropReason.RATE_LIMIT_REACHED if is_exhausted else DropReason.NOT_READY
    assert [event.reason for event in alice.events(EphemeralMessageDropped)] == [reason]
    assert not alice.events(MessageSendError)
    if is_exhausted:
        alice.pass_time(EPOCH_MS)
    alice.send(b"one")
    alice.send(b"two")
    assert len(alice.content()) == 2


@pytest.mark.parametrize("profile", Profile)
def test_an_ephemeral_message_is_delivered_at_once_and_neither_cited_nor_waited_for(peer, profile):
    options = ReliableChannelOptions(profile=profile)
    alice, bob = peer("alice", options), peer("bob", options)
    alice.send(b"lost on its way")
    alice.send_ephemeral(b"typing")
    alice.send(b"hello")
    typing = alice.published(Purpose.EPHEMERAL)[0]
    bob.receive(typing)
    [received] = bob.events(MessageReceived)
    assert (received.payload, received.ephemeral) == (b"typing", True)
    assert bob.stack.statistics().history == 0
    cited = [entry.message_id for publication in alice.content() for entry in alice.sds(publication).causal_history]
    assert cited == [alice.content()[0].sds_id]


def test_nobody_waits_for_an_ephemeral_message_that_nim_sds_cites(peer):
    options = ReliableChannelOptions(profile=Profile.LOGOS)
    alice, bob, carol = peer("alice", options), peer("bob", options), peer("carol", options)
    alice.send_ephemeral(b"typing")
    typing = alice.published(Purpose.EPHEMERAL)[0]
    carol.send(b"I saw it")
    [reply] = carol.content()
    citing = replace(carol.sds(reply), causal_history=(HistoryEntry(typing.sds_id, None, "alice"),))
    bob.receive(typing, replace(reply.message, payload=bob.stack.sds.profile.codec.encode(citing)))
    assert bob.payloads() == [b"typing", b"I saw it"]


def test_a_proof_travels_in_the_message_and_signs_payload_topic_and_timestamp(peer, topic):
    rln = StrictRlnProvider(rate_limit=5, epoch_ms=EPOCH_MS)
    alice = peer(rln=rln)
    alice.send(b"one")
    alice.send(b"two")
    alice.send_ephemeral()
    validator = RlnTestValidator(rate_limit=5, epoch_ms=EPOCH_MS)
    for publication in alice.published():
        message = publication.message
        signal = rln_signal(message.payload, topic, message.timestamp_ns)
        assert signal == message.payload + topic.encode() + message.timestamp_ns.to_bytes(8, "little")
        assert validator.validate(message.rate_limit_proof, signal, alice.now_ms) is ProofVerdict.VALID
    assert len({publication.message.rate_limit_proof for publication in alice.published()}) == 3


def test_retries_are_proven_anew(peer, topic):
    alice = peer(rln=StrictRlnProvider(rate_limit=100, epoch_ms=EPOCH_MS))
    alice.send(b"hello")
    alice.pass_time(400_000)
    validator = RlnTestValidator(rate_limit=100, epoch_ms=EPOCH_MS)
    assert len(alice.published()) > 5
    for publication in alice.published():
        message = publication.message
        signal = rln_signal(message.payload, topic, message.timestamp_ns)
        at_ms = message.timestamp_ns // 1_000_000
        assert validator.validate(message.rate_limit_proof, signal, at_ms) is ProofVerdict.VALID


def test_the_providers_quota_holds_without_any_configured_one(peer):
    alice = peer(rln=StrictRlnProvider(rate_limit=2, epoch_ms=EPOCH_MS))
    for _ in range(3):
        alice.send(b"x")
    assert len(alice.content()) == 2
    assert len(alice.events(MessageQueued)) == 1


@pytest.mark.parametrize("kind", [RlnErrorKind.NOT_READY, RlnErrorKind.TRANSIENT])
def test_a_proof_that_cannot_be_had_yet_is_tried_again_and_nothing_is_lost(peer, kind):
    alice, bob = peer("alice", limited(2), rln=FailingProvider(*[RlnError(kind)] * 3)), peer("bob")
    alice.send(b"one")
    alice.send(b"two")
    assert not alice.published()
    alice.pass_time(3_000)
    bob.receive(*alice.content())
    assert bob.payloads() == [b"one", b"two"]
    assert not alice.events(MessageSendError, DeliveryError)
    assert alice.content()[0].message.rate_limit_proof == b"proof"


def test_an_exhausted_budget_waits_for_the_next_epoch(peer):
    alice = peer(rln=FailingProvider(RlnError(RlnErrorKind.BUDGET_EXHAUSTED)))
    alice.send(b"hello")
    begins = next_epoch(alice.now_ms)
    alice.pass_time(begins - alice.now_ms - 1)
    assert not alice.published()
    alice.pass_time(1)
    assert alice.content()[0].message.timestamp_ns == begins * 1_000_000


def test_while_proofs_are_made_others_are_sent_and_no_more_are_asked_for_than_the_node_takes(peer):
    options = ReliableChannelOptions(sync_min_interval_ms=0, advanced=Advanced(max_concurrent_publishes=3))
    alice = peer(options=options, rln=StrictRlnProvider(rate_limit=100, epoch_ms=EPOCH_MS))
    alice.proves_at_once = False
    for number in range(5):
        alice.send(b"%d" % number)
    assert len(alice.unproven) == 3
    alice.prove()
    assert (len(alice.unanswered), len(alice.unproven)) == (1, 2)
    alice.answer(*alice.unanswered)
    assert (len(alice.unanswered), len(alice.unproven)) == (0, 3)
    while alice.unproven:
        alice.prove()
        alice.answer()
    assert len(alice.content()) == 5
    stamps = [publication.message.timestamp_ns for publication in alice.content()]
    assert stamps == sorted(set(stamps))
    alice.check_rows()


def test_a_crash_before_the_proof_sends_the_message_newly_stamped_and_proven(peer):
    provider = StrictRlnProvider(rate_limit=100, epoch_ms=EPOCH_MS)
    alice = peer(rln=provider)
    alice.proves_at_once = False
    alice.send(b"hello")
    [wanted] = alice.unproven
    provider.generate_proof(wanted.signal, wanted.at_ms)  # the id is used, and the proof is lost
    alice = alice.restart()
    [publication] = alice.content()
    validator = RlnTestValidator(rate_limit=100, epoch_ms=EPOCH_MS)
    message = publication.message
    signal = rln_signal(message.payload, message.content_topic, message.timestamp_ns)
    assert signal != wanted.signal
    assert validator.validate(message.rate_limit_proof, signal, alice.now_ms) is ProofVerdict.VALID


def test_a_proof_that_never_comes_is_asked_for_again_after_a_minute(peer):
    alice = peer(rln=StrictRlnProvider(rate_limit=100, epoch_ms=EPOCH_MS))
    alice.proves_at_once = False
    alice.send(b"hello")
    forgotten = alice.unproven.popleft()
    alice.pass_time(59_000)
    assert not alice.published()
    alice.proves_at_once = True
    alice.pass_time(3_000)
    assert len(alice.content()) == 1
    alice.do(alice.stack.proven(forgotten.token, b"late", alice.now_ms))
    assert len(alice.content()) == 1


def test_a_proof_that_comes_in_the_next_epoch_and_says_exhausted_does_not_end_that_one(peer):
    alice = peer(rln=FailingProvider(RlnError(RlnErrorKind.BUDGET_EXHAUSTED)))
    alice.proves_at_once = False
    alice.send(b"hello")
    begins = next_epoch(alice.now_ms)
    alice.now_ms = begins + 1
    alice.prove()
    alice.prove()
    assert len(alice.content()) == 1
