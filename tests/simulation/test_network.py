"""The lossy network keeps to its figures, and its store to what was broadcast."""

from __future__ import annotations

import pytest

from fairway.errors import ConfigurationError
from fairway.protocol.effects import Publish, Purpose, QueryStore
from fairway.simulation import LossyNetwork, NetworkFaults
from fairway.wire.waku_message import WakuMessage


def publication(number=0, *, ephemeral=False):
    message = WakuMessage(payload=b"x", timestamp_ns=number, ephemeral=ephemeral)
    return Publish(
        token=number,
        purpose=Purpose.CONTENT,
        pubsub_topic="/waku/2/rs/1/0",
        message=message,
        encoded=b"",
        message_hash=number.to_bytes(32, "big"),
        sds_id=str(number),
    )


def test_about_as_many_deliveries_are_lost_as_was_asked_for():
    network = LossyNetwork(NetworkFaults(loss=0.3), seed=1)
    made = sum(1 for number in range(2_000) for _ in network.deliveries_of(publication(number), ["a", "b"]))
    assert made == network.deliveries
    assert 0.27 < network.lost / 4_000 < 0.33


def test_without_faults_everybody_gets_everything_once_within_the_delays():
    network = LossyNetwork(NetworkFaults(min_delay_ms=5, max_delay_ms=9), seed=1)
    assert [(who, 5 <= delay <= 9) for who, delay in network.deliveries_of(publication(), ["a", "b"])] == [
        ("a", True),
        ("b", True),
    ]


def test_the_store_keeps_what_is_not_ephemeral_and_finds_it_by_hash_and_by_time():
    network = LossyNetwork(NetworkFaults(), seed=1)
    for number in range(5):
        list(network.deliveries_of(publication(number, ephemeral=number == 4), ["a"]))
    by_hash = network.query(QueryStore(message_hashes=(publication(2).message_hash, b"unknown")))
    assert [message.timestamp_ns for message in by_hash] == [2]
    by_time = network.query(QueryStore(start_ns=1, end_ns=4))
    assert [message.timestamp_ns for message in by_time] == [1, 2, 3]


@pytest.mark.parametrize(
    "faults", [{"loss": -0.1}, {"loss": 1.1}, {"duplication": 2}, {"min_delay_ms": 5, "max_delay_ms": 1}]
)
def test_impossible_faults_are_refused_in_words(faults):
    with pytest.raises(ConfigurationError, match=r"must lie|need"):
        NetworkFaults(**faults)
