"""Plant bugs and see what finds them: ``python -m tests.mutants run``.

``check`` says whether their places still fit, ``table`` prints what a run has written down so far.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tests.mutants.catalogue import TESTS, WORLDS, Mutant, misfits, mutants
from tests.mutants.planting import Effort, Garden, Verdict, World

_EFFORT = Effort()


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; return 0 if all is well."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="list mutants whose text does not stand in the sources exactly once")
    told = commands.add_parser("table", help="print what became of those in a record, of a run that has ended or not")
    told.add_argument("record", type=Path, metavar="FILE", help="what a run wrote with --record")
    run = commands.add_parser("run", help="plant mutants, one at a time, and print which are caught")
    run.add_argument(
        "--names", nargs="+", default=["*"], metavar="GLOB", help="only those with such names, or area/name"
    )
    run.add_argument("--count", type=int, metavar="K", help="only so many, drawn at random")
    run.add_argument("--seed", type=int, default=1, help="what the draw follows from")
    run.add_argument("--by", choices=(WORLDS, TESTS, "all"), default="all", help="only those that these catch")
    run.add_argument("--worlds", type=int, default=_EFFORT.worlds, help="worlds to choose from")
    run.add_argument("--first-seed", type=int, default=_EFFORT.first_seed, help="seed of the first world")
    run.add_argument("--budget-s", type=float, default=_EFFORT.budget_s, help="CPU time beyond one world of each kind")
    run.add_argument("--world-s", type=float, default=_EFFORT.world_s, help="a world that takes longer hangs")
    run.add_argument(
        "--plan",
        type=shlex.split,
        default=_EFFORT.plan,
        metavar="OPTIONS",
        help="what all drawn worlds have in common, as one word of options of 'fairway simulate'",
    )
    run.add_argument("--all-worlds", action="store_true", help="go on after the first world that breaks")
    run.add_argument("--jobs", type=int, default=1, help="mutants side by side")
    run.add_argument("--least", type=float, default=0.95, help="share that worlds must catch for exit code 0")
    run.add_argument("--record", type=Path, metavar="FILE", help="write down what came of each, and go on from there")
    run.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    options = parser.parse_args(words)
    found = mutants()
    if options.command == "table":
        verdicts = Record(options.record, "").verdicts(found)
        print(table(verdicts))
        tried, planned = len(_counted(verdicts)), [mutant for mutant in found if mutant.caught_by == WORLDS]
        print(f"{tried} with an effect tried, of {len(planned)} that worlds are to catch", file=sys.stderr)
        return 0
    chosen = found if options.command == "check" else _chosen(found, options)
    wrong = list(misfits(chosen))
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    if wrong or options.command == "check":
        print(f"{len(chosen)} mutants, {len(wrong)} that do not fit the sources", file=sys.stderr)
        return int(bool(wrong))
    return _run(chosen, options)


def _chosen(found: list[Mutant], options: argparse.Namespace) -> list[Mutant]:
    chosen = [
        mutant
        for mutant in found
        if any(fnmatch(mutant.name, glob) or fnmatch(f"{mutant.area}/{mutant.name}", glob) for glob in options.names)
        and options.by in {"all", mutant.caught_by}
    ]
    if options.count is not None:
        print(f"{options.count} of {len(chosen)} mutants, drawn with --seed {options.seed}", file=sys.stderr)
        chosen = random.Random(options.seed).sample(chosen, min(options.count, len(chosen)))
    return chosen


def _run(chosen: list[Mutant], options: argparse.Namespace) -> int:
    effort = Effort(
        worlds=options.worlds,
        first_seed=options.first_seed,
        budget_s=options.budget_s,
        world_s=options.world_s,
        plan=tuple(options.plan),
        all_worlds=options.all_worlds,
    )
    console = Console(stderr=True, highlight=False)
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        Garden(Path(folder), effort, jobs=options.jobs) as garden,
        Record(options.record, garden.fingerprint) as record,
    ):
        if any(mutant.caught_by == WORLDS for mutant in chosen):
            garden.baseline(mutants(), known=record.worlds, told=record.note_world)
            _tell_baseline(console, garden.worlds)
        verdicts = _try_all(garden, chosen, options.jobs, console, record)
    share = _share(verdicts)
    if options.json:
        answer = {
            "effort": {name: getattr(effort, name) for name in effort.__slots__},
            "baseline": [world.as_json() for world in garden.worlds],
            "mutants": [verdict.as_json() for verdict in verdicts],
            "share_caught_by_worlds": share,
        }
        print(json.dumps(answer, indent=2))
    else:
        print(table(verdicts))
    missed_by_tests = any(not verdict.caught for verdict in verdicts if verdict.mutant.caught_by == TESTS)
    false_alarm = any(world.broken for world in garden.worlds)
    return int(missed_by_tests or false_alarm or (share is not None and share < options.least))


class Record:
    """A file with what came of each world and each bug, one JSON object a line, from which a later run goes on.

    Worlds count for the same sources and plans only; bugs count until their line is taken out of the file.
    """

    def __init__(self, path: Path | None, fingerprint: str) -> None:
        self._path = path
        self._fingerprint = fingerprint
        self._file: TextIO | None = None
        self._lock = threading.Lock()
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []
        self.worlds = [row for row in rows if row.get("fingerprint") == fingerprint]
        self._verdicts = {row["name"]: row for row in rows if "name" in row}

    def __enter__(self) -> Self:
        if self._path is not None:
            self._file = self._path.open("a", encoding="utf-8", buffering=1)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def verdict(self, mutant: Mutant) -> Verdict | None:
        """Return what became of a bug before."""
        row = self._verdicts.get(mutant.name)
        return None if row is None else Verdict.of_json(row, mutant)

    def verdicts(self, found: list[Mutant]) -> list[Verdict]:
        """Return what became of each of these bugs that is in the file."""
        return [verdict for mutant in found if (verdict := self.verdict(mutant)) is not None]

    def note_world(self, world: World) -> None:
        """Write down a world as it is without a bug."""
        self._write(world.as_json() | {"fingerprint": self._fingerprint})

    def note(self, verdict: Verdict) -> None:
        """Write down what became of a bug."""
        self._write(verdict.as_json())

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            with self._lock:
                self._file.write(json.dumps(row) + "\n")


def _try_all(garden: Garden, chosen: list[Mutant], jobs: int, console: Console, record: Record) -> list[Verdict]:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("mutants, {task.description}"), TimeElapsedColumn())
    verdicts = {mutant.name: known for mutant in chosen if (known := record.verdict(mutant)) is not None}
    # What has no effect takes longest, since mostly no world notices it, and says least.
    rest = sorted(
        (mutant for mutant in chosen if mutant.name not in verdicts), key=lambda mutant: bool(mutant.survives)
    )
    pool = ThreadPoolExecutor(jobs)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(rest))
        try:
            for done in as_completed([pool.submit(garden.try_out, mutant) for mutant in rest]):
                verdict = done.result()
                record.note(verdict)
                verdicts[verdict.mutant.name] = verdict
                caught = sum(one.caught for one in verdicts.values())
                progress.update(task, advance=1, description=f"{caught} caught")
                if not console.is_terminal:
                    console.print(_line(verdict), markup=False, soft_wrap=True)
        finally:
            pool.shutdown(cancel_futures=True)
    return [verdicts[mutant.name] for mutant in chosen]


def _tell_baseline(console: Console, worlds: list[World]) -> None:
    cpu_s = sum(world.cpu_s for world in worlds)
    broken = [world for world in worlds if world.broken]
    told = f"without a bug {len(worlds) - len(broken)} of {len(worlds)} worlds hold ({cpu_s:.0f} s)"
    console.print(told, markup=False)
    if broken:
        console.rule("FALSE ALARM: worlds break without any planted bug, and are left out")
        for world in broken:
            for sentence in (world.replay, *world.sentences):
                console.print(sentence, markup=False, soft_wrap=True)
        console.rule()


def _counted(verdicts: list[Verdict]) -> list[Verdict]:
    """Return those that worlds are to catch; what has no effect does not count."""
    return [one for one in verdicts if one.mutant.caught_by == WORLDS and (one.caught or not one.mutant.survives)]


def _share(verdicts: list[Verdict]) -> float | None:
    counted = _counted(verdicts)
    return sum(one.caught for one in counted) / len(counted) if counted else None


def table(verdicts: list[Verdict]) -> str:
    """Return what became of each bug, caught ones first, what each area and invariant caught, and the share."""
    lines: list[str] = []
    for title, kind in (("caught", True), ("SURVIVED", False)):
        some = [verdict for verdict in verdicts if verdict.caught is kind]
        if some:
            lines += ["", f"{title}: {len(some)}", *map(_line, some)]
    counted = _counted(verdicts)
    if counted:
        tried = Counter(verdict.mutant.area for verdict in counted)
        caught = Counter(verdict.mutant.area for verdict in counted if verdict.caught)
        by = Counter(name for verdict in counted for name in verdict.invariants)
        lines += ["", "caught by worlds, of those with an effect"]
        lines += [f"  {area:<62} {caught[area]:>4}/{tried[area]}" for area in sorted(tried)]
        lines += ["", "noticed by (a world may break several)"]
        lines += [f"  {name:<62} {count:>4}" for name, count in by.most_common()]
        lines += ["", f"worlds alone catch {caught.total() / tried.total():.1%} of the bugs that have an effect"]
    return "\n".join(lines)


def _line(verdict: Verdict) -> str:
    mutant, run = verdict.mutant, verdict.run
    name = f"{mutant.area}/{mutant.name}"
    where = f"{len(run.broken)}/{run.worlds} worlds" if mutant.caught_by == WORLDS else "tests"
    if verdict.caught:
        what = ", ".join(verdict.invariants)
    elif mutant.survives:
        what = f"without effect: {mutant.survives}"
    else:
        what = f"survived; a user suffers: {mutant.harm}"
        if mutant.caught_by == WORLDS:
            what += f" ({run.passing} worlds pass its place, in {run.changed} of {run.worlds} something went otherwise)"
    return f"  {name:<62} {where:>13} {run.seconds:6.0f} s  {what}"


if __name__ == "__main__":
    sys.exit(main())
