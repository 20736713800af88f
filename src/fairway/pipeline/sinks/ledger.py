"""`ReceiptLedger`: a SQLite file with one receipt per message, shared by all sending tasks and runs.

Invariant: a message is claimed before it is sent and settled afterwards; both are on disk before the call returns. So a
settled message is not sent again, and only messages that a dead task was sending are in doubt.

The key is the message hash (14/WAKU2-MESSAGE): rows with the same message share a receipt.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any, Final, Self

from fairway.errors import ConfigurationError, StorageError
from fairway.storage.sqlite_connection import connect, transaction, use_log
from fairway.units import NS_PER_MS

_BUSY_TIMEOUT_MS: Final = 60_000
_CREATE: Final = """
CREATE TABLE IF NOT EXISTS receipt (
    number INTEGER PRIMARY KEY,
    message_hash BLOB NOT NULL UNIQUE,
    pubsub_topic TEXT NOT NULL,
    content_topic TEXT NOT NULL,
    timestamp INTEGER,
    status TEXT NOT NULL,
    detail TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    run TEXT NOT NULL,
    task INTEGER NOT NULL,
    first_at_ms INTEGER NOT NULL,
    settled_at_ms INTEGER,
    sent_timestamp INTEGER,
    sent_hash BLOB
)
"""
_CLAIM: Final = """
INSERT INTO receipt
(message_hash, pubsub_topic, content_topic, timestamp, status, detail, attempts, run, task, first_at_ms)
VALUES (?, ?, ?, ?, 'sending', '', 0, ?, ?, ?) ON CONFLICT (message_hash) DO NOTHING
"""
_RECLAIM: Final = "UPDATE receipt SET status = 'sending', run = ?, task = ? WHERE message_hash = ?"
_SETTLE: Final = """
UPDATE receipt SET status = ?, detail = ?, attempts = attempts + ?, settled_at_ms = ? WHERE message_hash = ?
"""
_RESTAMP: Final = "UPDATE receipt SET sent_timestamp = ?, sent_hash = ? WHERE message_hash = ?"
_ATTEMPTS: Final = """
SELECT count(*) FROM receipt
WHERE max(first_at_ms, coalesce(settled_at_ms, 0)) >= ? AND NOT (status = 'dropped' AND attempts = 0)
"""
_MAY_HAVE_SENT: Final = "SELECT 1 FROM receipt WHERE status <> 'refused' LIMIT 1"
_COLUMNS: Final = (
    "message_hash, pubsub_topic, content_topic, timestamp, status, detail, attempts, first_at_ms, settled_at_ms,"
    " sent_timestamp, sent_hash"
)
_FIND: Final = f"SELECT {_COLUMNS} FROM receipt"  # noqa: S608 - constants
_READ: Final = f"{_FIND} WHERE number > ? AND number <= ? ORDER BY number"


class ReceiptStatus(Enum):
    """The state of a message."""

    SENDING = "sending"
    """A task is sending it, or died during the attempt."""
    SENT = "sent"
    """The node accepted it."""
    REFUSED = "refused"
    """The message is invalid, or on a shard that the node does not serve; no run tries it again."""
    FAILED = "failed"
    """All attempts failed; another run tries again."""
    DROPPED = "dropped"
    """An ephemeral message that could not be sent in its time; no run tries it again."""

    @property
    def is_settled(self) -> bool:
        """Return whether the status is final, so that no run tries the message again."""
        return self not in {ReceiptStatus.SENDING, ReceiptStatus.FAILED}


class Claim(Enum):
    """The answer of the ledger to a task that wants to send a message."""

    MINE = "mine"
    """Send it."""
    IN_DOUBT = "in-doubt"
    """A task died while it sent the message: query the store, and send the message if the store does not have it."""
    SETTLED = "settled"
    """The message was sent, refused or dropped; do nothing."""
    ANOTHERS = "anothers"
    """Another task of this run has claimed the message; do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchReceipt:
    """One message and its state."""

    message_hash: bytes
    pubsub_topic: str
    content_topic: str
    timestamp_ns: int | None
    status: ReceiptStatus
    detail: str
    """The detail of the result, such as the reason of a failure."""
    attempts: int
    first_at_ms: int
    settled_at_ms: int | None
    sent_timestamp_ns: int | None = None
    """The new timestamp of a message with too old a timestamp; None if it kept its own."""
    sent_hash: bytes | None = None
    """The hash of the message with the new timestamp."""


