"""The last sections of an HTML report: bandwidth, the rate limit, quarantine, stores.

Each returns a lead, in HTML, and the charts and tables that stand below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fairway.pipeline.report.findings import bandwidth_of, busiest_epochs, stores_of
from fairway.pipeline.report.html import figures
from fairway.pipeline.report.html.charts import Bar, Charts
from fairway.pipeline.report.html.figures import TrafficOverTime
from fairway.pipeline.report.html.losses import CHART_ROWS, ROWS, label
from fairway.pipeline.report.html.page import Column, name, table, text
from fairway.pipeline.report.html.words import clock, duration, of, percent, size_of, time_ticks
from fairway.pipeline.report.stores import store_lacks
from fairway.pipeline.report.terminal_tables import size_text
from fairway.pipeline.run.reading import RunTables
from fairway.units import NS_PER_MS

_SHARES_PCT: Final = (0.0, 50.0, 80.0, 100.0)
_SHARE_NAMES: Final = ("below 50 %", "from 50 %", "from 80 %", "at the limit or above it")


def bandwidth(charts: Charts, tables: RunTables) -> tuple[str, ...]:
    """Return where the bytes of all channels went."""
    parts = bandwidth_of(tables)
    whole = sum(size for _, size, _ in parts)
    if not whole:
        return ("No message could be decoded.",)
    carriers = tables.rows("sds_messages")
    lead = f"The payload of {carriers:,} decoded messages is {size_text(whole)}; its parts add up to that."
    shares = [percent(size, whole) for _, size, _ in parts]
    bars = [
        Bar(label=part, value=size, whole=whole, note=f"{size_text(size)} ({share})")
        for (part, size, _), share in zip(parts, shares, strict=True)
    ]
    rows = [(text(part), size_of(size, whole), of(messages, carriers)) for part, size, messages in parts]
    columns = [Column(title="part"), Column(title="bytes", figure=True), Column(title="messages with it", figure=True)]
    return (lead, charts.bars("Bytes by part", lead, bars), table("Bandwidth", columns, rows))


def rate(charts: Charts, tables: RunTables) -> tuple[str, ...]:
    """Return who came nearest to the rate limit."""
    total = tables.rows("rate_utilisation")
    if not total:
        return ("Nobody sent anything.",)
    epoch = duration(tables.manifest["options"]["epoch_ms"])
    limit = tables.manifest["options"].get("rate_limit")
    busiest = busiest_epochs(tables, ROWS)
    lead = f"{total:,} pairs of a sender and an epoch of {epoch} in which it sent."
    tail: list[str] = []
    if limit is None:
        lead += " The limit is not known: a run with --rate-limit compares with it."
    else:
        counts = figures.utilisation(tables, _SHARES_PCT)
        lead += (
            f" The limit is {limit:,} messages; {of(counts[-1], total)} of the pairs are at the limit or above it. "
            "The mark across the bars is the limit."
        )
        spread = [(share, of(number, total)) for share, number in zip(_SHARE_NAMES, counts, strict=True)]
        columns = [Column(title="share of the limit"), Column(title="senders and epochs", figure=True)]
        tail.append(table("Utilisation", columns, reversed(spread)))
    most = max(row["messages"] for row in busiest)
    notes = [f"{row['messages']:,}" if limit is None else of(row["messages"], limit) for row in busiest]
    bars = [
        Bar(
            label=label(row["sender_id"]),
            value=row["messages"],
            whole=limit or most,
            note=note,
            bad=limit is not None and row["messages"] >= limit,
        )
        for row, note in zip(busiest[:CHART_ROWS], notes, strict=False)
    ]
    rows = [
        (name(row["sender_id"]), clock(row["epoch_start_ms"] * NS_PER_MS), note)
        for row, note in zip(busiest, notes, strict=True)
    ]
    figure = "messages" if limit is None else "messages of the limit"
    heads = [Column(title="sender"), Column(title="epoch from (UTC)"), Column(title=figure, figure=True)]
    return (
        lead,
        charts.bars("Busiest senders in one epoch", lead, bars, limit=limit),
        *tail,
        table("Busiest senders and epochs", heads, rows, of=total, what="senders and epochs", wide=True),
    )


def quarantine(charts: Charts, tables: RunTables) -> tuple[str, ...]:
    """Return why messages are in quarantine."""
    reasons, total, whole = figures.quarantine(tables), tables.rows("quarantine"), tables.rows("waku_messages")
    size = sum(reason.bytes for reason in reasons)
    lead = f"{of(total, whole)} distinct messages could not be decoded."
    if not reasons:
        return (lead,)
    bars = [
        Bar(label=label(reason.status), value=reason.messages, whole=total, note=of(reason.messages, total), bad=True)
        for reason in reasons[:CHART_ROWS]
    ]
    rows = [
        (text(reason.status), of(reason.messages, total), size_of(reason.bytes, size), text(reason.example))
        for reason in reasons[:ROWS]
    ]
    columns = [
        Column(title="reason"),
        Column(title="messages", figure=True),
        Column(title="bytes", figure=True),
        Column(title="an example"),
    ]
    return (
        lead,
        charts.bars("Quarantined messages", lead, bars),
        table("Reasons, the most frequent first", columns, rows, of=len(reasons), what="reasons", wide=True),
    )


def stores(charts: Charts, tables: RunTables, over_time: TrafficOverTime | None) -> tuple[str, ...]:
    """Return how much each store had of what any of them had, and what it lacked."""
    told = stores_of(tables)
    if not told:
        return ("No store was named: NAME=URI as the source of a run names it.",)
    lead = (
        f"{len(told):,} stores; together they had {told[0]['of']:,} distinct messages. The least complete come first."
    )
    bars = [
        Bar(
            label=label(row["source"]),
            value=row["messages"],
            whole=row["of"],
            note=of(row["messages"], row["of"]),
        )
        for row in told[:CHART_ROWS]
    ]
    rows = [(name(row["source"]), of(row["messages"], row["of"]), f"{row['missing']:,}") for row in told[:ROWS]]
    columns = [Column(title="store"), Column(title="had", figure=True), Column(title="lacked", figure=True)]
    return (
        lead,
        charts.bars("Messages that a store had", lead, bars),
        table("Stores, least complete first", columns, rows, of=len(told), what="stores"),
        *_lacked(charts, tables, [row for row in told if row["missing"]][:CHART_ROWS], over_time),
    )


def _lacked(
    charts: Charts, tables: RunTables, lacking: Sequence[dict[str, Any]], over_time: TrafficOverTime | None
) -> tuple[str, ...]:
    """Return what stores lacked, by content topic, and when that was sent."""
    if over_time is None or not lacking:
        return ()
    axis = over_time.axis
    found = store_lacks(tables, [row["source"] for row in lacking], ROWS, axis.bins, axis.bin_of)
    lanes = [
        (label(row["source"]), of(row["missing"], row["of"]), lane)
        for row, lane in zip(lacking, found.stretches, strict=True)
    ]
    rows = [(name(each.source), name(each.content_topic), of(each.lacked, each.of)) for each in found.topics]
    columns = [
        Column(title="store"),
        Column(title="content topic"),
        Column(title="lacked, of the topic's", figure=True),
    ]
    title = "Messages that a store lacked, by the time they were sent"
    described = "A stretch is darker the more of the messages sent in it a store lacked."
    return (
        charts.lanes(title, described, lanes, time_ticks(axis)),
        table("What stores lacked, most first", columns, rows, of=found.total, what="stores and topics", wide=True),
    )
