"""An `ArchiveReport` for people: tables for the terminal, with rich.

Only what there is gets a section: an archive in which nothing is missing has no table of missing messages, and says so
in one line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fairway.pipeline.report.archive_report import ArchiveReport

_SHORT_ID: Final = 12
_NARROWEST: Final = 8
_MOST_CHANNELS: Final = 50
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS: Final = 1_000_000_000
_SECOND_MS: Final = 1_000
_KIB: Final = 1_024
_SIZE_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def print_report(report: ArchiveReport, console: Console | None = None) -> None:
    """Print a report, to standard output unless told otherwise."""
    (console or Console()).print(render_report(report))


def render_report(report: ArchiveReport) -> RenderableType:
    """Return a report as something that rich prints."""
    lines: list[RenderableType] = [render_summary(report)]
    for show, wanted in _SECTIONS:
        if wanted(report):
            lines += ["", show(report)]
    return Group(*lines)


def render_summary(report: ArchiveReport) -> RenderableType:
    """Return the counts at the head of a report."""
    total = report.total
    reassembled, recovered, missing = total("reassembled"), total("recovered"), total("missing")
    lines = [f"{_count(report.messages, 'Waku message')}, {size_text(report.payload_bytes)}"]
    if report.first_ns is not None and report.last_ns is not None:
        lines.append(f"sent from {_time(report.first_ns)} to {_time(report.last_ns)} UTC")
    lines.append(
        f"[green]{_count(total('delivered'), 'message')}[/] can be read, {size_text(total('delivered_bytes'))}: "
        f"{total('delivered') - reassembled:,} sent whole, {reassembled:,} in segments"
    )
    lines.append(f"[green]{total('acknowledged'):,}[/] of {_count(total('content'), 'SDS message')} cited by others")
    if recovered:
        lines.append(f"[cyan]{_count(recovered, 'message')}[/] saved by Reed-Solomon")
    lines.append(f"[red]{_count(missing, 'message')}[/] cited but not here" if missing else "[green]nothing missing[/]")
    if total("incomplete"):
        lines.append(f"[yellow]{_count(total('incomplete'), 'segmented message')}[/] incomplete")
    if report.quarantined:
        unreadable = sum(reason.count for reason in report.quarantined)
        lines.append(f"[yellow]{_count(unreadable, 'message')}[/] not decoded")
    return Panel.fit("\n".join(lines), title=plain(report.archive), title_align="left", border_style="blue")


def _channels(report: ArchiveReport) -> Table:
    table = new_table("Channels", ["channel"], ["senders", "content", "repeats", "cited", "p50", "p95", "missing"])
    for channel in report.channels[:_MOST_CHANNELS]:
        table.add_row(
            plain(channel.channel_id),
            f"{channel.senders:,}",
            f"{channel.content + channel.ephemeral:,}",
            f"{channel.repeats:,}",
            _share(channel.acknowledged, channel.content),
            _duration(channel.latency_p50_ms),
            _duration(channel.latency_p95_ms),
            f"[red]{channel.missing:,}[/]" if channel.missing else "0",
        )
    table.caption = "cited: acknowledged directly, by others; p50, p95: after how long, for the first of them"
    if len(report.channels) > _MOST_CHANNELS:
        table.caption += f"\n{_MOST_CHANNELS} of {len(report.channels):,} shown"
    return table


def _senders(report: ArchiveReport) -> Table:
    table = new_table("Senders", ["channel", "sender"], ["content", "sync", "cited"])
    for sender in report.senders:
        table.add_row(
            plain(sender.channel_id),
            plain(sender.sender_id),
            f"{sender.content:,}",
            f"{sender.sync:,}",
            _share(sender.acknowledged, sender.content),
        )
    return _cut(table, len(report.senders), report.total("senders"))


def _delivered(report: ArchiveReport) -> Table:
    table = new_table("Largest messages", ["message id", "channel", "sender"], ["size", "segments"])
    table.add_column("how")
    for message in report.delivered:
        how = "whole" if message.segments == 1 else "joined"
        table.add_row(
            _short(message.message_id),
            plain(message.channel_id),
            plain(message.sender_id),
            size_text(message.size_bytes),
            f"{message.segments:,}",
            "[cyan]Reed-Solomon[/]" if message.recovered else how,
        )
    return _cut(table, len(report.delivered), report.total("delivered"))


def _incomplete(report: ArchiveReport) -> Table:
    table = new_table("Incomplete messages", ["payload hash", "channel", "sender"], ["held", "needed"])
    table.add_column("why")
    for message in report.incomplete:
        table.add_row(
            _short(message.payload_hash.hex()),
            plain(message.channel_id),
            plain(message.sender_id),
            f"{message.held:,}",
            "?" if message.needed is None else f"{message.needed:,}",
            message.outcome,
        )
    return _cut(table, len(report.incomplete), report.total("incomplete"))


def _missing(report: ArchiveReport) -> Table:
    table = new_table("Missing messages", ["SDS id", "channel", "sender"], ["cited by", "first cited (UTC)"])
    table.add_column("store hash")
    for message in report.missing:
        table.add_row(
            _short(message.message_id),
            plain(message.channel_id),
            plain(message.sender_id or "?"),
            f"{message.cited_by:,}",
            _time(message.first_cited_ns),
            "-" if message.retrieval_hint is None else _short(message.retrieval_hint.hex()),
        )
    return _cut(table, len(report.missing), report.total("missing"))


def _quarantined(report: ArchiveReport) -> Table:
    table = new_table("Not decoded", ["reason"], ["messages"])
    table.add_column("for example")
    for reason in report.quarantined:
        table.add_row(reason.status, f"{reason.count:,}", plain(reason.example))
    return table


def new_table(title: str, words: Iterable[str], figures: Iterable[str]) -> Table:
    """Return an empty table with columns for words and, to their right, columns for figures."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name in words:
        table.add_column(name, min_width=_NARROWEST)  # these give way where the terminal is narrow
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _cut(table: Table, shown: int, total: int) -> Table:
    if shown < total:
        table.caption = f"{shown:,} of {total:,} shown"
    return table


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.0%})" if whole else f"{part:,}"


