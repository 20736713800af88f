"""`IdentifyService`: exchanges identify messages with the peers of a host.

It asks each new peer, answers the requests of peers, and pushes a message to all peers when the protocols change.
"""

from __future__ import annotations

import asyncio
from typing import Final

from fairway.environment import time_ns
from fairway.libp2p.connection import Connection
from fairway.libp2p.handlers import Handlers
from fairway.libp2p.identify import (
    IDENTIFY_PROTOCOL,
    IDENTIFY_PUSH_PROTOCOL,
    MAX_FRAMES,
    MAX_MESSAGE_BYTES,
    decode_identify,
    encode_identify,
)
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_book import PeerBook
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.stream import Stream

TIMEOUT_S: Final = 10.0
"""Time for a peer to send its message, or to read ours."""


class IdentifyService:
    """Both protocols of identify, for one host."""

    def __init__(self, *, key: IdentityKey, agent: str, handlers: Handlers, book: PeerBook) -> None:
        self.addresses: tuple[Multiaddr, ...] = ()
        """The addresses to announce."""
        self._key = key
        self._agent = agent
        self._handlers = handlers
        self._book = book
        self._push_scheduled = False

    async def ask(self, connection: Connection) -> None:
        """Ask a peer for its identify message."""
        async with await connection.open_stream([IDENTIFY_PROTOCOL], TIMEOUT_S) as stream:
            message = await _read_message(stream)
        self._learn(connection.peer_id, message)

    async def answer(self, stream: Stream) -> None:
        """Send the identify message of this host."""
        await stream.write_frame(self._message(stream.connection.observed_address))

    async def receive_push(self, stream: Stream) -> None:
        """Receive a changed identify message of a peer."""
        self._learn(stream.peer_id, await _read_message(stream))

    def push_soon(self) -> None:
        """Send all peers a new identify message at the end of this turn of the event loop."""
        if not self._push_scheduled and self._book.connections():
            self._push_scheduled = True
            asyncio.get_running_loop().call_soon(self._push_to_all)

    def _push_to_all(self) -> None:
        self._push_scheduled = False
        for connection in self._book.connections():
            if not connection.is_closed:
                connection.spawn(self._push(connection), f"identify push to {connection.peer_id}")

    async def _push(self, connection: Connection) -> None:
        async with asyncio.timeout(TIMEOUT_S), await connection.open_stream([IDENTIFY_PUSH_PROTOCOL]) as stream:
            await stream.write_frame(self._message(connection.observed_address))

    def _message(self, observed: Multiaddr) -> bytes:
        return encode_identify(
            key=self._key,
            addresses=self.addresses,
            protocols=self._handlers.protocols,
            agent=self._agent,
            observed=observed,
            # A newer record of a peer must have a greater number, also after a restart.
            sequence_number=time_ns(),
        )

    def _learn(self, peer_id: PeerId, message: bytes) -> None:
        self._book.identified(peer_id, decode_identify(message, peer_id, self._book.info(peer_id)))


async def _read_message(stream: Stream) -> bytes:
    """Return the frames of a message, joined; those that arrived, if the peer does not end the stream in time.

    Raises:
        FrameError: a frame is too long, or the stream ends within one.
        StreamResetError: the stream was reset before the end.
        TimeoutError: no frame arrived in time.

    """
    frames: list[bytes] = []
    room_bytes = MAX_MESSAGE_BYTES
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while len(frames) < MAX_FRAMES and (frame := await stream.read_frame(room_bytes)) is not None:
                frames.append(frame)
                room_bytes -= len(frame)
    except TimeoutError:
        if not frames:
            raise
    return b"".join(frames)
