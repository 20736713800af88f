"""The arithmetic of SDS-R: T_req, T_resp and response groups (SDS, "SDS Repair (SDS-R)").

Both times are spread by hashes (`fairway.wire.repair_hash`), so that one of many participants is first, and the others
receive its message and do nothing. All times are milliseconds. `fairway.protocol.sds.repair` acts on them.
"""

from __future__ import annotations

from typing import Final

from fairway.options import RepairConfig
from fairway.wire.repair_hash import RepairHash

_PARTICIPANTS_PER_GROUP: Final = 128
_LONGEST_WAIT_MS: Final = 120_000
"""A missing message is given up after an hour (lost_timeout_ms). Where half of all gets lost, one request in four is
answered: of what others have, fifteen requests lose one message in seventy-five, and thirty one in five thousand."""


def response_groups_for(participants: int) -> int:
    """Return the number of response groups for that many participants: participants div 128 + 1 (SDS-R)."""
    return max(0, participants) // _PARTICIPANTS_PER_GROUP + 1


def request_offset(hashes: RepairHash, participant_id: str, message_id: str, config: RepairConfig) -> int:
    """Return how long after it noticed that a message is missing a participant asks for it (SDS-R: T_req)."""
    window = config.t_max_ms - config.t_min_ms
    return config.t_min_ms + (hashes.pair(participant_id, message_id) % window if window else 0)


def in_response_group(hashes: RepairHash, participant_id: str, author_id: str, message_id: str, groups: int) -> bool:
    """Return whether a participant is among those that answer for a message; its author always is."""
    if groups <= 1:
        return True
    mine, authors = hashes.pair(participant_id, message_id), hashes.pair(author_id, message_id)
    return mine % groups == authors % groups


def wait_after(first_offset_ms: int, asked: int, heard: int, config: RepairConfig) -> int:
    """Return how long to wait before asking: T_req, after a request twice as long; after an own one within a bound.

    Where many lack a message, a request of one is ``heard`` by the others, and speaks for them.
    """
    if heard:
        return 2 * first_offset_ms
    return min(2 * first_offset_ms, max(_LONGEST_WAIT_MS, config.t_min_ms)) if asked else first_offset_ms
