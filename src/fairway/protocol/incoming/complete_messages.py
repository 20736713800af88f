"""Reassembled messages that wait until SDS delivers the first of their segments that arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from fairway.events import OrderKey
from fairway.protocol.journal import Journal, Row
from fairway.wire.sds import HistoryEntry

COMPLETE: Final = "complete"


class CompleteMessage(NamedTuple):
    """A message whose payload is complete; also its row in the store."""

    sender_id: str
    payload: bytes
    sds_ids: tuple[str, ...]
    message_hashes: tuple[bytes, ...]
    timestamp_ns: int
    order_key: OrderKey
    recovered: bool
    dependencies_met: bool
    lost: tuple[str, ...] = ()
    """SDS ids of its lost segments, as far as parked messages cite them (`LostSegments`)."""
    meta: bytes | None = None
    """``meta`` of the newest WakuMessage that carried it."""


class CompleteMessages(dict[str, CompleteMessage]):
    """Waiting complete messages, by the SDS id of the first segment that arrived before they were complete."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.size_bytes = 0
        """Size of all payloads."""
        self._journal = journal
        self._first_ids: dict[str, str] = {}
        """Key of the message by the SDS id of each segment."""

    def add(self, first_id: str, message: CompleteMessage) -> None:
        """Keep a message until SDS delivers the first of its segments that arrived."""
        self._put(first_id, message)
        self._journal.created(COMPLETE, first_id)

    def has_any(self, cited: Iterable[HistoryEntry]) -> bool:
        """Return whether a cited message is a segment of a waiting message."""
        first_ids = self._first_ids
        return bool(first_ids) and any(entry[0] in first_ids for entry in cited)

    def timestamps(self) -> dict[str, int]:
        """Return the timestamps of the waiting messages, by the SDS id of each segment that arrived."""
        return {sds_id: self[first_id].timestamp_ns for sds_id, first_id in self._first_ids.items()}

    def with_segment(self, sds_ids: Iterable[str]) -> CompleteMessage | None:
        """Return the message that has one of these segments; None if none waits."""
        first_id = next((self._first_ids[sds_id] for sds_id in sds_ids if sds_id in self._first_ids), None)
        return None if first_id is None else self[first_id]

    def note_late(self, sds_ids: Iterable[str]) -> None:
        """Note all segments of a message, including those that arrived after it was complete."""
        ids = set(sds_ids)
        for first_id in ids & self.keys():
            self._first_ids.update(dict.fromkeys(ids, first_id))

    def note_lost(self, message: CompleteMessage, sds_id: str) -> None:
        """Note the SDS id of a lost segment of a waiting message."""
        first_id = self._first_ids[message.sds_ids[0]]
        if sds_id not in message.lost:
            self[first_id] = message._replace(lost=tuple(sorted((*message.lost, sds_id))))
            self._journal.touch(COMPLETE, first_id)

    def release(self, sds_id: str, is_piece_of: Callable[[bytes], bool], *, met: bool) -> CompleteMessage | None:
        """Note that SDS delivered a segment; return the message that waited for it, or None.

        A late segment releases its message only if it is a piece of the payload, because it may be forged.
        """
        first_id = sds_id if sds_id in self else self._first_ids.get(sds_id, sds_id)
        message = self.get(first_id)
        if message is None:
            return None
        if sds_id != first_id and (sds_id in message.sds_ids or not is_piece_of(message.payload)):
            return None
        del self[first_id]
        for segment_id in [known for known, key in self._first_ids.items() if key == first_id]:
            del self._first_ids[segment_id]
        self.size_bytes -= len(message.payload)
        self._journal.deleted(COMPLETE, first_id)
        return message._replace(dependencies_met=message.dependencies_met and met)

    def load(self, first_id: str, row: Row) -> None:
        """Restore a message from its row."""
        message = CompleteMessage(*row)
        self._put(first_id, message._replace(order_key=OrderKey(*message.order_key)))

    def _put(self, first_id: str, message: CompleteMessage) -> None:
        self[first_id] = message
        self._first_ids.update(dict.fromkeys(message.sds_ids, first_id))
        self.size_bytes += len(message.payload)
