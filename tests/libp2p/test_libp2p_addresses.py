"""Where a host says that it is: what it announces, or addresses that others can dial."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import pytest

from fairway.libp2p.errors import AddressError
from fairway.libp2p.host import Host
from fairway.libp2p.identify import IDENTIFY_PROTOCOL
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.proto import identify_pb2
from fairway.libp2p.reachable import interface_addresses

EVERYWHERE = ["/ip4/0.0.0.0/tcp/0", "/ip4/0.0.0.0/tcp/0/ws"]
BEHIND_NAT = "/ip4/203.0.113.5/tcp/60000"
BEHIND_PROXY = "/dns4/node.example.org/tcp/443/tls/ws"


async def told_by_identify(client, server):
    """The addresses in the identify message of a host."""
    async with await client.open_stream(server.peer_id, [IDENTIFY_PROTOCOL]) as stream:
        message = identify_pb2.Identify.FromString(await stream.read_frame(1 << 16))
    return tuple(Multiaddr.from_bytes(address) for address in message.listen_addrs)


@pytest.mark.parametrize("version", [4, 6])
def test_the_addresses_of_the_interfaces_are_of_this_machine(version):
    found = interface_addresses(version)
    assert found
    loopback = [host for host in found if ip_address(host).is_loopback]
    assert not loopback or len(loopback) == len(found), "those of the loopback are for want of others"
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    for host in found:
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            own.bind((host, 0))  # the system refuses what is not its own


def test_a_host_that_listens_everywhere_says_where_others_reach_it(run):
    async def scenario():
        async with await Host.start(listen=EVERYWHERE) as server:
            assert {address.host for address in server.listening} == {"0.0.0.0"}
            assert [address.host for address in server.addresses] == 2 * list(interface_addresses(4))
            for address in server.addresses:
                async with await Host.start() as client:
                    connection = await client.connect(address)
                    assert connection.peer_id == server.peer_id
                    told = await told_by_identify(client, server)
                    assert told == tuple(one.without_peer_id() for one in server.addresses)

    run(scenario())


def test_what_is_announced_takes_the_place_of_where_it_listens(run):
    async def scenario():
        announced = [BEHIND_NAT, BEHIND_PROXY]
        async with (
            await Host.start(listen=["/ip4/127.0.0.1/tcp/0"], announce=announced) as server,
            await Host.start() as client,
        ):
            assert [str(address) for address in server.addresses] == [
                f"{one}/p2p/{server.peer_id}" for one in announced
            ]
            await client.connect(server.listening[0])
            assert [str(address) for address in await told_by_identify(client, server)] == announced

    run(scenario())


OTHER = "16Uiu2HAmQ9X2xDfPG3uL77V9piYDhjq14JhKCtcmNYsTMKNqrKCj"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/ip4/0.0.0.0/tcp/60000", "at which others reach this machine"),
        ("/ip6/::/tcp/60000/ws", "at which others reach this machine"),
        ("/ip4/203.0.113.5/tcp/0", "cannot be announced: others dial"),
        ("/ip4/203.0.113.5/udp/60000/quic-v1", "cannot be announced: others dial"),
        ("/dns4/node.example.org", "cannot be announced: others dial"),
        (f"{BEHIND_NAT}/p2p/{OTHER}", "names another peer"),
        ("203.0.113.5:60000", "is no multiaddr"),
    ],
)
def test_an_address_of_no_use_to_others_is_not_announced(run, address, words):
    async def scenario():
        with pytest.raises(AddressError, match=words):
            await Host.start(listen=["/ip4/127.0.0.1/tcp/0"], announce=[address])

    run(scenario())
