"""Messages that were received and not delivered yet: what of them SDS and the reassembler do not keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fairway.errors import SnapshotError
from fairway.protocol.journal import Journal, Row
from fairway.protocol.segmentation.outcomes import SetKey

ARRIVALS: Final = "arrivals"
AWAITING: Final = "awaiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """How an SDS message that is not delivered yet came in."""

    message_hash: bytes | None
    timestamp_ns: int
    lamport: int
    whole: bool
    """Whether its content is a whole message and not a segment."""


@dataclass(slots=True, kw_only=True)
class Awaiting:
    """A whole payload that waits for SDS to release the segments that it came in."""

    sender_id: str
    payload: bytes
    sds_ids: tuple[str, ...]
    message_hashes: tuple[bytes, ...]
    timestamp_ns: int
    recovered: bool
    waiting_for: set[str]
    dependencies_met: bool = True


def key_of(set_key: SetKey) -> str:
    """Return the row key of a segment set."""
    length = "" if set_key.payload_length is None else set_key.payload_length
    return f"{set_key.payload_hash.hex()}:{length}:{set_key.generation}:{set_key.sender_id}"


class Arrivals:
    """Both tables, journaled."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._arrivals: dict[str, Arrival] = {}
        self._awaiting: dict[str, Awaiting] = {}
        self._awaiting_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._arrivals) + len(self._awaiting)

    def get(self, sds_id: str) -> Arrival | None:
        """Return how a message came in."""
        return self._arrivals.get(sds_id)

    def keep(self, sds_id: str, arrival: Arrival) -> None:
        """Remember how a message came in."""
        self._arrivals[sds_id] = arrival
        self._journal.touch(ARRIVALS, sds_id)

    def forget(self, sds_ids: Iterable[str]) -> None:
        """Forget how messages came in."""
        for sds_id in sds_ids:
            gone = self._arrivals.pop(sds_id, None) is not None
            if gone and not self._journal.retract(ARRIVALS, sds_id):
                self._journal.touch(ARRIVALS, sds_id)

    def wait(self, key: str, awaiting: Awaiting) -> None:
        """Keep a payload until everything in its ``waiting_for`` was released."""
        self._awaiting[key] = awaiting
        self._awaiting_of.update(dict.fromkeys(awaiting.waiting_for, key))
        self._journal.touch(AWAITING, key)

    def release(self, sds_id: str, *, met: bool) -> Awaiting | None:
        """Note that SDS released a segment; return its payload if that was the last one it waited for."""
        key = self._awaiting_of.pop(sds_id, None)
        if key is None:
            return None
        awaiting = self._awaiting[key]
        awaiting.waiting_for.discard(sds_id)
        awaiting.dependencies_met &= met
        self._journal.touch(AWAITING, key)
        return None if awaiting.waiting_for else self._awaiting.pop(key)

    def row(self, table: str, key: str) -> Row | None:
        """Return the present row of a key, or None."""
        if table == ARRIVALS:
            arrival = self._arrivals.get(key)
            if arrival is None:
                return None
            return (arrival.message_hash, arrival.timestamp_ns, arrival.lamport, arrival.whole)
        awaiting = self._awaiting.get(key)
        if awaiting is None:
            return None
        return (
            awaiting.sender_id,
            awaiting.payload,
            awaiting.sds_ids,
            awaiting.message_hashes,
            awaiting.timestamp_ns,
            awaiting.recovered,
            tuple(sorted(awaiting.waiting_for)),
            awaiting.dependencies_met,
        )

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield everything."""
        for table, keys in ((ARRIVALS, list(self._arrivals)), (AWAITING, list(self._awaiting))):
            for key in keys:
                row = self.row(table, key)
                if row is not None:
                    yield table, key, row

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Fill empty tables with rows of `rows`."""
        try:
            for table, key, row in rows:
                if table == ARRIVALS:
                    message_hash, timestamp_ns, lamport, whole = row
                    self._arrivals[key] = Arrival(
                        message_hash=message_hash, timestamp_ns=timestamp_ns, lamport=lamport, whole=whole
                    )
                else:
                    sender_id, payload, sds_ids, hashes, timestamp_ns, recovered, waiting, met = row
                    self._awaiting[key] = Awaiting(
                        sender_id=sender_id,
                        payload=payload,
                        sds_ids=tuple(sds_ids),
                        message_hashes=tuple(hashes),
                        timestamp_ns=timestamp_ns,
                        recovered=recovered,
                        waiting_for=set(waiting),
                        dependencies_met=met,
                    )
                    self._awaiting_of.update(dict.fromkeys(waiting, key))
        except (ValueError, TypeError) as error:
            raise SnapshotError(
                f"a stored arrival does not have the shape that this version writes: {error}"
            ) from error
