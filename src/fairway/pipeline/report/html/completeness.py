"""The section of an HTML report on stores: the messages that each had and missed, and its outages."""

from __future__ import annotations

from fairway.pipeline.report import tables
from fairway.pipeline.report.archive_report import ArchiveReport
from fairway.pipeline.report.figures import TimeAxis
from fairway.pipeline.report.findings import MOST_DRAWN, Findings
from fairway.pipeline.report.html.charts import Bar, Charts, Lane, time_ticks
from fairway.pipeline.report.html.data import html_table
from fairway.pipeline.report.html.losses import label
from fairway.pipeline.report.stores import StoreOverTime, StoreReport
from fairway.pipeline.report.words import of
from fairway.units import counted


def stores(charts: Charts, found: Findings, rows: str) -> tuple[str, ...]:
    """Return the share of all stores' messages that each store had, its outages, and the messages that it missed."""
    told = found.report.stores
    if not told:
        return ("No store has a name: a source NAME=URI of a run gives it one.",)
    lead = (
        f"{counted(len(told), 'store')}; together they had {counted(told[0].of, 'distinct message')}. The "
        "least complete come first."
    )
    if len(told) == 1:
        return (f"{lead} What one store lacked shows only beside another one.", _shares(charts, lead, told))
    alone = (
        "Messages that one store alone had are lost without this store. A participant that did not query it did not "
        "get them from another store."
    )
    return (
        f"{lead} {alone}",
        _shares(charts, lead, told),
        html_table(tables.stores(found.report)),
        *_lanes(charts, found),
        _outages(found.report),
        rows,
    )


def _shares(charts: Charts, lead: str, told: tuple[StoreReport, ...]) -> str:
    bars = [
        Bar(label=label(store.source), value=store.had, whole=store.of, note=of(store.had, store.of))
        for store in told[:MOST_DRAWN]
    ]
    return charts.bars("Messages that a store had", lead, bars)


def _lanes(charts: Charts, found: Findings) -> tuple[str, ...]:
    """Return the chart of the share of messages that each store missed in each stretch of time."""
    if found.axis is None:
        return ()
    title = "Share that a store lacked, by the time at which messages were sent"
    described = (
        "A stretch is darker the greater the share that the store lacked of what other stores had; it is red during an "
        "outage, and empty where no other store had anything."
    )
    pairs = list(zip(found.report.stores, found.lacks.stores, strict=True))[:MOST_DRAWN]
    lanes = [
        Lane(
            label=label(store.source),
            note=of(store.lacked, store.of),
            parts=over_time.lacked,
            wholes=over_time.of,
            bad=_during_outages(over_time, found.axis),
        )
        for store, over_time in pairs
    ]
    return (charts.lanes(title, described, lanes, time_ticks(found.axis)),)


def _during_outages(store: StoreOverTime, axis: TimeAxis) -> frozenset[int]:
    return frozenset(
        place
        for outage in store.outages
        for place in range(
            (outage.begin_ns - axis.begin_ns) // axis.width_ns,
            min((outage.end_ns - 1 - axis.begin_ns) // axis.width_ns, axis.bins - 1) + 1,
        )
    )


def _outages(report: ArchiveReport) -> str:
    table = tables.outages(report)
    return html_table(table, wide=True) if table.rows else '<p class="note">No store was out for a time.</p>'
