"""The tables of a report, as the terminal and the page show them: their columns and their rows.

`data_tables` returns the rows of a run's tables, up to a limit; `_SHOWN` has their columns. The other functions make
small tables of counts. Cells are values; `ReportTable.cell` returns the text of a cell.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.pipeline.report import figures
from fairway.pipeline.report.archive_report import ArchiveReport
from fairway.pipeline.report.bounded import Order, first_rows
from fairway.pipeline.report.evidence import AcknowledgementBasis, meaning_of
from fairway.pipeline.report.figures import LATENCIES_MS, Latencies
from fairway.pipeline.report.findings import Findings
from fairway.pipeline.report.headline import COUNTS
from fairway.pipeline.report.words import clock, duration, of, percent, size_of, size_text
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.summary import Balance
from fairway.units import NS_PER_MS
from fairway.visible import visible

_MOST_CHANNELS_NAMED: Final = 20
"""Largest number of channels that are listed for a content topic."""
_SHARES_PCT: Final = (0.0, 50.0, 80.0, 100.0)
_SHARE_NAMES: Final = ("below 50 %", "from 50 %", "from 80 %", "at the limit or above it")

Row = dict[str, Any]


class ColumnKind(Enum):
    """The kind of a column's values; it decides how they are shown and sorted."""

    NAME = "name"
    """A name from the network."""
    ID = "id"
    """An id or a hash in hex, for copying."""
    WORD = "word"
    """One of few words; the page has a filter for it."""
    TEXT = "text"
    COUNT = "count"
    PART = "part"
    """A count that is a part of another column's count."""
    TIME = "time"
    """Milliseconds since the Unix epoch."""
    SPAN = "span"
    """Milliseconds."""
    SIZE = "size"
    """Bytes."""
    SHARE = "share"
    """The text of a figure with its whole."""


