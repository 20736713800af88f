"""The first sections of an HTML report: what went through the channels, what was lost, how soon it was acknowledged.

Each returns a lead, in HTML, and the charts and tables that stand below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fairway.pipeline import html_figures as figures
from fairway.pipeline.html_charts import Bar, Charts
from fairway.pipeline.html_figures import LATENCIES_MS, Traffic
from fairway.pipeline.html_page import Column, name, shortened, table
from fairway.pipeline.html_words import clock, duration, latency_place, latency_ticks, of, time_ticks
from fairway.pipeline.render import size_text
from fairway.pipeline.run_tables import RunTables

ROWS: Final = 25
"""Rows of a table."""
CHART_ROWS: Final = 10
"""Bars of a chart."""
_BUSIEST: Final = 5
_LABEL_HEAD: Final = 16
_LABEL_TAIL: Final = 8


def label(told: object) -> str:
    """Return a name or an id as short as a chart has room for."""
    return shortened(told, _LABEL_HEAD, _LABEL_TAIL) or "(empty)"


def traffic(charts: Charts, told: Traffic | None) -> tuple[str, ...]:
    """Return messages and bytes over time."""
    if told is None:
        return ("There are no messages.",)
    axis = told.axis
    begins = [axis.begin_ns + place * axis.width_ns for place in range(axis.bins)]
    wide = duration(axis.width_ns // 1_000_000)
    total, size = sum(told.messages) + told.outside, sum(told.bytes) + told.outside_bytes
    lead = f"{total:,} distinct messages with {size_text(size)} of payload, in stretches of {wide}."
    if told.outside:
        lead += f" {of(told.outside, total)} messages have timestamps far from all others and are not drawn."
    counts = [
        f"{clock(begin)}: {of(number, total)} messages" for begin, number in zip(begins, told.messages, strict=True)
    ]
    sizes = [f"{clock(begin)}: {size_text(part)}" for begin, part in zip(begins, told.bytes, strict=True)]
    most, largest = f"{max(told.messages):,} messages per {wide}", f"{size_text(max(told.bytes))} per {wide}"
    busiest = sorted(range(axis.bins), key=lambda place: -told.messages[place])[:_BUSIEST]
    return (
        lead,
        charts.columns("Messages", f"{lead} At most {most}.", told.messages, counts, most, time_ticks(axis)),
        charts.columns("Bytes", f"{lead} At most {largest}.", told.bytes, sizes, largest, time_ticks(axis)),
        table(
            "Busiest stretches",
            [Column(title="from (UTC)"), Column(title="messages", figure=True), Column(title="bytes", figure=True)],
            [
                (clock(begins[place]), of(told.messages[place], total), size_text(told.bytes[place]))
                for place in busiest
                if told.messages[place]
            ],
        ),
    )


def worst_first(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what orders rows of ``channel_stats`` from the worst channel to the best."""
    lost = figures.least_share(row["missing"], row["content"] + row["missing"])
    unreadable = figures.least_share(row["incomplete"], row["delivered"] + row["incomplete"])
    return (-max(lost, unreadable), -row["content"], str(row["channel_id"]))


