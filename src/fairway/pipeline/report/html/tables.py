"""The tables of a page, from the tables of a run: each with all its rows, or with those that matter most."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
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

_CHANNEL: Final = DataColumn(title="channel", kind=ColumnKind.NAME, follows="channel")
_SENDER: Final = DataColumn(title="sender", kind=ColumnKind.NAME, follows="sender")
_COUNTS: Final = (
    DataColumn(title="known", kind=ColumnKind.COUNT),
    DataColumn(title="readable", kind=ColumnKind.PART, of="known"),
    DataColumn(title="lost", kind=ColumnKind.PART, of="known"),
    DataColumn(title="incomplete", kind=ColumnKind.PART, of="known"),
    DataColumn(title="held up", kind=ColumnKind.PART, of="known"),
    DataColumn(title="there", kind=ColumnKind.COUNT),
    DataColumn(title="acknowledged", kind=ColumnKind.PART, of="there"),
)
_ACTIVITY: Final = (
    DataColumn(title="half within", kind=ColumnKind.SPAN),
    DataColumn(title="95 % within", kind=ColumnKind.SPAN),
    DataColumn(title="repeats", kind=ColumnKind.COUNT),
    DataColumn(title="first (UTC)", kind=ColumnKind.TIME),
    DataColumn(title="last (UTC)", kind=ColumnKind.TIME),
)


def data_tables(found: Findings) -> list[DataTable]:
    """Return the tables, those first that a page should have whole."""
    tables = found.tables
    return [
        _channels(found),
        _senders(found),
        _lost(found),
        _incomplete(tables),
        _lacked(found),
        _rate(tables),
        _quarantine(tables),
        _messages(found),
    ]


def _channels(found: Findings) -> DataTable:
    rows = sorted(found.channel_rows, key=lambda row: worst_first(found.channels[row["channel_id"]], row["channel_id"]))
    return DataTable(
        name="channels",
        caption="Channels, worst first",
        columns=(_CHANNEL, *_COUNTS, *_ACTIVITY, DataColumn(title="senders", kind=ColumnKind.COUNT)),
        rows=[
            (row["channel_id"], *_counts(found.channels[row["channel_id"]], row), *_activity(row), row["senders"])
            for row in rows[:MOST_ROWS]
        ],
        total=len(rows),
        order="those first of which the greatest share is lost with 95 % certainty",
        what="channels",
    )


def _senders(found: Findings) -> DataTable:
    rows, total = _greatest(found.tables, "sender_stats", None, "missing")
    told = [(found.accounts.of_sender(row), row) for row in rows]
    told.sort(key=lambda pair: worst_first(pair[0], pair[1]["channel_id"], pair[1]["sender_id"]))
    return DataTable(
        name="senders",
        caption="Senders, those of whom most was lost first",
        columns=(_CHANNEL, _SENDER, *_COUNTS, *_ACTIVITY),
        rows=[(row["channel_id"], row["sender_id"], *_counts(each, row), *_activity(row)) for each, row in told],
        total=total,
        order="those first of whom the greatest share is lost with 95 % certainty",
        what="channels and senders",
    )


def _counts(told: Headline, row: dict[str, Any]) -> tuple[int, ...]:
    return (
        told.known,
        told.readable,
        told.lost,
        told.incomplete,
        told.held_up,
        row["content"],
        row["acknowledged"],
    )


def _activity(row: dict[str, Any]) -> tuple[int | None, ...]:
    return (
        row["latency_p50_ms"],
        row["latency_p95_ms"],
        row["repeats"],
        milliseconds(row["first_seen_ns"]),
        milliseconds(row["last_seen_ns"]),
    )


def _lost(found: Findings) -> DataTable:
    told = heapq.nsmallest(
        MOST_ROWS, found.lost, key=lambda each: (-each.cited_by, each.first_cited_ns or 0, each.message_id)
    )
    return DataTable(
        name="lost",
        caption="Lost messages, most cited first",
        columns=(
            _CHANNEL,
            DataColumn(title="message", kind=ColumnKind.ID),
            _SENDER,
            DataColumn(title="cause", kind=ColumnKind.WORD),
            DataColumn(title="meanwhile", kind=ColumnKind.WORD),
            DataColumn(title="cited by", kind=ColumnKind.COUNT),
            DataColumn(title="holds up", kind=ColumnKind.COUNT),
            DataColumn(title="first cited (UTC)", kind=ColumnKind.TIME),
            DataColumn(title="last cited (UTC)", kind=ColumnKind.TIME),
            DataColumn(title="message hash", kind=ColumnKind.ID),
        ),
        rows=[
            (
                each.channel_id,
                each.message_id,
                each.sender_id,
                each.cause.value if each.status is None else f"{each.cause.value}: {each.status}",
                ", ".join(each.meanwhile),
                each.cited_by,
                each.holds_up,
                milliseconds(each.first_cited_ns),
                milliseconds(each.last_cited_ns),
                _hex(each.retrieval_hint),
            )
            for each in told
        ],
        total=found.report.headline.lost,
        order="the most cited first",
        what="lost messages",
    )


def _incomplete(tables: RunTables) -> DataTable:
    rows, total = _greatest(tables, "incomplete", None, "held")
    return DataTable(
        name="incomplete",
        caption="Messages that lack segments",
        columns=(
            _CHANNEL,
            _SENDER,
            DataColumn(title="payload hash", kind=ColumnKind.ID),
            DataColumn(title="why", kind=ColumnKind.WORD),
            DataColumn(title="segments there", kind=ColumnKind.COUNT),
            DataColumn(title="needed", kind=ColumnKind.COUNT),
            DataColumn(title="first (UTC)", kind=ColumnKind.TIME),
            DataColumn(title="last (UTC)", kind=ColumnKind.TIME),
        ),
        rows=[
            (
                row["channel_id"],
                row["sender_id"],
                _hex(row["segment_hash"]),
                row["outcome"],
                row["held"],
                row["data_segments"],
                milliseconds(row["first_seen_ns"]),
                milliseconds(row["last_seen_ns"]),
            )
            for row in rows
        ],
        total=total,
        order="those with the most segments first",
        what="messages that cannot be put together",
    )


def _lacked(found: Findings) -> DataTable:
    topics = _channels_of_topics(found.tables) if found.lacks.topics else {}
    return DataTable(
        name="lacked",
        caption="What stores lacked, by content topic",
        columns=(
            DataColumn(title="store", kind=ColumnKind.NAME),
            DataColumn(title="content topic", kind=ColumnKind.NAME),
            DataColumn(title="channel", kind=ColumnKind.NAME, follows="channel"),
            DataColumn(title="lacked", kind=ColumnKind.PART, of="of the topic"),
            DataColumn(title="of the topic", kind=ColumnKind.COUNT),
        ),
        rows=[
            (each.source, each.content_topic, channel, each.lacked, each.of)
            for each in found.lacks.topics
            for channel in topics.get(each.content_topic, [None])
        ][:MOST_ROWS],
        total=sum(len(topics.get(each.content_topic, [None])) for each in found.lacks.topics),
        order="the most lacking first",
        what="stores, topics and channels",
    )


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


def _rate(tables: RunTables) -> DataTable:
    rows, total = _greatest(tables, "rate_utilisation", None, "messages")
    limited = tables.manifest["options"].get("rate_limit") is not None
    columns = (
        _SENDER,
        DataColumn(title="epoch from (UTC)", kind=ColumnKind.TIME),
        DataColumn(title="messages", kind=ColumnKind.PART, of="limit") if limited else _plain_count("messages"),
        *((_plain_count("limit"),) if limited else ()),
        _plain_count("channels"),
    )
    return DataTable(
        name="rate",
        caption="Senders in each epoch in which they sent",
        columns=columns,
        rows=[
            (
                row["sender_id"],
                row["epoch_start_ms"],
                row["messages"],
                *((row["limit"],) if limited else ()),
                row["channels"],
            )
            for row in rows
        ],
        total=total,
        order="the busiest first",
        what="senders and epochs",
    )


def _quarantine(tables: RunTables) -> DataTable:
    rows, total = _greatest(tables, "quarantine", None, "payload_bytes")
    return DataTable(
        name="quarantine",
        caption="Messages in quarantine",
        columns=(
            DataColumn(title="reason", kind=ColumnKind.WORD),
            DataColumn(title="what is wrong", kind=ColumnKind.TEXT),
            DataColumn(title="content topic", kind=ColumnKind.NAME),
            DataColumn(title="stores", kind=ColumnKind.WORD),
            DataColumn(title="sent (UTC)", kind=ColumnKind.TIME),
            DataColumn(title="size", kind=ColumnKind.SIZE),
            DataColumn(title="message hash", kind=ColumnKind.ID),
        ),
        rows=[
            (
                row["status"],
                row["error"],
                row["content_topic"],
                ", ".join(row["sources"] or ()) or None,
                milliseconds(row["timestamp_ns"]),
                row["payload_bytes"],
                _hex(row["message_hash"]),
            )
            for row in rows
        ],
        total=total,
        order="the largest first",
        what="messages in quarantine",
    )


def _messages(found: Findings) -> DataTable:
    columns = ["channel_id", "sender_id", "message_id", "timestamp_ns", "status", "waits_for", "message_hash"]
    rows, total = _greatest(found.tables, "sds_ordered", columns, "timestamp_ns")
    stores = _stores_of(found, [row["message_hash"] for row in rows])
    return DataTable(
        name="messages",
        caption="Messages that are there",
        columns=(
            _CHANNEL,
            _SENDER,
            DataColumn(title="message", kind=ColumnKind.ID),
            DataColumn(title="sent (UTC)", kind=ColumnKind.TIME),
            DataColumn(title="state", kind=ColumnKind.WORD),
            DataColumn(title="waits for", kind=ColumnKind.ID),
            DataColumn(title="stores", kind=ColumnKind.WORD),
            DataColumn(title="message hash", kind=ColumnKind.ID),
        ),
        rows=[
            (
                row["channel_id"],
                row["sender_id"],
                row["message_id"],
                milliseconds(row["timestamp_ns"]),
                row["status"],
                row["waits_for"],
                stores.get(row["message_hash"]),
                _hex(row["message_hash"]),
            )
            for row in rows
        ],
        total=total,
        order="the newest first",
        what="messages that are there",
    )


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


def _greatest(
    tables: RunTables, table: str, columns: Sequence[str] | None, by: str
) -> tuple[list[dict[str, Any]], int]:
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


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()


def _plain_count(title: str) -> DataColumn:
    return DataColumn(title=title, kind=ColumnKind.COUNT)
