"""Plant bugs and see what finds them: ``python -m tests.mutants run``, and ``check`` whether their places still fit."""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from fnmatch import fnmatch
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tests.mutants.catalogue import TESTS, WORLDS, Mutant, misfits, mutants
from tests.mutants.planting import Effort, Garden, Run, Verdict

_EFFORT = Effort()


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; return 0 if all is well."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="list mutants whose text does not stand in the sources exactly once")
    run = commands.add_parser("run", help="plant mutants, one at a time, and print which are caught")
    run.add_argument("--names", default="*", metavar="GLOB", help="only those with such a name, or area/name")
    run.add_argument("--count", type=int, metavar="K", help="only so many, drawn at random")
    run.add_argument("--seed", type=int, default=1, help="what the draw follows from")
    run.add_argument("--by", choices=(WORLDS, TESTS, "all"), default="all", help="only those that these catch")
    run.add_argument("--worlds", type=int, default=_EFFORT.worlds, help="worlds for each, at most")
    run.add_argument("--first-seed", type=int, default=_EFFORT.first_seed, help="seed of the first world")
    run.add_argument("--budget-s", type=float, default=_EFFORT.budget_s, help="for each, no world begins later")
    run.add_argument("--world-s", type=float, default=_EFFORT.world_s, help="a world that takes longer hangs")
    run.add_argument(
        "--plan",
        type=shlex.split,
        default=_EFFORT.plan,
        metavar="OPTIONS",
        help="what all worlds have in common, as one word of options of 'fairway simulate'",
    )
    run.add_argument("--all-worlds", action="store_true", help="go on after the first world that breaks")
    run.add_argument("--jobs", type=int, default=1, help="mutants side by side")
    run.add_argument("--least", type=float, default=0.95, help="share that worlds must catch for exit code 0")
    run.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    options = parser.parse_args(words)
    found = mutants()
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
        if (fnmatch(mutant.name, options.names) or fnmatch(f"{mutant.area}/{mutant.name}", options.names))
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
    baseline: Run | None = None
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        garden = Garden(Path(folder), effort)
        if any(mutant.caught_by == WORLDS for mutant in chosen):
            baseline = garden.baseline()
            _tell_baseline(console, baseline)
        verdicts = _try_all(garden, chosen, options.jobs, console)
    share = _share(verdicts)
    if options.json:
        answer = {
            "effort": {name: getattr(effort, name) for name in effort.__slots__},
            "baseline": None if baseline is None else {"worlds": baseline.worlds, "broken": list(baseline.broken)},
            "mutants": [verdict.as_json() for verdict in verdicts],
            "share_caught_by_worlds": share,
        }
        print(json.dumps(answer, indent=2))
    else:
        print(table(verdicts))
    missed_by_tests = any(not verdict.caught for verdict in verdicts if verdict.mutant.caught_by == TESTS)
    false_alarm = baseline is not None and bool(baseline.broken)
    return int(missed_by_tests or false_alarm or (share is not None and share < options.least))


def _try_all(garden: Garden, chosen: list[Mutant], jobs: int, console: Console) -> list[Verdict]:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("mutants, {task.description}"), TimeElapsedColumn())
    verdicts: dict[str, Verdict] = {}
    pool = ThreadPoolExecutor(jobs)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(chosen))
        try:
            for done in as_completed([pool.submit(garden.try_out, mutant) for mutant in chosen]):
                verdict = done.result()
                verdicts[verdict.mutant.name] = verdict
                caught = sum(one.caught for one in verdicts.values())
                progress.update(task, advance=1, description=f"{caught} caught")
                if not console.is_terminal:
                    console.print(_line(verdict), markup=False, soft_wrap=True)
        finally:
            pool.shutdown(cancel_futures=True)
    return [verdicts[mutant.name] for mutant in chosen]


def _tell_baseline(console: Console, baseline: Run) -> None:
    if not baseline.broken:
        console.print(f"without a bug {baseline.worlds} worlds hold ({baseline.seconds:.0f} s)", markup=False)
        return
    console.rule("FALSE ALARM: worlds break without any planted bug")
    console.print(f"{len(baseline.broken)} of {baseline.worlds} worlds: {baseline.broken}", markup=False)
    for sentence in (*baseline.sentences, baseline.replay):
        console.print(sentence, markup=False, soft_wrap=True)
    console.rule()


def _share(verdicts: list[Verdict]) -> float | None:
    """Return the share that worlds catch of those that they should; what has no effect does not count."""
    counted = [one for one in verdicts if one.mutant.caught_by == WORLDS and (one.caught or not one.mutant.survives)]
    return sum(one.caught for one in counted) / len(counted) if counted else None


def table(verdicts: list[Verdict]) -> str:
    """Return what became of each bug, caught ones first, and the shares at the end."""
    lines: list[str] = []
    for title, kind in (("caught", True), ("SURVIVED", False)):
        some = [verdict for verdict in verdicts if verdict.caught is kind]
        if some:
            lines += ["", f"{title}: {len(some)}", *map(_line, some)]
    share = _share(verdicts)
    if share is not None:
        lines += ["", f"worlds alone catch {share:.1%} of the bugs that have an effect"]
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
    alarms = f" (breaks without the bug, too: worlds {', '.join(map(str, verdict.false_alarms))})"
    return f"  {name:<62} {where:>13} {run.seconds:6.0f} s  {what}{alarms if verdict.false_alarms else ''}"


if __name__ == "__main__":
    sys.exit(main())
