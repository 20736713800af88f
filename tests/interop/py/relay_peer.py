"""py-libp2p as a Waku relay: StrictNoSign, ids that are SHA-256 of the data. Speaks JSON lines like the js peers.

Usage: python relay_peer.py SETTINGS, where SETTINGS is JSON: topic, muxer, listen, peers.

The subclasses mend what keeps py-libp2p 0.8.1 from relaying for Waku: its router takes no protocol but its own, its
duplicate and equivocation checks and its message cache tell messages apart by author and sequence number, which these
do not have, it tells peers that have left its mesh of no messages, and an exception in a stream handler ends the host.
"""

import base64
import hashlib
import json
import os
import sys

import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.identity.identify.identify import ID as IDENTIFY
from libp2p.identity.identify.pb.identify_pb2 import Identify
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
from libp2p.pubsub.mcache import CacheEntry, MessageCache
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service
from libp2p.utils.varint import read_varint_prefixed_bytes
from multiaddr import Multiaddr

from libp2p import create_mplex_muxer_option, create_yamux_muxer_option, new_host

RELAY = "/vac/waku/relay/2.0.0"
CONNECT_SECONDS = 15


def message_id(message):
    return hashlib.sha256(message.data).digest()


class ByData(MessageCache):
    def put(self, msg):
        key = message_id(msg)
        if key not in self.msgs:
            self.msgs[key] = msg
            self.history[0].append(CacheEntry(key, msg.topicIDs))


class Router(GossipSub):
    def __init__(self):
        super().__init__(
            [RELAY],
            degree=6,
            degree_low=4,
            degree_high=8,
            heartbeat_initial_delay=0.2,
            heartbeat_interval=1,
            gossip_history=6,
            spam_protection_enabled=False,
            eclipse_protection_enabled=False,
            adaptive_gossip_enabled=False,
        )
        self.mcache = ByData(3, 6)

    def add_peer(self, peer_id, protocol_id):
        super().add_peer(peer_id, PROTOCOL_ID_V11 if protocol_id == RELAY else protocol_id)

    def gossip_heartbeat(self):
        back_off, self.back_off = self.back_off, {}
        try:
            return super().gossip_heartbeat()
        finally:
            self.back_off = back_off

    def _check_equivocation(self, msg):
        return True


class Relay(Pubsub):
    async def stream_handler(self, stream):
        try:
            await super().stream_handler(stream)
        except Exception as error:  # noqa: BLE001 - whatever one peer sends, the host must go on
            say("failed", detail=repr(error))
            await stream.reset()


def say(event, **fields):
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


async def lines():
    rest = b""
    stream = trio.lowlevel.FdStream(os.dup(0))
    while data := await stream.receive_some(65_536):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield json.loads(line)


async def connect(host, address):
    with trio.fail_after(CONNECT_SECONDS):
        await host.connect(info_from_p2p_addr(Multiaddr(address)))


async def read_on(subscription):
    while True:
        message = await subscription.get()
        say("received", data=base64.b64encode(message.data).decode())


async def identify(host, address):
    stream = await host.new_stream(info_from_p2p_addr(Multiaddr(address)).peer_id, [IDENTIFY])
    told = Identify.FromString(await read_varint_prefixed_bytes(stream))
    await stream.close()
    say("identified", agent=told.agent_version, protocols=list(told.protocols), muxer=muxer_of(host))


def muxer_of(host):
    connections = [one for many in host.get_network().connections.values() for one in many]
    return type(connections[0].muxed_conn).__name__


async def obey(command, host, relay, topic):
    match command:
        case {"do": "publish", "data": data}:
            message = rpc_pb2.Message(data=base64.b64decode(data), topicIDs=[topic])
            await relay.push_msg(host.get_id(), message)
            say("published")
        case {"do": "dial", "peer": address}:
            await connect(host, address)
            say("dialled")
        case {"do": "mesh"}:
            subscribers = [str(peer) for peer in relay.peer_topics.get(topic, ())]
            say("mesh", peers=[str(peer) for peer in relay.router.mesh.get(topic, ())], subscribers=subscribers)
        case {"do": "identify", "peer": address}:
            await identify(host, address)


async def main(settings):
    topic = settings["topic"]
    options = create_mplex_muxer_option() if settings.get("muxer") == "mplex" else create_yamux_muxer_option()
    listen = [Multiaddr(address) for address in settings.get("listen") or ["/ip4/127.0.0.1/tcp/0"]]
    host = new_host(key_pair=create_new_key_pair(), muxer_opt=options, listen_addrs=listen)
    relay = Relay(host, Router(), strict_signing=False, msg_id_constructor=message_id)
    async with (
        host.run(listen),
        background_trio_service(relay),
        background_trio_service(relay.router),
        trio.open_nursery() as nursery,
    ):
        await relay.wait_until_ready()
        for address in settings.get("peers", []):
            await connect(host, address)
        nursery.start_soon(read_on, await relay.subscribe(topic))
        say("ready", peerId=str(host.get_id()), multiaddrs=[str(address) for address in host.get_addrs()])
        async for command in lines():
            try:
                await obey(command, host, relay, topic)
            except Exception as error:  # noqa: BLE001 - the test reads what went wrong
                say("failed", command=command.get("do"), detail=repr(error))
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, json.loads(sys.argv[1]))
