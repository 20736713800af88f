"""What js-waku's messages cite: the newest of the history, and nothing beside them."""

from __future__ import annotations

from fairway.protocol.sds.history import LocalHistory
from fairway.protocol.sds.pending_citations import PendingCitations
from fairway.wire.sds import HistoryEntry
from fairway.wire.segment import SegmentFormat
from js_waku.faults import Fault, Notice


class JsCitations(PendingCitations):
    """Notices where fairway would cite more."""

    def __init__(self, own_name: str, segments: SegmentFormat, notice: Notice) -> None:
        super().__init__(own_name, segments)
        self._notice = notice

    def select(
        self,
        newest: tuple[HistoryEntry, ...],
        history: LocalHistory,
        beside: tuple[HistoryEntry, ...] = (),
        *,
        content: bytes | None,
    ) -> tuple[HistoryEntry, ...]:
        """Return the newest entries."""
        owed = super().select(newest, history, content=content)
        if owed != newest:
            self._notice(Fault.LEFT_UNCITED)
        if content is not None:
            # Noticed once.
            self.cited(owed, self._own_name, content)
        return newest
