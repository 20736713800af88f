"""Citations that are owed: messages whose senders plainly do not know that we have them.

A copy of a message that was received before means that its sender is still waiting. The newest few messages of the
history, which every message cites, may never include that one again, and a bloom filter is no proof. So the next
message cites it beside them (SDS spec, "Send Message": it MAY cite more than the recommended few), which acknowledges
it for certain.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from fairway.protocol.sds.history import HistoryRecord, LocalHistory
from fairway.wire.sds import HistoryEntry

_MAX_OWED: Final = 1_000
"""Citations remembered; beyond it the oldest are forgotten until the next copy comes."""
_MAX_PER_MESSAGE: Final = 20
"""Citations added to one message, some 110 bytes each."""


class OwedCitations:
    """Ids of messages to cite once more."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ids)

    def owe(self, message_id: str) -> None:
        """Note that a message came again."""
        self._ids[message_id] = None
        if len(self._ids) > _MAX_OWED:
            self._ids.popitem(last=False)

    def pay(self, newest: tuple[HistoryEntry, ...], history: LocalHistory) -> tuple[HistoryEntry, ...]:
        """Return the newest entries with owed ones before them, oldest first, which are owed no longer."""
        if not self._ids:
            return newest
        cited = {entry.message_id for entry in newest}
        records: list[HistoryRecord] = []
        while self._ids and len(records) < _MAX_PER_MESSAGE:
            message_id, _ = self._ids.popitem(last=False)
            record = history.get(message_id)
            if record is not None and message_id not in cited:
                records.append(record)
        return (*(record.entry for record in sorted(records)), *newest)
