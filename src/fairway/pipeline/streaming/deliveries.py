"""`deliveries`: reads what a stream delivered, while it goes on or afterwards, without Spark.

Invariant: each micro-batch comes once, in its order, whether its folder is still there or it was joined with others.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fairway.errors import ConfigurationError
from fairway.pipeline.location import local_path
from fairway.pipeline.streaming.batches import Batches
from fairway.pipeline.streaming.channel_core import DELIVERED
from fairway.pipeline.streaming.compaction import BATCH, JOINED_SCHEMA
from fairway.pipeline.streaming.folder import emitted_in
from fairway.pipeline.streaming.joined import batches_of, parquet_files

_WHAT: Final = f"what={DELIVERED}"
_LOOKS: Final = 100
"""So often in a row a file may be gone that was there a moment before: then it is missing."""


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
    looks = 0
    while True:
        try:
            for place, table in _behind(emitted, place):  # noqa: B020 - goes on behind what it gave
                looks = 0
                yield place, table
        except FileNotFoundError as error:
            looks += 1  # joined with others, since the folder was listed
            if looks == _LOOKS:
                raise ConfigurationError(
                    f"{error.filename or error}: belongs to the stream and is missing; put it back, or begin the "
                    "stream anew in another folder"
                ) from error
        else:
            return


def _behind(emitted: Batches, after: DeliveryPlace) -> Iterator[tuple[DeliveryPlace, pa.Table]]:
    numbers = emitted.numbers()  # before the joined ones: what is joined meanwhile is in both
    place = after
    for one in emitted.joined.ranges():
        if one.last > place.batch:
            for number, table in _by_number(batches_of(_files(one.folder))):
                if number > place.batch:
                    place = place._replace(batch=number)
                    yield place, table
            place = place._replace(batch=one.last)
    for number in numbers:
        if number > place.batch:
            place = place._replace(batch=number)
            yield place, _rows(emitted.folder(number), number)
    for number in sorted((number for number in numbers if number < 0), reverse=True):
        if number < place.settled:
            place = place._replace(settled=number)
            yield place, _rows(emitted.folder(number), number)


def _files(folder: Path) -> list[Path]:
    """Return the files with deliveries in a folder; raise `FileNotFoundError` if it went meanwhile."""
    found = parquet_files(folder / _WHAT)
    if not folder.is_dir():  # it goes in one step, so that all were found if it is there after that
        raise FileNotFoundError(2, "joined with others", str(folder))
    return found


def _by_number(rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Yield rows, which are in the order of their micro-batches, micro-batch by micro-batch."""
    held: list[pa.RecordBatch] = []
    number = -1
    for batch in rows:
        for found in pc.unique(batch[BATCH.name]).to_pylist():
            if found != number and held:
                yield number, pa.Table.from_batches(held)
                held = []
            number = found
            held.append(batch.filter(pc.equal(batch[BATCH.name], found)))
    if held:
        yield number, pa.Table.from_batches(held)


def _rows(folder: Path, number: int) -> pa.Table:
    schema = JOINED_SCHEMA.remove(JOINED_SCHEMA.get_field_index(BATCH.name))
    found = [pa.Table.from_batches([batch]).select(schema.names) for batch in batches_of(_files(folder))]
    table = pa.concat_tables([schema.empty_table(), *(one.cast(schema) for one in found)])
    return table.append_column(BATCH, pa.repeat(pa.scalar(number, BATCH.type), table.num_rows))
