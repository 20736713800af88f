"""``fairway node`` as a program sees it: the first line says where the REST API is, and it answers there."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlsplit

import pytest

from fairway.cli._node_process import NodeSettings, serve
from fairway.errors import ConfigurationError
from fairway.service.options import ServiceOptions
from fairway.service.rest import RestOptions
from patience import PATIENCE_S, until


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
def test_the_printed_address_of_the_api_works(rest, as_json):
    async def look(line):
        url = json.loads(line)["rest"] if as_json else line.split("  http://")[1].split()[0]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"fairway " in await reader.read()
        writer.close()

    rest.run(first_line(NodeSettings(options=ServiceOptions(), as_json=as_json), look))


def test_a_node_on_all_addresses_prints_reachable_ones(rest):
    async def look(line):
        said = json.loads(line)
        assert "0.0.0.0" not in said["rest"]
        reader, writer = await asyncio.open_connection(urlsplit(said["rest"]).hostname, urlsplit(said["rest"]).port)
        writer.write(b"GET /version HTTP/1.1\r\nHost: 192.0.2.1\r\nConnection: close\r\n\r\n")
        assert b"fairway " in await reader.read()
        writer.close()
        assert not [address for address in said["multiaddrs"] if "0.0.0.0" in address]
        assert all("/0.0.0.0/" in address for address in said["listening"])

    options = ServiceOptions(host="0.0.0.0")
    rest.run(first_line(NodeSettings(options=options, rest=RestOptions(host="0.0.0.0"), as_json=True), look))


def test_the_output_has_addresses_for_others_and_for_this_machine(rest):
    async def look(text):
        lines = text.splitlines()
        assert (
            next(line for line in lines if line.startswith("  TCP "))
            .split()[1]
            .startswith("/ip4/203.0.113.5/tcp/7/p2p/")
        )
        assert "/ip4/0.0.0.0/tcp/" in next(line for line in lines if line.startswith("  listening "))
        assert any(line.startswith("in other terminals: export FAIRWAY_NODE=/ip4/127.0.0.1/tcp/") for line in lines)

    options = ServiceOptions(host="0.0.0.0", announce=("/ip4/203.0.113.5/tcp/7",))
    rest.run(first_line(NodeSettings(options=options), look))


def test_an_open_api_for_other_machines_is_warned_of(rest, caplog):
    async def work(api):
        said = []
        caplog.clear()
        serving = asyncio.ensure_future(serve(NodeSettings(options=ServiceOptions(), rest=api), said.append))
        await until(lambda: any("Ctrl-C" in line for line in said))
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        return "the REST API is open to other machines" in caplog.text

    assert rest.run(work(RestOptions(host="0.0.0.0")))
    assert not rest.run(work(RestOptions(host="0.0.0.0", token="0123456789abcdef")))
    assert not rest.run(work(RestOptions()))


async def test_a_port_that_cannot_be_had_ends_the_node(rest):
    async with rest.serving() as (_, server):
        taken = NodeSettings(options=ServiceOptions(), rest=RestOptions(port=server.port))
        with pytest.raises(ConfigurationError, match=r"the node cannot listen: .* in use; 0 for a port"):
            await asyncio.wait_for(serve(taken, lambda _: None), PATIENCE_S)
