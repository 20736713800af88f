"""The report of a run as one HTML page (`report`): sections, charts as SVG, and words, made without Spark."""

from __future__ import annotations

from fairway.pipeline.report.html.report import write_html_report

__all__ = ["write_html_report"]
