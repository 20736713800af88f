"""The local history (SDS, "Participant state": local log): delivered messages in one agreed order.

Messages are ordered by ascending Lamport timestamp, equal timestamps by ascending message id, so that participants with
the same messages have the same log. The log keeps id, timestamp, hint and author of each message, not its content.

Only a window of the newest messages is kept. A message that is ordered before the window counts as known; otherwise a
copy of a forgotten message would be delivered again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from fairway.wire.sds import HistoryEntry


class HistoryRecord(NamedTuple):
    """One delivered message. Records sort by their fields, which gives the order of the log."""

    lamport: int
    message_id: str
    retrieval_hint: bytes | None
    sender_id: str
    fingerprints: bytes | None = None
    """`message_id.fingerprint` of each message that was delivered under this id, joined.

    Empty if the id is a digest of its message, so that no other message has it; None if the content is unknown."""

    @property
    def entry(self) -> HistoryEntry:
        """Return this message as others cite it."""
        return HistoryEntry(self.message_id, self.retrieval_hint, self.sender_id)


class LocalHistory:
    """Delivered messages, ordered by (Lamport timestamp, message id)."""

    def __init__(self, cited: int) -> None:
        """Make an empty history that caches its newest ``cited`` entries."""
        self._records: dict[str, HistoryRecord] = {}
        self._ordered: list[HistoryRecord] = []
        self._cited = cited
        self._tail: tuple[HistoryEntry, ...] | None = ()
        """The newest entries; None if they are not cached."""
        self.window: tuple[int, str] | None = None
        """Timestamp and id of the newest forgotten message, or None."""

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._records

    def __iter__(self) -> Iterator[HistoryRecord]:
        return iter(self._ordered)

    def get(self, message_id: str) -> HistoryRecord | None:
        """Return the record of a message, if it was delivered."""
        return self._records.get(message_id)

    def entry(self, cited: HistoryEntry) -> HistoryEntry:
        """Return a citation with its current hint."""
        record = self._records.get(cited.message_id)
        return cited if record is None else record.entry

    def missing_from(self, entries: tuple[HistoryEntry, ...]) -> list[HistoryEntry]:
        """Return the entries that are not in the history, in the given order."""
        records = self._records
        return [entry for entry in entries if entry[0] not in records]

    def add(self, record: HistoryRecord) -> bool:
        """Insert a message in order; return False if its id is already in the history."""
        if record.message_id in self._records:
            return False
        self._records[record.message_id] = record
        if not self._ordered or record > self._ordered[-1]:
            self._ordered.append(record)
            if self._tail is not None and self._cited:
                self._tail = (*self._tail, record.entry)[-self._cited :]
        else:
            insort(self._ordered, record)
            self._tail = None
        return True

    def is_before_window(self, lamport: int, message_id: str) -> bool:
        """Return whether a message is ordered before the window."""
        return self.window is not None and (lamport, message_id) <= self.window

    def forget_oldest(self, count: int) -> list[str]:
        """Forget the oldest messages, and return their ids."""
        gone = self._ordered[:count]
        del self._ordered[:count]
        if gone:
            self.window = max(self.window or gone[-1][:2], gone[-1][:2])
        for record in gone:
            del self._records[record.message_id]
        self._tail = None
        return [record.message_id for record in gone]

    def replace(self, record: HistoryRecord) -> None:
        """Replace the message that has the same id."""
        self.remove(record.message_id)
        self.add(record)

    def remove(self, message_id: str) -> None:
        """Remove a message; it no longer counts as known."""
        del self._ordered[self._index_of(self._records.pop(message_id))]
        self._tail = None

    def set_hint(self, message_id: str, hint: bytes) -> bool:
        """Set the retrieval hint of a message that has none; return whether anything changed."""
        return self._change_hint(message_id, None, hint)

    def clear_hint(self, message_id: str, hint: bytes) -> bool:
        """Remove a hint if it equals ``hint``; return whether anything changed."""
        return self._change_hint(message_id, hint, None)

    def _change_hint(self, message_id: str, old_hint: bytes | None, new_hint: bytes | None) -> bool:
        old = self._records.get(message_id)
        if old is None or old.retrieval_hint != old_hint:
            return False
        new = old._replace(retrieval_hint=new_hint)
        self._ordered[self._index_of(old)] = self._records[message_id] = new
        self._tail = (*self._tail[:-1], new.entry) if self._tail and self._ordered[-1] is new else None
        return True

    def _index_of(self, record: HistoryRecord) -> int:
        return -1 if self._ordered[-1] is record else bisect_left(self._ordered, record)

    def last(self, not_after: int | None = None) -> tuple[HistoryEntry, ...]:
        """Return the newest ``cited`` messages as causal history, oldest first.

        Messages with a timestamp later than ``not_after`` are omitted: otherwise a participant whose clock is far ahead
        would occupy all citations with its messages.
        """
        if not_after is not None and self._ordered and self._ordered[-1].lamport > not_after:
            return self._before(bisect_left(self._ordered, (not_after + 1,)))
        if self._tail is None:
            self._tail = self._before(len(self._ordered))
        return self._tail

    def _before(self, end: int) -> tuple[HistoryEntry, ...]:
        return tuple(record.entry for record in self._ordered[max(0, end - self._cited) : end])
