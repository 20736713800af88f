"""Sending again with the request id of an earlier send: one that is open, was delivered, or failed."""

from __future__ import annotations

import pytest

from fairway.errors import ConfigurationError
from fairway.events import DeliveryError, MessageAcknowledged, MessageDelivered, MessageSending, RequestSent
from fairway.options import ReliableChannelOptions, RepairConfig, SdsConfig, SegmentationConfig
from fairway.protocol.effects import Purpose
from fairway.protocol.outgoing import request_table

QUIET = ReliableChannelOptions(sync_min_interval_ms=0)
SMALL = ReliableChannelOptions(
    sync_min_interval_ms=0,
    segmentation=SegmentationConfig(segment_size_bytes=64),
    sds=SdsConfig(causal_history_size=20),
)
FILE = bytes(range(256)) * 2
"""Eight segments and one parity segment."""


def test_events_carry_the_id_that_the_caller_chose(peer):
    alice = peer()
    assert alice.send(b"hello", request_id="x" * 256).request_id == "x" * 256
    assert [event.request_id for event in alice.events()] == ["x" * 256]


def test_another_payload_under_the_same_id_is_refused_and_nothing_is_lost(peer):
    alice = peer(options=ReliableChannelOptions(sync_min_interval_ms=0, max_retry_attempts=0))
    alice.send(b"hello", request_id="order 7")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="'order 7' stands for another payload"):
            alice.send(b"goodbye", request_id="order 7")
        alice.pass_time(30_000)
    assert len(alice.content()) == len(alice.events(DeliveryError)) == 1


@pytest.mark.parametrize(
    ("request_id", "text"),
    [
        ("", "request_id must not be empty"),
        ("é" * 129, "request_id has 258 bytes of UTF-8, at most 256"),
        ("\ud800", "request_id is not Unicode text"),
        (7, "request_id must be text, not int"),
    ],
)
def test_an_id_that_cannot_be_one_is_refused(peer, request_id, text):
    alice = peer()
    with pytest.raises(ConfigurationError, match=text):
        alice.send(b"hello", request_id=request_id)
    assert not alice.effects


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_same_send_again_is_answered_with_the_first_and_nothing_leaves(peer, is_restarted):
    alice = peer(options=QUIET)
    alice.send(b"hello", request_id="order 7")
    if is_restarted:
        # The program crashed before it saw the answer.
        alice = alice.restart()
    alice.effects.clear()
    alice.send(b"hello", request_id="order 7")
    assert not alice.published()
    assert alice.stack.statistics().open_requests == 1
    alice.check_rows()
    alice.pass_time(30_000)
    assert [event.request_id for event in alice.events(MessageSending)] == ["order 7"]


def want(peer, request_id, payload=b"hello", **wanted):
    """Repeat a send, which asks for more or not."""
    accepted = peer.send(payload, request_id=request_id, **wanted)
    assert accepted.request_id == request_id
    return accepted.effects


def reply(sender, to, payload=b"thanks"):
    sender.send(payload)
    return to.receive(sender.content()[-1])


@pytest.fixture
def delivered(peer):
    """Make a send that bob alone acknowledged, and say who is there."""

    def make(payload=b"hello", options=QUIET, **wanted):
        alice, bob, carol = (peer(name, options) for name in ("alice", "bob", "carol"))
        accepted = alice.send(payload, **wanted)
        alice.answer()
        bob.receive(*alice.content())
        reply(bob, alice)
        assert [event.delivered_to for event in alice.events(MessageDelivered)] == [("bob",)]
        alice.effects.clear()
        return accepted.request_id, alice, bob, carol

    return make


def test_an_open_send_ends_only_when_the_new_requirement_is_met_too(peer):
    alice, bob, carol = peer("alice"), peer("bob"), peer("carol")
    accepted = alice.send(b"hello")
    want(alice, accepted.request_id, required_from=["carol"])
    bob.receive(*alice.content())
    reply(bob, alice)
    assert alice.events(MessageAcknowledged)
    assert not alice.events(MessageDelivered)
    carol.receive(*alice.content())
    reply(carol, alice)
    assert [event.delivered_to for event in alice.events(MessageDelivered)] == [("bob", "carol")]
    alice.check_rows()


