"""The incoming buffer (SDS, "Participant state"): messages whose dependencies have not been delivered.

Each parked message knows what it waits for, and each missing id knows who waits for it, so that a delivery releases its
dependants without a search. Both sides are bounded: a message that cites thousands of inventions costs its own space
and no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fairway.wire.sds import HistoryEntry, SdsMessage

_WAIT_BYTES: Final = 100
"""What it costs to remember that one message waits for another; charged to the message that waits."""


@dataclass(slots=True, kw_only=True)
class Parked:
    """A message that waits."""

    message: SdsMessage
    encoded: bytes
    retrieval_hint: bytes | None
    since_waited_ms: int
    """The waiting clock when it came (`fairway.protocol.sds.waiting`)."""
    order: int
    """Counts parked messages; the order in which they came."""
    waiting_for: dict[str, None]
    """Ids, in the order of citation."""
    size_bytes: int
    """What it costs to keep."""


@dataclass(slots=True, kw_only=True)
class MissingDependency:
    """A message that is cited and not here."""

    entry: HistoryEntry
    since_ms: int
    """When that was noticed."""
    since_waited_ms: int
    """The waiting clock when it began to be waited for: at that time, or when it last came and found no room."""
    first_waited_ms: int
    """The waiting clock when that was noticed, or when something that it waited for came in while it found no room."""
    turned_away: bool = False
    """Whether it came and there was no room for it."""
    lacks: str | None = None
    """What it waits for itself and so found no room, or probably would; it need not come before that has, or there is
    room."""
    is_refused: bool = False
    """Whether it was the layer above that had no room."""
    is_next: bool = False
    """Whether it is asked for after it lacked something, since it has a place now."""


class IncomingBuffer:
    """Parked messages, oldest first, and the missing messages that they wait for."""

    def __init__(self) -> None:
        self.parked: dict[str, Parked] = {}
        self.missing: dict[str, MissingDependency] = {}
        self.parked_bytes = 0
        self._waiters: dict[str, list[str]] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self.parked)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self.parked

    def park(
        self,
        message: SdsMessage,
        encoded: bytes,
        hint: bytes | None,
        missing: Iterable[HistoryEntry],
        waited_ms: int,
        order: int | None = None,
    ) -> None:
        """Keep a message until the missing entries are met; ``order`` is given only to one that was parked before."""
        if order is None:
            order = self._order + 1
        self._order = max(self._order, order)
        waiting_for = dict.fromkeys(entry.message_id for entry in missing)
        parked = Parked(
            message=message,
            encoded=encoded,
            retrieval_hint=hint,
            since_waited_ms=waited_ms,
            order=order,
            waiting_for=waiting_for,
            size_bytes=len(encoded) + _WAIT_BYTES * len(waiting_for),
        )
        self.parked[message.message_id] = parked
        self.parked_bytes += parked.size_bytes
        for message_id in waiting_for:
            self._waiters.setdefault(message_id, []).append(message.message_id)

    def note_missing(self, entry: HistoryEntry, now_ms: int, waited_ms: int) -> bool:
        """Note that an entry is cited and not here; return whether that, or its hint or author, is news.

        The hint told last counts: the first to cite a message is mostly its author, and js-waku's authors cite their
        own under hashes that match nothing.
        """
        message_id, hint, sender_id = entry
        known = self.missing.get(message_id)
        if known is None:
            entry = HistoryEntry(message_id, hint or None, sender_id or None)
            self.missing[message_id] = MissingDependency(
                entry=entry, since_ms=now_ms, since_waited_ms=waited_ms, first_waited_ms=waited_ms
            )
            return True
        old = known.entry
        known.entry = HistoryEntry(message_id, hint or old.retrieval_hint, old.sender_id or sender_id or None)
        return known.entry != old

    def begin_anew(self, missing: MissingDependency, waited_ms: int) -> None:
        """Wait for a message as though it were missing from now on: it can come, for it came."""
        message_id = missing.entry.message_id
        missing.since_waited_ms = waited_ms
        self.missing[message_id] = self.missing.pop(message_id)

    def settle(self, message_id: str) -> list[Parked]:
        """Nobody needs to wait for an id any more; return the parked messages that wait for nothing now.

        They come in the order in which they were parked, and stay parked until `take`.
        """
        self.missing.pop(message_id, None)
        released: list[Parked] = []
        for waiter_id in self._waiters.pop(message_id, ()):
            parked = self.parked[waiter_id]
            del parked.waiting_for[message_id]
            if not parked.waiting_for:
                released.append(parked)
        return released

    def is_waited_for(self, message_id: str) -> bool:
        """Return whether a parked message waits for this id; what only a sync message cites is missing, no more."""
        return message_id in self._waiters

    def waiters(self, message_id: str) -> list[str]:
        """Return the ids of the parked messages that wait for this one."""
        return list(self._waiters.get(message_id, ()))

    def take(self, parked: Parked) -> None:
        """Take a message that waits for nothing out of the buffer."""
        del self.parked[parked.message.message_id]
        self.parked_bytes -= parked.size_bytes

    def drop(self, parked: Parked) -> None:
        """Take a message out that still waits; nothing of what it waits for needs to come for its sake."""
        message_id = parked.message.message_id
        for waited_for in parked.waiting_for:
            waiters = self._waiters[waited_for]
            waiters.remove(message_id)
            if not waiters:
                del self._waiters[waited_for]
        self.take(parked)

    def waits_in_vain(self) -> list[Parked]:
        """Return, oldest first, the parked messages that nothing of what is missing can release."""
        hopeful: set[str] = set()
        reached = list(self.missing)
        while reached:
            for waiter_id in self._waiters.get(reached.pop(), ()):
                if waiter_id not in hopeful:
                    hopeful.add(waiter_id)
                    reached.append(waiter_id)
        return [parked for message_id, parked in self.parked.items() if message_id not in hopeful]

    def missing_behind(self, parked: Parked) -> list[str]:
        """Return the ids that a parked message waits for in the end, itself or through others that are parked."""
        visited = {parked.message.message_id}
        missing: dict[str, None] = {}
        to_visit = [parked]
        while to_visit:
            for message_id in to_visit.pop().waiting_for:
                further = self.parked.get(message_id)
                if further is None:
                    missing[message_id] = None
                elif message_id not in visited:
                    visited.add(message_id)
                    to_visit.append(further)
        return list(missing)