def size_text(size_bytes: int) -> str:
    """Return a size in the unit that suits it."""
    if size_bytes < _KIB:
        return f"{size_bytes:,} B"
    power = min(int(math.log(size_bytes, _KIB)), len(_SIZE_UNITS))
    return f"{size_bytes / _KIB**power:,.1f} {_SIZE_UNITS[power - 1]}"


def _duration(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "-"
    return f"{milliseconds} ms" if milliseconds < _SECOND_MS else f"{milliseconds / _SECOND_MS:,.1f} s"


def _time(timestamp_ns: int) -> str:
    return f"{_EPOCH + timedelta(seconds=timestamp_ns // _NANOSECONDS):%Y-%m-%d %H:%M:%S}"


def _short(identifier: str) -> Text:
    return plain(identifier if len(identifier) <= _SHORT_ID else f"{identifier[:_SHORT_ID]}…")


def plain(text: str) -> Text:
    """Return text from the network as text: no markup, and nothing that would steer the terminal."""
    visible = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return Text(visible, no_wrap=True, overflow="ellipsis")


_SECTIONS: Final[tuple[tuple[Callable[[ArchiveReport], Table], Callable[[ArchiveReport], object]], ...]] = (
    (_channels, lambda report: report.channels),
    (_senders, lambda report: report.senders),
    (_delivered, lambda report: report.delivered),
    (_incomplete, lambda report: report.incomplete),
    (_missing, lambda report: report.missing),
    (_quarantined, lambda report: report.quarantined),
)
"""What follows the summary, in this order, each if there is any."""
