"""`Upgrader`: makes a secured connection with a muxer out of a transport, for either side.

The steps: multistream-select negotiates Noise, Noise proves the peer's identity, multistream-select negotiates the
muxer. The caller sets one time limit for all of them. The handshake does not name muxers ("Inlining Muxer
Negotiation"): js-libp2p, if it is offered two there, uses another one than it announces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError
from fairway.libp2p.errors import ConnectionClosedError
from fairway.libp2p.link import Link, negotiate
from fairway.libp2p.multistream import MultistreamDialer, MultistreamListener
from fairway.libp2p.mux.limits import MuxerLimits
from fairway.libp2p.mux.mplex import Mplex
from fairway.libp2p.mux.muxer import Muxer
from fairway.libp2p.mux.yamux import Yamux
from fairway.libp2p.noise import (
    NOISE_PROTOCOL,
    NoiseCredentials,
    NoiseHandshake,
    Role,
    Secured,
    generate_noise_key,
)
from fairway.libp2p.peer_id import PeerId

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
    limits: MuxerLimits
    """The bounds of each muxer."""

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
        secured = await self._shake_hands(link, role, expected_peer)
        chosen = await negotiate(link, self._negotiation(role, self.muxers))
        muxer = MUXERS[chosen](initiator=role is Role.INITIATOR, limits=self.limits)
        return Upgraded(peer_id=secured.peer_id, link=link, muxer=muxer)

    async def _shake_hands(self, link: Link, role: Role, expected_peer: PeerId | None) -> Secured:
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
