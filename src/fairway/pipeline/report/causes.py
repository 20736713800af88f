"""`losses_of`: why lost messages are lost, as far as an archive proves it.

An archive holds the messages and their citations. It does not hold when a store received a message or when a
participant queried a store. The report distinguishes these causes, in this order:

* ``damaged``: a citation names the hash of the message, and a store has it with contents of another hash. The report
  counts it as damaged, not as lost.
* ``quarantined``: a citation names the hash of the lost message, and a message with this hash is in quarantine. A store
  has it, but it cannot be used.
* ``no-store``: a participant other than its author cites it, so the message was sent and received. No store that was
  read has it. If citations do not name the author, citations by two participants prove the same.
* ``sender-only``: only its author cites it, although others wrote later. It was probably never transmitted.
* ``unknown``: only one participant cites it. That participant is the author and the others wrote nothing later, or the
  citations do not name the author.

A participant can also invent a message that it alone cites.

A lost message may also have circumstances: at its first citation a store was out, or its sender was above the rate
limit. They probably explain the loss, but do not prove it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.pipeline.report.outages import Outage
from fairway.pipeline.report.rates import IS_OVER
from fairway.pipeline.report.stores import DAMAGED
from fairway.pipeline.run.reading import RunTables, in_tables
from fairway.units import NS_PER_MS

_COLUMNS: Final = (
    "channel_id",
    "message_id",
    "sender_id",
    "retrieval_hint",
    "cited_by",
    "first_cited_ns",
    "last_cited_ns",
    "first_cited_by",
    "last_cited_by",
)
_TOLD_BY_ENDS: Final = 2
"""Largest number of citations of which the first and the last are all."""
_HAS_AUTHOR: Final = ds.field("sender_id").is_valid()
_HAS_ONE_CITING: Final = ds.field("first_cited_by") == ds.field("last_cited_by")
_MAY_HAVE_OTHERS: Final = (
    (ds.field("cited_by") > _TOLD_BY_ENDS)
    & _HAS_ONE_CITING
    & (ds.field("sender_id").is_null() | (ds.field("sender_id") == ds.field("first_cited_by")))
)
_Epoch = tuple[str, str, int]
"""Channel, sender, and the beginning of an epoch in milliseconds."""


class LossCause(Enum):
    """Why a message is lost."""

    DAMAGED = "damaged"
    QUARANTINED = "quarantined"
    NO_STORE = "no-store"
    SENDER_ONLY = "sender-only"
    UNKNOWN = "unknown"


CAUSES: Final = {
    LossCause.DAMAGED: "every store that has it has it damaged",
    LossCause.QUARANTINED: "a store has it in quarantine: it cannot be used as it is",
    LossCause.NO_STORE: "other participants had it, and no store that was read has it",
    LossCause.SENDER_ONLY: "only its sender ever cites it, though others wrote later: it probably never left",
    LossCause.UNKNOWN: "cannot be told: one participant cites it, and may be its author",
}
"""The meaning of each cause, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostMessage:
    """A message that others cite and the archive does not hold."""

    channel_id: str
    message_id: str
    sender_id: str | None
    """Its author, if a citation names it."""
    retrieval_hint: bytes | None
    """Its message hash for a query of another store, if a citation has it."""
    cited_by: int
    """Messages that cite it."""
    first_cited_ns: int
    last_cited_ns: int
    cause: LossCause
    status: str | None
    """Reason for its quarantine; None if it is not in quarantine."""
    meanwhile: tuple[str, ...] = ()
    """Circumstances at its first citation, in words."""


class Causes:
    """Determines the cause and the circumstances of each lost message.

    Lost messages are processed in windows of `TABLE_BYTES`. For each window the tables on which the causes depend are
    read once, so that memory does not grow with the number of lost messages.
    """

    def __init__(self, tables: RunTables, outages: Sequence[Outage] = ()) -> None:
        """Take the outages of all stores."""
        self._tables = tables
        self._outages = outages

    def __iter__(self) -> Iterator[LostMessage]:
        """Yield all lost messages, in the order of their table."""
        for rows in in_tables(self._tables.batches("missing_messages", _COLUMNS)):
            window = _Window(self._tables, rows, self._outages)
            for batch in rows.to_batches():
                yield from map(window.message, batch.to_pylist())


