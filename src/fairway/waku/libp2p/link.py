"""A transport on its way up: bytes as they are until the Noise handshake, sealed and opened after it.

Each negotiation reads what the network happens to deliver; what stood behind its end is put back for the next layer.
"""

from __future__ import annotations

from typing import Protocol

from fairway.waku.libp2p.errors import NegotiationError
from fairway.waku.libp2p.multistream import MultistreamDialer, MultistreamListener
from fairway.waku.libp2p.noise.session import NoiseSession
from fairway.waku.libp2p.transports.transport import ByteTransport


class ByteChannel(Protocol):
    """What a negotiation needs: a `Link` or a stream."""

    async def read(self) -> bytes:
        """Return what arrives next; ``b""`` at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send ``data``."""
        ...

    def unread(self, data: bytes) -> None:
        """Put ``data`` back: it is read next."""
        ...


class Link:
    """A transport with a Noise session, once there is one, and with a place for bytes that were read too early."""

    def __init__(self, transport: ByteTransport) -> None:
        self.transport = transport
        self.received_bytes = 0
        """Bytes that came from the network."""
        self.sent_bytes = 0
        """Bytes that went to the network."""
        self._session: NoiseSession | None = None
        self._held = b""

    def secure(self, session: NoiseSession, leftover: bytes) -> None:
        """Seal and open everything from here on; ``leftover`` are sealed bytes that are here already."""
        self._session = session
        self._held = session.receive_data(leftover)

    async def read(self) -> bytes:
        """Return what arrives next, opened; ``b""`` at the end. `FrameError` for what the peer did not seal."""
        if self._held:
            data, self._held = self._held, b""
            return data
        while data := await self.transport.read():
            self.received_bytes += len(data)
            if self._session is None:
                return data
            if plaintext := self._session.receive_data(data):
                return plaintext
        if self._session is not None:
            self._session.receive_eof()
        return b""

    def unread(self, data: bytes) -> None:
        """Put ``data`` back: it is read next."""
        self._held = data + self._held

    def send(self, data: bytes) -> None:
        """Seal ``data`` and hand it to the transport."""
        sealed = data if self._session is None else self._session.encrypt(data)
        self.sent_bytes += len(sealed)
        self.transport.write(sealed)

    async def write(self, data: bytes) -> None:
        """Send ``data``; a negotiation's few bytes need no back-pressure."""
        self.send(data)


async def negotiate(channel: ByteChannel, negotiation: MultistreamDialer | MultistreamListener) -> str:
    """Agree on a protocol and return it.

    Raises:
        NegotiationError: there is none, or the other side went away.

    """
    await channel.write(negotiation.data_to_send())
    while True:
        data = await channel.read()
        if not data:
            raise NegotiationError("the peer left in the middle of a negotiation")
        result = negotiation.receive_data(data)
        if answer := negotiation.data_to_send():
            await channel.write(answer)
        if result is not None:
            channel.unread(result.leftover)
            return result.protocol
