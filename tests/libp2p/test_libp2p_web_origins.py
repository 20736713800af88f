"""Which web pages may open a WebSocket to a node, and that programs always may."""

from __future__ import annotations

import asyncio
import base64
import logging
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError
from fairway.libp2p.host import Host
from fairway.libp2p.transports.web_origins import WebOrigins
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from patience import PATIENCE_S, run

LISTEN = ["/ip4/127.0.0.1/tcp/0/ws"]


async def knock(port, *headers, host="127.0.0.1"):
    """Ask for a WebSocket as a browser does, and return the status of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        "GET / HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        *headers,
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    try:
        async with asyncio.timeout(PATIENCE_S):
            return int((await reader.readuntil(b"\r\n\r\n")).split()[1])
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("headers", "host", "named", "admitted"),
    [
        ((), "127.0.0.1", (), True),
        ((), "evil.example", (), True),
        (("Origin: https://evil.example",), "127.0.0.1", (), False),
        (("Origin: https://evil.example",), "evil.example", (), False),
        (("Origin: http://evil.example:8000",), "evil.example:8000", (), False),
        (("Origin: http://127.0.0.1.evil.example",), "127.0.0.1", (), False),
        (("Origin: null",), "127.0.0.1", (), False),
        (("Origin: ",), "127.0.0.1", (), False),
        (("Origin: http://[",), "127.0.0.1", (), False),
        (("Origin: http://localhost:3000",), "127.0.0.1:8000", (), True),
        (("Origin: http://127.0.0.1:3000",), "localhost:8000", (), True),
        (("Origin: http://[::1]:3000",), "127.0.0.1:8000", (), True),
        (("Origin: http://192.0.2.7:3000",), "192.0.2.7:8000", (), True),
        (("Origin: http://192.0.2.8:3000",), "192.0.2.7:8000", (), False),
        (("Origin: https://app.example",), "127.0.0.1", ("https://app.example",), True),
        (("Origin: https://other.example",), "127.0.0.1", ("https://app.example",), False),
        (("Origin: http://localhost:3000", "Origin: https://evil.example"), "127.0.0.1", (), False),
        (("Origin: https://anything.example",), "127.0.0.1", ("*",), True),
        (("Origin: null",), "127.0.0.1", ("null",), True),
    ],
)
def test_a_web_page_may_connect_if_it_is_of_this_machine_or_named_and_a_program_always(headers, host, named, admitted):
    async def work():
        async with await Host.start(listen=LISTEN, web_origins=named) as node:
            return await knock(node.addresses[0].port, *headers, host=host)

    assert run(work()) == (101 if admitted else 403)


def test_a_service_node_turns_pages_away_says_which_once_and_goes_on_serving_others(caplog):
    async def work():
        caplog.set_level(logging.WARNING)
        async with await ServiceNode.start(ServiceOptions(tcp_port=None)) as node, await Host.start() as program:
            for _ in range(3):
                assert await knock(node.addresses[0].port, "Origin: https://evil.example") == 403
            assert [record.getMessage() for record in caplog.records] == [
                "a web page of 'https://evil.example' was refused; --ws-origin with its name admits it"
            ]
            await program.connect(node.addresses[0])

    run(work())


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "https://app.example/page", ""])
def test_what_no_browser_writes_is_refused_as_a_name_of_a_page(origin):
    with pytest.raises(ConfigurationError, match="is no origin of a page"):
        ServiceOptions(ws_origins=(origin,))


@given(st.lists(st.text(), min_size=1, max_size=3), st.text())
def test_whatever_the_headers_hold_is_an_answer(origins, host):
    assert WebOrigins(["*"]).admit(origins, host)
    assert WebOrigins().admit(origins, host) in {True, False}
