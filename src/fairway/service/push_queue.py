"""`PushQueue`: the messages for one filter subscriber, waiting, being written, or kept after they were written.

Written messages are kept if the subscriber may not have read them, so that they can be written again.

Invariant: at most ``max_messages`` messages of ``max_bytes`` bytes wait, beside those that are being written. Beyond
it kept messages are dropped first, then the oldest waiting ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from fairway.libp2p.gossipsub.outbox import SharedBytes


class PushQueue:
    """The queue of one subscriber, which one writer empties."""

    def __init__(self, held: SharedBytes, *, max_messages: int, max_bytes: int) -> None:
        self.dropped = 0
        """Messages that were dropped while they waited."""
        self.waiting_bytes = 0
        """Size of the messages that wait or are being written."""
        self.kept_bytes = 0
        """Size of the messages that are kept."""
        self._held: Final = held
        self._max_messages: Final = max_messages
        self._max_bytes: Final = max_bytes
        self.frames: Final[deque[bytes]] = deque()
        """First the kept messages, then those being written, then those that wait."""
        self._kept = 0
        self._writing = 0
        self._changed: Final = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """Return how many messages wait or are being written."""
        return len(self.frames) - self._kept

    def put(self, frame: bytes) -> None:
        """Add a message; a closed queue ignores it."""
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
        """Wait for a message, and return the oldest waiting ones within both bounds, at least one.

        They now count as being written. The next call returns them again unless `keep` or `settle` is called before.
        Returns an empty list once the queue is closed.
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

    def keep(self) -> None:
        """Keep the messages that `next_piece` returned last: they are written, but perhaps not read."""
        size = sum(map(len, islice(self.frames, self._kept, self._kept + self._writing)))
        self.waiting_bytes -= size
        self.kept_bytes += size
        self._kept += self._writing
        self._writing = 0

    def forget_kept(self) -> None:
        """Remove the kept messages, because the subscriber has read them."""
        while self._kept:
            self._let_go(0)

    def unread(self) -> list[bytes]:
        """Return the messages that are kept or being written."""
        return list(islice(self.frames, self._kept + self._writing))

    def settle(self, again: Sequence[bytes] = ()) -> None:
        """Remove the messages that are kept or being written; those of ``again`` become the first that wait."""
        again = () if self._closed else again
        for frame in again:
            self._held.hold(frame)
        while self._kept + self._writing:
            self._let_go(0)
        self.frames.extendleft(reversed(again))
        self.waiting_bytes += sum(map(len, again))
        self._changed.set()

    def give_way(self) -> None:
        """Drop all messages except those being written."""
        self.forget_kept()
        while len(self.frames) > self._writing:
            self._let_go(self._writing)
            self.dropped += 1

    def count_dropped(self, messages: int) -> None:
        """Count messages that the subscriber refused or could not get."""
        self.dropped += messages

    def close(self) -> None:
        """Drop all messages, and end `next_piece`. Can be called twice."""
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
