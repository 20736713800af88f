"""`Batches`: micro-batches as folders; each folder appears complete, with the number of its micro-batch, once.

A micro-batch is written aside and moved to its place in one step. Spark repeats the last one if it was killed before it
had recorded its end: then the folder exists already, and the repetition is removed. So a reader of ``.../batch=*/``
finds every row exactly once, with Spark or without.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from fairway.pipeline.durable import make_durable

_PREFIX: Final = "batch="
_WRITER_OPTIONS: Final = {"compression": "zstd"}


class Batches:
    """The micro-batches of one table."""

    def __init__(self, place: Path, aside: Path) -> None:
        """Keep them at ``place``; ``aside`` is a folder of the same file system for incomplete ones."""
        self.place = place
        self._aside = aside

    def numbers(self) -> list[int]:
        """Return the numbers of the micro-batches that are there, ascending."""
        names = (child.name for child in self.place.glob(f"{_PREFIX}*"))
        return sorted(int(name.removeprefix(_PREFIX)) for name in names)

    def folder(self, number: int) -> Path:
        """Return the folder of a micro-batch."""
        return self.place / f"{_PREFIX}{number}"

    def commit(self, frame: DataFrame, number: int, by: Iterable[str] = ()) -> None:
        """Write a micro-batch, in folders by the columns ``by``. An existing one is computed again and not written.

        It must be computed, because the computation changes Spark's state.
        """
        if self.folder(number).exists():
            frame.write.format("noop").mode("overwrite").save()
            return
        self.put(number, lambda aside: frame.write.options(**_WRITER_OPTIONS).partitionBy(*by).parquet(str(aside)))

    def put(self, number: int, write: Callable[[Path], None]) -> None:
        """Call ``write`` with a path aside, and make its result the micro-batch ``number``."""
        self._aside.mkdir(parents=True, exist_ok=True)
        self.place.mkdir(parents=True, exist_ok=True)
        aside = self._aside / f"{self.place.name}-{number}-{secrets.token_hex(4)}"
        write(aside)
        aside.rename(self.folder(number))
        make_durable(self.place)

    def rows(self, number: int, under: str = "") -> int:
        """Return how many rows a micro-batch has, or the part of it in one of its folders."""
        files = (self.folder(number) / under).rglob("*.parquet")
        return sum(pq.read_metadata(file).num_rows for file in files if not file.name.startswith((".", "_")))

    def clear_aside(self) -> None:
        """Remove incomplete micro-batches."""
        shutil.rmtree(self._aside, ignore_errors=True)
