"""A finished run as one HTML page for an operator: the losses with their causes, and the to-dos.

The page is self-contained: it opens without a network, also on a phone. The worst rows are first, and every figure has
its whole beside it. The tables are embedded with all rows that fit, compressed (`data`). The script sorts, filters and
searches them, and filters all of them by one channel. The page is made from the tables of the run folder, without
Spark.
"""

from __future__ import annotations

from os import PathLike
from typing import Final

from fairway.errors import ConfigurationError
from fairway.pipeline.location import Location
from fairway.pipeline.report.findings import Findings
from fairway.pipeline.report.html import completeness, costs, losses, overview
from fairway.pipeline.report.html.charts import Charts
from fairway.pipeline.report.html.data import embedded, html_table
from fairway.pipeline.report.html.page import page, section
from fairway.pipeline.report.tables import data_tables
from fairway.pipeline.run.reading import RunTables

MOST_ROWS: Final = 100_000
"""Largest number of rows of each table of a page; about 10 MB for messages."""
_MADE_OF: Final = {
    "channels": ("channel_stats", "incomplete", "sds_ordered"),
    "senders": ("sender_stats", "incomplete", "sds_ordered"),
    "gaps": ("missing_messages", "sender_stats", "quarantine", "sds_messages"),
    "stores": ("store_completeness", "waku_messages", "sds_messages"),
    "rate": ("rate_utilisation",),
    "quarantine": ("quarantine",),
    "latency": ("ack_latency", "acknowledgements"),
    "segments": ("incomplete",),
    "messages": ("sds_ordered", "waku_messages"),
    "traffic": ("sds_messages", "repeats", "quarantine"),
    "bandwidth": ("bandwidth",),
    "rows": (),
}


def write_html_report(run_folder: str | PathLike[str], path: str | PathLike[str]) -> None:
    """Write the report of a finished run to a file, all at once.

    Raises `ConfigurationError` if the folder holds no finished run in Parquet, or the file cannot be written.
    """
    target = Location.of(path, "--html")
    whole = html_report(RunTables(run_folder))
    try:
        target.put(whole.encode())
    except OSError as error:
        raise ConfigurationError(
            f"the report cannot be written to {path}: {error.strerror}; give --html a file in a folder that is there "
            "and can be written"
        ) from error


def html_report(tables: RunTables) -> str:
    """Return the page of a finished run."""
    found = Findings(tables, MOST_ROWS)
    charts = Charts()
    kept, data = embedded(data_tables(found))
    rows = {name: html_table(table) for name, table in kept.items()}
    sections = [
        ("channels", "Channels", losses.channels(charts, found, rows["channels"])),
        ("senders", "Senders", losses.senders(found, rows["senders"])),
        ("gaps", "Lost messages, and why", losses.gaps(charts, found, rows["lost"])),
        ("stores", "Stores and their outages", completeness.stores(charts, found, rows["lacked"])),
        ("rate", "Senders against the rate limit", costs.rate(charts, found, rows["rate"])),
        ("quarantine", "Quarantine by reason", costs.quarantine(charts, found, rows["quarantine"])),
        ("latency", "Acknowledgement", costs.latency(charts, found)),
        ("segments", "Messages that lack segments", losses.incomplete(found, rows["incomplete"])),
        ("messages", "Messages that are there", losses.messages(found, rows["messages"])),
        ("traffic", "Messages and bytes over time", costs.traffic(charts, found)),
        ("bandwidth", "Bandwidth by part", costs.bandwidth(charts, found)),
        ("rows", "What became of all rows", overview.rows(tables)),
    ]
    bodies = [
        (place, title, section(place, title, lead, *parts, made_of=_MADE_OF[place]))
        for place, title, (lead, *parts) in sections
    ]
    return page("Pipeline report", overview.overview(found), bodies, data)
