"""`Dispatch`: sends the scheduled messages, epoch by epoch, each message once.

The messages of one sender are sent one after the other, those of several senders in parallel. The clock may be ahead of
the schedule, for example if the batch was stopped for a day or the node is slow. So the messages of a planned epoch are
sent in the present epoch, and those of the next planned epoch not before the next epoch begins. So no epoch of the
clock exceeds the rate limit.

All messages are sent through one node with one membership, and share its limit. An ephemeral message is dropped if its
epoch has passed or is full.

Invariant: a message that was sent according to the ledger is not sent again. The messages of a sender are sent in their
order: the first failed message stops the sender, and its further messages wait for the next attempt. A message that the
node refuses permanently does not stop the sender.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds

from fairway.nodes.node import WakuNode
from fairway.pipeline.sinks.dispatch import DispatchCounts, Dispatcher
from fairway.pipeline.sinks.ledger import ReceiptLedger
from fairway.units import NS_PER_MS

RESTAMP_AFTER_MS: Final = 10_000
"""Age at which an unsent message gets a new timestamp: relays that check proofs, and nwaku's archives, reject messages
that are 20 seconds old."""
_SENDERS_AT_ONCE: Final = 16
_BATCH_ROWS: Final = 64
_LONGEST_STEP_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchProgress:
    """The progress of a dispatch."""

    settled: int
    """Settled messages, including those of earlier attempts."""
    total: int
    waits_until_ms: int | None = None
    """The beginning of the next epoch with room; None while messages are being sent."""


@dataclass(slots=True, kw_only=True)
class Dispatch:
    """One attempt at the scheduled messages."""

    files: Sequence[Path]
    """The files of the table ``scheduled``."""
    node: WakuNode
    ledger: ReceiptLedger
    rate_limit: int | None = None
    epoch_ms: int = 600_000
    attempts: int = 5
    """Attempts at a message before its sender is stopped."""
    longest_wait_s: float | None = None
    """Longest wait for the next message; None: no limit."""
    tell: Callable[[DispatchProgress], None] = lambda progress: None  # noqa: ARG005 - nobody listens
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    now_ns: Callable[[], int] = time.time_ns
    _run: str = field(default_factory=lambda: uuid.uuid4().hex)
    _stopped: set[str] = field(default_factory=set)
    _settled: int = 0
    _total: int = 0

    async def run(self) -> DispatchCounts:
        """Send all messages that are not settled, and return the outcome of this attempt."""
        outcome = DispatchCounts()
        left = self._unsettled()
        for epoch in sorted(left):
            senders = {name: count for name, count in left[epoch].items() if name not in self._stopped}
            if not senders:
                continue
            if not await self._epoch_has_come(epoch, sum(senders.values())):
                break
            limit = asyncio.Semaphore(_SENDERS_AT_ONCE)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._send_all(epoch, sender, number, limit))
                    for number, sender in enumerate(sorted(senders))
                ]
            outcome = sum((task.result() for task in tasks), outcome)
        return outcome

    def _unsettled(self) -> dict[int, Counter[str]]:
        """Return the number of messages that remain to be sent, by epoch and sender."""
        left: dict[int, Counter[str]] = {}
        for batch in self._dataset().to_batches(columns=["epoch", "sender_id", "message_hash", "dropped"]):
            for row in batch.to_pylist():
                self._total += 1
                if self._is_settled(row["message_hash"]):
                    self._settled += 1
                else:
                    left.setdefault(row["epoch"], Counter())[row["sender_id"]] += row["dropped"] is None
        self.tell(DispatchProgress(settled=self._settled, total=self._total))
        return left

    async def _epoch_has_come(self, epoch: int, count: int) -> bool:
        """Wait until messages of an epoch may be sent; return False if the wait would exceed ``longest_wait_s``."""
        waited_s = 0.0
        while (at_ms := self._when(epoch, count)) is not None:
            left_s = (at_ms - self._now_ms()) / 1_000
            if self.longest_wait_s is not None and waited_s + left_s > self.longest_wait_s:
                return False
            self.tell(DispatchProgress(settled=self._settled, total=self._total, waits_until_ms=at_ms))
            step_s = min(max(left_s, 0.001), _LONGEST_STEP_S)
            await self.pause(step_s)
            waited_s += step_s
        return True

    def _when(self, epoch: int, count: int) -> int | None:
        """Return the time at which messages of an epoch may be sent; None: now."""
        now_ms = self._now_ms()
        if now_ms < epoch * self.epoch_ms:
            return epoch * self.epoch_ms
        if self.rate_limit is None:
            return None
        # No earlier message in this epoch: the dispatch is on schedule.
        used = self.ledger.attempts_since(now_ms - now_ms % self.epoch_ms)
        return None if not used or used + count <= self.rate_limit else now_ms - now_ms % self.epoch_ms + self.epoch_ms

    async def _send_all(self, epoch: int, sender: str, number: int, limit: asyncio.Semaphore) -> DispatchCounts:
        dispatcher = Dispatcher(
            node=self.node,
            ledger=self.ledger,
            run=self._run,
            task=number,
            attempts=self.attempts,
            longest_wait_s=float("inf") if self.longest_wait_s is None else self.longest_wait_s,
            restamp_after_ms=RESTAMP_AFTER_MS,
            pause=self.pause,
            now_ns=self.now_ns,
        )
        outcome = DispatchCounts()
        async with limit:
            for row in self._rows(epoch, sender):
                if self._is_settled(row["message_hash"]):
                    continue
                became = await dispatcher.send_all([row])
                outcome += became
                if became.failed or became.later:
                    self._stopped.add(sender)
                    break
                self._settled += 1
                self.tell(DispatchProgress(settled=self._settled, total=self._total))
        return outcome

    def _rows(self, epoch: int, sender: str) -> Iterator[dict[str, Any]]:
        wanted = (ds.field("epoch") == epoch) & (ds.field("sender_id") == sender)
        for batch in self._dataset().to_batches(
            filter=wanted, batch_size=_BATCH_ROWS, use_threads=False, batch_readahead=1, fragment_readahead=1
        ):
            yield from batch.to_pylist()

    def _dataset(self) -> ds.Dataset:
        return ds.dataset([str(file) for file in self.files], format="parquet")

    def _is_settled(self, message_hash: bytes) -> bool:
        receipt = self.ledger.find(message_hash)
        return receipt is not None and receipt.status.is_settled

    def _now_ms(self) -> int:
        return self.now_ns() // NS_PER_MS
