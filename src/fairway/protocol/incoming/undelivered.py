"""What was received and is not delivered yet, as far as neither SDS nor the reassembler keeps it.

Two tables:

* ``arrivals``: how each SDS message came in whose content is not delivered. That is a whole message that waits for
  what it cites, or a segment of a message that is not whole.
* ``awaiting``: each message that was put together from segments and waits until SDS delivers the first segment that
  came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from fairway.events import OrderKey
from fairway.protocol.incoming.message_life import LIFE, MessageState, MessageStep
from fairway.protocol.journal import Journal, Row
from fairway.wire.sds import HistoryEntry

ARRIVALS: Final = "arrivals"
AWAITING: Final = "awaiting"


@dataclass(slots=True, kw_only=True)
class Arrival:
    """How an SDS message that is not delivered yet came in."""

    message_hash: bytes
    timestamp_ns: int
    lamport: int
    state: MessageState
    """`MessageState.WAITING`, `MessageState.INCOMPLETE` or `MessageState.IN_PLACE`."""
    met: bool = True
    """Whether all that it cites was here when SDS delivered it; of no meaning before."""
    meta: bytes | None = None
    """``meta`` of the WakuMessage (14/WAKU2-MESSAGE)."""

    def after(self, step: MessageStep) -> MessageState:
        """Return where its content is after a step (`fairway.protocol.incoming.message_life.LIFE`)."""
        return LIFE[self.state][step]

    @property
    def is_segment(self) -> bool:
        """Whether its content is a segment and not a whole message."""
        return self.state is not MessageState.WAITING


@dataclass(slots=True, kw_only=True)
class CompleteMessage:
    """A message whose payload is complete, on its way to the application."""

    sender_id: str
    payload: bytes
    sds_ids: tuple[str, ...]
    message_hashes: tuple[bytes, ...]
    timestamp_ns: int
    order_key: OrderKey
    recovered: bool
    dependencies_met: bool
    lost: set[str] = field(default_factory=set)
    """SDS ids of segments that never came, as far as messages wait for them (`LostSegments`)."""
    meta: bytes | None = None
    """``meta`` of the newest WakuMessage that carried it."""
    late_ids: set[str] = field(default_factory=set)
    """SDS ids of segments that came when it was complete. Each of them may be before all that came before."""


class Undelivered:
    """Both tables, journaled."""

    def __init__(self, journal: Journal) -> None:
        self.awaiting: dict[str, CompleteMessage] = {}
        """Complete messages, oldest first, by the SDS id of the first segment of those that made them complete. They
        wait for it, or for one that came later."""
        self.awaiting_bytes = 0
        """Bytes of their payloads."""
        self._journal = journal
        self._arrivals: dict[str, Arrival] = {}
        self._of_complete: dict[str, str] = {}
        """SDS ids of the segments of `awaiting`, with the keys of their messages."""

    def __len__(self) -> int:
        return len(self._arrivals) + len(self.awaiting)

    def get(self, sds_id: str) -> Arrival | None:
        """Return how a message came in."""
        return self._arrivals.get(sds_id)

    def keep(self, sds_id: str, arrival: Arrival) -> None:
        """Remember how a message came in, in place of how another one under its id did."""
        if sds_id in self._arrivals:
            self._journal.touch(ARRIVALS, sds_id)
        else:
            self._journal.created(ARRIVALS, sds_id)
        self._arrivals[sds_id] = arrival

    def lacks_any(self, cited: Iterable[HistoryEntry]) -> bool:
        """Return whether a cited message is a segment of a message that is not delivered because of a gap.

        Either SDS delivered the segment without all that it cites: then other parts of its message are missing. Or the
        message is complete, and its first segment still waits.
        """
        arrivals, complete = self._arrivals, self._of_complete
        if not arrivals and not complete:
            return False
        return any(
            entry.message_id in complete
            or ((arrival := arrivals.get(entry.message_id)) is not None and not arrival.met)
            for entry in cited
        )

    def segments_among(self, cited: Iterable[HistoryEntry]) -> list[str]:
        """Return those cited messages that are segments of incomplete messages."""
        arrivals = self._arrivals
        return [entry.message_id for entry in cited if entry.message_id in arrivals] if arrivals else []

    def mark(self, sds_id: str, *, met: bool) -> None:
        """Note that SDS delivered a segment whose message is not complete yet."""
        arrival = self._arrivals[sds_id]
        arrival.state, arrival.met = arrival.after(MessageStep.RELEASED), met
        self._journal.touch(ARRIVALS, sds_id)

    def forget(self, sds_ids: Iterable[str]) -> None:
        """Forget how messages came in."""
        for sds_id in sds_ids:
            if self._arrivals.pop(sds_id, None) is not None:
                self._journal.deleted(ARRIVALS, sds_id)

    def wait(self, first_id: str, message: CompleteMessage) -> None:
        """Keep a complete message until SDS delivers the first of its segments that came."""
        self._put(first_id, message)
        self._journal.created(AWAITING, first_id)

    def came_late(self, sds_ids: Iterable[str]) -> None:
        """Note all segments that came of a message which was complete before the last of them."""
        ids = set(sds_ids)
        for first_id in ids & self.awaiting.keys():
            message = self.awaiting[first_id]
            message.late_ids |= ids.difference(message.sds_ids)
            self._of_complete.update(dict.fromkeys(message.late_ids, first_id))

    def release(self, sds_id: str, is_piece_of: Callable[[bytes], bool], *, met: bool) -> CompleteMessage | None:
        """Note that SDS delivered a segment; return the complete message that waited for it.

        A message waits for no segment that came late and is no piece of its payload: somebody forged it.
        """
        first_id = sds_id
        if sds_id not in self.awaiting:
            first_id = self._of_complete.get(sds_id, sds_id)
            complete = self.awaiting.get(first_id)
            if complete is None or sds_id not in complete.late_ids or not is_piece_of(complete.payload):
                return None
        message = self._take(first_id)
        message.dependencies_met &= met
        return message

    def awaiting_with(self, sds_ids: Iterable[str]) -> CompleteMessage | None:
        """Return the complete message that waits and has one of these segments; None if there is none."""
        first_id = next((self._of_complete[sds_id] for sds_id in sds_ids if sds_id in self._of_complete), None)
        return None if first_id is None else self.awaiting[first_id]

    def lacks(self, message: CompleteMessage, sds_id: str) -> None:
        """Note the SDS id of a lost segment of a complete message that waits."""
        message.lost.add(sds_id)
        self._journal.touch(AWAITING, self._of_complete[message.sds_ids[0]])

    def row(self, table: str, key: str) -> Row | None:
        """Return the present row of a key, or None."""
        if table == ARRIVALS:
            arrival = self._arrivals.get(key)
            if arrival is None:
                return None
            met = arrival.met if arrival.state is MessageState.IN_PLACE else None
            row = (arrival.message_hash, arrival.timestamp_ns, arrival.lamport, not arrival.is_segment, met)
            return row if arrival.meta is None else (*row, arrival.meta)
        message = self.awaiting.get(key)
        if message is None:
            return None
        waiting = (
            message.sender_id,
            message.payload,
            message.sds_ids,
            message.message_hashes,
            message.timestamp_ns,
            message.order_key,
            message.recovered,
            message.dependencies_met,
            tuple(sorted(message.lost)),
        )
        return waiting if message.meta is None else (*waiting, message.meta)

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield everything."""
        for table, keys in ((ARRIVALS, list(self._arrivals)), (AWAITING, list(self.awaiting))):
            for key in keys:
                row = self.row(table, key)
                if row is not None:
                    yield table, key, row

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Fill empty tables with rows of `rows`."""
        for table, key, row in rows:
            if table == ARRIVALS:
                message_hash, timestamp_ns, lamport, whole, met, *rest = row
                (meta,) = rest or (None,)
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
                self._arrivals[key] = arrival
                continue
            sender_id, payload, sds_ids, hashes, timestamp_ns, order_key, recovered, met, lost, *rest = row
            (meta,) = rest or (None,)
            message = CompleteMessage(
                sender_id=sender_id,
                payload=payload,
                sds_ids=tuple(sds_ids),
                message_hashes=tuple(hashes),
                timestamp_ns=timestamp_ns,
                order_key=OrderKey(*order_key),
                recovered=recovered,
                dependencies_met=met,
                lost=set(lost),
                meta=meta,
            )
            self._put(key, message)

    def _put(self, first_id: str, message: CompleteMessage) -> None:
        self.awaiting[first_id] = message
        self._of_complete.update(dict.fromkeys(message.sds_ids, first_id))
        self.awaiting_bytes += len(message.payload)

    def _take(self, first_id: str) -> CompleteMessage:
        message = self.awaiting.pop(first_id)
        for sds_id in (*message.sds_ids, *message.late_ids):
            self._of_complete.pop(sds_id, None)
        self.awaiting_bytes -= len(message.payload)
        self._journal.deleted(AWAITING, first_id)
        return message
