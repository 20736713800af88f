"""The page of a report: safe text for HTML, sections, and the whole page with its style sheet and script.

Invariant: text from the network (names, ids, errors) enters a page only through `text` or `name`, or in the embedded
tables (`data`). All of them show invisible characters (control characters, marks that change the direction of writing)
and isolate its direction from the text around it. The page loads nothing, and its policy forbids the browser to load
anything. Its own script is the only one that runs.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Final

from fairway.visible import visible

_HEAD: Final = 24
_TAIL: Final = 12
_TOOLTIP: Final = 1_000
_FIRST_LETTERS: Final = 2
"""Characters beyond the head and the tail that do not need an ellipsis."""


def shown(told: object) -> str:
    """Return text from the network, made visible and cut to a bound; not escaped."""
    return _told(told)[:_TOOLTIP]


def _told(told: object) -> str:
    return "unknown" if told is None else visible(str(told)[: 2 * _TOOLTIP])


def shortened(told: object, head: int = _HEAD, tail: int = _TAIL) -> str:
    """Return visible text of bounded length, with an ellipsis for the middle of a longer text; not escaped."""
    whole = _told(told)
    return whole if len(whole) <= head + tail + _FIRST_LETTERS else f"{whole[:head]}…{whole[-tail:]}"


def text(told: object) -> str:
    """Return text from the network as HTML, cut to a bound."""
    return f"<bdi>{escape(shown(told))}</bdi>"


def name(told: object, head: int = _HEAD, tail: int = _TAIL) -> str:
    """Return a name or an id as HTML: shortened, with the whole in its tooltip."""
    whole, short = _told(told), shortened(told, head, tail)
    if told is None:
        return f"<i>{whole}</i>"
    tooltip = "" if whole == short else f' title="{escape(whole[:_TOOLTIP])}"'
    return f'<bdi class="id"{tooltip}>{escape(short) or "(empty)"}</bdi>'


def section(identifier: str, title: str, lead: str, *parts: str, made_of: Sequence[str] = ()) -> str:
    """Return a foldable section.

    ``lead``, in HTML, describes its charts and tables (``parts``) in words. ``made_of`` names the tables of the run
    behind its figures.
    """
    names = ", ".join(f"<code>{escape(name)}</code>" for name in made_of)
    source = f'<p class="note">Figures from {names}.</p>' if names else ""
    return (
        f'<section id="{escape(identifier)}"><details open><summary><h2>{escape(title)}</h2></summary><p>{lead}</p>'
        f'<div class="beside">{"".join(parts)}</div>{source}</details></section>'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFigure:
    """A figure at the top of a page."""

    title: str
    figure: str
    note: str
    """The whole of the figure, as HTML."""
    place: str
    """Id of the section with details."""
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


def page(title: str, head: str, sections: Iterable[tuple[str, str, str]], data: str) -> str:
    """Return the whole page.

    A section is a tuple of its id, its title (both for the list at the top) and its HTML; ``data`` are the elements of
    the embedded tables.
    """
    told = list(sections)
    bodies = "\n".join(body for _, _, body in told)
    links = "".join(f'<li><a href="#{escape(place)}">{escape(heading)}</a></li>' for place, heading, _ in told)
    style, script = _part("page.css"), _part("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n"
        f'<body><header><h1>{escape(title)}</h1>{head}<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n'
        '<div id="focus" role="region" aria-label="What is followed" tabindex="-1" hidden></div>'
        '<div id="said" role="status" class="unseen"></div>\n'
        f"<main>{bodies}</main>\n{data}<script>{script}</script></body></html>\n"
    )


def _part(name: str) -> str:
    """Return a static file that every page contains."""
    return resources.files(__package__).joinpath("static", name).read_text(encoding="utf-8")
