"""Request ids that a caller chose: the same id and payload is the same send, so that asking twice sends once."""

from __future__ import annotations

import pytest

from fairway.errors import ConfigurationError
from fairway.events import DeliveryError, MessageDelivered, MessageSending
from fairway.options import IdRule, ReliableChannelOptions, SdsConfig
from fairway.protocol.effects import Publish

QUIET = ReliableChannelOptions(sync_min_interval_ms=0)


def test_events_carry_the_id_that_the_caller_chose(peer):
    alice = peer()
    accepted = alice.send(b"hello", request_id="order 7")
    assert accepted.request_id == "order 7"
    assert [event.request_id for event in alice.events()] == ["order 7"]


def test_without_an_id_one_is_made(peer):
    alice = peer()
    assert len({alice.send(b"hello").request_id for _ in range(3)}) == 3


def test_the_same_send_again_is_answered_with_the_first_and_nothing_leaves(peer):
    alice = peer()
    first = alice.send(b"hello", request_id="order 7")
    again = alice.send(b"hello", request_id="order 7")
    assert (again.request_id, again.message_id) == (first.request_id, first.message_id)
    assert not [effect for effect in again.effects if isinstance(effect, Publish)]
    assert len(alice.content()) == 1
    assert alice.stack.statistics().open_requests == 1
    alice.check_rows()


def test_what_each_of_the_two_wanted_counts(peer):
    alice, bob, carol = peer("alice"), peer("bob"), peer("carol")
    alice.send(b"hello", request_id="order 7", required_from=["carol"])
    alice.send(b"hello", request_id="order 7", required_count=2)
    for other in (bob, carol):
        other.receive(*alice.content())
        other.send(b"thanks")
    alice.receive(*carol.content())
    assert not alice.events(MessageDelivered)
    alice.receive(*bob.content())
    [delivered] = alice.events(MessageDelivered)
    assert delivered.delivered_to == ("bob", "carol")


def test_another_payload_under_the_same_id_is_refused_and_nothing_is_lost(peer):
    alice = peer()
    alice.send(b"hello", request_id="order 7")
    with pytest.raises(ConfigurationError, match="'order 7' stands for another payload"):
        alice.send(b"goodbye", request_id="order 7")
    assert len(alice.content()) == 1
    assert alice.stack.statistics().open_requests == 1


def test_the_id_of_a_send_that_failed_stands_for_its_payload_still(peer):
    alice = peer(options=ReliableChannelOptions(sync_min_interval_ms=0, max_retry_attempts=0))
    alice.send(b"hello", request_id="order 7")
    alice.pass_time(30_000)
    assert len(alice.events(DeliveryError)) == 1
    with pytest.raises(ConfigurationError, match="'order 7' stands for another payload"):
        alice.send(b"something else", request_id="order 7")


@pytest.mark.parametrize(
    ("request_id", "text"),
    [
        ("", "request_id must not be empty"),
        ("x" * 257, "request_id has 257 bytes of UTF-8, at most 256"),
        ("é" * 129, "request_id has 258 bytes"),
        ("\ud800", "request_id is not Unicode text"),
        (7, "request_id must be text, not int"),
    ],
)
def test_an_id_that_cannot_be_one_is_refused(peer, request_id, text):
    alice = peer()
    with pytest.raises(ConfigurationError, match=text):
        alice.send(b"hello", request_id=request_id)
    assert not alice.effects


def test_an_id_may_be_as_long_as_allowed(peer):
    alice = peer()
    assert alice.send(b"hello", request_id="x" * 256).request_id == "x" * 256


def test_whoever_crashed_before_the_answer_came_can_ask_again_after_the_restart(peer):
    alice = peer(options=QUIET)
    alice.send(b"hello", request_id="order 7")
    alice = alice.restart()
    alice.effects.clear()
    alice.send(b"hello", request_id="order 7")
    assert not alice.published()
    alice.pass_time(30_000)
    assert [event.request_id for event in alice.events(MessageSending)] == ["order 7"]


def test_where_equal_payloads_are_one_message_the_send_that_is_under_way_is_answered(peer):
    alice = peer(options=ReliableChannelOptions(sds=SdsConfig(id_rule=IdRule.PAYLOAD)))
    alice.send(b"ok", request_id="one")
    assert alice.send(b"ok", request_id="two").request_id == "one"
