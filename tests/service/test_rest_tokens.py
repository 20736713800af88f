"""Bearer tokens of the REST API: who gets in, what others are told, and that no token shows anywhere."""

from __future__ import annotations

import logging

import pytest

import fairway
from fairway.errors import ConfigurationError, NodeUnavailableError
from fairway.nodes.rest import RestNode, RestNodeOptions, RestStoreClient
from fairway.service.rest import RestOptions
from patience import PATIENCE_S

TOKEN, ADMIN = "general-0123456789abcdef", "admin-0123456789abcdef=="
BOTH = RestOptions(token=TOKEN, admin_token=ADMIN)
GENERAL = ("/health", "/info", "/metrics", "/store/v3/messages", "/version")
OPEN = ("/docs", "/openapi.json")
PEERS = "/admin/v1/peers"


def bearer(token):
    return {"authorization": f"Bearer {token}"}


async def statuses(rest, server, paths, **headers):
    return {path: (await rest.call(server, "GET", path, **headers)).status for path in paths}


@pytest.mark.parametrize(
    ("options", "given", "general", "admin"),
    [
        (RestOptions(), None, 200, 200),
        (BOTH, None, 401, 401),
        (BOTH, TOKEN, 200, 403),
        (BOTH, ADMIN, 200, 200),
        (BOTH, TOKEN + "0", 401, 401),
        (RestOptions(token=TOKEN), None, 401, 404),
        (RestOptions(token=TOKEN), TOKEN, 200, 404),
        (RestOptions(admin_token=ADMIN), None, 200, 401),
        (RestOptions(admin_token=ADMIN), ADMIN, 200, 200),
        (RestOptions(admin_token=ADMIN), TOKEN, 200, 401),
    ],
)
async def test_each_call_needs_its_token(rest, options, given, general, admin):
    headers = {} if given is None else bearer(given)
    async with rest.serving(options) as (_, server):
        assert await statuses(rest, server, GENERAL, **headers) == dict.fromkeys(GENERAL, general)
        assert await statuses(rest, server, OPEN, **headers) == dict.fromkeys(OPEN, 200)
        assert (await rest.call(server, "GET", PEERS, **headers)).status == admin
        posted = await rest.call(server, "POST", PEERS, [], **headers)
        assert posted.status == admin


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": TOKEN},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN} {TOKEN}"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Bearer {TOKEN.upper()}"},
        {"authorization": f"Bearer {'é' * 20}"},
        {"authorization": "Bearer " + "0" * 60_000},
    ],
)
async def test_a_wrong_token_gets_401_and_the_words_of_rfc_6750(rest, headers):
    async with rest.serving(BOTH) as (_, server):
        answer = await rest.call(server, "GET", "/info", **headers)
        assert answer.status == 401
        challenge = answer.headers["www-authenticate"]
        assert challenge.startswith('Bearer realm="fairway"')
        was_sent = bool(headers.get("authorization", "").partition("Bearer ")[2])
        assert ("invalid_token" in challenge) == was_sent
        assert TOKEN not in answer.text + challenge
        # It is counted, and the next one with the token gets in.
        metrics = await rest.call(server, "GET", "/metrics", **bearer(TOKEN))
        assert 'fairway_rest_requests_total{operation="node_info",status="401"} 1.0' in metrics.text


async def test_the_general_token_gets_403_at_admin(rest):
    async with rest.serving(BOTH) as (_, server):
        answer = await rest.call(server, "GET", PEERS, **bearer(TOKEN))
        assert answer.status == 403
        assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


async def test_no_token_shows_in_logs_or_options(rest, caplog):
    with caplog.at_level(logging.DEBUG):
        async with rest.serving(BOTH) as (_, server):
            await rest.call(server, "GET", "/info", **bearer(TOKEN))
            await rest.call(server, "GET", "/info", **bearer(ADMIN[:-3]))
            options = RestNodeOptions(token=TOKEN)
            async with await RestNode.start(server.url, options) as client:
                assert client.status.connected
            shown = [repr(BOTH), repr(options), repr(client), repr(client.address), caplog.text]
    assert not [text for text in shown if "0123456789abcdef" in text]


async def test_a_channel_uses_an_api_with_a_token(rest, tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    async with rest.serving(BOTH) as (_, server):
        options = fairway.ReliableChannelOptions(cluster_id=16, shard_count=1)
        async with (
            await RestNode.start(server.url, RestNodeOptions(token=TOKEN)) as one,
            await fairway.connect(f"{server.url}?tokenFile={file}") as other,
            fairway.create_reliable_channel(one, "team", "alice", rest.topic, options=options) as alice,
            fairway.create_reliable_channel(other, "team", "bob", rest.topic, options=options) as bob,
        ):
            await alice.send(b"through the door")
            async for message in bob:
                assert bytes(message) == b"through the door"
                break


async def test_a_store_is_read_with_the_token_in_a_file(rest, tmp_path):
    import asyncio

    from fairway.nodes.node import StoreQuery

    file = tmp_path / "token"
    file.write_text(TOKEN)
    async with rest.serving(BOTH) as (_, server):

        def read():
            with RestStoreClient(f"{server.url}?tokenFile={file}") as client:
                return client.page(StoreQuery())

        assert (await asyncio.to_thread(read)).entries == ()


@pytest.mark.parametrize("token", [None, "wrong-0123456789abcdef"])
async def test_a_client_without_the_right_token_gets_an_error_at_once(rest, token):
    async with rest.serving(BOTH) as (_, server):
        with pytest.raises(NodeUnavailableError, match=r"\(401 .*if it wants a token, give RestNodeOptions") as caught:
            await RestNode.start(server.url, RestNodeOptions(token=token), connect_timeout_s=PATIENCE_S)
        assert "0123456789abcdef" not in str(caught.value)


def test_tokens_that_cannot_work_are_refused():
    with pytest.raises(ConfigurationError, match="only one opens /admin"):
        RestOptions(token=TOKEN, admin_token=TOKEN)
    with pytest.raises(ConfigurationError, match="admin_token has 5 characters"):
        RestOptions(admin_token="short")
    with pytest.raises(ConfigurationError, match="token has 5 characters"):
        RestNodeOptions(token="short")
