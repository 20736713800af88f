"""What waits to be written to one peer: control before messages, bounded, the oldest messages giving way.

Invariant: at most ``max_bytes`` wait, whatever the peer reads; what gave way is counted, and gossip tells the peer of it
a heartbeat later. Control is small and must not be lost, so a peer that lets that pile up is `stuck`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

_MAX_CONTROL_FRAMES: Final = 10_000


class Outbox:
    """Frames for one peer, filled by the router and emptied by a writer."""

    def __init__(self, *, max_bytes: int) -> None:
        self.dropped = 0
        """Messages that gave way to newer ones."""
        self._max_bytes: Final = max_bytes
        self._control: deque[bytes] = deque()
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._filled: Final = asyncio.Event()
        self._drained: Final = asyncio.Event()
        self._drained.set()

    @property
    def stuck(self) -> bool:
        """Whether even control piles up: the peer does not read."""
        return len(self._control) > _MAX_CONTROL_FRAMES

    def put(self, frame: bytes, *, control: bool) -> None:
        """Add a frame."""
        if control:
            self._control.append(frame)
        else:
            self._messages.append(frame)
            self._bytes += len(frame)
            while self._bytes > self._max_bytes and len(self._messages) > 1:
                self._bytes -= len(self._messages.popleft())
                self.dropped += 1
            if self._bytes > self._max_bytes // 2:
                self._drained.clear()
        self._filled.set()

    async def take(self, max_bytes: int) -> bytes:
        """Wait for frames, and return about ``max_bytes`` of them as one piece, at least one."""
        while not (self._control or self._messages):
            self._filled.clear()
            await self._filled.wait()
        piece = list(self._control)
        self._control.clear()
        size = sum(map(len, piece))
        while self._messages and (size < max_bytes or not piece):
            frame = self._messages.popleft()
            self._bytes -= len(frame)
            size += len(frame)
            piece.append(frame)
        if self._bytes <= self._max_bytes // 2:
            self._drained.set()
        return b"".join(piece)

    async def room(self) -> None:
        """Wait until at most half of what may wait is waiting."""
        await self._drained.wait()
