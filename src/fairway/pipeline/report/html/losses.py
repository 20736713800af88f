"""The sections of an HTML report on loss: channels, senders, lost messages, incomplete segment sets, all messages.

Each function returns a lead, in HTML, and the charts and tables below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairway.pipeline.report import figures
from fairway.pipeline.report.findings import MOST_DRAWN, Findings
from fairway.pipeline.report.html.charts import Bar, Charts, Lane, full_share, time_ticks
from fairway.pipeline.report.html.data import html_table
from fairway.pipeline.report.html.page import shortened
from fairway.pipeline.report.tables import causes
from fairway.pipeline.report.words import of
from fairway.units import counted

_LABEL_HEAD: Final = 14
_LABEL_TAIL: Final = 6


def label(told: object) -> str:
    """Return a name or an id, shortened for a chart."""
    return shortened(told, _LABEL_HEAD, _LABEL_TAIL) or "(empty)"


def channels(charts: Charts, found: Findings, rows: str) -> tuple[str, ...]:
    """Return the counts of messages of each channel."""
    report = found.report
    if not report.channels:
        return ("There are no channels.",)
    told = report.headline
    lead = (
        f"Over {counted(report.channel_count, 'channel')}, {of(told.lost, told.known)} messages known are lost. The "
        "worst channels come first: those with the greatest share lost that is certain at 95 %, so that few messages "
        "weigh less than many. A channel's name follows it through all tables."
    )
    worst = report.channels[:MOST_DRAWN]
    names = [channel.channel_id for channel in worst]
    lost = [(channel.messages.lost, channel.messages.known) for channel in worst]
    held_up = [(channel.messages.held_up, channel.messages.known) for channel in worst]
    lead += " p50 and p95: the times within which 50 % and 95 % of the acknowledged messages were first acknowledged."
    return (
        lead,
        _shares(charts, "Lost, of the messages known", lead, names, lost),
        _shares(charts, "Held up, of the messages known", lead, names, held_up),
        rows,
    )


def _shares(charts: Charts, title: str, described: str, names: Sequence[str], shares: Sequence[tuple[int, int]]) -> str:
    """Return bars for parts of wholes, on a scale that fits the greatest."""
    full = full_share(max((part / whole for part, whole in shares if whole), default=0))
    bars = [
        Bar(label=label(told), value=part / max(whole, 1), whole=full, note=of(part, whole))
        for told, (part, whole) in zip(names, shares, strict=True)
    ]
    return charts.bars(f"{title} (a full bar is {full:.0%})", described, bars)


def senders(found: Findings, rows: str) -> tuple[str, ...]:
    """Return the counts of messages of each sender."""
    total = found.report.senders
    if not total:
        return ("There are no senders.",)
    lead = (
        f"{counted(total, 'pair')} of a channel and a sender; those come first of whom the greatest share is lost. The "
        "author of a lost message is known only if a citation names it; the others are counted together as unknown."
    )
    return lead, rows


def gaps(charts: Charts, found: Findings, rows: str) -> tuple[str, ...]:
    """Return the lost messages, their causes, and the times of their first citations."""
    report, axis = found.report, found.axis
    lost = report.headline.lost
    if not lost or axis is None:
        return ("No message that others cite is lost.",)
    drawn = found.accounts.most_lost
    when = figures.first_cited(found.tables, [row["channel_id"] for row in drawn], axis)
    lanes = [
        Lane(label=label(row["channel_id"]), note=of(row["lost"], row["known"]), parts=a, wholes=b)
        for row, (a, b) in zip(drawn, when, strict=True)
    ]
    lead = (
        f"{of(lost, report.headline.known)} messages known are lost, in {found.accounts.channels_with_losses:,} of "
        f"{counted(report.channel_count, 'channel')}. They are placed at the time at which they were first cited."
    )
    described = f"{lead} A stretch is darker the greater the share of its messages that is lost."
    untold = (
        "An archive does not record when a participant queried a store, nor when a store received a message. So no "
        "figure shows which messages reached their store too late."
    )
    return (
        f"{lead} {untold} Holds up: the messages for which it is the last to wait for.",
        html_table(causes(report), wide=True),
        charts.lanes("Share lost, by the time of the first citation", described, lanes, time_ticks(axis)),
        rows,
    )


def incomplete(found: Findings, rows: str) -> tuple[str, ...]:
    """Return the messages with missing segments."""
    told = found.report.headline
    if not told.incomplete:
        return ("Every segment belongs to a message that can be read.",)
    return (f"{of(told.incomplete, told.known)} messages known are segments that lack the others.", rows)


def messages(found: Findings, rows: str) -> tuple[str, ...]:
    """Return the messages of the archive, and the number of those that are held up."""
    told = found.report.headline
    if not told.known:
        return ("There are no messages of channels.",)
    lead = (
        f"{of(told.held_up, told.known)} messages known are held up: a live participant delivers them only after "
        "it has given up the lost one named beside them."
    )
    if told.undetermined:
        lead += f" Of {of(told.undetermined, told.known)} it is not computed; the to-dos say why."
    return lead, rows
