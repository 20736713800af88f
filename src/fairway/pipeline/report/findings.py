"""The report of a finished run, from its tables and without Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds

from fairway.pipeline.report.archive_report import (
    ArchiveReport,
    ChannelReport,
    DeliveredMessage,
    IncompleteMessage,
    MissingMessage,
    Quarantined,
    SenderReport,
)
from fairway.pipeline.report.ranking import worst_first
from fairway.pipeline.report.stores import StoreLacks, store_lacks
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.stages.channel_log import DependencyStatus

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCount:
    """The SDS messages of a channel that a live participant could not deliver in order."""

    channel_id: str
    waiting: int
    """Those that wait for missing messages, or for a circle of citations; directly or through others."""
    unknown: int
    """Those of which it was not computed."""


def report_of(tables: RunTables, limit: int = 20) -> ArchiveReport:
    """Return the report of a run; its lists have at most ``limit`` entries."""
    first_ns, last_ns = tables.range_of("waku_messages", "timestamp")
    channels = [_known(ChannelReport, row) for row in tables.all("channel_stats", _names(ChannelReport))]
    quarantined, unreadable_bytes = _quarantined(tables)
    readable_bytes = sum(row["bytes"] for row in tables.all("bandwidth", ["bytes"]))
    return ArchiveReport(
        archive=", ".join(source["label"] or source["uri"] for source in tables.manifest["sources"]),
        messages=tables.rows("waku_messages"),
        payload_bytes=readable_bytes + unreadable_bytes,
        first_ns=first_ns,
        last_ns=last_ns,
        channels=tuple(sorted(channels, key=lambda told: worst_first(asdict(told)))),
        senders=senders_of(tables, limit),
        senders_in_all=tables.rows("sender_stats"),
        delivered=_largest(tables, limit),
        incomplete=_nearly_complete(tables, limit),
        missing=_most_cited(tables, limit),
        quarantined=quarantined,
    )


def bandwidth_of(tables: RunTables) -> list[tuple[str, int, int]]:
    """Return part, bytes and messages over all channels, the largest first."""
    sizes: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    for row in tables.all("bandwidth"):
        sizes[row["part"]] += row["bytes"]
        messages[row["part"]] += row["messages"]
    return [(part, size, messages[part]) for part, size in sizes.most_common()]


def senders_of(tables: RunTables, limit: int) -> tuple[SenderReport, ...]:
    """Return senders, those with the most lost messages first, and of equals the busiest."""
    columns = {name: ds.field(name) for name in _names(SenderReport)}
    columns["lost"] = ds.field("missing") + ds.field("incomplete")
    order = [
        ("lost", "descending"),
        ("content", "descending"),
        ("sync", "descending"),
        ("channel_id", "ascending"),
        ("sender_id", "ascending"),
    ]
    return tuple(_known(SenderReport, row) for row in tables.head("sender_stats", columns, order, limit))


def waiting_of(tables: RunTables) -> list[WaitingCount]:
    """Return the channels in which messages wait, or may wait, those with the most first."""
    waiting: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    is_incomplete = ds.field("status") != DependencyStatus.COMPLETE.value
    for batch in tables.batches("sds_ordered", ["channel_id", "status"], is_incomplete):
        grouped = pa.Table.from_batches([batch]).group_by(["channel_id", "status"], use_threads=False)
        for row in grouped.aggregate([([], "count_all")]).to_pylist():
            counts = unknown if row["status"] == DependencyStatus.NOT_COMPUTED.value else waiting
            counts[row["channel_id"]] += row["count_all"]
    found = [
        WaitingCount(channel_id=channel_id, waiting=waiting[channel_id], unknown=unknown[channel_id])
        for channel_id in waiting.keys() | unknown.keys()
    ]
    return sorted(found, key=lambda told: (-told.waiting, -told.unknown, told.channel_id))


def busiest_epochs(tables: RunTables, limit: int) -> list[dict[str, Any]]:
    """Return the senders and epochs of most transmissions, as rows of ``rate_utilisation``."""
    order = [("messages", "descending"), ("epoch_start_ms", "ascending"), ("sender_id", "ascending")]
    columns = ["sender_id", "epoch_start_ms", "messages", "limit", "pct"]
    return tables.head("rate_utilisation", columns, order, limit)


def stores_of(tables: RunTables) -> list[dict[str, Any]]:
    """Return the rows of ``store_completeness``, the least complete store first."""
    return sorted(tables.all("store_completeness"), key=lambda row: (row["messages"], str(row["source"])))


def lacks_of(tables: RunTables, limit: int) -> StoreLacks:
    """Return what each of the stores lacked, by content topic, without its place in time."""
    stores = [row["source"] for row in stores_of(tables)]
    return store_lacks(tables, stores, limit, 0, lambda timestamps: timestamps)


def _largest(tables: RunTables, limit: int) -> tuple[DeliveredMessage, ...]:
    columns = ["channel_id", "sender_id", "message_id", "size_bytes", "segments", "recovered", "timestamp"]
    order = [
        ("size_bytes", "descending"),
        ("timestamp", "ascending"),
        ("channel_id", "ascending"),
        ("message_id", "ascending"),
    ]
    rows = tables.head("delivered", columns, order, limit)
    return tuple(DeliveredMessage(timestamp_ns=row.pop("timestamp"), **row) for row in rows)


def _nearly_complete(tables: RunTables, limit: int) -> tuple[IncompleteMessage, ...]:
    columns = {
        "channel_id": ds.field("channel_id"),
        "sender_id": ds.field("sender_id"),
        "payload_hash": ds.field("segment_hash"),
        "outcome": ds.field("outcome"),
        "held": ds.field("held"),
        "needed": ds.field("data_segments"),
        "lacking": ds.field("data_segments") - ds.field("held"),
    }
    order = [
        ("lacking", "ascending"),  # those of which nobody knows how much they lack come last
        ("channel_id", "ascending"),
        ("sender_id", "ascending"),
        ("payload_hash", "ascending"),
    ]
    rows = tables.head("incomplete", columns, order, limit)
    return tuple(_known(IncompleteMessage, row) for row in rows)


def _most_cited(tables: RunTables, limit: int) -> tuple[MissingMessage, ...]:
    columns = ["channel_id", "message_id", "sender_id", "retrieval_hint", "cited_by", "first_cited"]
    order = [
        ("cited_by", "descending"),
        ("first_cited", "ascending"),
        ("channel_id", "ascending"),
        ("message_id", "ascending"),
    ]
    rows = tables.head("missing_messages", columns, order, limit)
    return tuple(MissingMessage(first_cited_ns=row.pop("first_cited"), **row) for row in rows)


def _quarantined(tables: RunTables) -> tuple[tuple[Quarantined, ...], int]:
    """Return why messages are in quarantine, the most frequent reason first, and how many bytes they have."""
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    size = 0
    for batch in tables.batches("quarantine", ["status", "error", "payload_bytes"]):
        for row in batch.to_pylist():
            counts[row["status"]] += 1
            examples[row["status"]] = min(examples.get(row["status"], row["error"]), row["error"])
            size += row["payload_bytes"]
    reasons = sorted(counts.items(), key=lambda reason: (-reason[1], reason[0]))
    return tuple(Quarantined(status=name, count=count, example=examples[name]) for name, count in reasons), size


def _names(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind)]


def _known(make: type[_Value], row: dict[str, Any]) -> _Value:
    return make(**{name: row[name] for name in _names(make)})
