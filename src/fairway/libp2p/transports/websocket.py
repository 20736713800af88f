"""WebSocket (RFC 6455), which browsers can dial, as a byte stream over TCP or TLS.

For libp2p the binary messages of a WebSocket are a stream of bytes; their boundaries have no meaning. The protocol is
the core without I/O of the ``websockets`` library, over one `TcpTransport` or `TlsTransport`. It has no task and no
queue, so that the back-pressure is that of TCP. It uses no compression. A frame whose header exceeds the bound ends the
connection before its body is read.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidURI
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import Protocol, State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from fairway.libp2p.errors import AddressError, ConnectionClosedError
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.transports.transport import ByteTransport
from fairway.libp2p.transports.web_origins import WebOrigins

_MAX_MESSAGE_BYTES: Final = 2_097_152
"""Longest message that is read. nim-libp2p sends an mplex frame of 1 MiB with its Noise frames in one message."""
_SEND_BYTES: Final = 262_144
_NORMAL_CLOSURE: Final = 1000


class WebSocketTransport(ByteTransport):
    """One WebSocket connection. Made by `connect` and `accept`."""

    def __init__(self, raw: ByteTransport, protocol: Protocol, *, kind: str) -> None:
        self._raw = raw
        self._protocol = protocol
        self.remote_address = _over(raw.remote_address, kind)
        raw.on_writable = self._writable
        self._ended = False
        self._origins = WebOrigins()

    @classmethod
    async def connect(cls, raw: ByteTransport, address: Multiaddr) -> WebSocketTransport:
        """Carry out the client's opening handshake on a new connection.

        Raises:
            AddressError: the host's name is not valid in a URL.
            ConnectionClosedError: the server does not use WebSocket, or refuses.

        """
        kind = address.transport or "ws"
        host = f"[{address.host}]" if address.host_kind == "ip6" else address.server_name or address.host
        try:
            uri = parse_uri(f"{kind}://{host}:{address.port}/")
        except (InvalidURI, ValueError) as error:
            raise AddressError(f"{address} makes no WebSocket URL: {error}") from error
        protocol = ClientProtocol(uri, max_size=_MAX_MESSAGE_BYTES)
        transport = cls(raw, protocol, kind=kind)
        protocol.send_request(protocol.connect())
        await transport._open()
        return transport

    @classmethod
    async def accept(cls, raw: ByteTransport, origins: WebOrigins, *, kind: str = "ws") -> WebSocketTransport:
        """Carry out the server's opening handshake on an accepted connection; errors as for `connect`.

        ``kind`` is "wss" over TLS. A web page that ``origins`` does not admit gets 403.
        """
        transport = cls(raw, ServerProtocol(max_size=_MAX_MESSAGE_BYTES), kind=kind)
        transport._origins = origins
        await transport._open()
        return transport

    @property
    def can_write(self) -> bool:
        """Whether the send buffer has room."""
        return self._raw.can_write

    @property
    def is_closed(self) -> bool:
        """Whether the stream has ended."""
        return self._raw.is_closed or self._protocol.state is not State.OPEN

    async def read(self) -> bytes:
        """Return the received bytes; ``b""`` once the stream has ended."""
        while not self._ended:
            # Bytes may have arrived with the opening handshake, so they are taken before the network is read.
            body = self._take_body()
            if body:
                return body
            await self._receive()
        return b""

    def write(self, data: bytes) -> None:
        """Send ``data`` as binary messages."""
        if self.is_closed:
            return
        if len(data) <= _SEND_BYTES:
            self._protocol.send_binary(data)
        else:
            view = memoryview(data)
            for start in range(0, len(data), _SEND_BYTES):
                self._protocol.send_binary(view[start : start + _SEND_BYTES])
        self._flush()

    async def close(self) -> None:
        """Carry out the closing handshake, for at most a second, and end the connection."""
        if self._protocol.state is State.OPEN and not self._raw.is_closed:
            self._protocol.send_close(_NORMAL_CLOSURE)
            self._flush()
        await self._raw.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._raw.abort()

    async def _open(self) -> None:
        try:
            while self._protocol.state is State.CONNECTING and not self._ended:
                self._flush()
                await self._receive(opening=True)
        finally:
            self._flush()
        if self._protocol.state is not State.OPEN:
            cause = self._protocol.handshake_exc
            raise ConnectionClosedError(f"no WebSocket handshake with {self.remote_address}: {cause}") from cause

    async def _receive(self, *, opening: bool = False) -> None:
        """Pass the next bytes of the network to the protocol, and its answer to the network."""
        data = await self._raw.read()
        if not data:
            self._ended = True
            self._protocol.receive_eof()
            return
        self._protocol.receive_data(data)
        if opening and isinstance(self._protocol, ServerProtocol):
            self._answer_request(self._protocol)
        self._flush()

    def _answer_request(self, protocol: ServerProtocol) -> None:
        # A peer should send no frames before the answer; if it does, they are read after it.
        events = protocol.events_received()
        for event in events:
            if isinstance(event, Request):
                headers = event.headers
                admitted = self._origins.admit(headers.get_all("Origin"), "".join(headers.get_all("Host")))
                protocol.send_response(
                    protocol.accept(event) if admitted else protocol.reject(HTTPStatus.FORBIDDEN, "Origin not allowed")
                )
            else:
                protocol.events.append(event)

    def _take_body(self) -> bytes:
        parts = []
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                if event.opcode in {Opcode.BINARY, Opcode.CONT}:
                    parts.append(event.data)
                elif event.opcode in {Opcode.CLOSE, Opcode.TEXT}:
                    self._ended = True
        # After a closing handshake or a fault no more bytes arrive.
        if self._protocol.state is not State.OPEN:
            self._ended = True
        return b"".join(parts)

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._raw.write(data)
            else:
                # The protocol has ended its writing: waiting bytes are sent, then the connection ends.
                self._ended = True

    def _writable(self) -> None:
        if self.on_writable is not None:
            self.on_writable()


def _over(address: Multiaddr, kind: str) -> Multiaddr:
    return Multiaddr.of(address.host or "", address.port or 0, transport=kind)
