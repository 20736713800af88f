"""Messages that were reassembled from segments and wait until SDS delivers the first of these segments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from fairway.events import OrderKey
from fairway.protocol.journal import Journal, Row
from fairway.wire.sds import HistoryEntry

COMPLETE: Final = "complete"


@dataclass(slots=True, kw_only=True)
class CompleteMessage:
    """A message whose payload is complete."""

    sender_id: str
    payload: bytes
    sds_ids: tuple[str, ...]
    message_hashes: tuple[bytes, ...]
    timestamp_ns: int
    order_key: OrderKey
    recovered: bool
    dependencies_met: bool
    lost: set[str] = field(default_factory=set)
    """SDS ids of its lost segments, as far as parked messages cite them (`LostSegments`)."""
    meta: bytes | None = None
    """``meta`` of the newest WakuMessage that carried it."""
    late_ids: set[str] = field(default_factory=set)
    """SDS ids of segments that came after it was complete."""


class CompleteMessages:
    """Complete messages that wait, journaled."""

    def __init__(self, journal: Journal) -> None:
        self.by_first_id: dict[str, CompleteMessage] = {}
        """Messages by the SDS id of the first segment that came before they were complete; oldest first."""
        self.size_bytes = 0
        """Bytes of their payloads."""
        self._journal = journal
        self._first_ids: dict[str, str] = {}
        """SDS id of each segment, and the key of its message."""

    def __len__(self) -> int:
        return len(self.by_first_id)

    def __iter__(self) -> Iterator[CompleteMessage]:
        return iter(self.by_first_id.values())

    def __contains__(self, first_id: str) -> bool:
        return first_id in self.by_first_id

    def add(self, first_id: str, message: CompleteMessage) -> None:
        """Keep a message until SDS delivers the first of its segments that came."""
        self._put(first_id, message)
        self._journal.created(COMPLETE, first_id)

    def has_any(self, cited: Iterable[HistoryEntry]) -> bool:
        """Return whether a cited message is a segment of a message that waits."""
        first_ids = self._first_ids
        return bool(first_ids) and any(entry.message_id in first_ids for entry in cited)

    def with_segment(self, sds_ids: Iterable[str]) -> CompleteMessage | None:
        """Return the message that has one of these segments; None if none waits."""
        first_id = next((self._first_ids[sds_id] for sds_id in sds_ids if sds_id in self._first_ids), None)
        return None if first_id is None else self.by_first_id[first_id]

    def note_late(self, sds_ids: Iterable[str]) -> None:
        """Note all segments of a message of which some came after it was complete."""
        ids = set(sds_ids)
        for first_id in ids & self.by_first_id.keys():
            message = self.by_first_id[first_id]
            message.late_ids |= ids.difference(message.sds_ids)
            self._first_ids.update(dict.fromkeys(message.late_ids, first_id))

    def note_lost(self, message: CompleteMessage, sds_id: str) -> None:
        """Note the SDS id of a lost segment of a message that waits."""
        message.lost.add(sds_id)
        self._journal.touch(COMPLETE, self._first_ids[message.sds_ids[0]])

    def release(self, sds_id: str, is_piece_of: Callable[[bytes], bool], *, met: bool) -> CompleteMessage | None:
        """Note that SDS delivered a segment, and return the message that waited for it.

        A late segment releases its message only if it is a piece of the payload: anybody may forge one.
        """
        first_id = sds_id
        if sds_id not in self.by_first_id:
            first_id = self._first_ids.get(sds_id, sds_id)
            complete = self.by_first_id.get(first_id)
            if complete is None or sds_id not in complete.late_ids or not is_piece_of(complete.payload):
                return None
        message = self._take(first_id)
        message.dependencies_met &= met
        return message

    def row(self, first_id: str) -> Row | None:
        """Return the row of a message; None if it does not wait."""
        message = self.by_first_id.get(first_id)
        if message is None:
            return None
        return (
            message.sender_id,
            message.payload,
            message.sds_ids,
            message.message_hashes,
            message.timestamp_ns,
            message.order_key,
            message.recovered,
            message.dependencies_met,
            tuple(sorted(message.lost)),
            message.meta,
        )

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield key and row of each message."""
        for first_id in self.by_first_id:
            row = self.row(first_id)
            if row is not None:
                yield first_id, row

    def load(self, first_id: str, row: Row) -> None:
        """Restore a message from its row."""
        sender_id, payload, sds_ids, hashes, timestamp_ns, order_key, recovered, met, lost, meta = row
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
        self._put(first_id, message)

    def _put(self, first_id: str, message: CompleteMessage) -> None:
        self.by_first_id[first_id] = message
        self._first_ids.update(dict.fromkeys(message.sds_ids, first_id))
        self.size_bytes += len(message.payload)

    def _take(self, first_id: str) -> CompleteMessage:
        message = self.by_first_id.pop(first_id)
        for sds_id in (*message.sds_ids, *message.late_ids):
            self._first_ids.pop(sds_id, None)
        self.size_bytes -= len(message.payload)
        self._journal.deleted(COMPLETE, first_id)
        return message
