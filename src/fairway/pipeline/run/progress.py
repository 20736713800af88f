"""`RunProgress`: the events of a run, one at the beginning and one at the end of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fairway.pipeline.run.folder import RunFolder, TableResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The beginning or end of a step of a run."""

    step: str
    """Name of the step: a job of a run, or a table."""
    number: int
    """Number of the step, from 1."""
    total: int
    results: tuple[TableResult, ...] | None
    """The complete tables of the step; None when the step begins."""
    resumed: bool = False
    """Whether an earlier attempt wrote the tables."""

    @property
    def seconds(self) -> float:
        """Return how long the step took; 0 when it begins."""
        return max((result.seconds for result in self.results or ()), default=0.0)


Progress = Callable[[RunProgress], None]
"""Called at the beginning and the end of each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of a run: carries out the incomplete ones, and reports all of them."""

    folder: RunFolder
    names: tuple[str, ...]
    """The names of all steps, in their order."""
    progress: Progress | None

    def take(self, name: str, write: Callable[[Path], int | None], *, work: bool = False) -> None:
        """Write a table unless it is complete; for ``write`` and ``work`` see `RunFolder.write_table`."""
        if self.folder.is_whole(name):
            self.keep(name)
            return
        self.begin(name)
        self.end(name, (self.folder.write_table(name, write, work=work),))

    def keep(self, name: str, tables: Iterable[str] | None = None) -> None:
        """Report the tables of a step that an earlier attempt completed, by default the one of its name."""
        results = self.folder.results
        self._tell(name, tuple(results[table] for table in tables or (name,) if table in results), resumed=True)

    def begin(self, name: str) -> None:
        """Report that a step begins."""
        self._tell(name, None)

    def end(self, name: str, results: tuple[TableResult, ...]) -> None:
        """Report the tables of a step."""
        self._tell(name, results)

    def _tell(self, name: str, results: tuple[TableResult, ...] | None, *, resumed: bool = False) -> None:
        if self.progress is not None:
            number = self.names.index(name) + 1
            total = len(self.names)
            self.progress(RunProgress(step=name, number=number, total=total, results=results, resumed=resumed))
