"""Plant a bug in a copy of the sources, and see whether worlds, or the tests named for it, notice.

Every catch is checked: the world that broke is run once more without the bug, and counts only if it holds then.
"""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.mutants.catalogue import ROOT, SOURCES, TESTS, Mutant

_START_S: Final = 60.0
"""What a process may take beside the worlds it runs."""
_TESTS_S: Final = 900.0
_FAILED: Final = re.compile(r"(FAILED|ERROR) \S+\.py")
CRASHED: Final = "the simulator itself ends"
HUNG: Final = "the simulator hangs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard each bug is looked for."""

    worlds: int = 60
    """Worlds at most."""
    first_seed: int = 1
    budget_s: float = 20.0
    """No world begins later than that."""
    world_s: float = 60.0
    """A world that takes longer counts as one that hangs."""
    plan: tuple[str, ...] = ("--participants", "4", "--hours", "0.1", "--settle-ms", "3600000")
    """What all worlds have in common: few participants and minutes, for most bugs show in many small worlds sooner
    than in few large ones."""
    all_worlds: bool = False
    """Whether to go on after the first world that breaks, to see how many do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of running worlds."""

    worlds: int
    """Worlds that were run."""
    broken: dict[int, tuple[str, ...]]
    """The invariants that broke, by seed of the world; under -1 what broke outside of any."""
    sentences: tuple[str, ...]
    """Of the first broken world."""
    seconds: float
    replay: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one planted bug."""

    mutant: Mutant
    caught: bool
    run: Run
    false_alarms: tuple[int, ...] = ()
    """Seeds of worlds that break without the bug as well."""

    @property
    def invariants(self) -> tuple[str, ...]:
        """What noticed it."""
        return tuple(dict.fromkeys(name for names in self.run.broken.values() for name in names))

    def as_json(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        return {
            "name": self.mutant.name,
            "area": self.mutant.area,
            "caught_by": self.mutant.caught_by,
            "caught": self.caught,
            "worlds": self.run.worlds,
            "broken_worlds": len(self.run.broken),
            "invariants": list(self.invariants),
            "sentences": list(self.run.sentences),
            "replay": self.run.replay,
            "seconds": round(self.run.seconds, 1),
            "survives": self.mutant.survives,
            "false_alarms": list(self.false_alarms),
        }


Runner = Callable[[Path, Effort, "int | None"], Run]
"""Runs worlds of the sources in a folder; with a seed only that one."""


@dataclass(slots=True)
class Garden:
    """A copy of the sources as they are now, in which bugs are planted one at a time."""

    folder: Path
    effort: Effort
    run: Runner = field(default_factory=lambda: simulate)
    sources: Path = SOURCES
    _holds: dict[int, bool] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        shutil.copytree(self.sources, self.clean / "fairway", ignore=shutil.ignore_patterns("__pycache__"))
        # Compiled once, what does not change need not be compiled for each bug.
        compileall.compile_dir(self.clean, quiet=1)

    @property
    def clean(self) -> Path:
        """The copy without a bug."""
        return self.folder / "clean"

    def baseline(self) -> Run:
        """Run the same worlds without any bug: none may break."""
        found = self.run(self.clean, self.effort, None)
        self._holds |= dict.fromkeys(found.broken, False)
        if found.broken:
            # The first world that breaks tells nothing then.
            self.effort = replace(self.effort, all_worlds=True)
        return found

    def try_out(self, mutant: Mutant) -> Verdict:
        """Plant a bug and say whether it is noticed."""
        planted = self._plant(mutant)
        try:
            if mutant.caught_by == TESTS:
                run = run_tests(planted, ("--full", *mutant.tests))
                return Verdict(mutant=mutant, caught=bool(run.broken), run=run)
            run = self.run(planted, self.effort, None)
        finally:
            shutil.rmtree(planted, ignore_errors=True)
        false_alarms = tuple(seed for seed in run.broken if not self._holds_without(seed))
        return Verdict(mutant=mutant, caught=len(run.broken) > len(false_alarms), run=run, false_alarms=false_alarms)

    def _plant(self, mutant: Mutant) -> Path:
        folder = self.folder / mutant.name
        # Links are enough, compiled files included: of the one file that changes a new one is made.
        shutil.copytree(self.clean, folder, copy_function=os.link)
        path = folder / "fairway" / mutant.file
        source = path.read_text(encoding="utf-8")
        path.unlink()
        path.write_text(mutant.planted_in(source), encoding="utf-8")
        return folder

    def _holds_without(self, seed: int) -> bool:
        """Return whether a world holds without any bug."""
        if seed < 0:
            return True
        with self._lock:
            if seed not in self._holds:
                self._holds[seed] = not self.run(self.clean, self.effort, seed).broken
            return self._holds[seed]


def simulate(sources: Path, effort: Effort, seed: int | None = None) -> Run:
    """Run ``fairway simulate`` of the sources in a folder."""
    words = ["--jobs", "1", "--json", "--no-shrink", "--world-s", f"{effort.world_s:g}"]
    if seed is None:
        words += ["--worlds", f"{effort.worlds}", "--budget-s", f"{effort.budget_s:g}"]
        words += ["--first-seed", f"{effort.first_seed}", *["--keep-going"] * effort.all_worlds]
    else:
        words += ["--worlds", "1", "--first-seed", f"{seed}"]
    words += effort.plan
    began_s = time.monotonic()
    status, out, error = _call(
        sources, ["-m", "fairway", "simulate", *words], effort.budget_s + 2 * effort.world_s + _START_S
    )
    seconds = time.monotonic() - began_s
    try:
        answer = json.loads(out)
    except ValueError:
        name = HUNG if status is None else CRASHED
        return Run(worlds=0, broken={-1: (name,)}, sentences=(_last_line(error),), seconds=seconds)
    broken: dict[int, tuple[str, ...]] = {}
    for world in answer["broken"]:
        names = (violation["invariant"] for violation in world["violations"])
        broken[world["plan"]["seed"]] = tuple(dict.fromkeys(names))
    first: dict[str, Any] = answer["broken"][0] if answer["broken"] else {"violations": [], "replay": ""}
    return Run(
        worlds=answer["worlds"],
        broken=broken,
        sentences=tuple(violation["sentence"] for violation in first["violations"][:3]),
        seconds=seconds,
        replay=first["replay"],
    )


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
    """End a process and those that it started: a world runs in a process of its own."""
    os.killpg(process.pid, 9)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
