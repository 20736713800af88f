"""The events of `Host.watch`."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.waku.libp2p.multiaddr import Multiaddr
from fairway.waku.libp2p.peer_id import PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConnected:
    """The first connection with a peer is open; its protocols are not known yet."""

    peer_id: PeerId
    """The peer's id, which the handshake has proven."""
    address: Multiaddr
    """The address that was dialled, or from which the peer connected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerIdentified:
    """A peer announced its protocols for the first time, or they have changed."""

    peer_id: PeerId
    protocols: frozenset[str]
    """All protocols that the peer serves now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerDisconnected:
    """The last connection with a peer has ended."""

    peer_id: PeerId


HostEvent = PeerConnected | PeerIdentified | PeerDisconnected
