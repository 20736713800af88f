"""Shared code of the commands of ``fairway pipeline``: the required extra, and the progress of a run on a terminal.

While a step runs, a line on the terminal has its name, the number of its finished Spark tasks and its duration. It also
has the estimated remaining time of the run. The estimate uses the share of each step in a run over a million messages,
and the duration of the finished steps.
"""

from __future__ import annotations

import logging
import math
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from fairway.cli._console import PlainConsole
from fairway.units import counted

if TYPE_CHECKING:
    from types import FrameType

    from pyspark import StatusTracker

    from fairway.pipeline.run.progress import RunProgress

# Those of `fairway.pipeline.run.RunOptions`, which takes the extra to import.
DEFAULT_PARITY_RATE: Final = 0.125
DEFAULT_EPOCH_MS: Final = 600_000
MoreSources = Annotated[
    list[str] | None, typer.Argument(metavar="URI", help="Sources, as if each had --source before it.")
]
"""Positional sources, so that ``--source A B`` gives two sources, and ``run A`` one."""
_WIDTH_OF_A_FILE: Final = 160
"""Columns of tables without a terminal."""
_SHARES: Final = {
    "read": 38.0,
    "reassemble": 16.0,
    "bloom_evidence": 30.0,
    "hear": 12.0,
    "order": 15.0,
    "statistics": 4.0,
}
_OTHER_SHARE: Final = 1.0
"""The weight of each step in the time of a run, together about 100; a step without a weight has this one."""
_KNOWN_ENOUGH: Final = 10.0
"""Smallest finished share of a run for an estimate of the rest."""
_MINUTE_S: Final = 60.0
_REFRESHES_PER_S: Final = 2.0
_BAR_WIDTH: Final = 20


@contextmanager
def broken_off(then: str) -> Iterator[None]:
    """If Ctrl-C or SIGTERM interrupts the block, print ``then`` and no tracebacks of calls into Spark.

    SIGTERM interrupts the block as Ctrl-C does, so that incomplete files are removed; a second SIGTERM has its usual
    effect. Call it in the main thread.
    """
    before = signal.getsignal(signal.SIGTERM)

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, before)
        at_ctrl_c = signal.getsignal(signal.SIGINT)
        if callable(at_ctrl_c):  # Spark's, which cancels its jobs first
            at_ctrl_c(number, frame)
        raise KeyboardInterrupt

    root = logging.getLogger()
    root.addFilter(_is_no_broken_call)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        PlainConsole(highlight=False, stderr=True).print(f"broken off; {then}")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        root.removeFilter(_is_no_broken_call)


def console(*, stderr: bool = False) -> Console:
    """Return a console that is wide enough for tables if there is no terminal."""
    made = PlainConsole(highlight=False, stderr=stderr)
    if not made.is_terminal:
        made.width = _WIDTH_OF_A_FILE
    return made


class StepsShown:
    """The steps of a run on stderr: a line for each that ended and, on a terminal, a bar for the one that runs."""

    def __init__(self, bar: Progress, at_first: str, steps: Iterable[str] = ()) -> None:
        """Show steps; ``steps`` names all steps of the run, for the estimate of the remaining time."""
        self.bar = bar
        self.task = bar.add_task(at_first, total=None)
        self.left = TimeLeft(steps)

    def starting(self, what: str) -> None:
        """Show the work before the first step."""
        self.bar.update(self.task, description=what)

    def step(self, progress: RunProgress) -> None:
        """Show that a step begins, or its result."""
        done = progress.number - (progress.results is None)
        self.bar.update(self.task, total=progress.total, completed=done, description=progress.step)
        if progress.results is None:
            self.bar.update(self.task, tracker=_tracker(), began_s=time.monotonic(), left_s=self.left.seconds())
        else:
            self.left.ended(progress.step, None if progress.resumed else progress.seconds)
            self.bar.console.print(_line(progress), style="dim" if progress.resumed else "")


