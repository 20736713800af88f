"""`Batches`: micro-batches as folders; each folder appears complete, with the number of its micro-batch, once.

A micro-batch is written aside and moved to its place in one step. Spark repeats the last one if it was killed before it
had recorded its end: then it is there already, as a folder or in one that stands for several (`JoinedBatches`), and the
repetition is removed. So every row is there exactly once.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame

from fairway.pipeline.streaming.joined import JoinedBatches, remove_whole, rows_in
from fairway.storage.whole_file import make_durable

_PREFIX: Final = "batch="
_WRITER_OPTIONS: Final = {"compression": "zstd"}


class Batches:
    """The micro-batches of one table that have folders of their own."""

    def __init__(self, place: Path, aside: Path, joined: JoinedBatches) -> None:
        """Keep them at ``place``; ``aside`` is a folder of the same file system for incomplete ones.

        ``joined`` has those that were joined.
        """
        self.place = place
        self.joined = joined
        self._aside = aside

    def numbers(self) -> list[int]:
        """Return the numbers of the micro-batches that have a folder, ascending."""
        names = (child.name for child in self.place.glob(f"{_PREFIX}*"))
        return sorted(int(name.removeprefix(_PREFIX)) for name in names)

    def loose(self) -> list[int]:
        """Return the numbers from 0 on that are not in a joined folder, ascending."""
        through = self.joined.through
        return [number for number in self.numbers() if number > through]

    def folder(self, number: int) -> Path:
        """Return the folder of a micro-batch."""
        return self.place / f"{_PREFIX}{number}"

    def is_there(self, number: int) -> bool:
        """Return whether a micro-batch was committed."""
        return self.folder(number).exists() or 0 <= number <= self.joined.through

    def commit(self, frame: DataFrame, number: int, by: Iterable[str] = ()) -> None:
        """Write a micro-batch, in folders by the columns ``by``. An existing one is computed again and not written.

        It must be computed, because the computation changes Spark's state.
        """
        if self.is_there(number):
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

    def remove_through(self, last: int) -> None:
        """Remove the folders of the micro-batches from 0 up to ``last``, of those that were joined."""
        for number in self.numbers():
            if 0 <= number <= min(last, self.joined.through):
                remove_whole(self.folder(number), self._aside)

    def rows(self, number: int) -> int:
        """Return how many rows a micro-batch has."""
        return rows_in(self.folder(number))

    def clear_aside(self) -> None:
        """Remove incomplete micro-batches."""
        shutil.rmtree(self._aside, ignore_errors=True)
