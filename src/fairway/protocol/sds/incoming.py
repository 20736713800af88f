"""The incoming buffer (SDS spec, "Participant state"): messages whose dependencies have not been delivered.

Each parked message knows what it waits for, and each missing id knows who waits for it, so that a delivery releases its
dependants without a search. Both sides are bounded: a message that cites thousands of inventions costs its own space
and no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairway.wire.sds import HistoryEntry, SdsMessage


@dataclass(slots=True, kw_only=True)
class Parked:
    """A message that waits."""

    message: SdsMessage
    encoded: bytes
    retrieval_hint: bytes | None
    since_ms: int
    order: int
    """Counts parked messages; the order in which they came."""
    waiting_for: set[str]
    lost_dependency: bool = False
    """Whether something that it waited for was declared lost."""


@dataclass(slots=True, kw_only=True)
class MissingMessage:
    """A message that is cited and not here."""

    entry: HistoryEntry
    since_ms: int
    last_cited_ms: int


class IncomingBuffer:
    """Parked messages, oldest first, and the missing messages that they wait for."""

    def __init__(self) -> None:
        self.parked: dict[str, Parked] = {}
        self.missing: dict[str, MissingMessage] = {}
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
        missing: list[HistoryEntry],
        now_ms: int,
        order: int | None = None,
    ) -> Parked:
        """Keep a message until the missing entries are met."""
        self._order = max(self._order, order or 0) + (order is None)
        parked = Parked(
            message=message,
            encoded=encoded,
            retrieval_hint=hint,
            since_ms=now_ms,
            order=self._order if order is None else order,
            waiting_for={entry.message_id for entry in missing},
        )
        self.parked[message.message_id] = parked
        self.parked_bytes += len(encoded)
        for message_id in parked.waiting_for:
            self._waiters.setdefault(message_id, []).append(message.message_id)
        return parked

    def note_missing(self, entry: HistoryEntry, now_ms: int) -> bool:
        """Note that an entry is cited and not here; return whether that is news (a hint may be the news)."""
        known = self.missing.get(entry.message_id)
        if known is None:
            self.missing[entry.message_id] = MissingMessage(entry=entry, since_ms=now_ms, last_cited_ms=now_ms)
            return True
        known.last_cited_ms = now_ms
        merged = HistoryEntry(
            entry.message_id,
            known.entry.retrieval_hint or entry.retrieval_hint,
            known.entry.sender_id or entry.sender_id,
        )
        changed = merged != known.entry
        known.entry = merged
        return changed

    def settle(self, message_id: str, *, lost: bool = False) -> list[Parked]:
        """Nobody needs to wait for an id any more; return the parked messages that wait for nothing now.

        They stay parked until `take`.
        """
        self.missing.pop(message_id, None)
        released: list[Parked] = []
        for waiter_id in self._waiters.pop(message_id, ()):
            parked = self.parked.get(waiter_id)
            if parked is None or message_id not in parked.waiting_for:
                continue
            parked.waiting_for.discard(message_id)
            parked.lost_dependency |= lost
            if not parked.waiting_for:
                released.append(parked)
        return released

    def take(self, message_id: str) -> Parked | None:
        """Take a message out of the buffer."""
        parked = self.parked.pop(message_id, None)
        if parked is not None:
            self.parked_bytes -= len(parked.encoded)
            for dependency in parked.waiting_for:
                waiters = self._waiters.get(dependency)
                if waiters is not None:
                    waiters.remove(message_id)
                    if not waiters:
                        del self._waiters[dependency]
        return parked

    def is_waited_for(self, message_id: str) -> bool:
        """Return whether a parked message waits for an id."""
        return message_id in self._waiters
