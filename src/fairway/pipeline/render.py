"""An `ArchiveReport` for people: tables for the terminal, with rich.

Only what there is gets a section: an archive in which nothing is missing has no table of missing messages, and says so
in one line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fairway.pipeline.archive_report import ArchiveReport

_SHORT_ID: Final = 12
_LONGEST_TEXT: Final = 60
_NANOSECONDS: Final = 1_000_000_000
_KIB: Final = 1_024
_SIZE_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def print_report(report: ArchiveReport, console: Console | None = None) -> None:
    """Print a report, to standard output unless told otherwise."""
    (console or Console()).print(render_report(report))


def render_report(report: ArchiveReport) -> RenderableType:
    """Return a report as something that rich prints."""
    return Group(*_sections(report))


def _sections(report: ArchiveReport) -> Iterable[RenderableType]:
    yield _summary(report)
    if report.channels:
        yield _channels(report)
        yield _senders(report)
    if report.delivered:
        yield _delivered(report)
    if report.incomplete:
        yield _incomplete(report)
    if report.missing:
        yield _missing(report)
    if report.quarantined:
        yield _quarantined(report)


def _summary(report: ArchiveReport) -> RenderableType:
    total = report.total
    reassembled, recovered, missing = total("reassembled"), total("recovered"), total("missing")
    lines = [
        f"{_count(report.messages, 'Waku message')}, {_size(report.payload_bytes)}{_period(report)}",
        f"[green]{_count(total('delivered'), 'message')}[/] can be read, {_size(total('delivered_bytes'))}: "
        f"{total('delivered') - reassembled:,} whole, {reassembled:,} put together from segments"
        + (f", [cyan]{recovered:,} of them with Reed-Solomon[/]" if recovered else ""),
        f"[green]{total('acknowledged'):,}[/] of {_count(total('content'), 'SDS message')} are acknowledged",
        f"[red]{_count(missing, 'message')}[/] cited but not there" if missing else "[green]nothing is missing[/]",
    ]
    if total("incomplete"):
        lines.append(f"[yellow]{_count(total('incomplete'), 'segmented message')}[/] incomplete")
    if report.quarantined:
        unreadable = sum(reason.count for reason in report.quarantined)
        lines.append(f"[yellow]{_count(unreadable, 'message')}[/] could not be decoded and stand apart")
    return Panel("\n".join(lines), title=_plain(report.archive), title_align="left", border_style="blue")


def _channels(report: ArchiveReport) -> Table:
    table = _table("Channels", ["channel"], ["senders", "content", "sync", "repeats", "acknowledged", "p50", "p95"])
    table.add_column("missing", justify="right")
    for channel in report.channels:
        table.add_row(
            _plain(channel.channel_id),
            f"{channel.senders:,}",
            f"{channel.content + channel.ephemeral:,}",
            f"{channel.sync:,}",
            f"{channel.repeats:,}",
            _share(channel.acknowledged, channel.content),
            _duration(channel.latency_p50_ms),
            _duration(channel.latency_p95_ms),
            f"[red]{channel.missing:,}[/]" if channel.missing else "0",
        )
    table.caption = "p50, p95: from sending to the first citation by somebody else"
    return table


def _senders(report: ArchiveReport) -> Table:
    table = _table("Senders", ["channel", "sender"], ["content", "sync", "acknowledged"])
    for sender in report.senders:
        table.add_row(
            _plain(sender.channel_id),
            _plain(sender.sender_id),
            f"{sender.content:,}",
            f"{sender.sync:,}",
            _share(sender.acknowledged, sender.content),
        )
    return _cut(table, len(report.senders), report.total("senders"))


def _delivered(report: ArchiveReport) -> Table:
    table = _table("Largest messages", ["message id", "channel", "sender"], ["size", "segments"])
    table.add_column("put together")
    for message in report.delivered:
        how = "sent whole" if message.segments == 1 else "from its segments"
        table.add_row(
            _short(message.message_id),
            _plain(message.channel_id),
            _plain(message.sender_id),
            _size(message.size_bytes),
            f"{message.segments:,}",
            "[cyan]with Reed-Solomon[/]" if message.recovered else how,
        )
    return _cut(table, len(report.delivered), report.total("delivered"))


def _incomplete(report: ArchiveReport) -> Table:
    table = _table("Incomplete messages", ["payload hash", "channel", "sender"], ["held", "needed"])
    table.add_column("why")
    for message in report.incomplete:
        table.add_row(
            _short(message.payload_hash.hex()),
            _plain(message.channel_id),
            _plain(message.sender_id),
            f"{message.held:,}",
            "?" if message.needed is None else f"{message.needed:,}",
            message.outcome,
        )
    return _cut(table, len(report.incomplete), report.total("incomplete"))


def _missing(report: ArchiveReport) -> Table:
    table = _table("Missing messages", ["SDS id", "channel", "sender"], ["cited by"])
    table.add_column("first cited")
    table.add_column("ask a store for")
    for message in report.missing:
        table.add_row(
            _short(message.message_id),
            _plain(message.channel_id),
            _plain(message.sender_id or "?"),
            f"{message.cited_by:,}",
            _time(message.first_cited_ns),
            "-" if message.retrieval_hint is None else _short(message.retrieval_hint.hex()),
        )
    return _cut(table, len(report.missing), report.total("missing"))


def _quarantined(report: ArchiveReport) -> Table:
    table = _table("Not decoded", ["reason"], ["messages"])
    table.add_column("for example")
    for reason in report.quarantined:
        table.add_row(reason.status, f"{reason.count:,}", _plain(reason.example))
    return table


def _table(title: str, words: Iterable[str], figures: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", caption_justify="left", header_style="dim")
    for name in words:
        table.add_column(name, overflow="ellipsis", no_wrap=True)
    for name in figures:
        table.add_column(name, justify="right")
    return table


def _cut(table: Table, shown: int, total: int) -> Table:
    if shown < total:
        table.caption = Text(f"{shown:,} of {total:,} are shown")
    return table


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.0%})" if whole else f"{part:,}"


def _size(size_bytes: int) -> str:
    if size_bytes < _KIB:
        return f"{size_bytes:,} B"
    power = min(int(math.log(size_bytes, _KIB)), len(_SIZE_UNITS))
    return f"{size_bytes / _KIB**power:,.1f} {_SIZE_UNITS[power - 1]}"


def _duration(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "-"
    return f"{milliseconds:,} ms" if milliseconds < 10_000 else f"{milliseconds / 1_000:,.1f} s"


def _period(report: ArchiveReport) -> str:
    if report.first_ns is None or report.last_ns is None:
        return ""
    return f", from {_time(report.first_ns)} to {_time(report.last_ns)}"


def _time(timestamp_ns: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ns // _NANOSECONDS, tz=UTC)
    except (OverflowError, OSError, ValueError):  # a timestamp is whatever its sender claims
        return f"{timestamp_ns} ns"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _short(identifier: str) -> str:
    return _plain(identifier if len(identifier) <= _SHORT_ID else f"{identifier[:_SHORT_ID]}…")


def _plain(text: str) -> str:
    """Return text from the network as text: no markup, and nothing that would steer the terminal."""
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    return escape("".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in shown))
