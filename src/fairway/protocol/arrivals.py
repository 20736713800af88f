"""Messages that were received and not delivered yet: what of them SDS and the reassembler do not keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from fairway.protocol.journal import Journal, Row

ARRIVALS: Final = "arrivals"
AWAITING: Final = "awaiting"


@dataclass(slots=True, kw_only=True)
class Arrival:
    """How an SDS message that is not delivered yet came in."""

    message_hash: bytes
    timestamp_ns: int
    lamport: int
    whole: bool
    """Whether its content is a whole message and not a segment."""
    met: bool | None = None
    """Whether its dependencies were met when SDS released it; None until then."""


class Lost(NamedTuple):
    """A segment that never came, of a message that is whole all the same."""

    place: int
    """Its place among the message's segments."""
    lamport: int | None
    """Its Lamport timestamp; None if its id is only a guess."""
    early: bool
    """Whether no segment before it came either, so that it may have cited what no other does."""
    untold: bool
    """Whether in fact no segment that came tells what was sent before the message."""


@dataclass(slots=True, kw_only=True)
class Awaiting:
    """A whole payload that waits for SDS to release the segments that it came in."""

    sender_id: str
    payload: bytes
    sds_ids: tuple[str, ...]
    message_hashes: tuple[bytes, ...]
    timestamp_ns: int
    recovered: bool
    dependencies_met: bool
    waiting_for: dict[str, int]
    """SDS ids of segments that are not released yet, with their places, in order."""
    lost: dict[str, Lost]
    """Segments that never came, by SDS id, for which everybody still waits."""


class Arrivals:
    """Both tables, journaled."""

    def __init__(self, journal: Journal) -> None:
        self.awaiting: dict[str, Awaiting] = {}
        """Waiting payloads by the SDS id of their first segment, oldest first."""
        self.with_losses: dict[str, Awaiting] = {}
        """Those of them of which segments were lost."""
        self._journal = journal
        self._arrivals: dict[str, Arrival] = {}
        self._key_of: dict[str, str] = {}
        self._awaiting_bytes = 0

    def __len__(self) -> int:
        return len(self._arrivals) + len(self.awaiting)

    def get(self, sds_id: str) -> Arrival | None:
        """Return how a message came in."""
        return self._arrivals.get(sds_id)

    def keep(self, sds_id: str, arrival: Arrival) -> None:
        """Remember how a message came in."""
        self._arrivals[sds_id] = arrival
        self._journal.created(ARRIVALS, sds_id)

    def mark(self, sds_id: str, *, met: bool) -> None:
        """Note that SDS released a segment whose message is not whole yet."""
        self._arrivals[sds_id].met = met
        self._journal.touch(ARRIVALS, sds_id)

    def forget(self, sds_ids: Iterable[str]) -> None:
        """Forget how messages came in."""
        for sds_id in sds_ids:
            if self._arrivals.pop(sds_id, None) is not None:
                self._journal.deleted(ARRIVALS, sds_id)

    def wait(self, awaiting: Awaiting) -> None:
        """Keep a payload until everything in its ``waiting_for`` was released."""
        key = awaiting.sds_ids[0]
        self._put(key, awaiting)
        self._journal.created(AWAITING, key)

    def release(self, sds_id: str, *, met: bool) -> Awaiting | None:
        """Note that SDS released a segment; return its payload if that was the last one it waited for."""
        key = self._key_of.pop(sds_id, None)
        if key is None:
            return None
        awaiting = self.awaiting[key]
        del awaiting.waiting_for[sds_id]
        awaiting.dependencies_met &= met
        self._journal.touch(AWAITING, key)
        return None if awaiting.waiting_for else self._take(key)

    def let_off(self, key: str, sds_ids: Iterable[str]) -> None:
        """Note that nobody waits any more for these lost segments of a payload."""
        awaiting = self.awaiting[key]
        for sds_id in sds_ids:
            del awaiting.lost[sds_id]
        if not awaiting.lost:
            del self.with_losses[key]
        self._journal.touch(AWAITING, key)

    def excess(self, max_bytes: int) -> Awaiting | None:
        """Return the payload that has waited longest if all together have more bytes than may be kept."""
        if self._awaiting_bytes <= max_bytes or not self.awaiting:
            return None
        key, awaiting = next(iter(self.awaiting.items()))
        for sds_id in awaiting.waiting_for:
            del self._key_of[sds_id]
        awaiting.dependencies_met = False
        return self._take(key)

    def row(self, table: str, key: str) -> Row | None:
        """Return the present row of a key, or None."""
        if table == ARRIVALS:
            arrival = self._arrivals.get(key)
            if arrival is None:
                return None
            return (arrival.message_hash, arrival.timestamp_ns, arrival.lamport, arrival.whole, arrival.met)
        awaiting = self.awaiting.get(key)
        if awaiting is None:
            return None
        return (
            awaiting.sender_id,
            awaiting.payload,
            awaiting.sds_ids,
            awaiting.message_hashes,
            awaiting.timestamp_ns,
            awaiting.recovered,
            awaiting.dependencies_met,
            tuple(awaiting.waiting_for.items()),
            tuple((sds_id, *lost) for sds_id, lost in awaiting.lost.items()),
        )

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield everything."""
        for table, keys in ((ARRIVALS, list(self._arrivals)), (AWAITING, list(self.awaiting))):
            for key in keys:
                row = self.row(table, key)
                if row is not None:
                    yield table, key, row

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Fill empty tables with rows of `rows`."""
        for table, key, row in rows:
            if table == ARRIVALS:
                message_hash, timestamp_ns, lamport, whole, met = row
                self._arrivals[key] = Arrival(
                    message_hash=message_hash, timestamp_ns=timestamp_ns, lamport=lamport, whole=whole, met=met
                )
                continue
            sender_id, payload, sds_ids, hashes, timestamp_ns, recovered, met, waiting, lost = row
            awaiting = Awaiting(
                sender_id=sender_id,
                payload=payload,
                sds_ids=tuple(sds_ids),
                message_hashes=tuple(hashes),
                timestamp_ns=timestamp_ns,
                recovered=recovered,
                dependencies_met=met,
                waiting_for=dict(waiting),
                lost={sds_id: Lost(*rest) for sds_id, *rest in lost},
            )
            self._put(key, awaiting)

    def _put(self, key: str, awaiting: Awaiting) -> None:
        self.awaiting[key] = awaiting
        if awaiting.lost:
            self.with_losses[key] = awaiting
        self._awaiting_bytes += len(awaiting.payload)
        self._key_of.update(dict.fromkeys(awaiting.waiting_for, key))

    def _take(self, key: str) -> Awaiting:
        awaiting = self.awaiting.pop(key)
        self.with_losses.pop(key, None)
        self._awaiting_bytes -= len(awaiting.payload)
        self._journal.deleted(AWAITING, key)
        return awaiting
