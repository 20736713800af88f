"""The tables of a page with all their rows: compressed inside of the file, and read by its script.

A page holds at most `MOST_BYTES` of them. What does not fit is left out from the end of a table, and the table says how
many rows there are and by what order those were chosen. The first `STATIC_ROWS` stand in the page as HTML too, for a
reader without scripts.

Invariant: text from the network is made visible (`fairway.visible`) and cut to a bound before it is embedded; the
script puts it into the page as text only.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from html import escape
from typing import Any, Final

from fairway.pipeline.report.html.page import name, shown, text
from fairway.pipeline.report.words import clock, duration, percent, size_text
from fairway.units import NS_PER_MS

MOST_BYTES: Final = 20_000_000
"""Of all embedded tables of a page, in base64."""
STATIC_ROWS: Final = 15
_ID_HEAD: Final = 12
_ID_TAIL: Final = 6
_LEVEL: Final = 6
_SPARE: Final = 0.9
"""How much of the room a cut table is meant to fill."""


class ColumnKind(Enum):
    """What a column holds, and so how it is shown and sorted."""

    NAME = "name"
    """A name that a stranger chose."""
    ID = "id"
    """An id or a hash in hex, to be copied."""
    WORD = "word"
    """One of few words: there is a filter for it."""
    TEXT = "text"
    COUNT = "count"
    PART = "part"
    """A count that is a part of another column's."""
    TIME = "time"
    """Milliseconds since the Unix epoch."""
    SPAN = "span"
    """Milliseconds."""
    SIZE = "size"
    """Bytes."""


_FIGURES: Final = frozenset({ColumnKind.COUNT, ColumnKind.PART, ColumnKind.TIME, ColumnKind.SPAN, ColumnKind.SIZE})
_BREAKABLE: Final = frozenset({ColumnKind.PART, ColumnKind.TIME})
"""Figures of two parts, between which a line may end."""
_STRANGE: Final = frozenset({ColumnKind.NAME, ColumnKind.ID, ColumnKind.WORD, ColumnKind.TEXT})


@dataclass(frozen=True, slots=True, kw_only=True)
class DataColumn:
    """A column of a table with all its rows."""

    title: str
    kind: ColumnKind
    of: str | None = None
    """For a part, the title of the column that is its whole."""
    follows: str | None = None
    """``channel`` or ``sender``: what following a value of this column shows of all tables."""
    absent: str = "unknown"
    """What None means in a column that holds no figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """A table of a page. Rows have a value for each column: text, a number, or None."""

    name: str
    caption: str
    columns: tuple[DataColumn, ...]
    rows: Sequence[Sequence[Any]]
    total: int
    """Rows of the run's table."""
    order: str
    """By what the rows are ordered, and those that are here were chosen, such as "the most cited first"."""
    what: str
    """What a row is, in the plural."""


def milliseconds(timestamp_ns: int | None) -> int | None:
    """Return a timestamp as a page has it."""
    return None if timestamp_ns is None else timestamp_ns // NS_PER_MS


def embedded(tables: Iterable[DataTable]) -> tuple[list[DataTable], str]:
    """Return the tables as far as they fit, and the elements that hold them."""
    kept, elements, room = [], [], MOST_BYTES
    for table in tables:
        fitting, packed = _fitted(table, room)
        room -= len(packed)
        kept.append(fitting)
        elements.append(f'<script type="application/octet-stream" id="data-{escape(table.name)}">{packed}</script>\n')
    return kept, "".join(elements)


def static_table(table: DataTable) -> str:
    """Return the first rows of a table as HTML, which the page's script replaces by all of them."""
    heads = "".join(f'<th scope="col"{_side(column)}>{escape(column.title)}</th>' for column in table.columns)
    places = {column.title: place for place, column in enumerate(table.columns)}
    lines = []
    for row in table.rows[:STATIC_ROWS]:
        cells = (
            f'<td{_side(column)} data-title="{escape(column.title)}">{_cell(column, value, row, places)}</td>'
            for column, value in zip(table.columns, row, strict=True)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    count = len(table.rows)
    more = f"{table.what[:1].upper()}{table.what[1:]}: {table.total:,}, {table.order}."
    if count < table.total:
        more += f" {count:,} of them are in this page; the run's tables have the others."
    shown = ""
    if len(lines) < count:
        text = f"The first {len(lines):,} of {count:,} are shown; a browser with scripts shows all."
        shown = f'<p class="more without">{text}</p>'
    return (
        f'<div class="table wide" data-table="{escape(table.name)}" data-what="{escape(table.what)}">'
        f"<table><caption>{escape(table.caption)}</caption><thead><tr>{heads}</tr></thead>"
        f'<tbody>{"".join(lines)}</tbody></table><p class="more">{escape(more)}</p>'
        f"{shown}</div>"
    )


def _fitted(table: DataTable, room: int) -> tuple[DataTable, str]:
    packed = _packed(table)
    while len(packed) > room and table.rows:
        fewer = int(len(table.rows) * _SPARE * max(room, 0) / len(packed))
        table = DataTable(
            name=table.name,
            caption=table.caption,
            columns=table.columns,
            rows=table.rows[:fewer],
            total=table.total,
            order=table.order,
            what=table.what,
        )
        packed = _packed(table)
    return table, packed


def _packed(table: DataTable) -> str:
    columns = [
        {
            "title": column.title,
            "kind": column.kind.value,
            "of": column.of,
            "follows": column.follows,
            "absent": column.absent,
        }
        for column in table.columns
    ]
    values = [
        [shown(row[place]) if column.kind in _STRANGE and row[place] is not None else row[place] for row in table.rows]
        for place, column in enumerate(table.columns)
    ]
    told = {"columns": columns, "values": values, "total": table.total, "order": table.order, "caption": table.caption}
    whole = json.dumps(told, ensure_ascii=True, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(whole, _LEVEL, mtime=0)).decode()


def _cell(column: DataColumn, value: Any, row: Sequence[Any], places: dict[str, int]) -> str:
    if value is None:
        return f"<i>{escape(column.absent)}</i>" if column.kind in _STRANGE else "-"
    if column.kind is ColumnKind.ID:
        return name(value, _ID_HEAD, _ID_TAIL)
    if column.kind is ColumnKind.NAME:
        return name(value)
    if column.kind is ColumnKind.PART and column.of is not None:
        whole = row[places[column.of]]
        return f"{value:,} ({percent(value, whole)})" if whole else f"{value:,}"
    if column.kind is ColumnKind.TIME:
        day, _, moment = clock(value * NS_PER_MS).partition(" ")
        return f"<span><span>{day}</span> <span>{moment}</span></span>"
    if column.kind is ColumnKind.SPAN:
        return duration(value)
    if column.kind is ColumnKind.SIZE:
        return size_text(value)
    return f"{value:,}" if column.kind in _FIGURES else text(value)


def _side(column: DataColumn) -> str:
    if column.kind in _BREAKABLE:
        return f' class="figure {column.kind.value}"'
    return ' class="figure"' if column.kind in _FIGURES else ""