STRANGE: Final = frozenset({ColumnKind.NAME, ColumnKind.ID, ColumnKind.WORD, ColumnKind.TEXT})
"""The kinds of text, which may come from the network."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    kind: ColumnKind
    field: str = ""
    """Column of the run's table. A name that ends with ``_ns`` is shown in milliseconds, bytes in hex, lists with
    commas."""
    of: str | None = None
    """For a part, the title of the column that is its whole."""
    follows: str | None = None
    """``channel`` or ``sender``: by it the page filters all tables when the reader follows a value of this column."""
    absent: str = "unknown"
    """Text for None in a column without figures."""
    narrow: bool = True
    """Whether a terminal shows the column."""

    def value(self, row: Row) -> Any:
        """Return the value of the column in a row."""
        value = row[self.field]
        if self.field.endswith("_ns"):
            return None if value is None else value // NS_PER_MS
        if isinstance(value, bytes):
            return value.hex()
        return ", ".join(value) or None if isinstance(value, list) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """A table of a report. Rows have a value for each column: text, a number, or None."""

    caption: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Any]]
    total: int
    """Number of rows without a bound."""
    order: str = ""
    """Order by which the rows were chosen and sorted, such as "the most cited first"."""
    what: str = "rows"
    """Plural noun for the rows."""
    name: str | None = None
    """Key in `data_tables`; None for a small table."""

    def cell(self, place: int, row: Sequence[Any]) -> str:
        """Return the text of a value of a row; text from the network is made visible."""
        kind, value = self.columns[place].kind, row[place]
        if value is None:
            return self.columns[place].absent if kind in STRANGE else "-"
        match kind:
            case ColumnKind.PART:
                whole = row[[column.title for column in self.columns].index(str(self.columns[place].of))]
                return f"{value:,} ({percent(value, whole)})" if whole else f"{value:,}"
            case ColumnKind.TIME:
                return clock(value * NS_PER_MS)
            case ColumnKind.SPAN:
                return duration(value)
            case ColumnKind.SIZE:
                return size_text(value)
            case ColumnKind.COUNT:
                return f"{value:,}"
        return visible(str(value))


def small_table(
    caption: str, columns: Mapping[str, ColumnKind], rows: Sequence[Sequence[Any]], total: int | None = None
) -> ReportTable:
    """Return a table of given rows; ``columns`` are kinds by title."""
    heads = tuple(Column(title, kind) for title, kind in columns.items())
    return ReportTable(caption=caption, columns=heads, rows=rows, total=len(rows) if total is None else total)


def _shown(caption: str, order: str, what: str, *columns: Column) -> ReportTable:
    """Return a table of the run without its rows."""
    return ReportTable(caption=caption, order=order, what=what, columns=columns, rows=(), total=0)


_CHANNEL: Final = Column("channel", ColumnKind.NAME, "channel_id", follows="channel")
_SENDER: Final = Column("sender", ColumnKind.NAME, "sender_id", follows="sender")
_MESSAGE: Final = Column("message", ColumnKind.ID, "message_id")
_HASH: Final = Column("message hash", ColumnKind.ID, "message_hash")
_TOPIC: Final = Column("content topic", ColumnKind.NAME, "content_topic")
_SENT: Final = Column("sent (UTC)", ColumnKind.TIME, "timestamp_ns")
_SEEN: Final = (
    Column("first (UTC)", ColumnKind.TIME, "first_seen_ns", narrow=False),
    Column("last (UTC)", ColumnKind.TIME, "last_seen_ns", narrow=False),
)
_FIGURES: Final = (
    Column("known", ColumnKind.COUNT, "known"),
    *(
        Column(told.replace("_", " "), ColumnKind.PART, told, of="known", narrow=told != "readable")
        for told in ("readable", "lost", "incomplete", "held_up")
    ),
    Column("there", ColumnKind.COUNT, "content", narrow=False),
    Column("acknowledged", ColumnKind.PART, "acknowledged", of="there"),
    Column("p50", ColumnKind.SPAN, "latency_p50_ms"),
    Column("p95", ColumnKind.SPAN, "latency_p95_ms"),
    Column("repeats", ColumnKind.COUNT, "repeats", narrow=False),
    *_SEEN,
)
_SHOWN: Final = {
    "channels": _shown(
        "Channels, worst first",
        "those first of which the greatest share is lost with 95 % certainty",
        "channels",
        _CHANNEL,
        *_FIGURES,
        Column("senders", ColumnKind.COUNT, "senders", narrow=False),
    ),
    "senders": _shown(
        "Senders, those of whom most was lost first",
        "those first of whom the greatest share is lost with 95 % certainty",
        "channels and senders",
        _CHANNEL,
        _SENDER,
        *(replace(each, narrow=each.narrow and each.kind is not ColumnKind.SPAN) for each in _FIGURES),
    ),
    "lost": _shown(
        "Lost messages, most cited first",
        "the most cited first",
        "lost messages",
        _CHANNEL,
        _MESSAGE,
        _SENDER,
        Column("cause", ColumnKind.WORD, "cause"),
        Column("meanwhile", ColumnKind.WORD, "meanwhile", narrow=False),
        Column("cited by", ColumnKind.COUNT, "cited_by"),
        Column("holds up", ColumnKind.COUNT, "holds_up"),
        Column("first cited (UTC)", ColumnKind.TIME, "first_cited_ns"),
        Column("last cited (UTC)", ColumnKind.TIME, "last_cited_ns", narrow=False),
        _HASH,
    ),
    "incomplete": _shown(
        "Messages that lack segments",
        "those that lack least first",
        "messages that cannot be put together",
        _CHANNEL,
        _SENDER,
        Column("payload hash", ColumnKind.ID, "segment_hash"),
        Column("why", ColumnKind.WORD, "outcome"),
        Column("segments there", ColumnKind.COUNT, "held"),
        Column("needed", ColumnKind.COUNT, "data_segments"),
        *_SEEN,
    ),
    "lacked": _shown(
        "What stores lacked, by content topic",
        "the most lacking first",
        "stores, topics and channels",
        Column("store", ColumnKind.NAME, "source"),
        _TOPIC,
        _CHANNEL,
        Column("lacked", ColumnKind.PART, "lacked", of="of the topic"),
        Column("of the topic", ColumnKind.COUNT, "of"),
    ),
    "rate": _shown(
        "Senders of channels in each epoch in which they sent",
        "the busiest first",
        "senders and epochs",
        _CHANNEL,
        _SENDER,
        Column("epoch from (UTC)", ColumnKind.TIME, "epoch_start_ms"),
        Column("messages", ColumnKind.COUNT, "messages"),
        Column("charged", ColumnKind.PART, "charged", of="limit"),
        Column("limit", ColumnKind.COUNT, "rate_limit"),
        Column("message ids", ColumnKind.COUNT, "message_ids", narrow=False),
        Column("used twice", ColumnKind.COUNT, "double_signals"),
    ),
    "quarantine": _shown(
        "Messages in quarantine",
        "the largest first",
        "messages in quarantine",
        Column("reason", ColumnKind.WORD, "status"),
        Column("error", ColumnKind.TEXT, "error"),
        _TOPIC,
        Column("stores", ColumnKind.WORD, "sources"),
        _SENT,
        Column("size", ColumnKind.SIZE, "payload_bytes"),
        _HASH,
    ),
    "messages": _shown(
        "Messages that are there",
        "the newest first",
        "messages that are there",
        _CHANNEL,
        _SENDER,
        _MESSAGE,
        _SENT,
        Column("state", ColumnKind.WORD, "status"),
        Column("waits for", ColumnKind.ID, "waits_for", absent="none"),
        Column("stores", ColumnKind.WORD, "stores"),
        _HASH,
    ),
}
"""By name, in the order in which the page's space is assigned."""


