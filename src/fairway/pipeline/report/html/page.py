"""The page of a report: text that is safe in HTML, tables, sections, and the style sheet.

Invariant: text from the network (names, ids, errors) enters a page only through `text` or `name`. Both escape it, show
invisible characters (control characters, marks that change the direction of writing), and isolate its direction from
the text around it. The page loads nothing: no script, font, image or style.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from fairway.visible import visible

_HEAD: Final = 24
_TAIL: Final = 12
_TOOLTIP: Final = 1_000
_FIRST_LETTERS: Final = 2
"""Shorter words are not worth an ellipsis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    title: str
    figure: bool = False
    """Whether it holds figures, which stand at the right."""


def _told(told: object) -> str:
    return "unknown" if told is None else visible(str(told)[: 2 * _TOOLTIP])


def shortened(told: object, head: int = _HEAD, tail: int = _TAIL) -> str:
    """Return visible text of bounded length, with what is left out in its middle marked; not escaped."""
    whole = _told(told)
    return whole if len(whole) <= head + tail + _FIRST_LETTERS else f"{whole[:head]}…{whole[-tail:]}"


def text(told: object) -> str:
    """Return text from the network as HTML, up to a bound of its length."""
    return f"<bdi>{escape(_told(told)[:_TOOLTIP])}</bdi>"


def name(told: object) -> str:
    """Return a name or an id as HTML: shortened, with the whole of it in its tooltip."""
    whole, short = _told(told), shortened(told)
    if told is None:
        return f"<i>{whole}</i>"
    tooltip = "" if whole == short else f' title="{escape(whole[:_TOOLTIP])}"'
    return f'<bdi class="id"{tooltip}>{escape(short) or "(empty)"}</bdi>'


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    *,
    of: int | None = None,
    what: str = "rows",
    wide: bool = False,
) -> str:
    """Return a table of cells that are HTML already; ``of`` is how many rows there would be without a bound.

    A ``wide`` one has the whole width of the page, and on a phone shows each row as a list of its cells.
    """
    heads = "".join(f'<th scope="col"{_side(column)}>{escape(column.title)}</th>' for column in columns)
    titles = [f' data-title="{escape(column.title)}"' if wide else "" for column in columns]
    lines = [
        "<tr>"
        + "".join(
            f"<td{_side(column)}{title}>{cell}</td>" for column, title, cell in zip(columns, titles, row, strict=True)
        )
        + "</tr>"
        for row in rows
    ]
    more = ""
    if of is not None and of > len(lines):
        more = f'<p class="more">{of - len(lines):,} more of {of:,} {escape(what)} are not shown.</p>'
    return (
        f'<div class="table{" wide" if wide else ""}"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>{more}</div>"
    )


def section(identifier: str, title: str, lead: str, *parts: str, made_of: Sequence[str] = ()) -> str:
    """Return a section; ``lead``, in HTML, says in words what its charts and tables (``parts``) show.

    ``made_of`` names the tables of the run that its figures come from.
    """
    names = ", ".join(f"<code>{escape(name)}</code>" for name in made_of)
    source = f'<p class="note">Figures from {names}.</p>' if names else ""
    return (
        f'<section id="{escape(identifier)}"><h2>{escape(title)}</h2><p>{lead}</p>'
        f'<div class="beside">{"".join(parts)}</div>{source}</section>'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFigure:
    """One of the figures that stand at the top of a page."""

    title: str
    figure: str
    note: str
    """What it is a part of; HTML."""
    place: str
    """Id of the section that tells more."""
    bad: bool = False


def key_figures(told: Iterable[KeyFigure]) -> str:
    """Return figures in large letters, each a link to its section."""
    items = "".join(
        f'<li><a href="#{escape(each.place)}"><span>{escape(each.title)}</span>'
        f'<strong class="{"bad" if each.bad else "fine"}">{escape(each.figure)}</strong>'
        f"<span>{each.note}</span></a></li>"
        for each in told
    )
    return f'<ul class="keys">{items}</ul>'


def page(title: str, head: str, sections: Iterable[tuple[str, str, str]]) -> str:
    """Return the whole page; each section comes with its id and its title, for the list at the top."""
    told = list(sections)
    bodies = "\n".join(body for _, _, body in told)
    links = "".join(f'<li><a href="#{escape(place)}">{escape(heading)}</a></li>' for place, heading, _ in told)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f'<body><header><h1>{escape(title)}</h1>{head}<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n'
        f"<main>{bodies}</main></body></html>\n"
    )


