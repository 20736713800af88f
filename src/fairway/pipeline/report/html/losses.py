"""The first sections of an HTML report: what went through the channels, what was lost, how soon it was acknowledged.

Each returns a lead, in HTML, and the charts and tables that stand below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fairway.pipeline.report.findings import waiting_of
from fairway.pipeline.report.html import figures
from fairway.pipeline.report.html.charts import Bar, Charts
from fairway.pipeline.report.html.figures import LATENCIES_MS, TrafficOverTime
from fairway.pipeline.report.html.page import Column, name, shortened, table
from fairway.pipeline.report.html.words import clock, duration, latency_place, latency_ticks, of, size_of, time_ticks
from fairway.pipeline.report.terminal_tables import size_text
from fairway.pipeline.run.reading import RunTables

ROWS: Final = 15
"""Rows of a table."""
CHART_ROWS: Final = 10
"""Bars of a chart."""
_BUSIEST: Final = 5
_LABEL_HEAD: Final = 14
_LABEL_TAIL: Final = 6
_FULL_BARS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares that a bar over its whole length may stand for: the least that all bars of a chart fit in."""


def label(told: object) -> str:
    """Return a name or an id as short as a chart has room for."""
    return shortened(told, _LABEL_HEAD, _LABEL_TAIL) or "(empty)"


