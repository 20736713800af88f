"""The network between participants and its store: as bad as it was told to be, and no worse."""

from __future__ import annotations

import pytest

from fairway.errors import ConfigurationError
from fairway.protocol.effects import Publish, Purpose, QueryStore
from fairway.simulation import LossyNetwork, NetworkFaults
from fairway.wire.waku_message import WakuMessage


def publication(number, *, timestamp_ms=0, ephemeral=False):
    message = WakuMessage(
        payload=bytes([number]),
        content_topic="/a/1/b/proto",
        timestamp_ns=timestamp_ms * 1_000_000,
        ephemeral=ephemeral,
    )
    return Publish(
        token=number,
        purpose=Purpose.CONTENT,
        pubsub_topic="/waku/2/rs/1/0",
        message=message,
        encoded=b"",
        message_hash=bytes([number]) * 32,
        sds_id=str(number),
    )


def test_ephemeral_messages_are_not_stored():
    network = LossyNetwork(NetworkFaults(), seed=1)
    list(network.deliveries_of(publication(1, ephemeral=True), []))
    assert not list(network.stored())


@pytest.mark.parametrize(
    ("faults", "text"),
    [
        ({"loss": 1.1}, r"loss is a share and must lie in 0\.\.1, not 1\.1"),
        ({"duplication": -0.1}, "duplication is a share"),
        ({"store_loss": 2}, "store_loss is a share"),
        ({"min_delay_ms": 5, "max_delay_ms": 4}, "0 <= min_delay_ms <= max_delay_ms"),
        ({"min_delay_ms": -1}, "0 <= min_delay_ms"),
    ],
)
def test_faults_that_cannot_be_are_refused(faults, text):
    with pytest.raises(ConfigurationError, match=text):
        NetworkFaults(**faults)


@pytest.mark.parametrize(
    ("faults", "shares"), [({}, (0, 0)), ({"loss": 1.0}, (1, 0)), ({"loss": 0.3, "duplication": 0.25}, (0.3, 0.25))]
)
def test_the_network_loses_and_copies_the_share_that_it_was_told_to(faults, shares):
    network = LossyNetwork(NetworkFaults(**faults), seed=7)
    receivers = [str(number) for number in range(100)]
    arrived = [delivery for number in range(100) for delivery in network.deliveries_of(publication(number), receivers)]
    loss, copies = shares
    assert len(arrived) == network.deliveries == pytest.approx(10_000 * (1 + copies) * (1 - loss), abs=300)
    assert network.deliveries + network.lost == pytest.approx(10_000 * (1 + copies), abs=300)
    assert all(20 <= delay_ms <= 250 for _, delay_ms in arrived)


def test_the_store_finds_by_hash_and_by_time():
    network = LossyNetwork(NetworkFaults(), seed=1)
    for number in range(5):
        list(network.deliveries_of(publication(number, timestamp_ms=number), []))
    by_hash = network.query(QueryStore(message_hashes=(bytes([3]) * 32, bytes([9]) * 32, bytes([1]) * 32)))
    assert [message.payload for message in by_hash] == [b"\3", b"\1"]
    by_time = network.query(QueryStore(start_ns=1_000_000, end_ns=3_000_000))
    assert [message.payload for message in by_time] == [b"\1", b"\2", b"\3"]
    assert len(list(network.query(QueryStore(start_ns=2_000_000)))) == 3


def test_a_store_may_miss_messages_and_its_answers_may_get_lost():
    network = LossyNetwork(NetworkFaults(store_loss=1.0), seed=1)
    list(network.deliveries_of(publication(1), []))
    assert not list(network.stored())
    network = LossyNetwork(NetworkFaults(loss=0.5), seed=1)
    list(network.deliveries_of(publication(1), []))
    answers = [len(list(network.query(QueryStore(message_hashes=(bytes([1]) * 32,))))) for _ in range(100)]
    assert 20 < sum(answers) < 80
