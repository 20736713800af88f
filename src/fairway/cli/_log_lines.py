"""The log of a command that runs for long: lines on standard error, each with its time and level."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum

from fairway.visible import visible


class LogLevel(StrEnum):
    """The least important lines that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogLine(logging.Formatter):
    """``2026-01-31T12:00:00.000Z WARNING text``, of which nothing steers the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        text = visible(super().format(record), keep="\n\t")
        return f"{time.replace('+00:00', 'Z')} {record.levelname} {text}"


@contextmanager
def logging_to_stderr(level: LogLevel) -> Iterator[None]:
    """Log the lines of fairway from a level on, and the warnings of its libraries."""
    root, own = logging.getLogger(), logging.getLogger("fairway")
    handler = logging.StreamHandler()
    handler.setFormatter(LogLine())
    before = own.level
    root.addHandler(handler)
    own.setLevel(level.upper())
    try:
        yield
    finally:
        own.setLevel(before)
        root.removeHandler(handler)