_BUSIEST: Final = (
    ("messages", "descending"),
    ("double_signals", "descending"),
    ("epoch_start_ms", "ascending"),
    ("channel_id", "ascending"),
    ("sender_id", "ascending"),
)
_LARGEST: Final = (("payload_bytes", "descending"), ("message_hash", "ascending"))
_NEWEST: Final = (("timestamp_ns", "descending"), ("message_hash", "ascending"), ("message_id", "ascending"))


def data_tables(found: Findings) -> dict[str, ReportTable]:
    """Return the tables by name, in the order in which the page assigns its space."""
    tables, most = found.tables, found.most
    made = {
        "channels": (_with_counts(found.accounts.channels[:most]), found.report.channel_count),
        "senders": (_with_counts(found.accounts.senders[:most]), found.report.senders),
        "lost": _lost(found),
        "incomplete": _incomplete(tables, most),
        "lacked": _lacked(found, most),
        "rate": (busiest_epochs(tables, most), tables.rows("rate_utilisation")),
        "quarantine": (
            _greatest(tables, "quarantine", _fields("quarantine"), _LARGEST, most),
            tables.rows("quarantine"),
        ),
        "messages": _messages(found, most),
    }
    shown = _SHOWN | {"rate": _rate_columns(tables, made["rate"][0])}
    return {name: _filled(each, name, *made[name]) for name, each in shown.items()}


def busiest_epochs(tables: RunTables, most: int) -> list[Row]:
    """Return the pairs of sender and epoch with the most messages, as rows of ``rate_utilisation``."""
    return _greatest(tables, "rate_utilisation", _fields("rate"), _BUSIEST, most)


def _fields(name: str) -> list[str]:
    return [column.field for column in _SHOWN[name].columns]


def _filled(table: ReportTable, name: str, rows: Sequence[Row], total: int) -> ReportTable:
    cells = [tuple(column.value(row) for column in table.columns) for row in rows]
    return replace(table, name=name, rows=cells, total=total)


def _rate_columns(tables: RunTables, rows: Sequence[Row]) -> ReportTable:
    """Return the table of epochs, without the columns of a limit or of proofs if the run has none."""
    shown, absent = _SHOWN["rate"], set[str]()
    if tables.manifest["options"].get("rate_limit") is None:
        absent |= {"rate_limit", "charged"}
    if not any(row["message_ids"] for row in rows):
        absent |= {"message_ids", "double_signals"}
    return replace(shown, columns=tuple(column for column in shown.columns if column.field not in absent))


def _with_counts(pairs: Sequence[tuple[Row, Row]]) -> list[Row]:
    return [row | {name: counts[name] for name in COUNTS} for row, counts in pairs]


def _lost(found: Findings) -> tuple[list[Row], int]:
    holds_up = _held_up_by(found)
    fields = ("channel_id", "message_id", "sender_id", "cited_by", "first_cited_ns", "last_cited_ns")
    rows = [
        {
            **{name: getattr(each, name) for name in fields},
            "cause": each.cause.value if each.status is None else f"{each.cause.value}: {each.status}",
            "meanwhile": ", ".join(each.meanwhile),
            "holds_up": holds_up[each.channel_id, each.message_id],
            "message_hash": each.retrieval_hint,
        }
        for each in found.lost
    ]
    return rows, sum(found.causes.values())


def _held_up_by(found: Findings) -> Counter[tuple[str, str]]:
    """Return the messages that each shown lost message holds up; a message counts for the one given up last."""
    held_up: Counter[tuple[str, str]] = Counter()
    shown = {(each.channel_id, each.message_id) for each in found.lost}
    waits = ds.field("waits_for").isin([message_id for _, message_id in shown])
    keys = ["channel_id", "waits_for"]
    for batch in found.tables.batches("sds_ordered", keys, waits) if shown else ():
        counts = pa.Table.from_batches([batch]).group_by(keys, use_threads=False).aggregate([([], "count_all")])
        for row in counts.to_pylist():
            if (message := (row["channel_id"], row["waits_for"])) in shown:
                held_up[message] += row["count_all"]
    return held_up


