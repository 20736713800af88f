"""The tables of a page, from the tables of a run: each with all its rows, or with those that matter most.

`_SHOWN` says of each what its columns are and which field of a row each of them shows. The functions below make the
rows, as dictionaries.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.pipeline.report.findings import Findings
from fairway.pipeline.report.headline import Headline
from fairway.pipeline.report.html.data import ColumnKind, DataColumn, DataTable, milliseconds
from fairway.pipeline.report.ranking import worst_first
from fairway.pipeline.run.reading import RunTables

MOST_ROWS: Final = 100_000
"""Of each table; some 10 MB of messages."""
_MOST_CHANNELS_NAMED: Final = 20
"""Of a content topic."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Column:
    """A column, and what it shows."""

    title: str
    kind: ColumnKind
    field: str
    """Of a row. One whose name ends with ``_ns`` is shown in milliseconds, bytes in hex, lists with commas."""
    of: str | None = None
    follows: str | None = None
    absent: str = "unknown"

    @property
    def head(self) -> DataColumn:
        """Return it without what it shows."""
        return DataColumn(title=self.title, kind=self.kind, of=self.of, follows=self.follows, absent=self.absent)

    def value(self, row: Row) -> Any:
        """Return what it shows of a row."""
        value = row[self.field]
        if self.field.endswith("_ns"):
            return milliseconds(value)
        if isinstance(value, bytes):
            return value.hex()
        return ", ".join(value) or None if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class _Shown:
    """A table of the page."""

    caption: str
    order: str
    what: str
    columns: tuple[_Column, ...]

    def of(self, name: str, rows: Sequence[Row], total: int) -> DataTable:
        """Return it with rows."""
        return DataTable(
            name=name,
            caption=self.caption,
            columns=tuple(column.head for column in self.columns),
            rows=[tuple(column.value(row) for column in self.columns) for row in rows],
            total=total,
            order=self.order,
            what=self.what,
        )


