"""HTTP to one server: connections that are used again, broken ones, and the bounds."""

from __future__ import annotations

import asyncio

import pytest

from certificates import Authority
from fairway.errors import NodeUnavailableError
from fairway.nodes.rest import http_client
from fairway.nodes.rest.address import RestAddress
from fairway.nodes.rest.http_client import HttpClient
from patience import PATIENCE_S


def client_of(url, **changes):
    return HttpClient(RestAddress.parse(url), **{"timeout_s": PATIENCE_S, **changes})


def echo(method, path, body):
    return 200, {"method": method, "path": path, "body": body.decode()}


def test_requests_share_connections_and_carry_path_credentials_and_body(rest, monkeypatch):
    monkeypatch.setattr(http_client, "MAX_CONNECTIONS", 2)

    async def work():
        async with rest.scripted(echo) as server:
            client = client_of(server.url.replace("//", "//me:se%20cret@") + "/waku/")
            for number in range(5):
                reply = await client.request("POST", "/x?y=1", b"%d" % number)
                assert b'"path": "/waku/x?y=1"' in reply.body
                assert b'"body": "%d"' % number in reply.body
            assert len(server.writers) == 1
            assert {headers["authorization"] for headers in server.headers} == {"Basic bWU6c2UgY3JldA=="}
            assert "cret" not in repr(client.address)
            await asyncio.gather(*(client.request("GET", "/") for _ in range(10)))
            assert len(server.writers) == 2
            await client.close()
            with pytest.raises(NodeUnavailableError, match="closed"):
                await client.request("GET", "/")

    rest.run(work())


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(rest):
    async def work():
        async with rest.scripted(echo) as server:
            client = client_of(server.url)
            await client.request("GET", "/1")
            for writer in list(server.writers):
                writer.close()
            await rest.until(lambda: not server.writers)
            assert (await client.request("GET", "/2")).status == 200
            await client.close()

    rest.run(work())


def test_an_answer_that_is_too_long_or_does_not_come_is_an_error(rest, monkeypatch):
    monkeypatch.setattr(http_client, "MAX_BODY_BYTES", 1_000)

    async def silence(*_):
        await asyncio.Event().wait()

    async def work():
        async with rest.scripted(lambda *_: (200, "x" * 2_000)) as server:
            client = client_of(server.url)
            with pytest.raises(NodeUnavailableError, match="more than 1000 bytes"):
                await client.request("GET", "/")
            await client.close()
        async with rest.scripted(lambda *_: silence()) as server:
            client = client_of(server.url, timeout_s=0.1)
            for ask in (client.request("GET", "/"), client.stream("/")):
                with pytest.raises(NodeUnavailableError, match=r"no answer within 0\.1 s"):
                    await ask
            await client.close()

    rest.run(work())


def test_a_stream_gives_what_comes_when_it_comes_and_ends_when_nothing_does(rest):
    async def work():
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        async with rest.scripted(lambda *_: head + b"3\r\none\r\n3\r\ntwo\r\n") as server:
            client = client_of(server.url)
            async with await client.stream("/", {"X-Mine": "yes"}) as stream:
                assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
                got = b""
                while len(got) < 6:
                    got += await stream.read(PATIENCE_S)
                assert got == b"onetwo"
                with pytest.raises(NodeUnavailableError, match=r"no answer within 0\.05 s"):
                    await stream.read(0.05)
            assert server.headers[0]["x-mine"] == "yes"
            await client.close()

    rest.run(work())


def test_https_is_spoken_and_a_server_that_does_not_is_an_error(rest):
    async def work():
        async with rest.scripted(echo) as server:
            client = client_of(server.url.replace("http:", "https:"))
            with pytest.raises(NodeUnavailableError, match=r"https://127.*Error"):
                await client.request("GET", "/")
            await client.close()

    rest.run(work())


@pytest.mark.parametrize("named", [True, False])
def test_https_with_a_certificate_that_is_trusted_works(rest, tmp_path, monkeypatch, named):
    import ssl

    authority = Authority(tmp_path)
    issued = authority.issue()
    if not named:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))

    async def work():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.certificate, issued.key)

        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")
            await writer.drain()
            writer.close()

        listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        client = client_of(url, tls_ca_file=authority.file if named else None)
        assert (await client.request("GET", "/")).body == b"secret"
        await client.close()
        listening.close()
        await listening.wait_closed()

    rest.run(work())


def test_a_request_that_the_server_does_not_read_ends_in_time_and_frees_its_place(rest, monkeypatch):
    monkeypatch.setattr(http_client, "MAX_CONNECTIONS", 1)

    async def work():
        async def deaf(reader, writer):
            writers.append(writer)
            await ended.wait()

        writers, ended = [], asyncio.Event()
        server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = client_of(url, timeout_s=0.2)
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(2):
                with pytest.raises(NodeUnavailableError, match=r"no answer within 0\.2 s"):
                    await client.request("POST", "/", b"x" * 20_000_000)
        await client.close()
        ended.set()
        server.close()
        for writer in writers:
            writer.transport.abort()

    rest.run(work())
