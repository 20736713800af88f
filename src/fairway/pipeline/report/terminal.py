"""A run for people: its tables, its balance, and what the report of an archive does not show."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from fairway.pipeline.report.archive_report import ArchiveReport
from fairway.pipeline.report.evidence import meaning_of
from fairway.pipeline.report.figures import LATENCIES_MS, latencies, utilisation
from fairway.pipeline.report.findings import bandwidth_of, busiest_epochs, report_of
from fairway.pipeline.report.terminal_tables import new_table, plain, render_report, render_summary
from fairway.pipeline.report.to_do import outage_text
from fairway.pipeline.report.words import duration, share_text, size_text
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.summary import Balance, RunSummary

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHARES_PCT = (50.0, 80.0, 100.0)


def print_summary(summary: RunSummary, console: Console) -> None:
    """Print what a run wrote, and what became of every row."""
    table = new_table("Tables", ["table"], ["rows", "files", "size", "seconds"])
    for result in summary.tables:
        table.add_row(
            result.name, f"{result.rows:,}", f"{result.files:,}", size_text(result.bytes), f"{result.seconds:,.1f}"
        )
    kept = f", {summary.resumed} tables from an earlier attempt" if summary.resumed else ""
    table.caption = f"{summary.seconds:,.1f} s{kept}; in {summary.folder}"
    console.print(table)
    if summary.mode == "grown":
        console.print(f"the tables grew by {summary.new_rows:,} rows of the sources")
    elif summary.because is not None:
        console.print(f"all tables were made anew: {escape(summary.because)}")
    if summary.selects_nothing:
        console.print("no message of the sources is selected by --since, --until, --channel and --topic")
    console.print()
    console.print(render_balance(summary.balance))


def print_run_report(tables: RunTables, console: Console, limit: int) -> None:
    """Print the report of a finished run."""
    report = report_of(tables, limit)
    parts: list[RenderableType] = [render_report(report, limit)]
    sections = (
        _waiting(report, limit),
        _evidence(report),
        _latency(tables),
        _epochs(tables, limit),
        *_stores(report, limit),
        _bandwidth(tables),
    )
    for section in sections:
        if section.row_count:
            parts += ["", section]
    console.print(Group(*parts, "", render_balance(tables.balance)))


def short_report(tables: RunTables) -> RenderableType:
    """Return what fits on one screen of the report of a finished run."""
    return Group(render_summary(report_of(tables)), "", _bandwidth(tables), "", render_balance(tables.balance))


def render_balance(balance: Balance) -> Table:
    """Return what became of the rows of the input, as a table: four sums, and the classes of which they are made."""
    table = new_table("Rows in, and what became of them", [""], ["of these", "rows"])
    formula = balance.formula
    sums = (
        (
            "delivered",
            {"carried a message that can be read": balance.delivered, "sync messages": balance.sync},
        ),
        ("parked", {"incomplete: segments of a message that cannot": balance.incomplete}),
        ("quarantined", {"not decoded, forged, or on a wrong topic": balance.quarantined}),
        (
            "duplicates",
            {
                "the same Waku message again": balance.duplicates,
                "retransmissions of an SDS message": balance.retransmissions,
            },
        ),
    )
    for name, classes in sums:
        table.add_row(name, "", f"{formula[name]:,}")
        for meaning, count in classes.items():
            table.add_row(f"  {meaning}", f"{count:,}", "")
    table.add_section()
    table.add_row("in all", "", f"{balance.accounted_for:,}")
    verdict = "[green]all accounted for[/]" if balance.adds_up else "[red]this does not add up[/]"
    table.add_row(f"rows in ({verdict})", "", f"{balance.rows_in:,}")
    return table


def _waiting(report: ArchiveReport, limit: int) -> Table:
    known = {channel.channel_id: channel.messages for channel in report.channels}
    table = new_table("Held up by lost messages", ["channel"], ["held up", "of", "behind lost"])
    for told in report.waiting[:limit]:
        messages = known[told.channel_id]
        waiting = f"{told.waiting:,}" if not told.unknown else "unknown"
        table.add_row(plain(told.channel_id), waiting, f"{messages.known:,}", f"{messages.lost:,}")
    if len(report.waiting) > limit:
        table.caption = f"and {len(report.waiting) - limit:,} more of {len(report.waiting):,} channels"
    return table


def _evidence(report: ArchiveReport) -> Table:
    told = report.acknowledgement
    table = new_table("What acknowledgement rests on", ["evidence"], ["messages and participants"])
    table.add_column("that is")
    for evidence, number in told.evidence.items():
        table.add_row(evidence, f"{number:,}", meaning_of(evidence))
    table.caption = told.caution
    return table


def _bandwidth(tables: RunTables) -> Table:
    parts = bandwidth_of(tables)
    whole = sum(size for _, size, _ in parts)
    table = new_table("Bandwidth", ["part"], ["size", "share", "messages"])
    for part, size, messages in parts:
        table.add_row(part, size_text(size), f"{size / whole:.1%}" if whole else "-", f"{messages:,}")
    table.caption = f"of {size_text(whole)} that could be decoded"
    return table


def _latency(tables: RunTables) -> Table:
    told = latencies(tables)
    table = new_table("Time until the first acknowledgement", ["within"], ["content messages", "share"])
    if told.total:
        for limit_ms in LATENCIES_MS:
            number = told.share(limit_ms)
            table.add_row(duration(limit_ms), f"{number:,}", share_text(number, told.total))
        table.add_row("at any time", f"{told.acknowledged:,}", share_text(told.acknowledged, told.total))
        table.caption = f"of {told.total:,} content messages"
    return table


def _stores(report: ArchiveReport, limit: int) -> tuple[Table, Table, Table]:
    table = new_table("Stores, least complete first", ["store"], ["had", "of all", "lacked", "alone had"])
    out = new_table("Outages of stores", ["outage"], ["lacked", "of"])
    for store in report.stores:
        share = share_text(store.had, store.of) if store.of else "-"
        table.add_row(plain(store.source), f"{store.had:,}", share, f"{store.lacked:,}", f"{store.alone:,}")
        for outage in store.outages[:limit]:
            out.add_row(plain(outage_text(outage)), f"{outage.lacked:,}", f"{outage.of:,}")
    table.caption = f"of {report.messages:,} that any had; alone had: would be lost without this store"
    out.caption = "of the messages that other stores had then"
    lacked = new_table("What stores lacked, most first", ["store", "content topic"], ["lacked", "of"])
    for told in report.stores_lacked:
        lacked.add_row(plain(told.source), plain(told.content_topic), f"{told.lacked:,}", f"{told.of:,}")
    if len(report.stores_lacked) < report.stores_lacked_in_all:
        lacked.caption = (
            f"{len(report.stores_lacked):,} of {report.stores_lacked_in_all:,} pairs of store and topic shown"
        )
    return table, out, lacked


def _epochs(tables: RunTables, limit: int) -> Table:
    rows: Sequence[dict[str, Any]] = busiest_epochs(tables, limit)
    minutes = tables.manifest["options"]["epoch_ms"] / 60_000
    table = new_table(f"Busiest epochs of {minutes:g} minutes", ["sender"], ["from (UTC)", "messages", "of the limit"])
    for row in rows:
        share = "-" if row["pct"] is None else f"{row['pct']:.0f} %"
        begin = _EPOCH + timedelta(milliseconds=row["epoch_start_ms"])
        table.add_row(plain(row["sender_id"]), f"{begin:%Y-%m-%d %H:%M}", f"{row['messages']:,}", share)
    allowed = tables.manifest["options"].get("rate_limit")
    if allowed is None:
        table.caption = "the limit is not known: 'run --rate-limit' tells it"
    else:
        half, most, full = utilisation(tables, _SHARES_PCT)
        table.caption = (
            f"the limit is {allowed:,} messages\n"
            f"of {tables.rows('rate_utilisation'):,} pairs of sender and epoch\n"
            f"{full:,} at the limit or above it,\n{most:,} from 80 %, {half:,} from 50 %"
        )
    return table
