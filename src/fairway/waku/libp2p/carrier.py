"""A muxer core on its link: when frames are sent, and who waits for that.

Frames of one turn of the event loop leave together, sealed as one: a thousand small writes make a few large ones. What
waits is bounded: a writer that finds the queue full waits until the transport has taken it, so a peer that reads slowly
slows down who writes to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from fairway.waku.libp2p.link import Link
from fairway.waku.libp2p.mux.muxer import Muxer

SEND_AT_ONCE_BYTES: Final = 131_072
"""Frames are sent without waiting for the end of the turn when there are so many bytes of them."""


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
        """Whether a writer has to wait."""
        return self.muxer.queued_bytes >= SEND_AT_ONCE_BYTES or not self.link.transport.can_write

    def schedule_flush(self) -> None:
        """Send what waits at the end of this turn of the event loop."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end_of_turn)

    def flush(self) -> None:
        """Send what waits, unless the transport is full: then it goes as soon as that has room."""
        transport = self.link.transport
        if transport.is_closed:
            self.muxer.data_to_send()
        elif transport.can_write:
            if self.muxer.queued_bytes:
                self.link.send(self.muxer.data_to_send())
        elif self.stalled_since is None:
            self.stalled_since = self._loop.time()

    async def drain(self) -> None:
        """Wait until a writer may look again whether it can go on; others get their turn in between."""
        self.flush()
        if self.is_full and not self.link.transport.is_closed:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
        else:
            await asyncio.sleep(0)

    def consumed(self, stream_id: int, size_bytes: int) -> None:
        """Say that an application took bytes of a stream."""
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
            # Whoever reads the connection may be waiting for a stream to be read: it need not any more.
            self._on_consumed()
