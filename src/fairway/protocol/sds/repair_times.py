"""The arithmetic of SDS-R: T_req, T_resp and response groups (SDS, "SDS Repair (SDS-R)").

Both times are spread by hashes, so that of many participants one speaks first, and the others hear it and stay silent.
SDS leaves the hash open; the two families of implementations chose differently, and `RepairHash` names the arithmetic
of each. All times are milliseconds. `fairway.protocol.sds.repair` acts on them.
"""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

from fairway.options import RepairConfig
from fairway.wire.hashing import farmhash64

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


def backed_off(first_offset_ms: int, asked: int) -> int:
    """Return the wait before asking again: doubled with every time that it was in vain."""
    return first_offset_ms << min(asked, _MAX_BACKOFF_DOUBLINGS)
