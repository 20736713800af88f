"""`PeerBook`: the connected peers of a host and their identify messages; it publishes the events of `Host.watch`."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.libp2p.connection import Connection
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId
from fairway.subscription import Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerInfo:
    """The description of a peer from its identify messages."""

    protocols: frozenset[str] = frozenset()
    """The protocols that it serves."""
    agent: str = ""
    """Name and version of its program."""
    address: Multiaddr | None = None
    """The first of its addresses that can be dialled; None if it names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConnected:
    """The first connection with a peer is open; its protocols are not known yet."""

    peer_id: PeerId


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


class PeerBook:
    """The connections of a host by peer. The identify message of a peer is removed with its last connection."""

    def __init__(self) -> None:
        self._connections: dict[PeerId, list[Connection]] = {}
        self._info: dict[PeerId, PeerInfo] = {}
        self._watchers: list[Subscription[HostEvent]] = []

    def add(self, connection: Connection) -> None:
        """Add a new connection."""
        of_peer = self._connections.setdefault(connection.peer_id, [])
        of_peer.append(connection)
        if len(of_peer) == 1:
            self._publish(PeerConnected(peer_id=connection.peer_id))

    def remove(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        of_peer = self._connections[connection.peer_id]
        of_peer.remove(connection)
        if not of_peer:
            del self._connections[connection.peer_id]
            self._info.pop(connection.peer_id, None)
            self._publish(PeerDisconnected(peer_id=connection.peer_id))

    def identified(self, peer_id: PeerId, info: PeerInfo) -> None:
        """Keep the identify message of a connected peer; publish an event if its protocols have changed."""
        if peer_id not in self._connections:
            return
        before = self._info.get(peer_id)
        self._info[peer_id] = info
        if before is None or before.protocols != info.protocols:
            self._publish(PeerIdentified(peer_id=peer_id, protocols=info.protocols))

    def info(self, peer_id: PeerId) -> PeerInfo | None:
        """Return the identify message of a connected peer, or None before it arrives."""
        return self._info.get(peer_id)

    def connections(self) -> tuple[Connection, ...]:
        """Return every connection."""
        return tuple(connection for of_peer in self._connections.values() for connection in of_peer)

    def connections_with(self, peer_id: PeerId) -> tuple[Connection, ...]:
        """Return the open connections with one peer, oldest first."""
        return tuple(one for one in self._connections.get(peer_id, ()) if not one.is_closed)

    def watch(self) -> Subscription[HostEvent]:
        """Return a subscription to the events from now on."""
        subscription: Subscription[HostEvent] = Subscription(on_close=lambda: self._watchers.remove(subscription))
        self._watchers.append(subscription)
        return subscription

    def close(self) -> None:
        """End every subscription."""
        for subscription in tuple(self._watchers):
            subscription.close()

    def _publish(self, event: HostEvent) -> None:
        for subscription in tuple(self._watchers):
            subscription.put(event)
