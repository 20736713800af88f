"""libp2p streams between two processes over the loopback, beside py-libp2p in the same run.

    python -m benchmarks.libp2p [--peer-python /path/to/python-with-libp2p] [--seconds 2] [--transport ws]

For each muxer and message size: a message there and back, messages one way, and a new stream for each request; then
the time that a connection takes. ``--peer-python`` is an interpreter of an environment with ``libp2p==0.8.1``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.figures import Figure

from fairway.waku.libp2p.connection import Connection
from fairway.waku.libp2p.host import Host
from fairway.waku.libp2p.stream import Stream

PEER = Path(__file__).parent / "peers" / "py_libp2p.py"
CHECKOUT = Path(__file__).parents[1]
PEER_NAME = "py-libp2p"
MUXERS = ("/yamux/1.0.0", "/mplex/6.7.0")
SIZES = (1024, 150_000)
LONGEST_BYTES = 1 << 24
PEER_TIME_LIMIT_S = 300.0


async def echo(stream: Stream) -> None:
    while (message := await stream.read_frame(LONGEST_BYTES)) is not None:
        await stream.write_frame(message)


async def count(stream: Stream) -> None:
    messages = 0
    while await stream.read_frame(LONGEST_BYTES) is not None:
        messages += 1
    await stream.write_frame(str(messages).encode())


async def serve(transport: str) -> None:
    """Be the other process, until standard input ends."""
    suffix = "" if transport == "tcp" else f"/{transport}"
    async with await Host.start(listen=[f"/ip4/127.0.0.1/tcp/0{suffix}"]) as host:
        host.handle("/echo/1", echo)
        host.handle("/count/1", count)
        print(host.addresses[0], flush=True)
        await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def other_process(*command: str) -> AsyncIterator[str]:
    """Run a server for as long as the block lasts, and give its address."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=CHECKOUT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


async def there_and_back(connection: Connection, message: bytes, seconds: float) -> float:
    """Return the milliseconds of a round trip on one stream."""
    async with await connection.open_stream(["/echo/1"]) as stream:
        begin, rounds = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            await stream.write_frame(message)
            await stream.read_frame(LONGEST_BYTES)
            rounds += 1
        return (time.perf_counter() - begin) / rounds * 1000


async def one_way(connection: Connection, message: bytes, seconds: float) -> float:
    """Return the messages a second that the other process has received, all of them."""
    async with await connection.open_stream(["/count/1"]) as stream:
        begin, sent = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            for _ in range(100):
                await stream.write_frame(message)
            sent += 100
        await stream.close_write()
        assert await stream.read_frame(LONGEST_BYTES) == str(sent).encode()
        return sent / (time.perf_counter() - begin)


async def new_streams(connection: Connection, message: bytes, seconds: float) -> float:
    """Return the milliseconds of a request on a stream of its own."""
    begin, rounds = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        async with await connection.open_stream(["/echo/1"]) as stream:
            await stream.write_frame(message)
            await stream.close_write()
            await stream.read_frame(LONGEST_BYTES)
        rounds += 1
    return (time.perf_counter() - begin) / rounds * 1000


async def connecting(address: str, muxer: str, rounds: int = 30) -> float:
    """Return the milliseconds from dialling to a connection that can be used, the median of some."""
    times = []
    for _ in range(rounds):
        async with await Host.start(muxers=[muxer]) as host:
            begin = time.perf_counter()
            await host.connect(address)
            times.append(time.perf_counter() - begin)
    return sorted(times)[rounds // 2] * 1000


async def measure_ours(transport: str, seconds: float) -> dict[str, float]:
    """Return every figure by its name."""
    figures = {}
    async with other_process(sys.executable, "-m", "benchmarks.libp2p", "--serve", "--transport", transport) as address:
        for muxer in MUXERS:
            name = muxer.split("/")[1]
            figures[f"{name}: connect, ms"] = await connecting(address, muxer)
            async with await Host.start(muxers=[muxer]) as host:
                connection = await host.connect(address)
                for size in SIZES:
                    message = bytes(size)
                    figures[f"{name} {size} B: round trip, ms"] = await there_and_back(connection, message, seconds)
                    figures[f"{name} {size} B: one way, /s"] = await one_way(connection, message, seconds)
                    figures[f"{name} {size} B: new stream, ms"] = await new_streams(connection, message, seconds)
    return figures


async def measure_peer(python: str, seconds: float) -> dict[str, float]:
    """Return py-libp2p's figures under the same names; those that it does not reach in time are missing."""
    figures: dict[str, float] = {}
    for muxer in MUXERS:
        name = muxer.split("/")[1]
        async with other_process(python, str(PEER), name, "serve") as address:
            command = (python, str(PEER), name, "measure", address, str(seconds))
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            try:
                async with asyncio.timeout(PEER_TIME_LIMIT_S):
                    output, _ = await process.communicate()
            except TimeoutError:
                process.kill()
                await process.wait()
            else:
                for line in output.decode().splitlines():
                    figures |= json.loads(line)
    return figures


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="an interpreter that has libp2p==0.8.1")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure")
    parser.add_argument("--transport", choices=("tcp", "ws"), default="tcp")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        await serve(options.transport)
        return
    ours = await measure_ours(options.transport, options.seconds)
    peer = await measure_peer(options.peer_python, options.seconds) if options.peer_python else {}
    for name, value in ours.items():
        label, unit = name.rsplit(", ", 1)
        print(Figure(name=label, ours=value, peer=peer.get(name), peer_name=PEER_NAME, unit=unit))


if __name__ == "__main__":
    asyncio.run(main())
