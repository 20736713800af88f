"""The incoming buffer (SDS, "Participant state"): messages whose dependencies have not been delivered.

Each parked message has the ids that it waits for, and each of these ids has its waiters. A delivery releases its
waiters without a search. The memory of both directions is charged to the message that waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from fairway.wire.sds import HistoryEntry, SdsMessage

_WAIT_BYTES: Final = 100
"""Memory of the relation between a waiting message and one dependency, charged to the waiting message."""
_WAITERS_LOOKED_AT: Final = 20
"""Waiters of one missing message that are examined; ten thousand may be parked."""


@dataclass(slots=True, kw_only=True)
class Parked:
    """A message that waits for its dependencies."""

    message: SdsMessage
    encoded: bytes
    retrieval_hint: bytes | None
    since_waited_ms: int
    """The waiting clock at its arrival (`fairway.protocol.sds.wait_clock`)."""
    order: int
    """Number among all messages ever parked."""
    waiting_for: dict[str, None]
    """Ids, in the order of citation."""
    size_bytes: int
    """Approximate memory."""


@dataclass(slots=True, kw_only=True)
class MissingDependency:
    """A cited message that has not arrived, or was turned away."""

    entry: HistoryEntry
    since_ms: int
    """Time when it was first noted as missing, in Unix milliseconds."""
    since_waited_ms: int
    """The waiting clock at the start of its lost timeout; a message that is turned away starts over."""
    first_waited_ms: int
    """The waiting clock at the start of its maximum wait (`fairway.protocol.sds.dependencies.LONGEST_TURNED_AWAY`)."""
    turned_away: bool = False
    """Whether it arrived and was turned away, here or by the layer above."""
    blocked_on: str | None = None
    """The unmet dependency after whose arrival it is requested again, if it was turned away; None if not blocked."""
    release_after: tuple[str, ...] = ()
    """Unmet dependencies of a useless message (`Dependencies.give_up`): once they are met, no message waits for it."""


class IncomingBuffer:
    """Parked messages, oldest first, and the missing messages that they wait for."""

    def __init__(self) -> None:
        self.parked: dict[str, Parked] = {}
        self.missing: dict[str, MissingDependency] = {}
        self.noticed = 0
        """Number of new missing messages, new hints, and ends of blocks (`MissingDependency.blocked_on`)."""
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
        """Keep a message until the missing entries are met; ``order`` is given only when stored state is loaded."""
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
        """Note that a cited message is missing; return whether it, its hint or its author is new.

        The latest hint counts. The first participant that cites a message is usually its author, and authors in
        js-waku cite their own messages with hashes that no store knows.
        """
        message_id, hint, sender_id = entry
        known = self.missing.get(message_id)
        if known is None:
            entry = HistoryEntry(message_id, hint or None, sender_id or None)
            self.missing[message_id] = MissingDependency(
                entry=entry, since_ms=now_ms, since_waited_ms=waited_ms, first_waited_ms=waited_ms
            )
            self.noticed += 1
            return True
        old = known.entry
        known.entry = HistoryEntry(message_id, hint or old.retrieval_hint, old.sender_id or sender_id or None)
        self.noticed += known.entry != old
        return known.entry != old

    def begin_anew(self, missing: MissingDependency, waited_ms: int) -> None:
        """Start the lost timeout of a message over, and make it the newest missing message."""
        message_id = missing.entry.message_id
        missing.since_waited_ms = waited_ms
        self.missing[message_id] = self.missing.pop(message_id)

    def settle(self, message_id: str) -> list[Parked]:
        """Stop all waiting for an id, remove it from the missing ones, and return its waiters."""
        self.missing.pop(message_id, None)
        return self.let_go(message_id)

    def let_go(self, message_id: str) -> list[Parked]:
        """Stop all waiting for an id, and return its waiters.

        They are in the order in which they were parked, and stay parked until `drop`.
        """
        freed = [self.parked[waiter_id] for waiter_id in self._waiters.pop(message_id, ())]
        for parked in freed:
            del parked.waiting_for[message_id]
        return freed

    def is_waited_for(self, message_id: str) -> bool:
        """Return whether a parked message waits for this id; if only sync messages cite it, none does."""
        return message_id in self._waiters

    def fewest_lacked_with(self, message_id: str) -> int | None:
        """Return the smallest number of ids that a waiter of this one waits for; None if it has no waiter.

        At most `_WAITERS_LOOKED_AT` waiters are examined.
        """
        waiters = islice(self._waiters.get(message_id, ()), _WAITERS_LOOKED_AT)
        return min((len(self.parked[waiter_id].waiting_for) for waiter_id in waiters), default=None)

    def waits_behind(self, message_id: str) -> list[Parked]:
        """Return the parked messages that wait for an id, directly or through others, the nearest first."""
        behind: dict[str, Parked] = {}
        line = [message_id]
        for reached in line:
            for waiter_id in self._waiters.get(reached, ()):
                if waiter_id not in behind:
                    behind[waiter_id] = self.parked[waiter_id]
                    line.append(waiter_id)
        return list(behind.values())

    def drop(self, parked: Parked) -> None:
        """Remove a message from the buffer, even if it still waits."""
        message_id = parked.message.message_id
        for waited_for in parked.waiting_for:
            waiters = self._waiters[waited_for]
            waiters.remove(message_id)
            if not waiters:
                del self._waiters[waited_for]
        del self.parked[message_id]
        self.parked_bytes -= parked.size_bytes

    def waits_in_vain(self) -> list[Parked]:
        """Return, oldest first, the parked messages that no arrival of a missing message can release."""
        hopeful: set[str] = set()
        reached = list(self.missing)
        while reached:
            for waiter_id in self._waiters.get(reached.pop(), ()):
                if waiter_id not in hopeful:
                    hopeful.add(waiter_id)
                    reached.append(waiter_id)
        return [parked for message_id, parked in self.parked.items() if message_id not in hopeful]

    def missing_behind(self, parked: Parked) -> list[str]:
        """Return the missing messages that a parked one waits for, directly or through other parked ones."""
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
