"""A whole connection of fairway with a live nwaku v0.38.1, recorded with fixed keys of fairway and decrypted here.

Fairway dialled. What nwaku sent is replayed against our Noise, multistream-select, yamux, identify, ping and metadata,
and against a whole host; what fairway sent is what these write today, but for its ECDSA signature, which is random.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fairway.environment import Environment, set_environment
from fairway.libp2p.host import Host
from fairway.libp2p.identify import IDENTIFY_PROTOCOL, decode_identify
from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.libp2p.multistream import MultistreamDialer, MultistreamListener
from fairway.libp2p.mux.muxer import DataReceived, RemoteWriteClosed, StreamOpened, StreamWasReset
from fairway.libp2p.mux.yamux import Yamux
from fairway.libp2p.noise.handshake import NoiseCredentials, NoiseHandshake
from fairway.libp2p.noise.pattern import Role, SessionKeys, XXHandshake
from fairway.libp2p.noise.session import NoiseSession
from fairway.libp2p.peer_book import PeerIdentified
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.ping import PING_PROTOCOL
from fairway.nodes.discovery.node_record import NodeRecord
from fairway.wire.metadata import METADATA_PROTOCOL, WakuMetadata, decode_metadata, encode_metadata
from fairway.wire.relay_shards import RelayShards
from patience import PATIENCE_S, until

RECORD = json.loads((Path(__file__).parents[1] / "vectors" / "nwaku" / "connection.json").read_bytes())
SAID = {who: [bytes.fromhex(piece) for piece in RECORD[f"from_{who}"]] for who in ("fairway", "nwaku")}
NWAKU = PeerId.parse(RECORD["nwaku"]["peer_id"])
KEY = IdentityKey.from_secret(bytes.fromhex(RECORD["fairway"]["node_key"]), KeyType.SECP256K1)
STATIC, EPHEMERAL = (
    X25519PrivateKey.from_private_bytes(bytes.fromhex(RECORD["fairway"][f"noise_{name}"]))
    for name in ("static", "ephemeral")
)
OTHER = {"fairway": "nwaku", "nwaku": "fairway"}


def message_in(piece: bytes) -> tuple[bytes, bytes]:
    """Return the handshake message at the beginning of a piece, and what follows it."""
    size = 2 + int.from_bytes(piece[:2])
    return piece[2:size], piece[size:]


@cache
def keys_of_fairway() -> SessionKeys:
    handshake = XXHandshake(role=Role.INITIATOR, static=STATIC, ephemeral=EPHEMERAL)
    handshake.write_message(b"")
    handshake.read_message(message_in(SAID["nwaku"][1])[0])
    handshake.write_message(b"")
    return handshake.keys


def keys_of_nwaku() -> SessionKeys:
    keys = keys_of_fairway()
    return SessionKeys(send=keys.receive, receive=keys.send, handshake_hash=keys.handshake_hash)


@cache
def plaintext() -> dict[str, bytes]:
    """Return what each side said after the handshake."""
    behind = {"nwaku": message_in(SAID["nwaku"][1])[1], "fairway": message_in(SAID["fairway"][2])[1]}
    rest = {"nwaku": SAID["nwaku"][2:], "fairway": SAID["fairway"][3:]}
    keys = {"nwaku": keys_of_fairway(), "fairway": keys_of_nwaku()}
    return {who: NoiseSession(keys[who]).receive_data(b"".join([behind[who], *rest[who]])) for who in SAID}


class Stream:
    """One stream of the recording."""

    def __init__(self, opener: str, said: dict[str, bytes]) -> None:
        self.opener = opener
        listener = MultistreamListener({IDENTIFY_PROTOCOL, PING_PROTOCOL, METADATA_PROTOCOL}.__contains__)
        dialer_said, listener_said = said[opener], said[OTHER[opener]]
        agreed = listener.receive_data(dialer_said)
        self.protocol = agreed.protocol if agreed else None
        self.refused = "na" in listener_said.decode(errors="replace")
        if agreed:
            negotiated = MultistreamDialer([agreed.protocol]).receive_data(listener_said)
            assert negotiated is not None
            self.asked, self.answered = agreed.leftover, negotiated.leftover


def frames_of(who: str, opened_by_other: int = 0) -> tuple[list[int], dict[int, bytes], dict[int, list[type]], Yamux]:
    """Read the yamux frames of one side with a core in the place of the other, which opened some streams itself."""
    core = Yamux(initiator=who == "nwaku")
    ours = [core.open_stream() for _ in range(opened_by_other)]
    opened: list[int] = []
    said: dict[int, bytes] = defaultdict(bytes, dict.fromkeys(ours, b""))
    ends: dict[int, list[type]] = defaultdict(list)
    negotiation: Any = (
        MultistreamDialer([Yamux.protocol]) if who == "nwaku" else MultistreamListener(["/yamux/1.0.0"].__contains__)
    )
    agreed = negotiation.receive_data(plaintext()[who])
    assert agreed.protocol == Yamux.protocol
    for event in core.receive_data(agreed.leftover):
        match event:
            case StreamOpened(stream_id):
                opened.append(stream_id)
            case DataReceived(stream_id, data):
                said[stream_id] += data
                core.consumed(stream_id, len(data))
            case RemoteWriteClosed(stream_id) | StreamWasReset(stream_id):
                ends[stream_id].append(type(event))
    return opened, said, ends, core


@cache
def streams() -> list[Stream]:
    """Return the streams that fairway opened, then those that nwaku opened."""
    opened = {who: frames_of(who)[0] for who in SAID}
    said = {who: frames_of(who, len(opened[OTHER[who]]))[1] for who in SAID}
    return [
        Stream(opener, {who: said[who][stream_id] for who in SAID})
        for opener in ("fairway", "nwaku")
        for stream_id in opened[opener]
    ]


def the(opener: str, protocol: str) -> list[Stream]:
    return [stream for stream in streams() if (stream.opener, stream.protocol) == (opener, protocol)]


def test_nwaku_accepts_our_handshake_and_proves_its_identity():
    handshake = NoiseHandshake(
        role=Role.INITIATOR,
        credentials=NoiseCredentials.make(KEY, STATIC),
        ephemeral=EPHEMERAL,
        expected_peer=NWAKU,
    )
    assert handshake.data_to_send() == SAID["fairway"][1]
    secured = handshake.receive_data(SAID["nwaku"][1])
    assert secured is not None
    assert secured.peer_id == NWAKU
    # The last message has an ECDSA signature of 70 to 72 bytes.
    assert abs(len(handshake.data_to_send()) - 2 - len(message_in(SAID["fairway"][2])[0])) <= 2


def test_noise_and_yamux_are_agreed_on_with_the_bytes_that_our_dialer_writes():
    assert SAID["fairway"][0] == MultistreamDialer(["/noise"]).data_to_send()
    negotiation = MultistreamDialer(["/yamux/1.0.0", "/mplex/6.7.0"])
    written = negotiation.data_to_send()
    assert plaintext()["fairway"].startswith(written)
    agreed = negotiation.receive_data(plaintext()["nwaku"])
    assert agreed is not None
    assert agreed.protocol == "/yamux/1.0.0"


def test_every_stream_of_the_connection_is_found():
    found = [(stream.opener, stream.protocol) for stream in streams()]
    assert found == [
        ("fairway", IDENTIFY_PROTOCOL),
        ("fairway", IDENTIFY_PROTOCOL),
        ("fairway", PING_PROTOCOL),
        ("fairway", METADATA_PROTOCOL),
        ("nwaku", METADATA_PROTOCOL),
        ("nwaku", None),
        ("nwaku", IDENTIFY_PROTOCOL),
    ]
    assert streams()[5].refused  # nwaku tries gossipsub, which a light client does not serve


def test_identify_of_nwaku_is_read_whole():
    (first, _) = the("fairway", IDENTIFY_PROTOCOL)
    info = decode_identify(first.answered[2:], NWAKU)
    assert info.agent == 'logos-delivery-"v0.38.1"'
    assert {"/vac/waku/lightpush/3.0.0", "/vac/waku/store-query/3.0.0", METADATA_PROTOCOL} <= info.protocols
    assert len(info.protocols) == 13


def test_ping_and_metadata_of_nwaku_are_read_and_written_byte_for_byte():
    (ping,) = the("fairway", PING_PROTOCOL)
    assert ping.asked == ping.answered == bytes(range(32))
    network = WakuMetadata(cluster_id=16, shards=(0,))
    for opener in SAID:
        (metadata,) = the(opener, METADATA_PROTOCOL)
        for said in (metadata.asked, metadata.answered):
            assert decode_metadata(said[1:]) == network
        nwaku_said = metadata.asked if opener == "nwaku" else metadata.answered
        assert encode_metadata(network) == nwaku_said[1:]


def test_nwaku_ends_its_streams_in_good_order_and_stays_within_its_windows():
    opened = len(frames_of("fairway")[0])
    _, said, ends, _ = frames_of("nwaku", opened)
    assert all(kinds in ([RemoteWriteClosed], [StreamWasReset]) for kinds in ends.values())
    assert ends.keys() <= said.keys()


def test_the_record_of_nwaku_has_an_address_that_can_be_dialled():
    """It also lists 0.0.0.0, which is no address of another machine."""
    record = NodeRecord.parse(RECORD["nwaku"]["record"])
    assert record.peer_id == NWAKU
    assert record.relay_shards == RelayShards(cluster_id=16, shards=frozenset({0}))
    assert [str(address) for address in record.addresses] == [f"/ip4/127.0.0.1/tcp/46181/p2p/{NWAKU}"]


class FixedKeys(Environment):
    """A machine whose first random bytes are the Noise keys of the recording."""

    def __init__(self) -> None:
        self._keys = [STATIC.private_bytes_raw(), EPHEMERAL.private_bytes_raw()]

    def random_bytes(self, count: int) -> bytes:
        return self._keys.pop(0) if self._keys and count == 32 else os.urandom(count)


def test_a_host_dials_the_recorded_nwaku_and_learns_what_it_serves(run):
    """The recording does not depend on the signature, since the keys of the session do not."""

    async def replay(reader, writer):
        writer.write(SAID["nwaku"][0])
        await reader.readexactly(len(SAID["fairway"][0]) + len(SAID["fairway"][1]))
        writer.write(SAID["nwaku"][1])
        await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
        writer.write(b"".join(SAID["nwaku"][2:4]))
        # The rest answers a stream that the host must have opened before.
        session, listener, core = (
            NoiseSession(keys_of_nwaku()),
            MultistreamListener([Yamux.protocol].__contains__),
            None,
        )
        while core is None or not core.inbound_streams:
            data = session.receive_data(await reader.read(65_536))
            if core is not None:
                core.receive_data(data)
            elif agreed := listener.receive_data(data):
                core = Yamux(initiator=False)
                core.receive_data(agreed.leftover)
        writer.write(b"".join(SAID["nwaku"][4:]))
        await reader.read()
        writer.close()

    async def scenario():
        set_environment(FixedKeys())
        server = await asyncio.start_server(replay, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, await Host.start(key=KEY) as host:
            events = host.watch()
            connection = await host.connect(f"/ip4/127.0.0.1/tcp/{port}/p2p/{NWAKU}")
            assert (connection.peer_id, connection.muxer) == (NWAKU, "/yamux/1.0.0")
            async with asyncio.timeout(PATIENCE_S):
                async for event in events:
                    if isinstance(event, PeerIdentified):
                        break
            assert host.info_of(NWAKU).agent == 'logos-delivery-"v0.38.1"'
            assert "/vac/waku/store-query/3.0.0" in host.protocols_of(NWAKU)
            assert host.statistics().connections == 1
            await connection.close()
            await until(lambda: host.statistics().connections == 0)

    run(scenario())
