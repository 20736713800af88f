"""How far a run is: it tells of each table when it begins to write it, and when that is whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairway.pipeline.run.folder import RunFolder, TableResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """A step of a run that begins, or has ended."""

    step: str
    """The table that is written."""
    number: int
    """Of the step, from 1."""
    total: int
    result: TableResult | None
    """What came of it; None when it begins."""
    resumed: bool = False
    """Whether the table was there from an earlier attempt."""


Progress = Callable[[RunProgress], None]
"""Is told each step at its beginning and its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps into one folder: writes what is not whole, and tells of everything."""

    folder: RunFolder
    names: tuple[str, ...]
    """Of all steps, in their order."""
    progress: Progress | None

    def take(self, name: str, write: Callable[[Path], int | None], *, work: bool = False) -> None:
        """See that a table is whole; for ``write`` and ``work`` see `RunFolder.write_table`."""
        if self.folder.is_whole(name):
            self.keep(name)
            return
        self._tell(name, None)
        self._tell(name, self.folder.write_table(name, write, work=work))

    def keep(self, name: str) -> None:
        """Tell of a table that is whole from an earlier attempt."""
        self._tell(name, self.folder.results[name], resumed=True)

    def _tell(self, name: str, result: TableResult | None, *, resumed: bool = False) -> None:
        if self.progress is not None:
            number = self.names.index(name) + 1
            self.progress(RunProgress(step=name, number=number, total=len(self.names), result=result, resumed=resumed))