class ReceiptLedger:
    """A context manager over one file, which is created if missing; raises `ConfigurationError` if it is unusable."""

    def __init__(
        self, path: str | PathLike[str], *, now_ms: Callable[[], int] = lambda: time.time_ns() // NS_PER_MS
    ) -> None:
        self.path: Final = Path(path)
        self._now_ms = now_ms
        try:
            self._database = connect(self.path)
            try:
                self._database.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
                use_log(self._database, self.path)
                self._database.execute(_CREATE)
            except BaseException:
                self._database.close()
                raise
        except (sqlite3.Error, StorageError) as error:
            raise ConfigurationError(
                f"{self.path}: cannot keep receipts there: {error}; name a file in a folder that can be written"
            ) from error

    def __enter__(self) -> Self:
        """Return the ledger."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file. Can be called twice."""
        self._database.close()

    def claim(
        self, message_hash: bytes, pubsub_topic: str, content_topic: str, timestamp: int | None, *, run: str, task: int
    ) -> Claim:
        """Return whether this task must send a message; if so, write a receipt with the status ``sending``.

        ``run`` names a job and ``task`` a part of it, the same for each attempt. A repeated task continues with its own
        messages, and skips those of other tasks of the run, which may still be active.
        """
        with transaction(self._database):
            row = (message_hash, pubsub_topic, content_topic, timestamp, run, task, self._now_ms())
            if self._database.execute(_CLAIM, row).rowcount:
                return Claim.MINE
            status, earlier_run, earlier_task = self._database.execute(
                "SELECT status, run, task FROM receipt WHERE message_hash = ?", (message_hash,)
            ).fetchone()
            if ReceiptStatus(status).is_settled:
                return Claim.SETTLED
            claim = Claim.MINE if status == ReceiptStatus.FAILED.value else Claim.IN_DOUBT
            if claim is Claim.IN_DOUBT and earlier_run == run and earlier_task != task:
                return Claim.ANOTHERS
            self._database.execute(_RECLAIM, (run, task, message_hash))
            return claim

    def settle(self, message_hash: bytes, status: ReceiptStatus, *, detail: str = "", attempts: int = 1) -> None:
        """Write the status of a claimed message."""
        with transaction(self._database):
            self._database.execute(_SETTLE, (status.value, detail, attempts, self._now_ms(), message_hash))

    def restamp(self, message_hash: bytes, timestamp: int, sent_hash: bytes) -> None:
        """Write the new timestamp, and so the new hash, of a claimed message."""
        with transaction(self._database):
            self._database.execute(_RESTAMP, (timestamp, sent_hash, message_hash))

    def stamp(self, message_hash: bytes) -> int | None:
        """Return the timestamp of a message from `restamp`, or None."""
        row = self._database.execute(
            "SELECT sent_timestamp FROM receipt WHERE message_hash = ?", (message_hash,)
        ).fetchone()
        return None if row is None else row[0]

    def find(self, message_hash: bytes) -> DispatchReceipt | None:
        """Return the receipt of a message, if there is one."""
        row = self._database.execute(f"{_FIND} WHERE message_hash = ?", (message_hash,)).fetchone()
        return None if row is None else _receipt(row)

    def attempts_since(self, since_ms: int) -> int:
        """Return the number of messages that were claimed or settled since a time, an upper bound of sent messages."""
        (count,) = self._database.execute(_ATTEMPTS, (since_ms,)).fetchone()
        return int(count)

    def may_have_sent(self) -> bool:
        """Return whether a message was sent, or may have been: a node may relay a message and then report a failure."""
        return self._database.execute(_MAY_HAVE_SENT).fetchone() is not None

    def clear(self) -> None:
        """Remove all receipts."""
        with transaction(self._database):
            self._database.execute("DELETE FROM receipt")

    def last_number(self) -> int:
        """Return the number of the newest receipt, 0 if there is none."""
        return int(self._database.execute("SELECT coalesce(max(number), 0) FROM receipt").fetchone()[0])

    def read(self, after: int = 0, through: int | None = None) -> Iterator[DispatchReceipt]:
        """Yield receipts in the order in which messages were first claimed; ``after`` and ``through`` are numbers."""
        last = self.last_number() if through is None else through
        for row in self._database.execute(_READ, (after, last)):
            yield _receipt(row)


def _receipt(row: tuple[Any, ...]) -> DispatchReceipt:
    told: dict[str, Any] = dict(zip((field.name for field in fields(DispatchReceipt)), row, strict=True))
    return DispatchReceipt(**{**told, "status": ReceiptStatus(told["status"])})
