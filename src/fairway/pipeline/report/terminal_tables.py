"""An `ArchiveReport` for people: tables for the terminal, with rich.

Only what there is gets a section: an archive in which nothing is missing has no table of missing messages, and says so
in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fairway.pipeline.report.archive_report import ArchiveReport
from fairway.pipeline.report.headline import Headline
from fairway.pipeline.report.words import duration_text, selection_text, share_text, size_text
from fairway.units import counted
from fairway.visible import visible

_SHORT_ID: Final = 12
_NARROWEST: Final = 8
_MOST_CHANNELS: Final = 50
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS: Final = 1_000_000_000
_COUNTS: Final = ("known", "lost", "incomplete", "held up")


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
    """Return the head of a report: what became of all messages, and what should be done."""
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
    words = [f"[bold]{number:,} {name}[/] ({share_text(number, told.known)})" for name, number in counts]
    lines = [f"Of [bold]{counted(told.known, 'message')} known[/], {', '.join(words)}"]
    if told.incomplete:
        lines.append(
            f"{told.incomplete:,} ({share_text(told.incomplete, told.known)}) are segments that lack the others"
        )
    if told.held_up:
        share = share_text(told.held_up, told.known)
        lines.append(f"{told.held_up:,} ({share}) are held up: a participant delivers them once a lost one before")
        lines.append("them comes or is given up")
    if told.undetermined:
        lines.append(f"Of {told.undetermined:,} it is not computed whether they are held up (--max-channel-bytes)")
    return lines


def _whole(report: ArchiveReport) -> list[str]:
    lines = [f"{counted(report.messages, 'Waku message')}, {size_text(report.payload_bytes)}"]
    if report.first_ns is not None and report.last_ns is not None:
        lines[0] += f", sent from {_time(report.first_ns)} to {_time(report.last_ns)} UTC"
    recovered, reassembled = report.total("recovered"), report.total("reassembled")
    if recovered:
        lines.append(f"{recovered:,} of {counted(reassembled, 'message')} in segments saved by Reed-Solomon")
    return lines


def _acknowledged(report: ArchiveReport) -> list[str]:
    told = report.acknowledgement
    if not told.content:
        return []
    share = share_text(told.acknowledged, told.content)
    read = "bloom filters read" if told.filters_read else "bloom filters not read, see --blooms"
    return [
        f"{told.acknowledged:,} of {told.content:,} that are there acknowledged by others ({share}), at least: {read}"
    ]


def _channels(report: ArchiveReport, most: int) -> Table:
    table = new_table("Channels, worst first", ["channel"], [*_COUNTS, "acknowledged", "p50", "p95"])
    for channel in report.channels[:most]:
        table.add_row(
            plain(channel.channel_id),
            *_counts(channel.messages),
            _share(channel.acknowledged, channel.content),
            duration_text(channel.latency_p50_ms),
            duration_text(channel.latency_p95_ms),
        )
    table.caption = (
        "of all that are known of the channel; a message in segments is several;\n"
        "acknowledged: at least, of those there; p50, p95: how soon, by the first"
    )
    if len(report.channels) > most:
        table.caption = f"{most:,} of {len(report.channels):,} shown\n{table.caption}"
    return table


def _senders(report: ArchiveReport) -> Table:
    table = new_table("Senders, those of whom most was lost first", ["channel", "sender"], [*_COUNTS, "acknowledged"])
    for sender in report.senders:
        table.add_row(
            plain(sender.channel_id),
            plain("unknown" if sender.sender_id is None else sender.sender_id),
            *_counts(sender.messages),
            _share(sender.acknowledged, sender.content),
        )
    return _cut(table, len(report.senders), report.senders_in_all)


def _counts(told: Headline) -> tuple[str, ...]:
    """Return the figures of the headline, each with its share of what is known."""
    shares = (_share(number, told.known) if number else "0" for number in (told.lost, told.incomplete, told.held_up))
    return (f"{told.known:,}", *shares)


def _causes(report: ArchiveReport) -> Table:
    table = new_table("Why messages are lost", ["cause"], ["messages"])
    table.add_column("that is")
    for each in report.causes:
        cause = each.cause if each.status is None else f"{each.cause}: {each.status}"
        table.add_row(plain(cause), _share(each.count, report.headline.lost), each.meaning)
    for circumstance, count in report.circumstances.items():
        table.add_row(plain("meanwhile"), _share(count, report.headline.lost), plain(circumstance))
    table.caption = (
        "of all that are lost. When a participant asked which store is in no archive,\n"
        "so that a message which came to its store too late cannot be told from others"
    )
    return table


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
        "Lost messages, most cited first",
        ["SDS id", "channel", "sender"],
        ["cited by", "holds up", "first cited (UTC)"],
    )
    table.add_column("cause")
    table.add_column("store hash")
    for message in report.missing:
        table.add_row(
            _short(message.message_id),
            plain(message.channel_id),
            plain(message.sender_id or "?"),
            f"{message.cited_by:,}",
            f"{message.holds_up:,}",
            _time(message.first_cited_ns),
            message.cause.value,
            "-" if message.retrieval_hint is None else _short(message.retrieval_hint.hex()),
        )
    return _cut(table, len(report.missing), report.headline.lost)


def _quarantined(report: ArchiveReport) -> Table:
    table = new_table("Quarantine: not decoded, forged, or on a wrong topic", ["reason"], ["messages"])
    table.add_column("for example")
    for reason in report.quarantined:
        table.add_row(reason.status, _share(reason.count, report.messages), plain(reason.example))
    table.caption = f"of {counted(report.messages, 'distinct Waku message')}"
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


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({share_text(part, whole)})" if whole else f"{part:,}"


def _time(timestamp_ns: int) -> str:
    return f"{_EPOCH + timedelta(seconds=timestamp_ns // _NANOSECONDS):%Y-%m-%d %H:%M:%S}"


def _short(identifier: str) -> Text:
    return plain(identifier if len(identifier) <= _SHORT_ID else f"{identifier[:_SHORT_ID]}…")


def plain(text: str) -> Text:
    """Return text from the network as text: no markup, and nothing that would steer the terminal."""
    return Text(visible(text), no_wrap=True, overflow="ellipsis")


_SECTIONS: Final[tuple[tuple[Callable[[ArchiveReport], Table], Callable[[ArchiveReport], object]], ...]] = (
    (_causes, lambda report: report.causes),
    (_senders, lambda report: report.senders),
    (_delivered, lambda report: report.delivered),
    (_incomplete, lambda report: report.incomplete),
    (_missing, lambda report: report.missing),
    (_quarantined, lambda report: report.quarantined),
)
"""What follows the summary, in this order, each if there is any."""
