"""What a host tells those who watch it."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.waku.libp2p.multiaddr import Multiaddr
from fairway.waku.libp2p.peer_id import PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConnected:
    """The first connection with a peer is up. What it speaks is not known yet."""

    peer_id: PeerId
    """Who it is, proven."""
    address: Multiaddr
    """Where it is, as we see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerIdentified:
    """A peer said what it serves, for the first time or because that has changed."""

    peer_id: PeerId
    """Who."""
    protocols: frozenset[str]
    """Everything that it serves now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerDisconnected:
    """The last connection with a peer has ended."""

    peer_id: PeerId
    """Who."""


HostEvent = PeerConnected | PeerIdentified | PeerDisconnected
