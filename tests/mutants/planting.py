"""Plant a bug in a copy of the sources, and see whether worlds, or the tests named for it, notice.

First worlds are run without a bug (`Garden.baseline`): those that break are left out, and of the others it is known
what each costs and which of the places it passes where bugs are to be planted. A bug is then tried in the worlds that
pass its place: in one of each kind of the tour, so that none is left out which alone could notice it, and then in as
many more as the budget is for, first in those of kinds in which something went otherwise. Cheap ones come first in
both, and those that caught others of its area. In between it is asked whether the tour costs what it is known to cost.
"""

from __future__ import annotations

import ast
import compileall
import hashlib
import os
import pickle
import queue
import re
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Protocol, Self

import typer
from tests.mutants.catalogue import ROOT, SOURCES, TESTS, WORLDS, Mutant
from tests.mutants.nursery import PASSED, Nursery, Request, Result

from fairway.cli._plan_options import with_plan
from fairway.simulation.known_costs import COSTS, KnownCosts, Unusual
from fairway.simulation.plan import replay_command
from fairway.simulation.random_plans import CALM, draw_plan
from fairway.simulation.tour import KINDS, tour_plan

_TESTS_S: Final = 900.0
_FAILED: Final = re.compile(r"(FAILED|ERROR) \S+\.py")
CRASHED: Final = "the simulator itself ends"
HUNG: Final = "the tests hang"
TROUBLES: Final[Mapping[str, frozenset[str]]] = {
    "acknowledgements": frozenset({"mixed_options", "absences_per_hour"}),
    "channel": frozenset({"slow_readers", "handler_failures", "tight_quotas"}),
    "dependencies": frozenset({"hostile", "absences_per_hour", "store_gaps"}),
    "encryption": frozenset({"encrypted"}),
    "light_client": frozenset({"service_nodes"}),
    "rate_limit": frozenset({"rate_limit", "node_rate"}),
    "repair": frozenset({"store_gaps", "partitions"}),
    "retrieval": frozenset({"absences_per_hour", "store_page", "store_lies"}),
    "segmentation": frozenset({"hostile", "parity_rate", "tight_quotas", "bursts"}),
    "sending": frozenset({"refusals", "slow_uplinks", "answer_loss"}),
    "storage": frozenset({"store"}),
}
"""By area, which fields of plans are about it: worlds that have one of them are tried first."""
_FITTING: Final = 4
_SHOWN: Final = 3
_TOURS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard each bug is looked for."""

    worlds: int = 2 * len(KINDS)
    """Worlds that are run without a bug, to choose from: two tours of all kinds of trouble first, then drawn ones."""
    first_seed: int = 1
    budget_s: float = 30.0
    """CPU time for each bug beyond one world of each kind: as many worlds as take so much without it."""
    world_s: float = 60.0
    """A world that takes more CPU time counts as one that hangs."""
    plan: tuple[str, ...] = ("--participants", "3", "--settle-ms", "3600000")
    """What all drawn worlds have in common: few participants, for most bugs show in many small worlds sooner than in
    few large ones."""
    all_worlds: bool = False
    """Whether to go on after the first world that breaks, to see how many do."""


@dataclass(slots=True, kw_only=True)
class World:
    """A world as it is without a bug."""

    seed: int
    plan: bytes
    """Its plan, pickled."""
    replay: str
    cpu_s: float
    kind: int | None = None
    """Which kind of the tour it is of; a drawn one is of none."""
    troubles: frozenset[str] = frozenset()
    """Fields of its plan that are not as in a calm world."""
    broken: tuple[str, ...] = ()
    """The invariants that break in it."""
    sentences: tuple[str, ...] = ()
    trace_hash: str = ""
    costs: Mapping[str, int] = field(default_factory=dict)
    passes: frozenset[str] = frozenset()
    """Names of the bugs whose places it passes."""
    caught: Counter[str] = field(default_factory=Counter)
    """Bugs that it caught so far, by area."""
    tried: Counter[str] = field(default_factory=Counter)

    def worth(self, area: str) -> float:
        """Return how likely it catches a bug of an area for each second that it takes.

        That is by what it caught before, and before it was tried by whether it has troubles of the area's kind.
        """
        caught = 2 * self.caught[area] + self.caught.total()
        tried = 2 * self.tried[area] + self.tried.total()
        is_fitting = not TROUBLES.get(area, frozenset()).isdisjoint(self.troubles)
        return (1 + caught) / (4 + tried) / max(self.cpu_s, 0.1) * (_FITTING if is_fitting else 1)

    def as_json(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        return {
            "world": self.seed,
            "replay": self.replay,
            "cpu_s": round(self.cpu_s, 2),
            "broken": list(self.broken),
            "sentences": list(self.sentences),
            "trace_hash": self.trace_hash,
            "costs": dict(self.costs),
            "passes": sorted(self.passes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of looking for one bug."""

    worlds: int
    """Worlds that were run."""
    broken: Mapping[int, tuple[str, ...]]
    """The invariants that broke, by seed of the world; under 0 what all of a tour broke, under -1 what broke outside
    of any."""
    sentences: tuple[str, ...] = ()
    """Of the first broken world."""
    seconds: float = 0.0
    replay: str = ""
    passing: int = 0
    """Worlds, of all that there are, that pass the place of the bug."""
    changed: int = 0
    """Worlds, of those that were run, in which something went otherwise than without the bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one planted bug."""

    mutant: Mutant
    caught: bool
    run: Run

    @property
    def invariants(self) -> tuple[str, ...]:
        """What noticed it."""
        return tuple(dict.fromkeys(name for names in self.run.broken.values() for name in names))

    def as_json(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        run = self.run
        return {
            "name": self.mutant.name,
            "area": self.mutant.area,
            "caught_by": self.mutant.caught_by,
            "caught": self.caught,
            "worlds": run.worlds,
            "passing": run.passing,
            "changed": run.changed,
            "broken": {str(seed): list(names) for seed, names in run.broken.items()},
            "invariants": list(self.invariants),
            "sentences": list(run.sentences),
            "replay": run.replay,
            "seconds": round(run.seconds, 1),
            "survives": self.mutant.survives,
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any], mutant: Mutant) -> Verdict:
        """Return what `as_json` wrote down."""
        run = Run(
            worlds=row["worlds"],
            passing=row["passing"],
            changed=row["changed"],
            broken={int(seed): tuple(names) for seed, names in row["broken"].items()},
            sentences=tuple(row["sentences"]),
            replay=row["replay"],
            seconds=row["seconds"],
        )
        return cls(mutant=mutant, caught=row["caught"], run=run)


