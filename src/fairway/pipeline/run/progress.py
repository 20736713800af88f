"""`RunProgress`: the events of a run, one when it begins a table and one when the table is complete."""

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
    """Number of the step, from 1."""
    total: int
    result: TableResult | None
    """The complete table; None when the step begins."""
    resumed: bool = False
    """Whether an earlier attempt wrote the table."""


Progress = Callable[[RunProgress], None]
"""Called at the beginning and the end of each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of a run: writes the tables that are not complete, and reports all of them."""

    folder: RunFolder
    names: tuple[str, ...]
    """The names of all steps, in their order."""
    progress: Progress | None

    def take(self, name: str, write: Callable[[Path], int | None], *, work: bool = False) -> None:
        """Write a table unless it is complete; for ``write`` and ``work`` see `RunFolder.write_table`."""
        if self.folder.is_whole(name):
            self.keep(name)
            return
        self._tell(name, None)
        self._tell(name, self.folder.write_table(name, write, work=work))

    def keep(self, name: str) -> None:
        """Report a table that an earlier attempt completed."""
        self._tell(name, self.folder.results[name], resumed=True)

    def _tell(self, name: str, result: TableResult | None, *, resumed: bool = False) -> None:
        if self.progress is not None:
            number = self.names.index(name) + 1
            self.progress(RunProgress(step=name, number=number, total=len(self.names), result=result, resumed=resumed))
