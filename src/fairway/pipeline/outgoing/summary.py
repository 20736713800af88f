"""`SendSummary`: the counts of a batch: its payloads, messages and epochs, and the messages that were sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds

from fairway.pipeline.run.folder import RunFolder
from fairway.pipeline.sinks.dispatch import DispatchCounts
from fairway.pipeline.sinks.ledger import ReceiptLedger, ReceiptStatus

_REASONS: Final = 5
WAITING: Final = "waiting"
"""The status of a message that was not tried yet and is not to be dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSummary:
    """The counts of a batch."""

    folder: Path
    payloads: int
    refused: int
    """Payloads without messages; the table ``refused`` has the reasons."""
    transmissions: int
    """Messages of the network, segments and parity counted one by one."""
    senders: int
    channels: int
    epochs: int
    """Epochs of the rate limit with scheduled messages."""
    starts_ms: int | None
    """The planned time of the first message in Unix milliseconds; None if there is none."""
    ends_ms: int | None
    """The planned time of the last message."""
    statuses: dict[str, int]
    """Number of messages by status: a `ReceiptStatus`, or ``waiting``."""
    outcome: DispatchCounts
    """The result of this attempt."""
    reasons: dict[str, int]
    """Number of refused or failed messages by the detail of their receipt, the most frequent first."""

    @property
    def left(self) -> int:
        """Return the number of messages that another attempt would try."""
        return self.transmissions - sum(self.statuses.get(each.value, 0) for each in ReceiptStatus if each.is_settled)

    @property
    def is_settled(self) -> bool:
        """Return whether no message is left for another attempt."""
        return not self.left

    @property
    def is_complete(self) -> bool:
        """Return whether every payload was sent."""
        return not self.refused and self.statuses.get(ReceiptStatus.SENT.value, 0) == self.transmissions

    def as_json(self) -> dict[str, Any]:
        """Return the summary as values for JSON."""
        return {**asdict(self), "folder": str(self.folder), "left": self.left, "complete": self.is_complete}


def status_without_receipt(row: Mapping[str, Any]) -> str:
    """Return the status of a row of ``scheduled`` that was not given to a node yet."""
    return WAITING if row["dropped"] is None else ReceiptStatus.DROPPED.value


def summary_of(run: RunFolder, ledger: ReceiptLedger, files: Sequence[Path], outcome: DispatchCounts) -> SendSummary:
    """Return the summary of a batch whose tables are complete."""
    statuses: Counter[str] = Counter()
    senders: set[str] = set()
    channels: set[str] = set()
    epochs: set[int] = set()
    first: int | None = None
    last: int | None = None
    reasons: Counter[str] = Counter()
    columns = ["sender_id", "channel_id", "epoch", "not_before_ms", "message_hash", "dropped"]
    for batch in ds.dataset([str(file) for file in files], format="parquet").to_batches(columns=columns):
        for row in batch.to_pylist():
            receipt = ledger.find(row["message_hash"])
            statuses[status_without_receipt(row) if receipt is None else receipt.status.value] += 1
            if receipt is not None and receipt.status in {ReceiptStatus.REFUSED, ReceiptStatus.FAILED}:
                reasons[receipt.detail] += 1
            senders.add(row["sender_id"])
            channels.add(row["channel_id"])
            epochs.add(row["epoch"])
            first = row["not_before_ms"] if first is None else min(first, row["not_before_ms"])
            last = row["not_before_ms"] if last is None else max(last, row["not_before_ms"])
    results = run.results
    return SendSummary(
        folder=run.path,
        payloads=results["payloads"].rows,
        refused=results["refused"].rows,
        transmissions=statuses.total(),
        senders=len(senders),
        channels=len(channels),
        epochs=len(epochs),
        starts_ms=first,
        ends_ms=last,
        statuses=dict(statuses),
        outcome=outcome,
        reasons=dict(reasons.most_common(_REASONS)),
    )
