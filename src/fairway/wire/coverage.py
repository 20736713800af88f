"""`Coverage`: the messages that a snapshot covers, so that a newcomer skips them (docs/snapshots.md).

The messages of one sender have growing Lamport timestamps, and a participant delivers them in this order. So one
timestamp for each sender describes what a participant has delivered. The exceptions are listed by SDS message id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from fairway.wire.proto import envelope_pb2 as pb
from fairway.wire.protobuf import encode, parse
from fairway.wire.sds import HistoryEntry
from fairway.wire.waku_message import MESSAGE_HASH_BYTES

_INDEX_DIGITS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The covered messages: those before a floor, those of each sender up to a Lamport timestamp, and the listed ones.

    A message among `missed` is not covered.
    """

    read_from_ms: int = 0
    """All other messages were sent after this time, in Unix milliseconds, or are among `missed`."""
    floor: tuple[int, str] = (0, "")
    """Lamport timestamp and SDS message id, as in the order of the channel."""
    newest: Mapping[str, int] = field(default_factory=dict)
    """Lamport timestamp by sender id."""
    covered: frozenset[str] = frozenset()
    """SDS message ids: the newest, so that no citation of them is looked up."""
    missed: Mapping[str, HistoryEntry] = field(default_factory=dict)
    """By SDS message id, for a message of a batch with its suffix (`id_in_batch`). The later messages wait for those
    that have a retrieval hint."""

    def covers(self, sender_id: str, lamport: int, sds_id: str) -> bool:
        """Return whether a message is covered; for one of a batch ``sds_id`` has its suffix."""
        if sds_id in self.missed:
            return False
        is_early = lamport <= self.newest.get(sender_id, -1) or (lamport, sds_id) <= self.floor
        return is_early or sds_id in self.covered

    @property
    def awaited(self) -> tuple[HistoryEntry, ...]:
        """The missed messages for which the later ones wait."""
        missed = dict.fromkeys(self.missed.values())
        return tuple(entry for entry in missed if len(entry.retrieval_hint or b"") == MESSAGE_HASH_BYTES)

    def before(self, sender_id: str, lamport: int, now_ms: int) -> Self:
        """Return the coverage of a snapshot with its sender and Lamport timestamp.

        It has the earlier messages of that sender, and no message after the snapshot, whatever the sender wrote.
        """
        last = lamport - 1
        return replace(
            self,
            read_from_ms=min(self.read_from_ms, now_ms),
            floor=min(self.floor, (last, "")),
            newest={name: min(newest, last) for name, newest in self.newest.items()} | {sender_id: last},
        )

    def fields(self) -> dict[str, Any]:
        """Return the fields of the protobuf message; equal coverages have equal fields."""
        return {
            "read_from_ms": self.read_from_ms,
            "floor_lamport": self.floor[0],
            "floor_id": self.floor[1],
            "newest": [{"sender_id": name, "lamport_timestamp": at} for name, at in sorted(self.newest.items())],
            "covered": sorted(self.covered),
            "missed": [
                {"sds_id": key, "sender_id": each.sender_id, "retrieval_hint": each.retrieval_hint}
                for key, each in sorted(self.missed.items())
            ],
        }

    def encode(self) -> bytes:
        """Return the coverage as protobuf."""
        return encode(pb.Coverage, **self.fields())

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the coverage that `encode` wrote; raise `DecodeError` for other bytes."""
        return cls.of(parse(pb.Coverage, data, max_bytes=len(data)))

    @classmethod
    def of(cls, held: pb.Coverage) -> Self:
        """Return the coverage in a protobuf message."""
        return cls(
            read_from_ms=held.read_from_ms,
            floor=(held.floor_lamport, held.floor_id),
            newest={each.sender_id: each.lamport_timestamp for each in held.newest},
            covered=frozenset(held.covered),
            missed={
                each.sds_id: HistoryEntry(whole_id(each.sds_id), each.retrieval_hint or None, each.sender_id or None)
                for each in held.missed
            },
        )


def whole_id(part: str) -> str:
    """Return the SDS message id of a message, without the suffix that it has in a batch (`id_in_batch`)."""
    identifier, dot, index = part.rpartition(".")
    return identifier if dot and len(index) == _INDEX_DIGITS and index.isdecimal() else part
