"""How each SDS message came in whose content is not delivered yet.

That is a whole message that waits for the messages that it cites, or a segment of an incomplete message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fairway.protocol.incoming.message_life import LIFE, MessageState, MessageStep
from fairway.protocol.journal import Journal, Row
from fairway.wire.sds import HistoryEntry

ARRIVALS: Final = "arrivals"


@dataclass(slots=True, kw_only=True)
class Arrival:
    """How an SDS message that is not delivered yet came in."""

    message_hash: bytes
    timestamp_ns: int
    lamport: int
    state: MessageState
    """`MessageState.WAITING`, `MessageState.INCOMPLETE` or `MessageState.IN_PLACE`."""
    met: bool = True
    """Whether each cited message was here when SDS delivered it; meaningless before."""
    meta: bytes | None = None
    """``meta`` of the WakuMessage (14/WAKU2-MESSAGE)."""

    def after(self, step: MessageStep) -> MessageState:
        """Return the state of its content after a step (`fairway.protocol.incoming.message_life.LIFE`)."""
        return LIFE[self.state][step]

    @property
    def is_segment(self) -> bool:
        """Whether its content is a segment and not a whole message."""
        return self.state is not MessageState.WAITING


class Arrivals:
    """Arrivals by SDS id, journaled."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._arrivals: dict[str, Arrival] = {}

    def __len__(self) -> int:
        return len(self._arrivals)

    def get(self, sds_id: str) -> Arrival | None:
        """Return how a message came in; None if it is delivered, or never came."""
        return self._arrivals.get(sds_id)

    def keep(self, sds_id: str, arrival: Arrival) -> None:
        """Keep how a message came in; it replaces that of another message under its id."""
        if sds_id in self._arrivals:
            self._journal.touch(ARRIVALS, sds_id)
        else:
            self._journal.created(ARRIVALS, sds_id)
        self._arrivals[sds_id] = arrival

    def mark_in_place(self, sds_id: str, *, met: bool) -> None:
        """Note that SDS delivered a segment of an incomplete message."""
        arrival = self._arrivals[sds_id]
        arrival.state, arrival.met = arrival.after(MessageStep.RELEASED), met
        self._journal.touch(ARRIVALS, sds_id)

    def forget(self, sds_ids: Iterable[str]) -> None:
        """Forget how messages came in."""
        for sds_id in sds_ids:
            if self._arrivals.pop(sds_id, None) is not None:
                self._journal.deleted(ARRIVALS, sds_id)

    def among(self, cited: Iterable[HistoryEntry]) -> list[tuple[str, Arrival]]:
        """Return the arrivals of cited messages: those are segments of incomplete messages."""
        arrivals = self._arrivals
        if not arrivals:
            return []
        return [(entry.message_id, arrivals[entry.message_id]) for entry in cited if entry.message_id in arrivals]

    def row(self, sds_id: str) -> Row | None:
        """Return the row of an arrival; None if there is none."""
        arrival = self._arrivals.get(sds_id)
        if arrival is None:
            return None
        met = arrival.met if arrival.state is MessageState.IN_PLACE else None
        row = (arrival.message_hash, arrival.timestamp_ns, arrival.lamport, not arrival.is_segment, met)
        return (*row, arrival.meta)

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield key and row of each arrival."""
        for sds_id in self._arrivals:
            row = self.row(sds_id)
            if row is not None:
                yield sds_id, row

    def load(self, sds_id: str, row: Row) -> None:
        """Restore an arrival from its row."""
        message_hash, timestamp_ns, lamport, whole, met, meta = row
        step = MessageStep.KEPT_WHOLE if whole else MessageStep.KEPT_SEGMENT
        arrival = Arrival(
            message_hash=message_hash,
            timestamp_ns=timestamp_ns,
            lamport=lamport,
            state=LIFE[MessageState.NEW][step],
            meta=meta,
        )
        if met is not None:
            arrival.state, arrival.met = arrival.after(MessageStep.RELEASED), met
        self._arrivals[sds_id] = arrival
