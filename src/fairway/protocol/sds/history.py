"""The local history (SDS, "Participant state": local log): delivered messages in one agreed order.

Messages are ordered by ascending Lamport timestamp, equal ones by ascending message id, so that participants with the
same messages have the same log. Id, timestamp, hint and author of each message are kept; its content is not. The
records stand in blocks of bounded size: an insertion changes one block, so that no call takes longer for a longer
history.

Only a window of the newest messages is kept. A message that would stand before it counts as known; otherwise a copy of
a forgotten message would be delivered again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple

from fairway.wire.sds import HistoryEntry

_BLOCK_RECORDS: Final = 1024
_id_of = itemgetter(0)

_WORTH_COMPARING: Final = 16
"""From so many citations on, comparing them with the last list is quicker than looking each one up."""


class HistoryRecord(NamedTuple):
    """One delivered message. Records sort by their fields, which gives the order of the log."""

    lamport: int
    message_id: str
    retrieval_hint: bytes | None
    sender_id: str
    fingerprints: bytes | None = None
    """`message_id.fingerprint` of each message that was delivered under this id, joined; empty if the id is a digest of
    its message, and so of one message only; None if the content is unknown."""

    @property
    def entry(self) -> HistoryEntry:
        """Return this message as others cite it."""
        return HistoryEntry(self.message_id, self.retrieval_hint, self.sender_id)


class LocalHistory:
    """Delivered messages, ordered by (Lamport timestamp, message id)."""

    def __init__(self, cited: int) -> None:
        """Make an empty history that keeps its newest ``cited`` entries at hand."""
        self._records: dict[str, HistoryRecord] = {}
        self._complete: tuple[HistoryEntry, ...] = ()
        self._blocks: list[list[HistoryRecord]] = [[]]
        self._cited = cited
        self._tail: list[HistoryEntry] | None = []
        self.window: tuple[int, str] | None = None
        """Timestamp and id of the newest message that was forgotten; None if none was."""

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._records

    def __iter__(self) -> Iterator[HistoryRecord]:
        for block in self._blocks:
            yield from block

    def get(self, message_id: str) -> HistoryRecord | None:
        """Return the record of a message, if it was delivered."""
        return self._records.get(message_id)

    def entry(self, cited: HistoryEntry) -> HistoryEntry:
        """Return a citation with the hint that is known by now."""
        record = self._records.get(cited.message_id)
        return cited if record is None else record.entry

    def missing_from(self, entries: tuple[HistoryEntry, ...]) -> list[HistoryEntry]:
        """Return those of the entries that are not in the history, in their order.

        Consecutive messages cite nearly the same entries. Those that also stand in the last list of which none was
        missing need not be looked up, as long as no message was removed from the history.
        """
        records = self._records
        unchecked = entries[self._overlap(entries) :]
        if all(map(records.__contains__, map(_id_of, unchecked))):
            self._complete = entries
            return []
        return [entry for entry in unchecked if entry[0] not in records]

    def _overlap(self, entries: tuple[HistoryEntry, ...]) -> int:
        """Return how many of the first entries are the last ones of the last list of which none was missing."""
        complete = self._complete
        if len(entries) < _WORTH_COMPARING or entries[0] not in complete[:_WORTH_COMPARING]:
            return 0
        common = complete[complete.index(entries[0]) :]
        return len(common) if entries[: len(common)] == common else 0

    def add(self, record: HistoryRecord) -> bool:
        """Insert a message in order; return False if its id is there already."""
        if record.message_id in self._records:
            return False
        self._records[record.message_id] = record
        last = self._blocks[-1]
        if not last or record > last[-1]:
            last.append(record)
            self._append_to_tail(record)
        else:
            self._insert(record)
        return True

    def is_before_window(self, lamport: int, message_id: str) -> bool:
        """Return whether a message would stand before the messages that are kept."""
        return self.window is not None and (lamport, message_id) <= self.window

    def forget_oldest(self, count: int) -> list[str]:
        """Forget the oldest messages, and return their ids."""
        forgotten: list[str] = []
        while len(forgotten) < count and self._records:
            block = self._blocks[0]
            gone = block[: count - len(forgotten)]
            del block[: len(gone)]
            if not block and len(self._blocks) > 1:
                del self._blocks[0]
            forgotten += [record.message_id for record in gone]
            self.window = max(self.window or gone[-1][:2], gone[-1][:2])
        for message_id in forgotten:
            del self._records[message_id]
        self._complete = ()
        self._tail = None
        return forgotten

    def replace(self, record: HistoryRecord) -> None:
        """Replace the message that has the same id."""
        self.remove(record.message_id)
        self.add(record)

    def remove(self, message_id: str) -> None:
        """Remove a message; it does not count as known then."""
        old = self._records.pop(message_id)
        index = self._block_of(old)
        block = self._blocks[index]
        del block[bisect_left(block, old)]
        if not block and len(self._blocks) > 1:
            del self._blocks[index]
        self._complete = ()
        self._tail = None

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
        new = HistoryRecord(old.lamport, message_id, new_hint, old.sender_id, old.fingerprints)
        block = self._blocks[-1]
        if block[-1] is old:
            block[-1] = new
        else:
            block = self._blocks[self._block_of(old)]
            block[bisect_left(block, old)] = new
        self._records[message_id] = new
        self._change_tail(new.entry)
        return True

    def last(self, not_after: int | None = None) -> tuple[HistoryEntry, ...]:
        """Return the newest ``cited`` messages as causal history, oldest first.

        Messages with a timestamp later than ``not_after`` are left out: otherwise messages of one participant whose
        clock is far ahead would be all that is ever cited.
        """
        newest = self._blocks[-1]
        if not_after is not None and newest and newest[-1].lamport > not_after:
            return tuple(record.entry for record in self._newest(before=(not_after + 1,)))
        if self._tail is None:
            self._tail = [record.entry for record in self._newest()]
        return tuple(self._tail)

    def _newest(self, before: tuple[Any, ...] | None = None) -> list[HistoryRecord]:
        """Return the newest records, oldest first; ``before`` is compared with the beginning of a record."""
        index = len(self._blocks)
        if before is not None:
            index = bisect_left(self._blocks, before, key=lambda block: block[0])
        found: list[HistoryRecord] = []
        while index and len(found) < self._cited:
            index -= 1
            block = self._blocks[index]
            end = len(block) if before is None else bisect_left(block, before)
            found[:0] = block[max(0, end - self._cited + len(found)) : end]
        return found

    def _append_to_tail(self, record: HistoryRecord) -> None:
        if self._tail is not None and self._cited:
            self._tail.append(record.entry)
            if len(self._tail) > self._cited:
                del self._tail[0]
        if len(self._blocks[-1]) >= 2 * _BLOCK_RECORDS:
            self._split(len(self._blocks) - 1)

    def _change_tail(self, new: HistoryEntry) -> None:
        tail = self._tail or []
        for index in range(len(tail) - 1, -1, -1):
            if tail[index].message_id == new.message_id:
                tail[index] = new
                return

    def _insert(self, record: HistoryRecord) -> None:
        index = self._block_of(record)
        block = self._blocks[index]
        insort(block, record)
        self._tail = None
        if len(block) >= 2 * _BLOCK_RECORDS:
            self._split(index)

    def _split(self, index: int) -> None:
        block = self._blocks[index]
        self._blocks[index : index + 1] = [block[:_BLOCK_RECORDS], block[_BLOCK_RECORDS:]]

    def _block_of(self, record: HistoryRecord) -> int:
        """Return the index of the block in which a record stands, or belongs if it is not the newest."""
        return bisect_left(self._blocks, record, key=lambda block: block[-1])
