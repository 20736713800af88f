"""``/metrics``: what Prometheus reads, and that it is true."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from certificates import DAY, Authority
from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.libp2p.multiaddr import Multiaddr
from fairway.nodes.discovery.network import Network
from fairway.nodes.discovery.node_record import NodeRecord
from fairway.service import StoreSyncOptions
from fairway.service.node import parts_of
from fairway.wire.filter import FilterSubscribeRequest, FilterSubscribeType
from fairway.wire.relay_shards import RelayShards
from patience import until


async def samples(rest, server):
    answer = await rest.call(server, "GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.text))
    assert all(family.documentation for family in families)
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value for family in families for sample in family.samples
    }


async def test_the_metrics_count_events_of_their_own_node(rest):
    async with rest.serving() as (_, server), rest.serving() as (_, idle):
        wanted = {"requestId": "1", "contentFilters": [rest.topic]}
        await rest.call(server, "POST", "/filter/v2/subscriptions", wanted)
        for number in range(1, 61):
            await rest.publish(server, timestamp=number)
        await rest.publish(server, timestamp=60)
        await rest.call(server, "GET", "/nothing")
        numbers = await samples(rest, server)
        assert numbers["fairway_messages_total",] == 60
        assert numbers["fairway_messages_duplicates_total",] == 1
        assert numbers["fairway_archive_messages",] == 60
        assert numbers["fairway_rest_requests_total", "200", "relay_publish"] == 61
        assert numbers["fairway_rest_requests_total", "200", "filter_subscribe"] == 1
        assert numbers["fairway_rest_cache_overflowed_total", "filter"] == 10
        assert numbers["fairway_healthy",] == 1
        assert numbers["fairway_relay_shard_peers", rest.shard] == 0
        assert numbers["fairway_refused_requests_total", "lightpush"] == 0
        assert numbers["fairway_rest_requests_under_way",] == 1
        assert numbers["fairway_shard_messages_total", rest.shard] == 60
        assert (
            numbers["fairway_shard_message_bytes_total", rest.shard] == numbers["fairway_messages_message_bytes_total",]
        )
        assert (await samples(rest, idle))["fairway_messages_total",] == 0


async def test_a_node_whose_archive_cannot_be_written_is_unhealthy_with_a_reason(rest, tmp_path):
    path = tmp_path / "messages.db"
    async with rest.serving(archive=f"sqlite:{path}") as (node, server):
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TRIGGER full BEFORE INSERT ON Message BEGIN SELECT RAISE(FAIL, 'disk full'); END")
            await rest.publish(server)
            await until(lambda: parts_of(node).archive.problem)
            report = (await rest.call(server, "GET", "/health")).json
            assert report["nodeHealth"] == "NOT_READY"
            store = {"Store": "NOT_READY", "desc": "Messages cannot be written: the archive failed: disk full"}
            assert store in report["protocolsHealth"]
            assert {"Lightpush": "READY"} in report["protocolsHealth"]
            numbers = await samples(rest, server)
            assert (numbers["fairway_healthy",], numbers["fairway_archive_failing",]) == (0, 1)
            other.execute("DROP TRIGGER full")
        await until(lambda: parts_of(node).archive.problem is None)
        assert (await rest.call(server, "GET", "/health")).json["nodeHealth"] == "READY"
        assert (await samples(rest, server))["fairway_archive_waiting",] == 0


async def test_refused_messages_have_their_service_and_their_reason(rest):
    async with rest.serving() as (_, server):
        elsewhere = {"message": {"payload": "AAAA", "contentTopic": rest.topic}, "pubsubTopic": "/waku/2/rs/16/9"}
        for _ in range(3):
            await rest.call(server, "POST", "/lightpush/v3/message", elsewhere)
        numbers = await samples(rest, server)
        assert numbers["fairway_refused_messages_total", "lightpush", "unsupported_pubsub_topic"] == 3


async def test_the_search_for_nodes_has_its_numbers(rest):
    foreign = NodeRecord.sign(
        IdentityKey.generate(KeyType.SECP256K1),
        sequence=1,
        addresses=[Multiaddr.parse("/ip4/127.0.0.1/tcp/1")],
        relay_shards=RelayShards(cluster_id=17, shards=frozenset({0})),
    )
    nobody = f"/ip4/127.0.0.1/tcp/1/p2p/{foreign.peer_id}"
    network = Network(source="this test", cluster=16, shards=1, peers=(nobody,), records=(str(foreign),))
    async with rest.serving(network=network) as (node, server):
        await until(lambda: parts_of(node).finder.statistics().failures)
        numbers = await samples(rest, server)
        assert numbers["fairway_discovery_known",] == 1
        assert numbers["fairway_discovery_connected",] == 0
        assert numbers["fairway_discovery_failing",] == 1
        assert numbers["fairway_discovery_dials_total",] >= 1
        assert numbers["fairway_discovery_failures_total",] >= 1
        assert numbers["fairway_discovery_records",] == 0
        assert numbers["fairway_discovery_refused_total", "other network"] == 1
        assert numbers["fairway_healthy",] == 0


async def test_the_end_of_the_certificate_is_a_number(rest, tmp_path):
    issued = Authority(tmp_path).issue(ends=DAY)
    async with rest.serving(tls_cert=issued.certificate, tls_key=issued.key) as (node, server):
        numbers = await samples(rest, server)
        ends_s = numbers["fairway_tls_certificate_end_timestamp_seconds",]
        assert ends_s == parts_of(node).certificate.expires_s
        assert 0 < ends_s - time.time() < 86_400


NWAKU = json.loads((Path(__file__).parents[1] / "vectors" / "nwaku_rest" / "metrics.json").read_text(encoding="utf-8"))


def by_every_prefix(name):
    return [re.sub(r"^\*", prefix, name) for prefix in ("waku", "logos_delivery")] if "*" in name else [name]


async def test_every_number_of_nwakus_dashboards_that_is_served_has_nwakus_name_and_labels(rest):
    async with rest.serving() as (node, server), rest.serving() as (other, _):
        await parts_of(node).host.connect(other.addresses[0])
        await until(lambda: parts_of(node).relay.peers_of(rest.shard))
        await rest.publish(server)
        subscription = FilterSubscribeRequest(
            request_id="", filter_subscribe_type=FilterSubscribeType.SUBSCRIBE, pubsub_topic=rest.shard
        )
        parts_of(node).filters.handle("peer", subscription, 0.0)
        await parts_of(node).lightpush.respond("peer", b"", now_s=0.0, now_ns=0)
        answer = await rest.call(server, "GET", "/metrics")
        labels = {}
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                labels.setdefault(sample.name, set()).add(frozenset(sample.labels))
        for name, named in NWAKU["served"].items():
            for full in by_every_prefix(name):
                assert labels.get(full) == {frozenset(named)}, full


async def test_the_numbers_count_what_a_store_got_from_another_one(rest):
    async with rest.serving() as (_, plain):
        assert not [name for name, *_ in await samples(rest, plain) if "store_sync" in name or "exchanged" in name]
    async with (
        rest.serving(store_sync=StoreSyncOptions()) as (_, other),
        rest.serving(store_sync=StoreSyncOptions(interval_s=0.2)) as (node, server),
    ):
        for number in range(3):
            await rest.publish(other, timestamp=time.time_ns() - 60_000_000_000 - number)
        at = (await rest.call(other, "GET", "/info")).json["listenAddresses"][0]
        await parts_of(node).host.connect(at)
        await until(lambda: parts_of(node).store_sync.statistics().received == 3)
        numbers = await samples(rest, server)
        assert numbers["fairway_store_sync_received_total",] == 3
        assert numbers["fairway_store_sync_sent_total",] == 0
        for prefix in ("", "logos_delivery_"):
            assert numbers[f"{prefix}total_transfer_messages_exchanged_total", "receive"] == 3
            assert numbers[f"{prefix}total_bytes_exchanged_total", "receive", "transfer"] > 100
            assert numbers[f"{prefix}total_bytes_exchanged_total", "reconciliation", "sent"] > 0


async def test_nwakus_numbers_count_messages_of_two_relays(rest):
    async with rest.serving() as (node, server), rest.serving() as (other, at_other):
        await parts_of(node).host.connect(other.addresses[0])
        await until(lambda: parts_of(node).relay.mesh_of(rest.shard) and parts_of(other).relay.mesh_of(rest.shard))
        await rest.publish(server, payload="A" * 4_000)
        await until(lambda: parts_of(other).distribution.statistics().messages)
        for at, direction in ((server, "Out"), (at_other, "In")):
            numbers = await samples(rest, at)
            for name in ("peers", "pubsub_peers", "pubsub_topics", "pubsub_subscriptions_total"):
                assert numbers[f"libp2p_{name}",] == 1
            assert numbers["libp2p_gossipsub_peers_per_topic_mesh", "other"] == 1
            assert numbers["libp2p_network_bytes_total", "in"] > 0
            for prefix in ("waku", "logos_delivery"):
                assert numbers[f"{prefix}_node_messages_total", "relay"] == 1
                assert numbers[f"{prefix}_histogram_message_size_sum",] == 3
                assert numbers[f"{prefix}_histogram_message_size_bucket", "1.0"] == 0
                assert numbers[f"{prefix}_histogram_message_size_bucket", "3.0"] == 1
                assert numbers[f"{prefix}_connected_peers", "/vac/waku/store-query/3.0.0", direction] == 1
                assert numbers[f"{prefix}_store_peers",] == numbers[f"{prefix}_peer_store_size",] == 1
        numbers = await samples(rest, server)
        assert (numbers["libp2p_total_dial_attempts_total",], numbers["libp2p_failed_dials_total",]) == (1, 0)
        assert numbers["libp2p_network_bytes_total", "out"] > 3_000
        nobody = "/ip4/127.0.0.1/tcp/1/p2p/16Uiu2HAm6HZZr7aToTvEBPpiys4UxajCTU97zj5v7RNR2gbniy1D"
        assert (await rest.call(server, "POST", "/admin/v1/peers", [nobody])).status == 400
        sent = numbers["libp2p_network_bytes_total", "out"]
        await parts_of(node).host.disconnect(other.peer_id)
        await until(lambda: not parts_of(node).host.connections())
        numbers = await samples(rest, server)
        assert (numbers["libp2p_peers",], numbers["libp2p_failed_dials_total",]) == (0, 1)
        assert numbers["libp2p_network_bytes_total", "out"] >= sent  # also of connections that have ended


async def test_shards_that_are_served_for_a_time_have_numbers_for_that_time(rest):
    async with rest.serving() as (_, server):
        further = "/waku/2/rs/16/1000"
        await rest.call(server, "POST", "/relay/v1/subscriptions", [further])
        assert ("fairway_relay_shard_peers", further) in await samples(rest, server)
        await rest.call(server, "DELETE", "/relay/v1/subscriptions", [further])
        numbers = await samples(rest, server)
        assert ("fairway_relay_shard_peers", further) not in numbers
        assert numbers["libp2p_pubsub_subscriptions_total",] == 2
        assert numbers["libp2p_pubsub_unsubscriptions_total",] == 1
