"""`merged`: one sorted stream of batches out of several, for tables whose files are several sorted runs.

Memory holds about a batch of each stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_STREAM: Final = "__stream"


def merged(streams: Sequence[Iterator[pa.RecordBatch]], keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of streams that are sorted by ``keys``, nulls first, in that order.

    All batches have the same columns, the keys among them.
    """
    left = dict(enumerate(streams))
    held: dict[int, pa.Table] = {}
    while left or held:
        for number in [number for number in left if number not in held]:
            batch = next(left[number], None)
            if batch is None:
                del left[number]
            elif batch.num_rows:
                held[number] = pa.Table.from_batches([batch])
        if any(number not in held for number in left):
            continue  # a batch without rows came
        if held:
            yield from _released(held, left.keys(), keys)


def _released(held: dict[int, pa.Table], unended: Collection[int], keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield what no later row can come before, and take it out of what is held."""
    if len(held) == 1:
        (rows,) = held.values()
        held.clear()
        yield from rows.combine_chunks().to_batches()
        return
    numbers = sorted(held)
    together = pa.concat_tables(
        held[number].append_column(_STREAM, pa.repeat(pa.scalar(number, pa.int32()), held[number].num_rows))
        for number in numbers
    )
    order = pc.sort_indices(together.select(list(keys)), [(key, "ascending", "at_start") for key in keys])
    ordered = together.take(order)
    # Of each stream that goes on, rows may follow that are equal to its last one or greater.
    of_row = ordered.column(_STREAM)
    ends = [pc.index(of_row.combine_chunks()[::-1], number).as_py() for number in numbers if number in unended]
    end = min((together.num_rows - place for place in ends), default=together.num_rows)
    rest = ordered.slice(end)
    held.clear()
    for number in pc.unique(rest.column(_STREAM)).to_pylist():
        held[number] = rest.filter(pc.equal(rest.column(_STREAM), number)).drop_columns([_STREAM])
    yield from ordered.slice(0, end).drop_columns([_STREAM]).combine_chunks().to_batches()
