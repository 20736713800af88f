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
    meta: bytes | None = None
    """``meta`` of the WakuMessage (14/WAKU2-MESSAGE)."""


class Lost(NamedTuple):
    """A segment that never came, of a message that is whole all the same."""

    lamport: int | None
    """Its Lamport timestamp; None if its id is only a guess."""
    early: bool
    """Whether no segment before it came either, so that it may have cited what no other does."""
    untold: bool
    """Whether in fact no segment that came tells what was sent before the message."""


@dataclass(slots=True, kw_only=True)
class Awaiting:
    """A whole payload that waits for its causal place."""

    sender_id: str
    payload: bytes
    sds_ids: tuple[str, ...]
    message_hashes: tuple[bytes, ...]
    timestamp_ns: int
    recovered: bool
    dependencies_met: bool
    lost: dict[str, Lost]
    """Segments that never came, by SDS id, as far as somebody may still wait for them."""
    meta: bytes | None = None
    """``meta`` of the newest WakuMessage that carried it."""


class Arrivals:
    """Both tables, journaled."""

    def __init__(self, journal: Journal) -> None:
        self.awaiting: dict[str, Awaiting] = {}
        """Waiting payloads, oldest first, by the SDS id of the segment whose release they wait for."""
        self.beheaded: dict[str, Awaiting] = {}
        """Those of them whose first segments were lost."""
        self.awaiting_bytes = 0
        """Bytes of all waiting payloads."""
        self._journal = journal
        self._arrivals: dict[str, Arrival] = {}

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

    def wait(self, first_id: str, awaiting: Awaiting) -> None:
        """Keep a payload until the first of its segments that came is released."""
        self._put(first_id, awaiting)
        self._journal.created(AWAITING, first_id)

    def release(self, sds_id: str, *, met: bool) -> Awaiting | None:
        """Note that SDS released a segment; return the payload that waited for it."""
        if sds_id not in self.awaiting:
            return None
        awaiting = self._take(sds_id)
        awaiting.dependencies_met &= met
        return awaiting

    def let_off(self, first_id: str, sds_ids: Iterable[str]) -> None:
        """Note that nobody waits any more for these lost segments of a payload."""
        for sds_id in sds_ids:
            del self.awaiting[first_id].lost[sds_id]
        self._journal.touch(AWAITING, first_id)

    def row(self, table: str, key: str) -> Row | None:
        """Return the present row of a key, or None."""
        if table == ARRIVALS:
            arrival = self._arrivals.get(key)
            if arrival is None:
                return None
            row = (arrival.message_hash, arrival.timestamp_ns, arrival.lamport, arrival.whole, arrival.met)
            return row if arrival.meta is None else (*row, arrival.meta)
        awaiting = self.awaiting.get(key)
        if awaiting is None:
            return None
        waiting = (
            awaiting.sender_id,
            awaiting.payload,
            awaiting.sds_ids,
            awaiting.message_hashes,
            awaiting.timestamp_ns,
            awaiting.recovered,
            awaiting.dependencies_met,
            tuple((sds_id, *lost) for sds_id, lost in awaiting.lost.items()),
        )
        return waiting if awaiting.meta is None else (*waiting, awaiting.meta)

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
                message_hash, timestamp_ns, lamport, whole, met, *rest = row
                (meta,) = rest or (None,)
                self._arrivals[key] = Arrival(
                    message_hash=message_hash,
                    timestamp_ns=timestamp_ns,
                    lamport=lamport,
                    whole=whole,
                    met=met,
                    meta=meta,
                )
                continue
            sender_id, payload, sds_ids, hashes, timestamp_ns, recovered, met, lost, *rest = row
            (meta,) = rest or (None,)
            awaiting = Awaiting(
                sender_id=sender_id,
                payload=payload,
                sds_ids=tuple(sds_ids),
                message_hashes=tuple(hashes),
                timestamp_ns=timestamp_ns,
                recovered=recovered,
                dependencies_met=met,
                lost={sds_id: Lost(*place) for sds_id, *place in lost},
                meta=meta,
            )
            self._put(key, awaiting)

    def _put(self, first_id: str, awaiting: Awaiting) -> None:
        self.awaiting[first_id] = awaiting
        if any(lost.early for lost in awaiting.lost.values()):
            self.beheaded[first_id] = awaiting
        self.awaiting_bytes += len(awaiting.payload)

    def _take(self, first_id: str) -> Awaiting:
        awaiting = self.awaiting.pop(first_id)
        self.beheaded.pop(first_id, None)
        self.awaiting_bytes -= len(awaiting.payload)
        self._journal.deleted(AWAITING, first_id)
        return awaiting
