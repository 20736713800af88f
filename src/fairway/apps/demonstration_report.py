"""Rebuilds a demonstration from its archive alone: runs the pipeline over it, as an operator would.

The tables and a page for a browser stay in their folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rich.console import RenderableType

from fairway.errors import MissingExtraError
from fairway.options import Profile

PAGE: Final = "report.html"
RUN: Final = "run"

_FEW_ROWS: Final = {
    # What Spark would compile for each step takes longer than a hundred rows do without it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What the pipeline made of an archive."""

    run: Path
    """Folder of the tables, as `fairway pipeline run` writes it."""
    page: Path
    """The report, for a browser."""
    delivered: tuple[tuple[str, str, int], ...]
    """Sender, id and size in bytes of every message that can be read, sorted."""
    summary: RenderableType
    """The report's summary, for a terminal."""


def require_spark() -> None:
    """Raise `MissingExtraError` without the ``spark`` extra."""
    if find_spec("pyspark") is None:
        raise MissingExtraError("spark", "the Spark job (left out with --no-spark)", "pyspark")


def rebuild(archive: Path, folder: Path, tell: Callable[[str], None]) -> Rebuilt:
    """Run the pipeline over an archive into a folder, and tell each step as it begins.

    Raises `MissingExtraError` without the ``spark`` extra, and what `fairway.pipeline.run.run` raises.
    """
    from fairway.pipeline.report.html import write_html_report  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.report.terminal import short_report  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.run import run  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.run.progress import RunProgress  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.run.reading import RunTables  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.session import session_or_own  # noqa: PLC0415 - needs the [spark] extra

    def progress(step: RunProgress) -> None:
        if step.results is None:
            tell(f"step {step.number} of {step.total}: {step.step}")

    place, page = folder / RUN, folder / PAGE
    with session_or_own(None, "fairway demo", little_java=True, config=_FEW_ROWS) as spark:
        run([f"archive=sqlite:{archive}"], place, profile=Profile.WAKU, spark=spark, progress=progress)
    tables = RunTables(place)
    write_html_report(place, page)
    rows = tables.all("delivered", ["sender_id", "message_id", "size_bytes"])
    return Rebuilt(
        run=place,
        page=page,
        delivered=tuple(sorted((row["sender_id"], row["message_id"], row["size_bytes"]) for row in rows)),
        summary=short_report(tables),
    )
