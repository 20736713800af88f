"""Requests that ask for too much, come too slowly, or come from a web page that has no business here."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import quote

import pytest

from fairway.errors import StoreQueryError
from fairway.nodes.protocols.request_limiter import RequestRate
from fairway.service.node import parts_of
from fairway.service.rest import RestOptions
from fairway.service.rest.app import make_app
from fairway.service.rest.context import RestContext
from fairway.service.rest.protocol import BoundedProtocol
from patience import PATIENCE_S, until


async def raw(server, data, *, pause=None):
    """Send bytes, and return what comes back until the server ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(data)
        await writer.drain()
        if pause is not None:
            await pause
        return await asyncio.wait_for(reader.read(), PATIENCE_S)
    except ConnectionResetError:
        return b"reset"
    finally:
        writer.close()


def status_line(answer):
    return answer.partition(b"\r\n")[0]


async def test_a_body_that_is_too_long_is_refused_announced_or_not(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.context.MAX_BODY_BYTES", 1_000)
    async with rest.serving() as (_, server):
        answer = await rest.call(server, "POST", "/relay/v1/auto/subscriptions", b"[" + b" " * 2_000 + b"]")
        assert (answer.status, answer.text) == (413, "the body of a request has at most 1000 bytes")
        chunk = b"400\r\n" + b" " * 1_024 + b"\r\n"
        head = (
            b"POST /lightpush/v3/message HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        answer = await raw(server, head + chunk * 4)
        assert status_line(answer).startswith(b"HTTP/1.1 413 ")
        assert (await rest.call(server, "GET", "/version")).status == 200


async def test_heads_that_are_too_long_or_no_http_are_refused(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.http_server.MAX_HEADER_BYTES", 2_000)
    async with rest.serving() as (_, server):
        for nonsense, status in (
            (b"GET / HTTP/1.1\r\nX: " + b"x" * 4_000, b"431"),
            (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
        ):
            assert status_line(await raw(server, nonsense)).split()[1] == status
        assert (await rest.call(server, "GET", "/version")).status == 200


@pytest.mark.parametrize(
    "beginning", [b"", b"GET /version HTT", b"POST /admin/v1/peers HTTP/1.1\r\nHost: localhost\r\n"]
)
async def test_an_incomplete_request_ends_the_connection(rest, beginning, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.protocol.REQUEST_TIMEOUT_S", 0.2)
    async with rest.serving() as (_, server):
        assert await raw(server, beginning) in {b"", b"reset"}


async def test_an_incomplete_body_is_answered_with_408(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.context.BODY_TIMEOUT_S", 0.2)
    head = b"POST /relay/v1/subscriptions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n["
    async with rest.serving() as (_, server):
        answer = await raw(server, head)
        assert status_line(answer) == b"HTTP/1.1 408 Request Timeout"
        assert answer.endswith(b"the body of the request did not arrive within 0.2 s")


async def test_small_answers_do_not_wait_for_an_acknowledgement(rest, monkeypatch):
    accept, sockets = BoundedProtocol.connection_made, []

    def noted(protocol, transport):
        sockets.append(transport.get_extra_info("socket"))
        accept(protocol, transport)

    monkeypatch.setattr(BoundedProtocol, "connection_made", noted)
    async with rest.serving() as (_, server):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await until(lambda: server.connections)
        (accepted,) = sockets
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()


async def test_requests_beyond_the_limit_get_503(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.app.MAX_REQUESTS", 2)
    async with rest.serving() as (node, server):
        begun, go_on = asyncio.Semaphore(0), asyncio.Event()

        async def stuck(*_, **__):
            begun.release()
            await go_on.wait()
            raise StoreQueryError("not now")

        monkeypatch.setattr(parts_of(node).store, "query", stuck)
        asked = [asyncio.create_task(rest.call(server, "GET", "/store/v3/messages")) for _ in range(2)]
        for _ in asked:
            await begun.acquire()
        answer = await rest.call(server, "GET", "/version")
        assert (answer.status, answer.text) == (503, "too many requests at once; try again")
        go_on.set()
        await asyncio.gather(*asked)
        assert (await rest.call(server, "GET", "/version")).status == 200


async def test_an_answer_that_is_left_unread_ends_the_connection(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.protocol.STALL_S", 0.3)
    async with rest.serving() as (_, server):
        payload = "A" * 100_000
        for number in range(40):
            await rest.publish(server, payload, timestamp=number + 1)
        request = b"GET /store/v3/messages?includeData=true&pageSize=100 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        stuck = [await asyncio.open_connection("127.0.0.1", server.port, limit=1_024) for _ in range(5)]
        for _, writer in stuck:
            for _ in range(4):  # more than the buffers of the system hold
                writer.write(request)
        await until(lambda: not server.context.under_way and not server.connections)
        assert (await rest.call(server, "GET", "/version")).status == 200
        for _, writer in stuck:
            writer.close()


@pytest.mark.parametrize(
    ("origin", "host", "allowed", "status"),
    [
        ("https://evil.example", None, (), 403),
        ("null", None, (), 403),
        ("https://app.example", None, ("https://app.example",), 200),
        ("https://evil.example", None, ("https://app.example",), 403),
        ("https://anything.example", None, ("*",), 200),
        ("http://rebound.example:1", "rebound.example:1", (), 403),
        ("http://localhost:1", "localhost:1", (), 200),
        ("http://127.0.0.1:1", "127.0.0.1:1", (), 200),
    ],
)
async def test_web_pages_of_others_are_turned_away(rest, origin, host, allowed, status):
    async with rest.serving(RestOptions(allowed_origins=allowed)) as (_, server):
        headers = {"Origin": origin, **({"Host": host} if host else {})}
        answer = await rest.call(server, "GET", "/version", **headers)
        assert answer.status == status
        if status == 403:
            assert answer.text == "Origin not allowed"
        elif allowed:
            assert answer.headers["access-control-allow-origin"] in {origin, "*"}


@pytest.mark.parametrize(("host", "status"), [("192.0.2.1", 200), ("127.0.0.1", 403), ("::1", 403)])
async def test_a_node_that_listens_to_others_is_called_by_any_name(rest, host, status):
    async with rest.serving() as (node, _):
        app = make_app(RestContext(node, RestOptions(host=host)))  # which listens nowhere
        sent = []

        async def send(message):
            sent.append(message)

        headers = [(b"host", b"waku.example:8645")]
        scope = {"type": "http", "method": "GET", "path": "/version", "query_string": b"", "headers": headers}
        await app(scope, asyncio.Event().wait, send)
        assert sent[0]["status"] == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "127.0.0.1:8645"}, 200),
        ({"Host": "localhost:8645"}, 200),
        ({"Host": "[::1]:8645"}, 200),
        ({"Host": "evil.example:8645"}, 403),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
    ids=lambda value: "-".join(*value.items()) if isinstance(value, dict) else str(value),
)
async def test_web_pages_of_others_cannot_remove_messages_without_an_origin(rest, headers, status):
    async with rest.serving() as (_, server):
        await rest.publish(server)
        path = f"/relay/v1/messages/{quote(rest.shard, safe='')}"
        answer = await rest.call(server, "GET", path, **headers)
        assert answer.status == status
        if status == 403:
            assert len((await rest.call(server, "GET", path)).json) == 1


async def test_the_node_limits_pushes_and_queries_of_one_client(rest):
    from fairway.nodes.protocols.request_limiter import RequestRate

    async with rest.serving(request_rate=RequestRate(per_second=0.001, burst=2)) as (_, server):
        message = {"message": {"payload": "aGFsbG8=", "contentTopic": rest.topic}}
        pushed = [await rest.call(server, "POST", "/lightpush/v3/message", message) for _ in range(3)]
        assert [answer.status for answer in pushed] == [200, 200, 429]
        assert pushed[2].json == {"statusDesc": "Request rejected due to too many requests"}
        asked = [await rest.call(server, "GET", "/store/v3/messages") for _ in range(3)]
        assert [(answer.status, answer.text) for answer in asked[2:]] == [(429, "Request rate limit reached")]


async def test_a_network_with_clocks_refuses_messages_that_are_off(rest):
    changes = {"cluster_id": 1, "shards": tuple(range(8)), "shard_count": 8}
    async with rest.serving(**changes) as (_, server):
        message = {"payload": "aGFsbG8=", "contentTopic": rest.topic, "timestamp": 1_700_000_000_000_000_000}
        pushed = await rest.call(server, "POST", "/lightpush/v3/message", {"message": message})
        assert pushed.status == 420
        assert "check the clock" in pushed.json["statusDesc"]
        relayed = await rest.call(server, "POST", "/relay/v1/auto/messages", message)
        assert relayed.status == 400
        assert relayed.text.startswith("Failed to publish: the timestamp is ")


def filter_request(topics):
    return {"requestId": "1", "contentFilters": topics, "pubsubTopic": "/waku/2/rs/16/0"}


async def test_filter_requests_of_rest_clients_have_the_rate_of_one_peer(rest):
    async with rest.serving(request_rate=RequestRate(per_second=0.001, burst=3)) as (_, server):
        subscribe = ("POST", "/filter/v2/subscriptions", filter_request(["a"]))
        ping = ("GET", "/filter/v2/subscriptions/1")
        answers = [await rest.call(server, *asked) for asked in (subscribe, ping, subscribe, subscribe, ping)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
        assert answers[-1].json["statusDesc"].startswith("TOO_MANY_REQUESTS: ")
        # Fetching is no request of filter.
        assert (await rest.call(server, "GET", "/filter/v2/messages/a")).status == 200


async def test_content_topics_to_subscribe_to_are_bounded(rest):
    async with rest.serving() as (_, server):
        for topic, status in (("é" * 512, 200), ("é" * 513, 400)):
            answer = await rest.call(server, "POST", "/filter/v2/subscriptions", filter_request([topic]))
            assert answer.status == status
            topics = [f"/a/1/{topic}/proto"]
            assert (await rest.call(server, "POST", "/relay/v1/auto/subscriptions", topics)).status == 400
