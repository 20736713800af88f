"""`Link`: a transport whose bytes are plain until the Noise handshake, and encrypted after it.

A negotiation reads whatever the network delivers; bytes behind its end are put back for the next layer.
"""

from __future__ import annotations

from typing import Protocol

from fairway.libp2p.errors import NegotiationError
from fairway.libp2p.multistream import MultistreamDialer, MultistreamListener
from fairway.libp2p.noise.session import NoiseSession
from fairway.libp2p.transports.transport import ByteTransport


class ByteChannel(Protocol):
    """A `Link` or a stream, over which a protocol is negotiated."""

    async def read(self) -> bytes:
        """Return the next bytes; ``b""`` at the end."""

    async def write(self, data: bytes) -> None:
        """Send ``data``."""

    def unread(self, data: bytes) -> None:
        """Put ``data`` back: the next `read` returns it."""


class Link:
    """A transport, and its Noise session after the handshake."""

    def __init__(self, transport: ByteTransport) -> None:
        self.transport = transport
        self.received_bytes = 0
        """Bytes that came from the network."""
        self.sent_bytes = 0
        """Bytes that were passed to the transport."""
        self._session: NoiseSession | None = None
        self._held = b""

    def secure(self, session: NoiseSession, leftover: bytes) -> None:
        """Encrypt and decrypt from here on; ``leftover`` are encrypted bytes that have arrived already."""
        self._session = session
        self._held = session.receive_data(leftover)

    async def read(self) -> bytes:
        """Return the next bytes, decrypted; ``b""`` at the end. Raises `FrameError` for bytes of another sender."""
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
        """Put ``data`` back: the next `read` returns it."""
        self._held = data + self._held

    def send(self, data: bytes) -> None:
        """Encrypt ``data`` and pass it to the transport."""
        encrypted = data if self._session is None else self._session.encrypt(data)
        self.sent_bytes += len(encrypted)
        self.transport.write(encrypted)

    async def write(self, data: bytes) -> None:
        """Send ``data``; a negotiation sends so few bytes that it need not wait for the transport."""
        self.send(data)


async def negotiate(channel: ByteChannel, negotiation: MultistreamDialer | MultistreamListener) -> str:
    """Agree on a protocol and return it.

    Raises:
        NegotiationError: the sides have no protocol in common, or the peer disconnected.

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
