"""The planted bugs as data: one file per area in ``catalogue/``.

A mutant replaces one text of one source file, which must stand there exactly once, and says what a user would suffer.
It is caught by worlds, unless it is one of a light client that no world tells: then it names the tests that must fail.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ROOT / "src" / "fairway"
CATALOGUE: Final = Path(__file__).parent / "catalogue"
WORLDS: Final = "worlds"
TESTS: Final = "tests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted bug."""

    name: str
    file: str
    """Source file, below ``src/fairway``."""
    old: str
    """The text that is right."""
    new: str
    """What is planted in its place."""
    harm: str
    """What a user would suffer."""
    caught_by: str = WORLDS
    tests: tuple[str, ...] = ()
    """For those that no world can see: what to give to pytest, of which something must fail."""
    survives: str = ""
    """Why nobody notices it, for a bug without effect."""
    area: str = ""
    """Name of its file in the catalogue."""

    def planted_in(self, source: str) -> str:
        """Return a source file with the bug in it; raise `ValueError` if its place is not there exactly once."""
        places = source.count(self.old)
        if places != 1:
            raise ValueError(f"{self.name}: its text stands {places} times in {self.file}, not once:\n{self.old}")
        return source.replace(self.old, self.new)


def mutants() -> list[Mutant]:
    """Return the whole catalogue, ordered by area; raise `ValueError` for an entry that is not one."""
    found = [mutant for path in sorted(CATALOGUE.glob("*.toml")) for mutant in _read(path)]
    names = [mutant.name for mutant in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"names that stand for several mutants: {', '.join(twice)}")
    return found


def misfits(found: list[Mutant], sources: Path = SOURCES) -> Iterator[str]:
    """Yield what is wrong with mutants, as sentences: the sources have changed, or a replacement is no program."""
    for mutant in found:
        path = sources / mutant.file
        if not path.is_file():
            yield f"{mutant.area}/{mutant.name}: there is no file {mutant.file}"
            continue
        try:
            ast.parse(mutant.planted_in(path.read_text(encoding="utf-8")))
        except (ValueError, SyntaxError) as error:
            yield f"{mutant.area}/{error}" if isinstance(error, ValueError) else f"{mutant.area}/{mutant.name}: {error}"


def _read(path: Path) -> Iterator[Mutant]:
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    known = {field.name for field in fields(Mutant)}
    for entry in entries:
        values: dict[str, Any] = {**entry, "area": path.stem, "tests": tuple(entry.get("tests", ()))}
        unknown = values.keys() - known
        if unknown:
            raise ValueError(f"{path.name}: {entry.get('name')} has {', '.join(sorted(unknown))}, which no mutant has")
        mutant = Mutant(**values)
        if mutant.old == mutant.new or not mutant.harm:
            raise ValueError(f"{path.name}: {mutant.name} changes nothing, or harms nobody")
        if mutant.caught_by not in {WORLDS, TESTS} or (mutant.caught_by == TESTS) != bool(mutant.tests):
            raise ValueError(f"{path.name}: {mutant.name} is caught by worlds, or by tests that it names")
        yield mutant
