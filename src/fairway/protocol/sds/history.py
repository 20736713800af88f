"""The local history (SDS spec, "Participant state": local log): delivered messages in one agreed order.

Messages are ordered by ascending Lamport timestamp, equal ones by ascending message id, so that participants that hold
the same messages hold the same log. Only what the protocol needs is kept per message (id, timestamp, hint, author);
content lives elsewhere. Membership is one dictionary look-up, an append is constant time, and an insertion in the
middle moves at most one chunk: nothing here grows with the length of the history.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from fairway.wire.sds import HistoryEntry

_CHUNK: Final = 1024
_LAST_ID: Final = "\U0010ffff"
"""Sorts after every id, so that (lamport, _LAST_ID) bounds all messages of that timestamp."""


class HistoryRecord(NamedTuple):
    """One delivered message. The order of the fields is the order of the log."""

    lamport: int
    message_id: str
    retrieval_hint: bytes | None
    sender_id: str

    @property
    def entry(self) -> HistoryEntry:
        """Return this message as others cite it."""
        return HistoryEntry(self.message_id, self.retrieval_hint, self.sender_id)


class LocalHistory:
    """Delivered messages, ordered by (Lamport timestamp, message id)."""

    def __init__(self, cited: int, sort_key: Callable[[HistoryRecord], Any] | None = None) -> None:
        """Make an empty history that keeps its newest ``cited`` entries at hand.

        ``sort_key`` replaces the order of the log; only the reproduction of js-waku's collation needs it.
        """
        self._records: dict[str, HistoryRecord] = {}
        self._chunks: list[list[HistoryRecord]] = [[]]
        self._cited = cited
        self._tail: list[HistoryEntry] | None = []
        self._sort_key = sort_key

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._records

    def __iter__(self) -> Iterator[HistoryRecord]:
        for chunk in self._chunks:
            yield from chunk

    def get(self, message_id: str) -> HistoryRecord | None:
        """Return the record of a message, if it was delivered."""
        return self._records.get(message_id)

    def missing_from(self, entries: tuple[HistoryEntry, ...]) -> list[HistoryEntry]:
        """Return those of the entries that are not in the history, in their order."""
        records = self._records
        return [entry for entry in entries if entry[0] not in records]

    def add(self, record: HistoryRecord) -> bool:
        """Insert a message at its place; return False if its id is there already."""
        if record.message_id in self._records:
            return False
        self._records[record.message_id] = record
        last = self._chunks[-1]
        if self._sort_key is None and (not last or record > last[-1]):
            last.append(record)
            self._append_to_tail(record)
        else:
            self._insert(record)
        return True

    def set_hint(self, message_id: str, hint: bytes) -> bool:
        """Give a message the retrieval hint that it lacks; return whether anything changed."""
        return self._change_hint(message_id, None, hint)

    def clear_hint(self, message_id: str, hint: bytes) -> bool:
        """Take a hint back if it is this one; return whether anything changed."""
        return self._change_hint(message_id, hint, None)

    def _change_hint(self, message_id: str, old_hint: bytes | None, new_hint: bytes | None) -> bool:
        old = self._records.get(message_id)
        if old is None or old.retrieval_hint != old_hint:
            return False
        new = old._replace(retrieval_hint=new_hint)
        chunk = self._chunk_of(old)
        chunk[self._bisect(chunk, old)] = new
        self._records[message_id] = new
        self._tail = None
        return True

    def last(self, not_after: int | None = None) -> tuple[HistoryEntry, ...]:
        """Return the newest ``cited`` messages as causal history, oldest first.

        Messages stamped later than ``not_after`` are passed over: one peer with a clock far ahead must not be all
        that others ever cite.
        """
        newest = self._chunks[-1]
        if not_after is not None and newest and newest[-1].lamport > not_after:
            return self._last_bounded(not_after)
        if self._tail is None:
            self._tail = [record.entry for record in self._newest(self._cited)]
        return tuple(self._tail)

    def _newest(self, count: int) -> list[HistoryRecord]:
        found: list[HistoryRecord] = []
        for chunk in reversed(self._chunks):
            if len(found) >= count:
                break
            found[:0] = chunk[-(count - len(found)) :]
        return found

    def _last_bounded(self, not_after: int) -> tuple[HistoryEntry, ...]:
        bound = (not_after, _LAST_ID)
        found: list[HistoryRecord] = []
        for chunk in reversed(self._chunks):
            wanted = self._cited - len(found)
            if wanted <= 0:
                break
            end = bisect_right(chunk, bound)  # a prefix compares with the whole record
            found[:0] = chunk[max(0, end - wanted) : end]
        return tuple(record.entry for record in found)

    def _append_to_tail(self, record: HistoryRecord) -> None:
        if self._tail is not None and self._cited:
            self._tail.append(record.entry)
            if len(self._tail) > self._cited:
                del self._tail[0]
        if len(self._chunks[-1]) >= 2 * _CHUNK:
            self._split(len(self._chunks) - 1)

    def _insert(self, record: HistoryRecord) -> None:
        chunk = self._chunk_of(record)
        if self._sort_key is None:
            insort(chunk, record)
        else:
            insort(chunk, record, key=self._sort_key)
        self._tail = None
        if len(chunk) >= 2 * _CHUNK:
            self._split(self._chunks.index(chunk))

    def _split(self, index: int) -> None:
        chunk = self._chunks[index]
        self._chunks[index : index + 1] = [chunk[:_CHUNK], chunk[_CHUNK:]]

    def _chunk_of(self, record: HistoryRecord) -> list[HistoryRecord]:
        """Return the chunk in which a record stands or belongs."""
        key = self._sort_key
        if key is None:
            index = bisect_left(self._chunks, record, key=lambda chunk: chunk[-1] if chunk else record)
        else:
            index = bisect_left(self._chunks, key(record), key=lambda chunk: key(chunk[-1]) if chunk else key(record))
        return self._chunks[min(index, len(self._chunks) - 1)]

    def _bisect(self, chunk: list[HistoryRecord], record: HistoryRecord) -> int:
        if self._sort_key is None:
            return bisect_left(chunk, record)
        return bisect_left(chunk, self._sort_key(record), key=self._sort_key)
