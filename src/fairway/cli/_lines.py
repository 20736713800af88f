"""Lines in and lines out, without blocking the event loop.

A thread reads pipes, files and terminals alike, because an event loop cannot wait for files. It reads at most one block
ahead, so a fast writer cannot fill the memory. A line beyond the length limit is skipped and returned as `TooLong`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from typing import Final, NamedTuple, Self

from fairway.errors import copy_of

MAX_LINE_BYTES: Final = 33_554_432
"""Longest line by default: some 24 MiB of payload in base64."""
_BLOCK_BYTES: Final = 65_536
_MAX_WAITING_LINES: Final = 10_000


class TooLong(NamedTuple):
    """A line that was skipped."""

    limit_bytes: int


class LineReader:
    """The lines of a file descriptor, without their ends, as an async iterator. The last one may lack its end."""

    def __init__(self, descriptor: int, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        """Start to read on the running event loop; the caller closes the descriptor."""
        self._descriptor = descriptor
        self._max_line_bytes = max_line_bytes
        self._loop = asyncio.get_running_loop()
        self._lines: deque[bytes | TooLong] = deque()
        self._rest = bytearray()
        self._is_skipping = False
        self._has_ended = False
        self._is_closed = False
        self._arrived = asyncio.Event()
        self._wanted = threading.Semaphore(0)
        # A daemon, because a thread that waits for a terminal cannot be woken and would keep the process alive.
        threading.Thread(target=self._read, name="fairway-lines-in", daemon=True).start()

    def close(self) -> None:
        """End the iteration now. The thread ends after its current read."""
        self._is_closed = True
        self._wanted.release()
        self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes | TooLong:
        """Wait for the next line."""
        while not self._lines or self._is_closed:
            if self._has_ended or self._is_closed:
                raise StopAsyncIteration
            self._arrived.clear()
            self._wanted.release()
            await self._arrived.wait()
        return self._lines.popleft()

    def _read(self) -> None:
        """Read a block for each release of `_wanted`; runs in a thread."""
        block = b"."
        while block:
            self._wanted.acquire()
            if self._is_closed:
                return
            try:
                block = os.read(self._descriptor, _BLOCK_BYTES)
            except OSError:
                block = b""
            try:
                self._loop.call_soon_threadsafe(self._take, block)
            except RuntimeError:
                # The event loop has ended.
                return

    def _take(self, block: bytes) -> None:
        *lines, rest = block.split(b"\n")
        for line in lines:
            self._rest += line
            self._end_line()
        self._rest += rest
        if len(self._rest) > self._max_line_bytes:
            self._is_skipping = True
            self._rest.clear()
        if not block:
            self._has_ended = True
            if self._rest or self._is_skipping:
                self._end_line()
        self._arrived.set()

    def _end_line(self) -> None:
        if self._is_skipping or len(self._rest) > self._max_line_bytes:
            self._lines.append(TooLong(self._max_line_bytes))
        else:
            self._lines.append(bytes(self._rest).removesuffix(b"\r"))
        self._is_skipping = False
        self._rest.clear()


class LineWriter:
    """Writes lines to a file descriptor, in order, as fast as the reader takes them."""

    def __init__(self, descriptor: int) -> None:
        """Start on the running event loop; the caller closes the descriptor."""
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[bytes] = deque()
        self._put = 0
        self._written = 0
        self._is_closing = False
        self._error: OSError | None = None
        self._progress = asyncio.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write, name="fairway-lines-out", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> int:
        """Queue a line, which ends in a newline; return its number for `written`."""
        with self._changed:
            self._waiting.append(line)
            self._put += 1
            self._changed.notify()
            return self._put

    async def written(self, number: int) -> None:
        """Wait until a line has been written; raise the `OSError` of a failed write."""
        while self._written < number:
            if self._error is not None:
                raise copy_of(self._error)
            self._progress.clear()
            await self._progress.wait()

    async def room(self) -> None:
        """Wait until at most `_MAX_WAITING_LINES` lines are queued."""
        await self.written(self._put - _MAX_WAITING_LINES)

    async def close(self) -> None:
        """Write the queued lines, and stop."""
        try:
            await self.written(self._put)
        finally:
            with self._changed:
                self._is_closing = True
                self._changed.notify()

    def _write(self) -> None:
        """Write the queued lines as one block; runs in a thread."""
        while True:
            with self._changed:
                while not self._waiting and not self._is_closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                block, count = b"".join(self._waiting), len(self._waiting)
                self._waiting.clear()
            error: OSError | None = None
            try:
                _write_all(self._descriptor, block)
            except OSError as failed:
                error = failed
            try:
                self._loop.call_soon_threadsafe(self._wrote, count, error)
            except RuntimeError:
                # The event loop has ended.
                return
            if error is not None:
                return

    def _wrote(self, count: int, error: OSError | None) -> None:
        self._error = error
        if error is None:
            self._written += count
        self._progress.set()


def _write_all(descriptor: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]
