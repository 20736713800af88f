"""`Handlers`: the protocols that a host serves, their handlers, and the streams that a peer may have open of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError
from fairway.libp2p.errors import LimitError, NegotiationError
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.stream import Stream

_MAX_STREAMS_PER_PEER: Final = 128
"""Default number of streams of one protocol that one peer may have open."""

StreamHandler = Callable[[Stream], Awaitable[None]]
"""Serves one stream; it is closed when the handler returns, and reset when it raises."""


@dataclass(frozen=True, slots=True)
class _Served:
    handler: StreamHandler
    max_streams_per_peer: int


class Handlers:
    """The table of protocols, shared by all connections of a host."""

    def __init__(self) -> None:
        self._served: dict[str, _Served] = {}
        self._open: dict[tuple[str, PeerId], int] = {}

    def add(self, protocol: str, handler: StreamHandler, max_streams_per_peer: int | None) -> None:
        """Serve a protocol; one that is served already gets the new handler."""
        limit = _MAX_STREAMS_PER_PEER if max_streams_per_peer is None else max_streams_per_peer
        if limit < 1:
            raise ConfigurationError(f"max_streams_per_peer of {protocol} is {limit}: give at least 1")
        self._served[protocol] = _Served(handler, limit)

    @property
    def protocols(self) -> tuple[str, ...]:
        """The served protocols, in alphabetical order."""
        return tuple(sorted(self._served))

    def serves(self, protocol: str) -> bool:
        """Whether a protocol is served."""
        return protocol in self._served

    def begin(self, protocol: str, peer_id: PeerId) -> StreamHandler:
        """Return the handler for one more stream of a peer, which counts as open until `end`.

        Raises:
            LimitError: the peer has too many streams of that protocol open.
            NegotiationError: the protocol is no longer served.

        """
        served = self._served.get(protocol)
        if served is None:
            raise NegotiationError(f"{protocol} is not served")
        key = (protocol, peer_id)
        count = self._open.get(key, 0)
        if count >= served.max_streams_per_peer:
            raise LimitError(f"{peer_id} has {served.max_streams_per_peer} streams of {protocol} open already")
        self._open[key] = count + 1
        return served.handler

    def end(self, protocol: str, peer_id: PeerId) -> None:
        """Note that a stream for which `begin` returned a handler has ended."""
        key = (protocol, peer_id)
        count = self._open.pop(key) - 1
        if count:
            self._open[key] = count
