"""The report of a finished run, from its tables and without Spark."""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds

from fairway.pipeline.report.archive_report import (
    ArchiveReport,
    CauseCount,
    ChannelReport,
    DeliveredMessage,
    IncompleteMessage,
    Quarantined,
    SenderReport,
    StoreReport,
)
from fairway.pipeline.report.causes import CAUSES, Causes, LossCause, LostMessage, quarantined_hints
from fairway.pipeline.report.evidence import acknowledgement_basis
from fairway.pipeline.report.figures import TimeAxis, time_axis
from fairway.pipeline.report.headline import Accounts, Sender, headline_of, worst_first
from fairway.pipeline.report.oddities import DAMAGED, DamagedCopies, oddities
from fairway.pipeline.report.rates import double_signals, over_limit
from fairway.pipeline.report.stores import store_lacks
from fairway.pipeline.report.to_do import MOST_OF_A_KIND, Found, SenderLoss, StoreShare, to_do_of
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.sources import absolute_uri

_Value = TypeVar("_Value")
MOST_LACKS: Final = 100_000
"""Pairs of a store and a content topic that are kept."""
_NAMED_SENDERS: Final = MOST_OF_A_KIND * 10
"""Senders that are looked at for what is to be done."""


class Findings:
    """What a report of a run needs, read from the tables once."""

    def __init__(self, tables: RunTables, limit: int = 20, now_ns: int | None = None) -> None:
        """Read the tables; lists of the report have at most ``limit`` entries, and ``now_ns`` is when it is made."""
        self.tables = tables
        self._now_ns = time.time_ns() if now_ns is None else now_ns
        self.axis: TimeAxis | None = time_axis(tables)
        hints = quarantined_hints(tables)
        damaged = [told for told, status in hints.items() if status in DAMAGED]
        self.accounts = Accounts(tables, pa.array(damaged, pa.binary()))
        self.channel_rows = tables.all("channel_stats")
        self.channels = {row["channel_id"]: self.accounts.of_channel(row) for row in self.channel_rows}
        self.store_rows = stores_of(tables)
        self.lacks = store_lacks(tables, [row["source"] for row in self.store_rows], MOST_LACKS, self.axis)
        outages = [outage for store in self.lacks.stores for outage in store.outages]
        self.lost = Causes(tables, hints, outages, self.accounts.held_up_by)
        self.circumstances: Counter[str] = Counter()
        self.causes: Counter[tuple[LossCause, str | None]] = Counter()
        self.causes_of_senders: defaultdict[Sender, Counter[LossCause]] = defaultdict(Counter)
        self._most_cited: list[LostMessage] = heapq.nsmallest(limit, self._counted(), key=_citations_first)
        self.report = self._report(limit)

    def _counted(self) -> Iterator[LostMessage]:
        for message in self.lost:
            self.causes[message.cause, message.status] += 1
            self.circumstances.update(message.meanwhile)
            self.causes_of_senders[message.channel_id, message.sender_id][message.cause] += 1
            yield message

    def _report(self, limit: int) -> ArchiveReport:
        tables = self.tables
        first_ns, last_ns = tables.range_of("waku_messages", "timestamp_ns")
        ordered = sorted(
            self.channel_rows, key=lambda row: worst_first(self.channels[row["channel_id"]], row["channel_id"])
        )
        channels = tuple(_known(ChannelReport, row | {"messages": self.channels[row["channel_id"]]}) for row in ordered)
        quarantined, unreadable_bytes = _quarantined(tables)
        readable_bytes = sum(row["bytes"] for row in tables.all("bandwidth", ["bytes"]))
        stores, senders = self._stores(), self._senders(max(limit, _NAMED_SENDERS))
        headline, limited, twice = headline_of(self.channels.values()), over_limit(tables), double_signals(tables)
        causes = Counter[LossCause]()
        for (cause, _), number in self.causes.items():
            causes[cause] += number
        uris = _uris_here(tables.manifest)
        damaged = [
            DamagedCopies(source=store.source, count=store.damaged, repairable=store.repairable) for store in stores
        ]
        found = Found(
            adds_up=tables.balance.adds_up,
            headline=headline,
            stores=[
                StoreShare(
                    source=store.source,
                    uri=uris.get(store.source),
                    lacked=store.lacked,
                    repairable=store.repairable,
                    of=store.of,
                    outages=store.outages,
                )
                for store in stores
            ],
            senders=[self._loss(sender) for sender in senders if sender.messages.lost],
            senders_in_all=tables.rows("sender_stats"),
            over_limit=limited,
            double_signals=twice,
            run=str(tables.place),
            messages=tables.rows("waku_messages"),
            is_selection=tables.manifest["options"].get("selection") is not None,
            causes=causes,
            quarantined={reason.status: reason.count for reason in quarantined},
        )
        return ArchiveReport(
            headline=headline,
            oddities=oddities(tables, damaged, found.quarantined, self._now_ns),
            to_do=to_do_of(found),
            causes=tuple(
                CauseCount(cause=cause.value, meaning=CAUSES[cause], status=status, count=number)
                for (cause, status), number in sorted(self.causes.items(), key=lambda told: (-told[1], str(told[0])))
            ),
            circumstances=dict(self.circumstances.most_common()),
            stores=stores,
            stores_lacked=self.lacks.topics[:limit],
            stores_lacked_in_all=self.lacks.total,
            over_limit=limited,
            double_signals=twice,
            acknowledgement=acknowledgement_basis(
                tables, sum(row["content"] for row in ordered), sum(row["acknowledged"] for row in ordered)
            ),
            waiting=tuple(self.accounts.waiting),
            archive=", ".join(source["label"] or source["uri"] for source in tables.manifest["sources"]),
            selection=tables.manifest["options"].get("selection"),
            messages=tables.rows("waku_messages"),
            payload_bytes=readable_bytes + unreadable_bytes,
            first_ns=first_ns,
            last_ns=last_ns,
            channels=channels,
            senders=senders[:limit],
            senders_in_all=tables.rows("sender_stats"),
            delivered=_largest(tables, limit),
            incomplete=_nearly_complete(tables, limit),
            missing=tuple(self._most_cited),
            quarantined=quarantined,
        )

    def _stores(self) -> tuple[StoreReport, ...]:
        return tuple(
            StoreReport(
                source=row["source"],
                had=row["messages"],
                lacked=row["missing"] - told.repairable,
                damaged=row["damaged"],
                repairable=told.repairable,
                of=row["known"],
                alone=told.alone,
                outages=told.outages,
            )
            for row, told in zip(self.store_rows, self.lacks.stores, strict=True)
        )

    def _senders(self, limit: int) -> tuple[SenderReport, ...]:
        def told() -> Iterator[SenderReport]:
            for batch in self.tables.batches("sender_stats", _SENDER_COLUMNS):
                for row in batch.to_pylist():
                    yield _known(SenderReport, row | {"messages": self.accounts.of_sender(row)})

        worst = heapq.nsmallest(
            limit, told(), key=lambda each: worst_first(each.messages, each.channel_id, each.sender_id)
        )
        return tuple(worst)

    def _loss(self, sender: SenderReport) -> SenderLoss:
        causes = self.causes_of_senders[sender.channel_id, sender.sender_id]
        return SenderLoss(
            channel_id=sender.channel_id,
            sender_id=sender.sender_id,
            lost=sender.messages.lost,
            known=sender.messages.known,
            cause=max(causes, key=lambda cause: causes[cause], default=LossCause.UNKNOWN),
        )