def _lacked(found: Findings, most: int) -> tuple[list[Row], int]:
    topics = _channels_of_topics(found)
    fields = ("source", "content_topic", "lacked", "of")
    rows = (
        {**{name: getattr(each, name) for name in fields}, "channel_id": channel}
        for each in found.lacks.topics
        for channel in topics.get(each.content_topic, [None])
    )
    more = sum(len(topics.get(each.content_topic, [None])) - 1 for each in found.lacks.topics)
    return list(islice(rows, most)), found.lacks.total + more


def _channels_of_topics(found: Findings) -> dict[str, list[str]]:
    """Return the channels of each shown content topic, at most `_MOST_CHANNELS_NAMED` for each."""
    channels: defaultdict[str, dict[str, None]] = defaultdict(dict)
    topics = list({each.content_topic for each in found.lacks.topics})
    keys = ["content_topic", "channel_id"]
    of_topics = ds.field("content_topic").isin(topics)
    for batch in found.tables.batches("sds_messages", keys, of_topics) if topics else ():
        pairs = pa.Table.from_batches([batch]).group_by(keys, use_threads=False)
        for row in pairs.aggregate([]).to_pylist():
            known = channels[row["content_topic"]]
            if len(known) < _MOST_CHANNELS_NAMED:
                known[row["channel_id"]] = None
    return {topic: sorted(named) for topic, named in channels.items()}


def _messages(found: Findings, most: int) -> tuple[list[Row], int]:
    columns = ["channel_id", "sender_id", "message_id", "timestamp_ns", "status", "waits_for", "message_hash"]
    rows = _greatest(found.tables, "sds_ordered", columns, _NEWEST, most)
    stores = _stores_of(found, [row["message_hash"] for row in rows])
    return [row | {"stores": stores.get(row["message_hash"])} for row in rows], found.tables.rows("sds_ordered")


def _stores_of(found: Findings, hashes: Sequence[bytes | None]) -> dict[bytes | None, str]:
    """Return, by hash, the names of the stores that had each message; empty for fewer than two stores."""
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


def _incomplete(tables: RunTables, most: int) -> tuple[list[Row], int]:
    columns = {name: ds.field(name) for name in _fields("incomplete")} | {
        "lacking": ds.field("data_segments") - ds.field("held")
    }
    # For a set of parity segments alone the number of missing segments is unknown; it is last.
    order = [(name, "ascending") for name in ("lacking", "channel_id", "sender_id", "segment_hash")]
    return first_rows(tables, "incomplete", columns, order, most), tables.rows("incomplete")


def _greatest(tables: RunTables, table: str, columns: Sequence[str], order: Order, most: int) -> list[Row]:
    """Return the first rows in an order that begins with a column of integers, descending.

    A first pass over this column finds the least of the greatest values, so that the second pass reads no smaller one.
    """
    first, where = order[0][0], None
    if tables.rows(table) > most:
        greatest = np.zeros(0, np.int64)
        for batch in tables.batches(table, [first], ds.field(first).is_valid()):
            greatest = np.concatenate([greatest, batch.column(0).to_numpy().astype(np.int64)])
            if len(greatest) > most:
                greatest = np.partition(greatest, len(greatest) - most)[-most:]
        if len(greatest) == most:
            where = ds.field(first) >= int(greatest.min())
    return first_rows(tables, table, columns, order, most, where)


def causes(report: ArchiveReport) -> ReportTable:
    """Return the causes of losses, and the circumstances at the first citations."""
    missing = sum(each.count for each in report.causes)
    rows = [
        (each.cause if each.status is None else f"{each.cause}: {each.status}", of(each.count, missing), each.meaning)
        for each in report.causes
    ]
    meant = "at its first citation; it may explain the loss"
    rows += [(each, of(number, missing), meant) for each, number in report.circumstances.items()]
    columns = {
        "cause, or circumstance": ColumnKind.TEXT,
        "lost or damaged": ColumnKind.SHARE,
        "that is": ColumnKind.TEXT,
    }
    return small_table("Why they are lost", columns, rows)


def stores(report: ArchiveReport) -> ReportTable:
    """Return the share of all stores' messages that each store had."""
    columns = dict.fromkeys(("had", "lacked", "alone had"), ColumnKind.SHARE)
    rows = [(each.source, of(each.had, each.of), f"{each.lacked:,}", of(each.alone, each.of)) for each in report.stores]
    return small_table("Stores, least complete first", {"store": ColumnKind.NAME} | columns, rows)


