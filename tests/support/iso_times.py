"""Times in nanoseconds as the text that options take."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso(time_ns: int) -> str:
    """Return a time in ISO 8601 with all nine digits of its second."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
