"""What every transport is to the layers above: a stream of bytes with back-pressure in both directions.

The invariant: what was received and not yet read is bounded, for a transport stops taking bytes from the network when
its reader is slow; what was written and not yet sent is bounded as long as the writer respects ``can_write``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from fairway.waku.libp2p.multiaddr import Multiaddr


class ByteTransport(ABC):
    """A connected byte stream."""

    local_address: Multiaddr
    """Where this end is."""
    remote_address: Multiaddr
    """Where the other end is, as this end sees it."""
    on_writable: Callable[[], None] | None = None
    """Called whenever ``can_write`` becomes true again, and when the stream ends."""

    @property
    @abstractmethod
    def can_write(self) -> bool:
        """Whether little enough waits to be sent that more may be written."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the stream has ended: what is written now goes nowhere."""

    @abstractmethod
    async def read(self) -> bytes:
        """Return what has arrived, at least one byte; ``b""`` once the stream has ended, for whatever reason."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send ``data``, now or as soon as the network takes it."""

    @abstractmethod
    async def close(self) -> None:
        """Send what waits, for a bounded time, and end the stream."""

    @abstractmethod
    def abort(self) -> None:
        """End the stream at once; what waits is lost."""
