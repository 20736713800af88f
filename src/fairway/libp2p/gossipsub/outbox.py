"""`PeerOutbox`: the frames that wait to be written to one peer; `SharedBytes`: the messages in all outboxes, each once.

Control frames go before messages. Invariant: at most ``max_bytes`` of messages wait; beyond it the oldest are dropped
and counted, so that an IHAVE can announce them at the next heartbeat. Control frames are small and are not dropped: a
peer for which too many wait is `stuck`, and its connection ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final


class SharedBytes:
    """The messages in all queues. All queues hold the same object for a message."""

    def __init__(self) -> None:
        self.size_bytes = 0
        """Size of the different messages."""
        # By identity: a held message stays alive, so its id cannot be reused.
        self._holders: dict[int, int] = {}

    def hold(self, message: bytes) -> None:
        """Note that one more queue holds a message."""
        holders = self._holders.get(id(message), 0)
        if not holders:
            self.size_bytes += len(message)
        self._holders[id(message)] = holders + 1

    def release(self, message: bytes) -> None:
        """Note that a queue no longer holds a message."""
        holders = self._holders.pop(id(message)) - 1
        if holders:
            self._holders[id(message)] = holders
        else:
            self.size_bytes -= len(message)


MAX_CONTROL_FRAMES: Final = 10_000
"""Control frames that may wait."""
MAX_CONTROL_BYTES: Final = 8_388_608
"""Size of the control frames that may wait: some dozens of the longest IHAVEs."""


class PeerOutbox:
    """Frames for one peer, filled by the router and emptied by a writer."""

    def __init__(self, *, max_bytes: int, held: SharedBytes | None = None) -> None:
        """``held`` counts the messages that wait in all outboxes of a node."""
        self.dropped = 0
        """Messages that were dropped."""
        self.lags = False
        """Whether a publisher timed out waiting for this peer; publishers then do not wait until the peer has room."""
        self._told = 0
        self._max_bytes: Final = max_bytes
        self._held: Final = SharedBytes() if held is None else held
        self._control: deque[bytes] = deque()
        self._messages: deque[bytes] = deque()
        self._control_bytes = 0
        self._bytes = 0
        self._filled: Final = asyncio.Event()
        self._drained: Final = asyncio.Event()
        self._drained.set()

    @property
    def message_bytes(self) -> int:
        """Size of the messages that wait, without control frames."""
        return self._bytes

    @property
    def stuck(self) -> bool:
        """Whether too many control frames wait, because the peer does not read."""
        return len(self._control) > MAX_CONTROL_FRAMES or self._control_bytes > MAX_CONTROL_BYTES

    @property
    def has_room(self) -> bool:
        """Whether the outbox is at most half full."""
        return self._drained.is_set()

    def put(self, frame: bytes, *, control: bool) -> None:
        """Add a frame."""
        if control:
            self._control.append(frame)
            self._control_bytes += len(frame)
        else:
            self._messages.append(frame)
            self._bytes += len(frame)
            self._held.hold(frame)
            while self._bytes > self._max_bytes and len(self._messages) > 1:
                self._next_message()
                self.dropped += 1
            if self._bytes > self._max_bytes // 2:
                self._drained.clear()
        self._filled.set()

    def dropped_since_asked(self) -> int:
        """Return how many messages were dropped since the last call."""
        dropped, self._told = self.dropped - self._told, self.dropped
        return dropped

    def drop_messages(self) -> int:
        """Drop all messages, and return their number."""
        count = len(self._messages)
        while self._messages:
            self._next_message()
        self.dropped += count
        self._look_for_room()
        return count

    def forget_control(self) -> None:
        """Drop all control frames, because the stream that they were for has ended."""
        self._control.clear()
        self._control_bytes = 0

    async def take(self, max_bytes: int) -> bytes:
        """Wait for frames, remove about ``max_bytes`` of them, at least one, and return them joined."""
        while not (self._control or self._messages):
            self._filled.clear()
            await self._filled.wait()
        piece: list[bytes] = []
        size = 0
        while size < max_bytes and (self._control or self._messages):
            if self._control:
                frame = self._control.popleft()
                self._control_bytes -= len(frame)
            else:
                frame = self._next_message()
            size += len(frame)
            piece.append(frame)
        self._look_for_room()
        return b"".join(piece)

    async def room(self) -> None:
        """Wait until the outbox is at most half full."""
        await self._drained.wait()

    def _next_message(self) -> bytes:
        frame = self._messages.popleft()
        self._bytes -= len(frame)
        self._held.release(frame)
        return frame

    def _look_for_room(self) -> None:
        if self._bytes <= self._max_bytes // 2:
            self._drained.set()
            self.lags = False