def outages(report: ArchiveReport, most: int = 50) -> ReportTable:
    """Return the outages of all stores, those with the most missing messages first."""
    found = sorted((outage for store in report.stores for outage in store.outages), key=lambda outage: -outage.lacked)
    columns = {
        "store": ColumnKind.NAME,
        "from (UTC)": ColumnKind.TIME,
        "to (UTC)": ColumnKind.TIME,
        "lacked, of what other stores had then": ColumnKind.SHARE,
    }
    rows = [
        (each.source, each.begin_ns // NS_PER_MS, each.last_ns // NS_PER_MS, of(each.lacked, each.of))
        for each in found[:most]
    ]
    return small_table("Outages", columns, rows, len(found))


def latency(told: Latencies) -> ReportTable:
    """Return the number of messages acknowledged within each of `LATENCIES_MS`."""
    columns = {"time since it was sent": ColumnKind.TEXT, "content messages": ColumnKind.SHARE}
    rows = [(duration(limit), of(told.share(limit), told.total)) for limit in LATENCIES_MS]
    rows.append(("at any time", of(told.acknowledged, told.total)))
    return small_table("Acknowledged within", columns, rows if told.total else ())


def evidence(basis: AcknowledgementBasis) -> ReportTable:
    """Return the pairs of message and participant by the kind of evidence that counted."""
    pairs = sum(basis.evidence.values())
    columns = {"evidence": ColumnKind.TEXT, "messages and participants": ColumnKind.SHARE, "that is": ColumnKind.TEXT}
    rows = [(name, of(number, pairs), meaning_of(name)) for name, number in basis.evidence.items()]
    return small_table("What acknowledgement rests on", columns, rows)


def bandwidth(found: Findings) -> ReportTable:
    """Return the bytes of all channels by part."""
    parts = found.bandwidth
    whole = sum(size for _, size, _ in parts)
    carriers = found.tables.rows("sds_messages") + found.tables.rows("repeats")
    columns = {"part": ColumnKind.TEXT, "bytes": ColumnKind.SHARE, "messages with it": ColumnKind.SHARE}
    rows = [(part, size_of(size, whole), of(messages, carriers)) for part, size, messages in parts]
    return small_table("Bandwidth", columns, rows)


def utilisation(tables: RunTables) -> ReportTable:
    """Return the pairs of sender and epoch by their share of the rate limit; no rows if the limit is not known."""
    columns = {"share of the limit": ColumnKind.TEXT, "senders and epochs": ColumnKind.SHARE}
    if tables.manifest["options"].get("rate_limit") is None:
        return small_table("Utilisation", columns, ())
    counts, total = figures.utilisation(tables, _SHARES_PCT), tables.rows("rate_utilisation")
    rows = [(share, of(number, total)) for share, number in zip(_SHARE_NAMES, counts, strict=True)]
    return small_table("Utilisation", columns, rows[::-1])


def reasons(findings: Findings, most: int = 15) -> ReportTable:
    """Return the reasons for quarantine, the most frequent first."""
    found, total = findings.reasons, findings.tables.rows("quarantine")
    size = sum(each.bytes for each in found)
    columns = {
        "reason": ColumnKind.TEXT,
        "messages": ColumnKind.SHARE,
        "bytes": ColumnKind.SHARE,
        "an example": ColumnKind.TEXT,
    }
    rows = [(each.status, of(each.messages, total), size_of(each.bytes, size), each.example) for each in found[:most]]
    return small_table("Quarantine by reason", columns, rows, len(found))


_CLASSES: Final = {
    "delivered": "carried a message that can be read",
    "incomplete": "segments of a message that cannot be put together",
    "sync": "sync messages",
    "retransmissions": "an SDS message again",
    "other_shards": "the same sending on another shard",
    "duplicates": "the same message again",
    "quarantined": "not decoded, forged, or on a wrong topic",
}


def balance_table(balance: Balance) -> ReportTable:
    """Return the rows of the input by class."""
    counts = asdict(balance)
    verdict = "all are accounted for" if balance.adds_up else "this does not add up"
    columns = {"class": ColumnKind.TEXT, "rows": ColumnKind.SHARE, "that is": ColumnKind.TEXT}
    rows = [(name, of(counts[name], balance.rows_in), meaning) for name, meaning in _CLASSES.items()]
    return small_table(f"What became of {balance.rows_in:,} rows: {verdict}", columns, rows)
