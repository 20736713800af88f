"""Byte streams between two machines, as libp2p's layers need them: TCP, TLS and WebSocket."""
