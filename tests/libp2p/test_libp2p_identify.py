"""identify: what peers learn of each other, when it changes, and what nobody can say for another."""

from __future__ import annotations

import asyncio

import pytest

from fairway.libp2p import identify
from fairway.libp2p.errors import FrameError, IdentityError
from fairway.libp2p.host import Host
from fairway.libp2p.identify import (
    IDENTIFY_PROTOCOL,
    IDENTIFY_PUSH_PROTOCOL,
    decode_identify,
    encode_identify,
)
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_book import PeerIdentified
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.proto import envelope_pb2, identify_pb2
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


@pytest.mark.parametrize(
    ("announced", "dialable"),
    [
        (["/ip4/192.0.2.1/tcp/60000"], "/ip4/192.0.2.1/tcp/60000"),
        (["/ip4/0.0.0.0/tcp/60000", "/ip6/::/tcp/1", "/ip4/192.0.2.1/tcp/8000/ws"], "/ip4/192.0.2.1/tcp/8000/ws"),
        (["/ip4/192.0.2.1/udp/9000", "/dns4/node.example/tcp/443/tls/ws"], "/dns4/node.example/tcp/443/tls/ws"),
        (["/ip4/0.0.0.0/tcp/60000"], None),
        ([], None),
    ],
)
def test_the_first_address_that_can_be_dialled_is_kept(announced, dialable):
    key = IdentityKey.generate()
    wire = message(key, addresses=[Multiaddr.parse(address) for address in announced])
    assert decode_identify(wire, PeerId.from_public_key(key.public_key)).address == (
        None if dialable is None else Multiaddr.parse(dialable)
    )


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


@pytest.mark.parametrize("count", [0, 1, 40, 60, 120, 400])
@pytest.mark.parametrize("host", ["192.0.2.1", "node-17.relay.example.org", "n" * 60 + "." + "x" * 60 + ".example.org"])
def test_a_message_is_no_longer_than_every_implementation_reads_and_has_the_first_addresses(count, host):
    """rust-libp2p reads 4,096 bytes, go-libp2p and js-libp2p 8,192."""
    transport = "ip4" if host[0].isdigit() else "dns4"
    addresses = [Multiaddr.parse(f"/{transport}/{host}/tcp/{port}/ws") for port in range(1_000, 1_000 + count)]
    wire = message(IdentityKey.generate(), addresses=addresses)
    parsed = identify_pb2.Identify.FromString(wire)
    announced = [address.to_bytes() for address in addresses]
    assert len(wire) <= 4_096
    assert list(parsed.listen_addrs) == announced[: len(parsed.listen_addrs)]
    envelope = envelope_pb2.Envelope.FromString(parsed.signed_peer_record)
    record = envelope_pb2.PeerRecord.FromString(envelope.payload)
    assert [info.multiaddr for info in record.addresses] == list(parsed.listen_addrs)
    if len(parsed.listen_addrs) < count:
        assert len(wire) > 3_500


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


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "left open"])
def test_a_message_in_several_frames_is_read_whole(run, ends):
    """go-libp2p and js-libp2p divide long messages."""

    async def scenario():
        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as other, await Host.start() as ours:
            key = other.key.public_key.to_bytes()

            def frame(**fields):
                return identify_pb2.Identify(**fields).SerializeToString()

            async def answer(stream):
                await stream.write_frame(frame(public_key=key, agent_version="other/1", protocols=["/a/1", "/b/1"]))
                await stream.write_frame(frame(protocols=["/c/1"]))
                await stream.write_frame(frame(protocols=["/d/1"]))
                if not ends:
                    await stream.read_exactly(1)

            other.handle(IDENTIFY_PROTOCOL, answer)
            events = ours.watch()
            connection = await ours.connect(other.addresses[0])
            await identified(events, with_protocol="/d/1")
            assert ours.protocols_of(connection.peer_id) == {"/a/1", "/b/1", "/c/1", "/d/1"}
            assert ours.info_of(connection.peer_id).agent == "other/1"
            stream = await other.open_stream(ours.peer_id, [IDENTIFY_PUSH_PROTOCOL])
            await stream.write_frame(frame(public_key=key, protocols=["/e/1"]))
            await stream.write_frame(frame(protocols=["/f/1"]))
            if ends:
                await stream.close_write()
            await identified(events, with_protocol="/f/1")
            assert ours.protocols_of(connection.peer_id) == {"/e/1", "/f/1"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identify, "TIMEOUT_S", 1.0 if not ends else PATIENCE_S)
        run(scenario())


def test_frames_without_end_are_read_up_to_a_bound(run):
    async def scenario():
        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as other, await Host.start() as ours:

            async def answer(stream):
                for number in range(1_000):
                    await stream.write_frame(identify_pb2.Identify(protocols=[f"/{number}/1"]).SerializeToString())

            other.handle(IDENTIFY_PROTOCOL, answer)
            events = ours.watch()
            await ours.connect(other.addresses[0])
            await identified(events, with_protocol="/0/1")
            assert ours.protocols_of(other.peer_id) == {f"/{number}/1" for number in range(10)}

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