def channels(charts: Charts, stats: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return delivery and loss of the worst channels, of rows in the order of `worst_first`."""
    if not stats:
        return ("There are no channels.",)
    content, missing, delivered, incomplete = (
        sum(row[figure] for row in stats) for figure in ("content", "missing", "delivered", "incomplete")
    )
    lead = (
        f"Over {len(stats):,} channels, {of(missing, content + missing)} SDS messages known of are missing, and "
        f"{of(delivered, delivered + incomplete)} messages can be read. The worst channels come first: those with the "
        "greatest share lost that is certain at 95 %, so that few messages weigh less than many."
    )
    bars = [
        Bar(
            label=label(row["channel_id"]),
            value=row["missing"] / max(row["content"] + row["missing"], 1),
            whole=1,
            note=of(row["missing"], row["content"] + row["missing"]),
            bad=True,
        )
        for row in stats[:CHART_ROWS]
    ]
    titles = ("SDS messages missing", "messages readable", "acknowledged", "sent again", "senders")
    rows = [
        (
            name(row["channel_id"]),
            of(row["missing"], row["content"] + row["missing"]),
            of(row["delivered"], row["delivered"] + row["incomplete"]),
            of(row["acknowledged"], row["content"]),
            f"{row['repeats']:,}",
            f"{row['senders']:,}",
        )
        for row in stats[:ROWS]
    ]
    columns = [Column(title="channel"), *(Column(title=title, figure=True) for title in titles)]
    return (
        lead,
        charts.bars("Share of SDS messages missing", lead, bars),
        table("Channels, worst first", columns, rows, of=len(stats), what="channels"),
    )


def latency(charts: Charts, tables: RunTables) -> tuple[str, ...]:
    """Return how soon messages were acknowledged."""
    told = figures.latencies(tables)
    if not told.total:
        return ("There are no content messages.",)
    lead = f"{of(told.acknowledged, told.total)} content messages were acknowledged by somebody else."
    points = [(latency_place(limit), number / told.total) for limit, number in told.within if limit <= LATENCIES_MS[-1]]
    rows = [(duration(limit), of(told.share(limit), told.total)) for limit in LATENCIES_MS]
    return (
        lead,
        charts.curve("Acknowledged within (CDF)", lead, points, f"100 % of {told.total:,}", latency_ticks()),
        table(
            "Acknowledged within",
            [Column(title="time since it was sent"), Column(title="content messages", figure=True)],
            [*rows, ("at any time", of(told.acknowledged, told.total))],
        ),
    )


def gaps(
    charts: Charts, tables: RunTables, stats: Sequence[dict[str, Any]], over_time: Traffic | None
) -> tuple[str, ...]:
    """Return when missing messages were cited, in the channels that miss most."""
    total = tables.rows("missing_messages")
    if not total or over_time is None:
        return ("No message that others cite is missing.",)
    gappy = sorted((row for row in stats if row["missing"]), key=lambda row: (-row["missing"], str(row["channel_id"])))
    drawn = gappy[:CHART_ROWS]
    open_gaps = figures.gaps(tables, [row["channel_id"] for row in drawn], over_time.axis)
    lanes = [
        (label(row["channel_id"]), f"{of(row['missing'], total)} missing", lane)
        for row, lane in zip(drawn, open_gaps, strict=True)
    ]
    lead = (
        f"{total:,} SDS messages in {len(gappy):,} of {len(stats):,} channels are cited and missing. A stretch is "
        "darker the more of them are cited both before and after it, or in it."
    )
    columns = ["channel_id", "message_id", "sender_id", "cited_by", "first_cited", "last_cited"]
    order = [
        ("cited_by", "descending"),
        ("first_cited", "ascending"),
        ("channel_id", "ascending"),
        ("message_id", "ascending"),
    ]
    rows = [
        (
            name(row["channel_id"]),
            name(row["message_id"]),
            name(row["sender_id"]),
            f"{row['cited_by']:,}",
            "unknown" if row["first_cited"] is None else clock(row["first_cited"]),
            "unknown" if row["last_cited"] is None else clock(row["last_cited"]),
        )
        for row in tables.head("missing_messages", columns, order, ROWS)
    ]
    heads = [Column(title=title) for title in ("channel", "message", "sender")]
    heads += [Column(title=title, figure=True) for title in ("cited by", "first (UTC)", "last (UTC)")]
    chart = charts.lanes("Missing messages over time", lead, lanes, time_ticks(over_time.axis))
    if len(gappy) > len(drawn):
        lead += f" {len(gappy) - len(drawn):,} more of {len(gappy):,} channels are not drawn."
    return (lead, chart, table("Missing messages, most cited first", heads, rows, of=total, what="missing messages"))
