"""py-libp2p's side of ``benchmarks/libp2p.py``'s relay; the twin of ``benchmarks/libp2p_relay.py``.

It runs with the mended classes of the tests' peer, since as shipped py-libp2p cannot relay for Waku at all.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "interop" / "py"))

import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.pb import rpc_pb2
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr
from relay_peer import Relay, Router, message_id

from libp2p import create_mplex_muxer_option, create_yamux_muxer_option, new_host

TOPIC = "/waku/2/rs/16/0"
ANYWHERE = Multiaddr("/ip4/127.0.0.1/tcp/0")
WINDOW = 24
STEP = 8
PATIENCE_S = 30


class Mesh:
    """A node in the mesh, and what it hears."""

    def __init__(self, host, relay, heard):
        self.host, self.relay, self.heard = host, relay, heard

    async def publish(self, data):
        """Publish to the topic."""
        await self.relay.push_msg(self.host.get_id(), rpc_pb2.Message(data=data, topicIDs=[TOPIC]))

    async def next(self, kind):
        """Return the next message that begins with a letter; others are left out."""
        with trio.fail_after(PATIENCE_S):
            while not (data := (await self.heard.get()).data).startswith(kind):
                pass  # its own messages come back to it
            return data

    async def join(self):
        """Wait until the mesh carries messages both ways."""
        with trio.fail_after(PATIENCE_S):
            while not self.relay.router.mesh.get(TOPIC):
                await trio.sleep(0.05)  # its mesh has no event
        await self.publish(b"E" + os.urandom(16))
        await self.next(b"e")


@asynccontextmanager
async def mesh(muxer):
    options = create_mplex_muxer_option() if muxer == "mplex" else create_yamux_muxer_option()
    host = new_host(key_pair=create_new_key_pair(), muxer_opt=options, listen_addrs=[ANYWHERE])
    relay = Relay(host, Router(), strict_signing=False, msg_id_constructor=message_id)
    async with host.run([ANYWHERE]), background_trio_service(relay), background_trio_service(relay.router):
        await relay.wait_until_ready()
        yield Mesh(host, relay, await relay.subscribe(TOPIC))


async def serve(muxer):
    async with mesh(muxer) as node, trio.open_nursery() as nursery:
        nursery.start_soon(answer, node)
        print(node.host.get_addrs()[0], flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


async def answer(node):
    published = 0
    while True:
        data = (await node.heard.get()).data
        if data.startswith(b"E"):
            await node.publish(b"e" + data[1:])
        elif data.startswith(b"P"):
            published += 1
            if published % STEP == 0:
                await node.publish(b"A" + os.urandom(16))


def message(kind, size):
    return (kind + os.urandom(16)).ljust(size, b".")


async def echo(node, size, seconds):
    begin, rounds = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        await node.publish(message(b"E", size))
        await node.next(b"e")
        rounds += 1
    return (time.perf_counter() - begin) / rounds * 1000, rounds


async def publish(node, size, seconds):
    begin, sent, known = time.perf_counter(), 0, 0
    while time.perf_counter() - begin < seconds or sent % STEP:
        await node.publish(message(b"P", size))
        sent += 1
        if sent - known >= WINDOW:
            await node.next(b"A")
            known += STEP
    while known < sent:
        await node.next(b"A")
        known += STEP
    return sent / (time.perf_counter() - begin), sent


FIGURES = {"echo": echo, "publish": publish}


async def measure(muxer, address, seconds, figure, size):
    async with mesh(muxer) as node:
        await node.host.connect(info_from_p2p_addr(Multiaddr(address)))
        await node.join()
        cpu_s = time.process_time()
        value, rounds = await FIGURES[figure](node, size, seconds)
        told = {"value": value, "rounds": rounds, "cpu_s": time.process_time() - cpu_s}
        print(json.dumps({figure: told}), flush=True)


if __name__ == "__main__":
    if sys.argv[2] == "serve":
        trio.run(serve, sys.argv[1])
    else:
        trio.run(measure, sys.argv[1], sys.argv[3], float(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
