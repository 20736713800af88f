"""Rows about SDS messages, of several tables, with a number instead of (channel_id, message_id).

A stage that looks up messages of one table in another puts the rows of both into buckets by that key. It compares
numbers within a bucket. The numbers are exact: with hashes a sender could hide a loss by a crafted collision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from fairway.pipeline.codes import NOTHING, Codes, codes_of_pairs

KEY: Final = ("channel_id", "message_id")
"""The columns that identify an SDS message."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A table, and the number of the SDS message of each row."""

    table: pa.Table
    keys: Codes
    """The number of the message of each row."""
    count: int
    """Count of the numbers, from 0, in all tables of the call of `keyed`."""

    def rows(self) -> Codes:
        """Return for each number its last row, `NOTHING` if it has none."""
        rows = np.full(self.count, NOTHING, np.int64)
        rows[self.keys] = np.arange(len(self.keys))
        return rows


def keyed(*tables: pa.Table) -> Iterator[Keyed]:
    """Yield the tables with numbers: rows have the same number exactly if `KEY` is the same."""
    columns = (
        pa.chunked_array([chunk for table in tables for chunk in table.column(name).chunks], pa.string())
        for name in KEY
    )
    codes, count = codes_of_pairs(*columns)
    ends = np.cumsum([0, *(table.num_rows for table in tables)])
    for table, (start, end) in zip(tables, pairwise(ends.tolist()), strict=True):
        yield Keyed(table, codes[start:end], count)
