"""``/store/v3/messages``: pages, ranges, hashes, and other nodes' stores."""

from __future__ import annotations

import asyncio
from urllib.parse import quote, urlencode

from fairway.libp2p.host import Host
from fairway.nodes.node import StoreQuery
from fairway.nodes.rest import RestStoreClient
from fairway.service.node import parts_of
from fairway.wire.store import STORE_QUERY_PROTOCOL
from patience import until


async def page(rest, server, **parameters):
    answer = await rest.call(server, "GET", f"/store/v3/messages?{urlencode(parameters)}")
    assert answer.status == 200, answer.text
    return answer.json


def times(found):
    return [entry["message"]["timestamp"] for entry in found["messages"]]


async def test_pages_lead_through_everything_in_both_directions(rest):
    async with rest.serving() as (_, server):
        for number in range(1, 46):
            await rest.publish(server, timestamp=number)
        pages = {"true": [(1, 20), (21, 40), (41, 45)], "false": [(26, 45), (6, 25), (1, 5)]}
        for ascending, expected in pages.items():
            cursor, got = "", []
            while True:
                more = {"cursor": cursor} if cursor else {}
                found = await page(rest, server, includeData="true", ascending=ascending, **more)
                got.append((times(found)[0], times(found)[-1]))
                assert times(found) == sorted(times(found))
                cursor = found.get("paginationCursor")
                if cursor is None:
                    break
            assert got == expected


async def test_both_ends_of_a_time_range_belong_to_it_and_times_that_are_not_positive_are_no_bound(rest):
    async with rest.serving() as (_, server):
        for number in range(1, 11):
            await rest.publish(server, timestamp=number)
        found = await page(rest, server, includeData="yes", startTime=3, endTime=5)
        assert times(found) == [3, 4, 5]
        found = await page(rest, server, includeData="1", startTime=-1, endTime=0, pageSize=-1)
        assert times(found) == list(range(1, 11))
        found = await page(rest, server, includeData="on", pageSize=3, contentTopics=f"{rest.topic},/a/1/b/c")
        assert times(found) == [1, 2, 3]
        assert (await page(rest, server, contentTopics="/a/1/b/c"))["messages"] == []
        assert (await page(rest, server, pubsubTopic="/waku/2/rs/16/9"))["messages"] == []


async def test_without_data_there_are_hashes_and_by_hash_there_are_messages(rest):
    async with rest.serving() as (_, server):
        for number in range(1, 4):
            await rest.publish(server, timestamp=number)
        hashes = [entry["messageHash"] for entry in (await page(rest, server))["messages"]]
        assert all(set(entry) == {"messageHash"} for entry in (await page(rest, server))["messages"])
        found = await page(rest, server, includeData="true", hashes=f"{hashes[2]},{hashes[0]}")
        assert times(found) == [1, 3]


async def test_an_unknown_cursor_is_a_bad_request_and_a_range_that_ends_before_it_begins_is_empty(rest):
    async with rest.serving() as (_, server):
        await rest.publish(server, timestamp=3)
        answer = await rest.call(server, "GET", f"/store/v3/messages?cursor=0x{'ab' * 32}")
        assert answer.status == 400
        assert answer.text
        assert (await page(rest, server, startTime=5, endTime=2))["messages"] == []


async def test_a_node_without_an_archive_asks_its_store_peers_until_one_answers(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.store_peers.PEER_TIMEOUT_S", 0.5)

    async def silent(_):
        await asyncio.Event().wait()

    async with (
        rest.serving() as (keeper, server),
        await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as stalling,
        rest.serving(archive=None) as (node, forgetful),
        rest.serving(archive=None) as (peer, _),
    ):
        await rest.publish(server, timestamp=7)
        stalling.handle(STORE_QUERY_PROTOCOL, silent)
        for other in (stalling, parts_of(peer).host, parts_of(keeper).host):
            await parts_of(node).host.connect(other.addresses[0])
            await until(lambda other=other: parts_of(node).host.info_of(other.peer_id))
        assert times(await page(rest, forgetful, includeData="true")) == [7]
        await parts_of(node).host.disconnect(keeper.peer_id)
        answer = await rest.call(forgetful, "GET", "/store/v3/messages")
        assert (answer.status, answer.text) == (500, "No history response received (timeout)")


async def test_a_node_without_an_archive_answers_412_and_queries_the_named_node(rest):
    async with rest.serving() as (keeper, server), rest.serving(archive=None) as (_, forgetful):
        await rest.publish(server, timestamp=7)
        answer = await rest.call(forgetful, "GET", "/store/v3/messages")
        assert (answer.status, answer.text) == (412, "No suitable service peer & no discovery method")
        named = str(keeper.addresses[0])
        assert times(await page(rest, forgetful, includeData="true", peerAddr=named)) == [7]
        assert times(await page(rest, server, includeData="true", peerAddr=named)) == [7]
        for address in ("/ip4/127.0.0.1/tcp/60000", "nowhere"):
            answer = await rest.call(forgetful, "GET", f"/store/v3/messages?peerAddr={quote(address, safe='')}")
            assert answer.status == 400
            assert answer.text.startswith("Failed parsing remote peer info: ")
        gone = named.replace(str(keeper.addresses[0].port), "1")
        gone = gone.replace(str(keeper.peer_id), "16Uiu2HAm6HZZr7aToTvEBPpiys4UxajCTU97zj5v7RNR2gbniy1D")
        answer = await rest.call(forgetful, "GET", f"/store/v3/messages?peerAddr={quote(gone, safe='')}")
        assert answer.status == 500
        assert answer.text.startswith("Error occurred in queryFut.read() [")


async def test_the_client_of_the_pipeline_reads_our_store(rest):
    async with rest.serving(archive="memory:") as (_, server):
        for number in range(1, 151):
            await rest.publish(server, timestamp=number)

        def read():
            with RestStoreClient(server.url) as client:
                pages = client.pages(StoreQuery(content_topics=(rest.topic,)))
                return [entry for one in pages for entry in one.entries]

        entries = await asyncio.to_thread(read)
        assert [entry.message.timestamp_ns for entry in entries] == list(range(1, 151))
