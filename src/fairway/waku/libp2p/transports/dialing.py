"""Chooses the transport of an address, to dial it and to accept a connection on it."""

from __future__ import annotations

from ssl import SSLContext, create_default_context

from fairway.waku.libp2p.errors import AddressError
from fairway.waku.libp2p.multiaddr import Multiaddr
from fairway.waku.libp2p.transports.tcp import TcpTransport, dial_tcp
from fairway.waku.libp2p.transports.transport import ByteTransport
from fairway.waku.libp2p.transports.web_origins import WebOrigins
from fairway.waku.libp2p.transports.websocket import WebSocketTransport


async def dial(address: Multiaddr, ssl: SSLContext | None) -> ByteTransport:
    """Connect to an address; ``ssl`` is for wss, by default with the certificate authorities of the system.

    Raises:
        AddressError: the address cannot be dialled.
        OSError: there is no answer, or TLS failed.
        ConnectionClosedError: the address is none of a WebSocket server.

    """
    kind = address.transport
    if kind is None:
        raise AddressError(f"{address} cannot be dialled: only /tcp, /tcp/ws and /tcp/wss addresses can")
    raw = await dial_tcp(address, ssl=(ssl or create_default_context()) if kind == "wss" else None)
    if kind == "tcp":
        return raw
    try:
        return await WebSocketTransport.connect(raw, address)
    except BaseException:
        raw.abort()
        raise


async def welcome(raw: TcpTransport, kind: str, ssl: SSLContext | None, origins: WebOrigins) -> ByteTransport:
    """Return the transport over an accepted connection; ``kind`` is that of the listener: "tcp", "ws" or "wss".

    ``ssl`` is the certificate of a wss listener.

    Raises:
        OSError: TLS failed.
        ConnectionClosedError: the peer does not speak WebSocket, or is a web page that ``origins`` does not admit.

    """
    if kind == "wss" and ssl is not None:
        await raw.serve_tls(ssl)
    return raw if kind == "tcp" else await WebSocketTransport.accept(raw, origins, secure=kind == "wss")
