"""TCP on asyncio's transports.

Small writes are sent at once (TCP_NODELAY). TCP keep-alive finds a machine that has vanished. The addresses of a name
are tried as in RFC 8305 ("happy eyeballs"); a name with one address causes no delay.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, Final

from fairway.libp2p.errors import AddressError
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.transports.transport import ByteTransport

_READ_AHEAD_BYTES: Final = 262_144
_WRITE_HIGH_BYTES: Final = 262_144
_WRITE_LOW_BYTES: Final = 65_536
_WRITE_LIMIT_BYTES: Final = 4_194_304
_CLOSE_TIMEOUT_S: Final = 1.0
_EYEBALLS_DELAY_S: Final = 0.25
_FAMILIES: Final = {"ip4": socket.AF_INET, "ip6": socket.AF_INET6, "dns4": socket.AF_INET, "dns6": socket.AF_INET6}
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class TcpTransport(asyncio.Protocol, ByteTransport):
    """One TCP connection. Made by `dial_tcp` and `listen_tcp`."""

    def __init__(self, on_connected: Callable[[TcpTransport], None] | None = None) -> None:
        self._on_connected = on_connected
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._chunks: list[bytes] = []
        self._waiting_bytes = 0
        self._reader: asyncio.Future[None] | None = None
        self._ended = False
        self._paused_reading = False
        self._paused_writing = False

    # ---- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the options of the socket, and call ``on_connected``."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES, low=_WRITE_LOW_BYTES)
        connected: socket.socket = transport.get_extra_info("socket")
        # The peer may have disconnected already, and not every system has every option.
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):
                    connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.remote_address = _address(transport.get_extra_info("peername"))
        if self._on_connected is not None:
            self._on_connected(self)

    def data_received(self, data: bytes) -> None:
        """Keep received bytes for the reader; stop receiving when there are too many."""
        self._chunks.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _READ_AHEAD_BYTES and not self._paused_reading and self._transport is not None:
            self._paused_reading = True
            self._transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> None:
        """End the connection: no layer above uses half-closed connections."""
        self._ended = True
        self._wake_reader()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        """End the stream; the reader still gets the bytes that have arrived."""
        self._ended = True
        self._paused_writing = False
        if not self._lost.done():
            self._lost.set_result(None)
        self._wake_reader()
        if self.on_writable is not None:
            self.on_writable()

    def pause_writing(self) -> None:
        """Note that the send buffer is full."""
        self._paused_writing = True

    def resume_writing(self) -> None:
        """Note that the send buffer has room, and wake the writer."""
        self._paused_writing = False
        if self.on_writable is not None:
            self.on_writable()

    # ---- called by the layers above

    @property
    def can_write(self) -> bool:
        """Whether the send buffer has room."""
        return not self._paused_writing

    @property
    def is_closed(self) -> bool:
        """Whether the stream has ended."""
        return self._lost.done() or self._transport is None or self._transport.is_closing()

    async def read(self) -> bytes:
        """Return the received bytes; ``b""`` once the stream has ended."""
        while not self._chunks:
            if self._ended:
                return b""
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._waiting_bytes = 0
        if self._paused_reading and self._transport is not None:
            self._paused_reading = False
            self._transport.resume_reading()
        return data

    def write(self, data: bytes) -> None:
        """Send ``data``, now or as soon as the network takes it.

        The connection ends if too many bytes wait, as when a peer sends WebSocket pings and reads no answers.
        """
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            if self._transport.get_write_buffer_size() > _WRITE_LIMIT_BYTES:
                self.abort()

    async def close(self) -> None:
        """Send the waiting bytes, for at most a second, and end the connection."""
        if self._transport is None:
            return
        self._transport.close()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await asyncio.shield(self._lost)
        except TimeoutError:
            self.abort()
            await self._lost

    def abort(self) -> None:
        """End the connection at once."""
        # A transport of asyncio that has closed and sent its waiting bytes cannot be aborted.
        if self._transport is not None and not self._lost.done():
            self._transport.abort()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


async def dial_tcp(address: Multiaddr) -> TcpTransport:
    """Connect to a host and port.

    Raises:
        AddressError: the address names no TCP port of a host.
        OSError: there is no answer, or the name is unknown.

    """
    host, port = _endpoint(address)
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {}
    if address.host_kind not in {"ip4", "ip6"}:
        options["happy_eyeballs_delay"] = _EYEBALLS_DELAY_S
    family = _FAMILIES.get(address.host_kind or "", socket.AF_UNSPEC)
    _, transport = await loop.create_connection(TcpTransport, host, port, family=family, **options)
    return transport


async def listen_tcp(address: Multiaddr, on_connected: Callable[[TcpTransport], None], backlog: int) -> asyncio.Server:
    """Accept connections at an IP address and port; port 0: any free port.

    Raises:
        AddressError: the address names no port of an IP address.
        OSError: the port is in use.

    """
    host, port = _endpoint(address)
    if address.host_kind not in {"ip4", "ip6"}:
        raise AddressError(f"{address} cannot be listened on: give an IP address, such as /ip4/127.0.0.1/tcp/0")
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: TcpTransport(on_connected), host, port, backlog=backlog)


def _endpoint(address: Multiaddr) -> tuple[str, int]:
    if address.transport is None or address.host is None or address.port is None:
        raise AddressError(f"{address} is neither a TCP nor a WebSocket address, such as /ip4/127.0.0.1/tcp/60000")
    return address.host, address.port


def _address(name: tuple[Any, ...] | None) -> Multiaddr:
    """Return the multiaddr of a socket name; all zeros for a socket that is closed already."""
    if not name:
        return Multiaddr.of("0.0.0.0", 0)  # noqa: S104  the unknown address, not one to listen on
    host = ip_address(str(name[0]).partition("%")[0])
    mapped = getattr(host, "ipv4_mapped", None)
    return Multiaddr.of(str(mapped or host), int(name[1]))