class _Window:
    """What the other tables have about some lost messages."""

    def __init__(self, tables: RunTables, rows: pa.Table, outages: Sequence[Outage]) -> None:
        self._tables = tables
        self._outages = outages
        self._epoch_ms = tables.manifest["options"].get("epoch_ms")
        self._quarantined = self._statuses(rows["retrieval_hint"].drop_null().combine_chunks())
        self._over_limit = self._epochs_over_limit(rows.filter(_HAS_AUTHOR & ds.field("first_cited_ns").is_valid()))
        self._spoke = self._last_words(rows.filter(_HAS_AUTHOR & _HAS_ONE_CITING)["channel_id"].unique())
        self._cited_by_others = self._with_other_citations(rows.filter(_MAY_HAVE_OTHERS))

    def message(self, row: dict[str, Any]) -> LostMessage:
        status = self._quarantined.get(row["retrieval_hint"])
        return LostMessage(
            channel_id=row["channel_id"],
            message_id=row["message_id"],
            sender_id=row["sender_id"],
            retrieval_hint=row["retrieval_hint"],
            cited_by=row["cited_by"],
            first_cited_ns=row["first_cited_ns"],
            last_cited_ns=row["last_cited_ns"],
            cause=self._cause(row) if status is None else _cause_of(status),
            status=status,
            meanwhile=tuple(self._meanwhile(row["channel_id"], row["sender_id"], row["first_cited_ns"])),
        )

    def _meanwhile(self, channel_id: str, author: str | None, at_ns: int | None) -> Iterator[str]:
        if at_ns is None:
            return
        out = (outage.source for outage in self._outages if outage.begin_ns <= at_ns < outage.end_ns)
        yield from (f"{source} was out" for source in dict.fromkeys(out))
        if (
            self._over_limit
            and author is not None
            and self._over_limit.intersection(self._epochs(channel_id, author, at_ns))
        ):
            yield "its sender was over the rate limit"

    def _epochs(self, channel_id: str, author: str, at_ns: int) -> tuple[_Epoch, _Epoch]:
        """Return the epoch of a citation and the one before it: the cited message is older than its citation."""
        epoch = at_ns // NS_PER_MS // self._epoch_ms * self._epoch_ms
        return (channel_id, author, epoch), (channel_id, author, epoch - self._epoch_ms)

    def _cause(self, row: dict[str, Any]) -> LossCause:
        author, first, last = row["sender_id"], row["first_cited_by"], row["last_cited_by"]
        if first != last or (author is not None and first != author):
            return LossCause.NO_STORE
        if (row["channel_id"], row["message_id"]) in self._cited_by_others:
            return LossCause.NO_STORE
        if author is not None and self._others_spoke_after(row["channel_id"], author, row["first_cited_ns"]):
            return LossCause.SENDER_ONLY
        return LossCause.UNKNOWN

    def _others_spoke_after(self, channel_id: str, author: str, at_ns: int | None) -> bool:
        return at_ns is not None and any(
            sender_id != author and last_seen > at_ns for last_seen, sender_id in self._spoke.get(channel_id, ())
        )

    def _statuses(self, hints: pa.Array) -> dict[bytes | None, str]:
        """Return the status of each message in quarantine, by its hash."""
        found: dict[bytes | None, str] = {}
        if len(hints):
            for batch in self._tables.batches("quarantine", ["message_hash", "status"]):
                hit = batch.filter(pc.is_in(batch.column("message_hash"), value_set=hints))
                found.update(zip(*(column.to_pylist() for column in hit.columns), strict=True))
        return found

    def _epochs_over_limit(self, rows: pa.Table) -> frozenset[_Epoch]:
        """Return the epochs of citations in which the author was above the limit."""
        authors = rows["sender_id"].unique()
        over = IS_OVER & ds.field("sender_id").isin(authors)
        columns = ["channel_id", "sender_id", "epoch_start_ms"]
        hits = self._tables.batches("rate_utilisation", columns, over) if len(authors) else iter(())
        first = next((batch for batch in hits if batch.num_rows), None)
        if first is None:
            return frozenset()
        cited = zip(*(rows[name].to_pylist() for name in ("channel_id", "sender_id", "first_cited_ns")), strict=True)
        wanted = {epoch for each in cited for epoch in self._epochs(*each)}
        return frozenset(
            epoch
            for batch in chain([first], hits)
            for epoch in zip(*(column.to_pylist() for column in batch.columns), strict=True)
            if epoch in wanted
        )

    def _last_words(self, channels: pa.Array) -> dict[str, list[tuple[int, str]]]:
        """Return for each channel the two most recent senders, with the times of their last messages."""
        newest = [("channel_id", "ascending"), ("last_seen_ns", "descending"), ("sender_id", "descending")]
        kept: pa.Table | None = None
        where = ds.field("last_seen_ns").is_valid() & ds.field("channel_id").isin(channels)
        columns = ["channel_id", "last_seen_ns", "sender_id"]
        for batch in self._tables.batches("sender_stats", columns, where) if len(channels) else ():
            table = pa.Table.from_batches([batch])
            table = (table if kept is None else pa.concat_tables([kept, table])).sort_by(newest)
            # A row is the third of its channel, or a later one, if the row two places before it has the same channel.
            is_third = pc.equal(table["channel_id"][2:], table["channel_id"][:-2])
            kept = pa.concat_tables([table[:2], table[2:].filter(pc.invert(is_third))])
        last: dict[str, list[tuple[int, str]]] = {}
        for row in () if kept is None else kept.to_pylist():
            last.setdefault(row["channel_id"], []).append((row["last_seen_ns"], row["sender_id"]))
        return last

    def _with_other_citations(self, rows: pa.Table) -> set[tuple[str, str]]:
        """Return the lost messages that another participant cites between their first and their last citation."""
        asked = {(row["channel_id"], row["message_id"]): row["first_cited_by"] for row in rows.to_pylist()}
        found = set()
        is_citing = ds.field("kind") != "ephemeral"
        columns = ["channel_id", "sender_id", "causal_history"]
        for batch in self._tables.batches("sds_messages", columns, is_citing) if asked else ():
            for channel_id, citing, cited in _citations(batch, rows["message_id"].combine_chunks()):
                known = asked.get((channel_id, cited))
                if known is not None and known != citing:
                    found.add((channel_id, cited))
        return found


def _cause_of(status: str) -> LossCause:
    return LossCause.DAMAGED if status in DAMAGED else LossCause.QUARANTINED


def _citations(batch: pa.RecordBatch, wanted: pa.Array) -> Iterator[tuple[str, str, str]]:
    """Yield channel, sender and cited id for each citation of a wanted id."""
    history = batch.column("causal_history")
    cited = pc.struct_field(pc.list_flatten(history), "message_id")
    rows = pc.list_parent_indices(history)
    hit = pc.is_in(cited, value_set=wanted)
    rows = rows.filter(hit)
    columns: Sequence[Any] = (batch.column("channel_id").take(rows), batch.column("sender_id").take(rows))
    yield from zip(*(column.to_pylist() for column in columns), cited.filter(hit).to_pylist(), strict=True)
