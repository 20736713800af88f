"""What RELIABLE-CHANNEL-API and LIP-173 demand: a send, the wire, events, a clock."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from fairway import ReliableChannel, create_reliable_channel
from fairway.errors import EmptyPayloadError, EncryptionError, MessageTooLargeError, RlnErrorKind
from fairway.events import (
    DeliveryError,
    EphemeralMessageDropped,
    IrretrievableMessage,
    Limit,
    LimitReached,
    MessageAcknowledged,
    MessageQueued,
    MessageReceived,
    MessageSendError,
    MessageSending,
    MessageSent,
    SendErrorReason,
)
from fairway.nodes.local import LocalNetwork
from fairway.options import Advanced, RateLimitConfig, ReliableChannelOptions, SdsConfig, SegmentationConfig
from fairway.protocol.effects import Purpose
from fairway.protocol.encryption import AesGcm
from fairway.wire.sds import WAKU_SDS, HistoryEntry
from fairway.wire.segment import WAKU_SEGMENTS
from rln_testing import StrictRlnProvider

MINUTE_MS = 60_000
EPOCH_MS = 600_000
SIZE = 1_024
SMALL = ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=SIZE))
PAYLOAD = random.Random(7).randbytes(5 * SIZE - 100)
KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))


def limited(messages: int, **more) -> ReliableChannelOptions:
    limit = RateLimitConfig(enabled=True, messages_per_epoch=messages, epoch_ms=EPOCH_MS, **more)
    return replace(SMALL, rate_limit=limit, sync_min_interval_ms=0)


# -- Create Reliable Channel -----------------------------------------------------------------------


def test_messages_of_another_channel_are_not_delivered(room):
    alice = room.member("alice")
    alice.hear(room.said("theirs", channel_id="elsewhere"), room.said("ours"))
    assert alice.heard == [("bob", b"hello")]
    assert alice.stack.statistics().foreign_channel == 1


def test_messages_on_another_content_topic_are_not_delivered(room):
    alice = room.member("alice")
    alice.hear(room.carrying(room.said("theirs"), content_topic="/fairway/1/elsewhere/proto"), room.said("ours"))
    assert alice.heard == [("bob", b"hello")]
    assert alice.stack.statistics().foreign_topic == 1


def test_who_has_the_key_reads_everything_and_who_has_another_or_none_nothing(room):
    alice, bob = room.member("alice", encryption=AesGcm(KEY)), room.member("bob", encryption=AesGcm(KEY))
    mallory, eve = room.member("mallory", encryption=AesGcm(OTHER_KEY)), room.member("eve")
    for other in (mallory, eve, alice):
        other.send(f"from {other.name}".encode())
        room.settle()
    assert bob.heard == [("alice", b"from alice")]
    assert mallory.heard == eve.heard == []
    assert bob.stack.statistics().undecryptable == 2


# -- SDS MessageChannel integration ----------------------------------------------------------------


def test_a_payload_travels_as_the_content_of_an_sds_message_and_comes_out_of_it(room):
    alice, bob = room.member("alice"), room.member("bob")
    alice.send(b"hello")
    room.settle()
    (publication,) = alice.published(Purpose.CONTENT)
    assert WAKU_SDS.decode(publication.message.payload).content == b"hello"
    (received,) = bob.events(MessageReceived)
    assert received.payload == b"hello"


def test_a_message_cites_others_with_the_hash_under_which_a_store_has_them(room):
    alice, bob = room.member("alice"), room.member("bob")
    alice.send(b"hello")
    room.settle()
    bob.send(b"reply")
    (entry,) = bob.said(Purpose.CONTENT)[0].causal_history
    assert entry.retrieval_hint == alice.published(Purpose.CONTENT)[0].message_hash


def test_time_alone_makes_buffers_be_swept(room):
    alice = room.member("alice", ReliableChannelOptions(sds=SdsConfig(lost_timeout_ms=5 * MINUTE_MS)))
    alice.send(b"nobody hears it")
    alice.hear(room.said("waits", causal_history=(HistoryEntry("lost"),)))
    room.wait(6 * MINUTE_MS)
    assert alice.published(Purpose.RETRY), "the outgoing buffer was swept"
    assert alice.heard == [("bob", b"hello")], "the incoming buffer was swept"


# -- Event handling --------------------------------------------------------------------------------


def test_a_message_is_sending_then_sent_then_acknowledged_once_each(room):
    alice, bob = room.member("alice"), room.member("bob")
    request = alice.send(b"hello")
    room.settle()
    bob.send(b"reply")
    room.settle()
    told = alice.events(MessageSending, MessageSent, MessageAcknowledged)
    assert [type(event) for event in told] == [MessageSending, MessageSent, MessageAcknowledged]
    assert {event.request_id for event in told} == {request}
    assert {(event.chunk_info.chunk_index, event.chunk_info.total_chunks) for event in told[:2]} == {(0, 1)}


def test_each_segment_is_sending_and_sent_and_the_acknowledged_ones_add_up(room):
    alice, bob = room.member("alice", SMALL), room.member("bob", SMALL)
    alice.send(PAYLOAD)
    room.settle()
    for kind in (MessageSending, MessageSent):
        told = [event.chunk_info for event in alice.events(kind) if not event.chunk_info.is_parity]
        assert [(info.chunk_index, info.total_chunks) for info in told] == [(index, 5) for index in range(5)]
    bob.send(b"reply")
    room.settle()
    told = alice.events(MessageAcknowledged)
    assert [set(event.chunks_acknowledged) for event in told] == sorted(
        [set(event.chunks_acknowledged) for event in told], key=len
    )
    assert (set(told[-1].chunks_acknowledged), told[-1].total_chunks) == (set(range(5)), 5)
    assert len({event.message_id for event in alice.events(MessageSending, MessageSent, MessageAcknowledged)}) == 1


def test_a_segmented_message_is_received_once_and_whole(room):
    alice, bob = room.member("alice", SMALL), room.member("bob", SMALL)
    alice.send(PAYLOAD)
    room.settle()
    assert bob.heard == [("alice", PAYLOAD)]


# -- Irrecoverable errors --------------------------------------------------------------------------


def test_an_empty_or_too_large_payload_is_refused_to_the_caller_and_nothing_is_sent(room):
    alice = room.member("alice")
    with pytest.raises(EmptyPayloadError):
        alice.send(b"")
    with pytest.raises(MessageTooLargeError):
        alice.send(bytes(1_048_577))
    alice.send(bytes(1_048_576))
    assert len({message.message_id for message in alice.said(Purpose.CONTENT)}) >= 11


def test_a_message_without_a_proof_is_given_up_with_an_event_and_not_sent_again(room):
    rln = StrictRlnProvider(rate_limit=10, epoch_ms=EPOCH_MS, faults=[RlnErrorKind.PERMANENT])
    alice = room.member("alice", rln=rln)
    alice.send(b"hello")
    room.wait(30 * MINUTE_MS)
    assert [event.reason for event in alice.events(MessageSendError)] == [SendErrorReason.RLN_PROOF_FAILED]
    assert alice.published(Purpose.CONTENT, Purpose.RETRY) == []


def test_a_message_that_the_node_never_takes_is_given_up_with_an_event_and_not_sent_again(room):
    alice = room.member("alice")
    room.answers = lambda publication: {
        "accepted": False,
        "permanent": True,
        "detail": "too large",
    }
    alice.send(b"hello")
    room.wait(30 * MINUTE_MS)
    assert len(alice.published(Purpose.CONTENT, Purpose.RETRY)) == 1
    assert len(alice.events(MessageSendError)) == 1


# -- Message retries -------------------------------------------------------------------------------


def test_a_message_is_sent_again_at_the_interval_as_often_as_configured_and_then_fails_with_an_event(room):
    alice = room.member("alice", ReliableChannelOptions(retry_interval_ms=20_000, max_retry_attempts=4))
    request = alice.send(b"hello")
    sent_at_ms = []
    for _ in range(110):
        before = len(alice.published(Purpose.RETRY))
        room.wait(1_000)
        sent_at_ms += [room.now_ms] * (len(alice.published(Purpose.RETRY)) - before)
    assert len(sent_at_ms) == 4
    assert all(19_000 <= later - earlier <= 21_000 for earlier, later in pairwise(sent_at_ms))
    assert [event.request_id for event in alice.events(DeliveryError)] == [request]


def test_an_acknowledged_message_is_not_sent_again(room):
    alice, bob = room.member("alice"), room.member("bob")
    alice.send(b"hello")
    room.settle()
    bob.send(b"reply")
    room.wait(30 * MINUTE_MS)
    assert alice.published(Purpose.RETRY) == []


def test_each_segment_is_acknowledged_and_sent_again_by_itself(room):
    alice = room.member("alice", SMALL)
    alice.send(PAYLOAD)
    room.settle()
    data = [message.message_id for message in alice.said(Purpose.CONTENT)][:5]
    alice.hear(room.said("got some", None, causal_history=tuple(map(HistoryEntry, data[:2]))))
    assert set(alice.events(MessageAcknowledged)[-1].chunks_acknowledged) == {0, 1}
    room.wait(40_000)
    again = {message.message_id for message in alice.said(Purpose.RETRY)}
    assert not again & set(data[:2])
    assert set(data[2:]) <= again


def test_nothing_is_sent_while_the_node_is_offline_and_it_goes_out_afterwards(room):
    alice = room.member("alice")
    alice.send(b"hello")
    room.settle()
    alice.connect(False)
    room.wait(10 * MINUTE_MS)
    assert alice.published(Purpose.RETRY, Purpose.SYNC) == []
    alice.connect()
    room.wait(MINUTE_MS)
    assert alice.published(Purpose.RETRY)


# -- Missing message retrieval ---------------------------------------------------------------------


def test_a_store_is_asked_for_missing_messages_by_hash_again_and_again_until_they_come(room):
    alice = room.member("alice")
    missing = room.said("missing", b"found")
    alice.hear(room.said("waits", causal_history=(HistoryEntry("missing", b"h" * 32),)))
    room.wait(10 * MINUTE_MS)
    asked = [query for query in alice.queries() if b"h" * 32 in query.message_hashes]
    assert len(asked) > 2
    alice.hear(missing)
    assert alice.heard == [("bob", b"found"), ("bob", b"hello")]
    room.wait(10 * MINUTE_MS)
    assert [query for query in alice.queries() if query.message_hashes] == asked


def test_what_cannot_be_retrieved_is_told(room):
    alice = room.member("alice", ReliableChannelOptions(sds=SdsConfig(lost_timeout_ms=5 * MINUTE_MS)))
    alice.hear(room.said("waits", causal_history=(HistoryEntry("lost", b"h" * 32),)))
    room.wait(10 * MINUTE_MS)
    assert [event.message_id for event in alice.events(IrretrievableMessage)] == ["lost"]


# -- Synchronization messages ----------------------------------------------------------------------


def test_who_says_nothing_acknowledges_by_sync_messages(room):
    alice, _ = room.member("alice"), room.member("bob")
    alice.send(b"hello")
    room.wait(5 * MINUTE_MS)
    assert alice.events(MessageAcknowledged)[0].acknowledged_by == ("bob",)


# -- Query on connect ------------------------------------------------------------------------------


def test_who_was_away_asks_the_store_for_that_time(room):
    alice = room.member("alice")
    alice.hear(room.said("theirs"))
    room.wait(0)
    alice.connect(False)
    away_from_ms = room.now_ms
    room.wait(30 * MINUTE_MS)
    alice.connect()
    alice.find_store()
    (query,) = [query for query in alice.queries() if query.catch_up]
    assert query.start_ns <= away_from_ms * 1_000_000
    assert query.end_ns is None or query.end_ns >= room.now_ms * 1_000_000


def test_nobody_is_asked_for_the_time_away_if_that_is_switched_off(room):
    alice = room.member("alice", ReliableChannelOptions(query_on_connect=False))
    alice.connect(False)
    room.wait(30 * MINUTE_MS)
    alice.connect()
    alice.find_store()
    assert not any(query.catch_up for query in alice.queries())


# -- Ephemeral messages ----------------------------------------------------------------------------


def test_an_ephemeral_message_is_never_segmented_and_a_too_large_one_is_refused(room):
    alice = room.member("alice", SMALL)
    alice.send_ephemeral(bytes(SIZE))
    with pytest.raises(MessageTooLargeError):
        alice.send_ephemeral(bytes(SIZE + 1))
    with pytest.raises(EmptyPayloadError):
        alice.send_ephemeral(b"")
    assert len(alice.published(Purpose.EPHEMERAL)) == 1


@pytest.mark.parametrize("answer", [{"accepted": False}, {"accepted": False, "permanent": True}], ids=str)
def test_an_ephemeral_message_that_the_node_does_not_take_is_not_sent_again_and_that_is_told(room, answer):
    alice = room.member("alice")
    room.answers = lambda publication: answer
    alice.send_ephemeral(b"typing")
    room.wait(30 * MINUTE_MS)
    assert len(alice.published(Purpose.EPHEMERAL)) == 1
    assert alice.events(EphemeralMessageDropped, MessageSendError)


def test_ephemeral_messages_are_dropped_near_the_rate_limit_and_the_share_can_be_chosen(room):
    for threshold, sent in ((0.9, 9), (0.5, 5)):
        alice = room.member("alice", limited(10, approached_threshold=threshold))
        for _ in range(12):
            alice.send_ephemeral(b"typing")
        room.wait(3 * EPOCH_MS)
        assert len(alice.published(Purpose.EPHEMERAL)) == sent, "none waits for another epoch"
        assert len(alice.events(EphemeralMessageDropped)) == 12 - sent


# -- Rate Limit Management -------------------------------------------------------------------------


def test_what_exceeds_the_rate_limit_waits_for_the_next_epoch_in_order_and_that_is_told(room):
    alice = room.member("alice", limited(4))
    for number in range(10):
        alice.send(f"{number}".encode())
    room.wait(0)
    assert len(alice.published()) == 4
    assert len(alice.events(MessageQueued)) == 6
    room.silent()
    room.wait(3 * EPOCH_MS)
    sent = [message.content for message in alice.said(Purpose.CONTENT)]
    assert sent == [f"{number}".encode() for number in range(10)]


def test_no_epoch_of_the_configured_length_sees_more_transmissions_than_its_limit_whatever_they_are(room):
    alice = room.member("alice", replace(limited(7), sync_min_interval_ms=30_000))
    counts, before = [], 0
    for epoch in range(12):
        alice.send(PAYLOAD if epoch % 6 == 0 else b"more")
        alice.send_ephemeral(b"typing")
        alice.hear(room.said(f"theirs {epoch}"))
        room.wait(EPOCH_MS - 1)
        counts.append(len(alice.published()) - before)
        before += counts[-1]
        room.wait(1)
    assert max(counts) <= 7 <= max(counts) + 1
    assert alice.published(Purpose.RETRY), "retries are charged, too"


# -- Channel lifecycle -----------------------------------------------------------------------------


async def a_channel(network, name, **options) -> ReliableChannel:
    return await create_reliable_channel(
        network.node(),
        "harbour",
        name,
        "/fairway/1/harbour/proto",
        options=ReliableChannelOptions(sync_min_interval_ms=50, **options),
    )


def test_a_channel_is_started_when_it_is_made_unless_the_application_wants_to_start_it(run):
    async def scenario():
        with LocalNetwork() as network:
            async with await a_channel(network, "alice") as alice, await a_channel(network, "bob") as bob:
                assert alice.is_started()
                await alice.stop()
                assert not alice.is_started()
                await alice.start()
                assert alice.is_started()
                late = await a_channel(network, "carol", auto_start=False)
                assert not late.is_started()
                receipt = await alice.send(b"hello")
                assert "carol" not in (await receipt.delivered()).delivered_to
                async with late:
                    assert late.is_started()
                    receipt = await bob.send(b"welcome", by={"carol"})
                    await receipt.delivered()

    run(scenario())


# -- Security/Privacy Considerations ---------------------------------------------------------------


def test_nobody_acknowledges_his_own_messages(room):
    alice = room.member("alice")
    alice.send(b"one")
    room.settle()
    mine = alice.said(Purpose.CONTENT)[0].message_id
    alice.hear(room.said("mine, too", None, sender_id="alice", causal_history=(HistoryEntry(mine),)))
    assert alice.events(MessageAcknowledged) == []


def test_missing_messages_and_retries_are_bounded_and_a_bound_that_bites_says_so(room):
    alice = room.member(
        "alice",
        replace(
            SMALL,
            advanced=Advanced(max_missing=50, max_active_retries=5),
        ),
    )
    room.silent()
    for number in range(40):
        alice.send(f"{number}".encode())
        cited = tuple(HistoryEntry(f"lost {number}/{each}", bytes([number, each]) * 16) for each in range(10))
        alice.hear(room.said(f"m{number}", causal_history=cited))
    room.wait(10 * MINUTE_MS)
    assert len({hash_ for query in alice.queries() for hash_ in query.message_hashes}) <= 50
    assert {Limit.MISSING_MESSAGES, Limit.ACTIVE_RETRIES} <= {event.limit for event in alice.events(LimitReached)}


# -- The later revision: orders, persistence, hook -------------------------------------------------


def test_out_a_payload_is_segmented_then_wrapped_by_sds_then_encrypted_each_segment_by_itself(room):
    alice = room.member("alice", SMALL, encryption=AesGcm(KEY))
    alice.send(PAYLOAD)
    room.settle()
    pieces = []
    for publication in alice.published(Purpose.CONTENT):
        sds = WAKU_SDS.decode(AesGcm(KEY).decrypt(publication.message.payload))
        segment = WAKU_SEGMENTS.decode(sds.content)
        assert publication.sds_id == sds.message_id
        if not segment.is_parity:
            pieces.append(segment.payload)
    assert b"".join(pieces) == PAYLOAD


def test_in_what_does_not_open_never_reaches_sds(room):
    alice = room.member("alice", encryption=AesGcm(KEY))
    in_clear = room.carrying(room.said("forged", causal_history=(HistoryEntry("lost", b"h" * 32),)))
    alice.hear(in_clear)
    room.wait(MINUTE_MS)
    assert (alice.heard, alice.queries()) == ([], [])
    assert alice.stack.statistics().missing == 0


def test_without_a_hook_messages_are_in_clear_and_a_hook_that_fails_lets_nothing_out(room):
    class Broken:
        def encrypt(self, plaintext: bytes, /) -> bytes:
            raise EncryptionError(f"{len(plaintext)} bytes cannot be sealed")

        def decrypt(self, ciphertext: bytes, /) -> bytes:
            return ciphertext

    alice, bob = room.member("alice"), room.member("bob", encryption=Broken())
    alice.send(b"in clear")
    room.settle()
    assert b"in clear" in alice.published(Purpose.CONTENT)[0].message.payload
    bob.send(b"secret")
    room.wait(10 * MINUTE_MS)
    assert bob.published() == []
    assert bob.events(DeliveryError)


def test_each_segment_tells_message_index_and_count(room):
    alice = room.member("alice", SMALL)
    alice.send(PAYLOAD)
    room.settle()
    segments = [WAKU_SEGMENTS.decode(message.content) for message in alice.said(Purpose.CONTENT)]
    told = [(segment.payload_hash, segment.index, segment.data_count) for segment in segments if not segment.is_parity]
    assert told == [(segments[0].payload_hash, index, 5) for index in range(5)]


def test_sds_takes_segments_for_messages_like_others(room):
    alice = room.member("alice", SMALL)
    alice.send(PAYLOAD)
    alice.send(b"short")
    room.settle()
    said = alice.said(Purpose.CONTENT)
    assert len({message.message_id for message in said}) == len(said) >= 6
    stamps = [message.lamport_timestamp for message in said]
    assert stamps == sorted(set(stamps))
    assert all(message.causal_history or place == 0 for place, message in enumerate(said))


def test_what_was_sent_survives_a_restart_and_is_sent_until_somebody_has_it(room):
    alice, bob = room.member("alice"), room.member("bob")
    alice.send(b"hello")
    room.silent()
    room.settle()
    alice.restart()
    (sent,) = alice.published()
    room.wait(2 * MINUTE_MS)
    again = alice.published(Purpose.CONTENT, Purpose.RETRY)[1:]
    assert {publication.sds_id for publication in again} == {sent.sds_id}
    bob.hear(again[0])
    bob.send(b"reply")
    alice.hear(*bob.published(Purpose.CONTENT))
    alice.restart()
    before = len(alice.published(Purpose.RETRY))
    room.wait(30 * MINUTE_MS)
    assert len(alice.published(Purpose.RETRY)) == before


def test_what_came_and_what_waits_survives_a_restart(room):
    alice = room.member("alice")
    alice.hear(room.said("here"), room.said("waits", b"waited", causal_history=(HistoryEntry("not here"),)))
    alice.restart()
    alice.hear(room.said("here"), room.said("not here", b"found"))
    assert alice.heard == [("bob", b"hello"), ("bob", b"found"), ("bob", b"waited")]


def test_segments_of_100_kib_keep_every_waku_message_below_150_kib(room):
    alice = room.member("alice", ReliableChannelOptions(sds=SdsConfig(causal_history_size=200)))
    alice.hear(*[room.said(f"{number:064}", sender_id="s" * 64) for number in range(200)])
    alice.send(bytes(1_048_576))
    room.settle()
    sizes = [len(publication.encoded) for publication in alice.published(Purpose.CONTENT)]
    assert 102_400 < max(sizes) <= 153_600
