"""ping: a peer returns the 32 bytes that it gets (libp2p "Ping", /ipfs/ping/1.0.0)."""

from __future__ import annotations

import asyncio
from typing import Final

from fairway.environment import random_bytes
from fairway.waku.libp2p.connection import Connection
from fairway.waku.libp2p.errors import FrameError, Libp2pError
from fairway.waku.libp2p.stream import Stream

PING_PROTOCOL: Final = "/ipfs/ping/1.0.0"
PAYLOAD_BYTES: Final = 32

MAX_STREAMS_PER_PEER: Final = 16
"""libp2p "Ping" asks for two at most; js-libp2p opens one for each ping and closes it late."""


async def answer_pings(stream: Stream) -> None:
    """Return received bytes, 32 at a time, until the peer ends the stream."""
    while first := await stream.read(PAYLOAD_BYTES):
        rest = await stream.read_exactly(PAYLOAD_BYTES - len(first))
        await stream.write(first + rest)


async def ping(connection: Connection, *, timeout_s: float = 10.0) -> float:
    """Return the round trip time to a peer in seconds, without the time to open the stream.

    Raises:
        Libp2pError: the peer did not answer within ``timeout_s``, answered with other bytes, or disconnected.

    """
    payload = random_bytes(PAYLOAD_BYTES)
    async with await connection.open_stream([PING_PROTOCOL], timeout_s) as stream:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        try:
            async with asyncio.timeout(timeout_s):
                await stream.write(payload)
                answer = await stream.read_exactly(PAYLOAD_BYTES)
        except TimeoutError as error:
            raise Libp2pError(f"{connection.peer_id} did not answer a ping within {timeout_s:g} s") from error
        if answer != payload:
            raise FrameError(f"{connection.peer_id} answered a ping with other bytes")
        return loop.time() - begin