class Runner(Protocol):
    """What runs worlds of the sources in a folder."""

    def run(self, request: Request, told: Callable[[Result], object]) -> str:
        """Run worlds, and tell each result as it comes; return why it ended early, or nothing."""

    def close(self) -> None:
        """End whatever runs."""


class Garden:
    """A copy of the sources as they are now, in which bugs are planted one at a time, on so many places at once."""

    def __init__(
        self,
        folder: Path,
        effort: Effort,
        *,
        jobs: int = 1,
        runner: Callable[[], Runner] = Nursery,
        sources: Path = SOURCES,
        known: KnownCosts | None = None,
    ) -> None:
        self.folder = folder
        self.effort = effort
        self.worlds: list[World] = []
        self._sources = sources
        self._known = known or KnownCosts.load()
        self._jobs = jobs
        self._new_runner = runner
        self._runners: queue.SimpleQueue[Runner] = queue.SimpleQueue()
        self._begun: list[Runner] = []
        shutil.copytree(sources, self.clean / "fairway", ignore=shutil.ignore_patterns("__pycache__"))
        # Compiled once, what does not change need not be compiled for each bug.
        compileall.compile_dir(self.clean, quiet=1)

    @property
    def clean(self) -> Path:
        """The copy without a bug."""
        return self.folder / "clean"

    @property
    def fingerprint(self) -> str:
        """What tells these sources and plans from others."""
        digest = hashlib.sha256(repr(self.effort.plan).encode())
        for path in sorted(each for kind in ("*.py", "*.json") for each in (self.clean / "fairway").rglob(kind)):
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for runner in self._begun:
            runner.close()

    def baseline(
        self,
        mutants: Sequence[Mutant],
        *,
        known: Sequence[Mapping[str, Any]] = (),
        told: Callable[[World], object] = lambda _: None,
    ) -> list[World]:
        """Run the worlds without any bug, but for those that are known; return them all."""
        given = plan_fields(self.effort.plan)
        folder = self._mark(mutants)
        found = {row["world"]: row for row in known}
        worlds: dict[int, World] = {}
        for seed in range(self.effort.first_seed, self.effort.first_seed + self.effort.worlds):
            is_on_tour = seed <= _TOURS * len(KINDS)
            plan = tour_plan(seed) if is_on_tour else draw_plan(seed, **given)
            troubles = frozenset(
                each.name for each in fields(plan) if getattr(plan, each.name) != getattr(CALM, each.name)
            )
            worlds[seed] = World(
                seed=seed,
                plan=pickle.dumps(plan),
                replay=replay_command(plan),
                cpu_s=0.0,
                kind=(seed - 1) % len(KINDS) if is_on_tour else None,
                troubles=troubles,
            )
            if seed in found:
                _fill(worlds[seed], found[seed])
        rest = [world for seed, world in worlds.items() if seed not in found]

        def run(some: list[World]) -> None:
            def note(result: Result) -> None:
                world = some[result.place]
                world.cpu_s = result.cpu_s
                world.broken = _names(result)
                world.sentences = _sentences(result)
                world.trace_hash, world.costs = result.trace_hash, result.costs
                world.passes = result.passed
                told(world)

            with self._runner() as runner:
                ended = runner.run(
                    Request(
                        folder=folder,
                        plans=[world.plan for world in some],
                        world_s=self.effort.world_s,
                        is_patient=True,
                    ),
                    note,
                )
            if ended:
                raise RuntimeError(f"worlds without a bug: {ended}")

        with ThreadPoolExecutor(self._jobs) as pool:
            list(pool.map(run, filter(None, (rest[start :: self._jobs] for start in range(self._jobs)))))
        self.worlds = list(worlds.values())
        return self.worlds

    def try_out(self, mutant: Mutant) -> Verdict:
        """Plant a bug and say whether it is noticed."""
        planted = self._plant(mutant)
        began_s = time.monotonic()
        try:
            if mutant.caught_by == TESTS:
                run = run_tests(planted, ("--full", *mutant.tests))
            else:
                run = self._run_worlds(mutant, planted, began_s)
        finally:
            shutil.rmtree(planted, ignore_errors=True)
        return Verdict(mutant=mutant, caught=bool(run.broken), run=run)

    def _run_worlds(self, mutant: Mutant, planted: Path, began_s: float) -> Run:
        possible = [world for world in self.worlds if mutant.name in world.passes and not world.broken]
        first = self._one_of_each_kind(mutant, possible)
        results, ended = self._run_some(mutant, planted, first)
        is_caught = ended or any(result.violations for _, result in results)
        unusual = [] if is_caught else self._unusual(results)
        if self.effort.all_worlds or not (is_caught or unusual):
            otherwise = {world.kind for world, result in results if result.trace_hash != world.trace_hash}
            rest = [world for world in possible if world not in first]
            more, ended_later = self._run_some(mutant, planted, self._within_budget(mutant, rest, otherwise))
            results, ended = results + more, ended or ended_later
        found = [(world, result) for world, result in results if result.violations]
        broken = {world.seed: _names(result) for world, result in found}
        if ended:
            broken[-1] = (CRASHED,)
        if unusual:
            broken[0] = (COSTS,)
        told = tuple(each.sentence for each in unusual[:_SHOWN])
        return Run(
            worlds=len(results),
            broken=broken,
            sentences=_sentences(found[0][1]) if found else told or (ended,) * bool(ended),
            seconds=time.monotonic() - began_s,
            replay=found[0][0].replay if found else "fairway simulate" * bool(unusual),
            passing=len(possible),
            changed=sum(result.trace_hash != world.trace_hash for world, result in results),
        )

    def _unusual(self, results: Iterable[tuple[World, Result]]) -> list[Unusual]:
        """Return what a tour costs less or more with a bug, given what came of the worlds that pass its place.

        Nothing is compared should the tour be unusual without a bug.
        """
        costs = {world.seed: world.costs for world in self.worlds if world.kind is not None and world.costs}
        if not costs.keys() >= set(range(1, len(KINDS) + 1)) or self._known.unusual(costs):
            return []
        return self._known.unusual(costs | {world.seed: result.costs for world, result in results})

    def _run_some(self, mutant: Mutant, planted: Path, worlds: list[World]) -> tuple[list[tuple[World, Result]], str]:
        """Run worlds of planted sources; return what came of each, and why it ended early, or nothing."""
        results: list[tuple[World, Result]] = []

        def note(result: Result) -> None:
            world = worlds[result.place]
            results.append((world, result))
            world.tried[mutant.area] += 1
            if result.violations:
                world.caught[mutant.area] += 1

        if not worlds:
            return results, ""
        with self._runner() as runner:
            ended = runner.run(
                Request(
                    folder=planted,
                    plans=[world.plan for world in worlds],
                    world_s=self.effort.world_s,
                    is_patient=self.effort.all_worlds,
                ),
                note,
            )
        return results, ended

    @staticmethod
    def _one_of_each_kind(mutant: Mutant, possible: list[World]) -> list[World]:
        """Return one world of each kind of the tour that passes the place of a bug, in the order to try them."""
        found: dict[int, World] = {}
        for world in possible:
            if world.kind is not None:
                found.setdefault(world.kind, world)
        return sorted(found.values(), key=lambda world: -world.worth(mutant.area))

    def _within_budget(self, mutant: Mutant, rest: list[World], otherwise: set[int | None]) -> list[World]:
        """Return those worlds for which the budget is enough, in the order to try them.

        Those come first in whose kind something went otherwise than without the bug.
        """
        chosen: list[World] = []
        spent_s = 0.0
        for world in sorted(rest, key=lambda each: (each.kind not in otherwise, -each.worth(mutant.area))):
            if spent_s + world.cpu_s <= self.effort.budget_s:
                spent_s += world.cpu_s
                chosen.append(world)
        return chosen

    @contextmanager
    def _runner(self) -> Iterator[Runner]:
        """Lend a process that runs worlds, a new one where all are busy."""
        try:
            runner = self._runners.get_nowait()
        except queue.Empty:
            runner = self._new_runner()
            self._begun.append(runner)
        try:
            yield runner
        finally:
            self._runners.put(runner)

    def _mark(self, mutants: Iterable[Mutant]) -> Path:
        """Return a copy that says which bugs' places it passes."""
        by_file: dict[str, list[Mutant]] = defaultdict(list)
        for mutant in mutants:
            if mutant.caught_by == WORLDS:
                by_file[mutant.file].append(mutant)
        folder = self.folder / "marked"
        if not folder.exists():
            shutil.copytree(self.clean, folder, copy_function=os.link)
            for file, some in by_file.items():
                path = folder / "fairway" / file
                source = path.read_text(encoding="utf-8")
                path.unlink()
                path.write_text(marked(source, some), encoding="utf-8")
        return folder

    def _plant(self, mutant: Mutant) -> Path:
        folder = self.folder / mutant.name
        # Links are enough, compiled files included: of the one file that changes a new one is made.
        shutil.copytree(self.clean, folder, copy_function=os.link)
        path = folder / "fairway" / mutant.file
        source = path.read_text(encoding="utf-8")
        path.unlink()
        path.write_text(mutant.planted_in(source), encoding="utf-8")
        return folder


