"""`HostLimits`: the bounds of a host; `Admission`: which connections it accepts.

Every resource that a peer can take is named here with its bound: connections, handshakes, streams, bytes, time. The
invariant: a peer that reaches a bound loses its own stream or connection, and no other peer's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import Final, TypeVar

from fairway.waku.libp2p.errors import LimitError
from fairway.waku.libp2p.mux.limits import MuxerLimits, require_positive
from fairway.waku.libp2p.peer_id import PeerId

_MIB: Final = 1_048_576

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """The bounds of a host; times are in seconds."""

    max_connections: int = 512
    """Connections in all, either direction."""
    max_accepted_connections: int = 448
    """Of these, connections that peers began: the rest is for those that we dial, which no crowd keeps us from."""
    max_connections_per_peer: int = 4
    """Connections with one peer id: two that dial each other at once may end up with two."""
    max_connections_per_ip: int = 256
    """Connections that were accepted from one IP address, or one /64 network of IPv6, handshakes included."""
    max_pending_handshakes: int = 128
    """Accepted connections whose peer is not proven yet; one more displaces the oldest of the fullest IP address."""
    max_pending_handshakes_per_ip: int = 64
    """The same for one IP address; one more displaces its oldest."""
    handshake_timeout_s: float = 10.0
    """From the first byte of a connection to its muxer, all steps together, in either direction."""
    negotiation_timeout_s: float = 10.0
    """How long a stream that a peer opened may stay silent about its protocol."""
    close_linger_s: float = 10.0
    """How long a stream that we closed waits for the peer to close its half before it is reset."""
    slow_reader_timeout_s: float = 10.0
    """How long one full mplex stream may hold up its connection before it is reset."""
    keepalive_interval_s: float = 30.0
    """A peer that sent nothing for so long is pinged (yamux), and is gone after as long again without a word."""
    write_stall_timeout_s: float = 30.0
    """A peer that takes nothing of what waits for it for so long is disconnected."""
    max_buffered_bytes: int = 256 * _MIB
    """Received bytes of all connections that are unread, or belong to messages that are not complete; beyond it
    the fullest stream of the connection that holds the most is reset."""
    muxer: MuxerLimits = field(default_factory=MuxerLimits)
    """The bounds of each connection's muxer."""

    def __post_init__(self) -> None:
        """Refuse limits that nothing could be done within."""
        require_positive(self)


@dataclass(slots=True, eq=False)
class Ticket:
    """One accepted connection, from its first byte to its end."""

    ip: str
    """Where it came from."""
    turn_away: Callable[[], None]
    """Ends the connection, to make room for a newer handshake."""
    is_pending: bool = True
    """Whether its peer is still to be proven."""
    is_counted: bool = True
    """Whether it still takes a place of its IP address."""


class Admission:
    """Counts connections and pending handshakes.

    When there are too many handshakes, the oldest is ended for a new one: an honest peer completes its handshake in
    milliseconds, so silent connections cannot keep it out.
    """

    def __init__(self, limits: HostLimits) -> None:
        self._limits = limits
        # In the order in which they came, so the first one is the oldest.
        self._pending: dict[Ticket, None] = {}
        self._pending_by_ip: dict[str, dict[Ticket, None]] = {}
        self._accepted_by_ip: Counter[str] = Counter()
        self._by_peer: Counter[PeerId] = Counter()
        self._connections = 0
        self._accepted = 0
        self.refused = 0
        """Connections that were refused, at once or during their handshake."""

    @property
    def pending(self) -> int:
        """Accepted connections whose peer is not proven yet."""
        return len(self._pending)

    def knock(self, ip: str, turn_away: Callable[[], None]) -> Ticket:
        """Let an accepted connection begin its handshake; another one may be turned away for it.

        Raises:
            LimitError: too many are connected already; close it.

        """
        limits = self._limits
        ip = _place_of(ip)
        from_there = self._pending_by_ip.get(ip, {})
        if len(from_there) >= limits.max_pending_handshakes_per_ip:
            self._make_room(from_there)
        elif self.pending >= limits.max_pending_handshakes:
            self._make_room(max(self._pending_by_ip.values(), key=len))
        self._check_total(accepted=True)
        self._check(self._accepted_by_ip[ip], limits.max_connections_per_ip, "max_connections_per_ip")
        ticket = Ticket(ip, turn_away)
        self._pending[ticket] = None
        self._pending_by_ip.setdefault(ip, {})[ticket] = None
        self._accepted_by_ip[ip] += 1
        return ticket

    def handshake_over(self, ticket: Ticket) -> None:
        """Note that a handshake ended, well or not. May be said twice."""
        if ticket.is_pending:
            ticket.is_pending = False
            del self._pending[ticket]
            from_there = self._pending_by_ip[ticket.ip]
            del from_there[ticket]
            if not from_there:
                del self._pending_by_ip[ticket.ip]

    def gone(self, ticket: Ticket) -> None:
        """Note that an accepted connection ended. May be said twice."""
        self.handshake_over(ticket)
        if ticket.is_counted:
            ticket.is_counted = False
            _count_down(self._accepted_by_ip, ticket.ip)

    def enter(self, peer_id: PeerId, *, accepted: bool) -> None:
        """Count a connection whose peer is proven; ``accepted`` says whether the peer began it.

        Raises:
            LimitError: the host, or this peer, has too many; close it.

        """
        self._check_total(accepted=accepted)
        self._check(self._by_peer[peer_id], self._limits.max_connections_per_peer, "max_connections_per_peer")
        self._connections += 1
        self._accepted += accepted
        self._by_peer[peer_id] += 1

    def leave(self, peer_id: PeerId, *, accepted: bool) -> None:
        """Note that such a connection ended."""
        self._connections -= 1
        self._accepted -= accepted
        _count_down(self._by_peer, peer_id)

    def _make_room(self, crowd: dict[Ticket, None]) -> None:
        oldest = next(iter(crowd))
        self.refused += 1
        self.gone(oldest)
        oldest.turn_away()

    def _check_total(self, *, accepted: bool) -> None:
        self._check(self._connections, self._limits.max_connections, "max_connections")
        if accepted:
            self._check(self._accepted, self._limits.max_accepted_connections, "max_accepted_connections")

    def _check(self, count: int, limit: int, name: str) -> None:
        if count >= limit:
            self.refused += 1
            raise LimitError(f"{name} is {limit}, and so many there are: raise it, or wait until one ends")


def _place_of(ip: str) -> str:
    """Return the address or network that limits count by: for IPv6 the /64 network, which one owner has whole."""
    if ":" not in ip:
        return ip
    address = IPv6Address(ip)
    return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))


def _count_down(counter: Counter[_Key], key: _Key) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
