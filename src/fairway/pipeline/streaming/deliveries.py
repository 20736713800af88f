"""`deliveries`: reads the delivered messages of a running or ended stream, without Spark.

Invariant: each micro-batch is yielded once and in order, also after a compaction of its files.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fairway.pipeline.location import local_path
from fairway.pipeline.streaming.batch_table import BATCH, SETTLEMENTS
from fairway.pipeline.streaming.channel_core import DELIVERED
from fairway.pipeline.streaming.folder import emitted_in

_AT_ONCE: Final = 16
"""Largest number of micro-batches in memory together."""


class DeliveryPlace(NamedTuple):
    """A reader's place in the deliveries of a stream: two integers, which can be kept as JSON."""

    batch: int = -1
    """The last micro-batch that was read."""
    settled: int = 0
    """The last settlement that was read. Settlements are numbered -1, -2, ... and are made at the ends of streams."""


BEGINNING: Final = DeliveryPlace()
"""The place before the first delivery."""


def deliveries(out: str | PathLike[str], after: DeliveryPlace = BEGINNING) -> Iterator[tuple[DeliveryPlace, pa.Table]]:
    """Yield the deliveries of a stream after a place: for each micro-batch the place after it, and its table.

    The tables have the columns of ``delivered`` and ``batch``, the number of the micro-batch; a table may be empty.
    Ends after the last micro-batch and settlement now in the folder. Raises `ConfigurationError` for a folder without a
    stream.
    """
    emitted = emitted_in(local_path(out, "the folder of a stream"))
    place = DeliveryPlace(*after)
    last = emitted.last()
    while place.batch < last:
        through = min(last, place.batch + _AT_ONCE)
        rows = _delivered(emitted.rows(place.batch, through))
        for number in range(place.batch + 1, through + 1):
            place = place._replace(batch=number)
            yield place, rows.filter(pc.equal(rows[BATCH], number))
    for count in range(-place.settled + 1, emitted.last(SETTLEMENTS) + 1):
        place = place._replace(settled=-count)
        yield place, _delivered(emitted.rows(-count - 1, -count))


def _delivered(rows: pa.Table) -> pa.Table:
    kept = rows.filter(pc.equal(rows["what"], DELIVERED)).drop_columns(["what", BATCH])
    numbers = rows[BATCH].filter(pc.equal(rows["what"], DELIVERED))
    return kept.append_column(BATCH, numbers)
