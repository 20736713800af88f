"""The report of a run, as text, HTML or JSON, from its tables and without Spark.

`findings` reads the tables of a run folder into values (`archive_report`); `terminal` shows them as tables, `html` as
one page, `as_json` as JSON.
"""

from __future__ import annotations

from fairway.pipeline.report.archive_report import ArchiveReport
from fairway.pipeline.report.findings import report_of

__all__ = ["ArchiveReport", "report_of"]
