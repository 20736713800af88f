"""identify: what peers learn of each other, when it changes, and what nobody can say for another."""

from __future__ import annotations

import asyncio

import pytest

from fairway.waku.libp2p.errors import FrameError, IdentityError
from fairway.waku.libp2p.host import Host
from fairway.waku.libp2p.identify import decode_identify, encode_identify
from fairway.waku.libp2p.keys import IdentityKey
from fairway.waku.libp2p.multiaddr import Multiaddr
from fairway.waku.libp2p.peer_book import PeerIdentified
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.libp2p.proto import identify_pb2
from patience import PATIENCE_S

HERE = Multiaddr.parse("/ip4/192.0.2.1/tcp/60000")
THERE = Multiaddr.parse("/ip4/198.51.100.7/tcp/4001/ws")


async def serve(stream):
    await stream.read()


async def identified(events, *, with_protocol="/ipfs/id/1.0.0"):
    async for event in events:
        if isinstance(event, PeerIdentified) and with_protocol in event.protocols:
            return event
    raise AssertionError("the host was closed before")


def message(key, **changes):
    fields = {
        "key": key,
        "addresses": [HERE],
        "protocols": ["/a/1", "/b/2"],
        "agent": "tester/1",
        "observed": THERE,
        "sequence_number": 7,
    }
    return encode_identify(**{**fields, **changes})


def test_a_message_says_what_a_peer_serves_and_what_runs_there():
    key = IdentityKey.generate()
    info = decode_identify(message(key), PeerId.from_public_key(key.public_key))
    assert (info.protocols, info.agent) == ({"/a/1", "/b/2"}, "tester/1")


def test_the_observed_address_is_told_without_a_peer_id():
    key = IdentityKey.generate()
    told = message(key, observed=THERE.with_peer_id(PeerId.from_public_key(key.public_key)))
    assert identify_pb2.Identify.FromString(told).observed_addr == THERE.to_bytes()


def test_what_a_push_leaves_out_stays_as_it_was():
    key = IdentityKey.generate()
    own = PeerId.from_public_key(key.public_key)
    before = decode_identify(message(key), own)
    pushed = identify_pb2.Identify(protocols=["/c/3"]).SerializeToString()
    after = decode_identify(pushed, own, before)
    assert after.protocols == {"/c/3"}
    assert after.agent == "tester/1"


def test_nobody_speaks_for_another_peer():
    key, other = IdentityKey.generate(), IdentityKey.generate()
    own = PeerId.from_public_key(key.public_key)
    with pytest.raises(IdentityError, match="key of another"):
        decode_identify(message(other), own)


def test_addresses_cost_nothing_whatever_they_are():
    own = PeerId.from_public_key(IdentityKey.generate().public_key)
    wire = identify_pb2.Identify(agent_version="a", listen_addrs=[b"\xff\xff"], observed_addr=b"?").SerializeToString()
    assert decode_identify(wire, own).agent == "a"


@pytest.mark.parametrize("wire", [b"\xff\xff\xff", bytes(70_000)])
def test_what_is_no_such_message_is_a_frame_error(wire):
    with pytest.raises(FrameError):
        decode_identify(wire, PeerId.from_public_key(IdentityKey.generate().public_key))


@pytest.mark.parametrize("suffix", ["", "/ws"])
def test_both_sides_learn_what_the_other_is(run, suffix):
    async def scenario():
        listen = [f"/ip4/127.0.0.1/tcp/0{suffix}"]
        async with await Host.start(listen=listen, agent="server/1") as server, await Host.start(agent="c/2") as client:
            server.handle("/serve/1", serve)
            seen_by_client, seen_by_server = client.watch(), server.watch()
            await client.connect(server.addresses[0])
            await identified(seen_by_client)
            await identified(seen_by_server)
            of_server, of_client = client.info_of(server.peer_id), server.info_of(client.peer_id)
            assert (of_server.agent, of_client.agent) == ("server/1", "c/2")
            assert "/serve/1" in of_server.protocols
            (accepted,) = server.connections()
            assert accepted.remote_address.transport == ("ws" if suffix else "tcp")

    run(scenario())


def test_a_protocol_that_is_served_later_is_pushed_to_connected_peers(run):
    async def scenario():
        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as server, await Host.start() as client:
            seen_by_client, seen_by_server = client.watch(), server.watch()
            await client.connect(server.addresses[0])
            await identified(seen_by_client)
            await identified(seen_by_server)
            server.handle("/late/1", serve)
            client.handle("/late/2", serve)
            await identified(seen_by_client, with_protocol="/late/1")
            await identified(seen_by_server, with_protocol="/late/2")
            assert "/late/1" in client.protocols_of(server.peer_id)

    run(scenario())


def test_a_peer_that_lies_about_itself_is_not_believed_and_loses_nothing_else(run):
    async def scenario():
        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as server, await Host.start() as liar:
            events = server.watch()
            connection = await liar.connect(server.addresses[0])
            await identified(events)
            before = server.info_of(liar.peer_id)
            async with await connection.open_stream(["/ipfs/id/push/1.0.0"]) as stream:
                await stream.write_frame(message(IdentityKey.generate()))
                await stream.close_write()
                async with asyncio.timeout(PATIENCE_S):
                    await stream_end(stream)
            assert server.info_of(liar.peer_id) == before
            assert len(server.connections()) == 1

    async def stream_end(stream):
        with pytest.raises(Exception, match="reset"):
            await stream.read()

    run(scenario())