class TablesShown:
    """Tables that are written one after the other, on stderr: a bar for the one that is written, a line after it."""

    def __init__(self, bar: Progress, at_first: str, total: int) -> None:
        """Show ``total`` tables."""
        self._bar = bar
        self._task = bar.add_task(at_first, total=total)
        self._number = 0
        self._name: str | None = None
        self._began_s = 0.0
        self._total = total

    def begins(self, name: str) -> None:
        """Show that a table begins, and that the one before it ended."""
        self.end()
        self._number += 1
        self._name, self._began_s = name, time.monotonic()
        self._bar.update(self._task, description=f"writing {name}", tracker=_tracker(), began_s=self._began_s)

    def end(self) -> None:
        """Show that the table ended that began last."""
        if self._name is None:
            return
        self._bar.update(self._task, completed=self._number)
        seconds = time.monotonic() - self._began_s
        self._bar.console.print(f"\\[{self._number}/{self._total}] {self._name:<18} {seconds:>8.1f} s")
        self._name = None


class TimeLeft:
    """Estimates the remaining time of a run from the times of its finished steps."""

    def __init__(self, steps: Iterable[str]) -> None:
        """Begin with all steps ahead."""
        self._ahead = {step: _SHARES.get(step, _OTHER_SHARE) for step in steps}
        self._measured = self._seconds = 0.0

    def ended(self, step: str, seconds: float | None) -> None:
        """Note the time of a finished step; None if an earlier attempt finished it."""
        share = self._ahead.pop(step, 0.0)
        if seconds is not None:
            self._measured += share
            self._seconds += seconds

    def seconds(self) -> float | None:
        """Return the estimated time of the unfinished steps; None while it is unknown."""
        if self._measured < _KNOWN_ENOUGH:
            return None
        return self._seconds / self._measured * sum(self._ahead.values())


class StepColumn(ProgressColumn):
    """The Spark tasks and the duration of the running step, and the estimated remaining time of the run."""

    def render(self, task: Task) -> Text:
        """Return that as text; nothing before the first step."""
        began_s = task.fields.get("began_s")
        if began_s is None:
            return Text()
        passed_s = time.monotonic() - began_s
        told = [f"{passed_s:.0f} s"]
        tasks = _tasks(task.fields.get("tracker"))
        if tasks is not None:
            told.insert(0, tasks)
        left_s = task.fields.get("left_s")
        if left_s is not None:
            told.append(_left(max(left_s - passed_s, 0.0)))
        return Text(" · ".join(told))


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show a bar on stderr during the block, if stderr is a terminal."""
    on_stderr = PlainConsole(highlight=False, stderr=True)
    columns = (
        BarColumn(bar_width=_BAR_WIDTH),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        StepColumn(),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns,
        console=on_stderr,
        transient=True,
        disable=not on_stderr.is_terminal,
        refresh_per_second=_REFRESHES_PER_S,
    ) as bar:
        yield bar


def _is_no_broken_call(record: logging.LogRecord) -> bool:
    """Return False for py4j's log records, with tracebacks, of interrupted calls."""
    return "while sending command" not in str(record.msg)


def _tracker() -> StatusTracker | None:
    """Return the status tracker of the active session; Spark Connect has none."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - needs the [spark] extra

    session = SparkSession.getActiveSession()
    try:
        return None if session is None else session.sparkContext.statusTracker()
    except AttributeError:
        return None


def _tasks(tracker: StatusTracker | None) -> str | None:
    """Return how many tasks of the stages that run are done; None when none runs, or Spark has ended."""
    if tracker is None:
        return None
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs the [spark] extra

    try:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except (Py4JError, OSError):
        return None
    running = [stage for stage in stages if stage is not None]
    if not running:
        return None
    done, tasks = sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)
    return f"{done:,} of {counted(tasks, 'task')}"


def _left(seconds: float) -> str:
    if seconds < _MINUTE_S:
        return "under a minute left"
    return f"about {math.ceil(seconds / _MINUTE_S)} min left"


def _line(step: RunProgress) -> str:
    took = "from an earlier attempt" if step.resumed else f"{step.seconds:,.1f} s"
    rows = ", ".join(f"{result.name} {result.rows:,}" for result in step.results or ())
    return f"\\[{step.number:>2}/{step.total}] {escape(step.step):<12} {took:>9}  rows: {rows}"
