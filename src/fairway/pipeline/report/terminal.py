"""The output for a terminal, with rich: the summary of a run, and its report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fairway.pipeline.report import tables as shown
from fairway.pipeline.report.archive_report import ArchiveReport, ToDo
from fairway.pipeline.report.findings import Findings
from fairway.pipeline.report.headline import Headline
from fairway.pipeline.report.tables import STRANGE, Column, ColumnKind, ReportTable, small_table
from fairway.pipeline.report.words import clock, percent, selection_text, size_text
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.summary import RunSummary
from fairway.units import counted
from fairway.visible import visible

_SHORT_ID: Final = 12
_NARROWEST: Final = _SHORT_ID + 1
_SPACE: Final = 2
"""Columns of the terminal between two columns of a table."""
_CUT: Final = frozenset({ColumnKind.NAME, ColumnKind.ID})
"""The kinds of values that end with an ellipsis if they do not fit; words wrap."""
_NOT_SHOWN: Final = frozenset({"quarantine", "messages"})
"""Tables of single messages, which are too large for a terminal."""


def print_summary(summary: RunSummary, console: Console) -> None:
    """Print the tables that a run wrote, and the balance of all rows."""
    figures = {
        "rows": ColumnKind.COUNT,
        "files": ColumnKind.COUNT,
        "size": ColumnKind.SIZE,
        "seconds": ColumnKind.SHARE,
    }
    rows = [(each.name, each.rows, each.files, each.bytes, f"{each.seconds:,.1f}") for each in summary.tables]
    console.print(render_table(small_table("Tables", {"table": ColumnKind.TEXT} | figures, rows)))
    kept = f", {summary.resumed} tables from an earlier attempt" if summary.resumed else ""
    console.print(f"{summary.seconds:,.1f} s{kept}; in {escape(str(summary.folder))}", soft_wrap=True)
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
    below = [
        *_whole(report),
        *_held_up(report.headline),
        *_acknowledged(report),
        *(escape(odd.text) for odd in report.oddities),
    ]
    parts = ("\n".join(lines), "", _to_do(report.to_do), "", "\n".join(below))
    title = plain(report.archive)
    return Panel(Group(*parts), title=title, title_align="left", border_style="blue", expand=False)


def _to_do(to_do: Sequence[ToDo]) -> RenderableType:
    if not to_do:
        return "[green]Nothing to do.[/]"
    items = Table.grid(padding=(0, 1, 0, 0))
    items.title, items.title_style, items.title_justify = "To do", "bold", "left"
    for each in to_do:
        items.add_row("[red]•[/]", escape(each.what))
        items.add_row("", f"[dim]{escape(each.action)}[/]")
        for command in each.commands:
            items.add_row("", f"[cyan]{escape(command)}[/]")
    return items


def _headline(told: Headline) -> list[str]:
    if not told.known:
        return ["No channel message is known."]
    counts = [("readable", told.readable), ("lost", told.lost), *([("damaged", told.damaged)] if told.damaged else [])]
    words = [f"[bold]{number:,} {name}[/] ({percent(number, told.known)})" for name, number in counts]
    lines = [f"Of [bold]{counted(told.known, 'message')} known[/], {', '.join(words)}."]
    if told.incomplete:
        lines.append(f"{told.incomplete:,} ({percent(told.incomplete, told.known)}) are segments that lack the others.")
    return lines


def _held_up(told: Headline) -> list[str]:
    lines = []
    if told.held_up:
        share = percent(told.held_up, told.known)
        lines.append(
            f"{told.held_up:,} ({share}) are held up: a participant delivers them once a lost one before them arrives "
            "or is given up."
        )
    if told.undetermined:
        lines.append(f"Of {told.undetermined:,} it is not computed whether they are held up (--max-channel-bytes).")
    return lines


def _whole(report: ArchiveReport) -> list[str]:
    whole = f"{counted(report.messages, 'Waku message')}, {size_text(report.payload_bytes)}"
    if report.first_ns is not None and report.last_ns is not None:
        whole += f", sent from {clock(report.first_ns)} to {clock(report.last_ns)} UTC"
    lines = [f"{whole}."]
    recovered, reassembled = report.totals["recovered"], report.totals["reassembled"]
    if recovered:
        lines.append(f"{recovered:,} of {counted(reassembled, 'message')} in segments saved by Reed-Solomon.")
    return lines


def _acknowledged(report: ArchiveReport) -> list[str]:
    told = report.acknowledgement
    if not told.content:
        return []
    share = percent(told.acknowledged, told.content)
    read = "were read" if told.filters_read else "were not read, see --blooms"
    acknowledged = f"{told.acknowledged:,} of {told.content:,} that are there ({share}) are acknowledged by others"
    return [f"At least {acknowledged}; bloom filters {read}."]


@dataclass(frozen=True, slots=True)
class render_table:  # noqa: N801 - reads as the function that makes it
    """A table for a terminal, with its narrow columns and at most ``limit`` rows.

    Columns that do not fit beside the ones before them are left out, and named below the table.
    """

    table: ReportTable
    limit: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table in the width of the terminal."""
        table, rows = self.table, self.table.rows[: self.limit]
        narrow = [column for column in table.columns if column.narrow]
        shown = {column.title: self._cells(column) for column in narrow}
        least = [_least_width(column, shown[column.title]) for column in narrow]
        fitting = sum(end <= options.max_width for end in accumulate(least))
        wanted = [_width(column, shown[column.title]) for column in narrow]
        widths = _widths(least[:fitting], wanted, options.max_width)
        made = _empty(table.caption)
        for column, width in zip(narrow, widths, strict=False):
            is_text = column.kind in STRANGE
            made.add_column(column.title, justify="left" if is_text else "right", width=width - _SPACE)
        for number in range(len(rows)):
            made.add_row(*(shown[column.title][number] for column in narrow[:fitting]))
        notes = [f"{len(rows):,} of {table.total:,} shown"] if len(rows) < table.total else []
        if left_out := ", ".join(column.title for column in narrow[fitting:]):
            notes.append(f"a wider terminal also shows: {left_out}")
        made.caption = "; ".join(notes) or None
        yield made

    def _cells(self, column: Column) -> list[Text]:
        place = self.table.columns.index(column)
        return [_text(column.kind, self.table.cell(place, row)) for row in self.table.rows[: self.limit]]


