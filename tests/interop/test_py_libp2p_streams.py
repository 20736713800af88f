"""py-libp2p and our host: both muxers, dialled from either side."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairway.libp2p.host import Host
from fairway.libp2p.ping import Pinger
from patience import PATIENCE_S

PEER = Path(__file__).parents[2] / "benchmarks" / "peers" / "py_libp2p.py"
VERSIONS = {"yamux": "/yamux/1.0.0", "mplex": "/mplex/6.7.0"}
MUXERS = pytest.mark.parametrize("muxer", VERSIONS)


@pytest.fixture
def py_libp2p(py_libp2p_python):
    @asynccontextmanager
    async def start(*arguments):
        command = [py_libp2p_python, "-W", "ignore", PEER, *arguments]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            process._transport.close()  # type: ignore[attr-defined]  # no public name has it

    return start


async def read_message(stream):
    """Read one message of the peer's simple framing: four bytes of length before each."""
    first = await stream.read(4)
    if not first:
        return None
    prefix = first + await stream.read_exactly(4 - len(first))
    return await stream.read_exactly(int.from_bytes(prefix))


async def write_message(stream, message):
    await stream.write(len(message).to_bytes(4) + message)


def bounded(scenario):
    async def run():
        async with asyncio.timeout(PATIENCE_S):
            await scenario()

    asyncio.run(run())


@pytest.mark.full
@MUXERS
def test_we_dial_py_libp2p_and_its_streams_carry_what_we_write(py_libp2p, muxer):
    async def scenario():
        async with py_libp2p(muxer, "serve") as process, await Host.start(muxers=[VERSIONS[muxer]]) as host:
            connection = await host.connect((await process.stdout.readline()).decode().strip())
            for size in (1, 1000, 150_000, 1_000_000):
                message = bytes(index % 239 for index in range(size))
                stream = await connection.open_stream(["/echo/1"])
                writing = asyncio.create_task(write_message(stream, message))
                assert await read_message(stream) == message
                await writing
                await stream.reset()
            assert 0 < await Pinger(connection).ping() < 60

    bounded(scenario)


@pytest.mark.full
@MUXERS
def test_py_libp2p_dials_us_and_its_streams_are_served(py_libp2p, muxer):
    async def scenario():
        muxers = set()

        async def echo(stream):
            muxers.add(stream.connection.muxer)
            while (message := await read_message(stream)) is not None:
                await write_message(stream, message)

        async def count(stream):
            messages = 0
            while await read_message(stream):
                messages += 1
            await write_message(stream, str(messages).encode())

        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as host:
            host.handle("/echo/1", echo)
            host.handle("/count/1", count)
            async with py_libp2p(muxer, "measure", str(host.addresses[0]), "0.2") as process:
                lines = [json.loads(line) async for line in process.stdout]
            assert muxers == {VERSIONS[muxer]}
            # The peer checks each count itself, and reports a figure only for what went through.
            measured = {name.rsplit(", ", 1)[0] for line in lines for name in line}
            for size in (1024, 150_000):
                assert {f"{muxer} {size} B: {what}" for what in ("round trip", "one way", "new stream")} <= measured

    bounded(scenario)
