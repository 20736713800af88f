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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.pipeline.report.headline import Message
from fairway.pipeline.report.oddities import DAMAGED
from fairway.pipeline.report.outages import Outage
from fairway.pipeline.report.rates import epochs_over_limit
from fairway.pipeline.run.reading import RunTables
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
    holds_up: int
    """Messages that wait for it, and for no lost message that a participant would give up later."""
    cause: LossCause
    status: str | None
    """Reason for its quarantine; None if it is not in quarantine."""
    meanwhile: tuple[str, ...] = ()
    """Circumstances at its first citation, in words."""


def quarantined_hints(tables: RunTables) -> dict[bytes | None, str]:
    """Return the status of each message in quarantine that a citation of a missing message names by its hash."""
    hints = [batch.column(0).drop_null() for batch in tables.batches("missing_messages", ["retrieval_hint"])]
    wanted = pa.chunked_array(hints, type=pa.binary()).combine_chunks()
    found: dict[bytes | None, str] = {}
    if len(wanted):
        for batch in tables.batches("quarantine", ["message_hash", "status"]):
            hit = batch.filter(pc.is_in(batch.column("message_hash"), value_set=wanted))
            found |= dict(zip(hit.column("message_hash").to_pylist(), hit.column("status").to_pylist(), strict=True))
    return found


def _cause_of(status: str) -> LossCause:
    return LossCause.DAMAGED if status in DAMAGED else LossCause.QUARANTINED


class Causes:
    """Determines the cause and the circumstances of each lost message.

    Memory grows with the number of channels, of lost messages with a hint or with many citations, and of epochs in
    which a sender was above the rate limit.
    """

    def __init__(
        self,
        tables: RunTables,
        quarantined: Mapping[bytes | None, str],
        outages: Sequence[Outage] = (),
        held_up_by: Mapping[Message, int] | None = None,
    ) -> None:
        """Read the tables on which the causes depend.

        ``quarantined`` is the result of `quarantined_hints`, ``outages`` are those of all stores, and ``held_up_by``
        counts the messages that each lost message holds up.
        """
        self._tables = tables
        self._held_up_by = held_up_by or {}
        self._outages = outages
        self._epoch_ms = tables.manifest["options"].get("epoch_ms")
        self._over_limit = epochs_over_limit(tables)
        self._quarantined = quarantined
        self._spoke = self._last_words()
        self._cited_by_others = self._with_other_citations()

    def __iter__(self) -> Iterator[LostMessage]:
        """Yield all lost messages, in the order of their table."""
        for batch in self._tables.batches("missing_messages", _COLUMNS):
            for row in batch.to_pylist():
                yield self._told(row)

    def _told(self, row: dict[str, Any]) -> LostMessage:
        status = self._quarantined.get(row["retrieval_hint"])
        return LostMessage(
            channel_id=row["channel_id"],
            message_id=row["message_id"],
            sender_id=row["sender_id"],
            retrieval_hint=row["retrieval_hint"],
            cited_by=row["cited_by"],
            first_cited_ns=row["first_cited_ns"],
            last_cited_ns=row["last_cited_ns"],
            holds_up=self._held_up_by.get((row["channel_id"], row["message_id"]), 0),
            cause=self._cause(row) if status is None else _cause_of(status),
            status=status,
            meanwhile=tuple(self._meanwhile(row["channel_id"], row["sender_id"], row["first_cited_ns"])),
        )

    def _meanwhile(self, channel_id: str, author: str | None, at_ns: int | None) -> Iterator[str]:
        if at_ns is None:
            return
        out = (outage.source for outage in self._outages if outage.begin_ns <= at_ns < outage.end_ns)
        yield from (f"{source} was out" for source in dict.fromkeys(out))
        if self._over_limit and author is not None:
            epoch = at_ns // NS_PER_MS // self._epoch_ms * self._epoch_ms
            # The message is older than its first citation: of the same epoch or of the epoch before.
            if {(channel_id, author, start) for start in (epoch, epoch - self._epoch_ms)} & self._over_limit:
                yield "its sender was over the rate limit"

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

    def _last_words(self) -> dict[str, tuple[tuple[int, str], ...]]:
        """Return for each channel the two most recent senders, with the times of their last messages."""
        last: dict[str, tuple[tuple[int, str], ...]] = {}
        is_known = ds.field("last_seen_ns").is_valid()
        for batch in self._tables.batches("sender_stats", ["channel_id", "sender_id", "last_seen_ns"], is_known):
            for row in batch.to_pylist():
                newest = (*last.get(row["channel_id"], ()), (row["last_seen_ns"], row["sender_id"]))
                last[row["channel_id"]] = tuple(sorted(newest, reverse=True)[:2])
        return last

    def _with_other_citations(self) -> set[tuple[str, str]]:
        """Return the lost messages that another participant cites between their first and their last citation."""
        asked: dict[tuple[str, str], str] = {}
        where = (
            (ds.field("cited_by") > _TOLD_BY_ENDS)
            & (ds.field("first_cited_by") == ds.field("last_cited_by"))
            & (ds.field("sender_id").is_null() | (ds.field("sender_id") == ds.field("first_cited_by")))
        )
        columns = ["channel_id", "message_id", "first_cited_by"]
        for batch in self._tables.batches("missing_messages", columns, where):
            for row in batch.to_pylist():
                asked[row["channel_id"], row["message_id"]] = row["first_cited_by"]
        if not asked:
            return set()
        wanted = pa.array([message_id for _, message_id in asked], type=pa.string())
        found = set()
        is_citing = ds.field("kind") != "ephemeral"
        for batch in self._tables.batches("sds_messages", ["channel_id", "sender_id", "causal_history"], is_citing):
            for channel_id, citing, cited in _citations(batch, wanted):
                known = asked.get((channel_id, cited))
                if known is not None and known != citing:
                    found.add((channel_id, cited))
        return found


def _citations(batch: pa.RecordBatch, wanted: pa.Array) -> Iterator[tuple[str, str, str]]:
    """Yield channel, sender and cited id for each citation of a wanted id."""
    history = batch.column("causal_history")
    cited = pc.struct_field(pc.list_flatten(history), "message_id")
    rows = pc.list_parent_indices(history)
    hit = pc.is_in(cited, value_set=wanted)
    rows = rows.filter(hit)
    columns: Sequence[Any] = (batch.column("channel_id").take(rows), batch.column("sender_id").take(rows))
    yield from zip(*(column.to_pylist() for column in columns), cited.filter(hit).to_pylist(), strict=True)