def _text(kind: ColumnKind, cell: str) -> Text:
    if kind is ColumnKind.ID and len(cell) > _SHORT_ID:
        cell = f"{cell[:_SHORT_ID]}…"
    return Text(cell, no_wrap=True, overflow="ellipsis") if kind in _CUT else Text(cell)


def _width(column: Column, cells: Sequence[Text]) -> int:
    """Return the width of a column with the space beside it."""
    return max(cell_len(column.title), *(cell.cell_len for cell in cells)) + _SPACE


def _least_width(column: Column, cells: Sequence[Text]) -> int:
    """Return the least width of a column with the space beside it, so that it cuts no figure and no word."""
    whole = [cell.plain for cell in cells]
    if column.kind in _CUT:
        longest = min(max(map(cell_len, whole), default=0), _NARROWEST)
    elif column.kind in STRANGE:
        longest = max((cell_len(word) for cell in whole for word in cell.split()), default=0)
    else:
        longest = max(map(cell_len, whole), default=0)
    return max(longest, *map(cell_len, column.title.split())) + _SPACE


def _widths(least: Sequence[int], wanted: Sequence[int], most: int) -> list[int]:
    """Return the widths of columns: their wanted widths, or equal parts of the space beyond the least widths."""
    widths, spare = list(least), most - sum(least)
    order = sorted(range(len(least)), key=lambda place: wanted[place] - least[place])
    for number, place in enumerate(order):
        more = min(wanted[place] - least[place], spare // (len(order) - number))
        widths[place] += more
        spare -= more
    return widths


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
