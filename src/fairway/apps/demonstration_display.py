"""A demonstration for people: what is shown while it goes on, and the summary at its end, as rich renders them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fairway.apps.demonstration import Demonstration, Said
from fairway.apps.demonstration_bookkeeping import DemonstrationMessage
from fairway.apps.demonstration_result import DemonstrationResult, Killing, SentMessage

_BAR_WIDTH: Final = 28
_MOST_LINES: Final = 8
"""Of what happened last, while it goes on."""
_OTHER_LINES: Final = 11
"""What the view needs beside bars and these lines, for the texts of the story."""
_MOST_NAMES: Final = 3


def said_line(said: Said) -> str:
    """Return one thing that happened as a line of plain text."""
    return f"{said.at_ms / 1000:6.1f} s  {said.text}"


def progress_view(demonstration: Demonstration, *, height: int) -> RenderableType:
    """Return how far everything is: bars for the file, who has which text, what happened last.

    ``height`` is that of the terminal, in lines; what happened last gives way if it is too small.
    """
    bars = Table.grid(padding=(0, 2))
    file = demonstration.file_message
    if file is not None:
        _add_file_bars(bars, demonstration, file)
    texts = _texts(demonstration) if demonstration.books.messages else ""
    room = min(_MOST_LINES, max(0, height - _OTHER_LINES - len(demonstration.books.names)))
    newest = demonstration.said[-room:] if room else []
    happened = [Text(said_line(said), style="dim") for said in newest]
    head = Text(f"{demonstration.elapsed_ms / 1000:6.1f} s", style="bold")
    return Group(head, "", bars, "", texts, "", *happened)


def _add_file_bars(bars: Table, demonstration: Demonstration, file: DemonstrationMessage) -> None:
    title, total = escape(file.title), file.total_chunks
    for name in demonstration.held:
        has_it = name in file.received_at_ms
        held = total if has_it else min(demonstration.held[name], total)
        if name not in demonstration.present:
            state = "[bold red]killed[/]"
        elif has_it:
            state = "[green]complete[/]"
        else:
            state = f"{held} of {total} segments"
            if demonstration.killing is not None and demonstration.killing.name == name:
                state += ", back on its store"
        bars.add_row(name, "receives", title, ProgressBar(total=total, completed=held, width=_BAR_WIDTH), state)
    acknowledged = ProgressBar(total=total, completed=file.chunks_acknowledged, width=_BAR_WIDTH)
    by, others = sorted(file.acknowledged_by), len(demonstration.held)
    names = " or ".join(by) if len(by) <= _MOST_NAMES else f"{len(by)} of {others}"
    if file.delivered_at_ms is not None:
        state = f"[green]acknowledged by {_names(file.delivered_to, others)}[/]"
    else:
        state = f"{file.chunks_acknowledged} of {total} acknowledged" + (f" by {names}" if names else "")
    bars.add_row(file.sender, "sends", title, acknowledged, state)


def _texts(demonstration: Demonstration) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), caption_justify="left")
    table.caption = "got: has received it; ack: its sender knows"
    table.add_column("from")
    table.add_column("text")
    for name in demonstration.books.names:
        table.add_column(name, min_width=len(name))
    for message in demonstration.books.messages.values():
        if not message.is_file:
            marks = (_mark(message, name) for name in demonstration.books.names)
            table.add_row(message.sender, escape(message.title), *marks)
    return table


def _mark(message: DemonstrationMessage, name: str) -> str:
    """Return the state of a message at a participant."""
    if name == message.sender:
        return ""
    if name in message.acknowledged_by or name in message.delivered_to:
        return "[green]ack[/]"
    return "got" if name in message.received_at_ms else "[dim]-[/]"


def summary(result: DemonstrationResult, title: str) -> RenderableType:
    """Return a summary of the demonstration."""
    lines: list[RenderableType] = [_messages(result), "", _verdict(result)]
    lines += [f"[red]{escape(fault)}[/]" for fault in result.faults]
    copies = len(result.saved)
    colour = "green" if result.copies_with_same_hash == copies else "red"
    rebuilt = len(result.recovered_by_parity)
    parity = f", {rebuilt} of them completed with Reed-Solomon" if rebuilt else ""
    lines.append(
        f"[{colour}]{result.copies_with_same_hash} of {copies} saved copies[/] of {escape(title)} have SHA-256 "
        f"{result.file_sha256[:16]}...{parity}"
    )
    if result.killing is not None:
        lines.append(_killed(result.killing, result.segments, title))
    if result.network:
        lost, delivered = result.network["lost"], result.network["delivered"]
        offered = lost + delivered
        lines.append(
            f"the network swallowed {lost:,} of {offered:,} deliveries ({lost / offered if offered else 0:.0%}); "
            f"{result.network['published']:,} transmissions, {result.network['published_bytes'] / 2**20:.1f} MiB"
        )
    return Group(*lines)


def _messages(result: DemonstrationResult) -> Table:
    table = Table(title="What was sent", title_justify="left")
    for heading in ("from", "what", "bytes", "received by", "acknowledged by", "after"):
        table.add_column(heading, justify="right" if heading in {"bytes", "after"} else "left")
    for message in result.messages:
        table.add_row(
            message.sender,
            escape(message.title),
            f"{message.size_bytes:,}",
            _names(message.received_by, len(result.participants) - 1),
            _names(message.delivered_to, len(result.participants) - 1),
            _outcome(message),
        )
    return table


def _names(names: Sequence[str], everybody: int) -> str:
    """Return names as a list, or their number if they are all and many."""
    return f"all {everybody} others" if len(names) == everybody > _MOST_NAMES else ", ".join(names)


def _outcome(message: SentMessage) -> str:
    if message.failed is not None:
        return f"[red]{escape(message.failed)}[/]"
    if message.delivered_at_ms is None:
        return "[red]unknown[/]"
    return f"{(message.delivered_at_ms - message.sent_at_ms) / 1000:.1f} s"


def _verdict(result: DemonstrationResult) -> str:
    verdict = result.verdict
    said = "[green]nothing lost, nothing twice, all in order[/]" if verdict.is_good else "[red]something went wrong[/]"
    figures = f"{verdict.lost} lost, {verdict.twice} twice, {verdict.out_of_order} out of order"
    if verdict.unacknowledged:
        figures += f", {verdict.unacknowledged} not acknowledged by all"
    return f"{said}: {figures}, in {result.elapsed_ms / 1000:.1f} s"


def _killed(killing: Killing, segments: int, title: str) -> str:
    text = (
        f"{killing.name} was killed after {killing.killed_at_ms / 1000:.1f} s, holding {killing.segments_held} of "
        f"{segments} segments of {escape(title)}"
    )
    if killing.back_at_ms is not None:
        text += f"; back after {(killing.back_at_ms - killing.killed_at_ms) / 1000:.1f} s on its store"
    if killing.file_at_ms is not None and killing.file_at_ms > killing.killed_at_ms:
        text += f", it had the file at {killing.file_at_ms / 1000:.1f} s"
    if killing.redelivered:
        text += f"; told {killing.redelivered} unfinished again"
    return text