def report_of(tables: RunTables, limit: int = 20) -> ArchiveReport:
    """Return the report of a run; its lists have at most ``limit`` entries."""
    return Findings(tables, limit).report


def bandwidth_of(tables: RunTables) -> list[tuple[str, int, int]]:
    """Return part, bytes and messages over all channels, the largest first."""
    sizes: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    for row in tables.all("bandwidth"):
        sizes[row["part"]] += row["bytes"]
        messages[row["part"]] += row["messages"]
    return [(part, size, messages[part]) for part, size in sizes.most_common()]


def busiest_epochs(tables: RunTables, limit: int) -> list[dict[str, Any]]:
    """Return the senders and epochs of most transmissions, as rows of ``rate_utilisation``."""
    ascending = [(name, "ascending") for name in ("epoch_start_ms", "channel_id", "sender_id")]
    order = [("messages", "descending"), *ascending]
    columns = ["channel_id", "sender_id", "epoch_start_ms", "messages", "message_ids", "charged", "pct"]
    return tables.head("rate_utilisation", columns, order, limit)


def stores_of(tables: RunTables) -> list[dict[str, Any]]:
    """Return the rows of ``store_completeness``, the least complete store first."""
    return sorted(tables.all("store_completeness"), key=lambda row: (row["messages"], str(row["source"])))


def _largest(tables: RunTables, limit: int) -> tuple[DeliveredMessage, ...]:
    columns = ["channel_id", "sender_id", "message_id", "size_bytes", "segments", "recovered", "timestamp_ns"]
    order = [
        ("size_bytes", "descending"),
        ("timestamp_ns", "ascending"),
        ("channel_id", "ascending"),
        ("message_id", "ascending"),
    ]
    rows = tables.head("delivered", columns, order, limit)
    return tuple(DeliveredMessage(timestamp_ns=row.pop("timestamp_ns"), **row) for row in rows)


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


def _uris_here(manifest: Mapping[str, Any]) -> dict[str | None, str]:
    """Return the URIs of a run's sources by their labels, so that they hold in the current folder."""
    uris = {source["label"]: str(source["uri"]) for source in manifest["sources"]}
    given_in = manifest.get("given_in")
    if given_in is None or given_in == str(Path.cwd()):
        return uris
    return {label: absolute_uri(uri, given_in) for label, uri in uris.items()}


def _citations_first(message: LostMessage) -> tuple[Any, ...]:
    return (-message.cited_by, message.first_cited_ns or 0, message.channel_id, message.message_id)


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


_SENDER_COLUMNS: Final = [*(name for name in _names(SenderReport) if name != "messages"), "ephemeral"]
