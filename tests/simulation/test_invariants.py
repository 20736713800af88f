"""What a history says is violated, by what applications, stores and the network showed it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from fairway.channel.reliable_channel import ReliableChannel
from fairway.events import (
    DeliveryError,
    FailureReason,
    IrretrievableMessage,
    LossReason,
    MessageDelivered,
    MessageReceived,
)
from fairway.nodes.node import RoutedMessage
from fairway.options import Profile, RateLimitConfig
from fairway.simulation.history import History, Invariant
from fairway.simulation.invariants import judge, unequal
from fairway.storage.channel_store import SendOutcome, StoredRequest, Write
from fairway.wire.sds import SdsMessage
from fairway.wire.waku_message import WakuMessage

OPTIONS = replace(
    Profile.WAKU.options(), rate_limit=RateLimitConfig(enabled=True, messages_per_epoch=3, epoch_ms=600_000)
)


FAILED = DeliveryError(request_id="hello", message_id="", reason=FailureReason.NOT_ACKNOWLEDGED, detail="no answer")
REQUEST = StoredRequest(request_id="hello", message_id="", size_bytes=1, accepted_at_ms=0)


class Harbour:
    """A history of alice, bob and carol, who have just joined."""

    def __init__(self):
        self.history = History(OPTIONS, lambda: 0, None)
        self.history.joined = dict.fromkeys(("alice", "bob", "carol"))

    def send(self, name, text, *, durable=True, by=frozenset(), has_deadline=False):
        """Let a message leave, and be accepted; return it as others receive it."""
        payload = text.encode()
        self.history.sending(name, text, payload, by, has_deadline=has_deadline)
        if durable:
            self.history.stored(name, Write(requests=(structs.replace(REQUEST, request_id=text),)))
        self.history.accepted(name, text)
        sds_id = f"sds {text}"
        sds = SdsMessage(message_id=sds_id, sender_id=name, channel_id="quay", lamport_timestamp=1, content=payload)
        waku = WakuMessage(payload=OPTIONS.profile.codec.encode(sds), content_topic="/a/1/b/proto", timestamp_ns=1)
        self.history.handed_to_node(name, RoutedMessage.of("/waku/2/rs/1/0", waku))
        return MessageReceived(
            message_id=ReliableChannel.get_message_id(payload),
            sender_id=name,
            channel_id="quay",
            content_topic="/a/1/b/proto",
            payload=payload,
            timestamp_ns=1,
            message_hashes=(),
            sds_ids=(sds_id,),
        )

    def receive(self, name, message):
        self.history.stored(name, Write(delivered=((len(self.history.order[name]), message),)))
        self.history.received(name, message)

    def end(self, name, text, *, delivered_to=("bob",)):
        self.history.told(name, MessageDelivered(request_id=text, message_id="", delivered_to=delivered_to, at_ms=0))
        self.history.answered(name, text, delivered_to)

    def broken(self):
        judge(self.history)
        return {violation.invariant for violation in self.history.violations}


@pytest.fixture
def harbour():
    return Harbour()


def delivered(harbour, name, text):
    """Send a message that everybody gets and that ends as it should."""
    message = harbour.send(name, text)
    others = [other for other in harbour.history.joined if other != name]
    for other in others:
        harbour.receive(other, message)
    harbour.end(name, text, delivered_to=(others[0],))
    return message


def test_a_message_received_by_all_violates_nothing(harbour):
    delivered(harbour, "alice", "hello")
    assert harbour.broken() == set()


def test_a_message_that_a_participant_never_received_violates_delivered(harbour):
    harbour.receive("bob", harbour.send("alice", "hello"))
    harbour.end("alice", "hello")
    assert harbour.broken() == {Invariant.DELIVERED}


def test_announcing_a_received_message_as_lost_violates_delivery(harbour):
    delivered(harbour, "alice", "hello")
    harbour.history.told("bob", IrretrievableMessage(message_id="sds hello", reason=LossReason.TIMEOUT))
    assert harbour.broken() == {Invariant.DELIVERED}


def test_a_second_delivery_without_a_restart_violates_once(harbour):
    message = delivered(harbour, "alice", "hello")
    harbour.receive("bob", message)
    assert harbour.broken() == {Invariant.ONCE}


def test_a_second_delivery_after_a_restart_violates_once_only_if_the_message_was_finished(harbour):
    message = delivered(harbour, "alice", "hello")
    harbour.history.lives["bob"] += 1
    harbour.history.received("bob", replace(message, redelivered=True))
    assert harbour.broken() == set()
    harbour.history.stored("bob", Write(finished=(0,)))
    harbour.history.lives["bob"] += 1
    harbour.history.received("bob", replace(message, redelivered=True))
    assert harbour.broken() == {Invariant.ONCE}


def test_a_delivery_before_a_causal_ancestor_violates_order(harbour):
    first = harbour.send("alice", "hello")
    harbour.receive("bob", first)
    answer = harbour.send("bob", "hello to you")
    harbour.receive("carol", answer)
    harbour.receive("carol", first)
    harbour.receive("alice", answer)
    harbour.end("alice", "hello")
    harbour.end("bob", "hello to you", delivered_to=("alice",))
    assert harbour.broken() == {Invariant.ORDER}


@pytest.mark.parametrize("told", [True, False], ids=["told of the failure", "crashed before it was told"])
def test_a_second_late_delivery_of_a_failed_send_violates_ended(harbour, told):
    message = harbour.send("alice", "hello")
    for name in ("bob", "carol"):
        harbour.receive(name, message)
    failed = structs.replace(REQUEST, outcome=SendOutcome.FAILED, failure=FAILED)
    harbour.history.stored("alice", Write(requests=(failed,)))
    if told:
        harbour.history.told("alice", FAILED)
    harbour.history.answered("alice", "hello", None)
    late = MessageDelivered(request_id="hello", message_id="", delivered_to=("bob",), at_ms=0, late=True)
    harbour.history.told("alice", late)
    assert harbour.broken() == set()
    harbour.history.told("alice", late)
    assert harbour.broken() == {Invariant.ENDED}


def test_a_delivery_to_fewer_participants_than_requested_violates_ended(harbour):
    message = harbour.send("alice", "hello", by=frozenset({"bob", "carol"}))
    for name in ("bob", "carol"):
        harbour.receive(name, message)
    harbour.end("alice", "hello", delivered_to=("bob",))
    assert harbour.broken() == {Invariant.ENDED}


def test_an_acknowledgement_by_a_participant_without_the_message_violates_acknowledged(harbour):
    harbour.send("alice", "hello")
    harbour.end("alice", "hello")
    assert Invariant.ACKNOWLEDGED in harbour.broken()


def test_a_message_sent_before_it_is_durable_violates_durable(harbour):
    harbour.send("alice", "hello", durable=False)
    assert Invariant.DURABLE in harbour.broken()


def test_more_messages_in_an_epoch_than_allowed_break_the_rate_limit(harbour):
    for text in "abc":
        delivered(harbour, "alice", text)
    assert harbour.broken() == set()
    delivered(harbour, "alice", "d")
    assert harbour.broken() == {Invariant.RATE}


def test_logs_with_other_entries_or_another_order_are_unequal():
    assert not list(unequal({"alice": ["a", "b"], "bob": ["a", "b"]}))
    assert list(unequal({"alice": ["a", "b"], "bob": ["b", "a"]}))
    assert list(unequal({"alice": ["a", "b"], "bob": ["a"]}))
