"""`Carrier`: the sending side of a connection: it passes the frames of the muxer to the link.

All frames of one turn of the event loop are sealed and sent together, so that many small writes become a few large
ones. The queue is bounded: a writer waits while it is full, so that a peer that reads slowly slows its writers down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from fairway.libp2p.link import Link
from fairway.libp2p.mux.muxer import Muxer

SEND_AT_ONCE_BYTES: Final = 131_072
"""With so many bytes of frames queued, they are sent before the end of the turn."""


class Carrier:
    """The sending side of a connection, shared by its streams."""

    def __init__(self, muxer: Muxer, link: Link, on_consumed: Callable[[], None]) -> None:
        self.muxer = muxer
        self.link = link
        self.stalled_since: float | None = None
        """Loop time since which the transport has taken nothing, or None."""
        self._on_consumed = on_consumed
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._waiters: list[asyncio.Future[None]] = []
        link.transport.on_writable = self._writable

    @property
    def is_full(self) -> bool:
        """Whether a writer must wait."""
        return self.muxer.queued_bytes >= SEND_AT_ONCE_BYTES or not self.link.transport.can_write

    def schedule_flush(self) -> None:
        """Send the queued frames at the end of this turn of the event loop."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end_of_turn)

    def flush(self) -> None:
        """Send the queued frames now, or as soon as the transport has room."""
        transport = self.link.transport
        if transport.is_closed:
            self.muxer.data_to_send()
        elif transport.can_write:
            if self.muxer.queued_bytes:
                self.link.send(self.muxer.data_to_send())
        elif self.stalled_since is None:
            self.stalled_since = self._loop.time()

    async def drain(self) -> None:
        """Wait until the transport has room, or for a turn of the event loop; then check `is_full` again."""
        self.flush()
        if self.is_full and not self.link.transport.is_closed:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
        else:
            await asyncio.sleep(0)

    def consumed(self, stream_id: int, size_bytes: int) -> None:
        """Note that the application has read bytes of a stream."""
        self.muxer.consumed(stream_id, size_bytes)
        if self.muxer.queued_bytes:
            self.schedule_flush()
        self._on_consumed()

    def wake_writers(self) -> None:
        """Wake all writers: the transport has room, or it or a stream has ended."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def _end_of_turn(self) -> None:
        self._scheduled = False
        self.flush()

    def _writable(self) -> None:
        self.stalled_since = None
        self.flush()
        self.wake_writers()
        if self.link.transport.is_closed:
            # The reader of the connection may wait for a full stream to be read: now it must go on and end.
            self._on_consumed()
