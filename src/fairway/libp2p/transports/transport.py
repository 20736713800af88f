"""`ByteTransport`: the interface of transports: a stream of bytes with back-pressure in both directions.

Invariant: unread bytes are bounded, because a transport stops receiving while its reader is slow. Unsent bytes are
bounded if the writer respects ``can_write``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from fairway.libp2p.multiaddr import Multiaddr


class ByteTransport(ABC):
    """A connected byte stream."""

    remote_address: Multiaddr
    """The address of the other end, as this end sees it."""
    on_writable: Callable[[], None] | None = None
    """Called when ``can_write`` becomes true again, and when the stream ends."""

    @property
    @abstractmethod
    def can_write(self) -> bool:
        """Whether the send buffer has room."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the stream has ended; bytes written now are lost."""

    @abstractmethod
    async def read(self) -> bytes:
        """Return the received bytes, at least one; ``b""`` once the stream has ended for any reason."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send ``data``, now or as soon as the network takes it."""

    @abstractmethod
    async def close(self) -> None:
        """Send the waiting bytes, for a bounded time, and end the stream."""

    @abstractmethod
    def abort(self) -> None:
        """End the stream at once; waiting bytes are lost."""
