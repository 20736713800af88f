"""A store keeps received and own messages in the order of the channel, up to its bounds."""

from __future__ import annotations

import pytest

from fairway.errors import ConfigurationError
from fairway.events import OrderKey
from fairway.storage.channel_store import MessagePlace, OwnMessage
from fairway.storage.memory_store import MemoryStore


def key(lamport, sds_id="s"):
    return OrderKey(lamport, sds_id)


def own(number):
    return OwnMessage(request_id=f"r{number}", message_id="m", payload=b"own %d" % number, accepted_at_ms=number)


@pytest.fixture
def kept(new_store, keeper):
    return keeper(new_store())


@pytest.fixture
def receive(make):
    """Keep received messages, each with a number, a Lamport timestamp and a payload; they are finished at once."""

    def receive(kept, *messages):
        delivered = tuple(
            (number, make.received(number, payload=payload, order_key=key(lamport)))
            for number, lamport, payload in messages
        )
        kept.keep(delivered=delivered)
        kept.keep(finished=tuple(number for number, _ in delivered))

    return receive


def send(kept, number, lamport, sds_id="s"):
    kept.keep(sent=((number, own(number)),), placed=(MessagePlace(number, 5, key(lamport, sds_id)),))


def payloads(kept, before=None, limit=100):
    return [message.payload for _, message in kept.store.history(before, limit).messages]


def test_messages_come_back_in_the_order_of_the_channel_and_after_a_restart(kept, receive):
    receive(kept, (1, 10, b"a"), (2, 30, b"c"))
    send(kept, 3, 20)
    assert payloads(kept) == [b"a", b"own 3", b"c"]
    kept.reopen()
    page = kept.store.history(None, 100)
    assert [(each.lamport_timestamp, message.payload) for each, message in page.messages] == [
        (10, b"a"),
        (20, b"own 3"),
        (30, b"c"),
    ]
    assert page.first_position == 0
    assert page.messages[1][1] == own(3)


def test_messages_of_one_lamport_timestamp_are_ordered_by_sds_id(kept, make):
    for number, sds_id in enumerate("cab"):
        kept.keep(delivered=((number, make.received(number, payload=sds_id.encode(), order_key=key(5, sds_id))),))
    assert payloads(kept) == [b"a", b"b", b"c"]


def test_a_message_that_is_accepted_and_leaves_in_one_transaction_is_there_once(kept):
    kept.submit(sent=((1, own(1)),), placed=(MessagePlace(1, 5, key(10, "waiting")),))
    kept.submit(placed=(MessagePlace(1, 5, key(30, "left"), key(10, "waiting")),))
    kept.wait(2)
    assert [each for each, _ in kept.store.history(None, 5).messages] == [key(30, "left")]


def test_a_message_that_is_sent_again_is_there_once(kept):
    send(kept, 1, 10)
    kept.keep(sent=((1, own(1)),), placed=(MessagePlace(1, 5, key(50), key(10)),))
    assert [each for each, _ in kept.store.history(None, 5).messages] == [key(50)]


@pytest.mark.parametrize("bounds", [{"kept_messages": 150}, {"kept_message_bytes": 150 * 10_000}])
def test_the_first_finished_messages_are_removed_beyond_the_bounds(new_store, keeper, make, receive, bounds):
    kept = keeper(new_store(**bounds))
    kept.keep(delivered=((0, make.received(0, payload=b"unfinished", order_key=key(0))),))
    for number in range(1, 1_001):
        receive(kept, (number, number, b"%010d" % number * 1_000))
    page = kept.store.history(None, 10_000)
    numbers = [int(message.payload[:10]) for _, message in page.messages if message.payload != b"unfinished"]
    assert 150 <= len(numbers) + 1 <= 150 + 106
    assert numbers == list(range(1_001 - len(numbers), 1_001))
    assert page.messages[0][1].payload == b"unfinished"
    assert page.first_position == 1_001 - len(page.messages)
    kept.reopen()
    assert len(kept.stored.inbox) == 1
    assert kept.store.history(None, 10_000).first_position == page.first_position


def test_the_place_of_a_message_that_is_gone_does_not_come_back(new_store, keeper, receive):
    kept = keeper(new_store(kept_messages=0))
    send(kept, 1, 1)
    receive(kept, *((number, number, b"x") for number in range(2, 300)))
    kept.keep(placed=(MessagePlace(1, 5, key(900), key(1)),))
    assert b"own 1" not in payloads(kept, limit=1_000)
    assert kept.store.history(None, 1_000).first_position + len(payloads(kept, limit=1_000)) == 299


def test_bounds_below_0_are_refused():
    with pytest.raises(ConfigurationError, match="kept_messages must be at least 0, not -1"):
        MemoryStore(kept_messages=-1)
