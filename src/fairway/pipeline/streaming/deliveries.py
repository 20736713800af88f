"""`deliveries`: reads what a stream delivered, while it goes on or afterwards, without Spark.

Invariant: each micro-batch is yielded once, in its order, whatever files its rows are in.
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
"""Micro-batches whose deliveries are in memory together."""


class DeliveryPlace(NamedTuple):
    """How far somebody has read the deliveries of a stream; two numbers, to be kept as values for JSON."""

    batch: int = -1
    """The last micro-batch that was read."""
    settled: int = 0
    """The last settlement that was read; they are numbered -1, -2, ... and come at the ends of streams."""


BEGINNING: Final = DeliveryPlace()
"""Nothing was read."""


def deliveries(out: str | PathLike[str], after: DeliveryPlace = BEGINNING) -> Iterator[tuple[DeliveryPlace, pa.Table]]:
    """Yield what a stream into a folder delivered after a place, and with each micro-batch the place behind it.

    The tables have the columns of ``delivered``, and ``batch``, the number of the micro-batch; there may be some
    without rows. Ends when all that is there now was read. Raises `ConfigurationError` for a folder without a stream.
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
