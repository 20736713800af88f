"""The tables of a page: as HTML, and those of a run with all their rows, compressed for the page's script.

A page holds at most `MOST_BYTES` of the compressed tables. A table that does not fit loses rows from its end, and
states the number of all rows and their order. The first `STATIC_ROWS` rows are in the page as HTML too, for a browser
without scripts.

Invariant: text from the network is made visible (`fairway.visible`) and cut to a bound before it is embedded. The
script inserts it as text only.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any, Final

from fairway.pipeline.report.html.page import name, shown, text
from fairway.pipeline.report.tables import STRANGE, Column, ColumnKind, ReportTable

MOST_BYTES: Final = 20_000_000
"""Largest size of all embedded tables of a page, in base64."""
STATIC_ROWS: Final = 15
_ID_HEAD: Final = 12
_ID_TAIL: Final = 6
_LEVEL: Final = 6
_SPARE: Final = 0.9
"""Share of the free space that a cut table aims to fill."""

_BREAKABLE: Final = frozenset({ColumnKind.PART, ColumnKind.TIME})
"""Figures of two parts, between which a line may end."""


def embedded(tables: Mapping[str, ReportTable]) -> tuple[dict[str, ReportTable], str]:
    """Return the tables, cut to the rows that fit, and the HTML elements that hold them."""
    kept, elements, room = {}, [], MOST_BYTES
    for key, table in tables.items():
        kept[key], packed = _fitted(table, room)
        room -= len(packed)
        elements.append(f'<script type="application/octet-stream" id="data-{escape(key)}">{packed}</script>\n')
    return kept, "".join(elements)


def html_table(table: ReportTable, *, wide: bool = False) -> str:
    """Return a table as HTML; a table with a name has only its first rows, which the page's script replaces by all.

    A ``wide`` table has the whole width of the page, and on a phone shows each row as a list of its cells.
    """
    wide = wide or table.name is not None
    heads = "".join(f'<th scope="col"{_side(column)}>{escape(column.title)}</th>' for column in table.columns)
    titles = [f' data-title="{escape(column.title)}"' if wide else "" for column in table.columns]
    rows = table.rows if table.name is None else table.rows[:STATIC_ROWS]
    lines = []
    for row in rows:
        cells = (
            f"<td{_side(column)}{title}>{_cell(table, place, row)}</td>"
            for place, (column, title) in enumerate(zip(table.columns, titles, strict=True))
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    marks = ""
    if table.name is not None:
        marks = f' data-table="{escape(table.name)}" data-what="{escape(table.what)}"'
    return (
        f'<div class="table{" wide" if wide else ""}"{marks}><table><caption>{escape(table.caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>{_more(table, len(lines))}</div>"
    )


def _more(table: ReportTable, lines: int) -> str:
    """Return the note on the rows that are not shown."""
    count = len(table.rows)
    if table.name is None:
        left = f"{table.total - count:,} more of {table.total:,} are not shown."
        return f'<p class="more">{left}</p>' if table.total > count else ""
    more = f"{table.what[:1].upper()}{table.what[1:]}: {table.total:,}, {table.order}."
    if count < table.total:
        more += f" {count:,} of them are in this page; the run's tables have the others."
    said = f"The first {lines:,} of {count:,} are shown; a browser with scripts shows all."
    return f'<p class="more">{escape(more)}</p>' + (f'<p class="more without">{said}</p>' if lines < count else "")


def _fitted(table: ReportTable, room: int) -> tuple[ReportTable, str]:
    packed = _packed(table)
    while len(packed) > room and table.rows:
        fewer = int(len(table.rows) * _SPARE * max(room, 0) / len(packed))
        table = replace(table, rows=table.rows[:fewer])
        packed = _packed(table)
    return table, packed


def _packed(table: ReportTable) -> str:
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
        [shown(row[place]) if column.kind in STRANGE and row[place] is not None else row[place] for row in table.rows]
        for place, column in enumerate(table.columns)
    ]
    told = {"columns": columns, "values": values, "total": table.total, "order": table.order, "caption": table.caption}
    whole = json.dumps(told, ensure_ascii=True, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(whole, _LEVEL, mtime=0)).decode()


def _cell(table: ReportTable, place: int, row: Sequence[Any]) -> str:
    column, value = table.columns[place], row[place]
    if value is None:
        return f"<i>{escape(column.absent)}</i>" if column.kind in STRANGE else "-"
    match column.kind:
        case ColumnKind.ID:
            return name(value, _ID_HEAD, _ID_TAIL)
        case ColumnKind.NAME:
            return name(value)
        case ColumnKind.WORD | ColumnKind.TEXT:
            return text(value)
        case ColumnKind.TIME:
            day, _, moment = table.cell(place, row).partition(" ")
            return f"<span><span>{day}</span> <span>{moment}</span></span>"
    return table.cell(place, row)


def _side(column: Column) -> str:
    if column.kind in _BREAKABLE:
        return f' class="figure {column.kind.value}"'
    return "" if column.kind in STRANGE else ' class="figure"'
