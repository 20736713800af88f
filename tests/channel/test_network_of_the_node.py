"""A channel at a node that knows its network has that network's cluster, shards, longest message and rate limit."""

from __future__ import annotations

import pytest

import fairway
from fairway.errors import ConfigurationError
from fairway.nodes.discovery.network import Network, RlnSettings
from fairway.nodes.light import LightNode
from fairway.nodes.node import NetworkRules, NodeQuota, RoutedMessage
from fairway.wire.waku_message import WakuMessage
from patience import run

PEER = "/ip4/127.0.0.1/tcp/1/p2p/16Uiu2HAmQ9X2xDfPG3uL77V9piYDhjq14JhKCtcmNYsTMKNqrKCj"
TOPIC = "/fairway-test/1/room/proto"


def network(**changes):
    return Network(**{"source": "this test", "cluster": 16, "shards": 3, "peers": (PEER,), **changes})


def options_at(known, **options):
    """The options in force of a channel at a node of a network."""

    async def work():
        async with await LightNode.start([] if known else [PEER], network=known, connect_timeout_s=None) as node:
            given = fairway.ReliableChannelOptions(auto_start=False, **options)
            channel = await fairway.create_reliable_channel(node, "team", "alice", TOPIC, options=given)
            return channel.options, node.network, node.quota

    return run(work())


def test_the_network_takes_the_place_of_the_defaults():
    options, rules, quota = options_at(network())
    assert (options.cluster_id, options.shard_count) == (16, 3)
    assert options.advanced.max_wire_message_bytes == 153_600
    assert rules == NetworkRules(cluster_id=16, shard_count=3, max_message_bytes=153_600)
    assert quota is None


@pytest.mark.parametrize("given", [{"cluster_id": 5}, {"shard_count": 4}])
def test_other_values_than_those_of_the_network_are_refused(given):
    ((name, value),) = given.items()
    with pytest.raises(ConfigurationError, match=rf"{name} of the options is {value}, and that of the node's network"):
        options_at(network(), **given)


@pytest.mark.parametrize(
    ("longest", "segment"), [(200_000, 102_400), (153_600, 102_400), (100_000, 48_800), (60_000, 15_000)]
)
def test_segments_fit_into_the_longest_message(longest, segment):
    options, _, _ = options_at(network(max_message_bytes=longest))
    assert options.advanced.max_wire_message_bytes == min(longest, 153_600)
    assert options.segmentation.segment_size_bytes == segment


def test_a_network_whose_messages_hold_no_segment_is_refused():
    with pytest.raises(ConfigurationError, match="Take a smaller bloom_filter_size"):
        options_at(network(max_message_bytes=10_000))


def test_the_rate_limit_is_that_of_the_network():
    _, _, quota = options_at(network(rln=RlnSettings(epoch_s=600, messages_per_epoch=100)))
    assert quota == NodeQuota(limit=100, epoch_ms=600_000)


def test_a_message_that_is_too_long_for_the_network_is_not_sent():
    async def work():
        known = network(max_message_bytes=1_000)
        async with await LightNode.start([], network=known, connect_timeout_s=None) as node:
            message = WakuMessage(payload=bytes(1_000), content_topic=TOPIC)
            return await node.send(RoutedMessage.of("/waku/2/rs/16/0", message))

    result = run(work())
    assert (result.accepted, result.permanent) == (False, True)
    assert "the network relays 1000 at most" in result.detail
