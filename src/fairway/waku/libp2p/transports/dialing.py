"""Which transport an address names, for both sides: dialling it, and listening on it."""

from __future__ import annotations

from ssl import SSLContext, create_default_context

from fairway.waku.libp2p.errors import AddressError
from fairway.waku.libp2p.multiaddr import Multiaddr
from fairway.waku.libp2p.transports.tcp import TcpTransport, dial_tcp
from fairway.waku.libp2p.transports.transport import ByteTransport
from fairway.waku.libp2p.transports.web_origins import WebOrigins
from fairway.waku.libp2p.transports.websocket import WebSocketTransport


async def dial(address: Multiaddr, ssl: SSLContext | None) -> ByteTransport:
    """Connect to an address; ``ssl`` is used for wss, by default with the system's certificate authorities.

    Raises:
        AddressError: the address cannot be dialled.
        OSError: there is no answer, or TLS failed.
        ConnectionClosedError: it is no WebSocket server.

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
    """Return what was accepted on a listener of that kind; ``ssl`` is the certificate of a wss listener.

    Raises:
        OSError: TLS failed.
        ConnectionClosedError: the other side speaks no WebSocket, or is a web page that ``origins`` does not admit.

    """
    if kind == "wss" and ssl is not None:
        await raw.serve_tls(ssl)
    return raw if kind == "tcp" else await WebSocketTransport.accept(raw, origins, secure=kind == "wss")
