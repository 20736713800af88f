"""The log of a long-running command: lines on standard error, each with its time and level."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum

from fairway.visible import visible


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogLine(logging.Formatter):
    """``2026-01-31T12:00:00.000Z WARNING text``, with control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        text = visible(super().format(record), keep="\n\t")
        return f"{time.replace('+00:00', 'Z')} {record.levelname} {text}"


@contextmanager
def logging_to_stderr(level: LogLevel) -> Iterator[None]:
    """Log what fairway logs at a level or above, and the warnings of its libraries."""
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
