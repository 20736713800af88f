"""Byte streams between two machines, as libp2p's layers need them: TCP, TLS and WebSocket."""

from __future__ import annotations

from fairway.libp2p.transports.tcp import TcpTransport, dial_tcp, listen_tcp
from fairway.libp2p.transports.tls import TlsTransport
from fairway.libp2p.transports.transport import ByteTransport
from fairway.libp2p.transports.websocket import WebSocketTransport

__all__ = ["ByteTransport", "TcpTransport", "TlsTransport", "WebSocketTransport", "dial_tcp", "listen_tcp"]
