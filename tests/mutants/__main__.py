"""Plant bugs in a copy of the sources, one at a time, and see whether worlds or tests fail.

``python -m tests.mutants`` plants the bugs of `bugs.toml`. Worlds run first, because they take seconds; then tests.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ROOT / "src"
WORLDS: Final = ("--worlds", "16", "--jobs", "1", "--world-s", "60", "--messages-per-hour", "60")
TESTS: Final = {
    "channel": ("tests/channel", "tests/protocol"),
    "protocol": ("tests/protocol", "tests/channel"),
    "storage": ("tests/storage", "tests/channel"),
    "nodes": ("tests/nodes/light", "tests/channel"),
}
"""The tests to run for a bug in each part of the package."""
LIMIT_S: Final = 900
"""A check that takes longer counts as failed: the bug makes it hang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One planted bug: a text of a source file, which must occur there exactly once, and its replacement."""

    name: str
    file: str
    """Path below ``src/fairway``."""
    old: str
    new: str
    harm: str
    """What a user would suffer."""

    def planted(self, source: str) -> str:
        """Return the source with the bug in it; raises `ValueError` unless its text occurs exactly once."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: its text occurs {source.count(self.old)} times in {self.file}, not once")
        return source.replace(self.old, self.new)


def bugs() -> list[Bug]:
    """Return all bugs."""
    entries = tomllib.loads(Path(__file__).with_name("bugs.toml").read_text(encoding="utf-8"))["bug"]
    return [Bug(**entry) for entry in entries]


def checks(bug: Bug) -> Iterator[tuple[str, list[str]]]:
    """Yield the checks that may notice a bug: a name and a command."""
    yield "worlds", [sys.executable, "-m", "fairway", "simulate", *WORLDS]
    for folder in TESTS[bug.file.split("/")[0]]:
        yield folder, [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", folder]


def caught_by(bug: Bug) -> str | None:
    """Plant a bug; return the name of the check that failed, or None if all passed."""
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder) / "src"
        shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
        path = sources / "fairway" / bug.file
        path.write_text(bug.planted(path.read_text(encoding="utf-8")), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(sources)}
        for name, command in checks(bug):
            try:
                done = subprocess.run(
                    command, cwd=ROOT, env=environment, capture_output=True, timeout=LIMIT_S, check=False
                )
            except subprocess.TimeoutExpired:
                return f"{name} (hangs)"
            if done.returncode:
                return name
    return None


def main() -> int:
    """Plant the bugs that the command line selects; return 0 if all were caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=["*"], metavar="GLOB", help="only bugs with such names")
    parser.add_argument("--count", type=int, help="only so many, drawn at random")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="seed of that draw")
    parser.add_argument("--jobs", type=int, default=1, help="bugs side by side")
    given = parser.parse_args()
    chosen = [bug for bug in bugs() if any(fnmatch(bug.name, name) for name in given.names)]
    if given.count is not None:
        chosen = Random(given.seed).sample(chosen, min(given.count, len(chosen)))
    survived = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for bug, name in zip(chosen, pool.map(caught_by, chosen), strict=True):
            survived += name is None
            print(f"{bug.name}: {'SURVIVED: ' + bug.harm if name is None else 'caught by ' + name}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} caught")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
