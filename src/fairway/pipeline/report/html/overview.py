"""The top of an HTML report: the headline, the to-dos, and the figures with links to the sections."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from fairway.pipeline.report.archive_report import ArchiveReport
from fairway.pipeline.report.findings import Findings
from fairway.pipeline.report.headline import Headline
from fairway.pipeline.report.html.data import html_table
from fairway.pipeline.report.html.page import KeyFigure, key_figures, name, text
from fairway.pipeline.report.tables import balance_table
from fairway.pipeline.report.words import clock, of, percent, selection_text, size_text
from fairway.pipeline.run.reading import RunTables
from fairway.units import counted

_SECONDS: Final = len("2026-01-01T00:00:00")


def overview(found: Findings) -> str:
    """Return the part of the page above the sections."""
    report = found.report
    return (
        f'<p class="headline">{_headline(report.headline)}</p>'
        + _selection(report)
        + _to_do(report)
        + key_figures(_figures(found))
        + f"<p>{_read(report)}</p>"
        + _oddities(report)
    )


def _headline(told: Headline) -> str:
    if not told.known:
        return "No channel message is known."
    parts = [("readable", told.readable), ("lost", told.lost), *([("damaged", told.damaged)] if told.damaged else [])]
    words = ", ".join(f"<strong>{number:,} {word}</strong> ({percent(number, told.known)})" for word, number in parts)
    sentence = f"Of <strong>{counted(told.known, 'message')} known</strong>, {words}."
    if told.incomplete:
        sentence += f" {of(told.incomplete, told.known)} are segments that lack the others."
    return sentence


def _oddities(report: ArchiveReport) -> str:
    items = "".join(f"<li>{escape(odd.text)}</li>" for odd in report.oddities)
    return f"<ul>{items}</ul>" if items else ""


def _selection(report: ArchiveReport) -> str:
    told = selection_text(report.selection)
    return "" if told is None else f"<p>{escape(told)}</p>"


def _to_do(report: ArchiveReport) -> str:
    if not report.to_do:
        return '<div class="todo none"><h2>Nothing to do</h2></div>'
    items = "".join(
        f"<li><strong>{escape(each.what)}</strong> "
        f'<a href="#{each.section}" aria-label="Details of: {escape(each.what)}">Details</a>'
        f"<span>{escape(each.action)}</span>{_commands(each.commands)}</li>"
        for each in report.to_do
    )
    return f'<div class="todo"><h2>To do</h2><ul>{items}</ul></div>'


def _commands(commands: tuple[str, ...]) -> str:
    """Return commands for copying; they are folded because most of them are long."""
    if not commands:
        return ""
    lines = "".join(f'<code class="command">{escape(command)}</code>' for command in commands)
    return f"<details><summary>{'Command' if len(commands) == 1 else 'Commands'}</summary>{lines}</details>"


def _figures(found: Findings) -> Iterator[KeyFigure]:
    """Yield the figures; a figure with a to-do is red."""
    report, told = found.report, found.report.headline
    urgent = {each.section for each in report.to_do}
    known = "known"
    yield _part("Readable", told.readable, told.known, known, "channels")
    yield _part("Lost", told.lost, told.known, known, "gaps", bad=bool(urgent & {"gaps", "senders"}))
    yield _part("Held up", told.held_up, told.known, known, "gaps")
    basis = report.acknowledgement
    yield _part("Acknowledged, at least", basis.acknowledged, basis.content, "that are there", "latency")
    refused = found.tables.rows("quarantine")
    yield _part("Quarantined", refused, report.messages, "Waku messages", "quarantine", bad="quarantine" in urgent)
    if found.tables.manifest["options"].get("rate_limit") is None:
        yield KeyFigure(title="Over the rate limit", figure="-", note="no limit was given to the run", place="rate")
    else:
        over = report.over_limit_senders
        yield KeyFigure(
            title="Over the rate limit",
            figure=f"{over:,}",
            note="sender" if over == 1 else "senders",
            place="rate",
            bad=over > 0,
        )
    if report.stores:
        least = report.stores[0]
        yield KeyFigure(
            title="Least complete store",
            figure=percent(least.had, least.of) if least.of else "-",
            note=f"{name(least.source)} had {least.had:,} of {least.of:,}",
            place="stores",
            bad=least.lacked > 0,
        )


def _part(title: str, part: int, whole: int, what: str, place: str, *, bad: bool = False) -> KeyFigure:
    share = percent(part, whole) if whole else "-"
    return KeyFigure(title=title, figure=share, note=f"{part:,} of {whole:,} {what}", place=place, bad=bad)


def _read(report: ArchiveReport) -> str:
    span = ""
    if report.first_ns is not None and report.last_ns is not None:
        span = f", with timestamps from {clock(report.first_ns)} to {clock(report.last_ns)} UTC"
    return (
        f"Read: {text(report.archive)}. {counted(report.messages, 'distinct Waku message')}, "
        f"{size_text(report.payload_bytes)} of payload{span}, {counted(report.channel_count, 'channel')}. "
        "A message is an SDS message with content; a message in segments counts as several. Each known message is "
        "readable, lost, damaged or incomplete. A held-up message is there, but a live participant delivers it only "
        "after a lost one before it arrives or is given up."
    )


def rows(tables: RunTables) -> tuple[str, ...]:
    """Return the rows of the input by class."""
    balance = tables.balance
    lead = (
        f'<span class="good">All {balance.rows_in:,} rows are accounted for.</span>'
        if balance.adds_up
        else f'<span class="bad">This does not add up: {balance.accounted_for:,} rows are accounted for.</span>'
    )
    return lead, html_table(balance_table(balance)), f'<div><p class="note">{_made(tables)}</p></div>'


def _made(tables: RunTables) -> str:
    """Return the options, version and end of the run, and the place of its tables."""
    told = tables.manifest
    options = ", ".join(
        text(name if value is True else f"{name} {value}")
        for name, value in told["options"].items()
        if value is not None and value is not False
    )
    finished, version = str(told.get("finished", ""))[:_SECONDS].replace("T", " "), told.get("fairway", "")
    ended = f"Run ended {text(finished)} UTC, fairway {text(version)}. " if finished and version else ""
    return (
        f"{ended}Options: {options}. Every figure is from the tables of the run, Parquet files in "
        f"<code>{text(tables.place / 'tables')}</code>; each section names its own. The rows of these classes are "
        "disjoint, and together they are all rows of the input."
    )
