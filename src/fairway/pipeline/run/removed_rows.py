"""`RemovedRows`: the rows of a table's files that do not count any more.

A file is never changed. What took the place of some of its rows stands in other files, and a file beside them, which
the manifest names, has the places of the rows that count no more::

    ROOT/tables/NAME/_removed-1f0c9a....parquet     file, row (its place in that file, from 0)

Spark and Arrow pass over names that begin with an underscore when they read a folder.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow.fs import FileSystem

PREFIX: Final = "_removed-"
PLACES: Final = pa.schema([("file", pa.string()), ("row", pa.int64())])
"""Places of rows: the name of a file of the table, and the number of the row in it, from 0."""

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """By file, the places of its rows that do not count, in ascending order."""

    by_file: Mapping[str, Places] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.by_file.values()))

    @classmethod
    def of(cls, places: pa.Table) -> Self:
        """Return what a table of `PLACES` lists, each place once or several times."""
        files = pc.unique(places.column("file")).to_pylist()
        rows = places.column("row")
        return cls({file: np.unique(rows.filter(pc.equal(places.column("file"), file)).to_numpy()) for file in files})

    def and_these(self, further: pa.Table) -> Self:
        """Return these and the places in a table of `PLACES`."""
        return type(self).of(pa.concat_tables([self.places(), further.select(PLACES.names).cast(PLACES)]))

    def places(self) -> pa.Table:
        """Return them as a table of `PLACES`."""
        parts = [
            pa.table([pa.repeat(file, len(rows)), pa.array(rows)], schema=PLACES)
            for file, rows in sorted(self.by_file.items())
        ]
        return pa.concat_tables(parts) if parts else PLACES.empty_table()

    def counting(self, file: str, start: int, count: int) -> NDArray[np.bool_]:
        """Return which of ``count`` rows of a file, from the row ``start`` on, count."""
        mask = np.ones(count, np.bool_)
        gone = self.by_file.get(file)
        if gone is not None:
            first, end = np.searchsorted(gone, [start, start + count])
            mask[gone[first:end] - start] = False
        return mask

    def write(self, filesystem: FileSystem, folder: str) -> str:
        """Write them into a new file in the folder of their table, and return its name."""
        name = f"{PREFIX}{uuid4().hex[:16]}.parquet"
        with filesystem.open_output_stream(posixpath.join(folder, name)) as sink:
            pq.write_table(self.places(), sink, compression="zstd", use_dictionary=["file"], store_schema=False)
        return name

    @classmethod
    def read(cls, filesystem: FileSystem, folder: str, name: str) -> Self:
        """Return what `write` wrote under a name; nothing for the empty name."""
        if not name:
            return cls()
        with filesystem.open_input_file(posixpath.join(folder, name)) as source:
            return cls.of(pq.read_table(source))


NOTHING_REMOVED: Final = RemovedRows()
