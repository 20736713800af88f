"""The WakuMessages that carried the SDS messages whose content is not delivered yet.

Such an SDS message is a whole message that waits for the messages that it cites, or a segment of an incomplete message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from fairway.protocol.journal import Journal
from fairway.wire.sds import HistoryEntry

ARRIVALS: Final = "arrivals"


class Arrival(NamedTuple):
    """The WakuMessage of an SDS message that is not delivered yet; also its row in the store."""

    message_hash: bytes
    timestamp_ns: int
    lamport: int
    is_segment: bool
    """Whether its content is a segment and not a whole message."""
    met: bool | None = None
    """Whether all cited messages were present when SDS delivered it; None before. Only segments are kept after that."""
    meta: bytes | None = None
    """``meta`` of the WakuMessage (14/WAKU2-MESSAGE)."""


class Arrivals(dict[str, Arrival]):
    """Arrivals by SDS id, journaled by `keep`, `mark_in_place` and `forget`."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def keep(self, sds_id: str, arrival: Arrival) -> None:
        """Keep the arrival of a message; it replaces an earlier one with the same id."""
        if sds_id in self:
            self._journal.touch(ARRIVALS, sds_id)
        else:
            self._journal.created(ARRIVALS, sds_id)
        self[sds_id] = arrival

    def mark_in_place(self, sds_id: str, *, met: bool) -> None:
        """Note that SDS delivered a segment of an incomplete message."""
        self[sds_id] = self[sds_id]._replace(met=met)
        self._journal.touch(ARRIVALS, sds_id)

    def forget(self, sds_ids: Iterable[str]) -> None:
        """Remove the arrivals of messages."""
        for sds_id in sds_ids:
            if self.pop(sds_id, None) is not None:
                self._journal.deleted(ARRIVALS, sds_id)

    def among(self, cited: Iterable[HistoryEntry]) -> list[tuple[str, Arrival]]:
        """Return the arrivals of cited messages, which are segments of incomplete messages."""
        return [(entry[0], self[entry[0]]) for entry in cited if entry[0] in self] if self else []
