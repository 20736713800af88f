"""What was sent: a SQLite file with one receipt per message, shared by all tasks and all runs that send.

Invariant: a message is claimed before it is sent and settled afterwards, each on disk before the call returns. So a
message that is settled is never sent again, and only those that were on their way when a task died are in doubt.

The key is the deterministic hash of the message (14/WAKU2-MESSAGE): rows that make the same message share a receipt.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any, Final, Self

from fairway.errors import ConfigurationError
from fairway.units import NS_PER_MS

_BUSY_TIMEOUT_S: Final = 60.0
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
_LATER_COLUMNS: Final = {"sent_timestamp": "INTEGER", "sent_hash": "BLOB"}
"""What files of before lack."""
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
_COLUMNS: Final = (
    "message_hash, pubsub_topic, content_topic, timestamp, status, detail, attempts, first_at_ms, settled_at_ms,"
    " sent_timestamp, sent_hash"
)
_FIND: Final = f"SELECT {_COLUMNS} FROM receipt"  # noqa: S608 - constants
_READ: Final = f"{_FIND} WHERE number > ? AND number <= ? ORDER BY number"


class ReceiptStatus(Enum):
    """How far a message came."""

    SENDING = "sending"
    """On its way; if no task is at work on it, one died and nobody knows."""
    SENT = "sent"
    """The node passed it on."""
    REFUSED = "refused"
    """The message itself is at fault: trying again is in vain."""
    FAILED = "failed"
    """The node could not pass it on, as often as it was tried; another run tries again."""
    DROPPED = "dropped"
    """An ephemeral message that could not leave in its time; nothing tries again."""

    @property
    def is_settled(self) -> bool:
        """Return whether nothing more is done about the message."""
        return self not in {ReceiptStatus.SENDING, ReceiptStatus.FAILED}


class Claim(Enum):
    """What a task finds when it wants to send a message."""

    MINE = "mine"
    """Send it."""
    IN_DOUBT = "in-doubt"
    """A task died while it sent it: find out whether it arrived, else send it again."""
    SETTLED = "settled"
    """It was sent, refused or dropped; do nothing."""
    ANOTHERS = "anothers"
    """Another task of this run has the same message; do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchReceipt:
    """One message and what became of it."""

    message_hash: bytes
    pubsub_topic: str
    content_topic: str
    timestamp: int | None
    """Nanoseconds."""
    status: ReceiptStatus
    detail: str
    """Why not, for people."""
    attempts: int
    first_at_ms: int
    settled_at_ms: int | None
    sent_timestamp: int | None = None
    """The timestamp that it was given instead because its own was too old; None if it left as it was."""
    sent_hash: bytes | None = None
    """The hash of the message with that timestamp."""


class ReceiptLedger:
    """A context manager over one file, made if it is not there; raises `ConfigurationError` if it cannot be used."""

    def __init__(
        self, path: str | PathLike[str], *, now_ms: Callable[[], int] = lambda: time.time_ns() // NS_PER_MS
    ) -> None:
        self.path: Final = Path(path)
        self._now_ms = now_ms
        try:
            self._database = sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
            try:
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute("PRAGMA synchronous = FULL")
                self._database.execute(_CREATE)
                self._add_later_columns()
            except BaseException:
                self._database.close()
                raise
        except sqlite3.Error as error:
            raise ConfigurationError(f"{self.path}: cannot keep receipts there: {error}") from error

    def __enter__(self) -> Self:
        """Return the ledger."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; more than once does no harm."""
        self._database.close()

    def claim(
        self, message_hash: bytes, pubsub_topic: str, content_topic: str, timestamp: int | None, *, run: str, task: int
    ) -> Claim:
        """Say whether this task shall send a message; if so, it is written down as on its way.

        ``run`` names one job and ``task`` a part of it, the same for each attempt at it: a part that is tried again
        takes up its own messages, and leaves alone those of a part that may still be at work.
        """
        with self._transaction():
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
        """Write down what became of a message that was claimed."""
        with self._transaction():
            self._database.execute(_SETTLE, (status.value, detail, attempts, self._now_ms(), message_hash))

    def restamp(self, message_hash: bytes, timestamp: int, sent_hash: bytes) -> None:
        """Write down with which timestamp, and so which hash, a message leaves that was claimed."""
        with self._transaction():
            self._database.execute(_RESTAMP, (timestamp, sent_hash, message_hash))

    def stamp(self, message_hash: bytes) -> int | None:
        """Return the timestamp that `restamp` noted for a message, if it did."""
        row = self._database.execute(
            "SELECT sent_timestamp FROM receipt WHERE message_hash = ?", (message_hash,)
        ).fetchone()
        return None if row is None else row[0]

    def find(self, message_hash: bytes) -> DispatchReceipt | None:
        """Return the receipt of a message, if there is one."""
        row = self._database.execute(f"{_FIND} WHERE message_hash = ?", (message_hash,)).fetchone()
        return None if row is None else _receipt(row)

    def attempts_since(self, since_ms: int) -> int:
        """Return how many messages were claimed or settled since a time: no more than that were sent."""
        (count,) = self._database.execute(_ATTEMPTS, (since_ms,)).fetchone()
        return int(count)

    def last_number(self) -> int:
        """Return the number of the newest receipt, 0 if there is none."""
        return int(self._database.execute("SELECT coalesce(max(number), 0) FROM receipt").fetchone()[0])

    def read(self, after: int = 0, through: int | None = None) -> Iterator[DispatchReceipt]:
        """Yield receipts in the order in which messages were first claimed; ``after`` and ``through`` are numbers."""
        last = self.last_number() if through is None else through
        for row in self._database.execute(_READ, (after, last)):
            yield _receipt(row)

    def _add_later_columns(self) -> None:
        there = {row[1] for row in self._database.execute("PRAGMA table_info(receipt)")}
        for name, kind in _LATER_COLUMNS.items():
            if name not in there:
                self._database.execute(f"ALTER TABLE receipt ADD COLUMN {name} {kind}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")


def _receipt(row: tuple[Any, ...]) -> DispatchReceipt:
    told = dict(zip(_COLUMNS.split(", "), row, strict=True))
    return DispatchReceipt(**{**told, "status": ReceiptStatus(told["status"])})
