"""The sections of an HTML report on traffic: over time, acknowledgement, the rate limit, quarantine, bandwidth.

Each function returns a lead, in HTML, and the charts and tables below it.
"""

from __future__ import annotations

from typing import Final

from fairway.pipeline.report import figures, tables
from fairway.pipeline.report.figures import LATENCIES_MS
from fairway.pipeline.report.findings import MOST_DRAWN, Findings
from fairway.pipeline.report.html.charts import Bar, Charts, latency_place, latency_ticks, time_ticks
from fairway.pipeline.report.html.data import html_table
from fairway.pipeline.report.html.losses import label
from fairway.pipeline.report.tables import ColumnKind, small_table
from fairway.pipeline.report.words import clock, duration, of, percent, size_of, size_text
from fairway.units import counted

_BUSIEST: Final = 5


def traffic(charts: Charts, found: Findings) -> tuple[str, ...]:
    """Return messages and bytes over time."""
    if found.axis is None:
        return ("There are no messages.",)
    told = figures.traffic(found.tables, found.axis)
    axis = told.axis
    begins = [axis.begin_ns + place * axis.width_ns for place in range(axis.bins)]
    wide = duration(axis.width_ns // 1_000_000)
    total, size = sum(told.messages) + told.outside, sum(told.bytes) + told.outside_bytes
    lead = (
        f"{counted(total, 'distinct message')} with {size_text(size)} of payload, quarantined ones included, from "
        f"{clock(axis.begin_ns)} to {clock(axis.end_ns)} UTC in {axis.bins} stretches of {wide}."
    )
    if told.outside:
        lead += f" {of(told.outside, total)} messages have timestamps far from all others and are not drawn."
    counts = [
        f"{clock(begin)}: {of(number, total)} messages" for begin, number in zip(begins, told.messages, strict=True)
    ]
    sizes = [f"{clock(begin)}: {size_of(part, size)}" for begin, part in zip(begins, told.bytes, strict=True)]
    most, largest = f"{counted(max(told.messages), 'message')} per {wide}", f"{size_text(max(told.bytes))} per {wide}"
    busiest = sorted(range(axis.bins), key=lambda place: -told.messages[place])[:_BUSIEST]
    return (
        lead,
        charts.columns("Messages", f"{lead} At most {most}.", told.messages, counts, most, time_ticks(axis)),
        charts.columns("Bytes of payload", f"{lead} At most {largest}.", told.bytes, sizes, largest, time_ticks(axis)),
        html_table(
            small_table(
                "Busiest stretches",
                {"from (UTC)": ColumnKind.TEXT, "messages": ColumnKind.SHARE, "bytes": ColumnKind.SHARE},
                [
                    (clock(begins[place]), of(told.messages[place], total), size_of(told.bytes[place], size))
                    for place in busiest
                    if told.messages[place]
                ],
            ),
            wide=True,
        ),
    )


def latency(charts: Charts, found: Findings) -> tuple[str, ...]:
    """Return the number of acknowledged messages, the evidence, and the latencies."""
    told, basis = found.latencies, found.report.acknowledgement
    if not told.total:
        return ("There are no content messages.",)
    lead = f"At least {of(told.acknowledged, told.total)} messages that are there were acknowledged by others."
    half = next((limit for limit, number in told.within if 2 * number >= told.total), None)
    if half is not None:
        lead += f" Half of all {told.total:,} were within {duration(half)}."
    points = [(latency_place(limit), number / told.total) for limit, number in told.within if limit <= LATENCIES_MS[-1]]
    evidence = tables.evidence(basis)
    return (
        f"{lead} {basis.caution}",
        charts.curve("Acknowledged within (CDF)", lead, points, f"100 % of {told.total:,}", latency_ticks()),
        html_table(tables.latency(told)),
        *((html_table(evidence),) if evidence.rows else ()),
    )


def bandwidth(charts: Charts, found: Findings) -> tuple[str, ...]:
    """Return the bytes of all channels by part."""
    run, parts = found.tables, found.bandwidth
    whole = sum(size for _, size, _ in parts)
    if not whole:
        return ("No message could be decoded.",)
    carriers = run.rows("sds_messages") + run.rows("repeats")
    lead = f"The payload of {counted(carriers, 'decoded message')} is {size_text(whole)}; its parts add up to that."
    shares = [percent(size, whole) for _, size, _ in parts]
    bars = [
        Bar(label=part, value=size, whole=whole, note=f"{size_text(size)} ({share})")
        for (part, size, _), share in zip(parts, shares, strict=True)
    ]
    return (lead, charts.bars("Bytes by part", lead, bars), html_table(tables.bandwidth(found)))


def rate(charts: Charts, found: Findings, rows: str) -> tuple[str, ...]:
    """Return the senders nearest to the rate limit, or furthest above it."""
    run = found.tables
    total = run.rows("rate_utilisation")
    if not total:
        return ("Nobody sent anything.",)
    epoch = duration(run.manifest["options"]["epoch_ms"])
    limit = run.manifest["options"].get("rate_limit")
    busiest = tables.busiest_epochs(run, MOST_DRAWN)
    lead = f"{counted(total, 'pair')} of a sender of a channel and an epoch of {epoch} in which it sent."
    tail: list[str] = []
    if limit is None:
        lead += " The limit is not known: a run with --rate-limit compares with it."
    else:
        used = tables.utilisation(run)
        lead += (
            f" The limit is {limit:,} messages; {used.rows[0][1]} of the pairs are at the limit or above it. "
            "The mark across the bars is the limit, and what is above it is red."
        )
        tail.append(html_table(used))
    if any(row["message_ids"] for row in busiest):
        lead += " Charged are the message ids of RLN proofs, and each message without a proof."
    most = max(row["messages"] for row in busiest)
    bars = [
        Bar(
            label=label(row["sender_id"]),
            value=row["charged"],
            whole=limit or most,
            note=f"{row['messages']:,}" if limit is None else of(row["charged"], limit),
            bad=limit is not None and row["charged"] > limit,
        )
        for row in busiest
    ]
    return (lead, charts.bars("Busiest senders in one epoch", lead, bars, limit=limit), *tail, rows)


def quarantine(charts: Charts, found: Findings, rows: str) -> tuple[str, ...]:
    """Return the reasons for quarantine."""
    run = found.tables
    reasons, total, whole = found.reasons, run.rows("quarantine"), run.rows("waku_messages")
    lead = f"{of(total, whole)} distinct messages could not be decoded, are forged, or on a wrong topic."
    if not reasons:
        return (lead,)
    bars = [
        Bar(label=label(reason.status), value=reason.messages, whole=total, note=of(reason.messages, total))
        for reason in reasons[:MOST_DRAWN]
    ]
    return (
        lead,
        charts.bars("Quarantined messages", lead, bars),
        html_table(tables.reasons(found), wide=True),
        rows,
    )
