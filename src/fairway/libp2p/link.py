"""`Link`: a transport that is plain until the Noise handshake and encrypted after it; `Upgrader` secures it.

The steps, for either side: multistream-select negotiates Noise, Noise proves the peer's identity, multistream-select
negotiates the muxer. The caller sets one time limit for all of them. A negotiation leaves the bytes behind its end
unread, for the next layer. The handshake does not name muxers ("Inlining Muxer Negotiation"): js-libp2p, if it
is offered two there, uses another one than it announces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from fairway.errors import ConfigurationError
from fairway.libp2p.errors import ConnectionClosedError, NegotiationError
from fairway.libp2p.multistream import MultistreamDialer, MultistreamListener
from fairway.libp2p.mux.mplex import Mplex
from fairway.libp2p.mux.muxer import Muxer
from fairway.libp2p.mux.yamux import Yamux
from fairway.libp2p.noise.handshake import NOISE_PROTOCOL, NoiseCredentials, NoiseHandshake, Secured
from fairway.libp2p.noise.pattern import Role, generate_noise_key
from fairway.libp2p.noise.session import NoiseSession
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.transports.transport import ByteTransport


class ByteChannel(Protocol):
    """A `Link` or a stream, over which a protocol is negotiated."""

    async def peek(self) -> bytes:
        """Return the next bytes, which stay unread; ``b""`` at the end."""

    async def write(self, data: bytes) -> None:
        """Send ``data``."""

    def skip(self, size_bytes: int) -> None:
        """Read as many bytes of those that `peek` returned."""


class Link:
    """A transport, and its Noise session after the handshake."""

    def __init__(self, transport: ByteTransport) -> None:
        self.transport = transport
        self.received_bytes = 0
        """Bytes received from the network."""
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

    async def peek(self) -> bytes:
        """Return the next bytes, decrypted, which stay unread; ``b""`` at the end. Errors as for `read`."""
        self._held = await self.read()
        return self._held

    def skip(self, size_bytes: int) -> None:
        """Read as many bytes of those that `peek` returned."""
        self._held = self._held[size_bytes:]

    def send(self, data: bytes) -> None:
        """Encrypt ``data`` and pass it to the transport."""
        encrypted = data if self._session is None else self._session.encrypt(data)
        self.sent_bytes += len(encrypted)
        self.transport.write(encrypted)

    async def write(self, data: bytes) -> None:
        """Send ``data`` without waiting for the transport, because a negotiation sends few bytes."""
        self.send(data)


async def negotiate(channel: ByteChannel, negotiation: MultistreamDialer | MultistreamListener) -> str:
    """Agree on a protocol and return it.

    Raises:
        NegotiationError: the sides have no protocol in common, or the peer disconnected.

    """
    if proposal := negotiation.data_to_send():
        await channel.write(proposal)
    while data := await channel.peek():
        result = negotiation.receive_data(data)
        if answer := negotiation.data_to_send():
            await channel.write(answer)
        channel.skip(len(data) - (0 if result is None else len(result.leftover)))
        if result is not None:
            return result.protocol
    raise NegotiationError("the peer left in the middle of a negotiation")


MUXERS: Final[dict[str, type[Muxer]]] = {muxer.protocol: muxer for muxer in (Yamux, Mplex)}
"""The muxers that can be offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """A connection that is ready for streams."""

    peer_id: PeerId
    """The peer's id, which the handshake has proven."""
    link: Link
    """Carries the frames of the muxer."""
    muxer: Muxer
    """The negotiated muxer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrader:
    """The part of each handshake that is the same for all connections of a host."""

    credentials: NoiseCredentials
    """The host's identity key, and the Noise key that it signed."""
    muxers: Sequence[str]
    """The muxers that the host offers and accepts, preferred first."""

    def __post_init__(self) -> None:
        """Raise `ConfigurationError` for unknown muxers, or none."""
        unknown = [name for name in self.muxers if name not in MUXERS]
        if unknown or not self.muxers:
            raise ConfigurationError(f"muxers is {tuple(self.muxers)!r}: give at least one of {', '.join(MUXERS)}")

    async def upgrade(self, link: Link, role: Role, expected_peer: PeerId | None = None) -> Upgraded:
        """Carry out all steps over a link.

        Raises:
            NegotiationError: the peer supports neither Noise nor one of the muxers.
            HandshakeError: the handshake failed, or the peer is not ``expected_peer``.
            ConnectionClosedError: the peer disconnected.

        """
        await negotiate(link, self._negotiation(role, (NOISE_PROTOCOL,)))
        secured = await self._handshake(link, role, expected_peer)
        chosen = await negotiate(link, self._negotiation(role, self.muxers))
        muxer = MUXERS[chosen](initiator=role is Role.INITIATOR)
        return Upgraded(peer_id=secured.peer_id, link=link, muxer=muxer)

    async def _handshake(self, link: Link, role: Role, expected_peer: PeerId | None) -> Secured:
        handshake = NoiseHandshake(
            role=role, credentials=self.credentials, ephemeral=generate_noise_key(), expected_peer=expected_peer
        )
        while True:
            if message := handshake.data_to_send():
                link.send(message)
            data = await link.read()
            if not data:
                raise ConnectionClosedError("the peer left in the middle of the Noise handshake")
            secured = handshake.receive_data(data)
            if secured is not None:
                if message := handshake.data_to_send():
                    link.send(message)
                link.secure(secured.session, secured.leftover)
                return secured

    @staticmethod
    def _negotiation(role: Role, protocols: Sequence[str]) -> MultistreamDialer | MultistreamListener:
        return MultistreamDialer(protocols) if role is Role.INITIATOR else MultistreamListener(protocols.__contains__)
