"""Answers of the REST API of a live nwaku v0.38.1, read by the client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairway.errors import StoreQueryError
from fairway.nodes.node import NodeHealth, RoutedMessage, StoreQuery
from fairway.nodes.rest.node import status_of
from fairway.nodes.rest.store_messages import store_hashes

RECORDED = json.loads((Path(__file__).parents[2] / "vectors/nwaku/rest.json").read_bytes())
SHARD = "/waku/2/rs/16/0"
QUERY = StoreQuery(pubsub_topic=SHARD)


@pytest.mark.parametrize(
    ("name", "health"),
    [
        ("health with a relay peer", NodeHealth.SUFFICIENTLY_HEALTHY),
        ("health alone", NodeHealth.UNHEALTHY),
    ],
)
def test_the_health_of_nwaku_is_read(name, health):
    status, body = RECORDED[name]
    read = status_of(status, body.encode())
    assert (read.health, read.store) == (health, True)


def test_a_page_of_nwaku_has_the_message_whose_hash_it_names(rest):
    async def work():
        said = {"name": "page with data"}

        def script(_, path, __):
            status, body = RECORDED["health with a relay peer"] if path == "/health" else RECORDED[said["name"]]
            return status, json.loads(body)

        async with rest.scripted(script) as server, await rest.client(server.url) as client:
            page = await client.query(QUERY)
            said["name"] = "empty page"
            assert (await client.query(QUERY)).messages == ()
            return page

    page = rest.run(work())
    (message,) = page.messages
    assert (message.pubsub_topic, message.message.payload) == (SHARD, b"hi")
    assert message.message_hash == RoutedMessage.of(SHARD, message.message).message_hash
    assert store_hashes(RECORDED["page without data"][1].encode()) == ((message.message_hash,), None)
    assert page.cursor is None


@pytest.mark.parametrize("name", ["refused hash", "refused cursor"])
def test_a_refusal_of_nwaku_is_an_error_with_its_words(rest, name):
    async def work():
        def script(_, path, __):
            status, body = RECORDED["health with a relay peer"] if path == "/health" else RECORDED[name]
            return status, json.loads(body) if body.startswith("{") else body

        async with rest.scripted(script) as server, await rest.client(server.url) as client:
            with pytest.raises(StoreQueryError, match="400: waku message hash parsing error"):
                await client.query(QUERY)

    rest.run(work())