def traffic(charts: Charts, told: TrafficOverTime | None) -> tuple[str, ...]:
    """Return messages and bytes over time."""
    if told is None:
        return ("There are no messages.",)
    axis = told.axis
    begins = [axis.begin_ns + place * axis.width_ns for place in range(axis.bins)]
    wide = duration(axis.width_ns // 1_000_000)
    total, size = sum(told.messages) + told.outside, sum(told.bytes) + told.outside_bytes
    lead = (
        f"{total:,} distinct messages with {size_text(size)} of payload, quarantined ones included, from "
        f"{clock(axis.begin_ns)} to {clock(axis.end_ns)} UTC in {axis.bins} stretches of {wide}."
    )
    if told.outside:
        lead += f" {of(told.outside, total)} messages have timestamps far from all others and are not drawn."
    counts = [
        f"{clock(begin)}: {of(number, total)} messages" for begin, number in zip(begins, told.messages, strict=True)
    ]
    sizes = [f"{clock(begin)}: {size_of(part, size)}" for begin, part in zip(begins, told.bytes, strict=True)]
    most, largest = f"{max(told.messages):,} messages per {wide}", f"{size_text(max(told.bytes))} per {wide}"
    busiest = sorted(range(axis.bins), key=lambda place: -told.messages[place])[:_BUSIEST]
    return (
        lead,
        charts.columns("Messages", f"{lead} At most {most}.", told.messages, counts, most, time_ticks(axis)),
        charts.columns("Bytes of payload", f"{lead} At most {largest}.", told.bytes, sizes, largest, time_ticks(axis)),
        table(
            "Busiest stretches",
            [Column(title="from (UTC)"), Column(title="messages", figure=True), Column(title="bytes", figure=True)],
            [
                (clock(begins[place]), of(told.messages[place], total), size_of(told.bytes[place], size))
                for place in busiest
                if told.messages[place]
            ],
            wide=True,
        ),
    )


def channels(charts: Charts, stats: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return delivery and loss of the worst channels, of rows in the order of `ranking.worst_first`."""
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
    worst = stats[:CHART_ROWS]
    names = [row["channel_id"] for row in worst]
    absent = [(row["missing"], row["content"] + row["missing"]) for row in worst]
    unreadable = [(row["incomplete"], row["delivered"] + row["incomplete"]) for row in worst]
    titles = (
        "SDS messages missing",
        "messages readable",
        "acknowledged",
        "half within",
        "95 % within",
        "sightings that repeat",
        "senders",
    )
    rows = [
        (
            name(row["channel_id"]),
            of(row["missing"], row["content"] + row["missing"]),
            of(row["delivered"], row["delivered"] + row["incomplete"]),
            of(row["acknowledged"], row["content"]),
            _within(row["latency_p50_ms"]),
            _within(row["latency_p95_ms"]),
            of(row["repeats"], row["content"] + row["sync"] + row["ephemeral"] + row["repeats"]),
            f"{row['senders']:,}",
        )
        for row in stats[:ROWS]
    ]
    columns = [Column(title="channel"), *(Column(title=title, figure=True) for title in titles)]
    return (
        f"{lead} Half within, 95 % within: of the messages that were acknowledged, by the first who did.",
        _shares(charts, "SDS messages missing", lead, names, absent),
        _shares(charts, "Messages that cannot be put together", lead, names, unreadable),
        table("Channels, worst first", columns, rows, of=len(stats), what="channels", wide=True),
    )


def _shares(charts: Charts, title: str, described: str, names: Sequence[str], shares: Sequence[tuple[int, int]]) -> str:
    """Return bars for parts of wholes, drawn so large that the greatest can be told from the others."""
    greatest = max((part / whole for part, whole in shares if whole), default=0)
    full = next(share for share in _FULL_BARS if greatest <= share)
    bars = [
        Bar(label=label(told), value=part / max(whole, 1), whole=full, note=of(part, whole), bad=True)
        for told, (part, whole) in zip(names, shares, strict=True)
    ]
    return charts.bars(f"{title} (a full bar is {full:.0%})", described, bars)


def _within(latency_ms: int | None) -> str:
    return "-" if latency_ms is None else duration(latency_ms)


def latency(charts: Charts, tables: RunTables) -> tuple[str, ...]:
    """Return how soon messages were acknowledged."""
    told = figures.latencies(tables)
    if not told.total:
        return ("There are no content messages.",)
    lead = f"{of(told.acknowledged, told.total)} content messages were acknowledged by somebody else."
    half = next((limit for limit, number in told.within if 2 * number >= told.total), None)
    if half is not None:
        lead += f" Half of all {told.total:,} were within {duration(half)}."
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
    charts: Charts, tables: RunTables, stats: Sequence[dict[str, Any]], over_time: TrafficOverTime | None
) -> tuple[str, ...]:
    """Return when missing messages were cited, in the channels that miss most."""
    total = tables.rows("missing_messages")
    if not total or over_time is None:
        return ("No message that others cite is missing.",)
    gappy = sorted((row for row in stats if row["missing"]), key=lambda row: (-row["missing"], str(row["channel_id"])))
    drawn = gappy[:CHART_ROWS]
    open_gaps = figures.gaps(tables, [row["channel_id"] for row in drawn], over_time.axis)
    lanes = [
        (label(row["channel_id"]), of(row["missing"], total), lane) for row, lane in zip(drawn, open_gaps, strict=True)
    ]
    lead = (
        f"{total:,} SDS messages in {len(gappy):,} of {len(stats):,} channels are cited and missing. A stretch is "
        "darker the more of them are cited both before and after it, or in it."
    )
    content = {row["channel_id"]: row["content"] for row in stats}
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
            f"{row['cited_by']:,} of {content.get(row['channel_id'], 0):,}",
            "unknown" if row["first_cited"] is None else clock(row["first_cited"]),
            "unknown" if row["last_cited"] is None else clock(row["last_cited"]),
        )
        for row in tables.head("missing_messages", columns, order, ROWS)
    ]
    heads = [Column(title=title) for title in ("channel", "message", "sender")]
    titles = ("cited by, of the channel's", "first (UTC)", "last (UTC)")
    heads += [Column(title=title, figure=True) for title in titles]
    chart = charts.lanes(f"Of {total:,} missing messages, over time", lead, lanes, time_ticks(over_time.axis))
    if len(gappy) > len(drawn):
        lead += f" {len(gappy) - len(drawn):,} more of {len(gappy):,} channels are not drawn."
    found = table("Missing messages, most cited first", heads, rows, of=total, what="missing messages", wide=True)
    said, waits = _waiting(tables, stats)
    return (lead + said, chart, waits, found)


def _waiting(tables: RunTables, stats: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Return what the gaps hold up: a sentence, and the channels in which most waits."""
    found = waiting_of(tables)
    known = {row["channel_id"]: row for row in stats}
    content = sum(row["content"] for row in stats)
    said = (
        f" {of(sum(told.waiting for told in found), content)} SDS messages that are there wait for missing ones, "
        "directly or through others: a live participant delivers them only after giving those up."
    )
    unknown = sum(told.unknown for told in found)
    if unknown:
        said += f" Of {of(unknown, content)} it is not known, since their channels are too large for one worker."
    rows = [
        (
            name(told.channel_id),
            "unknown" if told.unknown else of(told.waiting, known[told.channel_id]["content"]),
            f"{known[told.channel_id]['missing']:,}",
        )
        for told in found[:ROWS]
        if told.channel_id in known
    ]
    columns = [
        Column(title="channel"),
        *(Column(title=title, figure=True) for title in ("that wait", "behind missing")),
    ]
    waits = table("SDS messages that wait behind gaps", columns, rows, of=len(found), what="channels") if rows else ""
    return said, waits
