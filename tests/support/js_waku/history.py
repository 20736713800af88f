"""What js-waku remembers of delivered messages: a history in the order of its locale, and a filter that only fills."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from tests.conformance.collation import CollationKey, history_key

from fairway.protocol.sds.history import HistoryRecord, LocalHistory
from fairway.protocol.sds.rolling_bloom import RollingBloom
from fairway.wire.bloom import BloomParameters, BloomWire
from fairway.wire.sds import HistoryEntry
from js_waku.faults import Fault, Notice


def _collated(record: HistoryRecord) -> CollationKey:
    return history_key(record.lamport, record.message_id)


class JsLocalHistory(LocalHistory):
    """Delivered messages, sorted with ``localeCompare``."""

    def __init__(self, cited: int, notice: Notice) -> None:
        super().__init__(cited)
        self._last_cited = cited
        self._sorted: list[HistoryRecord] = []
        self._notice = notice

    def __iter__(self) -> Iterator[HistoryRecord]:
        return iter(self._sorted)

    def add(self, record: HistoryRecord) -> bool:
        """Insert a message at its place by collation, unless its id is there."""
        if record.message_id in self:
            return False
        self._records[record.message_id] = record
        insort(self._sorted, record, key=_collated)
        at = self._sorted.index(record)
        beside = self._sorted[max(0, at - 1) : at + 2]
        if beside != sorted(beside):
            self._notice(Fault.COLLATED)
        return True

    def put(self, record: HistoryRecord) -> bool:
        """Insert an own message; of two with one id the first in order stays, which may be the new one.

        js-waku removes doubles after it has sorted (packages/sds, mem_local_history.ts).
        """
        present = self.get(record.message_id)
        if present is not None:
            if _collated(present) <= _collated(record):
                return False
            self._notice(Fault.OLDER_COPY_COUNTS)
            self._sorted.remove(self._records.pop(record.message_id))
        return self.add(record)

    def change_hint(self, message_id: str, hint: bytes | None) -> None:
        """Give a message another hint, or none: js-waku sets it on the message object that the history holds."""
        old = self._records[message_id]
        if old.retrieval_hint == hint:
            return
        if old.retrieval_hint is not None:
            self._notice(Fault.LAST_HINT_COUNTS)
        new = old._replace(retrieval_hint=hint)
        self._sorted[self._sorted.index(old)] = self._records[message_id] = new

    def last(self, not_after: int | None = None) -> tuple[HistoryEntry, ...]:
        """Return the newest messages whatever their timestamps; all of them where none are asked for.

        ``slice(-0)`` is the whole of an array.
        """
        newest = self._sorted[-self._last_cited :]
        if newest and not self._last_cited:
            self._notice(Fault.WHOLE_HISTORY)
        if not_after is not None and any(record.lamport > not_after for record in newest):
            self._notice(Fault.FUTURE_BELIEVED)
        return tuple(record.entry for record in newest)


class JsBloom(RollingBloom):
    """The filter of everything that was ever received."""

    def __init__(self, parameters: BloomParameters, wire: BloomWire, notice: Notice) -> None:
        super().__init__(parameters, wire)
        self._notice = notice

    def _roll_over(self) -> None:
        """Keep everything: js-waku never rolls its filter over."""
        self._notice(Fault.FILTER_NEVER_ROLLED)
