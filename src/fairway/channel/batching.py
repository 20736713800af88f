"""`SendBatches`: collects the small sends of ``batch_ms``, for one SDS message (`fairway.wire.batch`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fairway.channel.engine import Engine
from fairway.channel.receipt import Receipt, ReceiptBook
from fairway.errors import StorageError, copy_of
from fairway.owned_tasks import OwnedTasks


class Terms(NamedTuple):
    """The condition of a delivery, and the deadline; those of the sends of a batch are equal."""

    required_count: int
    required_from: frozenset[str]
    deadline_ms: int | None


@dataclass(slots=True, eq=False)
class _Batch:
    terms: Terms
    timer: asyncio.TimerHandle
    began_ms: int
    payloads: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    outcomes: list[asyncio.Future[tuple[Receipt, StorageError | None]]] = field(default_factory=list)
    """One for each payload: the receipt, and the error of the store."""

    def fail(self, error: Exception) -> None:
        """Raise an error in all calls."""
        for outcome in self.outcomes:
            if not outcome.done():
                outcome.set_exception(copy_of(error))

    def stored(self, receipts: list[Receipt], error: StorageError | None) -> None:
        """End all calls: the store has the batch, or has failed."""
        for outcome, receipt in zip(self.outcomes, receipts, strict=True):
            if not outcome.done():
                outcome.set_result((receipt, error))


class SendBatches:
    """The open batch of a channel, and the batches that wait for room in the protocol.

    The first send opens a batch. The batch is sent after ``batch_ms``, or before a send that cannot join it.
    """

    def __init__(
        self,
        batch_ms: int,
        now_ms: Callable[[], int],
        receipts: ReceiptBook,
        engine: Callable[[], Engine],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        """``engine`` returns the engine of a started channel or raises; ``room`` waits for room for a send."""
        self._batch_s: Final = batch_ms / 1_000
        self._now_ms, self._receipts, self._engine, self._room = now_ms, receipts, engine, room
        self._open: _Batch | None = None
        self._tasks = OwnedTasks()
        self._last: asyncio.Task[None] | None = None
        """The newest batch that is being sent."""

    def takes(self, payload: bytes) -> bool:
        """Return whether a payload can be sent in a batch."""
        return self._batch_s > 0 and len(payload) > 0 and self._engine().stack.fits_batch(1, len(payload))

    async def send(self, payload: bytes, terms: Terms) -> tuple[Receipt, StorageError | None]:
        """Send a payload in a batch; return its receipt when the store has it, or has failed.

        Cancellation of the caller does not cancel the send.
        """
        fits, batch = self._engine().stack.fits_batch, self._open
        if batch is not None and not (
            batch.terms == terms and fits(len(batch.payloads) + 1, batch.size_bytes + len(payload))
        ):
            self._flush()
            batch = None
        loop = asyncio.get_running_loop()
        if batch is None:
            batch = self._open = _Batch(terms, loop.call_later(self._batch_s, self._flush), self._now_ms())
        outcome: asyncio.Future[tuple[Receipt, StorageError | None]] = loop.create_future()
        batch.payloads.append(payload)
        batch.size_bytes += len(payload)
        batch.outcomes.append(outcome)
        return await outcome

    async def flushed(self) -> None:
        """Send the open batch, and wait until the protocol has accepted all batches."""
        self._flush()
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last])

    def _flush(self) -> None:
        batch, self._open = self._open, None
        if batch is not None:
            batch.timer.cancel()
            self._last = self._tasks.spawn(self._send(batch))

    async def _send(self, batch: _Batch) -> None:
        count, names, deadline_ms = batch.terms
        try:
            await self._room()
            engine, now_ms = self._engine(), self._now_ms()
            if deadline_ms is not None:
                # The deadline counts from the first call.
                deadline_ms = max(1, deadline_ms - max(0, now_ms - batch.began_ms))
            sent = engine.stack.send_batch(
                batch.payloads, now_ms, required_count=count, required_from=names, deadline_ms=deadline_ms
            )
        except Exception as error:  # noqa: BLE001 - each call of send raises it
            batch.fail(error)
            return
        receipts = [self._receipts.new(*ids) for ids in sent.sends]
        try:
            durable = engine.send_batch(sent, batch.payloads, now_ms)
        except StorageError as error:
            batch.stored(receipts, error)
            return
        if durable is None:
            batch.stored(receipts, None)
        else:
            durable.add_done_callback(lambda stored: batch.stored(receipts, _error_of(stored)))


def _error_of(stored: asyncio.Future[None]) -> StorageError | None:
    error = stored.exception()
    assert error is None or isinstance(error, StorageError), "a write ends with the error of its store"
    return error
