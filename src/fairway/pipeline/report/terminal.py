"""The output for a terminal, with rich: the summary of a run, and its report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fairway.pipeline.report import tables as shown
from fairway.pipeline.report.archive_report import ArchiveReport
from fairway.pipeline.report.findings import Findings
from fairway.pipeline.report.headline import Headline
from fairway.pipeline.report.tables import STRANGE, ColumnKind, ReportTable
from fairway.pipeline.report.words import clock, percent, selection_text, size_text
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.summary import RunSummary
from fairway.units import counted
from fairway.visible import visible

_SHORT_ID: Final = 12
_NARROWEST: Final = 8
_NOT_SHOWN: Final = frozenset({"quarantine", "messages"})
"""Tables of single messages, which are too large for a terminal."""


def print_summary(summary: RunSummary, console: Console) -> None:
    """Print the tables that a run wrote, and the balance of all rows."""
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
        console.print("no message of the sources is selected by the given times, channels and topics")
    console.print()
    console.print(render_table(shown.balance_table(summary.balance)))


def print_run_report(tables: RunTables, console: Console, limit: int) -> None:
    """Print the report of a finished run; its tables have at most ``limit`` rows."""
    found = Findings(tables, limit)
    parts: list[RenderableType] = [render_summary(found.report)]
    for table in _tables(found):
        if table.rows:
            parts += ["", render_table(table, None if table.name is None else limit)]
    console.print(Group(*parts))


def short_report(tables: RunTables) -> RenderableType:
    """Return the part of the report of a finished run that fits on one screen."""
    found = Findings(tables)
    below = (shown.bandwidth(found), shown.balance_table(tables.balance))
    return Group(render_summary(found.report), *(part for table in below for part in ("", render_table(table))))


def _tables(found: Findings) -> Iterator[ReportTable]:
    report, tables = found.report, found.tables
    rows = shown.data_tables(found)
    yield rows.pop("channels")
    yield shown.causes(report)
    yield from (table for name, table in rows.items() if name not in _NOT_SHOWN)
    yield shown.reasons(found)
    yield shown.evidence(report.acknowledgement)
    yield shown.latency(found.latencies)
    yield shown.utilisation(tables)
    yield shown.stores(report)
    yield shown.outages(report)
    yield shown.bandwidth(found)
    yield shown.balance_table(tables.balance)


def render_summary(report: ArchiveReport) -> RenderableType:
    """Return the head of a report: the headline and the to-dos."""
    lines = _headline(report.headline)
    if (selection := selection_text(report.selection)) is not None:
        lines.append(escape(selection))
    if report.to_do:
        lines += ["", "[bold]To do[/]"]
        for each in report.to_do:
            lines += [f"[red]•[/] {escape(each.what)}", f"  [dim]{escape(each.action)}[/]"]
            lines += [f"  [cyan]{escape(command)}[/]" for command in each.commands]
    else:
        lines += ["", "[green]Nothing to do.[/]"]
    lines += ["", *_whole(report), *_acknowledged(report), *(escape(odd.text) for odd in report.oddities)]
    return Panel("\n".join(lines), title=plain(report.archive), title_align="left", border_style="blue", expand=False)


def _headline(told: Headline) -> list[str]:
    if not told.known:
        return ["No channel message is known."]
    counts = [("readable", told.readable), ("lost", told.lost), *([("damaged", told.damaged)] if told.damaged else [])]
    words = [f"[bold]{number:,} {name}[/] ({percent(number, told.known)})" for name, number in counts]
    lines = [f"Of [bold]{counted(told.known, 'message')} known[/], {', '.join(words)}"]
    if told.incomplete:
        lines.append(f"{told.incomplete:,} ({percent(told.incomplete, told.known)}) are segments that lack the others")
    if told.held_up:
        share = percent(told.held_up, told.known)
        lines.append(f"{told.held_up:,} ({share}) are held up: a participant delivers them once a lost one before")
        lines.append("them comes or is given up")
    if told.undetermined:
        lines.append(f"Of {told.undetermined:,} it is not computed whether they are held up (--max-channel-bytes)")
    return lines


def _whole(report: ArchiveReport) -> list[str]:
    lines = [f"{counted(report.messages, 'Waku message')}, {size_text(report.payload_bytes)}"]
    if report.first_ns is not None and report.last_ns is not None:
        lines[0] += f", sent from {clock(report.first_ns)} to {clock(report.last_ns)} UTC"
    recovered, reassembled = report.totals["recovered"], report.totals["reassembled"]
    if recovered:
        lines.append(f"{recovered:,} of {counted(reassembled, 'message')} in segments saved by Reed-Solomon")
    return lines


def _acknowledged(report: ArchiveReport) -> list[str]:
    told = report.acknowledgement
    if not told.content:
        return []
    share = percent(told.acknowledged, told.content)
    read = "bloom filters read" if told.filters_read else "bloom filters not read, see --blooms"
    return [
        f"{told.acknowledged:,} of {told.content:,} that are there acknowledged by others ({share}), at least: {read}"
    ]


def render_table(table: ReportTable, limit: int | None = None) -> Table:
    """Return a table for a terminal, with its narrow columns and at most ``limit`` rows."""
    places = [place for place, column in enumerate(table.columns) if column.narrow]
    columns = [table.columns[place] for place in places]
    made = _empty(table.caption)
    for column in columns:
        if column.kind in STRANGE:
            made.add_column(column.title, min_width=_NARROWEST)  # a narrow terminal shrinks these columns
        else:
            made.add_column(column.title, justify="right", no_wrap=True)
    rows = table.rows[:limit]
    for row in rows:
        cells = zip(columns, (table.cell(place, row) for place in places), strict=True)
        made.add_row(*(_text(column.kind, cell) for column, cell in cells))
    if len(rows) < table.total:
        made.caption = f"{len(rows):,} of {table.total:,} shown"
    return made


def _text(kind: ColumnKind, cell: str) -> Text:
    if kind is ColumnKind.TEXT:
        return Text(cell)
    if kind is ColumnKind.ID and len(cell) > _SHORT_ID:
        cell = f"{cell[:_SHORT_ID]}…"
    return Text(cell, no_wrap=True, overflow="ellipsis")


def new_table(title: str, words: Iterable[str], figures: Iterable[str]) -> Table:
    """Return an empty table with columns for words and, to their right, columns for figures."""
    table = _empty(title)
    for name in words:
        table.add_column(name, min_width=_NARROWEST)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _empty(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )


def plain(text: str) -> Text:
    """Return text from the network without markup and without control sequences of the terminal."""
    return Text(visible(text), no_wrap=True, overflow="ellipsis")
