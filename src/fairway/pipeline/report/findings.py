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
import pyarrow.compute as pc

from fairway.pipeline.report.archive_report import (
    ArchiveReport,
    CauseCount,
    ChannelReport,
    StoreReport,
)
from fairway.pipeline.report.causes import CAUSES, Causes, LossCause, quarantined_hints
from fairway.pipeline.report.evidence import acknowledgement_basis
from fairway.pipeline.report.figures import TimeAxis, time_axis
from fairway.pipeline.report.headline import Accounts, Headline, Sender, headline_of, worst_first
from fairway.pipeline.report.oddities import DAMAGED, DamagedCopies, oddities
from fairway.pipeline.report.rates import double_signals, over_limit
from fairway.pipeline.report.stores import store_lacks
from fairway.pipeline.report.to_do import MOST_OF_A_KIND, Found, SenderLoss, StoreShare, to_do_of
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.sources import absolute_uri

_Value = TypeVar("_Value")
MOST_LACKS: Final = 100_000
"""Pairs of a store and a content topic that are kept."""
_SENDER_COLUMNS: Final = ["channel_id", "sender_id", "content", "ephemeral", "missing"]
_NAMED_SENDERS: Final = MOST_OF_A_KIND * 10
"""Number of the worst senders that are candidates for a to-do."""


class Findings:
    """The data of a report of a run, read from the tables once."""

    def __init__(self, tables: RunTables, now_ns: int | None = None) -> None:
        """Read the tables; ``now_ns`` is the time of the report."""
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
        for message in self.lost:
            self.causes[message.cause, message.status] += 1
            self.circumstances.update(message.meanwhile)
            self.causes_of_senders[message.channel_id, message.sender_id][message.cause] += 1
        self.report = self._report()

    def _report(self) -> ArchiveReport:
        tables = self.tables
        first_ns, last_ns = tables.range_of("waku_messages", "timestamp_ns")
        ordered = sorted(
            self.channel_rows, key=lambda row: worst_first(self.channels[row["channel_id"]], row["channel_id"])
        )
        channels = tuple(_known(ChannelReport, row | {"messages": self.channels[row["channel_id"]]}) for row in ordered)
        quarantined, unreadable_bytes = _quarantined(tables)
        readable_bytes = sum(row["bytes"] for row in tables.all("bandwidth", ["bytes"]))
        stores = self._stores()
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
            senders=list(self._losses()),
            senders_in_all=tables.rows("sender_stats"),
            over_limit=limited,
            double_signals=twice,
            run=str(tables.place),
            messages=tables.rows("waku_messages"),
            is_selection=tables.manifest["options"].get("selection") is not None,
            causes=causes,
            quarantined=quarantined,
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
            over_limit=limited,
            double_signals=twice,
            acknowledgement=acknowledgement_basis(
                tables, sum(row["content"] for row in ordered), sum(row["acknowledged"] for row in ordered)
            ),
            archive=", ".join(source["label"] or source["uri"] for source in tables.manifest["sources"]),
            selection=tables.manifest["options"].get("selection"),
            messages=tables.rows("waku_messages"),
            payload_bytes=readable_bytes + unreadable_bytes,
            first_ns=first_ns,
            last_ns=last_ns,
            channels=channels,
            senders=tables.rows("sender_stats"),
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

    def _losses(self) -> Iterator[SenderLoss]:
        """Yield the worst senders, of whom messages are lost."""

        def told() -> Iterator[tuple[Headline, str, str | None]]:
            for batch in self.tables.batches("sender_stats", _SENDER_COLUMNS):
                for row in batch.to_pylist():
                    yield self.accounts.of_sender(row), row["channel_id"], row["sender_id"]

        for messages, channel_id, sender_id in heapq.nsmallest(
            _NAMED_SENDERS, told(), key=lambda each: worst_first(*each)
        ):
            causes = self.causes_of_senders[channel_id, sender_id]
            if messages.lost:
                yield SenderLoss(
                    channel_id=channel_id,
                    sender_id=sender_id,
                    lost=messages.lost,
                    known=messages.known,
                    cause=max(causes, key=lambda cause: causes[cause], default=LossCause.UNKNOWN),
                )


def report_of(tables: RunTables) -> ArchiveReport:
    """Return the report of a run."""
    return Findings(tables).report


def bandwidth_of(tables: RunTables) -> list[tuple[str, int, int]]:
    """Return part, bytes and messages, each summed over all channels; the largest part is first."""
    sizes: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    for row in tables.all("bandwidth"):
        sizes[row["part"]] += row["bytes"]
        messages[row["part"]] += row["messages"]
    return [(part, size, messages[part]) for part, size in sizes.most_common()]


def busiest_epochs(tables: RunTables, limit: int) -> list[dict[str, Any]]:
    """Return the pairs of sender and epoch with the most messages, as rows of ``rate_utilisation``."""
    ascending = [(name, "ascending") for name in ("epoch_start_ms", "channel_id", "sender_id")]
    order = [("messages", "descending"), *ascending]
    columns = ["channel_id", "sender_id", "epoch_start_ms", "messages", "message_ids", "charged", "pct"]
    return tables.head("rate_utilisation", columns, order, limit)


def stores_of(tables: RunTables) -> list[dict[str, Any]]:
    """Return the rows of ``store_completeness``, the least complete store first."""
    return sorted(tables.all("store_completeness"), key=lambda row: (row["messages"], str(row["source"])))


def _uris_here(manifest: Mapping[str, Any]) -> dict[str | None, str]:
    """Return the URIs of a run's sources by their labels, resolved for the current folder."""
    uris = {source["label"]: str(source["uri"]) for source in manifest["sources"]}
    given_in = manifest.get("given_in")
    if given_in is None or given_in == str(Path.cwd()):
        return uris
    return {label: absolute_uri(uri, given_in) for label, uri in uris.items()}


def _quarantined(tables: RunTables) -> tuple[dict[str, int], int]:
    """Return the number of messages in quarantine by status, the most frequent first, and their bytes in all."""
    counts: Counter[str] = Counter()
    size = 0
    for batch in tables.batches("quarantine", ["status", "payload_bytes"]):
        counts.update(batch.column(0).to_pylist())
        size += pc.sum(batch.column(1)).as_py() or 0
    return dict(sorted(counts.items(), key=lambda reason: (-reason[1], reason[0]))), size


def _names(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind)]


def _known(make: type[_Value], row: dict[str, Any]) -> _Value:
    return make(**{name: row[name] for name in _names(make)})
