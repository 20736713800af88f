"""`statistics_of`: the statistics of a file's columns for the log of a Delta table, from the footer of the file.

Readers skip a file if its statistics exclude all wanted rows. Some readers treat a column without statistics as empty
if another column has statistics. So the log has statistics of all columns or of none.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, Final

import pyarrow.parquet as pq

_TEXT_CHARACTERS: Final = 32
"""Longest text in a log; longer text is cut off, so that no message bloats a log."""
_LAST_CHARACTER: Final = "\U0010ffff"
_US_PER_MS: Final = 1_000


def statistics_of(footer: pq.FileMetaData) -> dict[str, Any]:
    """Return the least and the greatest value of each column and its nulls; empty if the footer does not have all.

    Columns of binary and lists have no statistics, because the log cannot represent them.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for place in range(footer.num_columns):
        column = footer.schema.column(place)
        if "." in column.path or (column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "STRING"):
            continue
        told = [group.column(place).statistics for group in groups if group.num_rows]
        if not all(one is not None and one.has_null_count for one in told):
            return {}
        nulls[column.path] = sum(one.null_count for one in told)
        ends = [(one.min, one.max) for one in told if one.has_min_max]
        if nulls[column.path] + sum(one.num_values for one in told if one.has_min_max) < footer.num_rows:
            return {}
        if any(isinstance(end, float) and not isfinite(end) for both in ends for end in both):
            return {}
        if ends:
            least[column.path] = _at_most(min(low for low, _ in ends))
            greatest[column.path] = _at_least(max(high for _, high in ends))
    return {"minValues": least, "maxValues": greatest, "nullCount": nulls}


def _at_most(value: Any) -> Any:
    if isinstance(value, datetime):
        return _instant_text(value)
    return value[:_TEXT_CHARACTERS] if isinstance(value, str) else value


def _at_least(value: Any) -> Any:
    if isinstance(value, datetime):
        # The log has milliseconds.
        return _instant_text(value + timedelta(microseconds=-value.microsecond % _US_PER_MS))
    if not isinstance(value, str) or len(value) <= _TEXT_CHARACTERS:
        return value
    cut = value[:_TEXT_CHARACTERS] + _LAST_CHARACTER
    while cut < value:  # the value continues with the last character, too
        cut += _LAST_CHARACTER
    return cut


def _instant_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
