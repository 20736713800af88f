"""What waits to be pushed to one filter subscriber.

Invariant: at most ``max_messages`` messages of ``max_bytes`` bytes wait, beside those that are being written; the
oldest give way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import Final

from fairway.waku.libp2p.shared_bytes import SharedBytes


class PushQueue:
    """Filled as messages come, emptied by one writer."""

    def __init__(self, held: SharedBytes, *, max_messages: int, max_bytes: int) -> None:
        self.dropped = 0
        """Messages that gave way."""
        self.waiting_bytes = 0
        """Bytes of the messages that wait or are being written."""
        self._held: Final = held
        self._max_messages: Final = max_messages
        self._max_bytes: Final = max_bytes
        self._frames: Final[deque[bytes]] = deque()
        self._writing = 0
        self._changed: Final = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """Return how many messages wait or are being written."""
        return len(self._frames)

    def put(self, frame: bytes) -> None:
        """Add a message; a closed queue keeps nothing."""
        if self._closed:
            return
        self._held.hold(frame)
        self._frames.append(frame)
        self.waiting_bytes += len(frame)
        while len(self._frames) - self._writing > 1 and (
            len(self._frames) > self._max_messages or self.waiting_bytes > self._max_bytes
        ):
            self._let_go(self._writing)
            self.dropped += 1
        self._changed.set()

    async def next_piece(self, max_bytes: int) -> list[bytes]:
        """Wait for messages and return the first, as many as have ``max_bytes``, at least one; none: it is closed.

        They stay until `written` is called, and come again if it is not.
        """
        self._writing = 0
        while not self._frames and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        size = 0
        for frame in self._frames:
            size += len(frame)
            if self._writing and size > max_bytes:
                break
            self._writing += 1
        return list(islice(self._frames, self._writing))

    def written(self) -> None:
        """Let go of what `next_piece` returned last."""
        for _ in range(self._writing):
            self._let_go(0)
        self._writing = 0

    def give_way(self) -> None:
        """Drop everything but what is being written."""
        while len(self._frames) > self._writing:
            self._let_go(self._writing)
            self.dropped += 1

    def close(self) -> None:
        """Drop everything and end. May be called twice."""
        self._closed = True
        self._writing = 0
        self.give_way()
        self._changed.set()

    def _let_go(self, index: int) -> None:
        frame = self._frames[index]
        del self._frames[index]
        self.waiting_bytes -= len(frame)
        self._held.release(frame)
