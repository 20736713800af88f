"""The streams of fairway for `benchmarks.libp2p`: ``python -m benchmarks.libp2p_streams MUXER serve``, or ``measure``.

Arguments of ``measure``: the server's address, seconds, the name of the figure and the size of a message in bytes. It
prints one JSON object, as ``peers/py_libp2p.py`` does: the value, the number of rounds and the CPU-seconds, under the
name of the figure.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from fairway.libp2p.connection import Connection
from fairway.libp2p.host import Host
from fairway.libp2p.stream import Stream

MUXERS = {"yamux": "/yamux/1.0.0", "mplex": "/mplex/6.7.0"}
_LONGEST_BYTES = 1 << 24
_CONNECTIONS = 30


async def _echo(stream: Stream) -> None:
    while (message := await stream.read_frame(_LONGEST_BYTES)) is not None:
        await stream.write_frame(message)


async def _count(stream: Stream) -> None:
    messages = 0
    while await stream.read_frame(_LONGEST_BYTES) is not None:
        messages += 1
    await stream.write_frame(str(messages).encode())


async def _serve(muxer: str) -> None:
    """Be the other process, until standard input ends."""
    async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"], muxers=[MUXERS[muxer]]) as host:
        host.handle("/echo/1", _echo)
        host.handle("/count/1", _count)
        print(host.addresses[0], flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def _round_trip(connection: Connection, message: bytes, seconds: float) -> tuple[float, int]:
    async with await connection.open_stream(["/echo/1"]) as stream:
        begin, rounds = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            await stream.write_frame(message)
            await stream.read_frame(_LONGEST_BYTES)
            rounds += 1
        return (time.perf_counter() - begin) / rounds * 1_000, rounds


async def _one_way(connection: Connection, message: bytes, seconds: float) -> tuple[float, int]:
    """Return the messages a second that the other process has received, all of them."""
    async with await connection.open_stream(["/count/1"]) as stream:
        begin, sent = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            for _ in range(100):
                await stream.write_frame(message)
            sent += 100
        await stream.close_write()
        assert await stream.read_frame(_LONGEST_BYTES) == str(sent).encode()
        return sent / (time.perf_counter() - begin), sent


async def _new_stream(connection: Connection, message: bytes, seconds: float) -> tuple[float, int]:
    begin, rounds = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        async with await connection.open_stream(["/echo/1"]) as stream:
            await stream.write_frame(message)
            await stream.close_write()
            await stream.read_frame(_LONGEST_BYTES)
        rounds += 1
    return (time.perf_counter() - begin) / rounds * 1_000, rounds


async def _connect(address: str, muxer: str) -> tuple[float, int]:
    """Return the milliseconds from dialling to a connection that can be used, the median of some."""
    times = []
    for _ in range(_CONNECTIONS):
        async with await Host.start(muxers=[MUXERS[muxer]]) as host:
            begin = time.perf_counter()
            await host.connect(address)
            times.append(time.perf_counter() - begin)
    return sorted(times)[_CONNECTIONS // 2] * 1_000, _CONNECTIONS


_FIGURES = {"round trip": _round_trip, "one way": _one_way, "new stream": _new_stream}


async def _measure(muxer: str, address: str, seconds: float, figure: str, size: int) -> None:
    if figure == "connect":
        cpu_s = time.process_time()
        value, rounds = await _connect(address, muxer)
    else:
        async with await Host.start(muxers=[MUXERS[muxer]]) as host:
            connection = await host.connect(address)
            cpu_s = time.process_time()
            value, rounds = await _FIGURES[figure](connection, bytes(size), seconds)
    print(json.dumps({figure: {"value": value, "rounds": rounds, "cpu_s": time.process_time() - cpu_s}}))


def main() -> None:
    """Serve, or measure."""
    muxer, what, *rest = sys.argv[1:]
    if what == "serve":
        asyncio.run(_serve(muxer))
    else:
        address, seconds, figure, size = rest
        asyncio.run(_measure(muxer, address, float(seconds), figure, int(size)))


if __name__ == "__main__":
    main()
