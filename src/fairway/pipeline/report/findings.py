"""The report of a finished run, from its tables and without Spark."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa

from fairway.pipeline.report import figures
from fairway.pipeline.report.accounts import Accounts, lost_sums, senders_divided
from fairway.pipeline.report.archive_report import ArchiveReport, CauseCount, ChannelReport
from fairway.pipeline.report.bounded import Divided
from fairway.pipeline.report.causes import CAUSES, Causes, LossCause, LostMessage
from fairway.pipeline.report.evidence import acknowledgement_basis
from fairway.pipeline.report.figures import TimeAxis, time_axis
from fairway.pipeline.report.headline import Headline
from fairway.pipeline.report.oddities import oddities
from fairway.pipeline.report.rates import double_signals, over_limit
from fairway.pipeline.report.stores import StoreReport, store_lacks
from fairway.pipeline.report.to_do import SenderLoss, to_do_of
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.sources import absolute_uri
from fairway.pipeline.stages.sums import grouped

_Value = TypeVar("_Value")
MOST_NAMED: Final = 1_000
"""Channels and senders of an `ArchiveReport`, at most."""
MOST_DRAWN: Final = 10
"""Bars or lanes of a chart, at most."""
HELD_COUNTS: Final = 100_000
"""Counts of authors that are held before they are added up."""


class Findings:
    """The data of a report of a run, read from the tables once.

    Memory grows with ``most`` and with the number of stores, not with the rows of the tables.
    """

    def __init__(self, tables: RunTables, most: int = 20, now_ns: int | None = None) -> None:
        """Read the tables; keep ``most`` rows of each list. ``now_ns`` is the time of the report."""
        self.tables = tables
        self.most = most
        self._now_ns = time.time_ns() if now_ns is None else now_ns
        self.axis: TimeAxis | None = time_axis(tables)
        self.store_rows = stores_of(tables)
        self.lacks = store_lacks(tables, [row["source"] for row in self.store_rows], most, self.axis)
        self.bandwidth = bandwidth_of(tables)
        self.reasons = figures.quarantine(tables)
        self.latencies = figures.latencies(tables)
        self.circumstances: Counter[str] = Counter()
        self.causes: Counter[tuple[LossCause, str | None]] = Counter()
        with senders_divided(tables) as by_sender:
            lost = self._counted_losses(by_sender)
            self.lost = heapq.nsmallest(
                most, lost, key=lambda each: (-each.cited_by, each.first_cited_ns or 0, each.message_id)
            )
            """The lost messages that are cited most."""
            self.accounts = Accounts(tables, by_sender, max(most, MOST_NAMED), MOST_DRAWN)
        self.report = self._report()

    def _counted_losses(self, by_sender: Divided) -> Iterator[LostMessage]:
        """Yield all lost messages, and count them."""
        outages = [outage for store in self.lacks.stores for outage in store.outages]
        counts: Counter[tuple[str, str | None, LossCause]] = Counter()
        for message in Causes(self.tables, outages):
            self.causes[message.cause, message.status] += 1
            self.circumstances.update(message.meanwhile)
            counts[message.channel_id, message.sender_id, message.cause] += 1
            if len(counts) >= HELD_COUNTS:
                by_sender.add(lost_sums(counts))
                counts.clear()
            yield message
        by_sender.add(lost_sums(counts))

    def _report(self) -> ArchiveReport:
        tables, accounts = self.tables, self.accounts
        first_ns, last_ns = tables.range_of("waku_messages", "timestamp_ns")
        channels = tuple(
            _known(ChannelReport, row | {"messages": Headline.of(counts)})
            for row, counts in accounts.channels[:MOST_NAMED]
        )
        quarantined = {reason.status: reason.messages for reason in self.reasons}
        payload_bytes = sum(size for _, size, _ in self.bandwidth) + sum(reason.bytes for reason in self.reasons)
        stores = self._stores()
        headline = accounts.headline
        limited, limited_senders = over_limit(tables, MOST_NAMED)
        twice, twice_senders = double_signals(tables, MOST_NAMED)
        report = ArchiveReport(
            headline=headline,
            oddities=oddities(tables, stores, quarantined, self._now_ns),
            to_do=(),
            causes=tuple(
                CauseCount(cause=cause.value, meaning=CAUSES[cause], status=status, count=number)
                for (cause, status), number in sorted(self.causes.items(), key=lambda told: (-told[1], str(told[0])))
            ),
            circumstances=dict(self.circumstances.most_common()),
            stores=stores,
            over_limit=limited,
            over_limit_senders=limited_senders,
            double_signals=twice,
            double_signal_senders=twice_senders,
            acknowledgement=acknowledgement_basis(tables, accounts.totals["content"], accounts.totals["acknowledged"]),
            archive=", ".join(source["label"] or source["uri"] for source in tables.manifest["sources"]),
            selection=tables.manifest["options"].get("selection"),
            messages=tables.rows("waku_messages"),
            payload_bytes=payload_bytes,
            first_ns=first_ns,
            last_ns=last_ns,
            channels=channels,
            channel_count=tables.rows("channel_stats"),
            totals=accounts.totals,
            senders=tables.rows("sender_stats"),
            quarantined=quarantined,
        )
        to_do = to_do_of(
            report,
            list(self._losses()),
            adds_up=tables.balance.adds_up,
            run=str(tables.place),
            uris=_uris_here(tables.manifest),
        )
        return replace(report, to_do=to_do)

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
        """Yield the worst senders of whom messages are lost."""
        for row, counts in self.accounts.senders[:MOST_NAMED]:
            if counts["lost"]:
                most = max(LossCause, key=lambda cause: int(counts[cause.value]))
                yield SenderLoss(
                    channel_id=row["channel_id"],
                    sender_id=row["sender_id"],
                    lost=counts["lost"],
                    known=counts["known"],
                    cause=most if counts[most.value] else LossCause.UNKNOWN,
                )


def report_of(tables: RunTables) -> ArchiveReport:
    """Return the report of a run."""
    return Findings(tables).report


def bandwidth_of(tables: RunTables) -> list[tuple[str, int, int]]:
    """Return part, bytes and messages, each summed over all channels; the largest part is first."""
    sizes: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    for batch in tables.batches("bandwidth", ["part", "bytes", "messages"]):
        sums = {"bytes": ("bytes", "sum"), "messages": ("messages", "sum")}
        for row in grouped(pa.Table.from_batches([batch]), ["part"], sums).to_pylist():
            sizes[row["part"]] += row["bytes"]
            messages[row["part"]] += row["messages"]
    return [(part, size, messages[part]) for part, size in sizes.most_common()]


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


def _known(make: type[_Value], row: dict[str, Any]) -> _Value:
    return make(**{field.name: row[field.name] for field in fields(make)})  # type: ignore[arg-type]