def _side(column: Column) -> str:
    return ' class="figure"' if column.figure else ""


_STYLE: Final = """
:root { --paper: #fdfdfc; --ink: #1c2024; --muted: #5c646c; --line: #d9dde1; --faint: #eceff1;
  --accent: #1f6fb2; --bad: #b3261e; --good: #1e7a44; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171a; --ink: #e7eaed; --muted: #a2abb4; --line: #3a4149; --faint: #23282d;
    --accent: #6cb1ee; --bad: #ff8a80; --good: #6fcf97; } }
* { box-sizing: border-box; }
html { color-scheme: light dark; -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 0 0 .25rem; }
section { border-top: 1px solid var(--line); padding: 1.25rem 0 .75rem; }
p { margin: 0 0 .75rem; max-width: 46rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none; margin: .5rem 0 1rem; padding: 0; }
nav a { display: inline-block; padding: .25rem 0; color: var(--accent); }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1.25rem 2.5rem;
  align-items: start; }
.beside > * { min-width: 0; margin: 0; }
.beside > .wide { grid-column: 1 / -1; }
.beside > figure { max-width: 33rem; }
.keys { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 13rem), 1fr)); gap: .75rem;
  list-style: none; margin: .75rem 0 1.25rem; padding: 0; }
.keys a { display: block; height: 100%; padding: .6rem .75rem; border: 1px solid var(--line); border-radius: .4rem;
  color: var(--ink); text-decoration: none; }
.keys a:hover { border-color: var(--accent); }
.keys span { display: block; color: var(--muted); font-size: .8125rem; }
.keys strong { display: block; font-size: 1.4rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
figcaption, caption { font-weight: 600; text-align: left; font-size: .9rem; padding-bottom: .25rem; }
.more, .note { color: var(--muted); font-size: .85rem; margin: .25rem 0 0; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
code { font: .8125rem ui-monospace, monospace; }
svg text.muted { fill: var(--muted); }
.grid { stroke: var(--line); stroke-width: 1; fill: none; }
.track { fill: var(--faint); } .bar { fill: var(--accent); } .bar.bad { fill: var(--bad); }
.curve { stroke: var(--accent); stroke-width: 2; fill: none; stroke-linejoin: round; }
.limit { stroke: var(--ink); stroke-width: 3; fill: none; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: normal; }
th { color: var(--muted); font-weight: 600; }
.figure { text-align: right; white-space: nowrap; }
th.figure { white-space: normal; }
td small { display: block; color: var(--muted); font-size: .8125rem; }
.id { font-family: ui-monospace, monospace; font-size: .8125rem; overflow-wrap: anywhere; }
td .id { display: inline-block; min-width: 7rem; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
@media (max-width: 44rem) {
  svg text { font-size: 14px; }
  .keys { grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); }
  .wide thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .wide tr { display: block; padding: .4rem 0; border-bottom: 1px solid var(--line); }
  .wide td { display: flex; justify-content: space-between; gap: 1rem; padding: .1rem 0; border: 0; text-align: right;
    white-space: normal; }
  .wide td:first-child { font-weight: 600; }
  .wide td::before { content: attr(data-title); color: var(--muted); text-align: left; flex: none; }
}
@media print { nav { display: none; } section { break-inside: avoid; } }
"""
