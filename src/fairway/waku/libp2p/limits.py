"""What a host lets its peers use, and who still gets in.

Every resource that a peer can take is named here with its bound: connections, handshakes, streams, bytes, time. The
invariant: a peer that reaches a bound loses its own stream or connection, and no other peer's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeVar

from fairway.waku.libp2p.errors import LimitError
from fairway.waku.libp2p.mux.muxer import MuxerLimits
from fairway.waku.libp2p.peer_id import PeerId

_MIB: Final = 1_048_576

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """The bounds of a host; times are in seconds."""

    max_connections: int = 512
    """Connections in all, either direction."""
    max_connections_per_peer: int = 4
    """Connections with one peer id: two that dial each other at once may end up with two."""
    max_connections_per_ip: int = 256
    """Connections that were accepted from one IP address, handshakes included."""
    max_pending_handshakes: int = 128
    """Accepted connections whose peer is not proven yet; one more is closed at once."""
    max_pending_handshakes_per_ip: int = 64
    """The same for one IP address."""
    handshake_timeout_s: float = 10.0
    """From the first byte of a connection to its muxer, all steps together, in either direction."""
    dial_timeout_s: float = 10.0
    """The longest that one dial takes, whoever waits for it: name, TCP, TLS, WebSocket and handshake."""
    negotiation_timeout_s: float = 10.0
    """How long a stream that a peer opened may stay silent about its protocol."""
    max_streams_per_protocol: int = 128
    """Streams of one protocol that one peer has open, unless ``Host.handle`` says otherwise."""
    close_linger_s: float = 10.0
    """How long a stream that we closed waits for the peer to close its half before it is reset."""
    slow_reader_timeout_s: float = 10.0
    """How long one full mplex stream may hold up its connection before it is reset."""
    keepalive_interval_s: float = 30.0
    """A peer that sent nothing for so long is pinged (yamux), and is gone after as long again without a word."""
    write_stall_timeout_s: float = 30.0
    """A peer that takes nothing of what waits for it for so long is disconnected."""
    max_buffered_bytes: int = 256 * _MIB
    """Received and unread bytes of all connections; the connection that goes beyond it loses its fullest stream."""
    listen_backlog: int = 256
    """Connections that the operating system holds for us while we are busy."""
    muxer: MuxerLimits = field(default_factory=MuxerLimits)
    """The bounds of each connection's muxer."""


@dataclass(slots=True)
class ByteBudget:
    """The bytes that all connections of a host hold together."""

    limit_bytes: int
    """How many there may be."""
    used_bytes: int = 0
    """How many there are."""

    @property
    def is_exceeded(self) -> bool:
        """Whether somebody has to give way."""
        return self.used_bytes > self.limit_bytes


class Admission:
    """Counts who is in and who is at the door."""

    def __init__(self, limits: HostLimits) -> None:
        self._limits = limits
        self._pending = 0
        self._pending_by_ip: Counter[str] = Counter()
        self._accepted_by_ip: Counter[str] = Counter()
        self._by_peer: Counter[PeerId] = Counter()
        self._connections = 0
        self.refused = 0
        """Connections that were turned away."""

    @property
    def pending(self) -> int:
        """Accepted connections whose peer is not proven yet."""
        return self._pending

    def knock(self, ip: str) -> None:
        """Let an accepted connection begin its handshake.

        Raises:
            LimitError: there are too many already; close it.

        """
        limits = self._limits
        self._check(self._connections + self._pending, limits.max_connections, "max_connections")
        self._check(self._pending, limits.max_pending_handshakes, "max_pending_handshakes")
        self._check(self._pending_by_ip[ip], limits.max_pending_handshakes_per_ip, "max_pending_handshakes_per_ip")
        self._check(self._accepted_by_ip[ip], limits.max_connections_per_ip, "max_connections_per_ip")
        self._pending += 1
        self._pending_by_ip[ip] += 1
        self._accepted_by_ip[ip] += 1

    def handshake_over(self, ip: str) -> None:
        """Note that a handshake ended, well or not."""
        self._pending -= 1
        _count_down(self._pending_by_ip, ip)

    def accepted_gone(self, ip: str) -> None:
        """Note that an accepted connection ended."""
        _count_down(self._accepted_by_ip, ip)

    def enter(self, peer_id: PeerId) -> None:
        """Count a connection whose peer is proven.

        Raises:
            LimitError: the host, or this peer, has too many; close it.

        """
        self._check(self._connections, self._limits.max_connections, "max_connections")
        self._check(self._by_peer[peer_id], self._limits.max_connections_per_peer, "max_connections_per_peer")
        self._connections += 1
        self._by_peer[peer_id] += 1

    def leave(self, peer_id: PeerId) -> None:
        """Note that such a connection ended."""
        self._connections -= 1
        _count_down(self._by_peer, peer_id)

    def _check(self, count: int, limit: int, name: str) -> None:
        if count >= limit:
            self.refused += 1
            raise LimitError(f"{name} is {limit}, and so many there are: raise it, or wait until one ends")


def _count_down(counter: Counter[_Key], key: _Key) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
