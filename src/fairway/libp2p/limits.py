"""`HostLimits`: the limits of a host; `ConnectionAdmission` and `ByteBudget` bound connections and bytes.

Streams are bounded in `fairway.libp2p.mux.muxer`, times in `connection` and `stream`. Invariant: a peer that reaches a
bound loses a stream or connection of its own, not one of another peer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final, Protocol, TypeVar

from fairway.errors import ConfigurationError
from fairway.libp2p.errors import LimitError
from fairway.libp2p.peer_id import PeerId
from fairway.type_checks import check_fields

MAX_BUFFERED_BYTES: Final = 268_435_456
"""Received bytes of all connections that are unread or belong to incomplete messages. Beyond it the connection that
holds the most resets its fullest stream."""
MAX_CONNECTIONS_PER_PEER: Final = 4
"""Connections with one peer id; two peers that dial each other at the same time may have two."""
MAX_PENDING_HANDSHAKES: Final = 128
"""Accepted connections in the handshake; one more ends the oldest of the IP address that has the most."""
MAX_PENDING_HANDSHAKES_PER_IP: Final = 64
"""Accepted connections of one IP address in the handshake; one more ends its oldest."""
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Time from the first byte of a connection until its muxer is negotiated, in either direction."""


class Holder(Protocol):
    """A connection that holds bytes."""

    def free_bytes(self) -> None:
        """Free some bytes, and call `ByteBudget.hold` with the new number."""


class ByteBudget:
    """The bytes that all connections of a host hold together."""

    def __init__(self) -> None:
        self.used_bytes = 0
        """Bytes that all holders have."""
        self._held: dict[Holder, int] = {}

    def hold(self, holder: Holder, size_bytes: int) -> None:
        """Note that a holder has ``size_bytes`` now."""
        before = self._held.get(holder, 0)
        if size_bytes == before:
            return
        if size_bytes:
            self._held[holder] = size_bytes
        else:
            del self._held[holder]
        self.used_bytes += size_bytes - before

    def enforce(self) -> None:
        """While the limit is exceeded, free bytes of the holder with the most; stop if it frees none."""
        while self.used_bytes > MAX_BUFFERED_BYTES:
            before = self.used_bytes
            max(self._held, key=self._held.__getitem__).free_bytes()
            if self.used_bytes >= before:
                return


_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """The numbers of connections that a host allows."""

    max_connections: int = 512
    """Connections in both directions. An eighth is kept for connections that this host opens."""
    max_connections_per_ip: int = 256
    """Accepted connections from one IP address, or one /64 network of IPv6, including those in the handshake."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("max_connections", "max_connections_per_ip"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def max_accepted_connections(self) -> int:
        """Connections that peers may open."""
        return self.max_connections - self.max_connections // 8


@dataclass(slots=True, eq=False)
class Ticket:
    """An accepted connection, as `ConnectionAdmission` counts it."""

    ip: str
    """The IP address or /64 network that it came from."""
    end: Callable[[], None]
    """Ends the connection in favour of a newer handshake."""
    is_pending: bool = True
    """Whether the handshake is under way."""
    is_counted: bool = True
    """Whether the connection counts for its IP address."""


class ConnectionAdmission:
    """Counts connections and handshakes under way.

    When there are too many handshakes, a new one ends the oldest. An honest peer completes its handshake in
    milliseconds, so that silent connections cannot block it.
    """

    def __init__(self, limits: HostLimits) -> None:
        self._limits = limits
        # In order of arrival: the first is the oldest.
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
        """Accepted connections whose handshake is under way."""
        return len(self._pending)

    def begin_handshake(self, ip: str, end: Callable[[], None]) -> Ticket:
        """Count an accepted connection that begins its handshake; this may end another handshake.

        Raises:
            LimitError: there are too many connections; the caller closes this one.

        """
        ip = _place_of(ip)
        from_there = self._pending_by_ip.get(ip, {})
        if len(from_there) >= MAX_PENDING_HANDSHAKES_PER_IP:
            self._make_room(from_there)
        elif self.pending >= MAX_PENDING_HANDSHAKES:
            self._make_room(max(self._pending_by_ip.values(), key=len))
        self._check_total(accepted=True)
        self._check(self._accepted_by_ip[ip], self._limits.max_connections_per_ip, "max_connections_per_ip")
        ticket = Ticket(ip, end)
        self._pending[ticket] = None
        self._pending_by_ip.setdefault(ip, {})[ticket] = None
        self._accepted_by_ip[ip] += 1
        return ticket

    def handshake_over(self, ticket: Ticket) -> None:
        """Note that a handshake has succeeded or failed. Can be called twice."""
        if ticket.is_pending:
            ticket.is_pending = False
            del self._pending[ticket]
            from_there = self._pending_by_ip[ticket.ip]
            del from_there[ticket]
            if not from_there:
                del self._pending_by_ip[ticket.ip]

    def gone(self, ticket: Ticket) -> None:
        """Note that an accepted connection has ended. Can be called twice."""
        self.handshake_over(ticket)
        if ticket.is_counted:
            ticket.is_counted = False
            _count_down(self._accepted_by_ip, ticket.ip)

    def enter(self, peer_id: PeerId, *, accepted: bool) -> None:
        """Count a connection after its handshake; ``accepted`` says whether the peer opened it.

        Raises:
            LimitError: the host, or this peer, has too many connections; the caller closes this one.

        """
        self._check_total(accepted=accepted)
        self._check(self._by_peer[peer_id], MAX_CONNECTIONS_PER_PEER, "the limit for a peer")
        self._connections += 1
        self._accepted += accepted
        self._by_peer[peer_id] += 1

    def leave(self, peer_id: PeerId, *, accepted: bool) -> None:
        """Note that a connection counted by `enter` has ended."""
        self._connections -= 1
        self._accepted -= accepted
        _count_down(self._by_peer, peer_id)

    def _make_room(self, crowd: dict[Ticket, None]) -> None:
        oldest = next(iter(crowd))
        self.refused += 1
        self.gone(oldest)
        oldest.end()

    def _check_total(self, *, accepted: bool) -> None:
        self._check(self._connections, self._limits.max_connections, "max_connections")
        if accepted:
            self._check(self._accepted, self._limits.max_accepted_connections, "max_accepted_connections")

    def _check(self, count: int, limit: int, name: str) -> None:
        if count >= limit:
            self.refused += 1
            raise LimitError(f"{name} is {limit}, and as many exist: raise it, or wait until one ends")


def _place_of(ip: str) -> str:
    """Return the unit that limits count: the IPv4 address, or the /64 network of IPv6, which belongs to one owner."""
    if ":" not in ip:
        return ip
    address = IPv6Address(ip)
    return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))


def _count_down(counter: Counter[_Key], key: _Key) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
