"""What waits to be pushed to one filter subscriber, and what may have to be pushed once more.

Invariant: at most ``max_messages`` messages of ``max_bytes`` bytes wait, beside those that are being written; the
oldest give way. Messages that were written and are kept in case that the subscriber did not read them take room only
while nothing else needs it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
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
        self.kept_bytes = 0
        """Bytes of the messages that were written and are kept."""
        self._held: Final = held
        self._max_messages: Final = max_messages
        self._max_bytes: Final = max_bytes
        self.frames: Final[deque[bytes]] = deque()
        """First those that are kept, then those that are being written, then those that wait."""
        self._kept = 0
        self._writing = 0
        self._changed: Final = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """Return how many messages wait or are being written."""
        return len(self.frames) - self._kept

    def put(self, frame: bytes) -> None:
        """Add a message; a closed queue keeps nothing."""
        if self._closed:
            return
        self._held.hold(frame)
        self.frames.append(frame)
        self.waiting_bytes += len(frame)
        while len(self.frames) > 1 and (
            len(self.frames) > self._max_messages or self.waiting_bytes + self.kept_bytes > self._max_bytes
        ):
            if self._kept:
                self._let_go(0)
            elif len(self.frames) - self._writing > 1:
                self._let_go(self._writing)
                self.dropped += 1
            else:
                break
        self._changed.set()

    async def next_piece(self, max_bytes: int, max_messages: int | None = None) -> list[bytes]:
        """Wait for messages and return the first, as many as fit, at least one; none: the queue is closed.

        They stay until `written`, `keep` or `settle` is called, and come again if none is.
        """
        self._writing = 0
        while not len(self) and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        size = 0
        for frame in islice(self.frames, self._kept, None):
            size += len(frame)
            if self._writing and (size > max_bytes or self._writing == max_messages):
                break
            self._writing += 1
        return list(islice(self.frames, self._kept, self._kept + self._writing))

    def written(self) -> None:
        """Let go of what `next_piece` returned last, and of what is kept."""
        self.settle()

    def keep(self) -> None:
        """Note that what `next_piece` returned last was written, but not whether it was read."""
        size = sum(map(len, islice(self.frames, self._kept, self._kept + self._writing)))
        self.waiting_bytes -= size
        self.kept_bytes += size
        self._kept += self._writing
        self._writing = 0

    def forget_kept(self) -> None:
        """Let go of what is kept: it was read."""
        while self._kept:
            self._let_go(0)

    def unread(self) -> list[bytes]:
        """Return what is kept or being written."""
        return list(islice(self.frames, self._kept + self._writing))

    def settle(self, again: Sequence[bytes] = ()) -> None:
        """Let go of what is kept or being written, but for messages that are to be written again, before all others."""
        again = () if self._closed else again
        for frame in again:
            self._held.hold(frame)
        while self._kept + self._writing:
            self._let_go(0)
        self.frames.extendleft(reversed(again))
        self.waiting_bytes += sum(map(len, again))
        self._changed.set()

    def give_way(self) -> None:
        """Drop everything but what is being written."""
        self.forget_kept()
        while len(self.frames) > self._writing:
            self._let_go(self._writing)
            self.dropped += 1

    def close(self) -> None:
        """Drop everything and end. Can be called twice."""
        self._closed = True
        self._writing = 0
        self.give_way()
        self._changed.set()

    def _let_go(self, index: int) -> None:
        frame = self.frames[index]
        del self.frames[index]
        self._held.release(frame)
        if index < self._kept:
            self._kept -= 1
            self.kept_bytes -= len(frame)
        else:
            self.waiting_bytes -= len(frame)
            if index < self._kept + self._writing:
                self._writing -= 1
