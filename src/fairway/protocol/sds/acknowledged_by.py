"""Who need not acknowledge a copy: the participants whose acknowledgement its author has.

A copy that its author sends is for those whose acknowledgement he lacks. All others that hear it would acknowledge it
once more, each with a sync message of his own: of the copies that come to a participant in a group of twelve at 30 %
loss, five of six are for others. So a copy has a mark of each participant whose acknowledgement is known
(`SdsMessage.acknowledged_by`), and who finds his own mark owes nothing.

A mark is four bytes of a digest of message and participant: two participants of one mark are rare, and have different
ones for the next message. It is a hint and no proof. Whoever forges one keeps a participant from answering that copy,
and no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

MARK_BYTES: Final = 4
_MAX_MARKS: Final = 256
"""Marks of one copy: a kibibyte, which saves as many sync messages."""


def marks_of(participants: Iterable[str], message_id: str) -> bytes:
    """Return the marks of participants beside a message, in ascending order; of at most 256 of them."""
    return b"".join(sorted(_mark(name, message_id) for name in participants)[:_MAX_MARKS])


def is_marked(marks: bytes, participant: str, message_id: str) -> bool:
    """Return whether a participant is among those that these marks stand for; bytes left over mean nothing."""
    if not marks:
        return False
    mark = _mark(participant, message_id)
    return any(marks[at : at + MARK_BYTES] == mark for at in range(0, len(marks), MARK_BYTES))


def _mark(participant: str, message_id: str) -> bytes:
    return hashlib.sha256(f"{message_id}\0{participant}".encode()).digest()[:MARK_BYTES]