_CHANNEL: Final = _Column("channel", ColumnKind.NAME, "channel_id", follows="channel")
_SENDER: Final = _Column("sender", ColumnKind.NAME, "sender_id", follows="sender")
_MESSAGE: Final = _Column("message", ColumnKind.ID, "message_id")
_HASH: Final = _Column("message hash", ColumnKind.ID, "message_hash")
_TOPIC: Final = _Column("content topic", ColumnKind.NAME, "content_topic")
_SENT: Final = _Column("sent (UTC)", ColumnKind.TIME, "timestamp_ns")
_SEEN: Final = (
    _Column("first (UTC)", ColumnKind.TIME, "first_seen_ns"),
    _Column("last (UTC)", ColumnKind.TIME, "last_seen_ns"),
)
_FIGURES: Final = (
    _Column("known", ColumnKind.COUNT, "known"),
    *(
        _Column(told.replace("_", " "), ColumnKind.PART, told, of="known")
        for told in ("readable", "lost", "incomplete", "held_up")
    ),
    _Column("there", ColumnKind.COUNT, "content"),
    _Column("acknowledged", ColumnKind.PART, "acknowledged", of="there"),
    _Column("half within", ColumnKind.SPAN, "latency_p50_ms"),
    _Column("95 % within", ColumnKind.SPAN, "latency_p95_ms"),
    _Column("repeats", ColumnKind.COUNT, "repeats"),
    *_SEEN,
)
_SHOWN: Final = {
    "channels": _Shown(
        "Channels, worst first",
        "those first of which the greatest share is lost with 95 % certainty",
        "channels",
        (_CHANNEL, *_FIGURES, _Column("senders", ColumnKind.COUNT, "senders")),
    ),
    "senders": _Shown(
        "Senders, those of whom most was lost first",
        "those first of whom the greatest share is lost with 95 % certainty",
        "channels and senders",
        (_CHANNEL, _SENDER, *_FIGURES),
    ),
    "lost": _Shown(
        "Lost messages, most cited first",
        "the most cited first",
        "lost messages",
        (
            _CHANNEL,
            _MESSAGE,
            _SENDER,
            _Column("cause", ColumnKind.WORD, "cause"),
            _Column("meanwhile", ColumnKind.WORD, "meanwhile"),
            _Column("cited by", ColumnKind.COUNT, "cited_by"),
            _Column("holds up", ColumnKind.COUNT, "holds_up"),
            _Column("first cited (UTC)", ColumnKind.TIME, "first_cited_ns"),
            _Column("last cited (UTC)", ColumnKind.TIME, "last_cited_ns"),
            _HASH,
        ),
    ),
    "incomplete": _Shown(
        "Messages that lack segments",
        "those with the most segments first",
        "messages that cannot be put together",
        (
            _CHANNEL,
            _SENDER,
            _Column("payload hash", ColumnKind.ID, "segment_hash"),
            _Column("why", ColumnKind.WORD, "outcome"),
            _Column("segments there", ColumnKind.COUNT, "held"),
            _Column("needed", ColumnKind.COUNT, "data_segments"),
            *_SEEN,
        ),
    ),
    "lacked": _Shown(
        "What stores lacked, by content topic",
        "the most lacking first",
        "stores, topics and channels",
        (
            _Column("store", ColumnKind.NAME, "source"),
            _TOPIC,
            _CHANNEL,
            _Column("lacked", ColumnKind.PART, "lacked", of="of the topic"),
            _Column("of the topic", ColumnKind.COUNT, "of"),
        ),
    ),
    "rate": _Shown(
        "Senders in each epoch in which they sent",
        "the busiest first",
        "senders and epochs",
        (
            _SENDER,
            _Column("epoch from (UTC)", ColumnKind.TIME, "epoch_start_ms"),
            _Column("messages", ColumnKind.COUNT, "messages"),
            _Column("charged", ColumnKind.PART, "charged", of="limit"),
            _Column("limit", ColumnKind.COUNT, "rate_limit"),
            _Column("channels", ColumnKind.COUNT, "channels"),
            _Column("message ids", ColumnKind.COUNT, "message_ids"),
            _Column("used twice", ColumnKind.COUNT, "double_signals"),
        ),
    ),
    "quarantine": _Shown(
        "Messages in quarantine",
        "the largest first",
        "messages in quarantine",
        (
            _Column("reason", ColumnKind.WORD, "status"),
            _Column("what is wrong", ColumnKind.TEXT, "error"),
            _TOPIC,
            _Column("stores", ColumnKind.WORD, "sources"),
            _SENT,
            _Column("size", ColumnKind.SIZE, "payload_bytes"),
            _HASH,
        ),
    ),
    "messages": _Shown(
        "Messages that are there",
        "the newest first",
        "messages that are there",
        (
            _CHANNEL,
            _SENDER,
            _MESSAGE,
            _SENT,
            _Column("state", ColumnKind.WORD, "status"),
            _Column("waits for", ColumnKind.ID, "waits_for", absent="none"),
            _Column("stores", ColumnKind.WORD, "stores"),
            _HASH,
        ),
    ),
}
"""By name, those first that a page should have whole."""


def data_tables(found: Findings) -> list[DataTable]:
    """Return the tables, those first that a page should have whole."""
    tables = found.tables
    made = {
        "channels": _channels(found),
        "senders": _senders(found),
        "lost": _lost(found),
        "incomplete": _greatest(tables, "incomplete", None, "held"),
        "lacked": _lacked(found),
        "rate": _rate(tables),
        "quarantine": _greatest(tables, "quarantine", None, "payload_bytes"),
        "messages": _messages(found),
    }
    shown = _SHOWN | {"rate": _rate_columns(tables, made["rate"][0])}
    return [each.of(name, *made[name]) for name, each in shown.items()]


def _rate(tables: RunTables) -> tuple[list[Row], int]:
    return _greatest(tables, "rate_utilisation", None, "messages")


def _rate_columns(tables: RunTables, rows: Sequence[Row]) -> _Shown:
    """Return the columns of the table of epochs that say something: of a limit, and of proofs."""
    shown, absent = _SHOWN["rate"], set[str]()
    if tables.manifest["options"].get("rate_limit") is None:
        absent |= {"rate_limit", "charged"}
    if not any(row["message_ids"] for row in rows):
        absent |= {"message_ids", "double_signals"}
    return replace(shown, columns=tuple(column for column in shown.columns if column.field not in absent))


def _channels(found: Findings) -> tuple[list[Row], int]:
    rows = sorted(found.channel_rows, key=lambda row: worst_first(found.channels[row["channel_id"]], row["channel_id"]))
    return [row | _counts(found.channels[row["channel_id"]]) for row in rows[:MOST_ROWS]], len(rows)


