"""Lines in and lines out, without blocking the event loop.

A thread reads pipes, files and terminals alike, because an event loop cannot wait for files. It reads a few lines
ahead. A line beyond the length limit is skipped and returned as `TooLong`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from contextlib import suppress
from typing import BinaryIO, Final, NamedTuple, Self

from fairway.errors import copy_of

MAX_LINE_BYTES: Final = 33_554_432
"""Longest line by default: some 24 MiB of payload in base64."""
_LINES_AHEAD: Final = 16
_MAX_WAITING_LINES: Final = 10_000


class TooLong(NamedTuple):
    """A line that was skipped."""

    limit_bytes: int


class LineReader:
    """The lines of a file descriptor, without their ends, as an async iterator. The last one may be incomplete."""

    def __init__(self, descriptor: int, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        """Start to read on the running event loop; the caller closes the descriptor."""
        self._max_line_bytes = max_line_bytes
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | TooLong | None] = asyncio.Queue()
        """None is the end."""
        self._room = threading.Semaphore(_LINES_AHEAD)
        self._is_closed = False
        # A daemon, because a thread that waits for a terminal cannot be woken and would keep the process alive.
        threading.Thread(target=self._read, args=(descriptor,), name="fairway-lines-in", daemon=True).start()

    def close(self) -> None:
        """End the iteration now. The thread ends after its current read."""
        self._is_closed = True
        self._room.release()
        self._lines.put_nowait(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes | TooLong:
        """Wait for the next line."""
        line = None if self._is_closed else await self._lines.get()
        if line is None or self._is_closed:
            self._is_closed = True
            raise StopAsyncIteration
        self._room.release()
        return line

    def _read(self, descriptor: int) -> None:
        """Read lines, at most some ahead of the iteration; runs in a thread."""
        with suppress(RuntimeError):  # the event loop has ended
            with suppress(OSError), open(descriptor, "rb", closefd=False) as opened:
                while not self._is_closed and (line := self._next(opened)) is not None:
                    self._room.acquire()
                    self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
            self._loop.call_soon_threadsafe(self._lines.put_nowait, None)

    def _next(self, opened: BinaryIO) -> bytes | TooLong | None:
        most = self._max_line_bytes + len(b"\r\n")
        line = opened.readline(most)
        is_skipped = False
        while len(line) == most and not line.endswith(b"\n"):
            is_skipped, line = True, opened.readline(most)
        if not line and not is_skipped:
            return None
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        return TooLong(self._max_line_bytes) if is_skipped or len(line) > self._max_line_bytes else line


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