def test_a_weaker_requirement_changes_nothing(peer):
    alice, bob, carol = peer("alice"), peer("bob"), peer("carol")
    accepted = alice.send(b"hello", required_from=["carol"], required_count=2)
    want(alice, accepted.request_id)
    for other in (bob, carol):
        assert not alice.events(MessageDelivered)
        other.receive(*alice.content())
        reply(other, alice)
    assert len(alice.events(MessageDelivered)) == 1


def test_a_requirement_that_is_met_already_is_answered_at_once(delivered):
    request_id, alice, _, _ = delivered()
    alice.now_ms += 5_000
    for _ in range(2):
        want(alice, request_id, required_from=["bob"])
    events = alice.events()
    assert [type(event) for event in events] == [MessageDelivered] * 2
    assert {(e.request_id, e.delivered_to, e.at_ms) for e in events} == {(request_id, ("bob",), alice.now_ms)}
    assert alice.stack.statistics().open_requests == 0


def test_a_delivered_send_is_opened_again_and_repeated_one_interval_later(delivered):
    request_id, alice, _, carol = delivered()
    assert want(alice, request_id, required_from=["carol"])
    assert not alice.events()
    assert alice.stack.statistics().open_requests == 1
    alice.check_rows()
    alice.pass_time(29_999)
    assert not alice.published()
    alice.pass_time(1)
    [retry] = alice.published(Purpose.RETRY)
    carol.receive(retry)
    assert carol.payloads() == [b"hello"]
    reply(carol, alice)
    [event] = alice.events(MessageDelivered)
    assert (event.request_id, event.delivered_to) == (request_id, ("bob", "carol"))
    alice.pass_time(3_600_000)
    assert len(alice.published(Purpose.RETRY)) == 1
    alice.check_rows()


def test_a_participant_that_has_the_message_acknowledges_it_with_its_next_message(peer):
    alice, bob, carol = (peer(name, QUIET) for name in ("alice", "bob", "carol"))
    accepted = alice.send(b"hello")
    for other in (bob, carol):
        other.receive(*alice.content())
    for number in range(4):
        reply(bob, alice, b"bob %d" % number)
        carol.receive(bob.content()[-1])
    alice.effects.clear()
    want(alice, accepted.request_id, required_from=["carol"])
    reply(carol, alice)
    cited = [entry.message_id for entry in carol.sds(carol.content()[-1]).causal_history]
    assert alice.content() == []
    assert all(alice.stack.sds.record(message_id).sender_id == "bob" for message_id in cited)
    assert [event.delivered_to for event in alice.events(MessageDelivered)] == [("bob", "carol")]


def test_a_send_that_was_opened_again_fails_when_its_retries_are_exhausted(delivered):
    request_id, alice, _, _ = delivered()
    want(alice, request_id, required_from=["dave"])
    alice.pass_time(360_000)
    [error] = alice.events(DeliveryError)
    assert (error.request_id, error.acknowledged_by, error.missing) == (request_id, ("bob",), ("dave",))
    assert len(alice.published(Purpose.RETRY)) == 10


def test_opened_again_it_is_tried_as_often_as_a_new_one(peer):
    alice, bob = peer("alice", QUIET), peer("bob", QUIET)
    accepted = alice.send(b"hello")
    alice.pass_time(200_000)
    bob.receive(*alice.content())
    reply(bob, alice)
    alice.effects.clear()
    want(alice, accepted.request_id, required_count=2)
    alice.pass_time(360_000)
    assert len(alice.published(Purpose.RETRY)) == 10
    assert len(alice.events(DeliveryError)) == 1


