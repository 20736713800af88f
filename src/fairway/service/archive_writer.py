"""`ArchiveWriter`: queues messages for an archive, and writes them on one thread in large transactions.

`put` returns at once. The thread writes messages in order, each batch whole or not at all, and tries a failed batch
again before newer ones. The queue is bounded in bytes; messages beyond the bound are dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from fairway.errors import StorageError
from fairway.foreign_code import call_in_thread
from fairway.nodes.node import RoutedMessage
from fairway.owned_tasks import OwnedTasks
from fairway.units import counted

FLUSH_AFTER_S: Final = 0.05
"""Longest time before a message is written; `ArchiveWriter.flush` writes at once."""
RETRY_AFTER_S: Final = 1.0
"""Time until a failed batch is tried again; `ArchiveWriter.flush` tries at once."""
MAX_WAITING_BYTES: Final = 67_108_864
"""Largest size of the queue. It fills when the disk is slow or full; further messages are dropped."""
OVERHEAD_BYTES: Final = 1_024
"""Memory that a queued message takes beside its own bytes; counts towards the size of the queue."""
_BATCH_ROWS: Final = 5_000
_BATCH_BYTES: Final = 16_777_216

Waiting = tuple[RoutedMessage, int]
"""A message, and the time at which it was received in Unix nanoseconds."""

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class ArchiveWriter:
    """A queue of messages that one thread writes."""

    def __init__(self, write: Callable[[Sequence[Waiting]], int], thread: ThreadPoolExecutor) -> None:
        """``write`` runs on ``thread``, writes a batch, and returns how many messages of it the archive cannot hold."""
        self._write: Final = write
        self._thread: Final = thread
        self._waiting: Final[deque[Waiting]] = deque()
        self._waiting_bytes = 0
        self._put = self._done = self._failed = 0
        self._hurry: Final = asyncio.Event()
        """Set by `flush`, so that the queue is written at once."""
        self._attempt = asyncio.Event()
        """Set when the next attempt to write has ended."""
        self._tasks: Final = OwnedTasks()
        self._is_writing = False
        self.problem: str | None = None
        """The error of the last attempt to write; None if it succeeded."""
        self._closed = False
        self.dropped = 0
        """Dropped messages: the queue was full, or the archive cannot hold them."""

    def __len__(self) -> int:
        """Return how many messages are not yet written."""
        return self._put - self._done

    def put(self, message: RoutedMessage, received_ns: int) -> None:
        """Queue a message."""
        if self._closed or self._waiting_bytes >= MAX_WAITING_BYTES:
            self.dropped += 1
            return
        self._waiting.append((message, received_ns))
        self._waiting_bytes += _size(message)
        self._put += 1
        if not self._is_writing:
            self._is_writing = True
            self._tasks.spawn(self._run())

    async def flush(self, timeout_s: float) -> None:
        """Wait until all queued messages are written or an attempt has failed, at most ``timeout_s`` seconds."""
        put, failed = self._put, self._failed
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._done < put and self._failed == failed:
                    self._hurry.set()
                    await self._attempt.wait()

    async def close(self, timeout_s: float) -> None:
        """Accept no more messages, and write the queue within ``timeout_s`` seconds. Can be called twice."""
        self._closed = True
        end = asyncio.get_running_loop().time() + timeout_s
        while len(self):
            rest_s = end - asyncio.get_running_loop().time()
            if rest_s <= 0:
                break
            await self.flush(rest_s)
            if self.problem is not None:
                await asyncio.sleep(min(rest_s, RETRY_AFTER_S / 10))
        await self._tasks.close()
        if len(self):
            _LOG.warning("%s could not be written before the archive was closed", counted(len(self), "message"))
            self.dropped += len(self)

    async def _run(self) -> None:
        while self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_AFTER_S if self.problem is None else RETRY_AFTER_S):
                    await self._hurry.wait()
            batch = self._take()
            try:
                refused = await in_thread(self._thread, partial(self._write, batch))
            except StorageError as error:
                self._waiting.extendleft(reversed(batch))
                if self.problem is None:
                    _LOG.warning("messages cannot be written and wait in memory: %s", error)
                self.problem = str(error)
                self._failed += 1
            else:
                if self.problem is not None:
                    _LOG.warning("messages are written again")
                self.problem = None
                self.dropped += refused
                self._done += len(batch)
                self._waiting_bytes -= sum(_size(message) for message, _ in batch)
            attempt, self._attempt = self._attempt, asyncio.Event()
            attempt.set()
        self._is_writing = False

    def _take(self) -> list[Waiting]:
        self._hurry.clear()
        batch: list[Waiting] = []
        size = 0
        while self._waiting and len(batch) < _BATCH_ROWS and size < _BATCH_BYTES:
            batch.append(self._waiting.popleft())
            size += len(batch[-1][0].encoded)
        return batch


async def in_thread(thread: ThreadPoolExecutor, work: Callable[[], _T]) -> _T:
    """Run ``work`` on a thread and return its result; raise `StorageError` for the errors of an archive."""
    try:
        return await call_in_thread(thread, "the archive", work)
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(f"the archive failed: {str(error) or repr(error)}") from error


def _size(message: RoutedMessage) -> int:
    return len(message.encoded) + OVERHEAD_BYTES
