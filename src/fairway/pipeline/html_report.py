"""A finished run as one HTML page, for an operator: what was lost and where, how soon it was acknowledged, and by whom.

The page holds all that it shows: it opens without a network, on a phone as well. Worst comes first, and every figure
stands with what it is a part of. It is made from the tables of the run folder, without Spark.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any, Final

from fairway.errors import ConfigurationError
from fairway.pipeline import html_costs as costs
from fairway.pipeline import html_figures as figures
from fairway.pipeline import html_losses as losses
from fairway.pipeline.html_charts import Charts
from fairway.pipeline.html_page import Column, page, section, table, text
from fairway.pipeline.html_words import clock, of
from fairway.pipeline.run_tables import RunTables

_CLASSES: Final = {
    "delivered": "carried a message that can be read",
    "incomplete": "segments of a message that cannot be put together",
    "sync": "sync messages",
    "retransmissions": "an SDS message again",
    "duplicates": "the same message again",
    "quarantined": "not decoded",
}


def write_html_report(run_folder: str | PathLike[str], path: str | PathLike[str]) -> None:
    """Write the report of a finished run to a file, all at once.

    Raises `ConfigurationError` if the folder holds no finished run in Parquet, or the file cannot be written.
    """
    whole = html_report(RunTables(run_folder))
    target = Path(path)
    written = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        written.write_text(whole, encoding="utf-8")
        written.replace(target)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise ConfigurationError(f"the report cannot be written to {path}: {error.strerror}") from error


def html_report(tables: RunTables) -> str:
    """Return the page of a finished run."""
    charts = Charts()
    over_time = figures.traffic(tables)
    channels = sorted(tables.all("channel_stats"), key=losses.worst_first)
    sections = [
        ("traffic", "Messages and bytes over time", losses.traffic(charts, over_time)),
        ("channels", "Delivery and loss per channel", losses.channels(charts, channels)),
        ("latency", "Time until acknowledgement", losses.latency(charts, tables)),
        ("gaps", "Gaps on a timeline", losses.gaps(charts, tables, channels, over_time)),
        ("bandwidth", "Bandwidth by part", costs.bandwidth(charts, tables)),
        ("rate", "Senders against the rate limit", costs.rate(charts, tables)),
        ("quarantine", "Quarantine by reason", costs.quarantine(charts, tables)),
        ("stores", "Store completeness", costs.stores(charts, tables)),
    ]
    bodies = [(place, title, section(place, title, lead, *parts)) for place, title, (lead, *parts) in sections]
    return page("Pipeline report", _head(tables, channels), bodies)


def _head(tables: RunTables, channels: Sequence[dict[str, Any]]) -> str:
    balance = tables.balance
    sources = ", ".join(text(source["label"] or source["uri"]) for source in tables.manifest["sources"])
    verdict = (
        '<span class="good">All rows are accounted for.</span>'
        if balance.adds_up
        else f'<span class="bad">This does not add up: {balance.accounted_for:,} rows are accounted for.</span>'
    )
    counts = asdict(balance)
    rows = [(title, meaning, of(counts[title], balance.rows_in)) for title, meaning in _CLASSES.items()]
    first, last = (tables.range_of("waku_messages", "timestamp")) if tables.rows("waku_messages") else (None, None)
    span = "" if first is None or last is None else f" with timestamps from {clock(first)} to {clock(last)} UTC"
    return (
        f"<p>Read: {sources}. {balance.rows_in:,} rows, {tables.rows('waku_messages'):,} distinct messages{span}, "
        f"{len(channels):,} channels. {verdict}</p>"
        + table(
            f"What became of {balance.rows_in:,} rows",
            [Column(title="class"), Column(title="meaning"), Column(title="rows", figure=True)],
            rows,
        )
    )
