"""Micro-batches as folders: each appears whole, under its number, once.

A micro-batch is written aside and moved to its place in one step. Spark repeats the last one when it was killed before
it noted that it was done: then the folder is there already, and what was repeated is thrown away. So whoever reads
``.../batch=*/`` sees every row exactly once, with Spark or without.
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
        """Keep them at ``place``; ``aside`` is a folder of the same file system that nobody reads."""
        self.place = place
        self._aside = aside

    def numbers(self) -> list[int]:
        """Return the numbers of the micro-batches that are there, ascending."""
        names = (child.name for child in self.place.glob(f"{_PREFIX}*"))
        return sorted(int(name.removeprefix(_PREFIX)) for name in names)

    def folder(self, number: int) -> Path:
        """Return where a micro-batch is or will be."""
        return self.place / f"{_PREFIX}{number}"

    def commit(self, frame: DataFrame, number: int, by: Iterable[str] = ()) -> None:
        """Write a micro-batch, in folders by some columns. One that is there already is computed and thrown away.

        It is computed because Spark's state moves on with the computation.
        """
        if self.folder(number).exists():
            frame.write.format("noop").mode("overwrite").save()
            return
        self.put(number, lambda aside: frame.write.options(**_WRITER_OPTIONS).partitionBy(*by).parquet(str(aside)))

    def put(self, number: int, write: Callable[[Path], None]) -> None:
        """Let something be written aside, and make it a micro-batch."""
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
        """Throw away what was left unfinished."""
        shutil.rmtree(self._aside, ignore_errors=True)
