"""`Host`: a libp2p node, which listens, dials, proves its identity, and serves streams.

Leaving ``async with await Host.start(...) as host`` ends every connection, stream, handler and listener. A misbehaving
peer ends at most its own connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from fairway.libp2p.connection import Connection
from fairway.libp2p.dialer import Dialer
from fairway.libp2p.errors import AddressError, ConnectionClosedError, DialError, Libp2pError
from fairway.libp2p.handlers import Handlers, StreamHandler
from fairway.libp2p.identify import IDENTIFY_PROTOCOL, IDENTIFY_PUSH_PROTOCOL, IdentifyService
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.limits import HANDSHAKE_TIMEOUT_S, ByteBudget, ConnectionAdmission, HostLimits, Ticket
from fairway.libp2p.link import Link, Upgraded, Upgrader
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.mux.mplex import Mplex
from fairway.libp2p.mux.yamux import Yamux
from fairway.libp2p.noise.handshake import NoiseCredentials
from fairway.libp2p.noise.pattern import Role
from fairway.libp2p.peer_book import HostEvent, PeerBook, PeerInfo
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.ping import MAX_STREAMS_PER_PEER, PING_PROTOCOL, answer_pings
from fairway.libp2p.reachable import announced, reachable_addresses
from fairway.libp2p.stream import Stream
from fairway.libp2p.transports.certificate import ServerCertificate
from fairway.libp2p.transports.tcp import TcpTransport, listen_tcp
from fairway.libp2p.transports.tls import TlsTransport
from fairway.libp2p.transports.transport import ByteTransport
from fairway.libp2p.transports.web_origins import WebOrigins
from fairway.libp2p.transports.websocket import WebSocketTransport
from fairway.owned_tasks import OwnedTasks
from fairway.subscription import Subscription

_log: Final = logging.getLogger(__name__)

_LISTEN_BACKLOG: Final = 1_024
"""Connections that the operating system accepts before the host does."""
DEFAULT_AGENT: Final = "fairway"
DEFAULT_MUXERS: Final = (Yamux.protocol, Mplex.protocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatistics:
    """Counts and sizes of a host."""

    connections: int
    """Connections that are up."""
    peers: int
    """Connected peers."""
    pending_handshakes: int
    """Accepted connections whose handshake is not complete."""
    refused_connections: int
    """Connections that were refused because of a limit."""
    failed_handshakes: int
    """Accepted connections whose handshake failed or timed out."""
    inbound_streams: int
    """Streams that peers opened and that are in use."""
    outbound_streams: int
    """Streams that this host opened and that are in use."""
    buffered_bytes: int
    """Received bytes of all connections that are unread or belong to incomplete messages."""
    received_bytes: int
    """Bytes received over all connections since the start, those of the handshakes included."""
    sent_bytes: int
    """Bytes that were sent over them."""
    dials: int
    """Attempts to open a connection."""
    failed_dials: int
    """Attempts that failed."""


class Host:
    """A libp2p node, made by `start`; an async context manager."""

    def __init__(
        self,
        *,
        key: IdentityKey,
        agent: str,
        limits: HostLimits,
        muxers: Sequence[str],
        origins: WebOrigins,
        certificate: ServerCertificate | None = None,
        tls_ca_file: Path | None = None,
    ) -> None:
        self.key = key
        self.peer_id = PeerId.from_public_key(key.public_key)
        self.listening: tuple[Multiaddr, ...] = ()
        """The addresses that the host listens on, with ports and peer id."""
        self.addresses: tuple[Multiaddr, ...] = ()
        """The addresses that the host announces, with its peer id."""
        self._budget = ByteBudget()
        self._admission = ConnectionAdmission(limits)
        self._handlers = Handlers()
        self._book = PeerBook()
        self._identify = IdentifyService(key=key, agent=agent, handlers=self._handlers, book=self._book)
        credentials = NoiseCredentials.make(key)
        self._upgrader = Upgrader(credentials=credentials, muxers=tuple(muxers))
        self._tasks = OwnedTasks()
        self._dialer = Dialer(upgrader=self._upgrader, run=self._run, tasks=self._tasks, tls_ca_file=tls_ca_file)
        self._origins = origins
        self._certificate = certificate
        self._servers: list[asyncio.Server] = []
        self._failed_handshakes = 0
        self._received_bytes = self._sent_bytes = 0
        """Bytes of connections that have ended."""
        self._closed = False

    @classmethod
    async def start(
        cls,
        *,
        key: IdentityKey | None = None,
        listen: Sequence[Multiaddr | str] = (),
        agent: str = DEFAULT_AGENT,
        limits: HostLimits | None = None,
        muxers: Sequence[str] = DEFAULT_MUXERS,
        web_origins: Sequence[str] = (),
        announce: Sequence[Multiaddr | str] = (),
        certificate: ServerCertificate | None = None,
        tls_ca_file: Path | None = None,
    ) -> Self:
        """Start a node.

        Args:
            key: its identity; a new Ed25519 key by default.
            listen: addresses such as ``/ip4/127.0.0.1/tcp/0`` and ``/ip4/127.0.0.1/tcp/0/ws``.
            agent: its agent version for identify.
            limits: how many connections it has.
            muxers: the muxers that it offers and accepts, preferred first.
            web_origins: origins of web pages that may connect, such as ``https://example.org``, or ``*`` for all. Pages
                of this machine may always connect, and so may programs, which send no origin.
            announce: the addresses at which others reach the host, as behind a NAT or a proxy; by default those that it
                listens on, and the machine's own in place of 0.0.0.0 and ::.
            certificate: the certificate for addresses with ``/tls/ws`` that it listens on.
            tls_ca_file: a PEM file of authorities that it trusts beside the system's when it dials ``/tls/ws``.

        Raises:
            AddressError: an address cannot be listened on, or cannot be announced.
            ConfigurationError: an origin or the file of authorities is invalid.
            OSError: a port is in use.

        """
        host = cls(
            key=key or IdentityKey.generate(),
            agent=agent,
            limits=limits or HostLimits(),
            muxers=muxers,
            origins=WebOrigins(web_origins),
            certificate=certificate,
            tls_ca_file=tls_ca_file,
        )
        host._handlers.add(PING_PROTOCOL, answer_pings, MAX_STREAMS_PER_PEER)
        host._handlers.add(IDENTIFY_PROTOCOL, host._identify.answer, None)
        host._handlers.add(IDENTIFY_PUSH_PROTOCOL, host._identify.receive_push, None)
        host.addresses = announced(announce, host.peer_id)
        try:
            for address in listen:
                await host._listen(_parsed(address))
        except BaseException:
            await host.close()
            raise
        host.addresses = host.addresses or reachable_addresses(host.listening)
        host._identify.addresses = tuple(address.without_peer_id() for address in host.addresses)
        return host

    # ---- for applications

    def handle(self, protocol: str, handler: StreamHandler, *, max_streams_per_peer: int | None = None) -> None:
        """Serve a protocol, and announce it to the connected peers.

        ``handler`` is called with each new stream, in a task of its own. The stream is closed when the handler returns,
        and reset when it raises; the error is logged.
        """
        is_new = not self._handlers.serves(protocol)
        self._handlers.add(protocol, handler, max_streams_per_peer)
        if is_new:
            self._identify.push_soon()

    async def connect(self, address: Multiaddr | str, *, timeout_s: float = 10.0) -> Connection:
        """Return a connection with the peer at an address: an open one, or a new one.

        Raises:
            DialError: no connection was made in time; the text gives the reason, and the cause is chained.
            AddressError: the address cannot be dialled.
            LimitError: too many connections are open.

        """
        target = _parsed(address)
        self._check_open()
        wanted = target.peer_id
        if wanted == self.peer_id:
            raise DialError(f"{target} is this node itself: give the address of another one")
        known = self._book.connections_with(wanted) if wanted is not None else ()
        if known:
            return known[-1]
        return await self._dialer.connect(target, timeout_s)

    async def open_stream(self, peer_id: PeerId, protocols: Sequence[str], *, timeout_s: float = 10.0) -> Stream:
        """Open a stream to a connected peer, with the first of ``protocols`` that it supports.

        Raises:
            ConnectionClosedError: there is no connection with that peer.
            NegotiationError: the peer supports none of them, or did not answer in time.
            LimitError: too many streams are open.

        """
        return await self._connection_with(peer_id).open_stream(protocols, timeout_s)

    async def request(self, peer_id: PeerId, protocol: str, request: bytes, *, max_response_bytes: int) -> bytes | None:
        """Send one message to a connected peer on a new stream, and return the one that answers it.

        Raises `ConnectionClosedError` if there is no connection with that peer, and the errors of `Connection.request`.
        """
        return await self._connection_with(peer_id).request(
            protocol,
            request,
            max_response_bytes=max_response_bytes,
            is_announced=protocol in self.protocols_of(peer_id),
        )

    def connections(self) -> tuple[Connection, ...]:
        """Return the open connections."""
        return self._book.connections()

    def protocols_of(self, peer_id: PeerId) -> frozenset[str]:
        """Return the protocols that a connected peer announced; none before its identify message."""
        info = self._book.info(peer_id)
        return info.protocols if info is not None else frozenset()

    def info_of(self, peer_id: PeerId) -> PeerInfo | None:
        """Return the identify message of a connected peer, or None before it arrives."""
        return self._book.info(peer_id)

    def watch(self) -> Subscription[HostEvent]:
        """Return a subscription to the events from now on, until it or the host is closed."""
        return self._book.watch()

    async def disconnect(self, peer_id: PeerId) -> None:
        """End every connection with a peer."""
        for connection in self._book.connections_with(peer_id):
            await connection.close()

    def statistics(self) -> HostStatistics:
        """Return the present counts and sizes."""
        connections = self._book.connections()
        muxers = [connection.mux for connection in connections]
        return HostStatistics(
            connections=len(connections),
            peers=len({connection.peer_id for connection in connections}),
            pending_handshakes=self._admission.pending,
            refused_connections=self._admission.refused,
            failed_handshakes=self._failed_handshakes,
            inbound_streams=sum(muxer.inbound_streams for muxer in muxers),
            outbound_streams=sum(muxer.outbound_streams for muxer in muxers),
            buffered_bytes=self._budget.used_bytes,
            received_bytes=self._received_bytes + sum(connection.received_bytes for connection in connections),
            sent_bytes=self._sent_bytes + sum(connection.sent_bytes for connection in connections),
            dials=self._dialer.attempts,
            failed_dials=self._dialer.failures,
        )

    async def close(self) -> None:
        """End all connections, listeners and tasks. Can be called twice."""
        self._closed = True
        for server in self._servers:
            server.close()
        connections = self._book.connections()
        if connections:
            await asyncio.gather(*(connection.close() for connection in connections))
        await self._tasks.close()
        self._book.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Host {self.peer_id} with {len(self._book.connections())} connections>"

    # ---- listening

    async def _listen(self, address: Multiaddr) -> None:
        kind = address.transport or "tcp"
        if kind == "wss" and self._certificate is None:
            raise AddressError(
                f"{address} cannot be listened on without a certificate: give one, or put a proxy with one before an "
                "address with /ws"
            )
        server = await listen_tcp(address.without_peer_id(), lambda raw: self._accepted(raw, kind), _LISTEN_BACKLOG)
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        bound = Multiaddr.of(address.host or "", port, transport=kind)
        self.listening = (*self.listening, bound.with_peer_id(self.peer_id))

    def _accepted(self, raw: TcpTransport, kind: str) -> None:
        try:
            self._check_open()
            ticket = self._admission.begin_handshake(raw.remote_address.host or "", raw.abort)
        except Libp2pError as error:
            _log.debug("%s was refused: %s", raw.remote_address, error)
            raw.abort()
        else:
            self._own(self._serve_accepted(raw, kind, ticket), f"connection from {raw.remote_address}")

    async def _serve_accepted(self, raw: TcpTransport, kind: str, ticket: Ticket) -> None:
        try:
            try:
                async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                    link = Link(await self._transport_of(raw, kind))
                    upgraded = await self._upgrader.upgrade(link, Role.RESPONDER)
            except (Libp2pError, OSError) as error:
                # TimeoutError, which the time limit raises, is an OSError as well.
                self._failed_handshakes += 1
                _log.debug("no handshake with %s: %s", raw.remote_address, error or "it took too long")
                return
            self._admission.handshake_over(ticket)
            await self._run(upgraded, link.transport.remote_address)
        finally:
            raw.abort()
            self._admission.gone(ticket)

    async def _transport_of(self, raw: TcpTransport, kind: str) -> ByteTransport:
        if kind == "tcp":
            return raw
        below: ByteTransport = raw
        if kind == "wss" and self._certificate is not None:
            below = await TlsTransport.accept(raw, self._certificate.context)
        return await WebSocketTransport.accept(below, self._origins, kind=kind)

    # ---- running connections

    async def _run(
        self, upgraded: Upgraded, address: Multiaddr, ready: asyncio.Future[Connection] | None = None
    ) -> None:
        """Run a connection until it ends; for one that this host dials, resolve ``ready`` once it can be used."""
        if upgraded.peer_id == self.peer_id:
            raise DialError(f"{address} is this node itself: give the address of another one")
        accepted = ready is None
        self._admission.enter(upgraded.peer_id, accepted=accepted)
        connection = Connection(
            upgraded,
            dialled=not accepted,
            remote_address=address,
            handlers=self._handlers,
            budget=self._budget,
        )
        self._book.add(connection)
        try:
            connection.spawn(self._identify.ask(connection), f"identify {upgraded.peer_id}")
            if ready is not None and not ready.done():
                ready.set_result(connection)
            await connection.run()
        finally:
            self._book.remove(connection)
            self._received_bytes += connection.received_bytes
            self._sent_bytes += connection.sent_bytes
            self._admission.leave(upgraded.peer_id, accepted=accepted)

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that ends with the host at the latest."""
        return self._tasks.spawn(_logged(work, name), name)

    def _connection_with(self, peer_id: PeerId) -> Connection:
        known = self._book.connections_with(peer_id)
        if not known:
            raise ConnectionClosedError(f"there is no connection with {peer_id}: connect first")
        return known[-1]

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionClosedError("this host is closed: start another one")


async def _logged(work: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await work
    except Libp2pError as error:
        _log.debug("%s: %s", name, error)
    except Exception:  # noqa: BLE001  any fault of one connection
        # A connection never ends the node, even by a fault of this program.
        _log.exception("%s failed", name)


def _parsed(address: Multiaddr | str) -> Multiaddr:
    return Multiaddr.parse(address) if isinstance(address, str) else address
