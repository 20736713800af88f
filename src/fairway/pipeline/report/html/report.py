"""A finished run as one HTML page, for an operator: what was lost and where, how soon it was acknowledged, and by whom.

The page holds all that it shows: it opens without a network, on a phone as well. Worst comes first, and every figure
stands with what it is a part of. It is made from the tables of the run folder, without Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from os import PathLike
from typing import Any, Final

from fairway.errors import ConfigurationError
from fairway.pipeline.location import Location
from fairway.pipeline.report.html import costs, figures, losses
from fairway.pipeline.report.html.charts import Charts
from fairway.pipeline.report.html.key_figures import key_figures_of
from fairway.pipeline.report.html.page import Column, page, section, table, text
from fairway.pipeline.report.html.senders import senders
from fairway.pipeline.report.html.words import clock, of
from fairway.pipeline.report.ranking import worst_first
from fairway.pipeline.run.reading import RunTables

_CLASSES: Final = {
    "delivered": "carried a message that can be read",
    "incomplete": "segments of a message that cannot be put together",
    "sync": "sync messages",
    "retransmissions": "an SDS message again",
    "duplicates": "the same message again",
    "quarantined": "not decoded, or forged",
}


_MADE_OF: Final = {
    "traffic": ("sds_messages", "quarantine"),
    "channels": ("channel_stats",),
    "senders": ("sender_stats",),
    "latency": ("ack_latency",),
    "gaps": ("missing_messages", "channel_stats", "sds_ordered"),
    "bandwidth": ("bandwidth",),
    "rate": ("rate_utilisation",),
    "quarantine": ("quarantine",),
    "stores": ("store_completeness", "waku_messages"),
}
_SECONDS: Final = len("2026-01-01T00:00:00")


def write_html_report(run_folder: str | PathLike[str], path: str | PathLike[str]) -> None:
    """Write the report of a finished run to a file, all at once.

    Raises `ConfigurationError` if the folder holds no finished run in Parquet, or the file cannot be written.
    """
    target = Location.of(path, "--html")
    whole = html_report(RunTables(run_folder))
    try:
        target.put(whole.encode())
    except OSError as error:
        raise ConfigurationError(f"the report cannot be written to {path}: {error.strerror}") from error


def html_report(tables: RunTables) -> str:
    """Return the page of a finished run."""
    charts = Charts()
    over_time = figures.traffic(tables)
    channels = sorted(tables.all("channel_stats"), key=worst_first)
    at_the_top = key_figures_of(tables, channels)
    sections = [
        ("traffic", "Messages and bytes over time", losses.traffic(charts, over_time)),
        ("channels", "Delivery and loss per channel", losses.channels(charts, channels)),
        ("senders", "Loss per sender", senders(tables)),
        ("latency", "Time until acknowledgement", losses.latency(charts, tables)),
        ("gaps", "Gaps on a timeline", losses.gaps(charts, tables, channels, over_time)),
        ("bandwidth", "Bandwidth by part", costs.bandwidth(charts, tables)),
        ("rate", "Senders against the rate limit", costs.rate(charts, tables)),
        ("quarantine", "Quarantine by reason", costs.quarantine(charts, tables)),
        ("stores", "Store completeness", costs.stores(charts, tables, over_time)),
    ]
    bodies = [
        (place, title, section(place, title, lead, *parts, made_of=_MADE_OF[place]))
        for place, title, (lead, *parts) in sections
    ]
    return page("Pipeline report", _head(tables, channels, at_the_top), bodies)


def _head(tables: RunTables, channels: Sequence[dict[str, Any]], at_the_top: str) -> str:
    balance = tables.balance
    sources = ", ".join(text(source["label"] or source["uri"]) for source in tables.manifest["sources"])
    verdict = (
        '<span class="good">All rows are accounted for.</span>'
        if balance.adds_up
        else f'<span class="bad">This does not add up: {balance.accounted_for:,} rows are accounted for.</span>'
    )
    counts = asdict(balance)
    rows = [
        (f"{title}<small>{meaning}</small>", of(counts[title], balance.rows_in)) for title, meaning in _CLASSES.items()
    ]
    first, last = (tables.range_of("waku_messages", "timestamp")) if tables.rows("waku_messages") else (None, None)
    span = "" if first is None or last is None else f" with timestamps from {clock(first)} to {clock(last)} UTC"
    return (
        f"<p>Read: {sources}. {balance.rows_in:,} rows, {tables.rows('waku_messages'):,} distinct messages{span}, "
        f"{len(channels):,} channels. {verdict}</p>{at_the_top}"
        '<div class="beside">'
        + table(
            f"What became of {balance.rows_in:,} rows",
            [Column(title="class"), Column(title="rows", figure=True)],
            rows,
        )
        + f'<div><p class="note">{_made(tables)}</p></div></div>'
    )


def _made(tables: RunTables) -> str:
    """Return how the run was made and where its tables are."""
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