def plan_fields(words: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a plan that options of ``fairway simulate`` give."""
    given: dict[str, Any] = {}

    def keep(found: dict[str, Any]) -> None:
        given.update(found)

    program = typer.Typer()
    program.command()(with_plan(keep))
    typer.main.get_command(program)(list(words), standalone_mode=False)
    return given


def marked(source: str, mutants: Iterable[Mutant]) -> str:
    """Return the source of a module so that it says which bugs it passes: the statements that each changes."""
    tree = ast.parse(source)
    names: dict[ast.stmt, list[str]] = defaultdict(list)
    for mutant in mutants:
        low, high = _changed(source, mutant)
        found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= high]
        changed = [node for node in found if low <= _last_line_of(node)]
        # What is no statement, such as a handler of exceptions, is a part of the one around it.
        around = [node for node in found if low <= (node.end_lineno or 0)]
        for node in changed or around[-1:]:
            names[node].append(mutant.name)
    return ast.unparse(ast.fix_missing_locations(_Marker(names).visit(tree)))


class _Marker(ast.NodeTransformer):
    """Puts before statements what adds names to a set."""

    def __init__(self, names: Mapping[ast.stmt, Sequence[str]]) -> None:
        self._names = names

    def generic_visit(self, node: ast.AST) -> Any:
        super().generic_visit(node)
        if not isinstance(node, ast.stmt) or node not in self._names:
            return node
        return [*(ast.parse(f"{PASSED}.add({name!r})").body[0] for name in self._names[node]), node]


def _last_line_of(node: ast.stmt) -> int:
    """Return the last line of a statement, of a block that of its head."""
    body = [each.lineno for each in ast.walk(node) if isinstance(each, ast.stmt) and each is not node]
    return max(node.lineno, min(body) - 1) if body else node.end_lineno or node.lineno


def _changed(source: str, mutant: Mutant) -> tuple[int, int]:
    """Return the first and the last line, from 1, that a bug changes; of what is put between two lines both."""
    old, new = mutant.old.splitlines(), mutant.new.splitlines()
    first = source[: source.index(mutant.old)].count("\n") + 1
    at_start = sum(1 for _ in takewhile(_is_same, zip(old, new, strict=False)))
    rest = min(len(old), len(new)) - at_start
    pairs = zip(old[::-1][:rest], new[::-1][:rest], strict=True)
    low, high = first + at_start, first + len(old) - 1 - sum(1 for _ in takewhile(_is_same, pairs))
    return min(low, high), max(low, high)


def _is_same(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]


def _fill(world: World, row: Mapping[str, Any]) -> None:
    world.cpu_s = row["cpu_s"]
    world.broken, world.sentences = tuple(row["broken"]), tuple(row["sentences"])
    world.trace_hash, world.costs, world.passes = row["trace_hash"], row["costs"], frozenset(row["passes"])


def _names(result: Result) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name, _ in result.violations))


def _sentences(result: Result) -> tuple[str, ...]:
    return tuple(sentence for _, sentence in result.violations[:_SHOWN])


def run_tests(sources: Path, tests: Sequence[str]) -> Run:
    """Run tests against the sources in a folder; some of them must fail."""
    began_s = time.monotonic()
    words = ["-m", "pytest", "-x", "-q", "-n", "0", "--no-header", "-p", "no:cacheprovider", *tests]
    status, out, error = _call(sources, words, _TESTS_S)
    failed = [line for line in out.splitlines() if _FAILED.match(line)]
    if status not in {0, 1, None}:
        raise RuntimeError(f"pytest ended with {status} on {' '.join(tests)}: {_last_line(out + error)}")
    noticed = (failed[0].split(" - ")[0] if failed else HUNG,) if status != 0 else ()
    return Run(
        worlds=0,
        broken={-1: noticed} if noticed else {},
        sentences=tuple(failed[:1]),
        seconds=time.monotonic() - began_s,
    )


def _call(sources: Path, words: Sequence[str], timeout_s: float) -> tuple[int | None, str, str]:
    """Run Python on the sources in a folder; return exit status (None if it took too long), output and errors."""
    environment = {**os.environ, "PYTHONPATH": str(sources), "COLUMNS": "200"}
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, error = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end_group(process)
        out, error = process.communicate()
        return None, out, error
    except BaseException:
        _end_group(process)
        raise
    return process.returncode, out, error


def _end_group(process: subprocess.Popen[str]) -> None:
    """End a process and those that it started."""
    os.killpg(process.pid, 9)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
