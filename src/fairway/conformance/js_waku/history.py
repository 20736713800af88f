"""What js-waku remembers: its local history in collation order, and a filter that only ever fills."""

from __future__ import annotations

from bisect import insort

from fairway.conformance.collation import CollationKey, history_key
from fairway.conformance.js_waku.faults import Fault, Notice
from fairway.protocol.sds.history import HistoryRecord, LocalHistory
from fairway.protocol.sds.rolling_bloom import RollingBloom
from fairway.wire.bloom import BloomParameters, BloomWire
from fairway.wire.sds import HistoryEntry


def _collated(record: HistoryRecord) -> CollationKey:
    return history_key(record.lamport, record.message_id)


class JsLocalHistory(LocalHistory):
    """Delivered messages, ordered by the collation of (Lamport timestamp, message id)."""

    def __init__(self, cited: int, notice: Notice) -> None:
        super().__init__(cited)
        self._size = cited
        self._sorted: list[HistoryRecord] = []
        self._ids: dict[str, HistoryRecord] = {}
        self._notice = notice

    def __len__(self) -> int:
        return len(self._sorted)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._ids

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._sorted)
