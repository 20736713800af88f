"""py-libp2p 0.8.1 as the peer of ``benchmarks/libp2p.py``: the work of ``libp2p_streams.py``, by its own means.

Runs in an environment of its own: it needs trio, and pins much else. ``measure ADDRESS SECONDS`` takes every figure,
``measure ADDRESS SECONDS FIGURE SIZE`` the one.
"""

from __future__ import annotations

import json
import sys
import time

import multiaddr
import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.peerinfo import info_from_p2p_addr

from libp2p import new_host

ANYWHERE = multiaddr.Multiaddr("/ip4/127.0.0.1/tcp/0")
ECHO, COUNT = TProtocol("/echo/1"), TProtocol("/count/1")
SIZES = (1024, 150_000)
TIME_LIMIT_S = 30.0


async def read_exactly(stream, size):
    """Return ``size`` bytes, or None at the end."""
    parts, missing = [], size
    while missing:
        try:
            part = await stream.read(missing)
        except Exception as error:
            if type(error).__name__ not in {"StreamEOF", "MplexStreamEOF"}:
                raise
            part = b""
        if not part:
            return None
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


async def read_message(stream):
    prefix = await read_exactly(stream, 4)
    return None if prefix is None else await read_exactly(stream, int.from_bytes(prefix, "big"))


async def write_message(stream, message):
    await stream.write(len(message).to_bytes(4, "big") + message)


async def echo(stream):
    while (message := await read_message(stream)) is not None:
        await write_message(stream, message)


async def count(stream):
    messages = 0
    while await read_message(stream):
        messages += 1
    await write_message(stream, str(messages).encode())


def started_host(muxer):
    return new_host(create_new_key_pair(), muxer_preference=muxer.upper(), listen_addrs=[ANYWHERE])


async def serve(muxer):
    host = started_host(muxer)
    async with host.run(listen_addrs=[ANYWHERE]):
        host.set_stream_handler(ECHO, echo)
        host.set_stream_handler(COUNT, count)
        print(host.get_addrs()[0], flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)


def report(name, value, rounds, cpu_s):
    print(json.dumps({name: {"value": value, "rounds": rounds, "cpu_s": cpu_s}}), flush=True)


async def there_and_back(host, peer, message, seconds):
    stream = await host.new_stream(peer, [ECHO])
    begin, rounds = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        await write_message(stream, message)
        await read_message(stream)
        rounds += 1
    await stream.reset()
    return (time.perf_counter() - begin) / rounds * 1000, rounds


async def one_way(host, peer, message, seconds):
    stream = await host.new_stream(peer, [COUNT])
    begin, sent = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(100):
            await write_message(stream, message)
        sent += 100
    # An empty message asks for the count: an end of writing is not answered over its mplex.
    await write_message(stream, b"")
    assert await read_message(stream) == str(sent).encode()
    return sent / (time.perf_counter() - begin), sent


async def new_streams(host, peer, message, seconds):
    begin, rounds = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        stream = await host.new_stream(peer, [ECHO])
        await write_message(stream, message)
        await read_message(stream)
        await stream.close()
        rounds += 1
    return (time.perf_counter() - begin) / rounds * 1000, rounds


async def connecting(muxer, peer, rounds=5):
    times = []
    for _ in range(rounds):
        host = started_host(muxer)
        async with host.run(listen_addrs=[ANYWHERE]):
            begin = time.perf_counter()
            await host.connect(peer)
            times.append(time.perf_counter() - begin)
    return sorted(times)[rounds // 2] * 1000, rounds


FIGURES = {"round trip, ms": there_and_back, "one way, /s": one_way, "new stream, ms": new_streams}


async def measure(muxer, address, seconds, wanted="", wanted_size=0):
    peer = info_from_p2p_addr(multiaddr.Multiaddr(address))
    if wanted in {"", "connect"}:
        with trio.move_on_after(TIME_LIMIT_S):
            cpu_s = time.process_time()
            value, rounds = await connecting(muxer, peer)
            report(f"{muxer}: connect, ms", value, rounds, time.process_time() - cpu_s)
    if wanted == "connect":
        return
    host = started_host(muxer)
    async with host.run(listen_addrs=[ANYWHERE]):
        await host.connect(peer)
        for size in [wanted_size] if wanted else SIZES:
            for name, figure in FIGURES.items():
                if not name.startswith(wanted):
                    continue
                with trio.move_on_after(TIME_LIMIT_S):
                    cpu_s = time.process_time()
                    value, rounds = await figure(host, peer.peer_id, bytes(size), seconds)
                    report(f"{muxer} {size} B: {name}", value, rounds, time.process_time() - cpu_s)


if __name__ == "__main__":
    if sys.argv[2] == "serve":
        trio.run(serve, sys.argv[1])
    else:
        chosen = (sys.argv[5], int(sys.argv[6])) if len(sys.argv) > 5 else ()
        trio.run(measure, sys.argv[1], sys.argv[3], float(sys.argv[4]), *chosen)