def test_of_a_file_only_what_somebody_lacks_is_repeated(delivered):
    request_id, alice, _, carol = delivered(FILE, SMALL)
    want(alice, request_id, FILE, required_from=["carol"])
    alice.check_rows()
    reply(carol, alice, b"and I?")
    alice.pass_time(30_000)
    retries = sorted(alice.published(Purpose.RETRY), key=lambda retry: alice.sds(retry).lamport_timestamp)
    assert len({retry.sds_id for retry in retries}) == len(retries) == 8
    carol.receive(*retries[:7])
    reply(carol, alice)
    assert not alice.events(MessageDelivered)
    alice.pass_time(30_000)
    again = alice.published(Purpose.RETRY)[8:]
    assert [retry.sds_id for retry in again] == [retries[7].sds_id]
    carol.receive(*again)
    assert carol.payloads() == [FILE]
    reply(carol, alice)
    assert [event.delivered_to for event in alice.events(MessageDelivered)] == [("bob", "carol")]
    assert not alice.events(RequestSent), "it was told the first time"


def test_what_is_open_again_goes_on_after_a_restart(delivered):
    request_id, alice, _, carol = delivered(FILE, SMALL)
    want(alice, request_id, FILE, required_from=["carol"])
    alice = alice.restart()
    alice.check_rows()
    reply(carol, alice, b"and I?")
    alice.pass_time(30_000)
    carol.receive(*alice.published(Purpose.RETRY))
    reply(carol, alice)
    [event] = alice.events(MessageDelivered)
    assert (event.request_id, event.delivered_to) == (request_id, ("bob", "carol"))


def test_a_send_that_ended_costs_nothing_until_more_is_asked_of_it(delivered):
    request_id, alice, _, _ = delivered()
    assert alice.stack.statistics().unacknowledged == alice.stack.statistics().open_requests == 0
    rows = dict(alice.rows)
    want(alice, request_id)
    assert alice.rows == rows
    assert alice.stack.next_deadline() is None


def test_two_sends_of_one_payload_are_asked_each_by_itself(peer):
    alice, bob = peer("alice", QUIET), peer("bob", QUIET)
    first = alice.send(b"ok").request_id
    bob.receive(*alice.content())
    reply(bob, alice)
    alice.send(b"ok", required_from=["carol"])
    want(alice, first, b"ok", required_count=2)
    assert alice.stack.statistics().open_requests == 2
    alice.check_rows()


def test_more_can_be_asked_after_a_restart_of_a_send_that_was_delivered_before(delivered):
    request_id, alice, bob, carol = delivered()
    alice = alice.restart()
    want(alice, request_id, required_from=["carol"])
    alice.check_rows()
    alice.pass_time(30_000)
    for other in (bob, carol):
        other.receive(*alice.published(Purpose.RETRY))
    assert (bob.payloads(), carol.payloads()) == ([b"hello"], [b"hello"])
    reply(carol, alice)
    assert [event.delivered_to for event in alice.events(MessageDelivered)] == [("bob", "carol")]


def test_a_delivered_message_that_is_not_retained_any_more_is_sent_as_a_new_one(delivered):
    options = ReliableChannelOptions(sync_min_interval_ms=0, sds=SdsConfig(repair=RepairConfig(enabled=False)))
    request_id, alice, _, _ = delivered(options=options)
    want(alice, request_id, required_from=["carol"])
    assert [publication.purpose for publication in alice.published()] == [Purpose.CONTENT]
    assert alice.stack.statistics().open_requests == 1
    alice.check_rows()


def test_only_the_newest_delivered_sends_are_remembered(delivered, monkeypatch):
    monkeypatch.setattr(request_table, "MAX_DELIVERED", 2)
    request_id, alice, bob, _ = delivered()
    for number in range(2):
        alice.send(b"%d" % number)
        bob.receive(*alice.content())
        reply(bob, alice, b"thanks %d" % number)
    alice.check_rows()
    assert request_id not in {change.key for change in alice.stack.snapshot() if change.table == request_table.REQUESTS}
