"""SDS-R: asking for messages that are missing, and answering for others (SDS, "SDS Repair (SDS-R)").

A participant that misses a message waits until T_req, then names it in the repair_request of whatever it sends next;
one that holds the message waits until T_resp and, if nobody else answered meanwhile, broadcasts the original again.
Both times are spread by hashes, so that of many participants one speaks first and the others, hearing it, stay silent.

SDS leaves the hash open; the two families chose differently, and `RepairHash` names the arithmetic of each. All
times are milliseconds.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple, Protocol

from fairway.options import RepairConfig
from fairway.wire.hashing import farmhash64
from fairway.wire.sds import HistoryEntry

_PARTICIPANTS_PER_GROUP: Final = 128
_MAX_BACKOFF_DOUBLINGS: Final = 1
"""A gap has an hour (lost_timeout_ms), half of what is asked and answered may get lost, and a message carries few
requests: asking seldom loses messages, and asking at this pace costs some hundred bytes in minutes."""


class RepairHash(Protocol):
    """The arithmetic behind T_req, T_resp and response groups."""

    def pair(self, participant_id: str, message_id: str) -> int:
        """Return the hash of a participant and a message together."""

    def response_offset(self, participant_id: str, author_id: str, message_id: str, t_max_ms: int) -> int:
        """Return how long a holder waits before it answers; the author itself does not wait."""


def _sha64(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


class _WakuRepairHash:
    """js-waku: the first 8 bytes of SHA-256, big-endian, and the whole 128-bit product."""

    def hash(self, text: str) -> int:
        return _sha64(text)

    def pair(self, participant_id: str, message_id: str) -> int:
        return _sha64(participant_id + message_id)

    def distance(self, participant_id: str, author_id: str) -> int:
        return _sha64(participant_id) ^ _sha64(author_id)

    def response_offset(self, participant_id: str, author_id: str, message_id: str, t_max_ms: int) -> int:
        return self.distance(participant_id, author_id) * _sha64(message_id) % t_max_ms if t_max_ms else 0


def _farm_abs(text: str) -> int:
    value = farmhash64(text.encode())
    return min(value, 0x1_0000_0000_0000_0000 - value)


def _signed(value: int) -> int:
    return value - 0x1_0000_0000_0000_0000 if value >> 63 else value


class _NimRepairHash:
    """nim-sds: FarmHash as signed 64-bit numbers made positive, reduced before they are multiplied."""

    def pair(self, participant_id: str, message_id: str) -> int:
        return _farm_abs(participant_id + message_id)

    def response_offset(self, participant_id: str, author_id: str, message_id: str, t_max_ms: int) -> int:
        if not t_max_ms:
            return 0
        distance = abs(_signed(farmhash64(participant_id.encode()) ^ farmhash64(author_id.encode())))
        return (distance % t_max_ms) * (_farm_abs(message_id) % t_max_ms) % t_max_ms


WAKU_REPAIR: Final = _WakuRepairHash()
"""The arithmetic of js-waku."""
NIM_REPAIR: Final = _NimRepairHash()
"""The arithmetic of nim-sds."""


def response_groups_for(participants: int) -> int:
    """Return the number of response groups for that many participants: participants div 128 + 1 (SDS-R)."""
    return max(0, participants) // _PARTICIPANTS_PER_GROUP + 1


def request_offset(hashes: RepairHash, participant_id: str, message_id: str, config: RepairConfig) -> int:
    """Return how long after noticing a gap a participant asks (SDS-R: T_req)."""
    window = config.t_max_ms - config.t_min_ms
    return config.t_min_ms + (hashes.pair(participant_id, message_id) % window if window else 0)


def in_response_group(hashes: RepairHash, participant_id: str, author_id: str, message_id: str, groups: int) -> bool:
    """Return whether a participant is among those that answer for a message; its author always is."""
    if groups <= 1:
        return True
    mine, authors = hashes.pair(participant_id, message_id), hashes.pair(author_id, message_id)
    return mine % groups == authors % groups


class Scheduled(NamedTuple):
    """An entry of a repair buffer: when its time comes, and for which message. The order of the fields is its order."""

    at_ms: int
    message_id: str
    entry: HistoryEntry
    asked: int = 0
    """How often it was asked for already."""
    heard: int = 0
    """How often others asked since."""


class RepairBuffer:
    """Entries ordered by time, at most one per message id, bounded.

    When it is full, the entry whose time comes last goes without (SDS-R keeps what is most overdue).
    """

    def __init__(self, limit: int) -> None:
        self._by_id: dict[str, Scheduled] = {}
        self._ordered: list[Scheduled] = []
        self._limit = limit

    def __len__(self) -> int:
        return len(self._ordered)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._by_id

    def __iter__(self) -> Iterator[Scheduled]:
        return iter(self._ordered)

    def get(self, message_id: str) -> Scheduled | None:
        """Return the entry of a message."""
        return self._by_id.get(message_id)

    def add(self, entry: HistoryEntry, at_ms: int, asked: int = 0, heard: int = 0) -> tuple[bool, str | None]:
        """Schedule an entry unless its id is there; return (whether added, id that had to make room)."""
        if entry.message_id in self._by_id:
            return False, None
        scheduled = Scheduled(at_ms, entry.message_id, entry, asked, heard)
        evicted: str | None = None
        if len(self._ordered) >= self._limit:
            if not self._ordered or scheduled > self._ordered[-1]:
                return False, None
            evicted = self._ordered[-1].message_id
            self.remove(evicted)
        self._by_id[entry.message_id] = scheduled
        insort(self._ordered, scheduled)
        return True, evicted

    def remove(self, message_id: str) -> bool:
        """Take an entry out; return whether it was there."""
        scheduled = self._by_id.pop(message_id, None)
        if scheduled is None:
            return False
        del self._ordered[bisect_left(self._ordered, scheduled)]
        return True

    def reschedule(self, message_id: str, at_ms: int, asked: int, heard: int = 0) -> bool:
        """Move an entry to another time; return whether it was there."""
        old = self._by_id.get(message_id)
        if old is None:
            return False
        self.remove(message_id)
        self.add(old.entry, at_ms, asked, heard)
        return True

    def due(self, now_ms: int, limit: int | None = None) -> list[Scheduled]:
        """Return the entries whose time has come, earliest first, at most ``limit``."""
        found: list[Scheduled] = []
        for scheduled in islice(self._ordered, limit):
            if scheduled.at_ms > now_ms:
                break
            found.append(scheduled)
        return found

    def next_at(self) -> int | None:
        """Return the earliest time, or None when empty."""
        return self._ordered[0].at_ms if self._ordered else None


def backed_off(first_offset_ms: int, asked: int) -> int:
    """Return the wait before asking again: doubled with every time that it was in vain."""
    return first_offset_ms << min(asked, _MAX_BACKOFF_DOUBLINGS)
