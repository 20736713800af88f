"""The hashes for the times and groups of SDS-R (SDS, "SDS Repair (SDS-R)").

All participants of a channel must compute the same hashes. SDS does not define the hash; js-waku and nim-sds use
different ones. `fairway.protocol.sds.repair` computes times from the hashes.
"""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

from fairway.wire.hashing import farmhash64


class RepairHash(Protocol):
    """The arithmetic of T_req, T_resp and response groups."""

    def pair(self, participant_id: str, message_id: str) -> int:
        """Return the hash of a participant and a message together."""

    def response_offset(self, participant_id: str, author_id: str, message_id: str, t_max_ms: int) -> int:
        """Return the delay before a participant responds to a repair request; 0 for the author."""


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