def _senders(found: Findings) -> tuple[list[Row], int]:
    rows, total = _greatest(found.tables, "sender_stats", None, "missing")
    told = [(found.accounts.of_sender(row), row) for row in rows]
    told.sort(key=lambda pair: worst_first(pair[0], pair[1]["channel_id"], pair[1]["sender_id"]))
    return [row | _counts(each) for each, row in told], total


def _counts(told: Headline) -> Row:
    return {name: getattr(told, name) for name in ("known", "readable", "lost", "incomplete", "held_up")}


def _lost(found: Findings) -> tuple[list[Row], int]:
    told = heapq.nsmallest(
        MOST_ROWS, found.lost, key=lambda each: (-each.cited_by, each.first_cited_ns or 0, each.message_id)
    )
    fields = ("channel_id", "message_id", "sender_id", "cited_by", "holds_up", "first_cited_ns", "last_cited_ns")
    rows = [
        {
            **{name: getattr(each, name) for name in fields},
            "cause": each.cause.value if each.status is None else f"{each.cause.value}: {each.status}",
            "meanwhile": ", ".join(each.meanwhile),
            "message_hash": each.retrieval_hint,
        }
        for each in told
    ]
    return rows, found.report.headline.lost


def _lacked(found: Findings) -> tuple[list[Row], int]:
    topics = _channels_of_topics(found.tables) if found.lacks.topics else {}
    fields = ("source", "content_topic", "lacked", "of")
    rows = [
        {**{name: getattr(each, name) for name in fields}, "channel_id": channel}
        for each in found.lacks.topics
        for channel in topics.get(each.content_topic, [None])
    ]
    return rows[:MOST_ROWS], len(rows)


def _channels_of_topics(tables: RunTables) -> dict[str, list[str]]:
    """Return the channels of each content topic, as far as there are not too many."""
    found: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for batch in tables.batches("sds_messages", ["content_topic", "channel_id"]):
        pairs = pa.Table.from_batches([batch]).group_by(["content_topic", "channel_id"], use_threads=False)
        for row in pairs.aggregate([]).to_pylist():
            known = found[row["content_topic"]]
            if len(known) < _MOST_CHANNELS_NAMED:
                known[row["channel_id"]] = None
    return {topic: sorted(channels) for topic, channels in found.items()}


def _messages(found: Findings) -> tuple[list[Row], int]:
    columns = ["channel_id", "sender_id", "message_id", "timestamp_ns", "status", "waits_for", "message_hash"]
    rows, total = _greatest(found.tables, "sds_ordered", columns, "timestamp_ns")
    stores = _stores_of(found, [row["message_hash"] for row in rows])
    return [row | {"stores": stores.get(row["message_hash"])} for row in rows], total


def _stores_of(found: Findings, hashes: Sequence[bytes | None]) -> dict[bytes | None, str]:
    """Return the names of the stores that had each of some messages; empty if there is one store or none."""
    if len(found.store_rows) < 2 or not hashes:
        return {}
    wanted = pa.array([told for told in hashes if told is not None], type=pa.binary())
    named: dict[bytes | None, str] = {}
    for batch in found.tables.batches("waku_messages", ["message_hash", "sources"]):
        hit = batch.filter(pc.is_in(batch.column(0), value_set=wanted))
        for digest, sources in zip(hit.column(0).to_pylist(), hit.column(1).to_pylist(), strict=True):
            told = sources or ()
            named[digest] = "all stores" if len(told) == len(found.store_rows) else ", ".join(told) or "unnamed"
    return named


def _greatest(tables: RunTables, table: str, columns: Sequence[str] | None, by: str) -> tuple[list[Row], int]:
    """Return the rows with the greatest values in a column of integers, and how many rows there are in all.

    A first pass over this column finds which values are among the greatest, so that no other row is read.
    """
    total, where = tables.rows(table), None
    if total > MOST_ROWS:
        values = np.concatenate([_ints(batch.column(0)) for batch in tables.batches(table, [by])])
        least = int(np.partition(values, len(values) - MOST_ROWS)[len(values) - MOST_ROWS])
        where = ds.field(by) >= least
    rows = [row for batch in tables.batches(table, columns, where) for row in batch.to_pylist()]
    rows.sort(key=lambda row: (row[by] is None, -(row[by] or 0)))
    return rows[:MOST_ROWS], total


def _ints(column: Any) -> npt.NDArray[np.int64]:
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
