"""``fairway node`` as a program sees it: the first line says where the REST API is, and it answers there."""

from __future__ import annotations

import asyncio
import json

import pytest

from fairway.apps.service_node import NodeSettings, serve
from fairway.errors import ConfigurationError
from fairway.service.options import ServiceOptions
from fairway.service.rest import RestOptions
from patience import PATIENCE_S


async def first_line(settings, look):
    said = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(serve(settings, lambda line: None if said.done() else said.set_result(line)))
    try:
        await asyncio.wait([serving, said], timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        return await look(said.result())
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("as_json", [True, False])
def test_the_address_of_the_api_is_said_and_true(rest, as_json):
    async def look(line):
        url = json.loads(line)["rest"] if as_json else line.split("  http://")[1].split()[0]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"fairway " in await reader.read()
        writer.close()

    rest.run(first_line(NodeSettings(options=ServiceOptions(), as_json=as_json), look))


def test_a_node_without_the_api_says_that_there_is_none(rest):
    async def look(line):
        assert json.loads(line)["rest"] is None

    rest.run(first_line(NodeSettings(options=ServiceOptions(), rest=None, as_json=True), look))


def test_a_port_that_cannot_be_had_ends_the_node(rest):
    async def work():
        async with rest.serving() as (_, server):
            taken = NodeSettings(options=ServiceOptions(), rest=RestOptions(port=server.port))
            with pytest.raises(ConfigurationError, match=r"the node cannot listen: .* in use; 0 for a port"):
                await asyncio.wait_for(serve(taken, lambda _: None), PATIENCE_S)

    rest.run(work())
