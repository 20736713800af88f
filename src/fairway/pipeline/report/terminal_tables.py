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
from fairway.units import MS_PER_S
from fairway.visible import visible

_SHORT_ID: Final = 12
_NARROWEST: Final = 8
_MOST_CHANNELS: Final = 50
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS: Final = 1_000_000_000
_KIB: Final = 1_024
_LEAST_SHARE: Final = 0.001
_SIZE_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def print_report(report: ArchiveReport, console: Console | None = None) -> None:
    """Print a report, to standard output unless told otherwise."""
    (console or Console()).print(render_report(report))


def render_report(report: ArchiveReport, channels: int = _MOST_CHANNELS) -> RenderableType:
    """Return a report as something that rich prints; ``channels`` is how many of these are shown at most."""
    lines: list[RenderableType] = [render_summary(report)]
    if report.channels:
        lines += ["", _channels(report, channels)]
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
    content, incomplete = total("content"), total("incomplete")
    lines.append(
        f"[green]{total('acknowledged'):,}[/] of {_count(content, 'SDS message')} acknowledged by others"
        + (f" ({share_text(total('acknowledged'), content)})" if content else "")
    )
    if recovered:
        lines.append(f"[cyan]{recovered:,}[/] of {reassembled:,} in segments saved by Reed-Solomon")
    if missing:
        known = content + missing
        lines.append(f"[red]{missing:,}[/] of {known:,} SDS messages known of missing ({share_text(missing, known)})")
    else:
        lines.append("[green]nothing missing[/]")
    if incomplete:
        lines.append(f"[yellow]{incomplete:,}[/] of {reassembled + incomplete:,} segmented messages incomplete")
    if report.quarantined:
        unreadable = sum(reason.count for reason in report.quarantined)
        lines.append(
            f"[yellow]{unreadable:,}[/] of {_count(report.messages, 'Waku message')} in quarantine "
            f"({share_text(unreadable, report.messages)})"
        )
    return Panel.fit("\n".join(lines), title=plain(report.archive), title_align="left", border_style="blue")


def _channels(report: ArchiveReport, most: int) -> Table:
    figures = ["senders", "content", "missing", "incomplete", "acknowledged", "p50", "p95"]
    table = new_table("Channels, worst first", ["channel"], figures)
    for channel in report.channels[:most]:
        table.add_row(
            plain(channel.channel_id),
            f"{channel.senders:,}",
            f"{channel.content:,}",
            _lost(channel.missing, channel.content),
            _lost(channel.incomplete, channel.delivered),
            _share(channel.acknowledged, channel.content),
            duration_text(channel.latency_p50_ms),
            duration_text(channel.latency_p95_ms),
        )
    table.caption = (
        "content: SDS messages that are there; missing: of these and itself;\n"
        "incomplete: of messages, readable or not; acknowledged: of content,\n"
        "by others; p50, p95: after how long, by the first of them"
    )
    if len(report.channels) > most:
        table.caption = f"{most:,} of {len(report.channels):,} shown\n{table.caption}"
    return table


def _senders(report: ArchiveReport) -> Table:
    figures = ["content", "missing", "incomplete", "acknowledged"]
    table = new_table("Senders, those of whom most was lost first", ["channel", "sender"], figures)
    for sender in report.senders:
        table.add_row(
            plain(sender.channel_id),
            plain("unknown" if sender.sender_id is None else sender.sender_id),
            f"{sender.content:,}",
            _lost(sender.missing, sender.content),
            _lost(sender.incomplete, sender.delivered),
            _share(sender.acknowledged, sender.content),
        )
    return _cut(table, len(report.senders), report.senders_in_all)


def _delivered(report: ArchiveReport) -> Table:
    table = new_table("Largest messages that can be read", ["message id", "channel", "sender"], ["size", "segments"])
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
    table = new_table(
        "Incomplete messages, those that lack least first", ["payload hash", "channel", "sender"], ["held", "needed"]
    )
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
    table = new_table(
        "Missing messages, most cited first", ["SDS id", "channel", "sender"], ["cited by", "first cited (UTC)"]
    )
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
    table = new_table("Quarantine: not decoded, or forged", ["reason"], ["messages"])
    table.add_column("for example")
    for reason in report.quarantined:
        table.add_row(reason.status, _share(reason.count, report.messages), plain(reason.example))
    table.caption = f"of {_count(report.messages, 'distinct Waku message')}"
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
    return f"{part:,} ({share_text(part, whole)})" if whole else f"{part:,}"


def _lost(part: int, rest: int) -> str:
    return f"[red]{_share(part, part + rest)}[/]" if part else "0"


def share_text(part: int, whole: int) -> str:
    """Return a share of what is not 0; some is never shown as none, nor nearly all as all."""
    share = part / whole
    if 0 < share < _LEAST_SHARE:
        return f"<{_LEAST_SHARE:.1%}"
    if 1 - _LEAST_SHARE < share < 1:
        return f">{1 - _LEAST_SHARE:.1%}"
    return f"{share:.1%}"


def size_text(size_bytes: int) -> str:
    """Return a size in the unit that suits it."""
    if size_bytes < _KIB:
        return f"{size_bytes:,} B"
    power = min(int(math.log(size_bytes, _KIB)), len(_SIZE_UNITS))
    return f"{size_bytes / _KIB**power:,.1f} {_SIZE_UNITS[power - 1]}"


def duration_text(milliseconds: int | None) -> str:
    """Return a time in milliseconds or seconds; None, which is unknown, as a dash."""
    if milliseconds is None:
        return "-"
    return f"{milliseconds} ms" if milliseconds < MS_PER_S else f"{milliseconds / MS_PER_S:,.1f} s"


def _time(timestamp_ns: int) -> str:
    return f"{_EPOCH + timedelta(seconds=timestamp_ns // _NANOSECONDS):%Y-%m-%d %H:%M:%S}"


def _short(identifier: str) -> Text:
    return plain(identifier if len(identifier) <= _SHORT_ID else f"{identifier[:_SHORT_ID]}…")


def plain(text: str) -> Text:
    """Return text from the network as text: no markup, and nothing that would steer the terminal."""
    return Text(visible(text), no_wrap=True, overflow="ellipsis")


_SECTIONS: Final[tuple[tuple[Callable[[ArchiveReport], Table], Callable[[ArchiveReport], object]], ...]] = (
    (_senders, lambda report: report.senders),
    (_delivered, lambda report: report.delivered),
    (_incomplete, lambda report: report.incomplete),
    (_missing, lambda report: report.missing),
    (_quarantined, lambda report: report.quarantined),
)
"""What follows the summary, in this order, each if there is any."""
