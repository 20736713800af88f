"""The figures at the top of an HTML report: the answers to an operator's first questions, each with its denominator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from fairway.pipeline.report.findings import waiting_of
from fairway.pipeline.report.html import figures
from fairway.pipeline.report.html.page import KeyFigure, key_figures, name
from fairway.pipeline.report.html.words import percent
from fairway.pipeline.run.reading import RunTables

_AT_LIMIT_PCT: Final = (0.0, 100.0)


def key_figures_of(tables: RunTables, channels: Sequence[dict[str, Any]]) -> str:
    """Return the figures of a run as HTML; ``channels`` are the rows of ``channel_stats``."""
    return key_figures([*_losses(tables, channels), *_costs(tables)])


def _losses(tables: RunTables, channels: Sequence[dict[str, Any]]) -> Iterator[KeyFigure]:
    content, missing, acknowledged, delivered, incomplete = (
        sum(row[figure] for row in channels)
        for figure in ("content", "missing", "acknowledged", "delivered", "incomplete")
    )
    begun = "messages begun"
    yield _part("Messages readable", delivered, delivered + incomplete, begun, "channels", bad=incomplete > 0)
    yield _part("SDS messages missing", missing, content + missing, "known", "gaps", bad=missing > 0)
    waiting = sum(told.waiting for told in waiting_of(tables))
    yield _part("Held up by missing ones", waiting, content, "SDS messages", "gaps", bad=waiting > 0)
    yield _part("Acknowledged by others", acknowledged, content, "SDS messages", "latency")


def _costs(tables: RunTables) -> Iterator[KeyFigure]:
    refused = tables.rows("quarantine")
    yield _part("Quarantined", refused, tables.rows("waku_messages"), "messages", "quarantine", bad=refused > 0)
    if tables.manifest["options"].get("rate_limit") is None:
        yield KeyFigure(title="At the rate limit", figure="-", note="no limit was given to the run", place="rate")
    else:
        above = figures.utilisation(tables, _AT_LIMIT_PCT)[-1]
        pairs = tables.rows("rate_utilisation")
        yield _part("At the rate limit", above, pairs, "senders and epochs", "rate", bad=above > 0)
    stores = tables.all("store_completeness")
    if stores:
        least = min(stores, key=lambda row: (row["messages"], str(row["source"])))
        yield KeyFigure(
            title="Least complete store",
            figure=percent(least["messages"], least["of"]) if least["of"] else "-",
            note=f"{name(least['source'])} had {least['messages']:,} of {least['of']:,}",
            place="stores",
            bad=least["missing"] > 0,
        )


def _part(title: str, part: int, whole: int, what: str, place: str, *, bad: bool = False) -> KeyFigure:
    share = percent(part, whole) if whole else "-"
    return KeyFigure(title=title, figure=share, note=f"{part:,} of {whole:,} {what}", place=place, bad=bad)
