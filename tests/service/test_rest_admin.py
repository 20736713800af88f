"""``/admin/v1``: peers by service and by shard, filter subscriptions, and the log level."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager

import pytest

from fairway.libp2p.host import Host
from fairway.service.node import parts_of
from fairway.service.rest import RestOptions
from fairway.service.rest.openapi import CALLS
from fairway.wire.filter import FilterSubscribeRequest, FilterSubscribeType
from patience import until

FIELDS = {"multiaddr": str, "protocols": list, "shards": list, "connected": str, "agent": str, "origin": str}
ADMIN = [(call.verb, call.path) for call in CALLS if call.tag == "admin"]
TOKEN, ADMIN_TOKEN = "general-0123456789abcdef", "admin-0123456789abcdef=="
UNKNOWN = "16Uiu2HAm6HZZr7aToTvEBPpiys4UxajCTU97zj5v7RNR2gbniy1D"


@asynccontextmanager
async def three_peers(rest):
    """A node of shards 0 and 1 with its API, a relay peer of shard 0 without an archive, and a host without Waku."""
    async with (
        rest.serving(shards=(0, 1), shard_count=2) as (node, server),
        rest.serving(shards=(0,), shard_count=2, archive=None) as (relay, _),
        await Host.start(agent="a bare host") as bare,
    ):
        await parts_of(node).host.connect(relay.addresses[0])
        await bare.connect(node.addresses[0])
        hosts = (parts_of(relay).host, bare)
        await until(
            lambda: (
                all(parts_of(node).host.info_of(host.peer_id) for host in hosts)
                and parts_of(node).relay.peers_of(rest.shard)
            )
        )
        yield node, server, relay, bare


async def listed(rest, server, path):
    answer = await rest.call(server, "GET", f"/admin/v1/{path}")
    assert answer.status == 200, answer.text
    return answer.json


def ids(peers):
    return {peer["multiaddr"].rpartition("/p2p/")[2] for peer in peers}


async def test_each_list_has_the_peers_that_it_names_in_nwakus_shape(rest):
    async with three_peers(rest) as (_, server, relay, bare):
        relaying, other = str(relay.peer_id), str(bare.peer_id)
        for path, expected in (
            ("peers", {relaying, other}),
            ("peers/connected", {relaying, other}),
            ("peers/service", {relaying}),
            ("peers/connected/on/0", {relaying}),
            ("peers/connected/on/1", set()),
            ("peers/connected/on/99", set()),
        ):
            peers = await listed(rest, server, path)
            assert ids(peers) == expected, path
            for peer in peers:
                assert {name: type(value) for name, value in peer.items()} == FIELDS
        (service,) = await listed(rest, server, "peers/service")
        assert "/vac/waku/relay/2.0.0" in service["protocols"]
        assert not [name for name in service["protocols"] if not name.startswith("/vac/waku/")]
        assert "/vac/waku/store-query/3.0.0" not in service["protocols"]


async def test_relay_peers_and_meshes_are_listed_by_shard_with_scores(rest):
    async with three_peers(rest) as (node, server, relay, _):
        await until(lambda: parts_of(node).relay.mesh_of(rest.shard))
        for kind in ("relay", "mesh"):
            first, second = await listed(rest, server, f"peers/{kind}")
            assert (first["shard"], ids(first["peers"]), second) == (
                0,
                {str(relay.peer_id)},
                {"shard": 1, "peers": []},
            )
            (peer,) = first["peers"]
            assert {name: type(value) for name, value in peer.items()} == FIELDS | {"score": float}
            assert peer["shards"] == [0]
            assert ids((await listed(rest, server, f"peers/{kind}/on/0"))["peers"]) == {str(relay.peer_id)}
            for shard in (1, 1_023, 1_024, 65_535):
                assert await listed(rest, server, f"peers/{kind}/on/{shard}") == {"shard": shard, "peers": []}


@pytest.mark.parametrize("shard", ["x", "-1", "1.5", "65536", "99999999999999999999", "%D9%A3"])
async def test_a_shard_that_is_no_number_of_16_bits_is_a_bad_request(rest, shard):
    async with rest.serving() as (_, server):
        for kind in ("connected", "relay", "mesh"):
            answer = await rest.call(server, "GET", f"/admin/v1/peers/{kind}/on/{shard}")
            assert (answer.status, answer.text[:17]) == (400, "Invalid shardId: ")


async def test_peers_are_counted_by_shard_and_by_protocol(rest):
    async with three_peers(rest) as (node, server, *_):
        await until(lambda: parts_of(node).relay.mesh_of(rest.shard))
        counts = await listed(rest, server, "peers/stats")
        assert counts["Sum"] == {"Total peers": 2}
        connectedness = {"Connected": 2, "NotConnected": 0, "CannotConnect": 0, "CanConnect": 0}
        assert counts["By Connectedness"] == connectedness
        assert counts["Relay peers"] == {"0": 1, "1": 0, "Total relay peers": 1}
        assert counts["Mesh peers"] == {"0": 1, "1": 0, "Total mesh peers": 1}
        by_protocol = counts["By Protocols"]
        assert (by_protocol["/vac/waku/relay/2.0.0"], by_protocol["/vac/waku/store-query/3.0.0"]) == (1, 0)


async def test_one_peer_is_shown_while_it_is_connected(rest):
    async with three_peers(rest) as (_, server, relay, bare):
        shown = await listed(rest, server, f"peer/{relay.peer_id}")
        assert (ids([shown]), shown["shards"], shown["agent"]) == ({str(relay.peer_id)}, [0], "fairway")
        await bare.close()
        for peer, status in ((bare.peer_id, 404), (UNKNOWN, 404), ("bad+peer+id", 400)):

            async def answered(peer=peer):
                return await rest.call(server, "GET", f"/admin/v1/peer/{peer}")

            assert (await answered()).status == status


async def test_filter_subscriptions_of_peers_are_listed(rest):
    def subscribe(node, peer, topics):
        asked = FilterSubscribeRequest(
            request_id="1",
            filter_subscribe_type=FilterSubscribeType.SUBSCRIBE,
            pubsub_topic=rest.shard,
            content_topics=topics,
        )
        assert parts_of(node).filters.handle(peer, asked, 0.0).status_code == 200

    async with rest.serving() as (node, server):
        assert await listed(rest, server, "filter/subscriptions") == []
        subscribe(node, "left", ("a", "b"))
        subscribe(node, "right", ("b",))
        found = await listed(rest, server, "filter/subscriptions")
        assert found == [
            {
                "peerId": peer,
                "filterCriteria": [{"pubsubTopic": rest.shard, "contentTopic": topic} for topic in topics],
            }
            for peer, topics in (("left", "ab"), ("right", "b"))
        ]
        # The longest list is sent piece by piece.
        for number in range(100):
            subscribe(node, f"peer {number}", tuple(f"{topic:0>1000}" for topic in range(100)))
        assert len(await listed(rest, server, "filter/subscriptions")) == 102


@pytest.mark.parametrize(
    ("name", "level"),
    [("TRACE", 5), ("debug", 10), ("Info", 20), ("NOTICE", 25), ("WARN", 30), ("ERROR", 40), ("FATAL", 50)],
)
def test_the_log_level_selects_the_records_of_the_node(rest, name, level):
    logger = logging.getLogger("fairway")
    before = logger.level

    async def work():
        async with rest.serving() as (_, server):
            answer = await rest.call(server, "POST", f"/admin/v1/log-level/{name}")
            assert (answer.status, answer.text) == (200, "OK")
            below = logging.getLogger("fairway.service.node")
            assert (below.isEnabledFor(level), below.isEnabledFor(level - 1)) == (True, False)
            answer = await rest.call(server, "POST", "/admin/v1/log-level/LOUD")
            assert (answer.status, logger.level) == (400, level)
            assert answer.text.startswith("Invalid log-level: LOUD. Please specify one of TRACE, ")

    try:
        rest.run(work())
    finally:
        logger.setLevel(before)


@pytest.mark.parametrize(("given", "status"), [(None, 401), (TOKEN, 403)])
async def test_every_call_under_admin_needs_the_admin_token(rest, given, status):
    async with rest.serving(RestOptions(token=TOKEN, admin_token=ADMIN_TOKEN)) as (_, server):
        headers = {} if given is None else {"authorization": f"Bearer {given}"}
        level = logging.getLogger("fairway").level
        for verb, path in ADMIN:
            called = path.replace("{shardId}", "0").replace("{peerId}", UNKNOWN).replace("{logLevel}", "FATAL")
            assert (await rest.call(server, verb, called, **headers)).status == status, path
        assert logging.getLogger("fairway").level == level
    assert len(ADMIN) == 13
