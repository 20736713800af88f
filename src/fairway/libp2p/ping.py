"""ping: a peer returns the 32 bytes that it gets (libp2p "Ping", /ipfs/ping/1.0.0)."""

from __future__ import annotations

import asyncio
from typing import Final

from fairway.environment import random_bytes
from fairway.libp2p.connection import Connection
from fairway.libp2p.errors import FrameError, Libp2pError, StreamError
from fairway.libp2p.stream import Stream

PING_PROTOCOL: Final = "/ipfs/ping/1.0.0"
PAYLOAD_BYTES: Final = 32

MAX_STREAMS_PER_PEER: Final = 16
"""libp2p "Ping" asks for two at most; js-libp2p opens one for each ping and closes it late."""


async def answer_pings(stream: Stream) -> None:
    """Return received bytes, 32 at a time, until the peer ends the stream."""
    while first := await stream.read(PAYLOAD_BYTES):
        rest = await stream.read_exactly(PAYLOAD_BYTES - len(first))
        await stream.write(first + rest)


class Pinger:
    """Pings a peer over one stream, which it keeps: "the dialing peer MAY repeat the process".

    A peer that ends the stream gets another one. One ping is under way at a time.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stream: Stream | None = None

    async def ping(self, *, timeout_s: float = 10.0) -> float:
        """Return the round trip time to the peer in seconds, without the time to open the stream.

        Raises `Libp2pError` if the peer does not answer in time, answers with other bytes, or disconnects.
        """
        if self._stream is not None:
            try:
                return await self._over(self._stream, timeout_s)
            except (StreamError, FrameError):
                # Some implementations end a stream that they think idle.
                self._stream = None
        self._stream = await self._connection.open_stream([PING_PROTOCOL], timeout_s)
        return await self._over(self._stream, timeout_s)

    async def _over(self, stream: Stream, timeout_s: float) -> float:
        payload = random_bytes(PAYLOAD_BYTES)
        loop = asyncio.get_running_loop()
        begin = loop.time()
        try:
            async with asyncio.timeout(timeout_s):
                await stream.write(payload)
                answer = await stream.read_exactly(PAYLOAD_BYTES)
            if answer != payload:
                raise FrameError(f"{stream.peer_id} answered a ping with other bytes")  # noqa: TRY301
        except BaseException as error:
            self._stream = None
            await stream.reset()
            if isinstance(error, TimeoutError):
                raise Libp2pError(f"{stream.peer_id} did not answer a ping within {timeout_s:g} s") from error
            raise
        return loop.time() - begin
